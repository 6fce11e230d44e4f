"""The invariants of an EinGraph; what fails here is a bug of ours."""

from __future__ import annotations

from typing import assert_never

from einturnip.core.algebra import AGGREGATIONS
from einturnip.core.dtypes import BOOL, C64, C128, F32, F64, DType
from einturnip.core.einsum import Einsum
from einturnip.core.errors import InternalError
from einturnip.core.scalar import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    LOGICAL,
    Call,
    Cast,
    Const,
    Label,
    Operand,
    walk,
)
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode

_REAL_OF = {C64: F32, C128: F64}
_KEEP_KIND = frozenset({"neg", "abs", "sign", "floor", "ceil", "round", "relu", "conj", "real", "imag"})


def check(graph: EinGraph) -> None:
    """Single assignment, operands earlier and as declared, one bound a label, a typed join, a known aggregation.

    Raises:
        InternalError: an invariant is broken; the message names the node.
    """
    for i, node in enumerate(graph.nodes):
        match node:
            case InputNode(name=name, shape=shape):
                _require(all(n >= 0 for n in shape), f"input {name}: negative size in {shape}")
            case EinsumNode():
                _check_node(graph, i, node)
            case _:
                assert_never(node)
    names = [name for name, _ in graph.outputs]
    _require(len(set(names)) == len(names), f"outputs named twice: {names}")
    for name, i in graph.outputs:
        _require(0 <= i < len(graph.nodes), f"output {name}: no node {i}")
        _require(isinstance(graph.nodes[i], EinsumNode), f"output {name}: is an input itself")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InternalError(message)


def _check_node(graph: EinGraph, i: int, node: EinsumNode) -> None:
    where, einsum = f"node {i} ({node.name})", node.einsum
    n_slots = len(node.operands)
    _require(n_slots == len(einsum.accesses) == len(einsum.dtypes), f"{where}: slots, operands and dtypes differ")
    _require(len(einsum.labels) == len(einsum.bounds), f"{where}: labels and bounds differ")
    _require(0 <= einsum.n_out <= len(einsum.labels), f"{where}: n_out")
    _require(all(n >= 0 for n in einsum.bounds), f"{where}: negative bound in {einsum.bounds}")
    for slot, operand in enumerate(node.operands):
        _require(0 <= operand < i, f"{where}: operand {operand} is not an earlier node")
        source = graph.nodes[operand]
        _require(all(0 <= p < len(einsum.labels) for p in einsum.accesses[slot]), f"{where}: access of slot {slot}")
        found, expected = source.shape, einsum.operand_shape(slot)
        _require(found == expected, f"{where}: operand {source.name} has shape {found}, labels say {expected}")
        _require(source.dtype == einsum.dtypes[slot], f"{where}: operand {source.name} is {source.dtype}")
    pairs = list(zip(node.operands, einsum.accesses, strict=True))
    _require(len(set(pairs)) == len(pairs), f"{where}: one access in two slots")
    _check_join(where, einsum)
    _check_aggregation(where, einsum)


def _check_aggregation(where: str, einsum: Einsum) -> None:
    aggregation = einsum.aggregation
    if aggregation is None:
        _require(not einsum.aggregated, f"{where}: labels {einsum.labels[einsum.n_out :]} are not aggregated")
        return
    _require(aggregation.op in AGGREGATIONS, f"{where}: unknown aggregation {aggregation.op}")
    _require(aggregation.value == einsum.join.dtype, f"{where}: join is {einsum.join.dtype}, not {aggregation.value}")


def _check_join(where: str, einsum: Einsum) -> None:
    used: set[int] = set()
    for expr in walk(einsum.join):
        match expr:
            case Operand(slot, dtype):
                _require(0 <= slot < len(einsum.dtypes), f"{where}: no slot {slot}")
                _require(dtype == einsum.dtypes[slot], f"{where}: slot {slot} is {einsum.dtypes[slot]}, not {dtype}")
                used.add(slot)
            case Label(position, dtype):
                _require(0 <= position < len(einsum.labels), f"{where}: no label {position}")
                _require(dtype.is_integer, f"{where}: label of dtype {dtype}")
            case Call(op, arguments, dtype):
                types = tuple(a.dtype for a in arguments)
                _require(well_typed(op, types, dtype), f"{where}: {op}{types} -> {dtype} is no typed operator")
            case Const() | Cast():
                pass
            case _:
                assert_never(expr)
    _require(used == set(range(len(einsum.dtypes))), f"{where}: slots that the join does not read")


def well_typed(op: str, arguments: tuple[DType, ...], result: DType) -> bool:
    """True where ``op`` takes these dtypes and gives that one."""
    first, same = arguments[0], len(set(arguments)) == 1
    if op == "where":
        return len(arguments) == 3 and first == BOOL and arguments[1] == arguments[2] == result
    if op in ARITHMETIC:
        return len(arguments) == 2 and same and first == result and (op != "div" or first.is_inexact)
    if op in COMPARISONS:
        return len(arguments) == 2 and same and result == BOOL
    if op in LOGICAL:
        return len(arguments) == (1 if op == "not" else 2) and set(arguments) == {BOOL} and result == BOOL
    if op not in FUNCTIONS or len(arguments) != 1:
        return False
    if op in ("abs", "real", "imag") and first in _REAL_OF:
        return result == _REAL_OF[first]
    return result == first and (first.is_inexact or op in _KEEP_KIND)
