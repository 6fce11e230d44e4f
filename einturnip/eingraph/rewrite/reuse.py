"""Reuses stored maps: an aggregation reads a stored tensor instead of recomputing its values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from einturnip.eingraph.builder import EinsumInterner, LabelSpace, StatementDrafts
from einturnip.eingraph.rewrite.sharing import with_operands
from einturnip.eingraph.types import EinGraph, EinsumNode, Node
from einturnip.ir.einsum import Einsum, Index, labels_read
from einturnip.ir.functions import ELEMENTWISE
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarConst, rewrite, walk

_EXPENSIVE = frozenset(name for name, function in ELEMENTWISE.items() if not function.is_cheap) | {"pow"}

# A join without label names, and its labels in the order of first occurrence.
_Form = tuple[Hashable, tuple[int, ...]]


def reuse_maps(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Compute each expensive join once, where a map stores it and aggregations compute it too."""
    known = [_form(interner, node) for node in graph.nodes]
    maps: dict[Hashable, int] = {}
    for i, form in enumerate(known):
        if form is not None and _is_map(graph.nodes[i], form[1]):
            maps.setdefault(form[0], i)
    reads = {i: maps[f[0]] for i, f in enumerate(known) if f and f[0] in maps and not _is_map(graph.nodes[i], f[1])}
    if not reads:
        return graph
    nodes = list(graph.nodes)
    early: dict[int, int] = {}
    for i, made in reads.items():
        fold, form, source = nodes[i], known[i], known[made]
        assert isinstance(fold, EinsumNode) and isinstance(fold.einsum, Einsum) and form and source
        # The map's axes are its labels in order; the aggregation has its own label for each of them.
        access = tuple(form[1][source[1].index(p)] for p in range(len(source[1])))
        einsum = interner.once(_reading, (id(fold.einsum), access), fold.einsum, access)
        nodes[i] = replace(fold, einsum=interner.one(einsum), operands=(made,))
        if made > i:
            early[i] = made
    return _reordered(replace(graph, nodes=tuple(nodes)), early)


def _form(interner: EinsumInterner, node: Node) -> _Form | None:
    """The form of a node's join over node ids; None where the join is cheap or its einsum has keys."""
    if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Einsum):
        return None
    found = interner.once(_form_of, id(node.einsum), node.einsum)
    return found and ((found[0], tuple(node.operands[s] for s in found[2])), found[1])


def _form_of(einsum: Einsum) -> tuple[Hashable, tuple[int, ...], tuple[int, ...]] | None:
    """The form of a join over slots, and the slots in the order of first occurrence."""
    if einsum.keys or not any(isinstance(e, ScalarCall) and e.op in _EXPENSIVE for e in walk(einsum.join)):
        return None
    labels: dict[int, int] = {}
    slots: dict[int, int] = {}
    constants: list[str] = []

    def leaf(expr: Scalar) -> Scalar:
        match expr:
            case OperandRef(slot, dtype):
                for index in einsum.accesses[slot]:
                    for p in sorted(labels_read((index,))):
                        labels.setdefault(p, len(labels))
                return OperandRef(slots.setdefault(slot, len(slots)), dtype)
            case LabelValue(p, dtype):
                return LabelValue(labels.setdefault(p, len(labels)), dtype)
            case ScalarConst(value, _):
                # 0.0 equals -0.0 but is different.
                constants.append(repr(value))
        return expr

    join = rewrite(einsum.join, leaf)
    accesses = tuple(tuple(_named(index, labels) for index in einsum.accesses[s]) for s in slots)
    bounds = tuple(einsum.bounds[p] for p in labels)
    return (join, tuple(constants), accesses, bounds), tuple(labels), tuple(slots)


def _named(index: int | Index, labels: dict[int, int]) -> Hashable:
    if isinstance(index, int):
        return labels[index]
    return replace(index, terms=()), tuple(sorted((labels[p], c) for p, c in index.terms))


def _is_map(node: Node, labels: tuple[int, ...]) -> bool:
    """True for a node that stores its join, one element for each point."""
    return (
        isinstance(node, EinsumNode)
        and isinstance(node.einsum, Einsum)
        and (node.einsum.aggregation is None and len(labels) == node.einsum.n_out)
    )


def _reading(einsum: Einsum, access: tuple[int, ...]) -> Einsum:
    """The aggregation of an einsum, over the stored values of its join."""
    shape = tuple(einsum.bounds[p] for p in access)
    space = LabelSpace(StatementDrafts([(einsum.join.dtype, shape)]), einsum.labels, einsum.bounds)
    return space.einsum(range(einsum.n_out), einsum.aggregated, space.operand(0, access), einsum.aggregation)[0]


def _reordered(graph: EinGraph, early: dict[int, int]) -> EinGraph:
    """Move node ``early[i]`` before node i."""
    order = list(dict.fromkeys(k for i in range(len(graph.nodes)) for k in ((early[i], i) if i in early else (i,))))
    ids = {old: new for new, old in enumerate(order)}
    nodes = tuple(with_operands(graph.nodes[i], ids) for i in order)
    return replace(graph, nodes=nodes, outputs=tuple((name, ids[node]) for name, node in graph.outputs))
