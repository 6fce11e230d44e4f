"""Simplification: folds constants, shares equal nodes, and drops nodes that no output needs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np

from einturnip.eingraph.builder import EinsumInterner, LabelSpace, distinct, pattern
from einturnip.eingraph.products import python_number
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node, TensorPiece, operands_of
from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import evaluate_scalar
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst, rewrite

_COMMUTATIVE = frozenset({"add", "mul", "and", "or", "eq", "ne"})


def simplify(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Fold constants, share equal nodes, drop dead ones, and merge slots with the same access."""
    nodes: list[Node] = []
    ids: list[int] = []
    constants: dict[int, ScalarConst] = {}
    seen: dict[Hashable, int] = {}
    for node in graph.nodes:
        fresh = with_operands(node, ids)
        if isinstance(fresh, EinsumNode):
            fresh = _folded(interner, fresh, constants)
        key = _key(interner, fresh)
        number = seen.setdefault(key, len(nodes))
        if number == len(nodes):
            nodes.append(fresh)
            einsum = fresh.einsum if isinstance(fresh, EinsumNode) else None
            if isinstance(einsum, Einsum) and isinstance(einsum.join, ScalarConst) and not einsum.aggregation:
                constants[number] = einsum.join
        ids.append(number)
    outputs = tuple((name, ids[node]) for name, node in graph.outputs)
    return drop_dead(replace(graph, nodes=tuple(nodes), outputs=outputs))


def drop_dead(graph: EinGraph) -> EinGraph:
    """Keep only the nodes that an output needs, in the same order."""
    live = {node for _, node in graph.outputs}
    for i in reversed(range(len(graph.nodes))):
        if i in live:
            live.update(operands_of(graph.nodes[i]))
    if len(live) == len(graph.nodes):
        return graph
    ids = {old: new for new, old in enumerate(sorted(live))}
    nodes = tuple(with_operands(graph.nodes[i], ids) for i in sorted(live))
    return replace(graph, nodes=nodes, outputs=tuple((name, ids[node]) for name, node in graph.outputs))


def with_operands(node: Node, ids: Mapping[int, int] | Sequence[int]) -> Node:
    """Renumber the operands of a node; ``ids`` maps old ids to new ones."""
    match node:
        case InputNode():
            return node
        case EinsumNode(operands=operands):
            moved = tuple(ids[o] for o in operands)
            return node if moved == operands else replace(node, operands=moved)
        case ConcatNode(pieces=pieces):
            return replace(node, pieces=tuple(TensorPiece(ids[p.operand], p.axes, p.offsets) for p in pieces))
        case _:
            assert_never(node)


def _folded(interner: EinsumInterner, node: EinsumNode, constants: Mapping[int, ScalarConst]) -> EinsumNode:
    """Replace constant operands by their values, and merge slots with the same access."""
    values = tuple(constants.get(o) for o in node.operands)
    words = tuple(v and (repr(v.value), v.dtype.name) for v in values)
    same = pattern(node.operands)
    einsum, operands = interner.once(_fold_einsum, (id(node.einsum), same, words), node.einsum, same, values)
    einsum = interner.one(einsum)
    if einsum is node.einsum and len(operands) == len(node.operands):
        return node
    tensors = distinct(node.operands)
    return EinsumNode(node.name, einsum, tuple(tensors[n] for n in operands), node.line, node.hints)


def _fold_einsum(
    einsum: Einsum, operands: tuple[int, ...], values: tuple[ScalarConst | None, ...]
) -> tuple[Einsum, tuple[int, ...]]:
    """Fold an einsum over numbered tensors; also return the numbers of the remaining operands."""

    def leaf(expr: Scalar) -> Scalar:
        if not isinstance(expr, OperandRef):
            return expr
        return values[expr.slot] or space.operand(operands[expr.slot], einsum.accesses[expr.slot])

    def folded(expr: Scalar) -> Scalar:
        return fold_constants(rewrite(expr, leaf))

    space = LabelSpace.over(einsum, operands)
    join, keys = folded(einsum.join), [(key.label, folded(key.value)) for key in einsum.keys]
    aggregation = einsum.aggregation
    if aggregation is not None and not einsum.aggregated and not keys and aggregation.finalize_is_identity:
        aggregation = None if join.dtype == aggregation.result else aggregation
    found, left = space.einsum(range(einsum.n_out), einsum.aggregated, join, aggregation, keys)
    # Unchanged einsums stay the same object.
    return (einsum if found == einsum else found), left


def fold_constants(expr: Scalar) -> Scalar:
    """Evaluate the constant parts of an expression in their dtypes, and drop neutral operations."""
    match expr:
        case ScalarConst() | OperandRef() | LabelValue():
            return expr
        case ScalarCast(argument, dtype):
            inner = fold_constants(argument)
            if inner.dtype == dtype:
                return inner
            return _constant(ScalarCast(inner, dtype)) if isinstance(inner, ScalarConst) else ScalarCast(inner, dtype)
        case ScalarCall(op, arguments, dtype):
            folded = ScalarCall(op, tuple(fold_constants(a) for a in arguments), dtype)
            return (
                _constant(folded) if all(isinstance(a, ScalarConst) for a in folded.arguments) else _shortened(folded)
            )
        case _:
            assert_never(expr)


def _constant(expr: Scalar) -> Scalar:
    """The value of a constant expression; itself where its evaluation must warn at run time."""
    try:
        with np.errstate(all="raise", under="ignore"):
            value = evaluate_scalar(expr, (), (), ())
    except FloatingPointError:
        return expr
    return ScalarConst(python_number(value.item(), expr.dtype), expr.dtype)


def _shortened(call: ScalarCall) -> Scalar:
    """Drop neutral operations: ``x * 1``, ``x / 1``, ``where(true, x, y)``, ``true and x`` and similar."""
    match call.op, call.arguments:
        case "where", (ScalarConst(value, _), then, otherwise):
            return then if value else otherwise
        case "where", (_, then, otherwise) if then == otherwise and repr(then) == repr(otherwise):
            return then
        case ("mul", (x, ScalarConst(1, _))) | ("mul", (ScalarConst(1, _), x)) | ("div", (x, ScalarConst(1, _))):
            return x
        case ("and", (x, ScalarConst(value, _))) | ("and", (ScalarConst(value, _), x)):
            return x if value else ScalarConst(False, call.dtype)
        case ("or", (x, ScalarConst(value, _))) | ("or", (ScalarConst(value, _), x)):
            return ScalarConst(True, call.dtype) if value else x
        case ("add" | "sub", (x, ScalarConst(0, dtype))) | ("add", (ScalarConst(0, dtype), x)) if dtype.is_integer:
            return x
        case "mod", (_, ScalarConst(1, dtype)) if dtype.is_integer:
            return ScalarConst(0, dtype)
    return call


def _key(interner: EinsumInterner, node: Node) -> Hashable:
    """A key that nodes share exactly when they have the same value; ignores names."""
    match node:
        case InputNode(name=name):
            return ("input", name)
        case ConcatNode(shape=shape, pieces=pieces):
            return ("concat", shape, pieces)
        case EinsumNode(einsum=einsum, operands=operands):
            tensors = sorted(set(operands))
            ranks = tuple(map(tensors.index, operands))
            form = interner.once(_form_number, (id(einsum), ranks), interner, einsum, ranks)
            return (form, *tensors, node.hints)
        case _:
            assert_never(node)


def _form_number(interner: EinsumInterner, einsum: Einsum, ranks: tuple[int, ...]) -> int:
    """Number an einsum regardless of label names, over tensors identified by rank."""

    def operand(slot: int) -> Hashable:
        return (ranks[slot], einsum.accesses[slot])

    keys = tuple((key.label, _expression_number(interner, key.value, operand)) for key in einsum.keys)
    join = _expression_number(interner, einsum.join, operand)
    return interner.number((einsum.bounds, einsum.n_out, einsum.aggregation, keys, join))


def _expression_number(interner: EinsumInterner, expr: Scalar, operand: Callable[[int], Hashable]) -> int:
    match expr:
        case ScalarConst(value, dtype):
            return interner.number(("const", repr(value), dtype.name))
        case OperandRef(slot, _):
            return interner.number(("operand", operand(slot)))
        case LabelValue(position, dtype):
            return interner.number(("label", position, dtype.name))
        case ScalarCast(argument, dtype):
            return interner.number(("cast", dtype.name, _expression_number(interner, argument, operand)))
        case ScalarCall(op, arguments, dtype):
            numbers = [_expression_number(interner, a, operand) for a in arguments]
            return interner.number((op, dtype.name, *(sorted(numbers) if op in _COMMUTATIVE else numbers)))
        case _:
            assert_never(expr)
