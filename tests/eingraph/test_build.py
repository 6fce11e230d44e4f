"""Programs to einsums: how statements split, and what is said where sizes disagree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from einturnip.core.errors import BindError, SourceError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.operators import Array
from einturnip.lang import compile_text
from tests.reference.eingraph import evaluate

ATTENTION = """\
dim d = 4
input Q : f32[b, h, s, d]
input K : f32[b, h, t, d]
input V : f32[b, h, t, d]

scale = 1 / sqrt(d)
S[b,h,s,t] = sum[d] Q[b,h,s,d] * K[b,h,t,d] * scale
A[b,h,s,t] = where(t <= s, S[b,h,s,t], -inf)
P[b,h,s,t] = exp(A[b,h,s,t] - max[t] A[b,h,s,t])
O[b,h,s,d] = sum[t] P[b,h,s,t] * V[b,h,t,d] / sum[t] P[b,h,s,t]
output O
"""


def graph_of(text: str, **arrays: Array) -> EinGraph:
    return build(compile_text(text, "p.ein"), {name: a.shape for name, a in arrays.items()})


def results(text: str, **arrays: Array) -> dict[str, Array]:
    """The outputs, which rewriting must not change."""
    graph = graph_of(text, **arrays)
    plain, rewritten = evaluate(graph, arrays), evaluate(rewrite(graph), arrays)
    for name, value in plain.items():
        assert rewritten[name].dtype == value.dtype
        np.testing.assert_allclose(rewritten[name], value, rtol=1e-5, err_msg=name)
    return plain


def integers(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)


def names(graph: EinGraph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_attention() -> None:
    q, k, v = integers(2, 1, 5, 4), integers(2, 1, 5, 4) + 1, integers(2, 1, 5, 4) - 1
    found = results(ATTENTION, Q=q, K=k, V=v)["O"]
    s = np.where(np.tri(5, dtype=bool), np.einsum("bhsd,bhtd->bhst", q, k) / 2, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(found, np.einsum("bhst,bhtd->bhsd", p / p.sum(-1, keepdims=True), v), rtol=1e-5)
    assert found.dtype == np.float32


def test_statements_split_at_their_aggregations_and_keep_names_and_lines() -> None:
    graph = graph_of(ATTENTION, Q=integers(1, 1, 3, 4), K=integers(1, 1, 3, 4), V=integers(1, 1, 3, 4))
    assert names(graph) == ["Q", "K", "V", "scale", "S", "A", "P.max", "P", "O.sum", "O"]
    assert [node.line for node in graph.nodes] == [2, 3, 4, 6, 7, 8, 9, 9, 10, 10]
    s = graph.nodes[4]
    assert isinstance(s, EinsumNode)
    assert s.einsum.labels == ("b", "h", "s", "t", "d") and s.einsum.bounds == (1, 1, 3, 3, 4)
    assert graph.statement(7).startswith("S[b,h,s,t]")


@pytest.mark.parametrize(
    ("text", "arrays", "expected"),
    [
        ("input A: f64[n,n]\nt = sum[i] A[i,i]\noutput t", {"A": np.eye(3) * 2}, 6),
        ("input A: f64[n,m]\nC[j,i] = A[i,j]\noutput C", {"A": np.arange(6.0).reshape(2, 3)}, [[0, 3], [1, 4], [2, 5]]),
        ("input A: f64[n,m]\nC[i,j] = sum[k] A[i,k]\noutput C", {"A": np.ones((2, 3))}, "label"),
        ("input A: f64[n]\noutput A", {"A": np.arange(3.0)}, [0, 1, 2]),
        ("dim n = 3\nE[i: n, j: n] = where(i == j, 1, 0)\noutput E", {}, np.eye(3, dtype=int)),
        ("dim n = 3\nx = sum[i: n] 1 / (i + 1)\noutput x", {}, 1 + 1 / 2 + 1 / 3),
        ("input A: f64[n]\nx = max[i] A[i] - min[i] A[i] * 2\noutput x", {"A": np.arange(1.0, 4)}, 1),
        ("input A: f64[n]\nm = argmax[i] A[i]\noutput m", {"A": np.array([1.0, 3, 3])}, 1),
        ("input A: i8[n]\ns = sum[i] A[i]\noutput s", {"A": np.full(3, 100, np.int8)}, 300),
        ("input A: f64[n]\nY[i] = A[i] / sum[i] A[i]\noutput Y", {"A": np.array([1.0, 3])}, [0.25, 0.75]),
        ("input A: f64[n]\nY[i,j] = A[i] - A[j]\noutput Y", {"A": np.array([1.0, 3])}, [[0, -2], [2, 0]]),
        ("input A: f64[n]\nX[i] = A[i] + 1\nX[i] = X[i] * 2\noutput X", {"A": np.array([1.0])}, [4]),
    ],
)
def test_values(text: str, arrays: Mapping[str, Array], expected: object) -> None:
    if isinstance(expected, str):
        with pytest.raises(SourceError, match=expected):
            results(text, **arrays)
        return
    (found,) = results(text, **arrays).values()
    np.testing.assert_allclose(found, np.asarray(expected))


def test_sizes_as_numbers_and_literals_do_not_widen() -> None:
    text = "input A: f32[n]\nc = n / 2\nY[i] = A[i] * n + c\nZ[i] = A[i] * 0.5\noutput Y, Z"
    found = results(text, A=np.array([1, 2], np.float32))
    assert {name: v.dtype.name for name, v in found.items()} == {"Y": "float32", "Z": "float32"}
    np.testing.assert_array_equal(found["Y"], [3, 5])


@pytest.mark.parametrize("n", [0, 1])
def test_empty_axes(n: int) -> None:
    text = "input A: f64[n, m]\ns[j] = sum[i] A[i,j] * A[i,j] * 2\nm_[j] = max[i] A[i,j]\noutput s, m_"
    found = results(text, A=np.ones((n, 2)))
    np.testing.assert_array_equal(found["s"], [2 * n] * 2)
    np.testing.assert_array_equal(found["m_"], [1.0 if n else -np.inf] * 2)


def test_an_input_without_a_shape_takes_it_from_the_dims() -> None:
    program = compile_text("dim n\ninput A: f32[n, 2*n]\nY[i] = sum[j] A[i,j]\noutput Y", "p.ein")
    assert build(program, {}, {"n": 3}).nodes[0].shape == (3, 6)
    assert build(program, {"A": (4, 8)}).nodes[0].shape == (4, 8)
    with pytest.raises(BindError, match="'n' has no value") as caught:
        build(program, {})
    assert "--dim n=" in str(caught.value)


def test_a_size_in_an_expression_alone_is_found() -> None:
    program = compile_text("input A: f32[2*n + 1]\nY[i: n] = i\noutput Y\nZ[k] = A[k]\noutput Z", "p.ein")
    assert build(program, {"A": (7,)}).nodes[1].shape == (3,)
    with pytest.raises(BindError):
        build(program, {"A": (6,)})


TWO = """\
dim d = 5
input A : f32[n, m]
input B : f32[m, d]
C[i,k] = A[i,j] * B[j,k]
output C
"""


@pytest.mark.parametrize(
    ("shapes", "dims", "words"),
    [
        ({"A": (2, 3), "B": (4, 5)}, {}, ["'m' is 3 by axis 1 of A, a.npy, but 4 by axis 0 of B, b.npy", ":3:15", "^"]),
        ({"A": (2, 3), "B": (3, 5)}, {"n": 7}, ["7 by the value given for n", "axis 0 of A, a.npy"]),
        ({"A": (2, 3), "B": (3, 5)}, {"d": 7}, ["7 by the value given for d", "dim d = 5"]),
        ({"A": (2, 3), "B": (3, 6)}, {}, ["dim d = 5", "6 by axis 1 of B, b.npy"]),
        ({"A": (2,), "B": (3, 5)}, {}, ["number of axes", "[n, m]", "[2] (a.npy)"]),
        ({"A": (2, 3), "B": (3, 5), "C": ()}, {}, ["no input 'C'"]),
        ({"A": (2, 3), "B": (3, 5)}, {"mm": 2}, ["no dim 'mm'", "did you mean 'm'"]),
        ({"A": (2, 3), "B": (3, 5)}, {"m": -2}, ["negative"]),
    ],
)
def test_sources_that_disagree_are_both_named(
    shapes: dict[str, tuple[int, ...]], dims: dict[str, int], words: list[str]
) -> None:
    program = compile_text(TWO, "p.ein")
    with pytest.raises(BindError) as caught:
        build(program, shapes, dims, {"A": "a.npy", "B": "b.npy"})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shapes", "words"),
    [
        (
            "input A: f32[n, m]\ninput B: f32[k, l]\nC[i,k] = A[i,j] * B[j,k]\noutput C",
            {"A": (2, 3), "B": (4, 5)},
            ["label 'j' has two sizes, 3 and 4", "p.ein:3:21", "3 (axis 1 of A", "4 (axis 0 of B"],
        ),
        (
            "input X: f32[s, d]\nY[d,s] = X[d,s]\noutput Y",
            {"X": (2, 3)},
            ["label 'd' has two sizes, 3 and 2", "p.ein:2:12", "dim d", "label 's'"],
        ),
        ("input A: f32[n]\ndim m = n / 2\nE[i: m] = i\noutput E", {"A": (7,)}, ["7 / 2 leaves 1", "2:9"]),
        ("input A: f32[n]\nE[i: n - 5] = i\noutput E", {"A": (3,)}, ["n - 5 is negative"]),
    ],
)
def test_labels_with_two_sizes_show_the_axis(text: str, shapes: dict[str, tuple[int, ...]], words: list[str]) -> None:
    program = compile_text(text, "p.ein")
    with pytest.raises((SourceError, BindError)) as caught:
        build(program, shapes)
    for word in words:
        assert word in str(caught.value)


def test_a_size_that_its_dtype_cannot_hold_is_an_error() -> None:
    program = compile_text("dim n = 300\ninput A: i8[m]\nY[i] = A[i] * n\noutput Y", "p.ein")
    with pytest.raises(SourceError, match="n = 300 does not fit in i8"):
        build(program, {"A": (2,)})
