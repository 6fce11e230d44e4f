"""EinDecomp: tiles each einsum into P kernel calls so that the fewest bytes move between them.

Every einsum gets a tile count per label, with product P. The cost (see ``tiling.node_tilings``) is a sum of terms of
one node and of terms of two, so the best counts are found by eliminating one node after another. On a tree this is the
dynamic programme of the paper. On a graph with shared tensors it stays exact while the tables stay small; otherwise the
widest node is fixed first, and the result is improved by single changes until none helps. Repeated layers are solved
once (``tiling.repeated_layers``).

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
from einturnip.tiling.types import Decomposition, IoBlock, Partitioning
from einturnip.tuning.search import FAR_SHARE, MAX_FREED, MAX_GAP, MAX_READERS

Allowed = Callable[[int], Ints]
"""Returns the allowed tilings of a node: tile extents, one row per tiling."""


def eindecomp(graph: EinGraph, parts: int) -> Decomposition:
    """Tile every node into ``parts`` kernel calls so that the fewest bytes move between them.

    Tiles fixed with @tile stay fixed. A node that cannot be split into ``parts`` equal tiles gets the largest possible
    number below; ``notes`` says where.
    """
    found = cheapest(graph, lambda i: all_tilings(graph.nodes[i], parts))
    return Decomposition(graph, found.partitionings, found.blocks, _notes(found, parts))


def all_tilings(node: Node, parts: int) -> Ints:
    """Return every tiling of a node into ``parts``."""
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


def cheapest(graph: EinGraph, allowed: Allowed, distinguishes: Sequence[Hashable] | None = None) -> Decomposition:
    """Return the cheapest choice of one ``allowed`` tiling for every node.

    ``distinguishes``: a key for each node; nodes that are equal otherwise differ in it if their allowed tilings do.
    """
    made, edges = _in_order(graph)
    nodes = [graph.nodes[i] for i in made]
    # Layers share most of their einsums, so compare these by identity first.
    identities: list[Hashable] = [
        id(node.einsum) if isinstance(node, EinsumNode) and not node.hints.tiles else -1 - k
        for k, node in enumerate(nodes)
    ]
    if distinguishes is not None:
        identities = [(q, distinguishes[i]) for q, i in zip(identities, made, strict=True)]
    every: list[NodeTilings] = []
    known: dict[Hashable, int] = {}
    kind_of: dict[Hashable, int] = {}
    for q, k in dict(zip(reversed(identities), range(len(made) - 1, -1, -1), strict=True)).items():
        kind = kind_of[q] = known.setdefault(
            (_kind(nodes[k], graph), distinguishes and distinguishes[made[k]]), len(known)
        )
        if kind == len(every):
            every.append(node_tilings(nodes[k], graph, allowed(made[k])))
    kinds = [kind_of[q] for q in identities]
    concats = [k for k, node in enumerate(nodes) if isinstance(node, ConcatNode)]
    number, left, keys = merge_symmetric(kinds, every, edges)
    terms = CostTerms(left, every, keys)
    rows = solve(terms, frozenset(number[concats].tolist()))
    return _decomposition(graph, made, edges, terms, rows, number)


def _in_order(graph: EinGraph) -> tuple[list[int], ReadEdges]:
    """Return the computed nodes, operands first, and their reads by position; input i is -1 - i.

    A tensor with many or distant readers comes as early as possible, and an unread concatenation of many operands last,
    so that they do not separate the nodes of a layer.
    """
    read_by = {i: node.operands for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)}
    made = np.fromiter(read_by, np.int64, len(read_by))
    reads = ReadEdges.of(list(read_by.values()))
    operands = np.bincount(reads.reader, minlength=len(made))
    readers = np.bincount(reads.made, minlength=len(graph.nodes))
    place = np.arange(len(graph.nodes), dtype=float)
    gathered = (operands > 1) & (readers[made] == 0)
    for k in np.flatnonzero(gathered).tolist():
        gathered[k] = operands[k] > MAX_READERS or isinstance(graph.nodes[made[k]], ConcatNode)
    place[made[gathered]] = len(graph.nodes)
    inside = reads.where(~gathered[reads.reader])
    nearest, farthest = np.zeros((2, len(graph.nodes)), np.int64)
    nearest[inside.made[::-1]], farthest[inside.made] = inside.reader[::-1], inside.reader
    for i in np.flatnonzero((readers > MAX_READERS) | (farthest - nearest > FAR_SHARE * len(made))).tolist():
        if i in read_by:
            place[i] = max((float(place[o]) for o in read_by[i] if o in read_by), default=-1) + 0.5
    order = np.argsort(place[made], kind="stable")
    number = -1 - np.arange(len(graph.nodes))
    number[made[order]] = np.arange(len(made))
    reader = number[made[reads.reader]]
    edges = ReadEdges(number[reads.made], reader, reads.slot).where(np.argsort(reader, kind="stable"))
    return made[order].tolist(), edges


def _kind(node: Node, graph: EinGraph) -> Hashable:
    """Return a key of everything that the bytes of a node's tilings depend on."""
    if isinstance(node, EinsumNode):
        e = node.einsum
        whole = e.whole if isinstance(e, Region) else ()
        sizes = (e.n_out, e.dtype.itemsize, *[dtype.itemsize for dtype in e.dtypes])
        reads = [  # an affine index without its offset
            tuple([p if isinstance(p, int) else (p.terms, p.divisor, p.modulus) for p in access])
            for access in e.accesses
        ]
        return e.bounds, sizes, e.shapes, whole, node.hints.tiles, *reads
    assert isinstance(node, ConcatNode)
    return node.shape, node.dtype.itemsize, *((p.axes, graph.nodes[p.operand].shape) for p in node.pieces)


def solve(terms: CostTerms, concats: frozenset[int] = frozenset()) -> list[int]:
    """Return the chosen candidate of each variable: optimal, or within MAX_GAP of it.

    Tensors with many readers or operands would couple all layers of a model. They are cut off: readers of such a
    tensor pay a lower bound, and such a concatenation pays nothing. The true cost of the resulting choice bounds its
    distance from the optimum.

    ``concats``: variables that are concatenations.
    """
    edges, n = terms.edges.where(terms.edges.made >= 0), len(terms.kinds)
    readers, operands = (np.bincount(x, minlength=n) for x in (edges.made, edges.reader))
    many = (
        readers > MAX_READERS * np.array([own.times for own in terms.every], np.int64)[np.array(terms.kinds, np.int64)]
    )
    unpriced = operands > MAX_READERS
    limit = MAX_GAP if (many | unpriced).any() else 1.0
    for v in concats:
        unpriced[v] |= operands[v] > 1 and not readers[v]
    if (many | unpriced).any():
        relaxed, gathers = (frozenset(np.flatnonzero(x).tolist()) for x in (many, unpriced))
        relaxed_terms = replace(terms, relaxed=relaxed, unpriced=gathers)
        rows = _adapt(relaxed_terms, _solved(relaxed_terms), limit)
        if rows is not None:
            return rows
    return _solved(terms)


def _adapt(terms: CostTerms, rows: list[int], limit: float) -> list[int] | None:
    """Return the rows with cut-off variables adapted to the others; None if that costs over ``limit``."""
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
    paid = {u: terms.candidates_of(u).own.copy() for u in free}
    pairs: list[tuple[int, int, TensorTilings, Table]] = []
    for a, b, slot, n in _weighted_reads(terms, of, len(alike)):
        (kind, before, u), (other, after, v) = alike[a], alike[b]
        seen, read = every[kind].made.of, every[other].required[slot]
        table, required = terms.table(kind, read), read.of
        cost = n * float(table[seen[before], required[after]])
        if v not in terms.unpriced:
            bound += n * float(table[:, required[after]].min()) if u in terms.relaxed else cost
        if u >= 0 and v >= 0:
            pairs.append((u, v, read, n * table))
        elif u >= 0:
            paid[u] += n * table[seen, required[after]]
        elif v >= 0:
            paid[v] += n * table[seen[before], required]
        else:
            real += cost
    problem = MinSumProblem()
    at = {u: problem.view(problem.variable(costs), terms.candidates_of(u).made.of) for u, costs in paid.items()}
    for u, v, read, table in pairs:
        problem.factors.append(CostFactor((at[u], problem.view(at[v].variable, read.of)), table))
    best = minimise(problem)
    for (u, costs), row in zip(paid.items(), best, strict=True):
        rows[u] = row
        real += float(costs[row])
    real += sum(float(t[terms.candidates_of(u).made.of[rows[u]], read.of[rows[v]]]) for u, v, read, t in pairs)
    return rows if real <= limit * bound else None


def _freed(terms: CostTerms) -> list[int]:
    """Return the variables that were cut off, and the operands of the relaxed ones."""
    free = set(terms.relaxed | terms.unpriced)
    max_free = len(free) + MAX_FREED
    near = terms.relaxed
    while near:
        near = frozenset(u for v in near for u in terms.reads(v) if u >= 0) - free
        if len(free) + len(near) > max_free:
            break
        free |= near
    return sorted(free)


def _weighted_reads(terms: CostTerms, of: Ints, n: int) -> Iterator[tuple[int, ...]]:
    """Return the reads by numbers ``of`` n variables: operand slot and multiplicity."""
    edges = terms.edges.where(terms.edges.made >= 0)
    slots = edges.slot.copy()
    for v in terms.unpriced:
        mine = edges.reader == v
        slots[mine] = terms.candidates_of(v).equal_slots[slots[mine]]
    sizes = n, n, int(edges.slot.max(initial=0)) + 1
    keys, counts = np.unique(np.ravel_multi_index((of[edges.made], of[edges.reader], slots), sizes), return_counts=True)
    return zip(*(x.tolist() for x in (*np.unravel_index(keys, sizes), counts)), strict=True)


def _solved(terms: CostTerms) -> list[int]:
    folds = [f for run in runs(terms.kinds, terms.keys) if (f := fold_layers(terms, run)) is not None]
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


def _decomposition(
    graph: EinGraph, made: Sequence[int], edges: ReadEdges, terms: CostTerms, rows: Sequence[int], number: Ints
) -> Decomposition:
    """Return the chosen tilings as a decomposition; an input is tiled for its first reader.

    ``number[k]`` is the variable of node ``made[k]``.
    """
    _, first, of = np.unique(_distinct(terms.kinds, rows), return_index=True, return_inverse=True)
    chosen = [(terms.candidates_of(v), rows[v]) for v in first.tolist()]
    partitionings = [Partitioning(own.bounds, tuple(own.tiles[row].tolist())) for own, row in chosen]
    parts: list[Partitioning | None] = [None] * len(graph.nodes)
    for i, k in zip(made, of[number].tolist(), strict=True):
        parts[i] = partitionings[k]
    inputs = edges.where(edges.made < 0)
    operands, first = np.unique(-1 - inputs.made, return_index=True)
    readers = number[inputs.reader[first]]
    for i, v, slot in zip(operands.tolist(), readers.tolist(), inputs.slot[first].tolist(), strict=True):
        parts[i] = _required(graph.nodes[i].shape, terms.candidates_of(v), slot, rows[v])
    whole = (partitioning or _whole(graph.nodes[i].shape) for i, partitioning in enumerate(parts))
    # The memory is not known here, so each output tile is a block of its own.
    blocks = (IoBlock((1,) * n.einsum.n_out, None) if isinstance(n, EinsumNode) else None for n in graph.nodes)
    return Decomposition(graph, tuple(whole), tuple(blocks))


def _whole(shape: tuple[int, ...]) -> Partitioning:
    """Return a single tile, for an input without readers."""
    return Partitioning(shape, tuple(max(1, b) for b in shape))


def _distinct(kinds: Sequence[int], rows: Sequence[int]) -> Ints:
    """Number the variables by kind and row."""
    numbers = np.array(rows, np.int64)
    return np.array(kinds, np.int64) * (int(numbers.max(initial=0)) + 1) + numbers


def _required(shape: tuple[int, ...], own: NodeTilings, slot: int, row: int) -> Partitioning:
    """Return the tiling that a candidate of a node requires of an operand."""
    required = own.required[slot]
    counts, tiles = (x[required.of[row]].tolist() for x in (required.counts, required.tiles))
    axes = zip(shape, counts, tiles, required.exact, strict=True)
    return Partitioning(shape, tuple(max(1, min(t if exact else -(-b // d), b)) for b, d, t, exact in axes))


def _notes(d: Decomposition, parts: int) -> tuple[str, ...]:
    """Return a note per line for statements with a different number of kernel calls than requested."""
    found: dict[str, None] = {}
    nodes, partitionings = d.graph.nodes, d.partitionings
    one = dict(
        zip(map(id, partitionings), range(len(partitionings)), strict=True)
    )  # nodes with equal tilings share one object
    other = {
        key
        for key, i in one.items()
        if isinstance(nodes[i], EinsumNode) and math.prod(partitionings[i].counts) != parts
    }
    reported = set()
    for node, partitioning in zip(nodes, partitionings, strict=True) if other else ():
        if (
            id(partitioning) in other
            and isinstance(node, EinsumNode)
            and (key := (node.line, node.name, id(partitioning))) not in reported
        ):
            reported.add(key)
            if 0 not in label_bounds(node):
                why = "as @tile requires" if node.hints.tiles else "tiles of one extent give no more"
                calls = math.prod(partitioning.counts)
                found[f"line {node.line}: {node.name} has {calls} kernel calls, not {parts}: {why}"] = None
    return tuple(found)
