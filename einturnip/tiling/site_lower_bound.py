"""Lower bound on the bytes that pass between sites, however much memory each has.

Sites that share the points of a matrix product evenly each access parts of its three matrices. By the inequality of
Loomis and Whitney the sizes of these parts have a product of at least (points / P)^2; each part is at least 1 / P of
its matrix. The bound is the minimum of their total less what the sites own, if every matrix is stored once and evenly.

Source: Al Daas, Ballard, Grigori, Kumar, Rouse, Tight memory-independent parallel matrix multiplication communication
lower bounds (SPAA 2022, arXiv 2205.13407).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.region import Region


def lower_bound_nbytes(graph: EinGraph, sites: int) -> int:
    """Return the sum of the bounds of all products.

    Other statements, and products with labels that all three tensors have, count as 0.
    """
    return sum(_of_product(node, sites) for node in graph.nodes if isinstance(node, EinsumNode))


def _of_product(node: EinsumNode, sites: int) -> int:
    roles = None if isinstance(node.einsum, Region) else contraction(node.einsum)
    if roles is None or roles.batch:
        return 0
    m, n, k = (math.prod(node.einsum.bounds[p] for p in labels) for labels in (roles.m, roles.n, roles.k))
    itemsizes = (node.einsum.dtypes[roles.left].itemsize, node.einsum.dtypes[roles.right].itemsize, node.dtype.itemsize)
    sizes = (m * k, k * n, m * n)
    owned = sum(w * size for w, size in zip(itemsizes, sizes, strict=True))
    return max(0, int(sites * _least_access([size / sites for size in sizes], itemsizes, m * n * k / sites) - owned))


def _least_access(shares: Sequence[float], itemsizes: Sequence[int], points: float) -> float:
    """Return the fewest bytes of parts of at least ``shares`` elements, of product ``points`` squared."""
    fixed: set[int] = set()
    while True:
        free = [j for j in range(len(shares)) if j not in fixed]
        if not free or not points:
            return sum(w * share for w, share in zip(itemsizes, shares, strict=True))
        left = points**2 / math.prod(shares[j] for j in fixed)
        each = math.pow(left * math.prod(itemsizes[j] for j in free), 1 / len(free))  # bytes of each free part
        short = {j for j in free if each / itemsizes[j] < shares[j]}
        if not short:
            return sum(itemsizes[j] * shares[j] for j in fixed) + len(free) * each
        fixed |= short
