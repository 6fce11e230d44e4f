"""The order in which a product of many tensors is contracted: of a few the best, of many the best of those sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import exp, log, prod
from operator import or_
from random import Random

from einturnip.eingraph.rewrite.contraction_tree import improve_order
from einturnip.eingraph.rewrite.optimal_order import FEW, Labels, Pairs, Sizes, best, operations, steps

# Greedy orders that are sampled, at least and at most.
LEAST_SAMPLES, MOST_SAMPLES = 4, 128
# What an order costs that is sampled, in operations of the product, for each pair of factors that have a label in
# common; and what all of them may cost: as much as the product takes, and something for each factor, which takes so
# long to plan anyway.
PAIR, FACTOR, MOST = 2.5e6, 2e8, 1e11
# Operations from which on no search would find an order that a machine could finish: it stops after a few samples.
HOPELESS = 10**36
# What searching through a part of an order costs.
PART = 5e7
# What an intermediate beyond the limit is held to be larger where pairs are chosen; and what an element of it costs,
# in operations: it is written and read again.
BEYOND, SPILLED = 1e6, 1500


def contraction_order(factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None) -> Pairs:
    """Pairs of positions in a list that loses both and gains their product at its end.

    Of a few factors the order of the fewest operations. Of many the best of some that pair greedily, by costs disturbed
    at random, seeded alike each time; then parts of it are searched through. Orders whose intermediates stay within
    ``limit`` elements go first; where none is found, the limit is dropped.

    Sources: opt_einsum's greedy path (Smith and Gray, 2018), sampled and made better by parts as by Gray and Kourtis
    (2021).
    """
    labels = reduce(or_, factors, out)
    return _order(tuple(factors), out, tuple(sorted((p, max(1, sizes[p])) for p in labels)), limit)


@lru_cache(maxsize=64)
def _order(factors: tuple[Labels, ...], out: Labels, sized: tuple[tuple[int, int], ...], limit: int | None) -> Pairs:
    sizes = dict(sized)
    if len(factors) <= FEW:
        found = best(factors, out, sizes, limit) or best(factors, out, sizes, None)
        return found[1] if found else ()
    if limit is None:
        return _sampled(factors, out, sizes, None)
    free = _order(factors, out, sized, None)
    taken = work(free, factors, out, sizes)
    if taken.largest <= limit or taken.flops > HOPELESS:
        return free
    bounded = _sampled(factors, out, sizes, limit)
    return min(bounded, free, key=lambda pairs: order_key(pairs, factors, out, sizes, limit))


@dataclass(frozen=True, slots=True)
class OrderCost:
    """What an order takes: operations; of the tensors made on the way the elements of the largest, and of all."""

    flops: int
    largest: int
    made: tuple[int, ...]


def order_key(
    pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None
) -> tuple[float, ...]:
    """What is less for a better order: whether anything goes beyond the limit, what all takes, the largest tensor."""
    found = work(pairs, factors, out, sizes)
    beyond = sum(n for n in found.made if limit is not None and n > limit)
    return beyond > 0, found.flops + SPILLED * beyond, found.largest


def work(pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes) -> OrderCost:
    """Of multiplications and additions, one of each for a point of a contraction."""
    flops, elements = 0, list[int]()
    for _, _, either, made in steps(pairs, factors, out):
        flops += operations(either, made, sizes)
        elements.append(prod(sizes[label] for label in made))
    del elements[-1:]  # the result
    return OrderCost(flops, max(elements, default=0), tuple(elements))


def _sampled(factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None) -> Pairs:
    """The best of greedy orders by costs disturbed more or less, made better part by part."""
    from opt_einsum.paths import greedy

    def order(rng: Random | None) -> Pairs:
        spread = 0.0 if rng is None else exp(rng.uniform(log(0.01), 0.0))
        weight = 1.0 if rng is None else rng.uniform(0.0, 2.0)
        by_ratio = rng is not None and rng.random() < 0.5

        def cost(made: int, a: int, b: int, *_: object) -> float:
            size = float(made) if limit is None or made <= limit else made * BEYOND
            noise = rng.gauss(0.0, spread) if rng is not None else 0.0
            return log(size) - log(a + b) + noise if by_ratio else (size - weight * (a + b)) * exp(noise)

        path = greedy(list(factors), out, dict(sizes), cost_fn=cost)
        return tuple((min(step), max(step)) for step in path)

    def valued(pairs: Pairs) -> tuple[float, ...]:
        return order_key(pairs, factors, out, sizes, limit)

    def allowed() -> float:
        return 0.0 if found[1] > HOPELESS else min(FACTOR * len(factors) + found[1], MOST)

    holders = Counter(label for labels in factors for label in labels)
    each = PAIR * sum(n * (n - 1) // 2 for n in holders.values())
    pairs, spent = order(None), each
    found = valued(pairs)
    for seed in range(1, MOST_SAMPLES):
        if seed >= LEAST_SAMPLES and spent + each > allowed():
            break
        other, spent = order(Random(seed)), spent + each
        pairs, found = min((pairs, found), (other, valued(other)), key=lambda x: x[1])
    return improve_order(pairs, factors, out, sizes, limit, int(allowed() / PART))
