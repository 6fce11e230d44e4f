"""Determines the known sizes of a program before it runs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import SupportsIndex

from einturnip.compiler import shapes_of
from einturnip.core.errors import BindError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.build.sizes import bind_sizes
from einturnip.eingraph.build.stages import build_stages
from einturnip.lang.expressions import SizeName
from einturnip.lang.program import TypedProgram
from einturnip.storage.types import Source


def integer_sizes(dims: Mapping[str, SupportsIndex]) -> dict[str, int]:
    """Convert given sizes, including NumPy integers, to Python integers.

    Raises:
        BindError: one is not an integer.
    """
    found = {}
    for name, size in dims.items():
        try:
            found[name] = operator.index(size)
        except TypeError:
            raise BindError(f"size {name} = {size!r} in dims= is no whole number. help: write {name!r}: 4096") from None
    return found


def checked_workers(workers: SupportsIndex) -> int:
    """Validate a number of workers.

    Raises:
        BindError: it is not a positive integer.
    """
    try:
        found = operator.index(workers)
    except TypeError:
        found = 0
    if found < 1:
        raise BindError(f"workers={workers!r} is no number of threads. help: 1 or more; left out, one a core")
    return found


def checked_sites(sites: SupportsIndex) -> int:
    """Validate the type of a number of sites; ``of_sites`` checks its range.

    Raises:
        BindError: it is not an integer.
    """
    try:
        return operator.index(None if isinstance(sites, bool) else sites)  # type: ignore[arg-type]
    except TypeError:
        raise BindError(f"sites={sites!r} is no number of sites. help: a whole number, such as sites=4") from None


def checked_retries(retries: int) -> int:
    """The number of times that a run on workers is repeated after a worker was lost.

    Raises:
        BindError: it is no whole number from 0 on.
    """
    try:
        found = operator.index(retries)
    except TypeError:
        found = -1
    if found < 0:
        raise BindError(f"retries={retries!r} is no number of times. help: 0 or more")
    return found


def known_sizes(program: TypedProgram, sources: Mapping[str, Source], dims: Mapping[str, int]) -> Mapping[str, int]:
    """The dims with known values, after checking that all statements agree with them.

    Raises:
        BindError, SourceError: sizes disagree.
    """
    shapes, origins = shapes_of(sources)
    try:
        sizes = bind_sizes(program, shapes, dims, origins).values
    except BindError as error:
        if error.diagnostics and all(finding.code == _UNBOUND for finding in error.diagnostics):
            return _sizes_of_plain_axes(program, shapes) | dict(dims)
        raise
    if build_stages(program, shapes, dims, origins) is None:
        build(program, shapes, dims, origins)
    return sizes


def _sizes_of_plain_axes(program: TypedProgram, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The dims that are an entire axis size of an input of known shape."""
    return {
        axis.name: n
        for tensor in program.inputs
        for axis, n in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False)
        if isinstance(axis, SizeName)
    }


# The code of "size 'n' has no value", which is not an error before a run.
_UNBOUND = "E205"
