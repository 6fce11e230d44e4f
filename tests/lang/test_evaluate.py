"""The evaluator against NumPy written by hand."""

import numpy as np
import pytest

from einturnip.core.errors import BindError
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang import compile_text
from tests.reference.program import Array, evaluate
from tests.reference.program_check import check


def run(text: str, dims: dict[str, int] | None = None, **inputs: Array) -> dict[str, Array]:
    program = compile_text(text)
    check(program)
    return evaluate(program, inputs, dims)


def ints(*shape: int, dtype: type = np.float32, low: int = -4) -> Array:
    generator = np.random.default_rng(sum(shape))
    return np.asarray(generator.integers(low, 5, shape)).astype(dtype)


def test_causal_attention() -> None:
    text = """
    dim d = 4
    input Q : f32[b, h, s, d]
    input K : f32[b, h, t, d]
    input V : f32[b, h, t, d]
    scale = 1 / sqrt(d)
    S[b,h,s,t] = sum[d] Q[b,h,s,d] * K[b,h,t,d] * scale
    A[b,h,s,t] = where(t <= s, S[b,h,s,t], -inf)
    P[b,h,s,t] = exp(A[b,h,s,t] - max[t] A[b,h,s,t])
    O[b,h,s,d] = sum[t] P[b,h,s,t] * V[b,h,t,d] / sum[t] P[b,h,s,t]
    output O, S
    """
    q, k, v = ints(2, 3, 5, 4), ints(2, 3, 5, 4), ints(2, 3, 5, 4)[..., ::-1].copy()
    out = run(text, Q=q, K=k, V=v)
    scores = np.einsum("bhsd,bhtd->bhst", q, k) / 2
    np.testing.assert_array_equal(out["S"], scores)
    masked = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    weights = np.exp(masked - masked.max(-1, keepdims=True))
    expected = np.einsum("bhst,bhtd->bhsd", weights / weights.sum(-1, keepdims=True), v)
    assert out["O"].dtype == np.float32
    np.testing.assert_allclose(out["O"], expected, rtol=1e-6, atol=1e-6)


def test_einstein_diagonals_and_broadcasting() -> None:
    text = """
    input A : f64[i, j]
    input B : f64[j, k]
    input S : f64[m, m]
    input c : f64[k]
    C[i,k] = A[i,j] * B[j,k] / 2
    D[i,k] = C[i,k] + c[k]
    t = S[m,m]
    u[m] = S[m,m]
    R[p,q] = A[p,q] / sum[q] abs(A[p,q])
    output C, D, t, u, R
    """
    a, b, s, c = ints(2, 3, dtype=np.float64), ints(3, 4, dtype=np.float64), ints(5, 5), ints(4)
    out = run(text, A=a, B=b, S=s, c=c)
    np.testing.assert_array_equal(out["C"], a @ b / 2)
    np.testing.assert_array_equal(out["D"], a @ b / 2 + c)
    assert out["t"] == np.trace(s) and out["t"].shape == ()
    np.testing.assert_array_equal(out["u"], np.diagonal(s))
    np.testing.assert_array_equal(out["R"], a / np.abs(a).sum(1, keepdims=True))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_aggregations_and_their_empty_ranges(n: int) -> None:
    text = "input x : f64[n]\ninput b : bool[n]\n" + "".join(
        f"y_{op} = {op}[i] {'b' if op in ('any', 'all') else 'x'}[i]\noutput y_{op}\n" for op in AGGREGATIONS
    )
    x, b = ints(n, dtype=np.float64), ints(n, low=0) > 2
    out = {name[2:]: array[()] for name, array in run(text, x=x, b=b).items()}
    assert out["sum"] == x.sum() and out["prod"] == x.prod()
    assert out["max"] == x.max(initial=-np.inf) and out["min"] == x.min(initial=np.inf)
    assert out["any"] == b.any() and out["all"] == b.all()
    np.testing.assert_array_equal(out["mean"], x.mean() if n else np.nan)
    np.testing.assert_allclose(out["logsumexp"], np.log(np.exp(x).sum()) if n else -np.inf)
    assert out["argmax"] == (x.argmax() if n else -1) and out["argmin"] == (x.argmin() if n else -1)


def test_flat_argmax_and_labels_as_numbers() -> None:
    text = """
    input X : i32[n, m]
    a = argmax[j, i] X[i,j]
    E[i: n, j: n] = where(i == j, 1, 0)
    h = sum[i: n] 1 / (i + 1)
    output a, E, h
    """
    x = ints(3, 4, dtype=np.int32)
    out = run(text, X=x)
    assert out["a"] == x.T.argmax()
    np.testing.assert_array_equal(out["E"], np.eye(3, dtype=np.int64))
    np.testing.assert_allclose(out["h"], 1 + 1 / 2 + 1 / 3)


def test_half_precision_sums_in_single() -> None:
    x = np.full(4096, 1, np.float16)
    out = run("input x : f16[n]\ns = sum[i] x[i]\np = x[i] * x[i]\noutput s, p\n", x=x)
    assert out["s"] == 4096 and out["s"].dtype == np.float16 and out["p"] == 4096


def test_bf16_diagonal() -> None:
    import ml_dtypes

    x = np.arange(9).reshape(3, 3).astype(ml_dtypes.bfloat16)
    out = run("input x : bf16[n, n]\nd[i] = x[i,i]\noutput d\n", x=x)
    assert out["d"].dtype == ml_dtypes.bfloat16 and out["d"].astype(float).tolist() == [0, 4, 8]


def test_sizes() -> None:
    text = "dim n, m\ninput X : f32[2*n, m]\ndim k = n * m\ns = k + n\noutput s\n"
    assert run(text, {"n": 2}, X=ints(4, 3))["s"] == 8
    with pytest.raises(BindError, match="2 \\* n = 6"):
        run(text, {"n": 3}, X=ints(4, 3))
    with pytest.raises(BindError, match="n has no value"):
        run(text, X=ints(4, 3))


def test_labels_that_disagree() -> None:
    with pytest.raises(BindError, match="label i"):
        run("input x : f32[n]\ninput y : f32[m]\nz[i] = x[i] + y[i]\noutput z\n", x=ints(3), y=ints(4))


def test_a_written_size_may_be_shorter() -> None:
    x = ints(5)
    out = run("input x : f32[n]\nz[i: n - 2] = x[i]\noutput z\n", x=x)
    np.testing.assert_array_equal(out["z"], x[:3])


def test_scalar_inputs_and_defaults() -> None:
    text = "input a : f32 = 0.5\ninput b : i8\ny = a * b\noutput y\n"
    out = run(text, b=np.int8(3))
    assert out["y"] == 1.5 and out["y"].dtype == np.float32
    with pytest.raises(BindError, match="b is missing"):
        run(text)
