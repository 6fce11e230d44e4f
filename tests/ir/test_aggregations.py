"""The table of aggregations: each row complete, and the same on all paths; rows that a test adds too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.eingraph.build.program import build
from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.ir.aggregations import AGGREGATIONS, MONOIDS, Aggregation, Monoid, aggregation
from einturnip.ir.dtypes import BOOL, F32, F64, I64
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarConst
from einturnip.kernels import select
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.llvm import code_cache, kernel_spec
from einturnip.kernels.numpy import scatter
from einturnip.kernels.protocol import Mode
from einturnip.lang import compile_text, lexer
from einturnip.lsp.glossary import GLOSSARY
from einturnip.testing import promotion
from einturnip.testing.aggregation import aggregate_values
from einturnip.testing.arithmetic import BoundedValue
from tests.gradients.harness import assert_derived, with_gradients
from tests.kernels.cuda.emulation import Emulator, why_not
from tests.reference.einsum import evaluate_einsum
from tests.reference.program import evaluate

X = np.random.default_rng(4).normal(size=(40, 300)) * 0.5
K = np.random.default_rng(5).integers(0, 5, 40)


def _square(x: Scalar) -> Scalar:
    return ScalarCall("pow", (x, ScalarConst(2.0, x.dtype)), x.dtype)


def _root(state: tuple[Scalar, ...], n: Scalar) -> Scalar:
    return ScalarCall("sqrt", (ScalarCall("div", (state[0], n), n.dtype),), n.dtype)


def _derivative(x: Scalar, y: Scalar, n: Scalar) -> Scalar:
    half = ScalarCall("div", (ScalarConst(0.5, x.dtype), y), x.dtype)
    return ScalarCall("div", (half, n), x.dtype)


ADDED = {
    "added_squares": Monoid(
        "added_squares", "The sum of squares.", "add", "wide", MONOIDS["sum"].derivative, "real", lift=_square
    ),
    "added_root": Monoid(
        "added_root", "The root of the mean square.", "add", "inexact", _derivative, "real", _square, _root
    ),
}
ROWS = (*AGGREGATIONS, *ADDED)


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two further rows, one with a lift and one with a result of its own."""
    for name, row in ADDED.items():
        monkeypatch.setitem(MONOIDS, name, row)
        monkeypatch.setitem(lexer._WORDS, name, "AGGREGATION")


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_a_row_is_complete(name: str) -> None:
    row = MONOIDS[name]
    assert row.name == name and f"`{name}[i] " in row.doc and GLOSSARY[name] == row.doc
    assert (row.combine in FOLDS) != (row.combine in scatter._STATE_FOLDS) and row.combine in states._TYPES
    assert row.bool_row in ("", "any", "all")


@pytest.mark.parametrize("name", [*ROWS, "pick"])
@pytest.mark.parametrize("keyed", [False, True])
def test_the_fields_of_a_row_agree(name: str, keyed: bool) -> None:
    operator = aggregation(name, BOOL if name in ("any", "all") else F64, keyed=keyed)
    assert len(operator.identity) == len(operator.state)
    fixed = operator.row.finalize_reads_count and not keyed
    assert (operator.result_of_state((3,)) != operator.result_of_state((5,))) == fixed
    assert operator.finalize_is_identity == (operator.row.finalize is None)
    assert operator.indexed == (operator.row.result == "index")
    assert operator.state[0].is_inexact or not operator.rounds


def _program(name: str) -> str:
    of = {"any": "(X[i,j] > 1.2)", "all": "(X[i,j] < 1.2)"}.get(name, "X[i,j]")
    product = of.replace("X[i,j]", "(X[i,j] * X[i,0])")
    return f"""input X : f64[n,m]
input k : i64[n]
A[i] = {name}[j] {of}
B = {name}[i,j] {of}
C[k[i]: 6, j] = {name}[i] {of}
D[j] = {name}[i] {product}
M[i] = max[j] X[i,j]
E[i] = {name}[j] {of.replace("X[i,j]", "(X[i,j] - M[i])")}
output A, B, C, D, E
"""


@cache
def _expected(name: str) -> Mapping[str, np.ndarray]:
    return evaluate(compile_text(_program(name)), {"X": X, "k": K})


PATHS = {
    "whole": ({}, True),
    "whole, NumPy": ({}, False),
    "tiles": ({"arena": "24KiB"}, True),
    "tiles, NumPy": ({"arena": "24KiB"}, False),
    "two devices": ({"device": "sim:1,2", "arena": "64KiB"}, True),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("path", PATHS)
def test_programs(name: str, path: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Whole and in tiles, by key, in fused regions, by machine code and NumPy, on two devices."""
    options, machine_code = PATHS[path]
    if not machine_code:
        monkeypatch.setattr(code_cache, "available", lambda: False)
        select.forget()
        request.addfinalizer(select.forget)
    program = et.compile(_program(name))
    found = program(X=X, k=K, **options)
    for tensor, array in _expected(name).items():
        assert found[tensor].dtype == array.dtype
        np.testing.assert_allclose(found[tensor], array, rtol=1e-12, atol=1e-12, err_msg=tensor)


MODES: tuple[Mode, ...] = ("full", "accumulate", "combine", "finalize")


def _einsum(operator: Aggregation, keyed: bool) -> Einsum:
    dtype = operator.value
    if not keyed:
        return Einsum(("i", "j"), (9, 70), 1, ((0, 1),), (dtype,), OperandRef(0, dtype), operator)
    keys = (Key(0, OperandRef(1, I64)),)
    return Einsum(
        tuple("gj"), (9, 70), 1, ((1,), (1,)), (dtype, I64), OperandRef(0, dtype), operator, ((70,), (70,)), keys
    )


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("name", ROWS)
def test_cuda_states(name: str, tmp_path: Path) -> None:
    """All at once, and accumulated, combined and finalized, by the emulator."""
    dtype = BOOL if MONOIDS[name].values == "bool" else F32
    rng = np.random.default_rng(1)
    einsums = [_einsum(aggregation(name, dtype, keyed=keyed), keyed) for keyed in (False, True)]
    made = [[generate(e, mode) for mode in MODES] for e in einsums]
    emulator = Emulator([kernel for kernels in made for kernel in kernels], tmp_path)
    for e, (full, accumulate, combine, finalize) in zip(einsums, made, strict=True):
        operands = [rng.integers(0, 2 if dtype == BOOL else 9, e.operand_shape(0)).astype(dtype.numpy)]
        operands += [rng.integers(0, 9, e.operand_shape(1))] if e.keys else []
        (expected,) = evaluate_einsum(e, operands)
        out = np.zeros(e.shape, e.dtype.numpy)
        emulator.call(full, e.bounds, [out], operands, [0, 0])
        np.testing.assert_allclose(out, expected, rtol=1e-6)
        state, other = ([np.zeros(e.shape, d.numpy) for d in e.state_dtypes] for _ in range(2))
        for part, at, end in ((state, 0, 30), (other, 30, 70)):
            cut = [np.ascontiguousarray(x[..., at:end]) for x in operands]
            emulator.call(accumulate, [9, end - at], part, cut, [0, at], True)
        emulator.call(combine, e.bounds, state, other, [0, 0], False)
        emulator.call(finalize, e.bounds, [out], state, [0, 0])
        np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_numpy_computes_states_that_machine_code_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_spec, "_COMBINES", frozenset({"add"}))
    kernel_spec._kernel_spec.cache_clear()
    select.forget()
    try:
        assert kernel_spec.kernel_spec(_einsum(aggregation("max", F32), False), "full") is None
        text = "input X : f64[n,m]\nY[i] = logsumexp[j] X[i,j]\nZ[j] = max[i] X[i,j]\noutput Y, Z\n"
        found = et.compile(text)(X=X, arena="24KiB")
    finally:
        kernel_spec._kernel_spec.cache_clear()
        select.forget()
    np.testing.assert_allclose(found["Y"], np.log(np.exp(X).sum(1)), rtol=1e-12)
    np.testing.assert_array_equal(found["Z"], X.max(0))


@pytest.mark.parametrize("name", [name for name in ROWS if (ADDED | MONOIDS)[name].derivative is not None])
def test_derivatives(name: str) -> None:
    inputs = {"X": X[:3, :4], "k": np.array([0, 1, 1])}
    body = f"y[i] = {name}[j] (X[i,j]^2 + X[0,j])\nz[k[i]: 2, j] = {name}[i] X[i,j]\n"
    body += "L = sum[i] y[i]^2 + sum[g,j] z[g,j]^2 * (j+1)"
    assert_derived(with_gradients(body, "L", inputs), inputs)


def test_a_derivative_receives_the_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the result does not depend on it, so that nothing else counts them."""
    row = Monoid("numbered", "A sum.", "add", "inexact", lambda x, y, n: n)
    monkeypatch.setitem(MONOIDS, row.name, row)
    monkeypatch.setitem(lexer._WORDS, row.name, "AGGREGATION")
    text = """input X : f64[n,m]
input k : i64[n]
y[i] = numbered[j] X[i,j]
z[k[i]: 2, j] = numbered[i] X[i,j]
L = sum[i] y[i]
M = sum[g,j] z[g,j]
G[i,j] = grad(L, X[i,j])
H[i,j] = grad(M, X[i,j])
output G, H
"""
    found = et.compile(text)(X=X[:3, :4], k=np.array([0, 1, 1]))
    np.testing.assert_array_equal(found["G"], np.full((3, 4), 4.0))
    np.testing.assert_array_equal(found["H"], np.repeat([[1.0], [2.0], [2.0]], 4, axis=1))
    assert row.derivative_reads_count and not row.finalize_reads_count


@pytest.mark.parametrize("name", ROWS)
def test_shifts_hold(name: str) -> None:
    """A row whose result moves with its values says so, and no other row does."""
    operator = aggregation(name, BOOL if MONOIDS[name].values == "bool" else F64)
    if operator.row.result == "index" or operator.value == BOOL:
        assert not operator.row.shift_equivariant
        return
    einsum = _einsum(operator, False)
    (found,), (moved,) = (evaluate_einsum(einsum, [X[:9, :70] + c]) for c in (2.0, 2.5))
    assert np.allclose(found + 0.5, moved) == operator.row.shift_equivariant


def test_a_row_that_folds_as_another_one_is_the_same_computation() -> None:
    text = "input A : f64[i,j]\ns[i] = added_squares[j] A[i,j]\nt[i] = sum[j] A[i,j]^2\noutput s, t\n"
    graph = build(compile_text(text), {"A": (3, 4)}, {})
    assert show(graph).splitlines()[1] == "1: s[i] : f64 3 = sum[j] A[i,j]^2  -> output s"
    assert [node["aggregation"] for node in to_json(graph)[1:]] == ["sum", "sum"]
    assert rewrite(graph).outputs == (("s", 1), ("t", 1))


def test_a_fold_that_no_row_without_lift_has_is_printed_as_no_row_is() -> None:
    text = "input A : f64[i,j]\ns[i] = added_root[j] A[i,j]\noutput s\n"
    graph = build(compile_text(text), {"A": (3, 4)}, {})
    assert show(graph).splitlines()[1] == "1: s[i] : f64 3 = added_root.fold[j] A[i,j]^2  -> output s"
    assert to_json(graph)[1]["aggregation"] == "added_root.fold"


def test_what_an_added_row_means() -> None:
    text = "input X : f16[n,m]\nS = added_squares[i,j] X[i,j]\nR[i] = added_root[j] X[i,j]\noutput S, R\n"
    x = np.full((2, 300), 100, np.float16)
    found = et.compile(text)(X=x)
    assert math.isinf(found["S"]) and found["R"].tolist() == [100, 100]  # squared and added in f32
    ints = et.compile("input x : i8[n]\nS = added_squares[i] x[i]\noutput S\n")(x=np.full(9, -100, np.int8))
    assert ints["S"] == 90_000 and ints["S"].dtype == np.int64


def test_the_oracle_of_drawn_programs_takes_its_aggregations_from_the_table() -> None:
    values = [BoundedValue(v) for v in (1.0, -2.0, 3.0)]
    assert aggregate_values("added_squares", values, "f32", "f32") == BoundedValue(14.0)
    assert aggregate_values("added_squares", [BoundedValue(2**62), BoundedValue(3)], "i64", "i64") == BoundedValue(9)
    assert aggregate_values("added_squares", [BoundedValue(1.0, 0.5), *values], "f64", "f64").slack >= 1.25
    assert aggregate_values("added_squares", [BoundedValue(-100)] * 9, "i8", "i64") == BoundedValue(90_000)
    assert aggregate_values("added_squares", [BoundedValue(300.0)], "f16", "f32") == BoundedValue(90_000.0)
    root = aggregate_values("added_root", values, "f64", "f64")
    assert abs(root.v - math.sqrt(14 / 3)) <= root.slack < 1e-12
    assert promotion.aggregate("added_squares", promotion.Type("i8"), None).dtype == "i64"
    assert promotion.aggregate("added_root", promotion.Type("u8"), None).dtype == "f64"
    with pytest.raises(TypeError):
        promotion.aggregate("added_squares", promotion.Type("c64"), None)
