"""Every scalar function of the language on every dtype it takes, and what the floating-point unit saw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BF16, BOOL, C64, C128, DTYPES, F16, F32, F64, I8, I32, I64, U8, U64, DType, promote
from einturnip.ir.einsum import Einsum
from einturnip.ir.functions import ELEMENTWISE, FUNCTIONS
from einturnip.ir.scalar import (
    ARITHMETIC,
    COMPARISONS,
    LOGICAL,
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
)
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.expr import lower
from einturnip.kernels.fp_status import DIVIDE, INVALID, OVERFLOW
from einturnip.kernels.select import compile_kernel
from tests.reference.einsum import evaluate_einsum

OPS = ARITHMETIC | COMPARISONS | LOGICAL | FUNCTIONS | {"where"}
REAL = {C64: F32, C128: F64}
EXACT = {"neg", "abs", "sign", "floor", "ceil", "round", "relu", "conj", "real", "imag", "rsqrt", "sqrt"}


def elementwise(join: Scalar, dtypes: tuple[DType, ...], n: int) -> Einsum:
    return Einsum(("i",), (n,), 1, ((0,),) * len(dtypes), dtypes, join, None)


def call(einsum: Einsum, *operands: np.ndarray, mode: str = "full") -> tuple[np.ndarray, int]:
    kernel = compile_kernel(einsum, einsum.bounds, mode)
    out = np.empty(einsum.shape, einsum.dtype.numpy)
    workspace = np.empty(kernel.workspace_nbytes, np.uint8)
    return out, kernel((out,), operands, (0,) * len(einsum.bounds), True, workspace)


def samples(dtype: DType) -> np.ndarray:
    if dtype.kind == "c":
        grid = np.array([-2.5, -1, 0, 0.25, 3])
        return (grid[:, None] + 1j * grid).ravel().astype(dtype.numpy)
    if dtype.is_float:
        special = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 1e-4, 30, -30, 88, -100, np.inf, -np.inf, np.nan]
        return np.concatenate([special, np.linspace(-8, 8, 201)]).astype(dtype.numpy)
    if dtype.kind == "b":
        return np.array([True, False])
    return np.arange(0 if dtype.kind == "u" else -9, 10).astype(dtype.numpy)


def compare(found: np.ndarray, expected: np.ndarray, dtype: DType, exact: bool) -> None:
    assert found.dtype == expected.dtype
    wide = np.complex128 if dtype.kind == "c" else np.float64
    if exact or not dtype.is_inexact:
        kept = dtype.numpy if dtype.is_integer else wide
        np.testing.assert_array_equal(found.astype(kept), expected.astype(kept))
        return
    eps = 2.0**-8 if dtype == BF16 else float(np.finfo(dtype.numpy).eps)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=8 * eps, atol=4 * eps)


def takes(op: str, dtype: DType) -> bool:
    if dtype.kind == "c":
        return op == "neg" or (op != "sign" and ELEMENTWISE[op].takes_complex)
    if dtype.is_float:
        return True
    row = ELEMENTWISE.get(op)
    return dtype.is_integer if row is None else row.keeps_integers and (dtype.is_integer or row.takes_bool)


def test_every_operator_has_a_lowering() -> None:
    """``test_function_table.py`` asserts what else a scalar function needs."""
    assert set(lower._OPERATORS) == OPS - {"where"}


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, C64, C128, I32, U8, BOOL], ids=repr)
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_functions(op: str, dtype: DType) -> None:
    if not takes(op, dtype):
        return
    x = samples(dtype)
    if op == "silu" and dtype.is_float:
        x = x[~np.isneginf(x.astype(np.float64))]
    result = REAL.get(dtype, dtype) if op in ("abs", "real", "imag") else dtype
    einsum = elementwise(ScalarCall(op, (OperandRef(0, dtype),), result), (dtype,), len(x))
    if dtype.kind == "b" and op in ("floor", "ceil", "round"):
        compare(call(einsum, x)[0], x, result, exact=True)
        return
    if op == "gelu" and dtype == F32:
        wide = elementwise(ScalarCall(op, (OperandRef(0, F64),), F64), (F64,), len(x))
        expected = evaluate_einsum(wide, [x.astype(np.float64)])[0].astype(np.float32)
    else:
        expected = evaluate_einsum(einsum, [x])[0]
    compare(call(einsum, x)[0], expected, result, op in EXACT and dtype.kind != "c")


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, C128, I8, I64, U64, BOOL], ids=repr)
@pytest.mark.parametrize("op", sorted(OPS - FUNCTIONS - {"where", "not"}))
def test_operators(op: str, dtype: DType) -> None:
    if (
        dtype.kind == "c"
        and op in ("floordiv", "mod")
        or dtype.kind == "b"
        and op in ("sub", "div", "floordiv", "mod", "pow")
    ):
        return
    if op in ("and", "or") and dtype.kind != "b" or op == "div" and not dtype.is_inexact:
        return
    a, b = (g.ravel() for g in np.meshgrid(samples(dtype)[:24], samples(dtype)[:24]))
    if op == "pow" and dtype.is_integer:
        b = np.clip(b, -3 if dtype.kind == "i" else 0, 5).astype(dtype.numpy)
    result = BOOL if op in COMPARISONS or op in ("and", "or") else dtype
    einsum = elementwise(ScalarCall(op, (OperandRef(0, dtype), OperandRef(1, dtype)), result), (dtype, dtype), len(a))
    compare(call(einsum, a, b)[0], evaluate_einsum(einsum, [a, b])[0], result, exact=op != "pow" and dtype.kind != "c")


@pytest.mark.parametrize("dtype", [F16, F32, F64, I8, I64, C64], ids=repr)
@pytest.mark.parametrize("exponent", [-2, -1, 0, 1, 2, 3, 4, 7])
def test_constant_powers(exponent: int, dtype: DType) -> None:
    x = samples(dtype)
    einsum = elementwise(
        ScalarCall("pow", (OperandRef(0, dtype), ScalarConst(exponent, dtype)), dtype), (dtype,), len(x)
    )
    compare(call(einsum, x)[0], evaluate_einsum(einsum, [x])[0], dtype, exact=False)


def test_erf_is_good_to_a_few_units_in_the_last_place() -> None:
    for dtype, units in ((F32, 4), (F64, 4)):
        x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-30, 0, 301)]).astype(dtype.numpy)
        found, status = call(elementwise(ScalarCall("erf", (OperandRef(0, dtype),), dtype), (dtype,), len(x)), x)
        exact = np.array([math.erf(v) for v in x.tolist()])
        assert (np.abs(found - exact) <= units * np.spacing(np.abs(exact).astype(dtype.numpy))).all()
        assert status == 0


@pytest.mark.parametrize("target", DTYPES.values(), ids=repr)
@pytest.mark.parametrize("source", DTYPES.values(), ids=repr)
def test_casts(source: DType, target: DType) -> None:
    x = np.array([0, 1, 1, 3, 100, 7, 2]).astype(source.numpy)
    einsum = elementwise(ScalarCast(OperandRef(0, source), target), (source,), len(x))
    compare(call(einsum, x)[0], evaluate_einsum(einsum, [x])[0], target, exact=True)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=repr)
def test_where_picks_without_touching_the_other(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    condition, a, b = rng.integers(0, 2, 999).astype(bool), *(rng.integers(0, 100, (2, 999)).astype(dtype.numpy))
    join = ScalarCall("where", (OperandRef(0, BOOL), OperandRef(1, dtype), OperandRef(2, dtype)), dtype)
    einsum = elementwise(join, (BOOL, dtype, dtype), 999)
    np.testing.assert_array_equal(call(einsum, condition, a, b)[0], np.where(condition, a, b))


NAN, INF = math.nan, math.inf
SEEN = [
    ("add", (INF, -INF), INVALID),
    ("sub", (INF, INF), INVALID),
    ("mul", (0, INF), INVALID),
    ("mul", (1e30, 1e30), OVERFLOW),
    ("div", (0, 0), INVALID),
    ("div", (1, 0), DIVIDE),
    ("mod", (1, 0), INVALID),
    ("pow", (-8, 0.5), INVALID),
    ("log", (-1,), INVALID),
    ("log", (0,), DIVIDE),
    ("sqrt", (-1,), INVALID),
    ("rsqrt", (0,), DIVIDE),
    ("exp", (1000,), OVERFLOW),
    ("sin", (INF,), INVALID),
    *[(op, (NAN, 1), 0) for op in ("add", "sub", "mul", "div", "min", "max", "lt", "ge", "eq", "ne", "pow")],
    *[(op, (NAN,), 0) for op in sorted(FUNCTIONS)],
    *[(op, (-1000,), 0) for op in ("exp", "sigmoid", "silu", "gelu", "erf", "softplus", "tanh", "relu")],
    *[(op, (1000,), 0) for op in ("sigmoid", "silu", "gelu", "erf", "softplus", "tanh", "relu")],
]


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
@pytest.mark.parametrize(("op", "values", "expected"), SEEN)
@pytest.mark.parametrize("n", [1, 37])
def test_what_the_unit_sees(op: str, values: tuple[float, ...], expected: int, dtype: DType, n: int) -> None:
    if dtype == F64 and max(map(abs, values)) == 1e30:
        values = (1e300, 1e300)
    operands = [np.full(n, v, dtype.numpy) for v in values]
    join = ScalarCall(op, tuple(OperandRef(s, dtype) for s in range(len(values))), BOOL if op in COMPARISONS else dtype)
    assert call(elementwise(join, (dtype,) * len(values), n), *operands)[1] == expected


def test_integers_divided_by_zero_give_zero_and_say_so() -> None:
    x = np.array([5, -3], np.int64)
    for op in ("floordiv", "mod"):
        einsum = elementwise(ScalarCall(op, (OperandRef(0, I64), ScalarConst(0, I64)), I64), (I64,), 2)
        out, status = call(einsum, x)
        assert out.tolist() == [0, 0] and status == DIVIDE


def test_casts_that_overflow_are_seen() -> None:
    for source, target, value, expected in (
        (F64, F32, 1e300, OVERFLOW),
        (F32, F16, 1e5, OVERFLOW),
        (F32, F16, INF, 0),
        (F32, I32, NAN, INVALID),
        (F32, F16, NAN, 0),
        (F32, BF16, 3.4e38, OVERFLOW),
        (F32, BF16, 3.389e38, 0),
        (F32, BF16, INF, 0),
    ):
        einsum = elementwise(ScalarCast(OperandRef(0, source), target), (source,), 9)
        assert call(einsum, np.full(9, value, source.numpy))[1] == expected


def fold(op: str, dtype: DType, n: int, m: int, join: Scalar | None = None) -> Einsum:
    join = join or OperandRef(0, dtype)
    return Einsum(("i", "j"), (n, m), 1, ((0, 1),), (dtype,), join, aggregation(op, join.dtype))


def test_folds_see_what_arises_and_not_what_passes() -> None:
    x = np.zeros((3, 50), np.float32)
    x[1, 7] = NAN
    for op in ("sum", "prod", "max", "min", "mean", "logsumexp", "argmax", "argmin"):
        out, status = call(fold(op, F32, 3, 50), x)
        assert status == 0, op
        assert math.isnan(out[1]) or op.startswith("arg") and out[1] == 7
    x[1, 7], x[2, 1], x[2, 2] = 3e38, INF, -INF
    x[1, 8] = 3e38
    assert call(fold("sum", F32, 3, 50), x)[1] == INVALID | OVERFLOW


def test_masked_logsumexp_is_quiet_and_exact() -> None:
    x = np.full((4, 40), -INF, np.float32)
    x[1, 3] = 5.0
    x[2, 3], x[2, 4] = INF, 2.0
    x[3, 4], x[3, 5] = 1000.0, 1000.0
    einsum = fold("logsumexp", F32, 4, 40)
    out, status = call(einsum, x)
    np.testing.assert_array_equal(out, np.array([-INF, 5.0, INF, 1000 + math.log(2)], np.float32))
    assert status == 0
    state = tuple(np.empty(4, np.float32) for _ in range(2))
    for n, start in enumerate((30, 0, 10, 20)):
        kernel = compile_kernel(einsum, (4, 10), "accumulate")
        workspace = np.empty(kernel.workspace_nbytes, np.uint8)
        assert kernel(state, (x[:, start : start + 10],), (0, start), n == 0, workspace) == 0
    kernel = compile_kernel(einsum, (4, 40), "finalize")
    assert kernel((out,), state, (0, 0), True, np.empty(kernel.workspace_nbytes, np.uint8)) == 0
    np.testing.assert_array_equal(out, np.array([-INF, 5.0, INF, 1000 + math.log(2)], np.float32))


def test_causal_mask_by_labels_at_an_origin() -> None:
    mask = ScalarCall("le", (LabelValue(1), LabelValue(0)), BOOL)
    join = ScalarCall("where", (mask, OperandRef(0, F32), ScalarConst(-INF, F32)), F32)
    einsum = Einsum(("s", "t"), (100, 100), 2, ((0, 1),), (F32,), join, None)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.empty((3, 4), np.float32)
    kernel = compile_kernel(einsum, (3, 4), "full")
    assert kernel((out,), (x,), (50, 49), True, np.empty(kernel.workspace_nbytes, np.uint8)) == 0
    np.testing.assert_array_equal(out, np.where(np.arange(49, 53) <= np.arange(50, 53)[:, None], x, -np.inf))


@pytest.mark.parametrize("dtype", [F32, F64, C64, C128], ids=repr)
@pytest.mark.parametrize("n", [1, 33, 200])
def test_blas_is_watched(dtype: DType, n: int) -> None:
    join = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
    einsum = Einsum(("i", "j", "k"), (n, 65, 40), 2, ((0, 2), (2, 1)), (dtype, dtype), join, aggregation("sum", dtype))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, 40)).astype(dtype.numpy), rng.standard_normal((40, 65)).astype(dtype.numpy)
    if n > 1:
        assert isinstance(compile_kernel(einsum, einsum.bounds, "full", by_blas=True), ContractionKernel)
    assert call(einsum, a, b)[1] == 0
    a[0, 3] = NAN
    assert call(einsum, a, b)[1] == 0
    big = float(np.finfo(dtype.numpy).max)
    a[0, 3], b[3, 1] = big, 8
    assert call(einsum, a, b)[1] & OVERFLOW
    a[0, 3], b[3, 1] = INF, 0
    assert call(einsum, a, b)[1] & INVALID


def test_promotion_of_narrow_operands_is_exact() -> None:
    assert promote(F16, BF16) == F32
    join = ScalarCall("mul", (ScalarCast(OperandRef(0, F16), F32), ScalarCast(OperandRef(1, BF16), F32)), F32)
    x, y = samples(F16)[16:], samples(BF16)[16:]
    einsum = elementwise(join, (F16, BF16), len(x))
    np.testing.assert_array_equal(call(einsum, x, y)[0], x.astype(np.float32) * y.astype(np.float32))


def test_a_product_that_overflows_bf16_is_seen() -> None:
    join = ScalarCall("mul", (OperandRef(0, BF16), OperandRef(1, BF16)), BF16)
    einsum = Einsum(("i", "j", "k"), (40, 40, 40), 2, ((0, 2), (2, 1)), (BF16, BF16), join, aggregation("sum", BF16))
    a, b = np.zeros((2, 40, 40), BF16.numpy)
    a[0, 0] = a[0, 1] = 1.5e38
    b[:2, 0] = 1
    assert call(einsum, a, b)[1] == 0
    b[:2, 0] = 1.1328125  # 3.399e38 is an f32, no bf16
    assert call(einsum, a, b)[1] == OVERFLOW
