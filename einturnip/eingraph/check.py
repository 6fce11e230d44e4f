"""Checks the invariants of an EinGraph; a failure is a bug in einturnip."""

from __future__ import annotations

from typing import assert_never

from einturnip.core.errors import InternalError
from einturnip.eingraph.check_region import check_region
from einturnip.eingraph.indices import normal, span
from einturnip.eingraph.pieces import boxes_of, visible_pieces
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.aggregations import MONOIDS
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.ir.einsum import Einsum, Index, TileSpace, labels_read
from einturnip.ir.functions import ELEMENTWISE, FUNCTIONS
from einturnip.ir.region import Region
from einturnip.ir.scalar import (
    ARITHMETIC,
    COMPARISONS,
    LOGICAL,
    LabelValue,
    OperandRef,
    ScalarCall,
    ScalarCast,
    ScalarConst,
    walk,
)


def check(graph: EinGraph) -> None:
    """Check single assignment, operand order and types, label sizes, index bounds and piece coverage.

    Raises:
        InternalError: an invariant is broken; the message names the node.
    """
    proven: set[int] = set()
    for i, node in enumerate(graph.nodes):
        match node:
            case InputNode(name=name, shape=shape):
                _require(all(n >= 0 for n in shape), f"input {name}: negative size in {shape}")
            case EinsumNode():
                where = f"node {i} ({node.name})"
                if id(node.einsum) not in proven:
                    _check_either(where, node.einsum)
                    proven.add(id(node.einsum))
                _check_operands(graph, i, where, node)
            case ConcatNode():
                _check_pieces(graph, i, node)
            case _:
                assert_never(node)
    names = [name for name, _ in graph.outputs]
    _require(len(set(names)) == len(names), f"outputs named twice: {names}")
    for name, i in graph.outputs:
        _require(0 <= i < len(graph.nodes), f"output {name}: no node {i}")
        _require(not isinstance(graph.nodes[i], InputNode), f"output {name}: is an input itself")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InternalError(message)


def _check_operands(graph: EinGraph, i: int, where: str, node: EinsumNode) -> None:
    einsum = node.einsum
    _require(len(node.operands) == len(einsum.accesses), f"{where}: slots, operands and dtypes differ")
    for slot, operand in enumerate(node.operands):
        _require(0 <= operand < i, f"{where}: operand {operand} is not an earlier node")
        source = graph.nodes[operand]
        found, expected = source.shape, einsum.operand_shape(slot)
        _require(found == expected, f"{where}: operand {source.name} has shape {found}, labels say {expected}")
        _require(source.dtype == einsum.dtypes[slot], f"{where}: operand {source.name} is {source.dtype}")
    pairs = set(zip(node.operands, einsum.accesses, strict=True))
    _require(len(pairs) == len(node.operands), f"{where}: one access in two slots")
    n_steps = len(einsum.steps) if isinstance(einsum, Region) else 0
    _require(len(node.steps) == n_steps, f"{where}: {len(node.steps)} names of {n_steps} steps")
    for position, extent in node.hints.tiles:
        _require(0 <= position < len(einsum.labels) and extent > 0, f"{where}: hint {position}: {extent}")


def _check_either(where: str, space: Einsum | Region) -> None:
    match space:
        case Einsum():
            _check_einsum(where, space)
        case Region():
            _check_space(where, space)
            check_region(where, space)
            for k, step in enumerate(space.steps):
                _check_einsum(f"{where}, step {k}", step.einsum)
        case _:
            assert_never(space)


def _check_einsum(where: str, einsum: Einsum) -> None:
    _check_space(where, einsum)
    _check_join(where, einsum)
    _check_aggregation(where, einsum)
    _check_keys(where, einsum)


def _check_space(where: str, space: TileSpace) -> None:
    """Check that every label has a bound and every index stays inside its axis."""
    _require(len(space.accesses) == len(space.dtypes), f"{where}: slots, operands and dtypes differ")
    _require(len(space.labels) == len(space.bounds), f"{where}: labels and bounds differ")
    _require(0 <= space.n_out <= len(space.labels), f"{where}: n_out")
    _require(all(n >= 0 for n in space.bounds), f"{where}: negative bound in {space.bounds}")
    alone = all(isinstance(index, int) for access in space.accesses for index in access)
    _require(alone or len(space.shapes) == len(space.accesses), f"{where}: shapes of operands are missing")
    for slot, access in enumerate(space.accesses):
        _require(labels_read(access) <= set(range(len(space.labels))), f"{where}: access of slot {slot}")
        for index, size in zip(access, space.operand_shape(slot), strict=True):
            _check_index(f"{where}, slot {slot}", space, index, size)


def _check_index(where: str, einsum: TileSpace, index: int | Index, size: int) -> None:
    """Check that an index stays inside its axis, and that a plain label spans its axis."""
    if isinstance(index, int):
        _require(einsum.bounds[index] == size, f"{where}: labels say {einsum.bounds[index]} for an axis of {size}")
        return
    labels = [p for p, _ in index.terms]
    _require(labels == sorted(set(labels)) and all(c for _, c in index.terms), f"{where}: terms {index.terms}")
    _require(index.divisor >= 1 and index.modulus >= 0, f"{where}: divisor or modulus of {index}")
    _require(not isinstance(normal(index, einsum.bounds, size), int), f"{where}: {index} is a label alone")
    ends = span(index, einsum.bounds)
    if index.clamped:
        _require(not einsum.keys, f"{where}: a clamped index in an einsum with keys")
        _require(size > 0 or ends is None, f"{where}: a clamped index into an empty axis")
    else:
        _require(ends is None or 0 <= ends[0] <= ends[1] < size, f"{where}: index {ends} of an axis of {size}")


def _check_keys(where: str, einsum: Einsum) -> None:
    keyed = [key.label for key in einsum.keys]
    _require(len(set(keyed)) == len(keyed), f"{where}: two keys of one label")
    _require(not keyed or einsum.aggregation is not None, f"{where}: keys without an aggregation")
    picks = einsum.aggregation is not None and einsum.aggregation.combine == "pick"
    _require(not picks or set(keyed) == set(einsum.aggregated), f"{where}: pick by {keyed}")
    for key in einsum.keys:
        _require(key.value.dtype == I64, f"{where}: a key of dtype {key.value.dtype}")
        _require(key.label not in einsum.labels_of(key.value), f"{where}: a key that depends on its own label")
        _require(0 <= key.label < (len(einsum.labels) if picks else einsum.n_out), f"{where}: key of {key.label}")


def _check_pieces(graph: EinGraph, i: int, node: ConcatNode) -> None:
    """Check that the pieces are inside the whole and cover it."""
    where = f"node {i} ({node.name})"
    for piece in node.pieces:
        _require(0 <= piece.operand < i, f"{where}: operand {piece.operand} is not an earlier node")
        source = graph.nodes[piece.operand]
        _require(source.dtype == node.dtype, f"{where}: piece {source.name} is {source.dtype}")
        _require(len(piece.offsets) == len(node.shape), f"{where}: offsets of {source.name}")
        _require(len(piece.axes) == len(source.shape), f"{where}: axes of {source.name}")
        _require(len(set(piece.axes)) == len(piece.axes), f"{where}: axes {piece.axes} of {source.name}")
        _require(set(piece.axes) <= set(range(len(node.shape))), f"{where}: axes {piece.axes} of {source.name}")
    boxes = boxes_of(node, graph.nodes)
    for box in boxes:
        inside = all(start >= 0 and stop <= n for (start, stop), n in zip(box, node.shape, strict=True))
        _require(inside, f"{where}: a piece at {box} of {node.shape}")
    covered = any(all(ends == (0, n) for ends, n in zip(box, node.shape, strict=True)) for box in boxes)
    _require(covered or visible_pieces(node.shape, boxes)[1], f"{where}: its pieces leave a gap")


def _check_aggregation(where: str, einsum: Einsum) -> None:
    aggregation = einsum.aggregation
    if aggregation is None:
        _require(not einsum.aggregated, f"{where}: labels {einsum.labels[einsum.n_out :]} are not aggregated")
        return
    _require(aggregation.op in MONOIDS, f"{where}: unknown aggregation {aggregation.op}")
    _require(aggregation.value == einsum.join.dtype, f"{where}: join is {einsum.join.dtype}, not {aggregation.value}")


def _check_join(where: str, einsum: Einsum) -> None:
    used: set[int] = set()
    for expr in (e for scalar in (einsum.join, *(key.value for key in einsum.keys)) for e in walk(scalar)):
        match expr:
            case OperandRef(slot, dtype):
                _require(0 <= slot < len(einsum.dtypes), f"{where}: no slot {slot}")
                _require(dtype == einsum.dtypes[slot], f"{where}: slot {slot} is {einsum.dtypes[slot]}, not {dtype}")
                used.add(slot)
            case LabelValue(position, dtype):
                _require(0 <= position < len(einsum.labels), f"{where}: no label {position}")
                _require(dtype.is_integer, f"{where}: label of dtype {dtype}")
            case ScalarCall(op, arguments, dtype):
                types = tuple(a.dtype for a in arguments)
                _require(well_typed(op, types, dtype), f"{where}: {op}{types} -> {dtype} is no typed operator")
            case ScalarConst() | ScalarCast():
                pass
            case _:
                assert_never(expr)
    _require(used == set(range(len(einsum.dtypes))), f"{where}: slots that the join and keys do not read")


def well_typed(op: str, arguments: tuple[DType, ...], result: DType) -> bool:
    """True where ``op`` accepts these dtypes and returns that one."""
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
    if op == "neg":
        return result == first
    return result == ELEMENTWISE[op].result(first) and (first.is_inexact or ELEMENTWISE[op].keeps_integers)
