"""The reference evaluator against NumPy itself, and boxes against the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.aggregations import AGGREGATIONS, aggregation
from einturnip.ir.dtypes import BF16, BOOL, C64, F16, F32, F64, I8, I32, I64, U64, DType
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.evaluate import apply, finalize_state, identity_state
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from tests.drawn import examples
from tests.reference.einsum import combine_states, evaluate_einsum


def reduction(op: str, dtype: DType, bounds: tuple[int, ...], n_out: int = 1) -> Einsum:
    labels = ("i", "j", "k")[: len(bounds)]
    accesses = (tuple(range(len(bounds))),)
    return Einsum(labels, bounds, n_out, accesses, (dtype,), OperandRef(0, dtype), aggregation(op, dtype))


def cases() -> list[tuple[str, DType]]:
    dtypes = (BOOL, I8, I64, U64, F16, BF16, F32, F64, C64)
    return [
        (op, d)
        for op in AGGREGATIONS
        for d in dtypes
        if not (op in ("any", "all") and d != BOOL) and not (op == "logsumexp" and d == C64)
    ]


@pytest.mark.parametrize(("op", "dtype"), cases())
def test_boxes_combine_to_the_whole(op: str, dtype: DType) -> None:
    einsum = reduction(op, dtype, (2, 5, 3))
    x = np.random.default_rng(1).integers(0, 2 if dtype == BOOL else 4, (2, 5, 3)).astype(dtype.numpy)
    (whole,) = evaluate_einsum(einsum, [x])
    assert whole.dtype == einsum.dtype.numpy
    state = identity_state(einsum, (2,))
    for start, stop in ((3, 5), (0, 1), (1, 3)):
        box = evaluate_einsum(einsum, [x[:, start:stop]], (0, start, 0), (2, stop - start, 3), "state")
        state = combine_states(einsum, box, state)
        assert tuple(s.dtype for s in state) == tuple(d.numpy for d in einsum.state_dtypes)
    np.testing.assert_allclose(
        finalize_state(einsum, state).astype(complex), whole.astype(complex), rtol=1e-2 if dtype.itemsize == 2 else 1e-6
    )


NUMPY = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean}
NUMPY |= {"argmax": np.argmax, "argmin": np.argmin}


@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize("dtype", [BOOL, I8, I32, U64, F32, F64])
def test_values_and_dtypes_are_numpys(op: str, dtype: DType) -> None:
    x = np.random.default_rng(2).integers(0, 2 if dtype == BOOL else 3, (3, 4)).astype(dtype.numpy)
    (found,) = evaluate_einsum(reduction(op, dtype, (3, 4)), [x])
    expected = NUMPY[op](x, axis=1)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin", "sum", "logsumexp"])
def test_nan_is_as_in_numpy_however_the_range_is_cut(op: str) -> None:
    x = np.array([1.0, -np.inf, np.nan, 7.0, np.nan, np.inf])
    einsum = reduction(op, F64, (6,), 0)
    expected = {"argmax": 2, "argmin": 2}.get(op, np.nan)
    for cut in range(7):
        parts = [evaluate_einsum(einsum, [x[a:b]], (a,), (b - a,), "state") for a, b in ((cut, 6), (0, cut))]
        np.testing.assert_array_equal(finalize_state(einsum, combine_states(einsum, parts[0], parts[1])), expected)


def test_argmax_counts_flat_over_all_bounds_and_ties_go_to_the_least() -> None:
    x = np.zeros((2, 3, 4))
    x[0, 1, 2] = x[0, 2, 0] = x[1, 2, 3] = 5
    einsum = reduction("argmax", F64, (2, 3, 4))
    np.testing.assert_array_equal(evaluate_einsum(einsum, [x])[0], [1 * 4 + 2, 2 * 4 + 3])
    late = evaluate_einsum(einsum, [x[:, 2:]], (0, 2, 0), (2, 1, 4), "state")
    early = evaluate_einsum(einsum, [x[:, :2]], (0, 0, 0), (2, 2, 4), "state")
    for a, b in ((late, early), (early, late)):
        np.testing.assert_array_equal(finalize_state(einsum, combine_states(einsum, a, b)), [6, 11])


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        ("sum", F32, 0),
        ("prod", F32, 1),
        ("max", F64, -np.inf),
        ("min", F16, np.inf),
        ("max", I8, -128),
        ("min", U64, 2**64 - 1),
        ("any", BOOL, False),
        ("all", BOOL, True),
        ("mean", F32, np.nan),
        ("argmax", F32, -1),
        ("argmin", I32, -1),
        ("logsumexp", F32, -np.inf),
    ],
)
def test_an_empty_range_gives_the_identity(op: str, dtype: DType, value: float) -> None:
    (found,) = evaluate_einsum(reduction(op, dtype, (2, 0)), [np.zeros((2, 0), dtype.numpy)])
    np.testing.assert_array_equal(found, np.full(2, value, found.dtype))


def test_logsumexp_of_masked_tiles_is_never_nan() -> None:
    einsum = reduction("logsumexp", F64, (4,), 0)
    masked = evaluate_einsum(einsum, [np.full(2, -np.inf)], (0,), (2,), "state")
    assert finalize_state(einsum, combine_states(einsum, masked, masked)) == -np.inf
    seen = evaluate_einsum(einsum, [np.zeros(2)], (2,), (2,), "state")
    np.testing.assert_allclose(finalize_state(einsum, combine_states(einsum, masked, seen)), np.log(2))
    assert evaluate_einsum(reduction("logsumexp", F64, (2,), 0), [np.array([np.inf, 1.0])])[0] == np.inf


def test_labels_are_global_and_repeats_take_the_diagonal() -> None:
    join = ScalarCall("mul", (OperandRef(0, I64), LabelValue(0)), I64)
    einsum = Einsum(("i",), (4,), 1, ((0, 0),), (I64,), join, None)
    x = np.arange(16).reshape(4, 4)
    np.testing.assert_array_equal(evaluate_einsum(einsum, [x])[0], np.diag(x) * np.arange(4))
    np.testing.assert_array_equal(evaluate_einsum(einsum, [x[1:3, 1:3]], (1,), (2,))[0], [5, 20])


def test_half_precision_sums_accumulate_in_single() -> None:
    (found,) = evaluate_einsum(reduction("sum", F16, (5000,), 0), [np.ones(5000, np.float16)])
    assert found.dtype == np.float16 and found == 5000


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(-3, 3), st.integers(-3, 3))
def test_integer_powers_never_stop_a_run(base: int, exponent: int) -> None:
    found = apply("pow", [np.array([base]), np.array([exponent])], I64)[0]
    assert found == (base**exponent if exponent >= 0 else int(1 / base**-exponent) if base else 0)


@pytest.mark.parametrize("op", ["sigmoid", "silu", "gelu", "erf", "softplus", "rsqrt", "relu"])
def test_functions_round_half_precision_once(op: str) -> None:
    x = np.linspace(0.1, 4, 9).astype(np.float16)
    wide = apply(op, [x.astype(np.float64)], F64)
    np.testing.assert_allclose(apply(op, [x], F16), wide, rtol=2**-11)


def product(*factors: Scalar) -> Scalar:
    join = factors[0]
    for factor in factors[1:]:
        join = ScalarCall("mul", (join, factor), factor.dtype)
    return join


def matmul(join: Scalar, a: tuple[int, ...] = (0, 1, 3), b: tuple[int, ...] = (0, 3, 2)) -> Einsum:
    return Einsum(("b", "i", "j", "k"), (2, 3, 4, 5), 3, (a, b), (F32, F32), join, aggregation("sum", F32))


def test_contraction_tells_the_labels_parts() -> None:
    found = contraction(matmul(product(OperandRef(0, F32), OperandRef(1, F32), ScalarConst(0.5, F32))))
    assert found is not None and found.alpha == ScalarConst(0.5, F32)
    assert (found.batch, found.m, found.n, found.k) == ((0,), (1,), (2,), (3,))
    swapped = contraction(matmul(product(OperandRef(1, F32), OperandRef(0, F32))))
    assert swapped is not None and (swapped.left, swapped.m, swapped.n) == (1, (2,), (1,))
    converted = contraction(matmul(product(ScalarCast(OperandRef(0, F32), F32), OperandRef(1, F32))))
    assert converted is not None


def test_what_is_no_contraction() -> None:
    plain = product(OperandRef(0, F32), OperandRef(1, F32))
    assert contraction(matmul(ScalarCall("add", (OperandRef(0, F32), OperandRef(1, F32)), F32))) is None
    assert contraction(matmul(product(plain, ScalarCall("exp", (OperandRef(0, F32),), F32)))) is None
    assert contraction(matmul(plain, (0, 1, 1), (0, 3, 2))) is None
    assert contraction(matmul(plain, (0, 1, 3), (0, 2))) is None
