"""Scratch in which the products of a prepared run pack their operands; constant ones stay there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from einturnip.core.units import whole_lines
from einturnip.eingraph.types import EinsumNode
from einturnip.kernels.contraction_choice import packed_nbytes
from einturnip.kernels.llvm.contraction import keep_packed_right
from einturnip.kernels.protocol import KernelCall, address_of
from einturnip.memgraph.types import FILES, MemGraph, OpKind
from einturnip.memgraph.views import Array
from einturnip.runtime.host.prepared_ops import PreparedOps

LINE_NBYTES = whole_lines(1)


class PackingScratch:
    """The scratch of one run: a part that calls share, and a part for each constant operand.

    ``kept``: the latter parts; the first words of each say what is packed there.
    """

    def __init__(self, shared: Array | None = None, kept: Sequence[Array] = ()) -> None:
        self._shared, self._kept = shared, kept

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self._shared, *self._kept) if part is not None)

    def forget(self) -> None:
        """Let the next calls pack constant operands anew."""
        for part in self._kept:
            part[: 2 * LINE_NBYTES] = 0

    @classmethod
    def of(cls, graph: MemGraph, prepared: PreparedOps, constant: Collection[int], by_blas: bool) -> PackingScratch:
        """Return the scratch of the prepared calls, and set its addresses in their words.

        ``constant``: the inputs, by node, whose packed copies stay, as far as they fit in the memory that the plan
        counts for a thread that packs. ``by_blas``: BLAS packs too, and takes that memory.
        """
        calls = {k: call for k, call in prepared.kernel_calls.items() if call.scratch >= 0}
        if not calls:
            return cls()
        shared, kept = _empty(max(call.scratch_nbytes for call in calls.values())), list[Array]()
        spare = 0 if by_blas else _packed_nbytes(graph) - shared.nbytes
        for k, call in calls.items():
            part = shared
            if call.scratch_nbytes + LINE_NBYTES <= spare and _input_of(graph, prepared.ids[k], call) in constant:
                assert call.words is not None
                if keep_packed_right(call.words):
                    part = _empty(call.scratch_nbytes)
                    kept.append(part)
                    spare -= part.nbytes
            call.words[call.scratch] = whole_lines(address_of(part))
            call.scratch = -1
        return cls(shared, kept)


def _empty(nbytes: int) -> Array:
    """Return memory for aligned scratch in which nothing is packed yet."""
    return np.zeros(nbytes + LINE_NBYTES, np.uint8)


def _packed_nbytes(graph: MemGraph) -> int:
    """Return the bytes that the plan counts for a thread that packs operands."""
    d = graph.taskgraph.decomposition
    pairs = zip(d.graph.nodes, d.partitionings, strict=True)
    return max((packed_nbytes(n.einsum, part.tiles) for n, part in pairs if isinstance(n, EinsumNode)), default=0)


def _input_of(graph: MemGraph, op: int, call: KernelCall) -> int:
    """Return the input, by node, from which the operand comes that a call packs as a whole; -1 for others."""
    if call.packed < 0:
        return -1
    value = graph.taskgraph[int(graph.task[op])].seen[call.packed]
    loads = np.flatnonzero(graph.kind == OpKind.LOAD)
    mine = loads[graph.write[graph.write_ptr[loads], 3] == value]
    tiers = graph.read[graph.read_ptr[mine], 0] - FILES
    return int(tiers[0]) if len(tiers) else -1
