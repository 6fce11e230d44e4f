"""Functions: every clause of what the language page says of them, on plain arrays."""

from pathlib import Path

import numpy as np
import pytest

from einturnip.core.errors import BindError, SourceError
from einturnip.lang import compile_text
from einturnip.lang.program import Equation, TypedProgram
from tests.reference.program import Array, evaluate
from tests.reference.program_check import check

SOFTMAX = "fn softmax(X[..., j]) = exp(X[..., j] - max[j] X[..., j]) / sum[j] exp(X[..., j] - max[j] X[..., j])\n"
LAYER = """
fn layer(X[s, d], W[d, e], b[e]) {
  H[s, e] = sum[d] X[s, d] * W[d, e] + b[e]
  return 2 * H[s, e]
}
"""
ATTENTION = (
    SOFTMAX
    + """
fn attention(Q[..., s, d], K[..., t, d], V[..., t, e]) {
  scale = 1 / sqrt(d)
  S[..., s, t] = sum[d] Q[..., s, d] * K[..., t, d] * scale
  P[..., s, t] = softmax(S[..., s, t])
  O[..., s, e] = sum[t] P[..., s, t] * V[..., t, e]
  return O[..., s, e]
}
"""
)
COV = """
fn cov(X[n, d]) {
  m[d] = mean[n] X[n, d]
  C[d, e] = mean[n] (X[n, d] - m[d]) * (X[n, e] - m[e])
  return C[d, e]
}
"""


def run(text: str, dims: dict[str, int] | None = None, **inputs: Array) -> dict[str, Array]:
    program = compile_text(text)
    check(program)
    return evaluate(program, inputs, dims)


def one(text: str, expression: str, dims: dict[str, int] | None = None, **inputs: Array) -> Array:
    """The value of ``left = right`` after a text, with each array as an input of its name."""
    declared = "".join(
        f"input {name} : f64{[f'{name}{k}' for k in range(a.ndim)]}\n".replace("'", "").replace("[]", "")
        for name, a in inputs.items()
    )
    name = expression.split("[")[0].split("=")[0].strip()
    return run(f"{declared}{text}\n{expression}\noutput {name}\n", dims, **inputs)[name]


def ints(*shape: int, low: int = -4) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, 5, shape).astype(np.float64)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def message(text: str) -> str:
    with pytest.raises(SourceError) as error:
        compile_text(text)
    return str(error.value)


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_the_rest_of_the_axes(shape: tuple[int, ...]) -> None:
    x = ints(*shape)
    labels = "ijk"[: len(shape)]
    left = ",".join(labels)
    np.testing.assert_allclose(one(SOFTMAX, f"Y[{left}] = softmax(x[{left}])", x=x), softmax(x))


def test_the_caller_says_which_axis_is_which() -> None:
    x = ints(3, 4)
    np.testing.assert_allclose(one(SOFTMAX, "Y[i,j] = softmax(x[j,i])", x=x), softmax(x).T)
    np.testing.assert_allclose(one(SOFTMAX, "Y[j,i] = softmax(x[i,j])", x=x), softmax(x).T)
    np.testing.assert_allclose(one(SOFTMAX, "Y[j,i] = 2 * softmax(x[j,i]) + x[j,i]", x=x), 2 * softmax(x) + x)


def test_labels_are_the_functions_own() -> None:
    x, w, b = ints(3, 4), ints(4, 5), ints(5)
    expected = 2 * (x @ w + b)
    np.testing.assert_array_equal(one(LAYER, "H[s,e] = layer(x[s,d], w[d,e], b[e])", x=x, w=w, b=b), expected)
    np.testing.assert_array_equal(one(LAYER, "H[i,j] = layer(x[i,k], w[k,j], b[j])", x=x, w=w, b=b), expected)
    np.testing.assert_array_equal(one(LAYER, "H[e,s] = layer(x[e,d], w[d,s], b[s])", x=x, w=w, b=b), expected)


def test_parameter_labels_are_sizes_and_calls_nest() -> None:
    q, k, v = ints(2, 3, 4), ints(2, 5, 4), ints(2, 5, 6)
    p = softmax(np.einsum("bsd,btd->bst", q, k) / 2)
    expected = np.einsum("bst,bte->bse", p, v)
    text = "Y[b,s,e] = attention(q[b,s,d], k[b,t,d], v[b,t,e])"
    np.testing.assert_allclose(one(ATTENTION, text, q=q, k=k, v=v), expected)


def test_attention_to_itself_takes_no_diagonal() -> None:
    x = ints(5, 4)
    expected = softmax(x @ x.T / 2) @ x
    np.testing.assert_allclose(one(ATTENTION, "Y[s,d] = attention(x[s,d], x[s,d], x[s,d])", x=x), expected)


def test_the_rest_is_the_same_or_none() -> None:
    q, k = ints(2, 3, 4), ints(5, 4)
    p = softmax(np.einsum("bsd,td->bst", q, k) / 2)
    text = "Y[b,s,e] = attention(q[b,s,d], k[t,d], k[t,e])"
    np.testing.assert_allclose(one(ATTENTION, text, q=q, k=k), np.einsum("bst,te->bse", p, k))
    q4, k4 = ints(2, 3, 5, 4), ints(3, 2, 6, 4)
    p4 = softmax(np.einsum("bhsd,hbtd->bhst", q4, k4) / 2)
    text = "Y[b,h,s,e] = attention(q[b,h,s,d], k[h,b,t,d], k[h,b,t,e])"
    np.testing.assert_allclose(one(ATTENTION, text, q=q4, k=k4), np.einsum("bhst,hbte->bhse", p4, k4))
    wrong = "input q : f32[b, s, d]\ninput k : f32[c, t, d]\n"
    assert "E063" in message(f"{wrong}{ATTENTION}Y[b,c,s,e] = attention(q[b,s,d], k[c,t,d], k[c,t,e])\n")


def test_an_axis_that_the_function_makes_takes_the_next_label_on_the_left() -> None:
    x = ints(6, 3)
    c = x - x.mean(0)
    expected = c.T @ c / 6
    np.testing.assert_allclose(one(COV, "C[d,e] = cov(x[n,d])", x=x), expected)
    np.testing.assert_allclose(one(COV, "C[e,d] = cov(x[n,d])", x=x), expected.T)
    np.testing.assert_allclose(one(COV, "C[i,j] = 2 * cov(x[k,i])", x=x), 2 * expected)
    np.testing.assert_allclose(one(COV + SOFTMAX, "C[i,j] = softmax(cov(x[k,i]))", x=x), softmax(expected))
    inner = COV + "fn both(X[n, d]) = 2 * cov(X[n, d])\n"
    np.testing.assert_allclose(one(inner, "C[i,j] = both(x[k,i])", x=x), 2 * expected)
    assert "E064" in message(f"input x : f32[n, d]\n{COV}c[d] = cov(x[n,d])\n")


def test_an_argument_is_any_expression_and_its_labels_count_as_accesses_show_them() -> None:
    x = ints(5, 5)
    masked = np.where(np.tril(np.ones((5, 5), bool)), x, -np.inf)
    np.testing.assert_allclose(one(SOFTMAX, "P[s,t] = softmax(where(t <= s, x[s,t], -inf))", x=x), softmax(masked))
    np.testing.assert_allclose(one(SOFTMAX, "P[s,t] = softmax(2 * x[t,s])", x=x), softmax(2 * x).T)
    np.testing.assert_allclose(one(SOFTMAX, "P[s,t] = softmax(softmax(x[s,t]))", x=x), softmax(softmax(x)))
    np.testing.assert_allclose(one(SOFTMAX, "P[s] = softmax(sum[t] x[s,t])", x=x), softmax(x.sum(1)))
    np.testing.assert_allclose(one(SOFTMAX, "P[s] = softmax(x[s,s])", x=x), softmax(np.diagonal(x)))
    np.testing.assert_allclose(one(SOFTMAX, "P[s: 3, t] = softmax(x[s+1,t])", x=x), softmax(x[1:4]))
    np.testing.assert_allclose(one(SOFTMAX, "P[s,t] = softmax(x[s+1,t])", x=x), softmax(x[1:]))
    np.testing.assert_allclose(one(SOFTMAX, "P[:, t] = softmax(x[1:3, t])", x=x), softmax(x[1:3]))
    np.testing.assert_allclose(one(SOFTMAX, "P[s, t: 2] = softmax(x[s,t])", x=x), softmax(x[:, :2]))


def test_calls_within_aggregations() -> None:
    x, y = ints(3, 4), ints(4)
    square = "fn square(x) = x * x\nfn total(X[i]) = sum[i] X[i]\n"
    np.testing.assert_array_equal(one(square, "s[i] = sum[j] square(x[i,j])", x=x), (x * x).sum(1))
    np.testing.assert_allclose(one(SOFTMAX, "s[i] = sum[j] softmax(x[i,j]) * y[j]", x=x, y=y), softmax(x) @ y)
    assert "E062" in message(f"input x : f32[n, m]\n{square}s[i] = total(x[i,j])\n")
    np.testing.assert_array_equal(one(square, "s[j] = y[j] * total(y[j])", y=y), y * y.sum())
    np.testing.assert_array_equal(one(square, "s = max[j] square(y[j])", y=y), (y * y).max())


def test_scalars_take_labels_point_by_point() -> None:
    x, y = ints(3, 4), ints(4)
    swish = "fn swish(x) = x * sigmoid(x)\n"
    np.testing.assert_allclose(one(swish, "z[i,j] = swish(x[i,j])", x=x), x / (1 + np.exp(-x)))
    np.testing.assert_allclose(one(swish, "z[i,j] = swish(x[i,j] + y[j])", x=x, y=y), (x + y) / (1 + np.exp(-x - y)))
    np.testing.assert_allclose(
        one(swish, "z[j] = y[j] * swish(j)", y=y), y * (np.arange(4) / (1 + np.exp(-np.arange(4))))
    )
    block = "fn f(x, y) {\n  z = x * y\n  w = z + 1\n  return w - y\n}\n"
    np.testing.assert_array_equal(one(block, "z[i,j] = f(x[i,j], y[j])", x=x, y=y), x * y + 1 - y)
    np.testing.assert_array_equal(one(block, "z[i,j] = f(x[i,j], 3)", x=x), x * 3 + 1 - 3)
    mixed = "fn g(X[i], a) {\n  Y[i] = X[i] * a\n  return Y[i] + sum[i] X[i]\n}\n"
    np.testing.assert_array_equal(one(mixed, "z[i,k] = g(y[i], x[k,0])", x=x, y=y), np.outer(y, x[:, 0]) + y.sum())
    np.testing.assert_array_equal(one(mixed, "z[i] = g(y[i], y[i])", y=y), y * y + y.sum())
    power = "fn power(x, n) {\n  y = 1\n  for k in 0 .. n { y = y * x }\n  return y\n}\n"
    np.testing.assert_array_equal(one(power, "z[i] = power(y[i], 3)", y=y), y**3)


def test_a_scalar_with_the_labels_of_the_rest() -> None:
    x, eps = ints(3, 4), ints(3, low=1)
    text = "fn norm(X[..., d], eps) {\n  m[...] = mean[d] X[..., d]^2 + eps\n  return X[..., d] / m[...]\n}\n"
    expected = x / ((x * x).mean(1) + eps)[:, None]
    np.testing.assert_allclose(one(text, "z[s,d] = norm(x[s,d], eps[s])", x=x, eps=eps), expected)
    program = compile_text(f"input x : f32[n, d]\ninput e : f32[n]\n{text}z[s,d] = norm(x[s,d], e[s])\noutput z\n")
    assert all(tensor.rank <= 2 for tensor in program.tensors)


def test_numbers_are_sizes() -> None:
    y = ints(6)
    take = "fn first(X[i], k) {\n  Y[j: k] = X[j]\n  return Y[j]\n}\n"
    np.testing.assert_array_equal(one(take, "z[j] = first(y[k], 4)", y=y), y[:4])
    np.testing.assert_array_equal(one(take + "dim n = 2\n", "z[j] = first(y[k], n + 1)", y=y), y[:3])
    at = "fn at(X[i], k) = X[k]\nfn half(X[i]) {\n  return at(X[i], i / 2 - 1)\n}\n"
    assert one(at, "z = at(y[k], 2)", y=y) == y[2] and one(at, "z = half(y[k])", y=y) == y[2]
    assert "E052" in message(f"input y : f32[n]\n{take}z[j] = first(y[k], 2.5)\n")


def test_defaults_and_names() -> None:
    y = ints(6)
    text = "fn f(X[i], a = 2, b = 1e-5, c = -1) = a * X[i] + c + 0 * b\n"
    np.testing.assert_array_equal(one(text, "z[i] = f(y[i])", y=y), 2 * y - 1)
    np.testing.assert_array_equal(one(text, "z[i] = f(y[i], 3)", y=y), 3 * y - 1)
    np.testing.assert_array_equal(one(text, "z[i] = f(y[i], c = 4, a = 5)", y=y), 5 * y + 4)
    np.testing.assert_array_equal(one(text, "z[i] = f(X = y[i])", y=y), 2 * y - 1)
    scaled = "fn f(X[i], scale = 1 / i) = X[i] * scale\n"
    np.testing.assert_array_equal(one(scaled, "z[i] = f(y[i])", y=y), y * (1 / 6))


def test_a_number_does_not_widen() -> None:
    x = np.ones(3, np.float32)
    text = "input x : f32[n]\nfn f(X[i], a = 0.5) {\n  b = a * 3\n  return b * X[i] / sqrt(i)\n}\nfn g(x) = 2\n"
    assert run(f"{text}z[i] = f(x[i])\noutput z\n", x=x)["z"].dtype == np.float32
    assert run(f"{text}z[i] = f(x[i], 1 / sqrt(n))\noutput z\n", x=x)["z"].dtype == np.float32
    assert run(f"{text}z[i] = x[i] * g(x[i])\noutput z\n", x=x)["z"].dtype == np.float32


@pytest.mark.parametrize("right", ["X[n] * 2, X[n]", "X[n] * x, X[n]", "X[n], X[n] * x"])
def test_a_label_that_only_a_scalar_argument_has_gets_its_size_from_there(right: str) -> None:
    """As in a call of a function with one result."""
    text = f"input K : f32[4]\ninput A : f32[3]\nfn f(X[n], x) {{\n  return {right}\n}}\n"
    k, a = np.arange(4, dtype=np.float32), np.arange(3, dtype=np.float32) + 2
    found = run(text + "V[q, i], W[q, i] = f(K[i], A[q])\noutput V, W\n", K=k, A=a)
    for name, value in zip("VW", right.split(", "), strict=True):
        expected = eval(value.replace("X[n]", "k[None, :]"), {"k": k, "x": a[:, None]})
        np.testing.assert_array_equal(found[name], np.broadcast_to(expected, (3, 4)))


def test_several_results() -> None:
    x = ints(3, 4)
    text = "fn f(X[i, j]) {\n  s[i] = sum[j] X[i, j]\n  return X[i, j] - s[i], s[i], max[i, j] X[i, j]\n}\n"
    out = run(f"input x : f64[n, m]\n{text}A[j,i], b[i], c = f(x[i,j])\noutput A, b, c\n", x=x)
    np.testing.assert_array_equal(out["A"], (x - x.sum(1, keepdims=True)).T)
    np.testing.assert_array_equal(out["b"], x.sum(1))
    assert out["c"] == x.max()
    made = "fn two(X[n, d]) {\n  C[d, e] = sum[n] X[n, d] * X[n, e]\n  return C[d, e], sum[n] X[n, d]\n}\n"
    out = run(f"input x : f64[n, m]\n{made}C[a,b], s[a] = two(x[n,a])\noutput C, s\n", x=x)
    np.testing.assert_array_equal(out["C"], x.T @ x)
    np.testing.assert_array_equal(out["s"], x.sum(0))
    assert "E066" in message(f"input x : f64[n, m]\n{text}A[i,j] = 2 * f(x[i,j])\n")
    assert "E066" in message(f"input x : f64[n, m]\n{text}A[i,j], b[i] = f(x[i,j])\n")


def test_a_call_in_a_loop_and_rebinding() -> None:
    x, w, b = ints(3, 4), ints(2, 4, 4, low=-1), ints(2, 4)
    text = """
    input x : f64[s, d]
    input W : f64[L, d, d]
    input b : f64[L, d]
    for l in 0 .. L {
      x[s, e] = x[s, e] + layer(x[s, d], W[l, d, e], b[l, e])
    }
    output x
    """
    expected = x
    for k in range(2):
        expected = expected + 2 * (expected @ w[k] + b[k])
    np.testing.assert_array_equal(run(LAYER + text, x=x, W=w, b=b)["x"], expected)


def test_a_loop_in_a_function_has_a_variable_of_its_own() -> None:
    y = ints(4)
    text = "fn f(X[i], t) {\n  Y[i] = X[i]\n  for l in 0 .. 3 { Y[i] = Y[i] + t * 10 + l }\n  return Y[i]\n}\n"
    out = run(f"input y : f64[n]\n{text}for l in 0 .. 2 {{ y[i] = f(y[i], l) }}\noutput y\n", y=y)["y"]
    expected = y
    for outer in range(2):
        for inner in range(3):
            expected = expected + outer * 10 + inner
    np.testing.assert_array_equal(out, expected)


def test_functions_see_parameters_and_earlier_functions_only() -> None:
    assert "is not known in the function 'f'" in message("s = 2\nfn f(x) = x * s\ny = f(1)\n")
    assert "recursion" in message("fn f(x) = f(x - 1)\ny = f(1)\n")
    text = message("fn f(x) = g(x)\nfn g(x) = x\ny = f(1)\n")
    assert "'g'" in text and "E021" in text
    later = "fn g(x) = 1\nfn f(x) = g(x)\nfn h(x) = f(x)\n"
    assert one(later, "y = h(3)") == 1


def test_return_implies_no_sum() -> None:
    a, b = ints(2, 3), ints(3, 4)
    text = "fn product(A[i, j], B[j, k]) = A[i, j] * B[j, k]\n"
    out = one(text, "C[i,j,k] = product(a[i,j], b[j,k])", a=a, b=b)
    np.testing.assert_array_equal(out, a[:, :, None] * b[None])
    head = "input a : f32[n, m]\ninput b : f32[m, k]\n"
    assert "sum[j] product" in message(f"{head}{text}C[i,k] = product(a[i,j], b[j,k])\n")
    np.testing.assert_array_equal(one(text, "C[i,k] = sum[j] product(a[i,j], b[j,k])", a=a, b=b), a @ b)


def test_errors_in_a_body_show_the_call() -> None:
    text = message("fn f(X[i]) {\n  Y[i] = X[i] and true\n  return Y[i]\n}\ninput x : f32[n]\ny[i] = f(x[i])\n")
    assert "<text>:2:10" in text and "<text>:6:8" in text and "called here" in text
    once = message("fn f(X[i]) = X[i] * zz\ninput x : f32[n]\n" + "y[i] = f(x[i])\n" * 3)
    assert once.count("error[") == 1 and "<text>:1:21" in once
    assert "E020" in message("fn never_called(X[i]) = X[i] * zz\n")


def test_sizes_are_checked_in_the_body() -> None:
    x, w, b = ints(3, 4), ints(5, 2), ints(2)
    with pytest.raises(BindError, match="label layer.d|label d"):
        one(LAYER, "H[s,e] = layer(x[s,d], w[d,e], b[e])", x=x, w=w, b=b)
    unused = "fn f(X[s, d], W[d, e]) = sum[s, d] X[s, d] + sum[d, e] W[d, e]\n"
    with pytest.raises(BindError, match="f.d"):
        one(unused, "H = f(x[s,d], w[d,e])", x=x, w=w)


def test_the_dim_of_a_callers_label_is_checked() -> None:
    text = "dim n = 3, m = 4\ninput x : f64[m, n]\n"
    with pytest.raises(BindError, match="label n|label m"):
        run(f"{text}{SOFTMAX}y[n, m] = softmax(x[n, m])\noutput y\n", x=ints(4, 3))


def test_hidden_names_have_dots_and_the_place_of_the_call() -> None:
    program = compile_text(
        f"{LAYER}input x : f32[n, d]\ninput w : f32[d, d]\ninput b : f32[d]\n"
        "y[s,e] = layer(x[s,d], 2 * w[d,e], b[e])\nz[s,e] = layer(y[s,d], w[d,e], b[e])\noutput z\n"
    )
    hidden = [t for t in program.tensors if isinstance(t, Equation) and "." in t.name]
    assert [t.name for t in hidden] == ["layer.W", "layer.H", "layer.2.H"]
    assert [t.span.line for t in hidden] == [9, 9, 10]


def test_small_functions_leave_no_trace() -> None:
    program = compile_text("fn swish(x) = x * sigmoid(x)\ninput x : f32[n]\ny[i] = swish(x[i])\noutput y\n")
    plain = compile_text("input x : f32[n]\ny[i] = x[i] * sigmoid(x[i])\noutput y\n")
    assert program == TypedProgram(plain.statements)


def test_calls_that_nest_too_deep() -> None:
    chain = "fn g0(x) = x\n" + "".join(f"fn g{k}(x) = g{k - 1}(x) + 1\n" for k in range(1, 60))
    assert "E008" in message(f"{chain}y = g59(1)\n")
    assert one("fn g0(x) = x\n" + "".join(f"fn g{k}(x) = g{k - 1}(x) + 1\n" for k in range(1, 30)), "y = g29(1)") == 30


def test_calls_and_expressions_that_nest_too_deep() -> None:
    deep = "-(" * 150 + "g{}(x)" + ")" * 150
    text = message("fn g0(x) = x\n" + "".join(f"fn g{k}(x) = {deep.format(k - 1)}\n" for k in range(1, 12)))
    assert set(line[6:10] for line in text.split("\n") if line.startswith("error")) == {"E008"}


def test_a_label_of_the_result_has_the_size_of_the_parameter() -> None:
    y = ints(4)
    text = "fn f(X[i], k) = X[i ? 7] * k\nfn last(X[i]) = X[i - 1]\n"
    np.testing.assert_array_equal(one(text, "z[i] = f(y[i], 2)", y=y), 2 * y)
    assert one(text, "z = last(y[i])", y=y) == y[-1]
    assert "no result of 'last' has it" in message(f"input y : f32[n]\n{text}z[i] = last(y[i])\n")


def test_a_wrong_head_is_said_once() -> None:
    assert message("fn f(x[i], i) = x[i]\nfn g(x) = f(x, 2)\ny = f(1, 2) + g(3)\n").count("error[") == 1


def test_the_example_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "layers.ein").write_text(SOFTMAX + LAYER)
    (tmp_path / "main.ein").write_text('import "layers.ein"\ninput x : f32[n, m]\ny[i,j] = softmax(x[i,j])\noutput y\n')
    path = tmp_path / "main.ein"
    program = compile_text(path.read_text(), str(path))
    x = ints(2, 3).astype(np.float32)
    np.testing.assert_allclose(evaluate(program, {"x": x})["y"], softmax(x), rtol=1e-6)
