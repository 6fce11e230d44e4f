"""How the files of a run lie: those that inputs are read from, and those that results are written to."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.storage import location
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.chunks.files import ChunkFiles
from einturnip.storage.types import Source
from einturnip.tiling.file_layout import FileLayout


def layout(source: Source) -> FileLayout:
    """The axes from the one with the longest stride to the contiguous one; chunks, where there are any."""
    axes = range(len(source.shape))
    unit = [tuple((0, min(n, 2 if a == b else 1)) for b, n in enumerate(source.shape)) for a in axes]
    order = sorted(axes, key=lambda a: source.contiguous_nbytes(unit[a]) > source.dtype.itemsize)
    if isinstance(source, ChunkedSource):
        return FileLayout(tuple(order), source.chunks, True, source.held_nbytes)
    return FileLayout(tuple(order), source.chunks if isinstance(source, ChunkFiles) else ())


def is_chunked(target: str) -> bool:
    """Whether a result goes to a file of chunks. ``target``: its file, with a key or without; or an array's name."""
    return location.ending(target.partition("::")[0]) == ".zarr"


def layouts(graph: EinGraph, inputs: Mapping[str, FileLayout], targets: Mapping[str, str]) -> dict[int, FileLayout]:
    """By node, how inputs and results lie. ``inputs``: by name; ``targets``: where outputs go, by name."""
    nodes = enumerate(graph.nodes)
    found = {i: inputs[n.name] for i, n in nodes if isinstance(n, InputNode) and n.name in inputs}
    for name, i in graph.outputs:
        if i not in found and is_chunked(targets.get(name, "")):
            from einturnip.storage.outputs.zarr_container import chunk_shape

            node = graph.nodes[i]
            found[i] = FileLayout(tuple(range(len(node.shape))), chunk_shape(node.shape, node.dtype.itemsize))
    return found
