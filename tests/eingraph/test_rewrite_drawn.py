"""Drawn graphs: rewriting changes no output, to the bit, where every sum of small integers is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import BOOL, F16, F32, F64, I32, I64, DType
from einturnip.core.reference import Array
from einturnip.core.scalar import Call, Cast, Const, Label, Scalar
from einturnip.eingraph.assembly import Assembly, Space
from einturnip.eingraph.check import check
from einturnip.eingraph.evaluate import evaluate
from einturnip.eingraph.products import widen
from einturnip.eingraph.rewrite import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode

SIZES = {"i": 2, "j": 3, "k": 2, "l": 1}
NAMES = tuple(SIZES)


@st.composite
def expressions(draw: st.DrawFn, space: Space, tensors: list[int], dtype: DType, depth: int) -> Scalar:
    kind = draw(st.sampled_from(["access", "access", "mul", "mul", "const", "label", "add", "where", "neg", "max"]))
    if depth == 0 or kind == "access":
        node = draw(st.sampled_from(tensors))
        shape = space.assembly.nodes[node].shape
        access = tuple(draw(st.sampled_from([p for p, n in enumerate(space.bounds) if n == size])) for size in shape)
        operand = space.operand(node, access)
        return operand if operand.dtype == dtype else Cast(operand, dtype)
    if kind == "const":
        value = draw(st.integers(-2, 2))
        return Const(float(value) if dtype.is_float else value, dtype)
    if kind == "label":
        return Cast(Label(draw(st.integers(0, len(space.labels) - 1))), dtype)
    inner = expressions(space, tensors, dtype, depth - 1)
    if kind == "neg":
        return Call("neg", (draw(inner),), dtype)
    if kind == "where":
        condition = Call("le", (draw(inner), draw(inner)), BOOL)
        return Call("where", (condition, draw(inner), draw(inner)), dtype)
    return Call(kind, (draw(inner), draw(inner)), dtype)


@st.composite
def graphs(draw: st.DrawFn) -> EinGraph:
    assembly = Assembly()
    for name in ("A", "B", "C", "s"):
        labels = draw(st.lists(st.sampled_from(NAMES), max_size=2)) if name != "s" else []
        dtype = draw(st.sampled_from([F64, F32, F16, I32]))
        assembly.add(InputNode(name, tuple(SIZES[label] for label in labels), dtype, 1))
    n_statements = draw(st.integers(1, 5))
    for number in range(n_statements):
        labels = draw(st.permutations(NAMES))
        space = Space(assembly, labels, [SIZES[label] for label in labels], f"T{number}", number + 2)
        dtype = draw(st.sampled_from([F64, F64, I64, F32]))
        join = draw(expressions(space, list(range(len(assembly.nodes))), dtype, 3))
        op = draw(st.sampled_from([None, "sum", "sum", "sum", "max", "argmax", "mean"]))
        used = space.labels_in(join)
        n_out = draw(st.integers(0, 4)) if op else 4
        out, bound = range(n_out), range(n_out, 4)
        if op is None:
            out, bound = sorted(used | set(range(draw(st.integers(0, 2))))), ()
            space.emit(out, bound, join, None, f"T{number}")
        else:
            join, operator = widen(join, aggregation(op, dtype))
            space.emit(out, bound, join, operator, f"T{number}")
    statements = [i for i, node in enumerate(assembly.nodes) if isinstance(node, EinsumNode)]
    outputs = draw(st.lists(st.sampled_from(statements), min_size=1, max_size=2, unique=True))
    wanted = tuple((assembly.nodes[i].name, i) for i in sorted({*outputs, statements[-1]}))
    return EinGraph(tuple(assembly.nodes), wanted, "drawn")


def small_integers(graph: EinGraph, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    inputs = (n for n in graph.nodes if isinstance(n, InputNode))
    return {n.name: rng.integers(-2, 3, n.shape).astype(n.dtype.numpy) for n in inputs}


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 3), st.sampled_from([None, 64]))
def test_rewriting_changes_no_output(graph: EinGraph, seed: int, memory_nbytes: int | None) -> None:
    check(graph)
    inputs = small_integers(graph, seed)
    expected = evaluate(graph, inputs)
    found = evaluate(rewrite(graph, memory_nbytes), inputs)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        if np.all(np.abs(np.nan_to_num(value).astype(np.float64)) < 2**20):
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
