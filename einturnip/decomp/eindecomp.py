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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from einturnip.core.region import Region
from einturnip.decomp.candidates import Ints, candidates
from einturnip.decomp.chain import fold
from einturnip.decomp.classes import label_bounds
from einturnip.decomp.elimination import Problem, View, minimise
from einturnip.decomp.repeats import Edges, runs
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
    made, edges = _in_order(graph)
    kinds: list[int] = []
    every: list[Ways] = []
    known: dict[Hashable, int] = {}
    seen: dict[Hashable, int] = {}  # by an einsum's identity: layers share most of theirs
    for i in made:
        node = graph.nodes[i]
        question = asked[i] if asked is not None else None
        quick = (id(node.einsum), node.hints.tiles, question) if isinstance(node, EinsumNode) else i
        kind = seen.get(quick)
        if kind is None:
            kind = seen[quick] = known.setdefault((_kind(node, graph), question), len(known))
            if kind == len(every):
                every.append(ways(node, graph, allowed(i)))
        kinds.append(kind)
    terms = Terms(kinds, every, edges)
    return _cut(graph, made, terms, solve(terms))


def _in_order(graph: EinGraph) -> tuple[list[int], Edges]:
    """The nodes that are made, operands first, and what reads what, by place in that list; input i is -1 - i.

    A tensor of many readers stands as early as it may, and what many are put together to and nobody reads stands last:
    wherever the program has them, they do not part the nodes of a layer.
    """
    read_by = {i: node.operands for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)}
    made = np.array(list(read_by), np.int64)
    reads = Edges.of(list(read_by.values()))
    operands, readers = np.bincount(reads.reader), np.bincount(reads.made, minlength=len(graph.nodes))
    place = np.arange(len(graph.nodes), dtype=float)
    gathered = made[np.flatnonzero(operands > MOST_READERS)]
    place[gathered[readers[gathered] == 0]] = len(graph.nodes)
    for i in np.flatnonzero(readers > MOST_READERS).tolist():
        if i in read_by:
            place[i] = max((float(place[o]) for o in read_by[i] if o in read_by), default=-1) + 0.5
    order = np.argsort(place[made], kind="stable")
    number = -1 - np.arange(len(graph.nodes))
    number[made[order]] = np.arange(len(made))
    reader = number[made[reads.reader]]
    edges = Edges(number[reads.made], reader, reads.slot).where(np.argsort(reader, kind="stable"))
    return made[order].tolist(), edges


def _kind(node: Node, graph: EinGraph) -> Hashable:
    """What the bytes of a node's ways hang on."""
    if isinstance(node, EinsumNode):
        e = node.einsum
        whole = e.whole if isinstance(e, Region) else ()
        kind: list[Hashable] = [e.bounds, e.n_out, e.dtype.itemsize, e.shapes, whole, node.hints.tiles]
        for access, dtype in zip(e.accesses, e.dtypes, strict=True):
            kind += len(access), dtype.itemsize
            for p in access:
                kind.append(p if isinstance(p, int) else (p.terms, p.divisor, p.modulus))
        return tuple(kind)
    assert isinstance(node, ConcatNode)
    return node.shape, node.dtype.itemsize, *((p.axes, graph.nodes[p.operand].shape) for p in node.pieces)


def solve(terms: Terms) -> list[int]:
    """The row of each variable's way: the best, or within NEARLY of it where some have many readers or operands.

    These would tie all of them together, the layers of a model to one table of angles or to one tensor that keeps what
    each of them makes. So they are cut off: who reads the one pays the least that it may have to, and what the other is
    put together from pays nothing. What that choice really costs shows how far from the best it can be.
    """
    edges = terms.edges.where(terms.edges.made >= 0)
    read, reads = (
        frozenset(np.flatnonzero(np.bincount(x) > MOST_READERS).tolist()) for x in (edges.made, edges.reader)
    )
    either = read | reads
    if either:
        apart = np.zeros(len(terms.kinds), bool)
        apart[list(either)] = True
    if either and not (apart[edges.made] & apart[edges.reader]).any():
        loosened = replace(terms, loose=read, gathering=reads)
        least = _adapted(loosened, _solved(loosened))
        if least is not None:
            return least
    return _solved(terms)


def _adapted(terms: Terms, rows: list[int]) -> list[int] | None:
    """The rows with what was cut off made as suits the others; None where that may cost more than NEARLY."""
    every, either = terms.every, sorted(terms.loose | terms.gathering)
    chosen = _distinct(terms.kinds, rows)
    chosen[either] = -1 - np.arange(len(either))
    _, first, of, counts = np.unique(chosen, return_index=True, return_inverse=True, return_counts=True)
    alike = [(terms.kinds[v], rows[v], v if chosen[v] < 0 else -1) for v in first.tolist()]
    own = [float(every[kind].own[row]) for kind, row, _ in alike]
    bound = free = 0.0
    paid = {u: terms.ways(u).own.copy() for u in either}
    for (_, _, u), cost, n in zip(alike, own, counts.tolist(), strict=True):
        bound += n * cost
        free += n * cost if u < 0 else 0.0
    edges = terms.edges.where(terms.edges.made >= 0)
    sizes = len(alike), len(alike), int(edges.slot.max(initial=0)) + 1
    slots = edges.slot.copy()
    for v in terms.gathering:
        mine = edges.reader == v
        slots[mine] = terms.ways(v).alike_slots[slots[mine]]
    ties = np.ravel_multi_index((of[edges.made], of[edges.reader], slots), sizes)
    ties, counts = np.unique(ties, return_counts=True)
    for a, b, slot, n in zip(*(x.tolist() for x in (*np.unravel_index(ties, sizes), counts)), strict=True):
        (kind, before, u), (other, after, v) = alike[a], alike[b]
        seen, read = every[kind].made.of, every[other].wanted[slot]
        table, wanted = terms.table(kind, read), read.of
        cost = n * float(table[seen[before], wanted[after]])
        if u in terms.loose:
            bound += n * float(table[:, wanted[after]].min())
        elif v not in terms.gathering:
            bound += cost
        if u >= 0:
            paid[u] += n * table[seen, wanted[after]]
        elif v >= 0:
            paid[v] += n * table[seen[before], wanted]
        else:
            free += cost
    for u, costs in paid.items():
        rows[u] = int(np.argmin(costs))
    real = free + sum(float(costs.min()) for costs in paid.values())
    return rows if real <= NEARLY * bound else None


def _solved(terms: Terms) -> list[int]:
    folds = [f for run in runs(terms.kinds, terms.ties) if (f := fold(terms, run)) is not None]
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
    rows = [-1] * len(terms.kinds)
    for v, x in mine.items():
        rows[v] = chosen[x]
    for f in folds:
        rows[f.start : f.run.stop] = f.rows(problem, chosen)
    return rows


def _cut(graph: EinGraph, made: Sequence[int], terms: Terms, rows: Sequence[int]) -> Decomposition:
    """The chosen ways as a decomposition; an input is cut as its first reader wants it."""
    _, first, of = np.unique(_distinct(terms.kinds, rows), return_index=True, return_inverse=True)
    chosen = [(terms.ways(v), rows[v]) for v in first.tolist()]
    cuts = [Partitioning(own.bounds, tuple(own.tiles[row].tolist())) for own, row in chosen]
    parts = dict(zip(made, (cuts[k] for k in of.tolist()), strict=True))
    inputs = terms.edges.where(terms.edges.made < 0)
    operands, first = np.unique(-1 - inputs.made, return_index=True)
    for i, v, slot in zip(operands.tolist(), inputs.reader[first].tolist(), inputs.slot[first].tolist(), strict=True):
        parts[i] = _wanted(graph.nodes[i].shape, terms.ways(v), slot, rows[v])
    for i, node in enumerate(graph.nodes):
        if i not in parts:
            parts[i] = Partitioning(node.shape, tuple(max(1, b) for b in node.shape))
    return Decomposition(graph, tuple(parts[i] for i in range(len(parts))), (None,) * len(parts))


def _distinct(kinds: Sequence[int], rows: Sequence[int]) -> Ints:
    """A number for each variable that tells its kind and row."""
    numbers = np.array(rows, np.int64)
    return np.array(kinds, np.int64) * (int(numbers.max(initial=0)) + 1) + numbers


def _wanted(shape: tuple[int, ...], own: Ways, slot: int, row: int) -> Partitioning:
    """A tensor cut as a node's way wants it."""
    wanted = own.wanted[slot]
    counts, tiles = (x[wanted.of[row]].tolist() for x in (wanted.counts, wanted.tiles))
    axes = zip(shape, counts, tiles, wanted.exact, strict=True)
    return Partitioning(shape, tuple(max(1, min(t if exact else -(-b // d), b)) for b, d, t, exact in axes))


def _notes(d: Decomposition, parts: int) -> tuple[str, ...]:
    """Where a statement has another number of kernel calls than was asked for, once a line."""
    found: dict[str, None] = {}
    distinct = {id(cut): cut for cut in d.partitionings}
    other = {key for key, cut in distinct.items() if math.prod(cut.counts) != parts}
    for node, cut in zip(d.graph.nodes, d.partitionings, strict=True) if other else ():
        if id(cut) in other and isinstance(node, EinsumNode) and 0 not in label_bounds(node):
            why = "as @tile asks" if node.hints.tiles else "tiles of one extent give no more"
            calls = math.prod(cut.counts)
            found[f"line {node.line}: {node.name} has {calls} kernel calls, not {parts}: {why}"] = None
    return tuple(found)
