"""Finds groups of nodes to fuse: users of one tensor's tiles, and values computed from those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from einturnip.eingraph.fusion.split import split
from einturnip.eingraph.types import NO_HINTS, EinsumNode, Node
from einturnip.ir.einsum import Access, Einsum, Index
from einturnip.ir.scalar import labels_of
from einturnip.tuning.search import MAX_FUSED_STEPS

LabelRef = tuple[int, int]
Links = list[tuple[LabelRef, LabelRef]]


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Nodes that may become one region, in order; the last is its output.

    ``classes`` gives the class of each label of each member; ``streamed`` are the classes that are aggregated, empty
    for groups that process whole rows. ``saved_nbytes`` are bytes that need not be written or read again. ``rest`` is
    set where the last member is only a part of a node that was split: that node's id and its remainder.
    """

    members: tuple[int, ...]
    nodes: tuple[EinsumNode, ...]
    classes: tuple[tuple[int, ...], ...]
    streamed: tuple[int, ...]
    saved_nbytes: int
    rest: tuple[int, EinsumNode] | None = None


@dataclass(frozen=True, slots=True)
class GraphView:
    """A graph's nodes, the readers of each, and the outputs. ``parts`` are nodes that a split would add.

    ``steps`` caches the results of ``einsum``.
    """

    nodes: Sequence[Node]
    users: Sequence[set[int]]
    outputs: frozenset[int]
    parts: dict[int, EinsumNode] = field(default_factory=dict)
    steps: dict[int, Einsum | None] = field(default_factory=dict)

    def node(self, k: int) -> Node:
        """A node of the graph, or a part that a split would add."""
        return self.parts[k] if k in self.parts else self.nodes[k]

    def einsum(self, k: int) -> Einsum | None:
        """The einsum of a node that can be a step; None for other nodes."""
        if k not in self.steps:
            self.steps[k] = _step(self.node(k))
        return self.steps[k]

    def operands(self, k: int) -> tuple[int, ...]:
        """The nodes that an einsum node reads, by slot."""
        node = self.node(k)
        assert isinstance(node, EinsumNode)
        return node.operands

    def member(self, k: int) -> Einsum:
        """The einsum of a node that a group has taken."""
        einsum = self.einsum(k)
        assert einsum is not None
        return einsum

    def saved_nbytes(self, inside: Iterable[int], members: Collection[int]) -> int:
        """Bytes that a group saves: values ``inside``, and tensors that several members read."""
        made = sum(2 * prod(e.shape) * e.dtype.itemsize for e in map(self.member, inside))
        reads = Counter(o for k in members for o in set(self.operands(k)).difference(members))
        nodes = ((self.node(o), n) for o, n in reads.items())
        return made + sum((n - 1) * prod(node.shape) * node.dtype.itemsize for node, n in nodes)


def _step(node: Node) -> Einsum | None:
    if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Einsum) or node.hints != NO_HINTS:
        return None
    einsum = node.einsum
    if 0 in einsum.bounds or (einsum.aggregation is not None and not einsum.aggregated):
        return None
    if any(key.label < einsum.n_out for key in einsum.keys):
        return None
    clamped = any(isinstance(i, Index) and i.clamped for access in einsum.accesses for i in access)
    return None if clamped else einsum


def is_plain(access: Access) -> bool:
    """True for an access of distinct plain labels."""
    return len(set(access)) == len(access) and all(isinstance(p, int) for p in access)


class GroupGrowth:
    """Grows a group from a tensor to be tiled, or from an aggregation of large operands."""

    def __init__(self, view: GraphView, seed: int) -> None:
        self.view, self.seed = view, seed
        self.members = [seed]
        self.links: Links = []
        self.classes: dict[LabelRef, int] = {}
        self.streamed: frozenset[int] = frozenset()
        self._folded: set[LabelRef] = set()
        self._rest: tuple[int, EinsumNode] | None = None

    def tile(self) -> bool:
        """Add all users of the seed and of tensors tiled with it; False where one cannot be fused."""
        while len(self.members) <= MAX_FUSED_STEPS and self._settle():
            outer = set[int]().union(*(self._labels(k, out=True) for k in self.members))
            bound = {(k, p) for k in self.members for p in self.view.member(k).aggregated}
            self._folded = {spot for spot in bound if self.classes[spot] in outer}
            self.streamed = frozenset(self.classes[spot] for spot in self._folded)
            tiled = self._tiled() if self.streamed else self.members
            if self.view.outputs.intersection(tiled):
                return False
            fresh = set[int]().union(*(self.view.users[k] for k in tiled)).difference(self.members)
            if any(self.view.einsum(u) is None for u in fresh):
                return False
            if not fresh:
                return bool(self.streamed)
            self.members = sorted({*self.members, *fresh})
        return False

    def fold(self) -> bool:
        """Stream the labels that the seed aggregates."""
        self._folded = {(self.seed, p) for p in self.view.member(self.seed).aggregated}
        return self._settle()

    def absorb(self) -> None:
        """Add aggregations that only members read, if they read an operand that members read too."""
        for k in reversed(self.members):
            for operand in sorted(set(self.view.operands(k)).difference(self.members), reverse=True):
                self._absorb(operand, frozenset(self.members))

    def finish(self, absorbs: bool) -> bool:
        """Add nodes computed from aggregations alone, until only one is an output; False if several are."""
        while len(self.members) <= MAX_FUSED_STEPS:
            leaving = [k for k in self.members if self._leaves(k)]
            outside = sorted(set[int]().union(*(self.view.users[k] for k in leaving)).difference(self.members))
            if len(leaving) == 1 and (leaving[0] in self.view.outputs or len(outside) != 1):
                return True
            if self.view.outputs.intersection(leaving):
                return False
            if not self._take_final(outside[0], absorbs):
                return len(leaving) == 1 or (len(outside) == 1 and self._split(outside[0], leaving))
        return False

    def group(self) -> FusionGroup | None:
        """Return the group, if the labels of every step are admissible."""
        if not self._settle() or any(self._leaves(k) for k in self.members[:-1]):
            return None
        result = self._labels(self.members[-1], out=True)
        for k in self.members:
            own, bound = self._labels(k, out=True), self._labels(k, out=False)
            if not own <= result | self.streamed or bound & result:
                return None
            if own & self.streamed and bound & self.streamed:
                return None
            final = not (own | bound) & self.streamed
            if final and (bound or not set(self.view.operands(k)) <= set(self.members)):
                return None
        if result & self.streamed:
            return None
        classes = tuple(tuple(self.classes[k, p] for p in range(len(self.view.member(k).labels))) for k in self.members)
        nodes = tuple(node for k in self.members if isinstance(node := self.view.node(k), EinsumNode))
        saved = self.view.saved_nbytes(self._tiled(), self.members)
        return FusionGroup(tuple(self.members), nodes, classes, tuple(sorted(self.streamed)), saved, self._rest)

    def _labels(self, k: int, out: bool) -> set[int]:
        """The classes of the labels of a member's output, or of the labels that it aggregates."""
        einsum = self.view.member(k)
        return {self.classes[k, p] for p in (range(einsum.n_out) if out else einsum.aggregated)}

    def _tiled(self) -> list[int]:
        return [k for k in self.members if self._labels(k, out=True) & self.streamed]

    def _leaves(self, k: int) -> bool:
        outside = {self._rest[0]} if self._rest else set()
        return k in self.view.outputs or bool(self.view.users[k].difference(self.members, outside))

    def _settle(self) -> bool:
        """Unify labels; False where two labels of one node would become the same."""
        found = unify_labels(self.view, self.members, self.links)
        if found is None:
            return False
        self.classes = found
        self.streamed = frozenset(found[spot] for spot in self._folded)
        return True

    def _absorb(self, fold: int, readers: frozenset[int]) -> bool:
        """Add an aggregation that only ``readers`` read, over streamed labels of a member's operand."""
        einsum = self.view.einsum(fold)
        if einsum is None or einsum.aggregation is None or fold in self.view.outputs:
            return False
        if not self.view.users[fold] <= readers:
            return False
        links = self._common(fold)
        if links is None:
            return False
        before = self.members, self.links
        self.members, self.links = sorted([*self.members, fold]), [*self.links, *links]
        folds = self._settle() and self._labels(fold, out=False) & self.streamed
        if folds and not self._labels(fold, out=True) & self.streamed:
            return True
        self.members, self.links = before
        self._settle()
        return False

    def _common(self, fold: int) -> Links | None:
        """Return corresponding labels where an aggregation and a streaming member read one operand."""
        streaming = [k for k in self.members if self.view.member(k).aggregation is not None or k in self._tiled()]
        for slot, operand in enumerate(self.view.operands(fold)):
            for k in streaming:
                for other, o in enumerate(self.view.operands(k)):
                    a, b = self.view.member(fold).accesses[slot], self.view.member(k).accesses[other]
                    if o == operand and is_plain(a) and is_plain(b):
                        return [((fold, plain_label(p)), (k, plain_label(q))) for p, q in zip(a, b, strict=True)]
        return None

    def _take_final(self, node: int, absorbs: bool) -> bool:
        """Add a map of members, and of aggregations that can become members; False where that is not possible."""
        einsum = self.view.einsum(node)
        if einsum is None or einsum.aggregation is not None or labels_of(einsum.join):
            return False
        readers = frozenset((*self.members, node))
        for operand in sorted(set(self.view.operands(node)).difference(self.members)):
            if not absorbs or not self._absorb(operand, readers):
                return False
        before = self.members
        self.members = [*self.members, node]
        if self._settle():
            folded = set[int]().union(*(self._labels(k, out=True) for k in before))
            if self._labels(node, out=True) <= folded:
                return True
        self.members = before
        self._settle()
        return False

    def _split(self, user: int, folds: Sequence[int]) -> bool:
        """Split a node and add the part that is computed from aggregations alone."""
        einsum, node = self.view.einsum(user), self.view.node(user)
        if einsum is None or not isinstance(node, EinsumNode) or not self._settle():
            return False
        slots = {s: o for s, o in enumerate(node.operands) if o in folds}
        n_out = {o: self.view.member(o).n_out for o in folds}
        known = {
            self.classes[o, p]: (self.view.member(o).labels[p], self.view.member(o).bounds[p])
            for o in folds
            for p in range(n_out[o])
        }
        read = {s: [self.classes[o, p] for p in range(n_out[o])] for s, o in slots.items()}
        found = split(einsum, read, known)
        if found is None or any(len(set(classes)) < len(classes) for classes in read.values()):
            return False
        part, reads, rest, left = found
        if prod(part.shape) > prod(einsum.bounds):
            return False
        number = len(self.view.nodes) + user
        self.view.steps.pop(number, None)
        self.view.parts[number] = EinsumNode(
            f"{node.name}.part", part, tuple(node.operands[s] for s in reads), node.line
        )
        operands = (*node.operands, number)
        self._rest = user, replace(node, einsum=rest, operands=tuple(operands[s] for s in left))
        self.members = [*self.members, number]
        return self._settle()


def plain_label(index: int | Index) -> int:
    """The label of a plain index."""
    assert isinstance(index, int)
    return index


def unify_labels(view: GraphView, members: Sequence[int], links: Links) -> dict[LabelRef, int] | None:
    """Return the class of each member's labels; None where an access is not plain or two labels unify."""
    parent: dict[LabelRef, LabelRef] = {}

    def root(spot: LabelRef) -> LabelRef:
        while spot in parent:
            spot = parent[spot]
        return spot

    for a, b in (*_edges(view, members), *links):
        if a is None or b is None:
            return None
        if (low := min(root(a), root(b))) != (high := max(root(a), root(b))):
            parent[high] = low
    numbers: dict[LabelRef, int] = {}
    classes: dict[LabelRef, int] = {}
    for k in members:
        einsum = view.einsum(k)
        assert einsum is not None
        for p in range(len(einsum.labels)):
            found = root((k, p))
            classes[k, p] = numbers.setdefault(found, len(numbers))
        if len({classes[k, p] for p in range(len(einsum.labels))}) < len(einsum.labels):
            return None
    return classes


def _edges(view: GraphView, members: Sequence[int]) -> Iterator[tuple[LabelRef | None, LabelRef | None]]:
    """Yield each label of a value with the label that reads it; None for an index that is no label."""
    inside = set(members)
    for k in members:
        einsum = view.einsum(k)
        assert einsum is not None
        for slot, operand in enumerate(view.operands(k)):
            if operand in inside:
                for axis, p in enumerate(einsum.accesses[slot]):
                    yield (operand, axis), ((k, p) if isinstance(p, int) else None)
