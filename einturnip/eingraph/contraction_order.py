"""The order in which a product of many tensors is contracted: opt_einsum's, over label positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Pairs = tuple[tuple[int, int], ...]


def contraction_order(
    factors: Sequence[frozenset[int]], out: frozenset[int], sizes: Mapping[int, int], limit: int | None
) -> Pairs:
    """Pairs of positions in a list that loses both and gains their product at its end.

    Orders whose intermediates stay within ``limit`` elements go first; where there is none, the limit is dropped.

    Source: opt_einsum (Smith and Gray, 2018), its ``auto`` path: exact to 4 factors, branching to 14, then greedy.
    """
    from opt_einsum import get_symbol
    from opt_einsum.paths import auto

    inputs = [frozenset(map(get_symbol, labels)) for labels in factors]
    output = frozenset(map(get_symbol, out))
    size_of = {get_symbol(p): max(1, n) for p, n in sizes.items()}
    for bound in (None,) if limit is None else (limit, None):
        path = [tuple(sorted(step)) for step in auto(inputs, output, size_of, bound)]
        if all(len(step) == 2 for step in path):
            return tuple((i, j) for i, j in path)
    return tuple((0, 1) for _ in factors[1:])
