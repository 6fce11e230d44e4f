"""Einsum graphs made by hand and drawn: indices beyond labels, keys, tensors put together from pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from einturnip.eingraph.types import NO_HINTS, ConcatNode, EinGraph, EinsumNode, Hints, InputNode, Node, TensorPiece
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, F64, I64, DType
from einturnip.ir.einsum import Access, Einsum, Index, Key
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from tests.reference.einsum import evaluate_einsum

Arrays = dict[str, np.ndarray[Any, Any]]


class Maker:
    """A graph under construction; every method gives the new node's number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[int] = []

    def input(self, *shape: int, dtype: DType = F64) -> int:
        return self._add(InputNode(f"in{len(self.nodes)}", shape, dtype, len(self.nodes) + 1))

    def einsum(
        self,
        bounds: Sequence[int],
        n_out: int,
        operands: Sequence[tuple[int, Access]],
        op: str | None = None,
        keys: tuple[Key, ...] = (),
        join: Scalar | None = None,
        hints: Hints = NO_HINTS,
    ) -> int:
        """The product of the operands, aggregated by ``op``; those that keys read are no factors."""
        dtypes = tuple(self.nodes[o].dtype for o, _ in operands)
        factors = [OperandRef(s, d) for s, d in enumerate(dtypes) if OperandRef(s, d) not in [k.value for k in keys]]
        product: Scalar = factors[0]
        for factor in factors[1:]:
            product = ScalarCall("mul", (product, factor), product.dtype)
        value = join or product
        folded = None if op is None else aggregation(op, value.dtype, keyed=bool(keys))
        e = Einsum(
            tuple("abcdefgh"[: len(bounds)]),
            tuple(bounds),
            n_out,
            tuple(access for _, access in operands),
            dtypes,
            value,
            folded,
            tuple(self.nodes[o].shape for o, _ in operands),
            keys,
        )
        return self._add(
            EinsumNode(f"n{len(self.nodes)}", e, tuple(o for o, _ in operands), len(self.nodes) + 1, hints)
        )

    def concat(self, shape: Sequence[int], pieces: Sequence[TensorPiece]) -> int:
        dtype = self.nodes[pieces[0].operand].dtype
        return self._add(ConcatNode(f"n{len(self.nodes)}", tuple(shape), dtype, tuple(pieces), len(self.nodes) + 1))

    def graph(self, *outputs: int) -> EinGraph:
        text = tuple(f"statement {i + 1}" for i in range(len(self.nodes)))
        return EinGraph(tuple(self.nodes), tuple((f"out{i}", i) for i in outputs), "hand.ein", text)

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def arrays(graph: EinGraph, seed: int = 0) -> Arrays:
    """Small integers, so that a sum has the same bits in any order."""
    rng = np.random.default_rng(seed)
    inputs = [n for n in graph.nodes if isinstance(n, InputNode)]
    return {n.name: rng.integers(-3, 4, n.shape).astype(n.dtype.numpy) for n in inputs}


def reference(graph: EinGraph, inputs: Arrays) -> Arrays:
    """The graph over whole arrays."""
    values: list[np.ndarray[Any, Any]] = []
    for node in graph.nodes:
        match node:
            case InputNode():
                values.append(inputs[node.name])
            case EinsumNode():
                values.append(evaluate_einsum(node.einsum, [values[o] for o in node.operands])[0])
            case ConcatNode():
                out = np.empty(node.shape, node.dtype.numpy)
                for piece in node.pieces:
                    part = values[piece.operand]
                    place: list[Any] = list(piece.offsets)
                    for n, axis in zip(part.shape, piece.axes, strict=True):
                        place[axis] = slice(piece.offsets[axis], piece.offsets[axis] + n)
                    out[tuple(place)] = part
                values.append(out)
    return {name: values[i] for name, i in graph.outputs}


# --- drawn graphs -----------------------------------------------------------------------------------------------------

KINDS = ["einsum", "einsum", "concat", "replace", "gather", "scatter"]
coefficients = st.sampled_from([-2, -1, 1, 1, 1, 2, 3])


@st.composite
def indices(draw: st.DrawFn, bounds: Sequence[int], size: int) -> int | Index:
    """An index of labels with these bounds that stays within an axis."""
    fitting = [p for p, n in enumerate(bounds) if n == size]
    if fitting and draw(st.booleans()):
        return draw(st.sampled_from(fitting))
    labels = draw(st.lists(st.integers(0, len(bounds) - 1), unique=True, max_size=2)) if bounds else []
    terms = tuple((p, draw(coefficients)) for p in sorted(labels))
    divisor = draw(st.sampled_from([1, 1, 1, 2, 3]))
    ends = [sorted((0, c * (bounds[p] - 1))) for p, c in terms]
    offset = -sum(lo for lo, _ in ends) + draw(st.integers(0, 2))
    high = (offset + sum(hi for _, hi in ends)) // divisor
    if high < size:
        return Index(terms, offset, divisor)
    if draw(st.booleans()):
        return Index(terms, offset - draw(st.integers(0, 3)), divisor, clamped=True)
    return Index(terms, offset, divisor, size)


@st.composite
def graphs(draw: st.DrawFn) -> EinGraph:
    """A few einsums and put-together tensors over two inputs, in which anything reads anything."""
    make = Maker()
    sizes = st.integers(1, 6)
    make.input(draw(sizes), draw(sizes))
    make.input(draw(sizes))
    ids = make.input(draw(sizes), dtype=I64)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(KINDS))
        source = draw(st.sampled_from([i for i in range(len(make.nodes)) if i != ids]))
        shape = make.nodes[source].shape
        if kind == "einsum":
            _einsum(draw, make, ids, source)
        elif kind == "gather" and shape and 0 not in shape:
            n = make.nodes[ids].shape[0]
            key = ScalarCall("mod", (OperandRef(1, I64), ScalarConst(shape[0], I64)), I64)
            rest = tuple(range(1, len(shape)))
            v = len(shape)
            access = (v, *rest)
            bounds = (n, *shape[1:], shape[0])
            make.einsum(bounds, len(shape), [(source, access), (ids, (0,))], "pick", (Key(v, key),), OperandRef(0, F64))
        elif kind == "scatter" and len(shape) == 1:
            groups = draw(sizes)
            key = ScalarCall(
                "mod", (ScalarCall("mul", (OperandRef(1, I64), OperandRef(1, I64)), I64), ScalarConst(groups, I64)), I64
            )
            index = draw(indices(shape, make.nodes[ids].shape[0]))
            op = draw(st.sampled_from(["sum", "max", "mean", "argmax", "any"]))
            value = (
                OperandRef(0, F64)
                if op != "any"
                else ScalarCall("gt", (OperandRef(0, F64), ScalarConst(0.0, F64)), BOOL)
            )
            bounds = (groups, shape[0])
            operands = [(source, (1,)), (ids, (_moved(index, 1),))]
            node = make.einsum(bounds, 1, operands, op, (Key(0, key),), value)
            if make.nodes[node].dtype != F64:
                make.einsum((groups,), 1, [(node, (0,))], join=ScalarCast(OperandRef(0, make.nodes[node].dtype), F64))
        elif kind == "replace" and shape:
            axis = draw(st.integers(0, len(shape) - 1))
            row = [n for a, n in enumerate(shape) if a != axis]
            at = draw(st.integers(0, shape[axis] - 1))
            piece = make.einsum(row, len(row), [(source, tuple(_around(len(shape), axis, at)))])
            offsets = tuple(at if a == axis else 0 for a in range(len(shape)))
            whole = TensorPiece(source, tuple(range(len(shape))), (0,) * len(shape))
            axes = tuple(a for a in range(len(shape)) if a != axis)
            make.concat(shape, [whole, TensorPiece(piece, axes, offsets)])
        elif kind == "concat" and shape:
            twice = draw(st.booleans())
            first = (0,) * len(shape)
            second = (shape[0], *first[1:])
            axes = tuple(range(len(shape)))
            pieces = [TensorPiece(source, axes, first)] + ([TensorPiece(source, axes, second)] if twice else [])
            make.concat((shape[0] * (1 + twice), *shape[1:]), pieces)
    results = [i for i, n in enumerate(make.nodes) if not isinstance(n, InputNode)]
    if not results:
        results = [make.einsum(make.nodes[1].shape, 1, [(1, (0,))])]
    wanted = draw(st.sets(st.sampled_from(results), min_size=1))
    return make.graph(*sorted(wanted))


def _einsum(draw: st.DrawFn, make: Maker, ids: int, source: int) -> None:
    n_out, n_in = draw(st.integers(0, 2)), draw(st.integers(0, 1))
    bounds = draw(st.lists(st.integers(1, 6), min_size=n_out + n_in, max_size=n_out + n_in))
    others = [i for i in range(len(make.nodes)) if i != ids]
    operands = [source, *draw(st.lists(st.sampled_from(others), max_size=1))]
    reads: list[tuple[int, Access]] = []
    for o in operands:
        if all(make.nodes[o].shape):
            reads.append((o, tuple(draw(indices(bounds, n)) for n in make.nodes[o].shape)))
    if reads:
        make.einsum(bounds, n_out, list(dict.fromkeys(reads)), "sum" if n_in else None)


def _moved(index: int | Index, by: int) -> int | Index:
    """The same index of labels that stand ``by`` later."""
    if isinstance(index, int):
        return index + by
    return Index(tuple((p + by, c) for p, c in index.terms), index.offset, index.divisor, index.modulus, index.clamped)


def _around(n: int, axis: int, at: int) -> list[int | Index]:
    """Labels in order but for one axis, which is read at ``at``."""
    return [Index((), at) if a == axis else a - (a > axis) for a in range(n)]
