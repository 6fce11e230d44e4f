"""The sizes that are known of a program, before it needs them all."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.core.errors import BindError
from einturnip.eingraph.build import build
from einturnip.eingraph.sizes import bind_sizes
from einturnip.lang.types import Program, SizeName
from einturnip.stores.types import Source


def known_sizes(program: Program, sources: Mapping[str, Source], dims: Mapping[str, int]) -> Mapping[str, int]:
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


def _read_off(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The dims that stand alone as an axis of an input whose shape is known."""
    return {
        axis.name: n
        for tensor in program.inputs
        for axis, n in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False)
        if isinstance(axis, SizeName)
    }


# The code of "size 'n' has no value", which is no error before a run.
_UNBOUND = "E205"
