"""The order of a product's contractions against every order there is."""

from __future__ import annotations

import itertools
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from einturnip.eingraph.contraction_order import Pairs, contraction_order

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
