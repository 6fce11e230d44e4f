"""Results of the rewrites: contractions, shared values, fewer stored tensors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from einturnip.core.errors import InternalError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.builder import GraphBuilder, copy_of
from einturnip.eingraph.check import check
from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.rewrite.contraction_order import contraction_order
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import contraction
from einturnip.ir.operators import Array
from einturnip.ir.scalar import OperandRef, ScalarConst
from einturnip.lang import compile_text
from tests.reference.eingraph import evaluate


def rewritten(text: str, shapes: dict[str, tuple[int, ...]], memory_nbytes: int | None = None) -> EinGraph:
    """The program rewritten, after it was seen to give the same values as before, to the bit."""
    graph = build(compile_text(text, "p.ein"), shapes)
    after = rewrite(graph, memory_nbytes)
    rng = np.random.default_rng(3)
    inputs: dict[str, Array] = {
        n.name: rng.integers(-2, 3, n.shape).astype(n.dtype.numpy) for n in graph.nodes if isinstance(n, InputNode)
    }
    before, found = evaluate(graph, inputs), evaluate(after, inputs)
    for name, value in before.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
        assert found[name].dtype == value.dtype
    return after


def lines(graph: EinGraph) -> list[str]:
    """The einsums as text, without number, dtype and shape."""
    text = [line.split(": ", 1)[1] for line in show(graph).splitlines()]
    return [
        head.split(" : ")[0] + " = " + rest.split("  ->")[0]
        for head, rest in (t.split(" = ", 1) for t in text)
        if rest != "input"
    ]


MATRICES = "input A: f64[n, m]\ninput B: f64[m, k]\ninput x: f64[n]\ninput y: f64[m]\n"
SHAPES = {"A": (4, 5), "B": (5, 6), "x": (4,), "y": (5,)}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("C[i,k] = A[i,j] * B[j,k]", ["C[i,k] = sum[j] A[i,j]*B[j,k]"]),
        ("C[i,k] = 2 * A[i,j] * B[j,k] / 4", ["C[i,k] = sum[j] A[i,j]*B[j,k]*0.5"]),
        ("C = x[i] * A[i,j] * y[j]", ["C.sum[i] = sum[j] A[i,j]*y[j]", "C = sum[i] x[i]*C.sum[i]"]),
        ("C[i] = sum[j] x[i] * A[i,j]", ["C.sum[i] = sum[j] A[i,j]", "C[i] = C.sum[i]*x[i]"]),
        (
            "C[i,k] = sum[j] A[i,j] * B[j,k] / (x[i]^2 + 1)",
            ["C.sum[i,k] = sum[j] A[i,j]*B[j,k]", "C[i,k] = C.sum[i,k]/(x[i]^2 + 1)"],
        ),
        (
            "C[i,k] = sum[j] (A[i,j] + 1) * B[j,k]",
            ["C.map[i,j] = A[i,j] + 1", "C[i,k] = sum[j] C.map[i,j]*B[j,k]"],
        ),
        ("C[i] = sum[j,k] A[i,j] * B[j,k]", ["C.sum[j] = sum[k] B[j,k]", "C[i] = sum[j] A[i,j]*C.sum[j]"]),
        ("C[i] = sum[j] (A[i,j] + 1) * y[j]", ["C[i] = sum[j] (A[i,j] + 1)*y[j]"]),
        ("C = sum[i,j] A[i,j]", ["C = sum[i,j] A[i,j]"]),
        ("C = sum[i: n] 2.0", ["C = 8"]),
        ("C[i,k] = mean[j] A[i,j] * B[j,k]", ["C[i,k] = sum[j] A[i,j]*B[j,k]*0.2"]),
        ("C = sum[i,j] x[i] * y[j]", ["C.sum = sum[i] x[i]", "C.sum2 = sum[j] y[j]", "C = C.sum2*C.sum"]),
        ("T[i,j,k] = A[i,j] * B[j,k]\nC[i,k] = sum[j] T[i,j,k]", ["C[i,k] = sum[j] A[i,j]*B[j,k]"]),
        ("T[j,i] = A[i,j]\nC[i,k] = T[j,i] * B[j,k]", ["C[i,k] = sum[j] A[i,j]*B[j,k]"]),
        ("D[i,j] = exp(A[i,j])\nC[i] = sum[j] D[i,j]", ["C[i] = sum[j] exp(A[i,j])"]),
        ("a = 2\nb = a * 3\nC[i] = x[i] * b", ["C[i] = x[i]*6"]),
        ("S[i] = sum[j] A[i,j]\nR[p] = sum[q] A[p,q]\nC[i] = S[i] * R[i]", None),
    ],
)
def test_sums_of_products(statements: str, expected: list[str] | None) -> None:
    graph = rewritten(f"{MATRICES}{statements}\noutput C", SHAPES)
    if expected is not None:
        assert lines(graph) == expected
    else:
        assert lines(graph) == ["S[i] = sum[j] A[i,j]", "C[i] = S[i]*S[i]"]


def test_a_chain_is_contracted_in_a_good_order() -> None:
    text = "input A: f64[a,b]\ninput B: f64[b,c]\ninput C: f64[c,e]\nD[i,l] = 3 * A[i,j] * B[j,k] * C[k,l]\noutput D"
    left = rewritten(text, {"A": (2, 9), "B": (9, 8), "C": (8, 7)})
    right = rewritten(text, {"A": (7, 8), "B": (8, 9), "C": (9, 2)})
    for graph, first in ((left, {"A", "B"}), (right, {"B", "C"})):
        sums = [n for n in graph.nodes if isinstance(n, EinsumNode)]
        assert {graph.nodes[o].name for o in sums[0].operands} == first
        parts = [contraction(n.einsum) for n in sums]
        assert [p.alpha if p else "none" for p in parts] == [None, ScalarConst(3.0, sums[0].dtype)]


def test_softmax_stores_two_tensors_of_its_size() -> None:
    text = (
        "input S: f32[n, t]\ninput V: f32[t, d]\nA[i,t] = where(t <= i, S[i,t], -inf)\n"
        "P[i,t] = exp(A[i,t] - max[t] A[i,t])\nO[i,d] = sum[t] P[i,t] * V[t,d] / sum[t] P[i,t]\noutput O"
    )
    graph = rewritten(text, {"S": (5, 5), "V": (5, 3)})
    assert [n.name for n in graph.nodes if n.shape == (5, 5)] == ["S", "P"]


def test_dead_code_and_equal_values_go() -> None:
    text = MATRICES + (
        "U[i,j] = exp(A[i,j]) * A[i,j]\nV[p,q] = A[p,q] * exp(A[p,q])\nW[i] = sum[j] exp(A[i,j]) * 3\n"
        "Y[i] = sum[j] U[i,j]\nZ[i] = sum[j] V[i,j]\noutput Y, Z"
    )
    graph = rewritten(text, SHAPES)
    assert [n.name for n in graph.nodes] == ["A", "Y"]
    assert graph.outputs == (("Y", 1), ("Z", 1))


def test_sixty_labels() -> None:
    n = 30
    inputs = "".join(f"input M{p}: f64[a{p}, a{p + 1}]\n" for p in range(n)).replace(f"a{n}]", "z]")
    labels = [f"q{p}" for p in range(n + 1)]
    product = " * ".join(f"M{p}[q{p}, q{p + 1}]" for p in range(n))
    extra = "".join(f"input v{p}: f64[b{p}]\n" for p in range(n))
    product += " * " + " * ".join(f"v{p}[j{p}]" for p in range(n))
    text = f"{inputs}{extra}Z[{labels[0]},{labels[-1]}] = {product}\noutput Z"
    shapes: dict[str, tuple[int, ...]] = {f"M{p}": (2, 2) for p in range(n)} | {f"v{p}": (2,) for p in range(n)}
    graph = rewrite(build(compile_text(text, "p.ein"), shapes))
    ones = {name: np.ones(shape) for name, shape in shapes.items()}
    ones["M7"] = np.eye(2) / 2**20
    found = evaluate(graph, ones)["Z"]
    np.testing.assert_array_equal(found, np.full((2, 2), 2.0 ** (n - 2) * 2.0**n / 2**20))
    assert all(len(n.operands) <= 2 or n.einsum.aggregation is None for n in graph.nodes if isinstance(n, EinsumNode))


def test_half_precision_stays_wide_between_pairs() -> None:
    text = "input A: f16[n]\ninput B: f16[n, m]\ninput C: f16[m]\nx = A[i] * B[i,j] * C[j] / 4096\noutput x"
    graph = build(compile_text(text, "p.ein"), {"A": (64,), "B": (64, 64), "C": (64,)})
    ones = {"A": np.full(64, 32, np.float16), "B": np.ones((64, 64), np.float16), "C": np.full(64, 64, np.float16)}
    for g in (graph, rewrite(graph)):
        assert evaluate(g, ones)["x"] == 2048


def test_a_limit_avoids_large_intermediates() -> None:
    factors = [frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 0})]
    for limit in (None, 10, 1):
        order = contraction_order(factors, frozenset(), {0: 2, 1: 2, 2: 9}, limit)
        assert len(order) == 2 and all(i < j for i, j in order)
    assert contraction_order(factors, frozenset(), {0: 2, 1: 2, 2: 9}, 10)[0] == (1, 2)


def test_the_einsums_of_a_plan_as_json() -> None:
    graph = rewritten(f"{MATRICES}C[i,k] = A[i,j] * B[j,k]\nD[i,j] = A[i,j] / sum[j] A[i,j]\noutput C, D", SHAPES)
    nodes = json.loads(json.dumps(to_json(graph)))
    c = next(n for n in nodes if n["name"] == "C")
    assert c["labels"] == ["i", "k", "j"] and c["output"] == ["i", "k"] and c["bounds"] == [4, 6, 5]
    assert c["join"] == "A*B" and c["aggregation"] == "sum" and c["line"] == 5 and c["dtype"] == "f64"
    assert [i["labels"] for i in c["inputs"]] == [["i", "j"], ["j", "k"]]
    assert all(i["node"] < n["id"] for n in nodes for i in n["inputs"])
    assert all(len(set(n["labels"])) == len(n["labels"]) for n in nodes)


def test_check_finds_what_is_broken() -> None:
    assembly = GraphBuilder()
    x = assembly.add(InputNode("x", (3,), F32, 1))
    y = assembly.place([copy_of(F32, (3,))], [x], "y", 2)
    good = EinGraph(tuple(assembly.nodes), (("y", y),), "p")
    check(good)
    node = good.nodes[y]
    assert isinstance(node, EinsumNode)
    broken = [
        (replace(node, operands=(1,)), "not an earlier node"),
        (replace(node, operands=()), "slots"),
        (replace(node, einsum=replace(node.einsum, bounds=(4,))), "labels say"),
        (replace(node, einsum=replace(node.einsum, n_out=0)), "not aggregated"),
        (replace(node, einsum=replace(node.einsum, join=OperandRef(1, F32))), "no slot 1"),
        (replace(node, einsum=replace(node.einsum, join=ScalarConst(1, F32))), "do not read"),
    ]
    for bad, words in broken:
        with pytest.raises(InternalError, match=words):
            check(replace(good, nodes=(good.nodes[0], bad)))
    with pytest.raises(InternalError, match="input itself"):
        check(replace(good, outputs=(("x", x),)))
