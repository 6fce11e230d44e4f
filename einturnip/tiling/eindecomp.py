"""EinDecomp: the decomposition of a graph into P kernel calls a node that moves the fewest bytes.

Every einsum gets a count for each label, with a product of P; what that costs is in ``tiling.node_tilings``: a sum of
terms of one node and of terms of two. So the best counts of a whole graph are found by eliminating one node after
another: on a tree this is the dynamic programme of the paper, and on a graph with shared tensors it stays exact as
long as the tables stay small; where they do not, the widest node is fixed first, and the result is improved node by
node until no change of one node helps. Layers that repeat are solved once (``tiling.repeated_layers``).

Source: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682), whose counts of elements are bytes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node
from einturnip.ir.region import Region
from einturnip.tiling.cost_terms import CostTerms
from einturnip.tiling.elimination import CostFactor, MinSumProblem, Table, VariableView, minimise
from einturnip.tiling.label_classes import label_bounds
from einturnip.tiling.node_tilings import NodeTilings, TensorTilings, node_tilings
from einturnip.tiling.partitionings import Ints, candidates
from einturnip.tiling.repeated_layers import fold_layers
from einturnip.tiling.repeats import ReadEdges, runs
from einturnip.tiling.symmetric_nodes import merge_symmetric
from einturnip.tiling.types import Decomposition, Partitioning

# A tensor with more readers is cut off from them if the choice costs at most NEARLY times the least that can be. What
# it is made of is then chosen once more, MOST_FREED nodes at most.
MOST_READERS = 8
NEARLY = 1.005
# Readers are far apart if more than this part of all nodes stands between them.
FAR = 0.25
MOST_FREED = 16

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
    made, edges = _in_order(graph)
    nodes = [graph.nodes[i] for i in made]
    # Layers share most of their einsums, so these are told apart by identity first.
    quick: list[Hashable] = [
        id(node.einsum) if isinstance(node, EinsumNode) and not node.hints.tiles else -1 - k
        for k, node in enumerate(nodes)
    ]
    if asked is not None:
        quick = [(q, asked[i]) for q, i in zip(quick, made, strict=True)]
    every: list[NodeTilings] = []
    known: dict[Hashable, int] = {}
    kind_of: dict[Hashable, int] = {}
    for q, k in dict(zip(reversed(quick), range(len(made) - 1, -1, -1), strict=True)).items():
        kind = kind_of[q] = known.setdefault((_kind(nodes[k], graph), asked and asked[made[k]]), len(known))
        if kind == len(every):
            every.append(node_tilings(nodes[k], graph, allowed(made[k])))
    kinds = [kind_of[q] for q in quick]
    concats = [k for k, node in enumerate(nodes) if isinstance(node, ConcatNode)]
    number, left, ties = merge_symmetric(kinds, every, edges)
    terms = CostTerms(left, every, ties)
    rows = solve(terms, frozenset(number[concats].tolist()))
    return _cut(graph, made, edges, terms, rows, number)


def _in_order(graph: EinGraph) -> tuple[list[int], ReadEdges]:
    """The nodes that are made, operands first, and what reads what, by place in that list; input i is -1 - i.

    A tensor of many readers, or of some far apart, stands as early as it may, and what many are put together to and
    nobody reads stands last: wherever the program has them, they do not part the nodes of a layer.
    """
    read_by = {i: node.operands for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)}
    made = np.fromiter(read_by, np.int64, len(read_by))
    reads = ReadEdges.of(list(read_by.values()))
    operands = np.bincount(reads.reader, minlength=len(made))
    readers = np.bincount(reads.made, minlength=len(graph.nodes))
    place = np.arange(len(graph.nodes), dtype=float)
    gathered = (operands > 1) & (readers[made] == 0)
    for k in np.flatnonzero(gathered).tolist():
        gathered[k] = operands[k] > MOST_READERS or isinstance(graph.nodes[made[k]], ConcatNode)
    place[made[gathered]] = len(graph.nodes)
    inside = reads.where(~gathered[reads.reader])
    nearest, farthest = np.zeros((2, len(graph.nodes)), np.int64)
    nearest[inside.made[::-1]], farthest[inside.made] = inside.reader[::-1], inside.reader
    for i in np.flatnonzero((readers > MOST_READERS) | (farthest - nearest > FAR * len(made))).tolist():
        if i in read_by:
            place[i] = max((float(place[o]) for o in read_by[i] if o in read_by), default=-1) + 0.5
    order = np.argsort(place[made], kind="stable")
    number = -1 - np.arange(len(graph.nodes))
    number[made[order]] = np.arange(len(made))
    reader = number[made[reads.reader]]
    edges = ReadEdges(number[reads.made], reader, reads.slot).where(np.argsort(reader, kind="stable"))
    return made[order].tolist(), edges


def _kind(node: Node, graph: EinGraph) -> Hashable:
    """What the bytes of a node's ways hang on."""
    if isinstance(node, EinsumNode):
        e = node.einsum
        whole = e.whole if isinstance(e, Region) else ()
        sizes = (e.n_out, e.dtype.itemsize, *[dtype.itemsize for dtype in e.dtypes])
        reads = [  # of an index all but where it begins
            tuple([p if isinstance(p, int) else (p.terms, p.divisor, p.modulus) for p in access])
            for access in e.accesses
        ]
        return e.bounds, sizes, e.shapes, whole, node.hints.tiles, *reads
    assert isinstance(node, ConcatNode)
    return node.shape, node.dtype.itemsize, *((p.axes, graph.nodes[p.operand].shape) for p in node.pieces)


def solve(terms: CostTerms, concats: frozenset[int] = frozenset()) -> list[int]:
    """The row of each variable's way: the best, or within NEARLY of it where some have many readers or operands.

    These would tie all of them together, the layers of a model to one table of angles or to one tensor that keeps what
    each of them makes. So they are cut off: who reads the one pays the least that it may have to, and what the other is
    put together from pays nothing. What that choice really costs shows how far from the best it can be.

    ``concats``: variables that are put together from pieces.
    """
    edges, n = terms.edges.where(terms.edges.made >= 0), len(terms.kinds)
    readers, operands = (np.bincount(x, minlength=n) for x in (edges.made, edges.reader))
    many = (
        readers > MOST_READERS * np.array([own.times for own in terms.every], np.int64)[np.array(terms.kinds, np.int64)]
    )
    gathering = operands > MOST_READERS
    limit = NEARLY if (many | gathering).any() else 1.0
    for v in concats:
        gathering[v] |= operands[v] > 1 and not readers[v]
    if (many | gathering).any():
        loose, gathers = (frozenset(np.flatnonzero(x).tolist()) for x in (many, gathering))
        loosened = replace(terms, loose=loose, gathering=gathers)
        least = _adapted(loosened, _solved(loosened), limit)
        if least is not None:
            return least
    return _solved(terms)


def _adapted(terms: CostTerms, rows: list[int], limit: float) -> list[int] | None:
    """The rows with what was cut off made as suits the others; None where that costs over ``limit`` times the least."""
    every, free = terms.every, _freed(terms)
    chosen = _distinct(terms.kinds, rows)
    chosen[free] = -1 - np.arange(len(free))
    _, first, of, counts = np.unique(chosen, return_index=True, return_inverse=True, return_counts=True)
    alike = [(terms.kinds[v], rows[v], v if chosen[v] < 0 else -1) for v in first.tolist()]
    bound = real = 0.0
    for (kind, row, u), n in zip(alike, counts.tolist(), strict=True):
        cost = n * float(every[kind].own[row])
        bound += cost
        real += cost if u < 0 else 0.0
    paid = {u: terms.ways(u).own.copy() for u in free}
    pairs: list[tuple[int, int, TensorTilings, Table]] = []
    for a, b, slot, n in _ties(terms, of, len(alike)):
        (kind, before, u), (other, after, v) = alike[a], alike[b]
        seen, read = every[kind].made.of, every[other].wanted[slot]
        table, wanted = terms.table(kind, read), read.of
        cost = n * float(table[seen[before], wanted[after]])
        if v not in terms.gathering:
            bound += n * float(table[:, wanted[after]].min()) if u in terms.loose else cost
        if u >= 0 and v >= 0:
            pairs.append((u, v, read, n * table))
        elif u >= 0:
            paid[u] += n * table[seen, wanted[after]]
        elif v >= 0:
            paid[v] += n * table[seen[before], wanted]
        else:
            real += cost
    problem = MinSumProblem()
    at = {u: problem.view(problem.variable(costs), terms.ways(u).made.of) for u, costs in paid.items()}
    for u, v, read, table in pairs:
        problem.factors.append(CostFactor((at[u], problem.view(at[v].variable, read.of)), table))
    best = minimise(problem)
    for (u, costs), row in zip(paid.items(), best, strict=True):
        rows[u] = row
        real += float(costs[row])
    real += sum(float(t[terms.ways(u).made.of[rows[u]], read.of[rows[v]]]) for u, v, read, t in pairs)
    return rows if real <= limit * bound else None


def _freed(terms: CostTerms) -> list[int]:
    """What was cut off, and what the loose are made of."""
    free = set(terms.loose | terms.gathering)
    most = len(free) + MOST_FREED
    near = terms.loose
    while near:
        near = frozenset(u for v in near for u in terms.reads(v) if u >= 0) - free
        if len(free) + len(near) > most:
            break
        free |= near
    return sorted(free)


def _ties(terms: CostTerms, of: Ints, n: int) -> Iterator[tuple[int, ...]]:
    """What is read by what, by their numbers ``of`` n, as which operand, and how often."""
    edges = terms.edges.where(terms.edges.made >= 0)
    slots = edges.slot.copy()
    for v in terms.gathering:
        mine = edges.reader == v
        slots[mine] = terms.ways(v).alike_slots[slots[mine]]
    sizes = n, n, int(edges.slot.max(initial=0)) + 1
    ties, counts = np.unique(np.ravel_multi_index((of[edges.made], of[edges.reader], slots), sizes), return_counts=True)
    return zip(*(x.tolist() for x in (*np.unravel_index(ties, sizes), counts)), strict=True)


def _solved(terms: CostTerms) -> list[int]:
    folds = [f for run in runs(terms.kinds, terms.ties) if (f := fold_layers(terms, run)) is not None]
    problem = MinSumProblem(memory=terms.memory)
    at: dict[int, VariableView] = {}
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
    rows = [-1] * len(terms.kinds)
    for v, x in mine.items():
        rows[v] = chosen[x]
    for f in folds:
        rows[f.start : f.run.stop] = f.rows(problem, chosen)
    return rows


def _cut(
    graph: EinGraph, made: Sequence[int], edges: ReadEdges, terms: CostTerms, rows: Sequence[int], number: Ints
) -> Decomposition:
    """The chosen ways as a decomposition; an input is cut as its first reader wants it.

    ``number[k]`` is the variable of node ``made[k]``.
    """
    _, first, of = np.unique(_distinct(terms.kinds, rows), return_index=True, return_inverse=True)
    chosen = [(terms.ways(v), rows[v]) for v in first.tolist()]
    cuts = [Partitioning(own.bounds, tuple(own.tiles[row].tolist())) for own, row in chosen]
    parts: list[Partitioning | None] = [None] * len(graph.nodes)
    for i, k in zip(made, of[number].tolist(), strict=True):
        parts[i] = cuts[k]
    inputs = edges.where(edges.made < 0)
    operands, first = np.unique(-1 - inputs.made, return_index=True)
    readers = number[inputs.reader[first]]
    for i, v, slot in zip(operands.tolist(), readers.tolist(), inputs.slot[first].tolist(), strict=True):
        parts[i] = _wanted(graph.nodes[i].shape, terms.ways(v), slot, rows[v])
    whole = (cut or _whole(graph.nodes[i].shape) for i, cut in enumerate(parts))
    return Decomposition(graph, tuple(whole), (None,) * len(parts))


def _whole(shape: tuple[int, ...]) -> Partitioning:
    """One tile: of an input that nobody reads."""
    return Partitioning(shape, tuple(max(1, b) for b in shape))


def _distinct(kinds: Sequence[int], rows: Sequence[int]) -> Ints:
    """A number for each variable that tells its kind and row."""
    numbers = np.array(rows, np.int64)
    return np.array(kinds, np.int64) * (int(numbers.max(initial=0)) + 1) + numbers


def _wanted(shape: tuple[int, ...], own: NodeTilings, slot: int, row: int) -> Partitioning:
    """A tensor cut as a node's way wants it."""
    wanted = own.wanted[slot]
    counts, tiles = (x[wanted.of[row]].tolist() for x in (wanted.counts, wanted.tiles))
    axes = zip(shape, counts, tiles, wanted.exact, strict=True)
    return Partitioning(shape, tuple(max(1, min(t if exact else -(-b // d), b)) for b, d, t, exact in axes))


def _notes(d: Decomposition, parts: int) -> tuple[str, ...]:
    """Where a statement has another number of kernel calls than was asked for, once a line."""
    found: dict[str, None] = {}
    nodes, cuts = d.graph.nodes, d.partitionings
    one = dict(zip(map(id, cuts), range(len(cuts)), strict=True))  # nodes that are cut alike share their cut
    other = {key for key, i in one.items() if isinstance(nodes[i], EinsumNode) and math.prod(cuts[i].counts) != parts}
    told = set()
    for node, cut in zip(nodes, cuts, strict=True) if other else ():
        if id(cut) in other and isinstance(node, EinsumNode) and (key := (node.line, node.name, id(cut))) not in told:
            told.add(key)
            if 0 not in label_bounds(node):
                why = "as @tile asks" if node.hints.tiles else "tiles of one extent give no more"
                calls = math.prod(cut.counts)
                found[f"line {node.line}: {node.name} has {calls} kernel calls, not {parts}: {why}"] = None
    return tuple(found)
