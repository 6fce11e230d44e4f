"""Finds groups that run row by row: aggregations along a row, and maps of the row and the results.

Softmax and normalizations have this form. A row is read once, then aggregated, mapped and stored while it is in the
cache. No algebraic law is needed, because every aggregation is complete before a step reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from einturnip.eingraph.fusion.groups import (
    FusionGroup,
    GraphView,
    LabelRef,
    Links,
    is_plain,
    plain_label,
    unify_labels,
)
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum, contraction
from einturnip.tuning.search import MAX_FUSED_STEPS, MAX_ROW_NBYTES


def row_groups(view: GraphView) -> Iterator[FusionGroup]:
    """Yield, for each last node, the largest group that ends there and aggregates something."""
    for last in range(len(view.nodes)):
        rows = _Rows(view, last)
        if rows.can_start():
            rows.grow()
            group = rows.group()
            if group is not None:
                yield group


class _Rows:
    """Grows a group backwards from its last node. ``folded`` are the classes along a row."""

    def __init__(self, view: GraphView, last: int) -> None:
        self.view, self.last = view, last
        self.members = [last]
        self.links: Links = []
        self.classes: dict[LabelRef, int] = {}
        self.folded: frozenset[int] = frozenset()

    def can_start(self) -> bool:
        """True where the last node is a map that can be a step."""
        einsum = self._step(self.last)
        return einsum is not None and einsum.aggregation is None and bool(einsum.n_out) and self._settle()

    def grow(self) -> None:
        """Add nodes that only members read, as long as every step keeps to the rows."""
        while len(self.members) < MAX_FUSED_STEPS:
            read = {o for k in self.members for o in self.view.operands(k)}.difference(self.members)
            if not any(self._take(o) for o in sorted(read, reverse=True)):
                return

    def group(self) -> FusionGroup | None:
        """Return the group, if some member aggregates rows that fit in the cache."""
        if not self.folded:
            return None
        nodes = tuple(node for k in self.members if isinstance(node := self.view.node(k), EinsumNode))
        reads = {o for node in nodes for o in node.operands}.difference(self.members)
        itemsize = max(self.view.node(k).dtype.itemsize for k in (*self.members, *reads))
        last = self.view.member(self.last)
        along = prod(last.bounds[p] for p in range(last.n_out) if self.classes[self.last, p] in self.folded)
        if along * itemsize > MAX_ROW_NBYTES:
            return None
        classes = tuple(tuple(self.classes[k, p] for p in range(len(self.view.member(k).labels))) for k in self.members)
        saved = self.view.saved_nbytes(self.members[:-1], self.members)
        return FusionGroup(tuple(self.members), nodes, classes, (), saved)

    def _step(self, k: int) -> Einsum | None:
        einsum = self.view.einsum(k)
        if einsum is None or einsum.keys or not all(map(is_plain, einsum.accesses)):
            return None
        product = contraction(einsum)
        return None if product is not None and product.m and product.n else einsum

    def _take(self, k: int) -> bool:
        """Add a node that only members read, if its labels unify with theirs."""
        if k in self.view.outputs or not self.view.users[k].issubset(self.members) or self._step(k) is None:
            return False
        before = self.members, self.links
        for links in self._link_candidates(k):
            self.members, self.links = sorted([*before[0], k]), [*before[1], *links]
            if self._settle():
                return True
        self.members, self.links = before
        self._settle()
        return False

    def _link_candidates(self, k: int) -> Iterator[Links]:
        """Yield candidate label links with the members: from reads alone, then from each commonly read tensor."""
        yield []
        mine = zip(self.view.operands(k), self.view.member(k).accesses, strict=True)
        by_tensor = dict(mine)
        for other in self.members:
            links: Links = []
            for o, access in zip(self.view.operands(other), self.view.member(other).accesses, strict=True):
                if o in by_tensor:
                    pairs = zip(by_tensor[o], access, strict=True)
                    links += [((k, plain_label(p)), (other, plain_label(q))) for p, q in pairs]
            if links:
                yield links

    def _settle(self) -> bool:
        """Unify labels; False unless every member has whole rows, or one value for each row."""
        found = unify_labels(self.view, self.members, self.links)
        if found is None:
            return False
        bound = {k: {found[k, p] for p in self.view.member(k).aggregated} for k in self.members}
        along = frozenset[int]().union(*bound.values())
        whole = {found[self.last, p] for p in range(self.view.member(self.last).n_out)}
        if not along <= whole:
            return False
        for k in self.members:
            own = {found[k, p] for p in range(self.view.member(k).n_out)}
            if bound[k] not in (set(), along) or (own != whole - along and (bound[k] or own != whole)):
                return False
        self.classes, self.folded = found, along
        return True
