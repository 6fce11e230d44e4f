"""The oracle itself, on programs written by hand, against NumPy written by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.functions import ELEMENTWISE
from einturnip.testing import Answer, assert_agrees, evaluate
from einturnip.testing.functions import FOLDS, SMOOTH, STEPS
from einturnip.testing.promotion import numpy_dtype
from einturnip.testing.strategies import arrays
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    ComparisonTerm,
    DrawnDim,
    DrawnInput,
    DrawnProgram,
    DrawnStatement,
    FunctionTerm,
    IndexTerm,
    NumberTerm,
    SizeTerm,
    Term,
    UnaryTerm,
)

ROWS = np.array([[1, -2, 3], [0, 4, -5]], np.float32)
X = AccessTerm("X", ("i", "j"))
NEVER = ComparisonTerm(("!=",), (NumberTerm(1), NumberTerm(1)))


def bounds(labels: str) -> tuple[BoundTerm, ...]:
    return tuple(BoundTerm(label) for label in labels)


def fold(op: str, labels: str, body: Term, dtype: str | None = None) -> AggregateTerm:
    return AggregateTerm(op, bounds(labels), body, dtype)


def answer(body: Term, labels: str = "", **inputs: np.ndarray) -> Answer:
    """The answer of ``Z[labels] = body``, with each input's dtype and shape taken from its array."""
    declared = []
    for name, array in inputs.items():
        dtype = {"b": "bool"}.get(array.dtype.kind, f"{array.dtype.kind}{8 * array.dtype.itemsize}")
        dtype = "bf16" if array.dtype.name == "bfloat16" else dtype
        declared.append(DrawnInput(name, dtype, tuple(map(NumberTerm, array.shape))))
    program = DrawnProgram((), tuple(declared), (DrawnStatement("Z", bounds(labels), body),), ("Z",))
    return evaluate(program, inputs)["Z"]


def both(op: str, a: np.ndarray, b: np.ndarray) -> Answer:
    return answer(BinaryTerm(op, AccessTerm("A", ("i",)), AccessTerm("B", ("i",))), "i", A=a, B=b)


REAL = ("i8", "i32", "i64", "u8", "u32", "f16", "f32", "f64")


@pytest.mark.parametrize("op, ufunc", [("+", np.add), ("*", np.multiply), ("/", np.divide), ("//", np.floor_divide)])
@pytest.mark.parametrize("left", REAL)
@pytest.mark.parametrize("right", REAL)
def test_arithmetic_promotes_as_numpy(op: str, ufunc: np.ufunc, left: str, right: str) -> None:
    a, b = np.array([0, 3, 7, 100], numpy_dtype(left)), np.array([1, 2, 3, 100], numpy_dtype(right))
    assert_agrees(ufunc(a, b), both(op, a, b))


def test_integers_wrap_and_divide_by_zero_as_numpy() -> None:
    a, b = np.array([100, -128, 5, -7], np.int8), np.array([100, -1, 0, 2], np.int8)
    with np.errstate(all="ignore"):
        for op, ufunc in (("+", np.add), ("*", np.multiply), ("//", np.floor_divide), ("%", np.remainder)):
            result = both(op, a, b)
            assert result.exact
            assert_agrees(ufunc(a, b), result)
        assert_agrees(a / b, both("/", a, b))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "mean", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["i8", "u16", "i64", "f16", "f32", "f64"])
def test_aggregations_as_numpys(op: str, dtype: str) -> None:
    x = np.abs(ROWS).astype(numpy_dtype(dtype))
    assert_agrees(getattr(np, op)(x, axis=1), answer(fold(op, "j", X), "i", X=x))
    assert_agrees(getattr(np, op)(x, axis=None), answer(fold(op, "ij", X), X=x))


def test_any_all_and_counting() -> None:
    m = ROWS > 0
    assert_agrees(m.any(axis=1), answer(fold("any", "j", X), "i", X=m))
    assert_agrees(m.all(axis=0), answer(fold("all", "i", X), "j", X=m))
    assert_agrees(m.sum(axis=0), answer(fold("sum", "i", X), "j", X=m))


def test_logsumexp_is_stable() -> None:
    big = ROWS + np.float32(1000)
    expected = (1000 + np.log(np.exp(ROWS.astype("f8")).sum(axis=1))).astype(np.float32)
    assert_agrees(expected, answer(fold("logsumexp", "j", X), "i", X=big))


def test_empty_ranges() -> None:
    none = np.zeros((2, 0), np.float32)
    wanted = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan, "logsumexp": -np.inf}
    for op, value in wanted.items():
        assert_agrees(np.full(2, value, np.float32), answer(fold(op, "j", X), "i", X=none))
    for op in ("argmax", "argmin"):
        assert_agrees(np.full(2, -1), answer(fold(op, "j", X), "i", X=none))
    assert_agrees(np.full(2, -128, np.int8), answer(fold("max", "j", X), "i", X=none.astype(np.int8)))


def test_weak_numbers_keep_dtypes() -> None:
    x = np.array([1, 2, 3], np.float16)
    access = AccessTerm("X", ("i",))
    assert_agrees(x * 2, answer(BinaryTerm("*", access, NumberTerm(2)), "i", X=x))
    assert_agrees(x * x.dtype.type(0.5), answer(BinaryTerm("*", access, NumberTerm(0.5)), "i", X=x))
    assert_agrees(x.astype("i4") * 0.5, answer(BinaryTerm("*", access, NumberTerm(0.5)), "i", X=x.astype("i4")))
    assert_agrees(x * np.arange(3).astype("f2"), answer(BinaryTerm("*", access, IndexTerm("i")), "i", X=x))
    assert_agrees(x.astype("i1") * np.arange(3), answer(BinaryTerm("*", access, IndexTerm("i")), "i", X=x.astype("i1")))
    masked = FunctionTerm(
        "where", (ComparisonTerm((">",), (access, NumberTerm(1))), NumberTerm(0), UnaryTerm("-", NumberTerm(math.inf)))
    )
    assert_agrees(np.array([-np.inf, 0, 0]), answer(masked, "i", X=x))
    assert_agrees(np.array([-np.inf, 2, 3], "f2"), answer(BinaryTerm("+", access, masked), "i", X=x))


def test_half_precision_sums_in_single() -> None:
    x = np.full((1, 100), 100, np.float16)
    x[0, 1::2] = -100
    x[0, 0] = 2048
    total = answer(fold("sum", "j", X), "i", X=x)
    assert_agrees(x.astype(np.float32).sum(axis=1).astype(np.float16), total)


def test_bfloat16() -> None:
    bf16 = numpy_dtype("bf16")
    a, b = np.array([1, 2, 3], bf16), np.array([1.5, 2.5, 3.5], bf16)
    assert_agrees(a * b, both("*", a, b))
    assert both("+", a, b.astype(np.float16)).values.dtype == np.float32
    assert both("+", a, b.astype(np.int8)).values.dtype == bf16
    assert both("+", a, b.astype(np.int16)).values.dtype == np.float32


def test_einsteins_convention_diagonals_and_broadcasting() -> None:
    a, b = np.arange(6, dtype="f8").reshape(2, 3), np.arange(12, dtype="f8").reshape(3, 4)
    product = BinaryTerm("*", AccessTerm("A", ("i", "j")), AccessTerm("B", ("j", "k")))
    assert_agrees(a @ b, answer(product, "ik", A=a, B=b))
    assert_agrees((a @ b).sum(axis=0), answer(product, "k", A=a, B=b))
    square = b[:, :3]
    assert_agrees(np.diagonal(square), answer(AccessTerm("A", ("i", "i")), "i", A=square))
    assert_agrees(np.trace(square), answer(AccessTerm("A", ("i", "i")), A=square))
    sum_ = BinaryTerm("+", AccessTerm("A", ("i", "j")), AccessTerm("B", ("j",)))
    assert_agrees(a + b[:, 0], answer(sum_, "ij", A=a, B=b[:, 0]))


def test_inner_labels_hide_outer_ones() -> None:
    normalised = BinaryTerm("/", X, fold("sum", "j", X))
    x = np.abs(ROWS)
    assert_agrees(x / x.sum(axis=1, keepdims=True), answer(normalised, "ij", X=x))
    inner = fold("sum", "i", AccessTerm("X", ("i",)))
    total = AggregateTerm("sum", (BoundTerm("i", NumberTerm(3)),), BinaryTerm("*", IndexTerm("i"), inner))
    assert_agrees(np.float32(18), answer(total, X=np.array([1, 2, 3], np.float32)))


def test_sizes_and_their_definitions() -> None:
    n = SizeTerm("n")
    program = DrawnProgram(
        (DrawnDim("n"), DrawnDim("m", BinaryTerm("*", n, NumberTerm(2)))),
        (DrawnInput("X", "f64", (n, SizeTerm("m"))),),
        (
            DrawnStatement("s", (), BinaryTerm("/", SizeTerm("m"), n)),
            DrawnStatement("Z", (BoundTerm("n"), BoundTerm("k", NumberTerm(2))), IndexTerm("n")),
        ),
        ("s", "Z"),
    )
    result = evaluate(program, {"X": np.zeros((2, 4))})
    assert_agrees(np.float64(2), result["s"])
    assert_agrees(np.array([[0, 0], [1, 1]]), result["Z"])
    with pytest.raises(ValueError, match="m is 5 and 4"):
        evaluate(program, {"X": np.zeros((2, 5))})


WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x.dtype.type(0), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "round": np.round,
    "sign": np.sign,
    "abs": np.abs,
}


@pytest.mark.parametrize("name", sorted({*SMOOTH, *STEPS, *FOLDS} - {"-", "conj", "real", "imag"}))
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i8", "i16", "i32"])
def test_functions_as_numpys(name: str, dtype: str) -> None:
    """Functions that are not written out here are compared with their rows."""
    x = np.array([-3, 0, 1, 2, 5], numpy_dtype(dtype))
    row, function = ELEMENTWISE[name], WRITTEN_OUT.get(name)
    with np.errstate(all="ignore"):
        if function is None or (x.dtype.kind == "i" and name in ("sigmoid", "silu", "softplus")):
            taken = x if row.keeps_integers else x.astype(np.exp(x).dtype)
            expected = taken if taken.dtype.kind in row.identity_kinds else np.asarray((function or row.numpy)(taken))
        else:
            expected = function(x)
    result = answer(FunctionTerm(name, (AccessTerm("X", ("i",)),)), "i", X=x)
    assert_agrees(expected, result)
    assert np.isfinite(result.slack[np.isfinite(expected)]).all()
    if function is not None:
        assert np.isinf(result.slack).sum() <= (name == "rsqrt")


def test_slack_grows_with_what_was_cancelled() -> None:
    """exp(1) - exp(1) may be off by a rounding of exp(1), far more than a rounding of the result."""
    e = FunctionTerm("exp", (AccessTerm("X", ("i",)),))
    result = answer(BinaryTerm("-", e, e), "i", X=np.array([1.0], np.float32))
    assert result.values == 0 and 2**-24 < result.slack[0] < 2**-14


def test_nothing_is_claimed_where_rounding_decides() -> None:
    x = np.array([3.0], np.float32)
    third = BinaryTerm("/", AccessTerm("X", ("i",)), NumberTerm(7))
    assert np.isinf(answer(ComparisonTerm(("<",), (third, third)), "i", X=x).slack).all()
    assert np.isinf(answer(BinaryTerm("/", NumberTerm(1), AccessTerm("X", ("i",))), "i", X=0 * x).slack).all()
    same = FunctionTerm("where", (ComparisonTerm(("<",), (third, third)), NumberTerm(1), NumberTerm(1)))
    assert answer(same, "i", X=x).exact


def test_assert_agrees_tells_apart() -> None:
    one = np.array([1.0, np.nan, np.inf], np.float32)
    assert_agrees(one, one.copy())
    assert_agrees(np.array([0.0]), np.array([-0.0]))
    near = one * np.float32(1 + 2**-20)
    assert_agrees(near, one, exact=False)
    for wrong, exact in ((near, True), (one * 2, False), (one.astype("f8"), False), (one[:2], False), (-one, False)):
        with pytest.raises(AssertionError):
            assert_agrees(wrong, one, exact)


def test_functions_pass_nan_on() -> None:
    x = np.array([np.nan], np.float32)
    for name in ("exp", "sigmoid", "silu", "gelu", "softplus", "relu", "tanh", "erf", "floor", "sign", "rsqrt"):
        assert_agrees(x, answer(FunctionTerm(name, (AccessTerm("X", ("i",)),)), "i", X=x))


@pytest.mark.parametrize("dtype", ["bool", "u8", "i64", "bf16", "f32", "c64", "c128"])
@given(data=st.data())
@settings(max_examples=3)
def test_drawn_scalars_are_arrays(dtype: str, data: st.DataObject) -> None:
    assert isinstance(data.draw(arrays(dtype, ())), np.ndarray)
