"""Finds the optimal contraction order of a few tensors by dynamic programming over subsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from operator import or_

Labels = frozenset[int]
Pairs = tuple[tuple[int, int], ...]
Sizes = Mapping[int, int]


def steps(pairs: Pairs, factors: Sequence[Labels], out: Labels) -> Iterator[tuple[int, int, Labels, Labels]]:
    """Yield, for each pair, its nodes, the union of their labels, and the labels of their product.

    Nodes are numbered: the factors, then the products, in this order.
    """
    labels, left = list(factors), list(range(len(factors)))
    holders = Counter(label for held in factors for label in held)
    for i, j in pairs:
        b, a = left.pop(j), left.pop(i)
        either = labels[a] | labels[b]
        holders.subtract([*labels[a], *labels[b]])
        made = frozenset(label for label in either if holders[label] > 0 or label in out)
        holders.update(made)
        left.append(len(labels))
        labels.append(made)
        yield a, b, either, made


def operations(either: Labels, made: Labels, sizes: Sizes) -> int:
    """Operations of one contraction: a multiplication a point, and an addition if a label is summed."""
    return prod(sizes[label] for label in either) * (1 + (either != made))


def best(factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None) -> tuple[int, Pairs] | None:
    """Return the minimum of operations and its order; smaller intermediates decide ties.

    None where no order is within the limit. The best product of a set of factors contracts the best products of two
    subsets. opt_einsum's optimal search is not used, because it reuses the price of a pair for others of equal labels.
    """
    n = len(factors)
    everything = (1 << n) - 1
    none: Labels = frozenset()
    labels = [reduce(or_, (f for i, f in enumerate(factors) if s >> i & 1), none) for s in range(1 << n)]
    made = [labels[s] & (out | labels[everything ^ s]) for s in range(1 << n)]
    for i, factor in enumerate(factors):
        made[1 << i] = factor
    elements = [prod(sizes[label] for label in kept) for kept in made]
    found: dict[int, tuple[int, int, tuple[int, int]]] = {1 << i: (0, 0, (0, 0)) for i in range(n)}
    for s in range(1, 1 << n):
        fits = limit is None or s == everything or elements[s] <= limit
        for a in _halves(s) if fits else ():
            if a in found and s ^ a in found:
                flops = found[a][0] + found[s ^ a][0] + operations(made[a] | made[s ^ a], made[s], sizes)
                cost = flops, found[a][1] + found[s ^ a][1] + elements[s], (a, s ^ a)
                found[s] = min(found.get(s, cost), cost)
    if everything not in found:
        return None
    return found[everything][0], _pairs(n, everything, {s: halves for s, (_, _, halves) in found.items()})


def _halves(s: int) -> Iterator[int]:
    """Yield one of the two parts of each split of a set into two."""
    a = (s - 1) & s
    while a > s ^ a:
        yield a
        a = (a - 1) & s


def _pairs(n: int, everything: int, halves: Mapping[int, tuple[int, int]]) -> Pairs:
    """Convert a tree of sets to positions in the list that remains at each step."""
    listed, pairs = [1 << i for i in range(n)], []

    def make(s: int) -> None:
        if s not in listed:
            for half in halves[s]:
                make(half)
            i, j = sorted(map(listed.index, halves[s]))
            listed[:] = [*(x for x in listed if x not in halves[s]), s]
            pairs.append((i, j))

    make(everything)
    return tuple(pairs)
