"""EinDecomp: the decomposition of a graph into P kernel calls a node that moves the fewest bytes.

Every einsum gets a count for each label, with a product of P; what that costs is in ``decomp.ways``: a sum of terms of
one node and of terms of two. So the best counts of a whole graph are found by eliminating one node after another: on a
tree this is the dynamic programme of the paper, and on a graph with shared tensors it stays exact as long as the tables
stay small; where they do not, the widest node is fixed first, and the result is improved node by node until no change
of one node helps. Layers that repeat are solved once (``decomp.chain``).

Source: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682), whose counts of elements are bytes here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from einturnip.core.region import Region
from einturnip.decomp.candidates import Ints, candidates
from einturnip.decomp.chain import fold
from einturnip.decomp.classes import form, label_bounds
from einturnip.decomp.elimination import Problem, View, minimise
from einturnip.decomp.repeats import runs
from einturnip.decomp.terms import Terms
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.decomp.ways import Ways, ways
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node

# A tensor with more readers is cut off from them if the choice costs at most NEARLY times the least that can be.
MOST_READERS = 8
NEARLY = 1.005

Allowed = Callable[[int], Ints]
"""The ways that a node may be cut: its tiles, a row each."""


def eindecomp(graph: EinGraph, parts: int) -> Decomposition:
    """The graph with every node cut into ``parts`` kernel calls so that the fewest bytes move between them.

    What the program fixes with @tile stays fixed. A node whose labels give no ``parts`` tiles of one extent is cut into
    the most below that which there are; ``notes`` says where.
    """
    found = cheapest(graph, lambda i: all_ways(graph.nodes[i], parts))
    return Decomposition(graph, found.partitionings, found.blocks, _notes(found, parts))


def all_ways(node: Node, parts: int) -> Ints:
    """Every way to cut a node into ``parts``."""
    if not isinstance(node, EinsumNode):
        return candidates(node.shape, parts)
    einsum = node.einsum
    whole = einsum.whole if isinstance(einsum, Region) else frozenset()
    fixed = tuple((p, extent) for p, extent in node.hints.tiles if p not in whole)
    if not whole:
        return candidates(einsum.bounds, parts, fixed)
    tiles = candidates(tuple(1 if p in whole else n for p, n in enumerate(einsum.bounds)), parts, fixed).copy()
    for p in whole:
        tiles[:, p] = max(1, einsum.bounds[p])
    return tiles


def cheapest(graph: EinGraph, allowed: Allowed, asked: Sequence[Hashable] | None = None) -> Decomposition:
    """The cheapest choice of one of the ``allowed`` ways for every node.

    ``asked``, where given, tells nodes apart that are alike but for the ways that are allowed.
    """
    made = [i for i, n in enumerate(graph.nodes) if not isinstance(n, InputNode)]
    number = {i: v for v, i in enumerate(made)}
    known: dict[Hashable, int] = {}
    seen: dict[Hashable, int] = {}
    kinds: list[int] = []
    every: list[Ways] = []
    for i in made:
        node = graph.nodes[i]
        stored = tuple([o not in number for o in node.operands])  # type: ignore[union-attr]
        question = asked[i] if asked is not None else None
        quick = (id(node.einsum), node.hints.tiles, stored, question) if isinstance(node, EinsumNode) else i
        kind = seen.get(quick)
        if kind is None:
            kind = seen[quick] = known.setdefault((_kind(node, graph), stored, question), len(known))
        if kind == len(every):
            every.append(ways(node, graph, allowed(i)))
        kinds.append(kind)
    slots = [[number.get(o, -1) for o in graph.nodes[i].operands] for i in made]  # type: ignore[union-attr]
    rows = solve(Terms(kinds, every, slots))
    return _cut(graph, made, [every[k] for k in kinds], rows)


def _kind(node: Node, graph: EinGraph) -> Hashable:
    """What the costs of a node's ways hang on."""
    if isinstance(node, EinsumNode):
        return form(node.einsum), node.dtype, node.hints.tiles
    assert isinstance(node, ConcatNode)
    return node.shape, node.dtype, tuple((p.axes, graph.nodes[p.operand].shape) for p in node.pieces)


def solve(terms: Terms) -> list[int]:
    """The row of each variable's way: the best, or within NEARLY of it where some tensor has many readers.

    Such a tensor would tie all of them together, the layers of a model to one table of angles. So it is cut off: each
    reader pays the least that it may have to. What that choice really costs shows how far from the best it can be.
    """
    readers = Counter(u for row in terms.slots for u in row if u >= 0)
    many = frozenset(u for u, n in readers.items() if n > MOST_READERS)
    if many and not any(u in many for v in many for u in terms.slots[v]):
        rows = _solved(replace(terms, loose=many))
        least = _adapted(terms, rows, many)
        if least is not None:
            return least
    return _solved(terms)


def _adapted(terms: Terms, rows: list[int], loose: frozenset[int]) -> list[int] | None:
    """The rows with the loose variables made as suits their readers; None where that may cost more than NEARLY."""
    kinds, every = terms.kinds, terms.every
    paid = {u: terms.ways(u).own.copy() for u in loose}
    alone = Counter((kinds[v], row) for v, row in enumerate(rows) if v not in loose)
    free = sum(n * float(every[kind].own[row]) for (kind, row), n in alone.items())
    bound = sum(float(terms.ways(u).own[rows[u]]) for u in loose)
    ties: Counter[tuple[int, ...]] = Counter()
    for v, row in enumerate(rows):
        for slot, u in enumerate(terms.slots[v]):
            if u >= 0:
                which = (u if u in loose else -1), (v if v in loose else -1)
                ties[*which, kinds[u], rows[u], kinds[v], row, slot] += 1
    for (loose_made, loose_reader, made, before, reader, after, slot), n in ties.items():
        table, of, wanted = terms.table(made, reader, slot), every[made].made.of, every[reader].wanted[slot].of
        if loose_made >= 0:
            paid[loose_made] += n * table[of, wanted[after]]
            bound += n * float(table[:, wanted[after]].min())
        elif loose_reader >= 0:
            paid[loose_reader] += n * table[of[before], wanted]
        else:
            free += n * float(table[of[before], wanted[after]])
    for u, costs in paid.items():
        rows[u] = int(np.argmin(costs))
    real = free + sum(float(costs.min()) for costs in paid.values())
    return rows if real <= NEARLY * (free + bound) else None


def _solved(terms: Terms) -> list[int]:
    folds = [f for run in runs(terms.kinds, terms.reads) if (f := fold(terms, run)) is not None]
    problem = Problem(memory=terms.memory)
    at: dict[int, View] = {}
    mine: dict[int, int] = {}
    inner = {f.start: f for f in folds}
    v = 0
    while v < len(terms.kinds):
        if v in inner:
            inner[v].enter(problem, at)
            v = inner[v].run.stop
        else:
            mine[v] = terms.enter(problem, v, at)
            v += 1
    chosen = minimise(problem)
    rows = {v: chosen[x] for v, x in mine.items()}
    for f in folds:
        rows.update(f.rows(problem, chosen))
    return [rows[v] for v in range(len(terms.kinds))]


def _cut(graph: EinGraph, made: Sequence[int], every: Sequence[Ways], rows: Sequence[int]) -> Decomposition:
    """The chosen ways as a decomposition; an input is cut as its first reader wants it."""
    parts: list[Partitioning | None] = [None] * len(graph.nodes)
    once: dict[tuple[int, int], Partitioning] = {}
    for i, own, row in zip(made, every, rows, strict=True):
        key = id(own), row
        if key not in once:
            once[key] = Partitioning(own.bounds, tuple(own.tiles[row].tolist()))
        parts[i] = once[key]
        for slot, operand in enumerate(graph.nodes[i].operands):  # type: ignore[union-attr]
            if parts[operand] is None:
                parts[operand] = _wanted(graph.nodes[operand].shape, own, slot, row)
    cut = [
        p or Partitioning(n.shape, tuple(max(1, b) for b in n.shape)) for n, p in zip(graph.nodes, parts, strict=True)
    ]
    return Decomposition(graph, tuple(cut), (None,) * len(graph.nodes))


def _wanted(shape: tuple[int, ...], own: Ways, slot: int, row: int) -> Partitioning:
    """A tensor cut as a node's way wants it."""
    wanted = own.wanted[slot]
    counts, tiles = (x[wanted.of[row]].tolist() for x in (wanted.counts, wanted.tiles))
    axes = zip(shape, counts, tiles, wanted.exact, strict=True)
    return Partitioning(shape, tuple(max(1, min(t if exact else -(-b // d), b)) for b, d, t, exact in axes))


def _notes(d: Decomposition, parts: int) -> tuple[str, ...]:
    """Where a statement has another number of kernel calls than was asked for, once a line."""
    found: dict[str, None] = {}
    for node, cut in zip(d.graph.nodes, d.partitionings, strict=True):
        calls = math.prod(cut.counts)
        if isinstance(node, EinsumNode) and calls != parts and 0 not in label_bounds(node):
            why = "as @tile asks" if node.hints.tiles else "tiles of one extent give no more"
            found[f"line {node.line}: {node.name} has {calls} kernel calls, not {parts}: {why}"] = None
    return tuple(found)
