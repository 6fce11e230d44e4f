"""The order in which a product of many tensors is contracted: opt_einsum's, over label positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

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

    def order(bound: int | None) -> Pairs | None:
        path = [tuple(sorted(step)) for step in auto(inputs, output, size_of, bound)]
        return tuple((i, j) for i, j in path) if all(len(step) == 2 for step in path) else None

    free = order(None)
    # Under a limit opt_einsum's search of many factors takes cubic time, so it is asked only where it is needed.
    if limit is not None and (free is None or _largest(free, factors, out, sizes) > limit):
        free = order(limit) or free
    return tuple((0, 1) for _ in factors[1:]) if free is None else free


def _largest(pairs: Pairs, factors: Sequence[frozenset[int]], out: frozenset[int], sizes: Mapping[int, int]) -> int:
    """The elements of the largest tensor made on the way."""
    left, largest = list(factors), 0
    holders = Counter(label for labels in factors for label in labels)
    for i, j in pairs[:-1]:
        b, a = left.pop(j), left.pop(i)
        holders.subtract([*a, *b])
        made = frozenset(label for label in a | b if holders[label] > 0 or label in out)
        holders.update(made)
        left.append(made)
        largest = max(largest, prod(max(1, sizes[label]) for label in made))
    return largest
