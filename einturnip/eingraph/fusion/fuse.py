"""Fusion: merges nodes that pass tiles to one another into regions, to avoid storing the tiles.

A candidate is a tensor that is read element by element, only by nodes that aggregate it or pass it on
(``FusionGroup``). It becomes a region where the laws of the operators allow that and no expensive value is computed
twice (``derive``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from einturnip.eingraph.builder import EinsumInterner, distinct, pattern
from einturnip.eingraph.fusion.groups import FusionGroup, GraphView, GroupGrowth, is_plain
from einturnip.eingraph.fusion.regions import GroupMember, derive
from einturnip.eingraph.fusion.rows import row_groups
from einturnip.eingraph.rewrite.sharing import drop_dead
from einturnip.eingraph.types import EinGraph, EinsumNode, Node, operands_of
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.tuning.search import CACHED_NBYTES, MAX_UNTILED, MAX_UNTILED_OF_LARGE, MIN_SAVED_NBYTES

Fused = tuple[Region, tuple[int, ...]]


def fuse(
    graph: EinGraph,
    interner: EinsumInterner,
    memory_nbytes: int | None = None,
    min_nbytes: int = MIN_SAVED_NBYTES,
    rows: bool = False,
) -> EinGraph:
    """Return the graph with regions that save ``min_nbytes`` each; 0 fuses wherever possible.

    ``rows`` also fuses chains of aggregations and maps over rows that stay in the cache; GPU kernels lack these.
    Units: ``memory_nbytes`` is the memory for tensors; to avoid storing a larger tensor, thin tiles are accepted.
    """
    users: list[set[int]] = [set() for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for operand in operands_of(node):
            users[operand].add(i)
    view = GraphView(graph.nodes, users, frozenset(node for _, node in graph.outputs))
    nodes = list(graph.nodes)
    taken: set[int] = set()
    lines = set(graph.merged)
    groups = [*_groups(view, min_nbytes)]
    if rows:
        groups = [group for group in groups if not (min_nbytes and _is_faster_apart(group))]
        groups += row_groups(view)
    for group in sorted(groups, key=lambda g: (-g.saved_nbytes, g.members)):
        changed = {*group.members, *([group.rest[0]] if group.rest else [])}
        least = max(min_nbytes, _read_nbytes(view, group)) if min_nbytes else 0
        if group.saved_nbytes < least or not taken.isdisjoint(changed):
            continue
        large = memory_nbytes is not None and group.saved_nbytes > memory_nbytes
        fused = _region(interner, group, MAX_UNTILED_OF_LARGE if large else MAX_UNTILED)
        if fused is not None:
            taken |= changed
            last = _place(nodes, group, fused)
            lines |= {(line, last.line) for _, line in last.steps if line != last.line}
    if not taken:
        return graph
    return drop_dead(replace(graph, nodes=tuple(nodes), merged=tuple(sorted(lines))))


def _groups(view: GraphView, min_nbytes: int) -> Iterable[FusionGroup]:
    """Yield every group that grows from some node; a node may be in several groups."""
    for seed in _tileable(view):
        growth, smaller = GroupGrowth(view, seed), GroupGrowth(view, seed)
        if growth.tile() and (group := _grow(growth, True)):
            yield group
        if growth.links and smaller.tile() and (group := _grow(smaller, False)):
            yield group
    for seed in range(len(view.nodes)):
        if _is_large_fold(view, seed, min_nbytes):
            growth = GroupGrowth(view, seed)
            if growth.fold() and (group := _grow(growth, True)):
                yield group


def _is_faster_apart(group: FusionGroup) -> bool:
    """Return whether fusion would cost a node its loops over short vectors, and save only cached bytes.

    The steps of a region have no such machine code.
    """
    if group.saved_nbytes >= CACHED_NBYTES:
        return False
    specs = [kernel_spec(n.einsum, "full") for n in group.nodes if isinstance(n.einsum, Einsum)]
    return any(spec is not None and spec.is_short for spec in specs)


def _grow(growth: GroupGrowth, absorbs: bool) -> FusionGroup | None:
    if absorbs:
        growth.absorb()
    group = growth.group() if growth.finish(absorbs) else None
    return group if group is not None and len(group.members) > 1 else None


def _tileable(view: GraphView) -> list[int]:
    """Return nodes read by plain labels only, by aggregations or by maps with the same property."""
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


def _is_large_fold(view: GraphView, k: int, min_nbytes: int) -> bool:
    """True for an aggregation of a large operand that other nodes read too."""
    einsum = view.einsum(k)
    if einsum is None or einsum.aggregation is None:
        return False
    return any(len(view.users[o]) > 1 and _nbytes(view.nodes[o]) >= min_nbytes for o in view.operands(k))


def _read_nbytes(view: GraphView, group: FusionGroup) -> int:
    """Bytes that a group reads; it must save as many, since regions have fewer tilings than their parts."""
    outside = {o for node in group.nodes for o in node.operands}.difference(group.members)
    weight = sum(_nbytes(view.node(o)) for o in outside)
    return weight if group.streamed else weight // 2  # row groups lose only one label for tiling


def _nbytes(node: Node) -> int:
    count = node.dtype.itemsize
    for n in node.shape:
        count *= n
    return count


def _region(interner: EinsumInterner, group: FusionGroup, max_untiled: int) -> Fused | None:
    """Return the region of a group and the nodes that it reads; equal groups share one region."""
    place = {k: i for i, k in enumerate(group.members)}
    einsums = [interner.one(node.einsum) for node in group.nodes if isinstance(node.einsum, Einsum)]
    outside = [o for node in group.nodes for o in node.operands if o not in place]
    numbers = iter(pattern(outside))
    operands = tuple(tuple(~place[o] if o in place else next(numbers) for o in node.operands) for node in group.nodes)
    key = *map(id, einsums), operands, group.classes, group.streamed, max_untiled
    found = interner.once(_derived, key, einsums, operands, group, max_untiled)
    if found is None:
        return None
    tensors = distinct(outside)
    return found[0], tuple(tensors[n] for n in found[1])


def _derived(
    einsums: list[Einsum], operands: tuple[tuple[int, ...], ...], group: FusionGroup, max_untiled: int
) -> Fused | None:
    members = [GroupMember(*parts) for parts in zip(einsums, operands, group.classes, strict=True)]
    return derive(members, group.streamed, max_untiled)


def _place(nodes: list[Node], group: FusionGroup, fused: Fused) -> EinsumNode:
    """Replace the last node of a group by its region, and return it."""
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
