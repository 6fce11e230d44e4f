"""Warnings name the statement that makes a nan, overflows or divides by zero, and none that only passes one on."""

import ml_dtypes
import numpy as np
import pytest

import einturnip as et
from tests.robustness.programs import GEMM, SOFTMAX

INF, NAN = np.inf, np.nan


def warned(text: str, **inputs):
    return [(w.line, w.kind) for w in et.compile(text)(arena="8MiB", **inputs).report.warnings]


def product(left, right):
    return warned(GEMM, A=np.asarray(left, np.float32), B=np.asarray(right, np.float32))


def ones(*shape, **places):
    return np.ones(shape, np.float32)


def with_row(shape, values):
    array = ones(*shape)
    array[shape[0] // 2, : len(values)] = values
    return array


SHAPES = [(64, 64, 64), (1, 2, 1), (7, 13, 5), (61, 46, 25), (3, 70, 1), (130, 33, 20)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_product(shape):
    n, k, m = shape
    right = ones(k, m)
    assert product(with_row((n, k), [INF, -INF]), right) == [(4, "nan")]
    assert product(ones(n, k) * 3e38, right * 3) == [(4, "overflow")]
    zero = right.copy()
    zero[0] = 0
    assert product(with_row((n, k), [INF]), zero) == [(4, "nan")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_a_product_that_passes_on_what_it_gets(shape, value):
    n, k, m = shape
    assert product(with_row((n, k), [value]), ones(k, m)) == []
    assert product(ones(n, k), with_row((k, m), [value])) == []


@pytest.mark.parametrize(
    ("dtype", "element", "large"),
    [("f16", np.float16, 3e4), ("bf16", ml_dtypes.bfloat16, 3e38), ("f64", np.float64, 1e308), ("c64", "c8", 3e38)],
)
def test_a_product_of_other_types(dtype, element, large):
    text = GEMM.replace("f32", dtype)
    A, B = ones(20, 30).astype(element), ones(30, 10).astype(element)
    assert warned(text, A=A, B=B) == []
    assert (4, "overflow") in warned(text, A=(A * large).astype(element), B=B)
    assert warned(text, A=with_row((20, 30), [INF, -INF]).astype(element), B=B) == [(4, "nan")]


MAKE = [
    ("log(x[i])", [-1], ["nan"]),
    ("log(x[i])", [0], ["divide"]),
    ("sqrt(x[i])", [-1], ["nan"]),
    ("x[i] / x[i]", [0], ["nan"]),
    ("1 / x[i]", [0], ["divide"]),
    ("x[i] - x[i]", [INF], ["nan"]),
    ("exp(x[i])", [1000], ["overflow"]),
    ("x[i] * 1e300", [1e300], ["overflow"]),
    ("f32(x[i])", [1e300], ["overflow"]),
    ("x[i] ^ 0.5", [-1], ["nan"]),
    ("sin(x[i])", [INF], ["nan"]),
]
PASS = ["x[i] + 1", "log(x[i])", "exp(x[i])", "f32(x[i])", "max(x[i], 0)", "tanh(x[i])", "sqrt(x[i])", "2 * x[i] / 3"]


@pytest.mark.parametrize(("expression", "x", "kinds"), MAKE)
@pytest.mark.parametrize("n", [1, 37])
def test_an_elementwise_statement(expression, x, kinds, n):
    text = f"input x : f64[n]\n\ny[i] = {expression}\noutput y\n"
    values = np.concatenate([np.ones(n - 1), np.array(x, float)])
    assert warned(text, x=values) == [(3, kind) for kind in kinds]


@pytest.mark.parametrize("expression", PASS)
def test_an_elementwise_statement_that_passes_on_what_it_gets(expression):
    assert warned(f"input x : f64[n]\ny[i] = {expression}\noutput y\n", x=np.array([NAN, INF, 1.0])) == []


AGGREGATE = [
    ("sum", [INF, -INF], ["nan"]),
    ("sum", [1e308, 1e308], ["overflow"]),
    ("prod", [1e200, 1e200], ["overflow"]),
    ("prod", [INF, 0], ["nan"]),
    ("sum", [NAN, 1], []),
    ("max", [NAN, 1], []),
    ("sum", [INF, INF], []),
    ("logsumexp", [1e4, -INF], []),
]


@pytest.mark.parametrize(("aggregation", "x", "kinds"), AGGREGATE)
def test_an_aggregation(aggregation, x, kinds):
    text = f"input x : f64[n]\ns = {aggregation}[i] x[i]\noutput s\n"
    assert warned(text, x=np.array(x)) == [(2, kind) for kind in kinds]


def test_of_several_statements_the_one_is_named():
    masked = np.zeros((4, 6), np.float32)
    masked[:, 3:] = -INF
    assert warned(SOFTMAX, X=masked) == []
    masked[2] = -INF
    assert warned(SOFTMAX, X=masked) == [(3, "nan")]


def test_statements_computed_together_are_named_together():
    text = "input x : f64[n]\nl[i] = log(x[i])\ny[i] = l[i] + 1\ns = sum[i] y[i]\noutput y, s\n"
    (warning,) = et.compile(text)(x=-np.ones(5), arena="1MiB").report.warnings
    assert (warning.line, warning.merged, warning.kind) == (3, (2,), "nan")
    assert warning.statement == "y[i] = l[i] + 1"


CONSTANT = [
    ("1 / 0", ["divide"]),
    ("5 // 0", ["divide"]),
    ("log(0)", ["divide"]),
    ("sqrt(-1)", ["nan"]),
    ("f16(100000)", ["overflow"]),
    ("1e300 * 1e300", ["overflow"]),
    ("x[0] * (0 / 0)", ["nan"]),
    ("-inf + x[0]", []),
    ("where(x[0] > 0, 1, nan)", []),
    ("exp(-1e4)", []),
]


@pytest.mark.parametrize(("expression", "kinds"), CONSTANT)
def test_what_is_constant_is_told_too(expression, kinds):
    text = f"input x : f64[n]\ny = {expression}\noutput y\n"
    assert warned(text, x=np.ones(2)) == [(2, kind) for kind in kinds]


def test_a_division_by_zero_in_a_loop_of_numbers_is_told():
    assert warned("y = 1.0\nfor t in 0 .. 4 {\n  y = y / (2 - t)\n}\noutput y\n") == [(3, "divide")]
