"""Layouts of a run's files: those that inputs are read from, and those that results are written to."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import DType
from einturnip.storage import location, registry
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.chunks.files import ChunkFiles
from einturnip.storage.types import Source, contiguous_nbytes
from einturnip.tiling.file_layout import FileLayout


def layout(source: Source) -> FileLayout:
    """Return a source's axes from the longest stride to the contiguous one, and its chunks, if any."""
    axes = range(len(source.shape))
    unit = [tuple((0, min(n, 2 if a == b else 1)) for b, n in enumerate(source.shape)) for a in axes]
    order = sorted(axes, key=lambda a: contiguous_nbytes(source, unit[a]) > source.dtype.itemsize)
    if isinstance(source, ChunkedSource):
        return FileLayout(tuple(order), source.chunks, True, source.held_nbytes)
    return FileLayout(tuple(order), source.chunks if isinstance(source, ChunkFiles) else ())


def output_chunks(target: str, shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Return the chunk shape of a result in ``target``; () if it is contiguous.

    ``target``: a file with or without a key, or an array's name.
    """
    found = registry.find(location.ending(target.partition("::")[0]))
    return () if found is None else found.output_chunks(shape, dtype)


def layouts(graph: EinGraph, inputs: Mapping[str, FileLayout], targets: Mapping[str, str]) -> dict[int, FileLayout]:
    """Return the layouts of inputs and results by node.

    ``inputs``: layouts by name; ``targets``: files of outputs by name.
    """
    nodes = enumerate(graph.nodes)
    found = {i: inputs[n.name] for i, n in nodes if isinstance(n, InputNode) and n.name in inputs}
    for name, i in graph.outputs:
        node = graph.nodes[i]
        if i not in found and (chunks := output_chunks(targets.get(name, ""), node.shape, node.dtype)):
            found[i] = FileLayout(tuple(range(len(node.shape))), chunks)
    return found
