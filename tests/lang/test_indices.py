"""Every form of index and of left side, against NumPy."""

import numpy as np
import pytest

from einturnip.core.errors import BindError, OutOfRange, SourceError
from einturnip.lang import compile_text
from einturnip.lang.expressions import AccessExpr, AffineIndex, GatherIndex, Index, walk
from einturnip.lang.printer import show
from einturnip.lang.program import Equation
from tests.reference.program import Array, evaluate
from tests.reference.program_check import check


def ints(*shape: int, low: int = -4, dtype: type = np.float64) -> Array:
    return np.asarray(np.random.default_rng(sum(shape)).integers(low, 5, shape).astype(dtype))


X, Y, V, W = ints(5, 4), ints(3, 4), ints(6), ints(3)
K, IDS = np.array([2, 0, 2, 1, 0]), np.array([4, 0, 4], np.int32)
HEAD = """
input X : f64[n, m]
input Y : f64[p, m]
input V : f64[q]
input W : f64[r]
input K : i64[n]
input IDS : i32[r]
input F : f32[r]
k = 2
"""


def run(text: str, **dims: int) -> Array:
    program = compile_text(f"{HEAD}{text}\noutput Z\n")
    check(program)
    arrays = dict(X=X, Y=Y, V=V, W=W, K=K, IDS=IDS, F=W.astype(np.float32))
    return evaluate(program, arrays, dims)["Z"]


def message(text: str) -> str:
    with pytest.raises(SourceError) as error:
        compile_text(f"{HEAD}{text}\noutput Z\n")
    return str(error.value)


def index_of(text: str, position: int = 0) -> Index:
    """The first index of the first access in ``Z[i, j] = text``."""
    program = compile_text(f"{HEAD}Z[i: 2, j: 2] = {text}\noutput Z\n")
    check(program)
    equation = program.tensors[-1]
    assert isinstance(equation, Equation)
    return next(e for e in walk(equation.value) if isinstance(e, AccessExpr)).indices[position]


WINDOWS = np.lib.stride_tricks.sliding_window_view(V, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Z[i] = sum[j] V[i+j] * W[j]", WINDOWS @ W),
        ("Z[i] = V[i+j] * W[j]", WINDOWS @ W),
        ("Z[i] = V[2*i]", V[::2]),
        ("Z[i] = V[2*i + 1]", V[1::2]),
        ("Z[i: q] = V[q-1-i]", V[::-1]),
        ("Z[i] = V[q-1-i]", V[::-1]),
        ("Z[i: q-1] = V[i+1] - V[i]", np.diff(V)),
        ("Z[i] = V[i+1] - V[i-0+1]", np.zeros(5)),
        ("Z[j] = X[0, j]", X[0]),
        ("Z[j] = X[n-1, j]", X[-1]),
        ("Z = X[1, 2]", X[1, 2]),
        ("Z[i: 5] = V[i // 2]", V[np.arange(5) // 2]),
        ("Z[i] = V[i // 2]", V[np.arange(12) // 2]),
        ("Z[i: 10] = V[i % 3]", V[np.arange(10) % 3]),
        ("Z[i: q] = V[(i + 2) % q]", np.roll(V, -2)),
        ("Z[i: 9] = V[i // 2 + 1]", V[np.arange(9) // 2 + 1]),
        ("Z[i: 9] = V[(i + 3) // 2 % 4]", V[(np.arange(9) + 3) // 2 % 4]),
        ("Z[i: 3] = V[i % 2 * 3]", V[np.arange(3) % 2 * 3]),
        ("Z[i: 3] = V[min(i, 1)]", V[[0, 1, 1]]),
        ("Z[i: q] = V[i-1 ? 0]", np.r_[0, V[:-1]]),
        ("Z[i: q + 2] = V[i-1 ? -inf]", np.r_[-np.inf, V, -np.inf]),
        ("Z[i: q] = max(V[i-1 ? -inf], V[i+1 ? -inf])", np.maximum(np.r_[-np.inf, V[:-1]], np.r_[V[1:], -np.inf])),
        ("Z[i: 6, j: 5] = X[i ? 7, j-1 ? 8]", np.vstack([np.c_[np.full(5, 8), X], np.full(5, 7)])),
        ("Z[i] = X[IDS[i], 2]", X[IDS, 2]),
        ("Z[i, j] = X[IDS[i], j]", X[IDS]),
        ("Z[i] = V[K[IDS[i]]]", V[K[IDS]]),
        ("Z[i, j] = sum[k] X[IDS[i], k] * Y[j, k]", X[IDS] @ Y.T),
        ("Z[i] = V[IDS[i] - 1 ? 0]", np.where(IDS > 0, V[IDS - 1], 0)),
        ("Z[i] = V[K[i] * 2 + 1]", V[K * 2 + 1]),
        ("Z[j] = X[k, j]", X[2]),
        ("Z[j] = X[k + 1, j]", X[3]),
        ("Z[i] = V[argmax[j] Y[i,j]]", V[Y.argmax(1)]),
        ("Z[:, j] = X[1:3, j]", X[1:3]),
        ("Z[:, j] = X[2:, j]", X[2:]),
        ("Z[:, j] = X[:3, j]", X[:3]),
        ("Z[:, :] = X[1:3, 2:]", X[1:3, 2:]),
        ("Z[:] = V[1:4] * W[:]", V[1:4] * W),
        ("Z[:] = W[:] * V[1:4]", V[1:4] * W),
        ("Z[:] = V[1:] - V[:q-1]", np.diff(V)),
        ("Z[:, i] = X[:, 0] * W[i]", np.outer(X[:, 0], W)),
        ("Z[i, :] = X[i, :]", X),
        ("Z[..., j] = X[..., j] * 2", X * 2),
        ("Z[j, ...] = X[..., j]", X.T),
        ("Z[...] = X[...] + 1", X + 1),
        ("Z[i, ...] = V[i] * X[...]", V[:, None, None] * X),
        ("Z[..., i] = sum[j] X[..., j] * Y[i, j]", X @ Y.T),
        ("Z[K[i]: 3, j] = sum[i] X[i, j]", np.array([X[g == K].sum(0) for g in range(3)])),
        ("Z[K[i]: 4] = sum[i] 1", np.bincount(K, minlength=4)),
        ("Z[K[i]: 4] = max[i] X[i, 0]", np.array([X[g == K, 0].max(initial=-np.inf) for g in range(4)])),
        ("Z[K[i]: 3] = mean[i, j] X[i, j]", np.array([X[g == K].mean() for g in range(3)])),
        ("Z[K[i]: 3] = argmax[i] X[i, 0]", np.array([np.where(g == K, X[:, 0], -99).argmax() for g in range(3)])),
        ("Z[j, K[i] * 2: 5] = sum[i] X[i, j]", np.array([X[g == K * 2].sum(0) for g in range(5)]).T),
        ("Z[K[i]: 3, K[j]: 3] = sum[i, j] 1", np.outer(np.bincount(K), np.bincount(K))),
        ("Z[i, K[i]: 3] = sum[j] X[i, j]", np.where(K[:, None] == np.arange(3), X.sum(1)[:, None], 0)),
        ("Z[(i j)] = X[i, j]", X.reshape(-1)),
        ("Z[(j i)] = X[i, j]", X.T.reshape(-1)),
        ("Z[k, (i j)] = X[i, j] * W[k]", np.multiply.outer(W, X).reshape(3, -1)),
        ("Z[(a b c)] = X[a, b] * W[c]", np.multiply.outer(X, W).reshape(-1)),
        ("Z[i: 2, j] = V[(i j)]", V.reshape(2, 3)),
        ("Z[i, j: 2, k: 3] = V[(j k)] * W[i]", np.multiply.outer(W, V.reshape(2, 3))),
        ("Z[j, i: 2] = V[(i j)]", V.reshape(2, 3).T),
        ("Z[i | j, d] = X[i,d] | Y[j,d]", np.concatenate([X, Y])),
        ("Z[i | j | l] = V[i] | 2 * W[j] | V[l]", np.concatenate([V, 2 * W, V])),
        ("Z[d, i | j] = X[i,d] | Y[j,d]", np.concatenate([X, Y]).T),
        ("Z[i | j, d] = X[i,d] | W[j]", np.concatenate([X, np.tile(W[:, None], 4)])),
        ("Z[i | j] = X[i,d] | W[j]", np.concatenate([X.sum(1), W])),
        ("Z[i | j, (a b)] = X[i,a] * W[b] | W[j] * Y[b,a]", np.concatenate(
            [np.einsum("ia,b->iab", X, W).reshape(5, -1), np.einsum("j,ba->jab", W, Y).reshape(3, -1)])),
        ("Z[i] = V[i]\nZ[2] = 7", np.r_[V[:2], 7, V[3:]]),
        ("Z[i,j] = X[i,j]\nZ[n-1, j] = Y[0, j]", np.r_[X[:4], Y[:1]]),
        ("Z[i,j] = X[i,j]\nZ[i, 0] = 0", np.c_[np.zeros(5), X[:, 1:]]),
        ("Z[i,j] = X[i,j]\nZ[0, :] = X[1, :]", np.r_[X[1:2], X[1:]]),
        ("Z[i,j] = X[i,j]\nZ[0, ...] = 3", np.r_[np.full((1, 4), 3), X[1:]]),
        ("Z[i: 2, j: 3] = 0\nZ[1, j] = F[j]", np.r_[np.zeros((1, 3)), W[None]]),
    ],
)  # fmt: skip
def test_forms(text: str, expected: Array) -> None:
    found = run(text)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("X[i + 0, j]", int),
        ("X[i - 1 + 1, j]", int),
        ("X[2*i - i, j]", int),
        ("X[i + 1, j]", AffineIndex),
        ("X[n - 1 - i, j]", AffineIndex),
        ("X[(i + 1) % n, j]", AffineIndex),
        ("X[i // 2 + 1, j]", AffineIndex),
        ("X[0, j]", AffineIndex),
        ("X[k, j]", GatherIndex),
        ("X[i * i, j]", GatherIndex),
        ("X[K[i], j]", GatherIndex),
    ],
)
def test_what_is_known_when_the_plan_is_made(text: str, kind: type) -> None:
    assert isinstance(index_of(text), kind)


@pytest.mark.parametrize(
    "index",
    ["i + 1", "2 * i", "n - 1 - i", "n - 1", "m * i - n // 2", "i // 2", "(i + n) % 3", "(2 * i + 1) // 2 % n",
     "K[i]", "i - 1 ? 0", "(i j)", "i + (n - m) - 2 * j", "-i + 1", "K[i] ? 2 * n"],
)  # fmt: skip
def test_indices_print_as_themselves(index: str) -> None:
    program = compile_text(f"{HEAD}Z[i: 2, j: 2] = X[{index}, j]\noutput Z\n")
    check(program)
    assert show(compile_text(show(program))) == show(program)


def test_dtypes() -> None:
    program = compile_text(
        f"{HEAD}Z[i: 3] = F[i-1 ? 0.5]\nA[i: 3] = K[i ? 0.5]\nB[i | j] = F[i] | 0 * IDS[j]\n"
        "C[i: 3] = 0\nC[0] = F[1]\noutput Z\n"
    )
    assert [t.dtype.name for t in program.tensors if t.name in "ZABC"][:3] == ["f32", "f64", "f64"]
    assert program.tensors[-1].dtype.name == "f32"


def test_out_of_bounds() -> None:
    with pytest.raises(BindError, match="index 6 is outside 0 .. 5"):
        run("Z[i: 6] = V[i + 1]")
    with pytest.raises(BindError, match="index 7 is outside"):
        run("Z = V[7]")
    with pytest.raises(OutOfRange, match="4"):
        run("Z[i] = W[IDS[i]]")
    with pytest.raises(OutOfRange, match="index 2"):
        run("Z[K[i]: 2] = sum[i] 1")
    with pytest.raises(BindError, match="where|outside"):
        run("Z[i: 6] = where(i < 5, V[i + 1], 0)")
    with pytest.raises(BindError, match="does not split"):
        run("Z[i: 4, j] = V[(i j)]")
    with pytest.raises(BindError, match="label"):
        run("Z[:] = V[:] * W[0:3]")


def test_an_empty_axis_and_guards() -> None:
    program = compile_text("input x : f64[n]\nZ[i: 3] = x[i ? 5]\nU[i: n] = x[i-1 ? 5]\noutput Z, U\n")
    out = evaluate(program, {"x": np.zeros(0)})
    assert out["Z"].tolist() == [5, 5, 5] and out["U"].shape == (0,)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("Z[i] = V[i / 2]", "E045", "write //"),
        ("Z[i] = V[F[i]]", "E045", "i64(F[i])"),
        ("Z[F[i]: 3] = sum[i] 1", "E045", "whole number"),
        ("Z[K[i]: 3, j] = X[i, j]", "E046", "sum[i] X[i, j]"),
        ("Z[K[i]: 3] = sum[j] V[j]", "E046", "sum[j, i]"),
        ("Z[K[i], j] = sum[i] X[i, j]", "E034", "[K[i]: ...]"),
        ("Z[0: 3] = V[0:3]", "E034", "takes its size from the right"),
        ("Z[0, j] = X[0, j]", "E047", "Z[i: ..., j: ...] = 0"),
        ("Z = V[0:3]", "E036", "no ':' on the left"),
        ("Z[:] = X[0:3, 0:3]", "E036", "1 ':' on the left"),
        ("Z[:] = V[0:3] * W[0:2]", "E037", "3"),
        ("Z[:] = V[-3:]", "E036", "q - 3"),
        ("Z[i] = X[...]", "E031", "write '...' on the left"),
        ("Z[..., i] = X[..., i] * V[..., i] * Y[...]", "E035", "1 axis"),
        ("Z[..., ...] = X[..., 0]", "E035", "once"),
        ("Z[i | j] = V[i]", "E038", "2 labels"),
        ("Z[i] = V[i] | W[i]", "E038", "[i | j]"),
        ("Z[i | j, k | l] = X[i,k] | Y[j,l]", "E038", "one axis"),
        ("Z[i] = V[2 * (W[i] | W[i])]", "E038", "'|'"),
        ("Z[i] = V[zz[i]]", "E020", "zz"),
        ("Z[i] = V[i + zz]", "E020", "zz"),
        ("Z[i] = V[i + 1 ? true]\nU[i] = V[i ? zz]", "E020", "zz"),
        ("Z[(i i)] = X[i,j]", "E033", "twice"),
    ],
)
def test_mistakes(text: str, code: str, says: str) -> None:
    shown = message(text)
    assert f"error[{code}]" in shown and says in shown, shown


@pytest.mark.parametrize("index", ["i + n - i", "0 * i + n", "(i - i + n) % (n + 1)", "(n + i - i) // 1"])
def test_labels_that_cancel_leave_a_size(index: str) -> None:
    text = f"input A : f64[m]\ndim n\nY[i: 3] = A[{index}] * i\noutput Y\n"
    program = compile_text(text)
    check(program)
    a = np.arange(6.0)
    assert evaluate(program, {"A": a}, {"n": 4})["Y"].tolist() == [0, 4, 8]


@pytest.mark.parametrize("index", ["floor(1) % 2", "floor(i) % 2", "floor(i + n)", "round(2 * i - 1) // n", "floor(n)"])
def test_an_index_that_only_looks_affine_is_printed_as_data(index: str) -> None:
    program = compile_text(f"input A : f64[n, n]\nZ[i: n] = A[i, {index}]\noutput Z\n")
    check(program)
    assert "A[i, floor(" in show(program)
