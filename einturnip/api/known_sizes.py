"""The sizes that are known of a program, before it needs them all."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import SupportsIndex

from einturnip.core.errors import BindError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.build.sizes import bind_sizes
from einturnip.lang.program import SizeName, TypedProgram
from einturnip.storage.types import Source


def whole_sizes(dims: Mapping[str, SupportsIndex]) -> dict[str, int]:
    """The sizes that a caller gives, as Python's numbers: NumPy's integers too.

    Raises:
        BindError: one is no whole number.
    """
    found = {}
    for name, size in dims.items():
        try:
            found[name] = operator.index(size)
        except TypeError:
            raise BindError(f"size {name} = {size!r} in dims= is no whole number. help: write {name!r}: 4096") from None
    return found


def workers_stated(workers: SupportsIndex) -> int:
    """How many workers a caller asks for.

    Raises:
        BindError: it is no whole number above 0.
    """
    try:
        found = operator.index(workers)
    except TypeError:
        found = 0
    if found < 1:
        raise BindError(f"workers={workers!r} is no number of threads. help: 1 or more; left out, one a core")
    return found


def known_sizes(program: TypedProgram, sources: Mapping[str, Source], dims: Mapping[str, int]) -> Mapping[str, int]:
    """The value of every dim, once all statements agree with them; where some have no value yet, those of the others.

    Raises:
        BindError, SourceError: sizes disagree.
    """
    shapes = {name: source.shape for name, source in sources.items()}
    origins = {name: source.name for name, source in sources.items()}
    try:
        sizes = bind_sizes(program, shapes, dims, origins).values
    except BindError as error:
        if error.diagnostics and all(finding.code == _UNBOUND for finding in error.diagnostics):
            return _read_off(program, shapes) | dict(dims)
        raise
    build(program, shapes, dims, origins)
    return sizes


def _read_off(program: TypedProgram, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The dims that stand alone as an axis of an input whose shape is known."""
    return {
        axis.name: n
        for tensor in program.inputs
        for axis, n in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False)
        if isinstance(axis, SizeName)
    }


# The code of "size 'n' has no value", which is no error before a run.
_UNBOUND = "E205"
