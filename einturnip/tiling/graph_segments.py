"""Cuts a graph with equal layers into the statements before, one layer, and the statements after.

The layers may come from a loop or be written one after the other. They are equal if they compute the same and read
tensors of the same shapes in the same way: those of the layer before, those that all layers share, and inputs of their
own, such as weights. A layer whose outputs are read only in part, as the last one of a model that needs one position,
belongs to the statements after.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node, operands_of
from einturnip.ir.einsum import Einsum, Index
from einturnip.ir.region import Region
from einturnip.tiling.pieces import points, read_ranges
from einturnip.tiling.repeats import ReadEdges, RepeatedRun, runs


@dataclass(frozen=True)
class GraphSegment:
    """A part of a graph that is computed ``times`` times.

    ``values``: its inputs that other segments compute.
    """

    graph: EinGraph
    times: int
    values: frozenset[str]


def segments(graph: EinGraph) -> tuple[GraphSegment, ...]:
    """Return a graph as segments: the statements before, in and after equal layers, or all of them.

    An output of one segment and an input of another with the same name are one tensor. A tensor that layers pass on is
    both an input and an output of the layer.
    """
    made = [i for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)]
    run, whole = _longest_run(graph, made), (GraphSegment(graph, 1, frozenset()),)
    if run is None:
        return whole
    stop, times, ranges = run.stop, run.times, read_ranges(graph)
    outputs = {i for _, i in graph.outputs}
    last = made[stop - run.period : stop]
    if outputs & set(last) or any(
        ranges[i] != ranges[j] for i, j in zip(last, made[stop - 2 * run.period :], strict=False)
    ):
        stop, times = stop - run.period, times - 1
    second = run.start + run.period
    before, layer, after = made[: run.start], made[second : second + run.period], made[stop:]
    first = {made[run.start - run.period + q] for q in run.passed_on}
    shared = {made[u] for u in run.outer} | {o for i in after for o in operands_of(graph.nodes[i])}
    if times < 2 or outputs & set(made[run.start : stop]) or first & shared:
        return whole
    # The tensor that a layer passes on has one name before the first layer, in each, and after the last.
    passed = [
        [made[at + q] for at in (second, run.start - run.period, run.start, stop - run.period)] for q in run.passed_on
    ]
    read = {o for i in (*layer, *after) for o in operands_of(graph.nodes[i])} & set(before)
    if any(
        points(ranges[i]) < math.prod(graph.nodes[i].shape) for i in (*read, *(i for nodes in passed for i in nodes))
    ):
        return whole  # a segment would compute parts of its outputs that nothing reads
    named = _names(graph, [*(nodes[0] for nodes in passed), *sorted(read - first)])
    named |= {i: named[nodes[0]] for nodes in passed for i in nodes}
    parts = ((before, 1), (layer, times), (after, 1))
    return tuple(_cut(graph, part, named, n) for part, n in parts if part)


def _longest_run(graph: EinGraph, made: Sequence[int]) -> RepeatedRun | None:
    """Return the run of layers that contains the most nodes."""
    number = {i: k for k, i in enumerate(made)}
    known: dict[Hashable, int] = {}
    kinds, reads = [], []
    for i in made:
        node = graph.nodes[i]
        assert not isinstance(node, InputNode)
        kinds.append(known.setdefault(_kind(node, graph), len(known)))
        reads.append([number.get(o, -1) for o in node.operands])
    found = [
        run
        for run in runs(kinds, ReadEdges.of(reads))
        if min((run.start - run.period + q for q in run.passed_on), default=0) >= 0 and _reads_alike(graph, made, run)
    ]
    return max(found, key=lambda run: run.stop - run.start, default=None)


def _kind(node: Node, graph: EinGraph) -> Hashable:
    """Return a key of what a node computes; inputs count by their shape, without offsets."""
    assert not isinstance(node, InputNode)
    inputs = [(n.shape, n.dtype) if isinstance(n := graph.nodes[o], InputNode) else None for o in node.operands]
    if isinstance(node, ConcatNode):
        return node.shape, node.dtype, tuple((p.axes, p.offsets) for p in node.pieces), tuple(inputs)
    e = node.einsum
    accesses = tuple(
        access if known is None else tuple(replace(p, offset=0) if isinstance(p, Index) else p for p in access)
        for access, known in zip(e.accesses, inputs, strict=True)
    )
    assert isinstance(e, Einsum | Region)
    return replace(e, accesses=accesses), node.hints, tuple(inputs)


def _reads_alike(graph: EinGraph, made: Sequence[int], run: RepeatedRun) -> bool:
    """Return whether all layers read their inputs in the same places."""
    patterns = set()
    for first in range(run.start, run.stop, run.period):
        places: dict[int, int] = {}
        operands = [o for i in made[first : first + run.period] for o in operands_of(graph.nodes[i])]
        inputs = [o for o in operands if isinstance(graph.nodes[o], InputNode)]
        patterns.add(tuple(places.setdefault(o, len(places)) for o in inputs))
    return len(patterns) == 1


def _names(graph: EinGraph, some: Iterable[int]) -> dict[int, str]:
    """Return a name for each node, which no input has and no other of them."""
    taken = {node.name for node in graph.nodes if isinstance(node, InputNode)} | {name for name, _ in graph.outputs}
    found: dict[int, str] = {}
    for i in dict.fromkeys(some):
        name, k = graph.nodes[i].name, 1
        while name in taken:
            k += 1
            name = f"{graph.nodes[i].name}.{k}"
        taken.add(name)
        found[i] = name
    return found


def _cut(graph: EinGraph, part: Sequence[int], named: dict[int, str], times: int) -> GraphSegment:
    """Return the part of a graph that computes some nodes, with others that it reads as inputs."""
    inside, nodes, values = set(part), dict[int, Node](), set[str]()
    for i in part:
        for o in operands_of(graph.nodes[i]):
            node = graph.nodes[o]
            if o not in inside and not isinstance(node, InputNode):
                node = InputNode(named[o], node.shape, node.dtype, node.line)
                values.add(named[o])
            if isinstance(node, InputNode):
                nodes[o] = node
    number = {i: k for k, i in enumerate((*nodes, *part))}
    for i in part:
        node = graph.nodes[i]
        if isinstance(node, ConcatNode):
            nodes[i] = replace(node, pieces=tuple(replace(p, operand=number[p.operand]) for p in node.pieces))
        elif isinstance(node, EinsumNode):
            nodes[i] = replace(node, operands=tuple(number[o] for o in node.operands))
    outputs = [(name, number[i]) for name, i in graph.outputs if i in inside]
    outputs += [(named[i], number[i]) for i in part if i in named]
    return GraphSegment(replace(graph, nodes=tuple(nodes.values()), outputs=tuple(outputs)), times, frozenset(values))
