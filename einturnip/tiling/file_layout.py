"""Layouts of stored tensors: the contiguous runs and chunks that decide which tilings read well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import load_seconds, store_seconds
from einturnip.cost.working_set import copies_tiles
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.storage.io.page_eviction import counts_nbytes
from einturnip.tiling.label_classes import LabelClasses
from einturnip.tiling.types import Decomposition


@dataclass(frozen=True, slots=True)
class FileLayout:
    """``axes``: slowest first. ``chunks``: extents of the stored chunks, empty if not chunked.

    ``decoded``: a chunk is always decoded as a whole. ``reading_nbytes``: memory for reading one chunk. ``shared``: all
    sites can read the file; otherwise the site that has read a tile sends it to others. ``in_place``: kernels read the
    tensor where it is, in the memory of their device, and its tiles take no bytes of the arena.
    """

    axes: tuple[int, ...]
    chunks: tuple[int, ...] = ()
    decoded: bool = False
    reading_nbytes: int = 0
    shared: bool = True
    in_place: bool = False

    def run_nbytes(self, shape: Sequence[int], extents: Sequence[int], itemsize: int) -> int:
        """Return the bytes of one contiguous run of a box."""
        run = itemsize
        for axis in reversed(self.axes):
            whole = min(shape[axis], self.chunks[axis]) if self.chunks else shape[axis]
            run *= max(1, min(extents[axis], whole))
            if extents[axis] < whole:
                break
        return run

    def decoded_nbytes(self, shape: Sequence[int], extents: Sequence[int], itemsize: int) -> int:
        """Return the bytes decoded for a box that begins at a chunk; 0 if nothing is decoded."""
        if not self.decoded:
            return 0
        sides = (min(n, -(-max(1, e) // c) * c) for n, e, c in zip(shape, extents, self.chunks, strict=True))
        return math.prod(sides) * itemsize

    def counts_nbytes(self, shape: Sequence[int], extents: Sequence[int], itemsize: int) -> int:
        """Return the bytes of page counters that track which file pages such tiles have finished with."""
        if self.in_place:
            return 0
        pieces = self.chunks or shape
        part = math.prod(max(1, min(e, p)) for e, p in zip(extents, pieces, strict=True)) * itemsize
        run = self.run_nbytes(shape, extents, itemsize)
        return 0 if self.decoded or run == part else counts_nbytes(math.prod(shape) * itemsize, run)

    def extra_reads(self, shape: Sequence[int], extents: Sequence[int]) -> int:
        """Return how many more parts such tiles are read in because chunks end inside them."""
        if not self.chunks or 0 in shape:
            return 0
        sides = [(n, max(1, min(e, n)), max(1, min(c, n))) for n, e, c in zip(shape, extents, self.chunks, strict=True)]
        parts = math.prod(-(-n // e) + -(-n // c) - -(-n // math.lcm(e, c)) for n, e, c in sides)
        return parts - math.prod(-(-n // e) for n, e, _ in sides)

    def store_seconds(self, shape: Sequence[int], extents: Sequence[int], itemsize: int, machine: Machine) -> float:
        """Return the seconds of writing a box that begins at a chunk."""
        pieces = self.chunks or shape
        chunks = math.prod(-(-e // p) for e, p in zip(extents, pieces, strict=True) if p)
        part = tuple((0, min(e, p)) for e, p in zip(extents, pieces, strict=True))
        return chunks * store_seconds(pieces, part, itemsize, machine)

    def load_seconds(self, shape: Sequence[int], extents: Sequence[int], itemsize: int, machine: Machine) -> float:
        """Return the seconds of reading a box that begins at a chunk."""
        if self.in_place:
            return 0.0
        pieces, order = self.chunks or shape, self.axes
        read = [min(e, p) for e, p in zip(extents, pieces, strict=True)] if not self.decoded else list(pieces)
        chunks = math.prod(-(-e // p) for e, p in zip(extents, pieces, strict=True) if p)
        one = load_seconds([pieces[a] for a in order], tuple((0, read[a]) for a in order), itemsize, machine)
        return chunks * one


def layout_of(layouts: Mapping[int, FileLayout], node: int, rank: int) -> FileLayout:
    """Return the layout of a node; row-major in one piece by default."""
    return layouts.get(node) or FileLayout(tuple(range(rank)))


def in_chunks(classes: LabelClasses, graph: EinGraph, layouts: Mapping[int, FileLayout]) -> LabelClasses:
    """Make tiles multiples or parts of inputs' chunks if possible; if inputs disagree, the largest counts."""
    chunks = list(classes.chunks)
    stored = [i for i, layout in layouts.items() if layout.chunks and isinstance(graph.nodes[i], InputNode)]
    for i in sorted(stored, key=lambda i: -math.prod(graph.nodes[i].shape) * graph.nodes[i].dtype.itemsize):
        ratios = classes.ratios.get(i, (1,) * len(graph.nodes[i].shape))
        for c, chunk, ratio in zip(classes.of[i], layouts[i].chunks, ratios, strict=True):
            step = math.lcm(chunks[c], math.ceil(chunk / ratio))
            if step < classes.bounds[c]:
                chunks[c] = step
    return replace(classes, chunks=tuple(chunks))


def overlapping_inputs(d: Decomposition) -> frozenset[int]:
    """Return the inputs whose parts are assembled from tiles, so that shared data is read once."""
    found: set[int] = set()
    for node, part in zip(d.graph.nodes, d.partitionings, strict=True):
        if isinstance(node, EinsumNode) and not node.einsum.plain:
            for operand in set(node.operands) - found:
                if isinstance(d.graph.nodes[operand], InputNode):
                    slots = [slot for slot, o in enumerate(node.operands) if o == operand]
                    if copies_tiles(node.einsum, slots, part.tiles):
                        found.add(operand)
    return frozenset(found)
