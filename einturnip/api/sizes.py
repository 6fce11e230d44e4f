"""The sizes that are known of a program, before it needs them all."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.core.errors import BindError
from einturnip.eingraph.build import build
from einturnip.eingraph.sizes import bind_sizes
from einturnip.lang.types import Program
from einturnip.stores.types import Source


def known_sizes(program: Program, sources: Mapping[str, Source], dims: Mapping[str, int]) -> Mapping[str, int]:
    """The value of every dim, once all statements agree with them; those given alone, where some have no value yet.

    Raises:
        BindError, SourceError: sizes disagree.
    """
    shapes = {name: source.shape for name, source in sources.items()}
    origins = {name: source.name for name, source in sources.items()}
    try:
        sizes = bind_sizes(program, shapes, dims, origins).values
    except BindError as error:
        if error.diagnostics and all(finding.code == _UNBOUND for finding in error.diagnostics):
            return dims
        raise
    build(program, shapes, dims, origins)
    return sizes


# The code of "size 'n' has no value", which is no error before a run.
_UNBOUND = "E205"
