"""Chunks of stored outputs that one site alone writes.

Two processes that write parts of one chunk, or of one page of it, can overwrite each other's bytes on file systems of a
network. So chunks end where the tiles of another site begin: their extents divide the distances between these places,
the ``periods`` of an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from einturnip.memgraph.types import MemGraph, OpKind, output_tier
from einturnip.sites.types import Ints
from einturnip.tuning.memory import MAX_CELLS_OF_BOX, MIN_CHUNK_SHARE


def one_writer_chunks(
    graph: MemGraph, output: int, choose: Callable[[Sequence[int]], tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the chunk shape of a file with which one site alone writes each chunk; () without chunks.

    None if such chunks would be too many: much smaller than tiles and than the chunks for a single writer.
    ``choose``: returns the format's chunk shape for periods (see ``FileFormat.output_chunks``).
    """
    usual = choose(())
    if not usual:
        return usual
    boxes, site = stored_boxes(graph, output)
    chunks = choose(periods(boxes, site))
    largest = int(np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1).max(initial=0))
    return chunks if math.prod(chunks) >= MIN_CHUNK_SHARE * min(largest, math.prod(usual)) else None


def has_one_writer(apart: Sequence[int], chunks: Sequence[int]) -> bool:
    """Return whether one site alone writes each chunk of a file with these chunks.

    ``apart``: see ``periods``.
    """
    return all(period % extent == 0 for period, extent in zip(apart, chunks, strict=True))


def periods(boxes: Ints, site: Ints) -> tuple[int, ...]:
    """Return by axis the distance whose multiples separate the parts of an output that sites write.

    0: nothing separates them along the axis.

    Shapes:
        boxes: as in ``stored_boxes``; together they cover the output.
    """
    rank: int = boxes.shape[1]
    if not len(site) or (site == site[0]).all():
        return (0,) * rank
    cuts = [np.unique(boxes[:, axis]) for axis in range(rank)]
    if math.prod(len(c) - 1 for c in cuts) > MAX_CELLS_OF_BOX * len(boxes):
        return tuple(math.gcd(*ends[1:-1].tolist()) for ends in cuts)
    at = np.stack([np.searchsorted(c, boxes[:, axis]) for axis, c in enumerate(cuts)], axis=1)
    owner = np.full([len(c) - 1 for c in cuts], -1, np.int64)
    single = (at[:, :, 1] - at[:, :, 0] == 1).all(axis=1)
    owner[tuple(at[single, :, 0].T)] = site[single]
    for (low, high), here in zip(at[~single].transpose(0, 2, 1), site[~single], strict=True):
        owner[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = here
    found = []
    for axis, ends in enumerate(cuts):
        others = tuple(a for a in range(rank) if a != axis)
        changes = (np.diff(owner, axis=axis) != 0).any(axis=others)
        found.append(math.gcd(*ends[1:-1][changes].tolist()))
    return tuple(found)


def stored_boxes(graph: MemGraph, output: int) -> tuple[Ints, Ints]:
    """Return the boxes of an output that are stored, and the site that stores each.

    Shapes:
        boxes: (stores, axes, 2), start and stop of each axis.
    """
    program = graph.taskgraph.decomposition.graph
    rank = len(program.nodes[program.outputs[output][1]].shape)
    ops = np.flatnonzero(graph.kind == OpKind.STORE)
    written = graph.write[graph.write_ptr[ops]]
    mine = written[:, 0] == output_tier(program, output)
    sites: Ints = graph.op_devices()[ops[mine]].astype(np.int64)
    return graph.taskgraph.boxes(graph.all_unversioned(written[mine, 3]), rank), sites
