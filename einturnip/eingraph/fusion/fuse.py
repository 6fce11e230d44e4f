"""Fusion: nodes that hand tiles on to one another become one region, so that what passes between them is not stored.

A candidate is a tensor that is only read, element by element, by nodes that fold it or hand it on (``fusion_group``).
It becomes a region where the laws of the operators allow it and nothing dear is computed twice (``fusion_region``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from einturnip.eingraph.evaluate import operands_of
from einturnip.eingraph.fusion.groups import FusionGroup, GraphView, GroupGrowth, is_plain
from einturnip.eingraph.fusion.regions import GroupMember, derive
from einturnip.eingraph.fusion.rows import row_groups
from einturnip.eingraph.interning import EinsumInterner, distinct, pattern
from einturnip.eingraph.rewrite.sharing import drop_dead
from einturnip.eingraph.types import EinGraph, EinsumNode, Node
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region

# Fusion that spares fewer bytes than this is not worth a kernel of its own.
LEAST_SAVED_NBYTES = 64 << 10

# Uncut labels make tiles long and thin: past the first of these a contraction does better with what it reads stored,
# and past the second always.
_LONGEST, _LONGEST_OF_LARGE = 512, 1 << 14

Fused = tuple[Region, tuple[int, ...]]


def fuse(
    graph: EinGraph,
    forms: EinsumInterner,
    memory_nbytes: int | None = None,
    least_nbytes: int = LEAST_SAVED_NBYTES,
    rows: bool = False,
) -> EinGraph:
    """The graph with regions where that spares the writing and reading of ``least_nbytes``; 0: wherever one can be.

    ``rows``: also chains of folds and maps over rows that stay in the cache, which kernels on a GPU do not take yet.
    Units: ``memory_nbytes`` is what tensors may take together; to spare one that is larger, tiles may be thin.
    """
    users: list[set[int]] = [set() for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for operand in operands_of(node):
            users[operand].add(i)
    view = GraphView(graph.nodes, users, frozenset(node for _, node in graph.outputs))
    nodes = list(graph.nodes)
    taken: set[int] = set()
    lines = set(graph.merged)
    groups = [*_groups(view, least_nbytes), *(row_groups(view) if rows else ())]
    for group in sorted(groups, key=lambda g: (-g.saved_nbytes, g.members)):
        changed = {*group.members, *([group.rest[0]] if group.rest else [])}
        least = max(least_nbytes, _read_nbytes(view, group)) if least_nbytes else 0
        if group.saved_nbytes < least or not taken.isdisjoint(changed):
            continue
        large = memory_nbytes is not None and group.saved_nbytes > memory_nbytes
        fused = _region(forms, group, _LONGEST_OF_LARGE if large else _LONGEST)
        if fused is not None:
            taken |= changed
            last = _place(nodes, group, fused)
            lines |= {(line, last.line) for _, line in last.steps if line != last.line}
    if not taken:
        return graph
    return drop_dead(replace(graph, nodes=tuple(nodes), merged=tuple(sorted(lines))))


def _groups(view: GraphView, least_nbytes: int) -> Iterable[FusionGroup]:
    """Every group that grows from some node; a node may be in several."""
    for seed in _tileable(view):
        growth, lesser = GroupGrowth(view, seed), GroupGrowth(view, seed)
        if growth.tile() and (group := _grown(growth, True)):
            yield group
        if growth.links and lesser.tile() and (group := _grown(lesser, False)):
            yield group
    for seed in range(len(view.nodes)):
        if _is_large_fold(view, seed, least_nbytes):
            growth = GroupGrowth(view, seed)
            if growth.fold() and (group := _grown(growth, True)):
                yield group


def _grown(growth: GroupGrowth, absorbs: bool) -> FusionGroup | None:
    if absorbs:
        growth.absorb()
    group = growth.group() if growth.finish(absorbs) else None
    return group if group is not None and len(group.members) > 1 else None


def _tileable(view: GraphView) -> list[int]:
    """Nodes that are read label by label, and only by folds and by maps of which the same holds."""
    found: set[int] = set()
    for k in reversed(range(len(view.nodes))):
        einsum = view.einsum(k)
        if einsum is None or not einsum.n_out or k in view.outputs or not view.users[k]:
            continue
        if all(_reads_plainly(view, u, k) and (_is_fold(view, u) or u in found) for u in view.users[k]):
            found.add(k)
    return sorted(found)


def _is_fold(view: GraphView, k: int) -> bool:
    einsum = view.einsum(k)
    return einsum is not None and einsum.aggregation is not None


def _reads_plainly(view: GraphView, user: int, k: int) -> bool:
    einsum = view.einsum(user)
    return einsum is not None and all(
        is_plain(access) for o, access in zip(view.operands(user), einsum.accesses, strict=True) if o == k
    )


def _is_large_fold(view: GraphView, k: int, least_nbytes: int) -> bool:
    """True for an aggregation of an operand with enough bytes that others fold too."""
    einsum = view.einsum(k)
    if einsum is None or einsum.aggregation is None:
        return False
    return any(len(view.users[o]) > 1 and _nbytes(view.nodes[o]) >= least_nbytes for o in view.operands(k))


def _read_nbytes(view: GraphView, group: FusionGroup) -> int:
    """Bytes of what a group reads. What it spares must weigh as much: a region is cut less freely than its parts."""
    outside = {o for node in group.nodes for o in node.operands}.difference(group.members)
    weight = sum(_nbytes(view.node(o)) for o in outside)
    return weight if group.streamed else weight // 2  # rows are cut as freely as their parts, along one label less


def _nbytes(node: Node) -> int:
    count = node.dtype.itemsize
    for n in node.shape:
        count *= n
    return count


def _region(forms: EinsumInterner, group: FusionGroup, longest: int) -> Fused | None:
    """The region of a group and the nodes that it reads; equal groups share one."""
    place = {k: i for i, k in enumerate(group.members)}
    einsums = [forms.one(node.einsum) for node in group.nodes if isinstance(node.einsum, Einsum)]
    outside = [o for node in group.nodes for o in node.operands if o not in place]
    numbers = iter(pattern(outside))
    operands = tuple(tuple(~place[o] if o in place else next(numbers) for o in node.operands) for node in group.nodes)
    key = *map(id, einsums), operands, group.classes, group.streamed, longest
    found = forms.once(_derived, key, einsums, operands, group, longest)
    if found is None:
        return None
    tensors = distinct(outside)
    return found[0], tuple(tensors[n] for n in found[1])


def _derived(
    einsums: list[Einsum], operands: tuple[tuple[int, ...], ...], group: FusionGroup, longest: int
) -> Fused | None:
    members = [GroupMember(*parts) for parts in zip(einsums, operands, group.classes, strict=True)]
    return derive(members, group.streamed, longest)


def _place(nodes: list[Node], group: FusionGroup, fused: Fused) -> EinsumNode:
    """Put a group's region where its last node stood; gives it."""
    region, operands = fused
    last = group.nodes[-1]
    steps = tuple((node.name, node.line) for node in group.nodes)
    node = EinsumNode(last.name, region, operands, last.line, last.hints, steps)
    if group.rest is None:
        nodes[group.members[-1]] = node
        return node
    place = group.members[-2]
    nodes[place] = node
    user, rest = group.rest
    nodes[user] = replace(rest, operands=tuple(place if o == group.members[-1] else o for o in rest.operands))
    return node
