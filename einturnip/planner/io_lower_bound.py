"""Lower bound on the bytes that any plan of a graph must move over each link.

Compulsory traffic. Every element of an input that the outputs depend on is read once (``needed_elements``), every
element of a stored output is written once.

Products. C[m,n] = sum[k] A[m,k] B[k,n], A and B stored, in an arena of S elements. Each of the V = MNK multiplications
needs its elements of A and B and its accumulator in the arena at the same time.

1. Divide the run into N parts. Let u_p be S (0 for the first part, whose arena begins empty) plus the elements that
   enter the arena during part p: elements read, partial sums read back, and accumulators begun. With a, b and c
   distinct elements of A, B and C used in the part, a + b + c <= u_p, and the part computes at most sqrt(a b c) <= (u_p
   / 3)^1.5 products (Loomis and Whitney 1949). Since x^1.5 is convex, choose the parts so that all u_p are equal: then
   V <= N (u / 3)^1.5, and N u - (N - 1) S elements enter in total. So for every integer N >= 1

       entering >= 3 N^(1/3) V^(2/3) - (N - 1) S,      about 2 V / sqrt(S) + S for N near V / S^1.5.

2. Beginning an accumulator costs no read. Assume that partial sums of one element are added as soon as both are in the
   arena. Then every residency of an accumulator except the first reads a partial sum back, so at most MN entries are
   free:

       read >= entering - MN.

   With C written once, both links together move at least 2MNK/sqrt(S) elements (and S more, if N is an integer).
   The familiar 2MNK/sqrt(S) + MN is the traffic of keeping square blocks of C (``blocked_nbytes``), not a bound: for
   K = sqrt(S), keeping a square block of A and making C column by column reads and writes one element per element of C.

3. Elements of several sizes: weigh a, b and c by bytes, so that V <= (u / 3)^1.5 / sqrt(w_A w_B w_C). A batch is
   covered by the same inequality, since sum sqrt(x y z) <= sqrt(sum x sum y sum z).

4. If A and B are one tensor X, an element serves on both sides: V <= x sqrt(c) with x + c <= u, at most
   2 (u / 3)^1.5. A symmetric result needs only its V/2 products and MN/2 accumulators on one side of the diagonal:
   for each k, n_k elements of X make at most min(n_k^2 / 2, c) <= n_k sqrt(c / 2) of them, so V/2 <= x sqrt(c / 2), at
   most sqrt(2) (u / 3)^1.5. That is sqrt(2) times less traffic than for distinct operands with half the products.

Sources: Smith, Lowery, Langou and van de Geijn, A tight I/O lower bound for matrix multiplication (arXiv 1702.02017),
after Hong and Kung (1981) and Irony, Toledo and Tiskin (2004); Beaumont, Eyraud-Dubois, Verite and Langou, I/O-optimal
algorithms for symmetric linear algebra kernels (SPAA 2022, arXiv 2202.10217). Steps 1 and 2 keep the terms of lower
order, since plans are often small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Box, ContractionRoles, Einsum, contraction
from einturnip.planner.needed_elements import needed_elements
from einturnip.tiling.pieces import points

IN, OUT = "disk->cpu:0", "cpu:0->disk"


def io_lower_bound(
    graph: EinGraph,
    arena: int,
    read_itemsize: Mapping[str, float] | None = None,
    discarded: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """Return a lower bound on the bytes that any plan of the graph must move over each link.

    ``arena``: in bytes. ``read_itemsize``: bytes moved per element of an input, if that differs from its size in
    memory: zero for random numbers, less for quantized files. ``discarded``: outputs that are not stored.
    """
    return TrafficBound(graph).lower_bound(arena, read_itemsize or {}, discarded)


class TrafficBound:
    """Needed elements and products of one graph, from which the bound for any arena is computed."""

    def __init__(self, graph: EinGraph) -> None:
        self._graph = graph

    @cached_property
    def _needed(self) -> tuple[dict[int, int], dict[int, tuple[Box, ...]]]:
        return needed_elements(self._graph)

    @cached_property
    def _products(self) -> tuple[_Product, ...]:
        """The products of two stored operands, each kind once."""
        nodes, found = self._graph.nodes, {}
        for i, boxes in self._needed[1].items():
            node = nodes[i]
            # A computed operand may never cross the link.
            if isinstance(node, EinsumNode) and all(isinstance(nodes[o], InputNode) for o in node.operands):
                e = node.einsum
                c = contraction(e) if isinstance(e, Einsum) and e.plain else None
                if c is not None and boxes:
                    assert isinstance(e, Einsum)
                    box = max(boxes, key=points)
                    found[id(e), box, node.operands] = _product(e, c, box, node.operands)
        return tuple(found.values())

    def lower_bound(
        self, arena: int, read_itemsize: Mapping[str, float], discarded: frozenset[str] = frozenset()
    ) -> dict[str, int]:
        """See ``io_lower_bound``."""
        nodes, read = self._graph.nodes, {}
        for i, count in self._needed[0].items():
            node = nodes[i]
            assert isinstance(node, InputNode)
            read[i] = math.floor(count * read_itemsize.get(node.name, node.dtype.itemsize))
        total = bound = sum(read.values())
        for p in self._products:
            operands = set(p.operands)
            cheapest = min(self._share_read(i, read_itemsize) for i in operands)
            # Operands and partial sums of the product are read in addition to all other inputs.
            others = total - sum(read.get(i, 0) for i in operands)
            bound = max(bound, others + math.floor(min(1.0, cheapest) * p.read_nbytes(arena)))
        return {IN: bound, OUT: self._written(discarded)}

    def blocked_nbytes(self, arena: int) -> tuple[float, float]:
        """Return the bytes read and written by a plan that keeps square blocks of a product."""
        needed = sum(n * self._graph.nodes[i].dtype.itemsize for i, n in self._needed[0].items())
        return max(needed, *(p.blocked_nbytes(arena) for p in self._products), 0.0), self._written(frozenset())

    def _share_read(self, i: int, read_itemsize: Mapping[str, float]) -> float:
        node = self._graph.nodes[i]
        assert isinstance(node, InputNode)
        return read_itemsize.get(node.name, node.dtype.itemsize) / node.dtype.itemsize

    def _written(self, discarded: frozenset[str]) -> int:
        nodes = self._graph.nodes
        kept = (nodes[i] for name, i in self._graph.outputs if name not in discarded)
        return sum(math.prod(n.shape) * n.dtype.itemsize for n in kept)


class _Product(NamedTuple):
    """A product, as the bound sees it: a part of the run computes at most ``rate * (u / 3)^1.5`` of it.

    u is in bytes. ``multiplications`` and ``accumulator_nbytes`` are minima over all plans; ``all``: MNK; ``itemsize``:
    that of the sums.
    """

    operands: tuple[int, ...]
    multiplications: int
    rate: float
    accumulator_nbytes: int
    all: int
    itemsize: int

    def read_nbytes(self, arena: int) -> float:
        """Return the bytes of operands and partial sums that are read (derivation above)."""
        if not self.multiplications:
            return 0.0
        volume = self.multiplications / self.rate
        at = math.floor(volume / arena**1.5)
        parts = (max(1, at), at + 1)
        entering = max(3 * n ** (1 / 3) * volume ** (2 / 3) - (n - 1) * arena for n in parts)
        return float(entering) * (1 - 1e-12) - self.accumulator_nbytes

    def blocked_nbytes(self, arena: int) -> float:
        """Return the bytes read if square blocks of the result stay while panels of operands pass."""
        return 2.0 * self.all / math.sqrt(max(1.0, arena / self.itemsize)) * self.itemsize


def _product(e: Einsum, c: ContractionRoles, box: Box, operands: tuple[int, ...]) -> _Product:
    """Return the product that computes one box of an einsum's result."""
    bounds = [hi - lo for lo, hi in box] + [e.bounds[p] for p in e.aggregated]
    volume, outputs = math.prod(bounds), math.prod(bounds[: e.n_out])
    sum_itemsize = min(c.accumulator.itemsize, e.dtype.itemsize)
    left, right = e.dtypes[c.left].itemsize, e.dtypes[c.right].itemsize
    rate = 1 / math.sqrt(left * right * sum_itemsize)
    multiplications, accumulators = volume, outputs
    if operands[c.left] == operands[c.right]:
        rate *= 2
        swap = _swap(e, c)
        if swap is not None:
            # Each multiplication serves at most two points. For a symmetric box step 4 gives more, for each k.
            multiplications = volume // 2
            fixed = all(p == q for p, q in swap.items() if p not in (*c.m, *c.n))
            if fixed and all(box[p] == box[q] for p, q in swap.items() if p < e.n_out):
                rate /= math.sqrt(2)
                side = math.prod(bounds[p] for p in c.m)
                multiplications, accumulators = (volume - volume // side) // 2, (outputs - outputs // side) // 2
    return _Product(operands, multiplications, rate, accumulators * sum_itemsize, volume, c.accumulator.itemsize)


def _swap(e: Einsum, c: ContractionRoles) -> dict[int, int] | None:
    """Return the exchange of labels under which the product of a tensor with itself is symmetric, if any."""
    swap: dict[int, int] = {}
    for p, q in zip(e.accesses[c.left], e.accesses[c.right], strict=True):
        assert isinstance(p, int) and isinstance(q, int)
        if swap.setdefault(p, q) != q or swap.setdefault(q, p) != p:
            return None
    return swap if all((p < e.n_out) == (q < e.n_out) for p, q in swap.items()) else None
