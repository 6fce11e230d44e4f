"""Label classes: which labels of a graph share one tile size.

An axis and every label that indexes it form one class, so that no repartition is needed between nodes. An affine index
unites too, if one label dominates it: shifted reads stay on aligned tiles except for their halo, and a split or strided
axis is tiled in proportion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import itemgetter
from typing import TypeAlias

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node
from einturnip.ir.einsum import Index
from einturnip.ir.region import Region, Space
from einturnip.tuning.search import MAX_ALIKE, MAX_CLASSES, MAX_SLICES, NEARLY_EVENLY, SLICE_NBYTES, SMALL_TENSOR_NBYTES

Ratio: TypeAlias = int | Fraction
# An axis of a tensor, the node that reads it, the label that indexes it there, and the maximum number of its labels in
# one class.
Use: TypeAlias = tuple[int, int, int, int]


def label_bounds(node: Node) -> tuple[int, ...]:
    """Return the sizes that a node's partitioning tiles: an einsum's labels, else the axes."""
    return node.einsum.bounds if isinstance(node, EinsumNode) else node.shape


@dataclass(frozen=True, slots=True)
class LabelClasses:
    """Labels that share a tile size: ``of[node][label]`` is the class, ``bounds[class]`` its size.

    A class is measured in points of its longest labels; ``ratios[node][label]`` (at most 1) converts to points of the
    label. Tiles that are multiples of ``steps[class]`` align in all members; those of ``chunks[class]`` end at stored
    chunks. ``coarsest[class]`` is the largest tile; ``fixed`` are classes whose tile the program states, ``tiled_last``
    those that are tiled last, ``whole`` those that are never tiled; ``notes`` lists hints that were not followed.
    ``separate`` are nodes with a computed operand that is not tiled like the labels that index it.
    ``calls[class]``, if present, is the extent of a site's share of the work, which tiles must divide nearly evenly.
    """

    of: tuple[tuple[int, ...], ...]
    bounds: tuple[int, ...]
    coarsest: tuple[int, ...]
    steps: tuple[int, ...]
    chunks: tuple[int, ...]
    ratios: Mapping[int, tuple[Ratio, ...]] = field(default_factory=dict)
    fixed: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    tiled_last: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    separate: frozenset[int] = frozenset()
    calls: Mapping[int, int] = field(default_factory=dict)

    def dividing(self, c: int, extent: int) -> int:
        """Return the largest tile of class ``c``, at most ``extent``, that divides its calls nearly evenly."""
        call = self.calls.get(c)
        if call is None:
            return extent
        count = -(-call // extent)
        for unit in (math.lcm(16, self.steps[c]), math.lcm(8, self.steps[c])):
            tile = -(-call // (count * unit)) * unit
            if tile <= extent and (tile * count - call) <= NEARLY_EVENLY * call:
                return tile
        return min(extent, math.ceil(call / (count * self.steps[c])) * self.steps[c])

    def tiles(self, node: int, bounds: Sequence[int], tiles: Sequence[int]) -> tuple[int, ...]:
        """Return the tile extents along each label of a node for the class tile sizes ``tiles``."""
        ratios = self.ratios.get(node)
        if self.whole:
            tiles = [self.coarsest[c] if c in self.whole else n for c, n in enumerate(tiles)]
        if ratios is None:
            return tuple(min(tiles[c], b) or 1 for c, b in zip(self.of[node], bounds, strict=True))
        return tuple(
            max(1, min(tiles[c] * r.numerator // r.denominator, b))
            for c, b, r in zip(self.of[node], bounds, ratios, strict=True)
        )


def label_classes(graph: EinGraph) -> LabelClasses:
    """Unite every axis with the labels that index it, over the whole graph."""
    unions = _Unions(graph)
    stored: list[tuple[int, int, int]] = []
    small: list[tuple[int, Use]] = []
    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            untiled = _never_tiled(node.einsum)
            for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
                made = graph.nodes[operand]
                nbytes = math.prod(made.shape) * made.dtype.itemsize
                for axis, p in enumerate(access, unions.first[operand]):
                    if not isinstance(p, int) or p in untiled:
                        continue
                    if isinstance(made, InputNode):
                        stored.append((axis, i, p))
                    elif nbytes <= SMALL_TENSOR_NBYTES:
                        small.append((-nbytes, (axis, i, p, MAX_ALIKE)))
                    else:
                        unions.unite(unions.first[i] + p, axis)
    several = {use for use, n in Counter((axis, i) for axis, i, _ in stored).items() if n > 1}
    separate = _unite_few(unions, graph, (use for _, use in sorted(small, key=itemgetter(0))))
    _unite_few(unions, graph, ((a, i, p, MAX_ALIKE if (a, i) in several else 1) for a, i, p in stored))
    for i, node in enumerate(graph.nodes):
        if isinstance(node, ConcatNode):
            _unite_pieces(unions, graph, i, node)
        elif isinstance(node, EinsumNode) and not node.einsum.plain:
            _unite_indices(unions, i, node)
    if unions.count() > MAX_CLASSES:
        _unite_same_form(unions, graph)
    return replace(_numbered(unions, graph), separate=separate)


def _never_tiled(e: Space) -> frozenset[int]:
    """Return the labels of a region that no other node shares; they are never tiled."""
    return e.whole if isinstance(e, Region) else frozenset()


class _Unions:
    """Union-find over every label of every node; each stores its tile as a multiple of its parent's."""

    def __init__(self, graph: EinGraph) -> None:
        self.first: list[int] = []
        n = 0
        for node in graph.nodes:
            self.first.append(n)
            n += len(label_bounds(node))
        self.parent = list(range(n))
        self.ratio: list[Ratio] = [1] * n

    def find(self, x: int) -> int:
        """Return the root of ``x`` and compress its path; ``ratio[x]`` then refers to the root."""
        parent, ratio = self.parent, self.ratio
        path = []
        while parent[x] != x:
            path.append(x)
            x = parent[x]
        for y in reversed(path[:-1]):
            ratio[y] = ratio[y] * ratio[parent[y]]
            parent[y] = x
        return x

    def unite(self, a: int, b: int, ratio: Ratio = 1) -> None:
        """Make the tile of ``a`` be ``ratio`` times that of ``b``, unless they are already united."""
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            whole = ratio * self.ratio[b]
            self.ratio[root_a] = whole if self.ratio[a] == 1 else Fraction(whole) / self.ratio[a]
            self.parent[root_a] = root_b

    def unite_unless_equal(self, a: int, b: int, ratio: Ratio, others: Iterator[int]) -> None:
        """Unite, unless that would tile ``a`` like one of the ``others``."""
        if self.find(a) not in {self.find(x) for x in others if x != b}:
            self.unite(a, b, ratio)

    def count(self) -> int:
        """Return the number of classes."""
        return sum(x == p for x, p in enumerate(self.parent))


def _unite_few(unions: _Unions, graph: EinGraph, uses: Iterable[Use]) -> frozenset[int]:
    """Unite unless too many labels of a node would share a class; return the nodes left separate.

    So labels of a node that are related only by other uses of a tensor, as i and a where T is read as T[i,j] and as
    T[j,a], stay free.
    """
    labels: dict[int, Counter[int]] = {}
    for i, node in enumerate(graph.nodes):
        for x in range(unions.first[i], unions.first[i] + len(label_bounds(node))):
            own = labels.setdefault(unions.find(x), Counter())
            if not isinstance(node, InputNode):
                own[i] += 1
    separate = set()
    for axis, i, p, max_labels in uses:
        a, b = unions.find(axis), unions.find(unions.first[i] + p)
        if a == b:
            continue
        few, many = sorted((labels[a], labels[b]), key=len)
        if any(n + many[j] > max_labels for j, n in few.items() if j in many):
            separate.add(i)
            continue
        unions.unite(unions.first[i] + p, axis)
        many.update(few)
        labels[unions.find(axis)] = many
    return frozenset(separate)


def _unite_pieces(unions: _Unions, graph: EinGraph, i: int, node: ConcatNode) -> None:
    """Unite a piece's axis with that of the concatenation, even if it starts within a tile."""
    for piece in node.pieces:
        shape = graph.nodes[piece.operand].shape
        for a, axis in enumerate(piece.axes):
            if shape[a] > 1:
                others = (unions.first[i] + x for x in range(len(node.shape)))
                unions.unite_unless_equal(unions.first[piece.operand] + a, unions.first[i] + axis, 1, others)


def _unite_indices(unions: _Unions, i: int, node: EinsumNode) -> None:
    """Unite an indexed axis with the label that spans most of the index."""
    e = node.einsum
    for operand, access in zip(node.operands, e.accesses, strict=True):
        for axis, p in enumerate(access):
            if isinstance(p, Index) and p.terms and not p.modulus:
                label, coefficient = max(p.terms, key=lambda term: abs(term[1]) * (e.bounds[term[0]] - 1))
                if label in _never_tiled(e):
                    continue
                others = (unions.first[i] + q for q in range(len(e.bounds)))
                step = abs(coefficient)
                ratio = step // p.divisor if step % p.divisor == 0 else Fraction(step, p.divisor)
                unions.unite_unless_equal(unions.first[operand] + axis, unions.first[i] + label, ratio, others)


def _unite_same_form(unions: _Unions, graph: EinGraph) -> None:
    """Unite labels at the same place of einsums of the same form."""
    seen: dict[object, int] = {}
    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            other = seen.setdefault(form(node.einsum), i)
            for p in range(len(node.einsum.bounds)):
                unions.unite(unions.first[i] + p, unions.first[other] + p)


def form(e: Space) -> tuple[object, ...]:
    """Return a key of what the bytes of a tile depend on: all but the join, names and index offsets."""
    does = (e.n_streamed, e.steps, e.rescales, e.shifts) if isinstance(e, Region) else (e.aggregation,)
    if e.plain:
        return e.bounds, e.n_out, e.accesses, e.dtypes, *does
    accesses = tuple(
        [tuple([p if isinstance(p, int) or not p.affine else p.terms for p in access]) for access in e.accesses]
    )
    return e.bounds, e.n_out, accesses, e.dtypes, *does, e.shapes, e.keys


def _numbered(unions: _Unions, graph: EinGraph) -> LabelClasses:
    """Number the classes and measure each in points of its longest labels."""
    numbers: dict[int, int] = {}
    largest: list[Ratio] = []
    of, ratios = [], []
    for i, node in enumerate(graph.nodes):
        row, own = [], []
        for x in range(unions.first[i], unions.first[i] + len(label_bounds(node))):
            c = numbers.setdefault(unions.find(x), len(numbers))
            ratio = 1 if unions.parent[x] == x else unions.ratio[x]
            if c == len(largest):
                largest.append(ratio)
            elif largest[c] < ratio:
                largest[c] = ratio
            row.append(c)
            own.append(ratio)
        of.append(tuple(row))
        ratios.append(tuple(own))
    bounds, steps = [0] * len(numbers), [1] * len(numbers)
    scaled: dict[int, tuple[Ratio, ...]] = {}
    for i, node in enumerate(graph.nodes):
        for c, ratio, bound in zip(of[i], ratios[i], label_bounds(node), strict=True):
            if ratio == largest[c]:
                bounds[c] = max(bounds[c], bound)
            else:
                share = Fraction(ratio) / largest[c]
                steps[c] = math.lcm(steps[c], share.denominator)
                bounds[c] = max(bounds[c], math.ceil(bound / share))
        if any(r != largest[c] for c, r in zip(of[i], ratios[i], strict=True)):
            scaled[i] = tuple(Fraction(r) / largest[c] for c, r in zip(of[i], ratios[i], strict=True))
    coarsest = [max(1, -(-b // s) * s) for b, s in zip(bounds, steps, strict=True)]
    fixed, notes = _hinted(graph, of, scaled, bounds, coarsest)
    _tile_into_slices(graph, of, bounds, coarsest, fixed)
    regions = [(of[i], n.einsum) for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)]
    whole = frozenset(row[p] for row, e in regions for p in _never_tiled(e))
    tiled_last = frozenset(row[p] for row, e in regions if isinstance(e, Region) for p in e.untiled)
    return LabelClasses(
        tuple(of),
        tuple(bounds),
        tuple(coarsest),
        tuple(steps),
        tuple(steps),
        scaled,
        fixed - whole,
        tuple(notes),
        tiled_last,
        whole,
    )


def _hinted(
    graph: EinGraph,
    of: Sequence[tuple[int, ...]],
    ratios: Mapping[int, tuple[Ratio, ...]],
    bounds: Sequence[int],
    coarsest: list[int],
) -> tuple[frozenset[int], list[str]]:
    """Return the classes whose tile a statement fixes; the first of two statements counts."""
    first: dict[int, EinsumNode] = {}
    notes = []
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, EinsumNode):
            continue
        for p, extent in node.hints.tiles:
            c = of[i][p]
            tile = max(1, math.ceil(extent / ratios[i][p]) if i in ratios else extent)
            if c not in first:
                first[c] = node
                coarsest[c] = min(coarsest[c], tile)
            elif min(tile, bounds[c]) != coarsest[c]:
                notes.append(
                    f"line {node.line}: @tile({node.einsum.labels[p]} = {extent}) is ignored, because line "
                    f"{first[c].line} already fixes the tile of these axes"
                )
    return frozenset(first), notes


def _tile_into_slices(
    graph: EinGraph,
    of: Sequence[tuple[int, ...]],
    bounds: Sequence[int],
    coarsest: list[int],
    fixed: frozenset[int],
) -> None:
    """Tile large intermediate tensors that are read at constant indices index by index."""
    stored = {node for _, node in graph.outputs}
    for node in graph.nodes:
        if not isinstance(node, EinsumNode) or node.einsum.plain:
            continue
        for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
            made = graph.nodes[operand]
            if isinstance(made, InputNode) or operand in stored:
                continue
            for axis, p in enumerate(access):
                c = of[operand][axis]
                if isinstance(p, int) or p.terms or c in fixed or bounds[c] > MAX_SLICES or bounds[c] == 0:
                    continue
                if math.prod(made.shape) // made.shape[axis] * made.dtype.itemsize >= SLICE_NBYTES:
                    coarsest[c] = 1
