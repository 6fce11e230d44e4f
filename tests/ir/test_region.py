"""Reference semantics of regions: whole, and as states of boxes that combine in any order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.dtypes import F64
from einturnip.ir.evaluate import State
from einturnip.ir.laws import factors, linear
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, ScalarCall, ScalarConst
from tests.drawn import examples
from tests.kernels.regions import CASES, Array, Made, attention
from tests.reference.region import combine_spaces, evaluate_space, finalize_space, identity_space


def states(made: Made, cuts: list[int]) -> list[State]:
    """The state of each box, where every streamed label that may be cut is cut alike."""
    region, found = made.region, []
    boxes: list[list[tuple[int, int]]] = [[]]
    for p, n in enumerate(region.bounds):
        inside = {c for c in cuts if 0 < c < n} if p in region.aggregated and p not in region.whole else set()
        boxes = [[*box, ends] for box in boxes for ends in pairwise(sorted({0, n, *inside}))]
    for box in boxes:
        parts = [x[tuple(slice(*e) for e in region.operand_box(s, box))] for s, x in enumerate(made.operands)]
        found.append(evaluate_space(region, parts, [a for a, _ in box], [b - a for a, b in box], "state"))
    return found


@pytest.mark.parametrize("number", range(len(CASES)))
def test_whole(number: int) -> None:
    made = CASES[number](np.random.default_rng(0))
    (found,) = evaluate_space(made.region, made.operands)
    np.testing.assert_allclose(found, made.expected, rtol=1e-5, atol=1e-5)


@given(number=st.integers(0, len(CASES) - 1), cuts=st.lists(st.integers(1, 12), max_size=3), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_states_combine_in_any_order(number: int, cuts: list[int], data: st.DataObject) -> None:
    made = CASES[number](np.random.default_rng(1))
    region, left = made.region, [*states(made, cuts), identity_space(made.region, made.region.shape)]
    shapes = [shape for shape, _ in region.components(region.bounds)]
    while len(left) > 1:
        assert [component.shape for component in left[0]] == shapes
        i = data.draw(st.integers(0, len(left) - 2))
        left[i : i + 2] = [combine_spaces(region, *data.draw(st.permutations(left[i : i + 2])))]
    np.testing.assert_allclose(finalize_space(region, left[0]), made.expected, rtol=1e-5, atol=1e-5)


def test_the_identity_is_absorbed_exactly() -> None:
    """Also by what is masked as a whole: no -inf - -inf, and no nan that a later tile would not have had."""
    made = attention(np.random.default_rng(2), 1, 1, 6, 6, 2, 2, "causal", F64)
    nothing = identity_space(made.region, made.region.shape)
    for state in states(made, [3]):
        for both in (combine_spaces(made.region, state, nothing), combine_spaces(made.region, nothing, state)):
            for a, b in zip(both, state, strict=True):
                np.testing.assert_array_equal(a, b)
    early, late = states(made, [3])
    # The first rows see no key of the second half: there its terms are exp(-inf - -inf).
    assert np.isnan(late[1][..., :3]).all() and np.isfinite(early[1]).all()
    np.testing.assert_allclose(finalize_space(made.region, combine_spaces(made.region, late, early)), made.expected)


def test_rows_that_are_masked_as_a_whole_are_nan() -> None:
    with np.errstate(invalid="ignore"):
        made = attention(np.random.default_rng(2), 1, 1, 9, 4, 2, 2, "window", F64)
    region = made.region
    (whole,) = evaluate_space(region, made.operands)
    assert np.isnan(whole[0, 0, 6:]).all() and np.isfinite(whole[0, 0, :6]).all()
    a, b = states(made, [2])
    np.testing.assert_allclose(finalize_space(region, combine_spaces(region, a, b)), whole)


def infinite(made: Made) -> Array:
    """A score of +inf in row 0, which makes that row nan."""
    made.operands[0][0, 0, 0] = np.inf
    made.operands[1][0, 0, 1] = np.abs(made.operands[1][0, 0, 1]) + 1
    return evaluate_space(made.region, made.operands)[0]


def test_a_maximum_of_infinity_stays_local() -> None:
    made = attention(np.random.default_rng(2), 1, 1, 5, 6, 2, 2, "", F64)
    with np.errstate(all="ignore"):
        whole, parts = infinite(made), states(made, [3])
        found = finalize_space(made.region, combine_spaces(made.region, *parts))
    assert np.isnan(whole[0, 0, 0]).all() and np.isfinite(whole[0, 0, 1:]).all()
    np.testing.assert_allclose(found, whole)


def test_labels_that_may_not_be_cut() -> None:
    region = attention(np.random.default_rng(0), 1, 1, 3, 4, 2, 2).region
    assert isinstance(region, Region) and region.whole == {5}


def test_linear_forms() -> None:
    """``0.5 * (x - m) + 1`` where x counts: coefficients, the constant, and the condition."""
    x, m, c = OperandRef(0, F64), OperandRef(1, F64), OperandRef(2, F64)
    minus = ScalarConst(-np.inf, F64)
    masked = ScalarCall("where", (c, ScalarCall("sub", (x, m), F64), minus), F64)
    half = ScalarCall("mul", (ScalarConst(0.5, F64), masked), F64)
    form = linear(ScalarCall("add", (half, ScalarConst(1.0, F64)), F64))
    assert form.terms == {x: 0.5, m: -0.5}
    assert form.where == {c} and form.constant == 1.0
    # Below a minus the mask would be +inf, which no exponential makes nothing of.
    assert linear(ScalarCall("neg", (masked,), F64)).terms == {masked: -1.0}


def test_products() -> None:
    x, y, c = (OperandRef(n, F64) for n in range(3))
    term = ScalarCall(
        "div", (ScalarCall("where", (c, ScalarCall("neg", (x,), F64), ScalarConst(0.0, F64)), F64), y), F64
    )
    minus = ScalarConst(-1, F64)
    found = [(f.expr, f.power, f.where) for f in factors(term)]
    assert found == [(minus, 1, {c}), (x, 1, {c}), (y, -1, frozenset())]
