"""The order in which a product of many tensors is contracted: the best for a few factors, opt_einsum's for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from operator import or_

Pairs = tuple[tuple[int, int], ...]

# Factors whose orders are searched through: 3^n splits of sets.
_FEW = 6


def contraction_order(
    factors: Sequence[frozenset[int]], out: frozenset[int], sizes: Mapping[int, int], limit: int | None
) -> Pairs:
    """Pairs of positions in a list that loses both and gains their product at its end.

    Orders whose intermediates stay within ``limit`` elements go first; where there is none, the limit is dropped.

    Source: of many factors opt_einsum's (Smith and Gray, 2018) ``auto`` path: branching to 14, then greedy.
    """
    if len(factors) <= _FEW:
        return _best(factors, out, sizes, limit) or _best(factors, out, sizes, None) or ()
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


def _best(
    factors: Sequence[frozenset[int]], out: frozenset[int], sizes: Mapping[int, int], limit: int | None
) -> Pairs | None:
    """The order of the fewest operations, among those of the fewest elements made; None where none is within the limit.

    Of each set of factors the best way to make its product is that of two smaller sets' and one contraction more.
    opt_einsum's search of so few does not do: it prices a pair as it met one of the same labels before.
    """
    n = len(factors)
    everything = (1 << n) - 1
    none: frozenset[int] = frozenset()
    labels = [reduce(or_, (f for i, f in enumerate(factors) if s >> i & 1), none) for s in range(1 << n)]
    made = [labels[s] & (out | labels[everything ^ s]) for s in range(1 << n)]
    for i, factor in enumerate(factors):
        made[1 << i] = factor
    elements = [prod(max(1, sizes[label]) for label in kept) for kept in made]
    best: dict[int, tuple[int, int, tuple[int, int]]] = {1 << i: (0, 0, (0, 0)) for i in range(n)}
    for s in range(1, 1 << n):
        fits = limit is None or s == everything or elements[s] <= limit
        for a in _halves(s) if fits else ():
            if a in best and s ^ a in best:
                either = made[a] | made[s ^ a]
                points = prod(max(1, sizes[label]) for label in either)
                flops = best[a][0] + best[s ^ a][0] + points * (1 + (either != made[s]))
                cost = flops, best[a][1] + best[s ^ a][1] + elements[s], (a, s ^ a)
                best[s] = min(best.get(s, cost), cost)
    return _pairs(n, everything, {s: halves for s, (_, _, halves) in best.items()}) if everything in best else None


def _halves(s: int) -> Iterator[int]:
    """The parts of a set of several, one of each two that make it up together."""
    a = (s - 1) & s
    while a > s ^ a:
        yield a
        a = (a - 1) & s


def _pairs(n: int, everything: int, halves: Mapping[int, tuple[int, int]]) -> Pairs:
    """A tree of sets as positions in the list that is left at each step."""
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
