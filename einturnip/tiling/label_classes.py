"""Which labels are cut alike, over a whole graph.

An axis and every label that indexes it form one class, so that no repartition is needed between the nodes. An index
that is affine in one label, or in one more than in the others, unites too: shifted reads stay on aligned tiles but for
their halo, and a split or strided axis is cut in proportion.
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

Ratio: TypeAlias = int | Fraction
# An axis of a tensor, the node that reads it, the label that indexes it there, and how many labels may fall together.
Use: TypeAlias = tuple[int, int, int, int]

# With more classes than this, einsums of one form are cut alike, so that the search stays short.
MOST_CLASSES = 500
# A tensor that is read one index at a time along an axis is made so, if that is this many bytes, and not oftener.
SLICE_NBYTES = 1 << 16
MOST_SLICES = 4096
# Through a tensor of at most so many bytes, no more than so many labels of one node come to be cut alike: it can stand
# whole, or be copied in other tiles, at no cost; while of ten labels cut alike one step makes tiles 2^10 times smaller.
SMALL_NBYTES = 1 << 16
MOST_ALIKE = 2


def label_bounds(node: Node) -> tuple[int, ...]:
    """Sizes of what a node's partitioning cuts: an einsum's labels, else the axes."""
    return node.einsum.bounds if isinstance(node, EinsumNode) else node.shape


@dataclass(frozen=True, slots=True)
class LabelClasses:
    """Which labels are cut alike: ``of[node][label]`` is the class, ``bounds[class]`` its size.

    A class counts in the points of its longest labels; ``ratios[node][label]``, where given, is how many points of the
    label go with one of those (at most 1), and tiles that are multiples of ``steps[class]`` meet in all members; those
    of ``chunks[class]`` end where stored chunks do.
    ``coarsest[class]`` is the largest tile; ``fixed`` are classes whose tile the program states, ``kept`` those that
    are cut when nothing else can be, ``whole`` those that never are; ``notes`` says which statements were not heeded.
    ``apart`` are nodes of which an operand that another node makes is not cut as the labels that index it.
    """

    of: tuple[tuple[int, ...], ...]
    bounds: tuple[int, ...]
    coarsest: tuple[int, ...]
    steps: tuple[int, ...]
    chunks: tuple[int, ...]
    ratios: Mapping[int, tuple[Ratio, ...]] = field(default_factory=dict)
    fixed: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    kept: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()

    def tiles(self, node: int, bounds: Sequence[int], tiles: Sequence[int]) -> tuple[int, ...]:
        """The tile's extent along each label of a node, where the classes are cut into ``tiles``."""
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
            untiled = _never_cut(node.einsum)
            for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
                made = graph.nodes[operand]
                nbytes = math.prod(made.shape) * made.dtype.itemsize
                for axis, p in enumerate(access, unions.first[operand]):
                    if not isinstance(p, int) or p in untiled:
                        continue
                    if isinstance(made, InputNode):
                        stored.append((axis, i, p))
                    elif nbytes <= SMALL_NBYTES:
                        small.append((-nbytes, (axis, i, p, MOST_ALIKE)))
                    else:
                        unions.unite(unions.first[i] + p, axis)
    several = {use for use, n in Counter((axis, i) for axis, i, _ in stored).items() if n > 1}
    apart = _unite_few(unions, graph, (use for _, use in sorted(small, key=itemgetter(0))))
    _unite_few(unions, graph, ((a, i, p, MOST_ALIKE if (a, i) in several else 1) for a, i, p in stored))
    for i, node in enumerate(graph.nodes):
        if isinstance(node, ConcatNode):
            _unite_pieces(unions, graph, i, node)
        elif isinstance(node, EinsumNode) and not node.einsum.plain:
            _unite_indices(unions, i, node)
    if unions.count() > MOST_CLASSES:
        _unite_alike(unions, graph)
    return replace(_numbered(unions, graph), apart=apart)


def _never_cut(e: Space) -> frozenset[int]:
    """Labels of a region that stand alone, so that no other node has them cut."""
    return e.whole if isinstance(e, Region) else frozenset()


class _Unions:
    """Union-find over every label of every node; each knows its tile as a multiple of its parent's."""

    def __init__(self, graph: EinGraph) -> None:
        self.first: list[int] = []
        n = 0
        for node in graph.nodes:
            self.first.append(n)
            n += len(label_bounds(node))
        self.parent = list(range(n))
        self.ratio: list[Ratio] = [1] * n

    def find(self, x: int) -> int:
        """The root of ``x``; afterwards it is its parent, and ``ratio[x]`` counts in the root's tile."""
        parent, ratio = self.parent, self.ratio
        way = []
        while parent[x] != x:
            way.append(x)
            x = parent[x]
        for y in reversed(way[:-1]):
            ratio[y] = ratio[y] * ratio[parent[y]]
            parent[y] = x
        return x

    def unite(self, a: int, b: int, ratio: Ratio = 1) -> None:
        """Make the tile of ``a`` be ``ratio`` times that of ``b``, unless they are of one class already."""
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            whole = ratio * self.ratio[b]
            self.ratio[root_a] = whole if self.ratio[a] == 1 else Fraction(whole) / self.ratio[a]
            self.parent[root_a] = root_b

    def unite_apart(self, a: int, b: int, ratio: Ratio, others: Iterator[int]) -> None:
        """Unite, unless that would cut ``a`` like one of the ``others``."""
        if self.find(a) not in {self.find(x) for x in others if x != b}:
            self.unite(a, b, ratio)

    def count(self) -> int:
        """Number of classes."""
        return sum(x == p for x, p in enumerate(self.parent))


def _unite_few(unions: _Unions, graph: EinGraph, uses: Iterable[Use]) -> frozenset[int]:
    """Unite where no more labels of any node fall together by it than the use allows; the nodes where it is not done.

    So labels of a node that meet only through uses of a tensor elsewhere, as i and a where T is read as T[i,j] and as
    T[j,a], stay free.
    """
    labels: dict[int, Counter[int]] = {}
    for i, node in enumerate(graph.nodes):
        for x in range(unions.first[i], unions.first[i] + len(label_bounds(node))):
            own = labels.setdefault(unions.find(x), Counter())
            if not isinstance(node, InputNode):
                own[i] += 1
    apart = set()
    for axis, i, p, most in uses:
        a, b = unions.find(axis), unions.find(unions.first[i] + p)
        if a == b:
            continue
        few, many = sorted((labels[a], labels[b]), key=len)
        if any(n + many[j] > most for j, n in few.items() if j in many):
            apart.add(i)
            continue
        unions.unite(unions.first[i] + p, axis)
        many.update(few)
        labels[unions.find(axis)] = many
    return frozenset(apart)


def _unite_pieces(unions: _Unions, graph: EinGraph, i: int, node: ConcatNode) -> None:
    """A piece's axis is cut as the whole's, even where it starts within a tile."""
    for piece in node.pieces:
        shape = graph.nodes[piece.operand].shape
        for a, axis in enumerate(piece.axes):
            if shape[a] > 1:
                others = (unions.first[i] + x for x in range(len(node.shape)))
                unions.unite_apart(unions.first[piece.operand] + a, unions.first[i] + axis, 1, others)


def _unite_indices(unions: _Unions, i: int, node: EinsumNode) -> None:
    """An axis that an index walks along is cut in proportion to the label that takes the index farthest."""
    e = node.einsum
    for operand, access in zip(node.operands, e.accesses, strict=True):
        for axis, p in enumerate(access):
            if isinstance(p, Index) and p.terms and not p.modulus:
                label, coefficient = max(p.terms, key=lambda term: abs(term[1]) * (e.bounds[term[0]] - 1))
                if label in _never_cut(e):
                    continue
                others = (unions.first[i] + q for q in range(len(e.bounds)))
                step = abs(coefficient)
                ratio = step // p.divisor if step % p.divisor == 0 else Fraction(step, p.divisor)
                unions.unite_apart(unions.first[operand] + axis, unions.first[i] + label, ratio, others)


def _unite_alike(unions: _Unions, graph: EinGraph) -> None:
    """Labels that stand at one place of einsums of one form are cut alike."""
    seen: dict[object, int] = {}
    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            other = seen.setdefault(form(node.einsum), i)
            for p in range(len(node.einsum.bounds)):
                unions.unite(unions.first[i] + p, unions.first[other] + p)


def form(e: Space) -> tuple[object, ...]:
    """What the bytes of a tile hang on: all but the join, names, and where affine indices begin."""
    does = (e.n_streamed, e.steps, e.rescales, e.shifts) if isinstance(e, Region) else (e.aggregation,)
    if e.plain:
        return e.bounds, e.n_out, e.accesses, e.dtypes, *does
    accesses = tuple(
        [tuple([p if isinstance(p, int) or not p.affine else p.terms for p in access]) for access in e.accesses]
    )
    return e.bounds, e.n_out, accesses, e.dtypes, *does, e.shapes, e.keys


def _numbered(unions: _Unions, graph: EinGraph) -> LabelClasses:
    """Classes by number, each counted in the points of its longest labels."""
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
    _cut_into_slices(graph, of, bounds, coarsest, fixed)
    regions = [(of[i], n.einsum) for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)]
    whole = frozenset(row[p] for row, e in regions for p in _never_cut(e))
    kept = frozenset(row[p] for row, e in regions if isinstance(e, Region) for p in e.untiled)
    return LabelClasses(
        tuple(of),
        tuple(bounds),
        tuple(coarsest),
        tuple(steps),
        tuple(steps),
        scaled,
        fixed - whole,
        tuple(notes),
        kept,
        whole,
    )


def _hinted(
    graph: EinGraph,
    of: Sequence[tuple[int, ...]],
    ratios: Mapping[int, tuple[Ratio, ...]],
    bounds: Sequence[int],
    coarsest: list[int],
) -> tuple[frozenset[int], list[str]]:
    """Classes whose tile a statement fixes, entered in ``coarsest``; of two statements the first counts."""
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
                    f"line {node.line}: @tile({node.einsum.labels[p]} = {extent}) gives way to the one of line "
                    f"{first[c].line}, which cuts the same axes"
                )
    return frozenset(first), notes


def _cut_into_slices(
    graph: EinGraph,
    of: Sequence[tuple[int, ...]],
    bounds: Sequence[int],
    coarsest: list[int],
    fixed: frozenset[int],
) -> None:
    """Where large tensors that are made on the way are read at constant indices, make them index by index."""
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
                if isinstance(p, int) or p.terms or c in fixed or bounds[c] > MOST_SLICES or bounds[c] == 0:
                    continue
                if math.prod(made.shape) // made.shape[axis] * made.dtype.itemsize >= SLICE_NBYTES:
                    coarsest[c] = 1
