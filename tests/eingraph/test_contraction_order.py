"""The order of a product's contractions against every order there is."""

from __future__ import annotations

import itertools
import random
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opt_einsum.paths import greedy

from einturnip.eingraph.rewrite import contraction_tree
from einturnip.eingraph.rewrite.contraction_order import contraction_order, order_key, work
from einturnip.eingraph.rewrite.contraction_tree import improve_order
from einturnip.eingraph.rewrite.optimal_order import Pairs, best
from einturnip.tuning.search import MAX_ORDERS_WORSE
from tests.drawn import examples

Labels = frozenset[int]


def _flops(pairs: Pairs, factors: list[Labels], out: Labels, sizes: dict[int, int]) -> int:
    left, flops = list(factors), 0
    for i, j in pairs:
        b, a = left.pop(j), left.pop(i)
        made = (a | b) & out.union(*left)
        flops += prod(sizes[label] for label in a | b) * (1 + (made != a | b))
        left.append(made)
    assert len(left) == 1
    return flops


def _orders(n: int) -> itertools.product[tuple[tuple[int, int], ...]]:
    """Every list of pairs of positions."""
    return itertools.product(*(itertools.combinations(range(k), 2) for k in range(n, 1, -1)))


@given(st.data())
def test_no_order_takes_fewer_operations(data: st.DataObject) -> None:
    labels = st.frozensets(st.integers(0, 4), max_size=3)
    factors = data.draw(st.lists(labels, min_size=1, max_size=4))
    out = data.draw(labels) & frozenset().union(*factors)
    sizes = dict(enumerate(data.draw(st.lists(st.integers(1, 9), min_size=5, max_size=5))))
    found = _flops(contraction_order(factors, out, sizes, None), factors, out, sizes)
    assert found == min(_flops(order, factors, out, sizes) for order in _orders(len(factors)))


def test_a_factor_on_few_labels_goes_into_the_smaller_of_those_that_have_them() -> None:
    row, gain, weight = frozenset({0, 2}), frozenset({2}), frozenset({1, 2})
    assert contraction_order([row, gain, weight], frozenset({0, 1}), {0: 1, 1: 1536, 2: 576}, None) == ((0, 1), (0, 1))


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Labels], Labels, dict[int, int]]:
    """Connected products of many factors: a chain, edges at random, some labels on more than two factors."""
    n = draw(st.integers(7, 24))
    sizes = {n + label: draw(st.integers(1, 5)) for label in range(n)} | {label: 3 for label in range(n)}
    more = draw(st.lists(st.frozensets(st.integers(0, n - 1), min_size=1, max_size=3), min_size=n, max_size=n))
    factors = [frozenset({k, (k + 1) % n}) for k in range(n)]
    for label, holders in enumerate(more, n):
        factors = [f | {label} if k in holders else f for k, f in enumerate(factors)]
    out = draw(st.frozensets(st.sampled_from(sorted(sizes)), max_size=3)) & frozenset().union(*factors)
    return factors, out, sizes


@settings(max_examples=examples(15))  # an order of many is searched for in some tenths of a second
@given(networks())
def test_an_order_of_many_is_no_worse_than_the_greedy_one(drawn: tuple[list[Labels], Labels, dict[int, int]]) -> None:
    factors, out, sizes = drawn
    greedily = tuple((min(step), max(step)) for step in greedy(factors, out, sizes))
    drawn_before = random.getstate()
    order = contraction_order(factors, out, sizes, None)
    assert random.getstate() == drawn_before
    assert _flops(order, factors, out, sizes) <= _flops(greedily, factors, out, sizes)
    assert work(order, factors, out, sizes).flops == _flops(order, factors, out, sizes)
    limit = work(order, factors, out, sizes).largest - 1
    bounded = contraction_order(factors, out, sizes, limit)
    assert order_key(bounded, factors, out, sizes, limit) <= order_key(order, factors, out, sizes, limit)


@given(networks())
def test_parts_in_their_best_order_never_make_an_order_worse(
    drawn: tuple[list[Labels], Labels, dict[int, int]],
) -> None:
    factors, out, sizes = drawn
    in_turn = tuple((0, len(factors) - 1 - k) for k in range(len(factors) - 1))
    made = improve_order(in_turn, factors, out, sizes, None, 1000)
    assert _flops(made, factors, out, sizes) <= _flops(in_turn, factors, out, sizes)
    again = improve_order(made, factors, out, sizes, None, 1000)
    assert _flops(again, factors, out, sizes) == _flops(made, factors, out, sizes)


def test_no_group_of_parts_is_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over the tree go on until none improves; most groups are the same in the next pass."""
    searched = list[tuple[Labels, ...]]()

    def noted(parts: list[Labels], *rest: Any) -> Any:
        searched.append(tuple(parts))
        return best(parts, *rest)

    monkeypatch.setattr(contraction_tree, "best", noted)
    factors = [frozenset({k, k + 1}) for k in range(40)]
    in_turn = tuple((0, 39 - k) for k in range(39))
    sizes = {k: 2 + k % 3 for k in range(41)}
    improve_order(in_turn, factors, frozenset({0, 40}), sizes, None, 10_000)
    assert len(searched) == len(set(searched)) > 40


def test_drawing_ends_after_orders_without_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the product takes: here every order is the best."""
    drawn = list[int]()

    def noted(*arguments: Any, **named: Any) -> Any:
        drawn.append(1)
        return greedy(*arguments, **named)

    monkeypatch.setattr("opt_einsum.paths.greedy", noted)
    factors = [frozenset({0, k}) for k in range(1, 12)]
    sizes = {0: 10**9} | dict.fromkeys(range(1, 12), 1)
    contraction_order(factors, frozenset(range(12)), sizes, None)
    assert len(drawn) == 1 + MAX_ORDERS_WORSE


def test_products_of_thousands_of_factors_have_an_order_within_a_limit_too() -> None:
    n = 3000
    factors = [frozenset({k, k + 1}) for k in range(n)]
    sizes = dict.fromkeys(range(n + 1), 2)
    for limit in (None, 4):
        order = contraction_order(factors, frozenset({0, n}), sizes, limit)
        found = work(order, factors, frozenset({0, n}), sizes)
        assert (found.flops, found.largest) == (16 * (n - 1), 4)
    assert len(contraction_order(factors, frozenset({0, n}), sizes, 1)) == n - 1
