"""Each value once: constants folded into their consumers, equal nodes shared, what no output needs dropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import assert_never

import numpy as np

from einturnip.core.reference import evaluate_scalar
from einturnip.core.scalar import Call, Cast, Const, Label, Operand, Scalar, rewrite
from einturnip.eingraph.assembly import Assembly, Space
from einturnip.eingraph.evaluate import operands_of
from einturnip.eingraph.products import python_number
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode, Node

_COMMUTATIVE = frozenset({"add", "mul", "and", "or", "eq", "ne"})


def simplify(graph: EinGraph) -> EinGraph:
    """Fold constants, share equal nodes, drop dead ones; slots of one access become one."""
    assembly = Assembly()
    ids: list[int] = []
    constants: dict[int, Const] = {}
    seen: dict[Hashable, int] = {}
    for node in graph.nodes:
        fresh: Node = node
        if isinstance(node, EinsumNode):
            fresh = _folded(assembly, node, tuple(ids[o] for o in node.operands), constants)
        key = _key(fresh)
        if key not in seen:
            seen[key] = assembly.add(fresh)
            if isinstance(fresh, EinsumNode) and isinstance(fresh.einsum.join, Const) and fresh.einsum.labels == ():
                constants[seen[key]] = fresh.einsum.join
        ids.append(seen[key])
    outputs = tuple((name, ids[node]) for name, node in graph.outputs)
    return drop_dead(replace(graph, nodes=tuple(assembly.nodes), outputs=outputs))


def drop_dead(graph: EinGraph) -> EinGraph:
    """Only what an output needs, in the same order."""
    live = {node for _, node in graph.outputs}
    for i in reversed(range(len(graph.nodes))):
        if i in live:
            live.update(operands_of(graph.nodes[i]))
    ids = {old: new for new, old in enumerate(sorted(live))}
    nodes = tuple(_with_operands(graph.nodes[i], ids) for i in sorted(live))
    return replace(graph, nodes=nodes, outputs=tuple((name, ids[node]) for name, node in graph.outputs))


def _with_operands(node: Node, ids: dict[int, int]) -> Node:
    if isinstance(node, EinsumNode):
        return replace(node, operands=tuple(ids[o] for o in node.operands))
    return node


def _folded(assembly: Assembly, node: EinsumNode, operands: tuple[int, ...], constants: dict[int, Const]) -> EinsumNode:
    """The node over the new ``operands``, with constants in the place of those that are constant."""
    einsum = node.einsum

    def leaf(expr: Scalar) -> Scalar:
        return constants.get(operands[expr.slot], expr) if isinstance(expr, Operand) else expr

    space = Space.around(assembly, node)
    join = fold(space.substitute(rewrite(einsum.join, leaf), einsum.accesses, operands))
    aggregation = einsum.aggregation
    if aggregation is not None and not einsum.aggregated and aggregation.finish_is_identity:
        aggregation = None if join.dtype == aggregation.result else aggregation
    return space.node(range(einsum.n_out), einsum.aggregated, join, aggregation, node.name)


def fold(expr: Scalar) -> Scalar:
    """The expression with what is constant computed, in its dtype, and what changes nothing left out."""
    match expr:
        case Const() | Operand() | Label():
            return expr
        case Cast(argument, dtype):
            inner = fold(argument)
            if inner.dtype == dtype:
                return inner
            return _constant(Cast(inner, dtype)) if isinstance(inner, Const) else Cast(inner, dtype)
        case Call(op, arguments, dtype):
            folded = Call(op, tuple(fold(a) for a in arguments), dtype)
            return _constant(folded) if all(isinstance(a, Const) for a in folded.arguments) else _shortened(folded)
        case _:
            assert_never(expr)


def _constant(expr: Scalar) -> Const:
    with np.errstate(all="ignore"):
        value = evaluate_scalar(expr, (), (), ())
    return Const(python_number(value.item(), expr.dtype), expr.dtype)


def _shortened(call: Call) -> Scalar:
    """``x * 1``, ``x / 1``, ``where(true, x, y)``, ``true and x`` and the like, without what does nothing."""
    match call.op, call.arguments:
        case "where", (Const(value, _), then, otherwise):
            return then if value else otherwise
        case ("mul", (x, Const(1, _))) | ("mul", (Const(1, _), x)) | ("div", (x, Const(1, _))):
            return x
        case ("and", (x, Const(value, _))) | ("and", (Const(value, _), x)):
            return x if value else Const(False, call.dtype)
        case ("or", (x, Const(value, _))) | ("or", (Const(value, _), x)):
            return Const(True, call.dtype) if value else x
    return call


def _key(node: Node) -> Hashable:
    """What two nodes have in common exactly when they hold one value: names of labels and nodes do not count."""
    if isinstance(node, InputNode):
        return ("input", node.name)
    einsum = node.einsum

    def operand(slot: int) -> Hashable:
        return (node.operands[slot], einsum.accesses[slot])

    return (einsum.bounds, einsum.n_out, einsum.aggregation, _expression_key(einsum.join, operand))


def _expression_key(expr: Scalar, operand: Callable[[int], Hashable]) -> Hashable:
    match expr:
        case Const(value, dtype):
            return ("const", repr(value), dtype.name)
        case Operand(slot, _):
            return ("operand", operand(slot))
        case Label(position, dtype):
            return ("label", position, dtype.name)
        case Cast(argument, dtype):
            return ("cast", dtype.name, _expression_key(argument, operand))
        case Call(op, arguments, dtype):
            keys = [_expression_key(a, operand) for a in arguments]
            return (op, dtype.name, *(sorted(keys, key=repr) if op in _COMMUTATIVE else keys))
        case _:
            assert_never(expr)
