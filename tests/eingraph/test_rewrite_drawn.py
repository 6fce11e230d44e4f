"""Drawn graphs: rewriting changes no output, to the bit, where every sum of small integers is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.eingraph.builder import GraphBuilder, LabelSpace, StatementDrafts
from einturnip.eingraph.check import check
from einturnip.eingraph.products import widen
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import ConcatNode, EinGraph, InputNode, Node, TensorPiece
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, F16, F32, F64, I32, I64, DType
from einturnip.ir.einsum import Index
from einturnip.ir.operators import Array
from einturnip.ir.scalar import LabelValue, Scalar, ScalarCall, ScalarCast, ScalarConst
from tests.drawn import examples
from tests.reference.eingraph import evaluate

SIZES = {"i": 2, "j": 3, "k": 2, "l": 1}
NAMES = tuple(SIZES)


@st.composite
def indices(draw: st.DrawFn, bounds: list[int], size: int, clamped: bool) -> int | Index:
    """An index that stays in an axis of ``size``: a label, or labels with coefficients, divided, taken modulo."""
    alone = [p for p, n in enumerate(bounds) if n == size]
    if alone and draw(st.booleans()):
        return draw(st.sampled_from(alone))
    labels = draw(st.lists(st.integers(0, len(bounds) - 1), max_size=2, unique=True))
    terms = tuple((p, draw(st.sampled_from([-2, -1, 1, 2, 3]))) for p in sorted(labels))
    divisor, modulus = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.sampled_from([0, 0, 0, 2, size]))
    index = Index(terms, draw(st.integers(-1, 3)), divisor, modulus, clamped)
    if not clamped:
        start, stop = index.interval([(0, n) for n in bounds], size)
        if start < 0 or stop > size:
            index = Index(terms, index.offset - divisor * (start - draw(st.integers(0, 1))), divisor)
            start, stop = index.interval([(0, n) for n in bounds], size)
        if start < 0 or stop > size:
            return Index((), draw(st.integers(0, size - 1)))
    return index


@st.composite
def expressions(draw: st.DrawFn, space: LabelSpace, dtype: DType, depth: int, clamped: bool) -> Scalar:
    kind = draw(st.sampled_from(["access", "access", "mul", "mul", "const", "label", "add", "where", "neg", "max"]))
    if depth == 0 or kind == "access":
        tensor = draw(st.integers(0, len(space.drafts.tensors) - 1))
        shape = space.drafts.tensors[tensor][1]
        guard = clamped and draw(st.booleans())
        operand = space.operand(tensor, tuple(draw(indices(space.bounds, size, guard)) for size in shape))
        return operand if operand.dtype == dtype else ScalarCast(operand, dtype)
    if kind == "const":
        value = draw(st.integers(-2, 2))
        return ScalarConst(float(value) if dtype.is_float else value, dtype)
    if kind == "label":
        return ScalarCast(LabelValue(draw(st.integers(0, len(space.labels) - 1))), dtype)
    inner = expressions(space, dtype, depth - 1, clamped)
    if kind == "neg":
        return ScalarCall("neg", (draw(inner),), dtype)
    if kind == "where":
        condition = ScalarCall("le", (draw(inner), draw(inner)), BOOL)
        return ScalarCall("where", (condition, draw(inner), draw(inner)), dtype)
    return ScalarCall(kind, (draw(inner), draw(inner)), dtype)


@st.composite
def statements(draw: st.DrawFn, tensors: list[tuple[DType, tuple[int, ...]]]) -> StatementDrafts:
    """One einsum over tensors: a map (which may clamp), an aggregation, a scatter or a gather."""
    labels = draw(st.permutations(NAMES))
    drafts = StatementDrafts(tensors)
    space = LabelSpace(drafts, labels, [SIZES[label] for label in labels])
    dtype = draw(st.sampled_from([F64, F64, I64, F32]))
    op = draw(st.sampled_from([None, None, "sum", "sum", "sum", "max", "argmax", "mean", "scatter", "gather"]))
    join = draw(expressions(space, dtype, 3, op is None))
    if op is None:
        out = sorted(space.labels_in(join) | set(range(draw(st.integers(0, 2)))))
        space.emit(out, (), join, None, "")
        return drafts
    n_out = draw(st.integers(0, 4))
    out, bound = list(range(n_out)), list(range(n_out, 4))
    keyed = None
    if op == "scatter":
        keyed = space.add_label("u", draw(st.integers(1, 3)))
        out.append(keyed)
    if op == "gather":
        tensor = draw(st.integers(0, len(tensors) - 1))
        shape = tensors[tensor][1]
        keyed = space.add_label("v", shape[0]) if shape else None
        access = [draw(indices(space.bounds[:4], n, False)) for n in shape[1:]] if shape else []
        join = space.operand(tensor, (keyed, *access) if keyed is not None else ())
        out, bound = list(range(4)), [] if keyed is None else [keyed]
    key = []
    if keyed is not None:
        free = [p for p in range(len(labels)) if p != keyed]
        value = ScalarCast(draw(expressions(space, I64, 1, False)), I64)
        value = value if keyed not in space.labels_in(value) else LabelValue(draw(st.sampled_from(free)))
        key = [(keyed, ScalarCall("mod", (value, ScalarConst(space.bounds[keyed], I64)), I64))]
    if op == "gather" and keyed is None:
        space.emit(out, (), join, None, "")
        return drafts
    name = {"scatter": draw(st.sampled_from(["sum", "mean", "max"])), "gather": "pick"}.get(op, op)
    join, operator = widen(join, aggregation(name, join.dtype, keyed=bool(key)))
    space.emit(out, bound, join, operator, "", key)
    return drafts


@st.composite
def pieces(draw: st.DrawFn, nodes: list[Node]) -> ConcatNode | None:
    """A tensor with a slice or a part replaced, or two side by side, of nodes that there are."""
    base = draw(st.integers(0, len(nodes) - 1))
    shape, dtype = nodes[base].shape, nodes[base].dtype
    alike = [i for i, n in enumerate(nodes) if n.dtype == dtype]
    whole = TensorPiece(base, tuple(range(len(shape))), (0,) * len(shape))
    if shape and draw(st.booleans()):
        other = draw(st.sampled_from([i for i in alike if nodes[i].shape[1:] == shape[1:] and nodes[i].shape]))
        total = (shape[0] + nodes[other].shape[0], *shape[1:])
        return ConcatNode("Z", total, dtype, (whole, TensorPiece(other, whole.axes, (shape[0], *whole.offsets[1:]))), 1)
    piece = draw(st.sampled_from(alike))
    axes = draw(st.permutations(range(len(shape))))[: len(nodes[piece].shape)]
    lengths = [1] * len(shape)
    for axis, n in zip(axes, nodes[piece].shape, strict=False):
        lengths[axis] = n
    if len(axes) < len(nodes[piece].shape) or any(n > m for n, m in zip(lengths, shape, strict=True)):
        return None
    offsets = tuple(draw(st.integers(0, m - n)) for n, m in zip(lengths, shape, strict=True))
    return ConcatNode("Z", shape, dtype, (whole, TensorPiece(piece, tuple(axes), offsets)), 1)


@st.composite
def graphs(draw: st.DrawFn) -> EinGraph:
    assembly = GraphBuilder()
    for name in ("A", "B", "C", "s"):
        labels = draw(st.lists(st.sampled_from(NAMES), max_size=2)) if name != "s" else []
        dtype = draw(st.sampled_from([F64, F32, F16, I32]))
        assembly.add(InputNode(name, tuple(SIZES[label] for label in labels), dtype, 1))
    for number in range(draw(st.integers(1, 6))):
        node = draw(pieces(assembly.nodes)) if draw(st.integers(0, 2)) == 0 else None
        if node is not None:
            assembly.add(node)
            continue
        drafts = draw(statements([(n.dtype, n.shape) for n in assembly.nodes]))
        assembly.place(drafts.nodes, range(len(assembly.nodes)), f"T{number}", number + 2)
    made = [i for i, node in enumerate(assembly.nodes) if not isinstance(node, InputNode)]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    wanted = tuple((f"{assembly.nodes[i].name}_{i}", i) for i in sorted({*outputs, made[-1]}))
    return EinGraph(tuple(assembly.nodes), wanted, "drawn")


def small_integers(graph: EinGraph, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    inputs = (n for n in graph.nodes if isinstance(n, InputNode))
    return {n.name: rng.integers(-2, 3, n.shape).astype(n.dtype.numpy) for n in inputs}


@settings(max_examples=examples(150), deadline=None)
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
