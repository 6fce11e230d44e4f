"""Chooses the contraction order of a product: optimal for a few factors, sampled for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import exp, log, prod
from operator import or_
from random import Random

from einturnip.eingraph.rewrite.contraction_tree import improve_order
from einturnip.eingraph.rewrite.optimal_order import Labels, Pairs, Sizes, best, operations, steps
from einturnip.tuning.search import (
    BEYOND_LIMIT_FACTOR,
    FACTOR_OPERATIONS,
    INFEASIBLE_OPERATIONS,
    MAX_EXHAUSTIVE,
    MAX_ORDER_OPERATIONS,
    MAX_ORDERS,
    MAX_ORDERS_WORSE,
    MIN_ORDERS,
    PAIR_OPERATIONS,
    SPILL_OPERATIONS,
    SUBTREE_OPERATIONS,
)


def contraction_order(factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None) -> Pairs:
    """Return pairs of positions in a list that removes both factors and appends their product.

    For a few factors, the order with the fewest operations. For many, the best of several randomized greedy orders with
    fixed seeds, whose subtrees are then optimized. Orders whose intermediates stay within ``limit`` elements come
    first; where none is found, the limit is dropped.

    Sources: opt_einsum's greedy path (Smith and Gray, 2018); sampling and subtree optimization as in Gray and Kourtis
    (2021).
    """
    if len(factors) <= 2:
        return ((0, 1),) * (len(factors) - 1)
    labels = reduce(or_, factors, out)
    return _order(tuple(factors), out, tuple(sorted((p, max(1, sizes[p])) for p in labels)), limit)


@lru_cache(maxsize=64)
def _order(factors: tuple[Labels, ...], out: Labels, sized: tuple[tuple[int, int], ...], limit: int | None) -> Pairs:
    sizes = dict(sized)
    if len(factors) <= MAX_EXHAUSTIVE:
        found = best(factors, out, sizes, limit) or best(factors, out, sizes, None)
        return found[1] if found else ()
    if limit is None:
        return _sampled(factors, out, sizes, None)
    free = _order(factors, out, sized, None)
    taken = work(free, factors, out, sizes)
    if taken.largest <= limit or taken.flops > INFEASIBLE_OPERATIONS:
        return free
    bounded = _sampled(factors, out, sizes, limit)
    return min(bounded, free, key=lambda pairs: order_key(pairs, factors, out, sizes, limit))


@dataclass(frozen=True, slots=True)
class OrderCost:
    """Cost of an order: operations, and the elements of the largest intermediate and of each intermediate."""

    flops: int
    largest: int
    made: tuple[int, ...]


def order_key(
    pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None
) -> tuple[float, ...]:
    """Ranking key: an intermediate exceeds the limit, total cost, largest intermediate."""
    found = work(pairs, factors, out, sizes)
    over_limit = sum(n for n in found.made if limit is not None and n > limit)
    return over_limit > 0, found.flops + SPILL_OPERATIONS * over_limit, found.largest


def work(pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes) -> OrderCost:
    """Count multiplications and additions, and the elements of the intermediates."""
    flops, elements = 0, list[int]()
    for _, _, either, made in steps(pairs, factors, out):
        flops += operations(either, made, sizes)
        elements.append(prod(sizes[label] for label in made))
    del elements[-1:]  # the result
    return OrderCost(flops, max(elements, default=0), tuple(elements))


def _sampled(factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None) -> Pairs:
    """Return the best of several greedy orders with randomized costs, after optimizing its subtrees."""
    from opt_einsum.paths import greedy

    def order(rng: Random | None) -> Pairs:
        spread = 0.0 if rng is None else exp(rng.uniform(log(0.01), 0.0))
        weight = 1.0 if rng is None else rng.uniform(0.0, 2.0)
        by_ratio = rng is not None and rng.random() < 0.5

        def cost(made: int, a: int, b: int, *_: object) -> float:
            size = float(made) if limit is None or made <= limit else made * BEYOND_LIMIT_FACTOR
            noise = rng.gauss(0.0, spread) if rng is not None else 0.0
            return log(size) - log(a + b) + noise if by_ratio else (size - weight * (a + b)) * exp(noise)

        path = greedy(list(factors), out, dict(sizes), cost_fn=cost)
        return tuple((min(step), max(step)) for step in path)

    def ranked(pairs: Pairs) -> tuple[float, ...]:
        return order_key(pairs, factors, out, sizes, limit)

    def allowed() -> float:
        return (
            0.0
            if found[1] > INFEASIBLE_OPERATIONS
            else min(FACTOR_OPERATIONS * len(factors) + found[1], MAX_ORDER_OPERATIONS)
        )

    holders = Counter(label for labels in factors for label in labels)
    each = PAIR_OPERATIONS * sum(n * (n - 1) // 2 for n in holders.values())
    pairs, spent = order(None), each
    found, improved = ranked(pairs), 0
    for seed in range(1, MAX_ORDERS):
        if seed >= MIN_ORDERS and (spent + each > allowed() or seed - improved > MAX_ORDERS_WORSE):
            break
        other, spent = order(Random(seed)), spent + each
        if (rank := ranked(other)) < found:
            pairs, found, improved = other, rank, seed
    return improve_order(pairs, factors, out, sizes, limit, int(allowed() / SUBTREE_OPERATIONS))
