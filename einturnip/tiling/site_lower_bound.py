"""Lower bound on the bytes that pass between sites, however much memory each has.

Sites that share the points of a matrix product each access parts of its three matrices. By the inequality of Loomis and
Whitney the sizes of the parts of a site have a product of at least the square of its points; each part is at least the
same share of its matrix as the site has of the points. The bound is the minimum of their total less what the sites own,
if every matrix is stored once.

Source: Al Daas, Ballard, Grigori, Kumar, Rouse, Tight memory-independent parallel matrix multiplication communication
lower bounds (SPAA 2022, arXiv 2205.13407).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.einsum import contraction
from einturnip.ir.region import Region


def lower_bound_nbytes(graph: EinGraph, sites: int, rates: Sequence[float] = ()) -> int:
    """Return the sum of the bounds of all products.

    Other statements, and products with labels that all three tensors have, count as 0. ``rates``: of the sites; each
    computes such a part of the points. By default all compute as much.
    """
    number = Counter(rates) if rates else Counter({1.0: sites})
    total = sum(rate * n for rate, n in number.items())
    shares = {rate / total: n for rate, n in number.items()}
    return sum(_of_product(node, shares) for node in graph.nodes if isinstance(node, EinsumNode))


def _of_product(node: EinsumNode, shares: Mapping[float, int]) -> int:
    """Return the bound of one product. ``shares``: the numbers of sites by their share of the points."""
    roles = None if isinstance(node.einsum, Region) else contraction(node.einsum)
    if roles is None or roles.batch:
        return 0
    m, n, k = (math.prod(node.einsum.bounds[p] for p in labels) for labels in (roles.m, roles.n, roles.k))
    itemsizes = (node.einsum.dtypes[roles.left].itemsize, node.einsum.dtypes[roles.right].itemsize, node.dtype.itemsize)
    sizes = (m * k, k * n, m * n)
    owned = sum(w * size for w, size in zip(itemsizes, sizes, strict=True))
    accessed = sum(
        n_sites * _min_access([size * share for size in sizes], itemsizes, m * n * k * share)
        for share, n_sites in shares.items()
    )
    return max(0, int(accessed - owned))


def _min_access(shares: Sequence[float], itemsizes: Sequence[int], points: float) -> float:
    """Return the minimum bytes of parts of at least ``shares`` elements, with product ``points`` squared."""
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
