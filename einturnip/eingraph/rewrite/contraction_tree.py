"""Improves a contraction order, represented as a tree, by optimizing its subtrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from einturnip.eingraph.rewrite.optimal_order import Labels, Pairs, Sizes, best, operations, steps
from einturnip.tuning.search import MAX_EXHAUSTIVE


def improve_order(
    pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes, limit: int | None, max_tries: int
) -> Pairs:
    """Optimize subtrees of MAX_EXHAUSTIVE factors, until none improves or ``max_tries`` have been tried.

    Source: Gray and Kourtis, Hyper-optimized tensor network contraction (2021), on subtrees.
    """
    tree = _Tree(pairs, factors, out, sizes)
    left, gains = max_tries, True
    while gains and left > 0:
        gains = False
        for node in tree.inner():
            if left > 0 and node in tree.children and (parts := tree.untried_parts(node)):
                left -= 1
                gains = tree.reorder(node, *parts, limit) or gains
    return tree.pairs()


class _Tree:
    """A contraction tree: nodes are the factors, then the products; each product has two children."""

    def __init__(self, pairs: Pairs, factors: Sequence[Labels], out: Labels, sizes: Sizes) -> None:
        self.sizes = sizes
        self.leaves = len(factors)
        self.labels = dict(enumerate(factors))
        self.children: dict[int, tuple[int, int]] = {}
        for node, (a, b, _, made) in enumerate(steps(pairs, factors, out), self.leaves):
            self.children[node], self.labels[node] = (a, b), made
        self.root = len(self.labels) - 1
        self._next = self.root + 1
        self._tried: dict[int, list[int]] = {}

    def inner(self) -> list[int]:
        """The products, each after its operands."""
        found, ahead = [], [self.root]
        while ahead:
            node = ahead.pop()
            if node in self.children:
                found.append(node)
                ahead += self.children[node]
        return found[::-1]

    def untried_parts(self, node: int) -> tuple[list[int], list[int]] | None:
        """Return the parts of a product and the products within it; None if there is nothing to search for.

        That is so for two parts, and for those of the last call.
        """
        parts, within = self._parts(node)
        if len(parts) < 3 or self._tried.get(node) == parts:
            return None
        self._tried[node] = parts
        return parts, within

    def reorder(self, node: int, parts: list[int], within: list[int], limit: int | None) -> bool:
        """Reorder a product of up to MAX_EXHAUSTIVE parts optimally; True where that reduces the operations."""
        found = best([self.labels[p] for p in parts], self.labels[node], self.sizes, limit)
        if found is None or found[0] >= sum(map(self._operations, within)):
            return False
        for gone in within:
            del self.children[gone]
        new = [*range(self._next, self._next + len(parts) - 2), node]
        self._next += len(parts) - 2
        nodes = parts + new
        for made, (a, b, _, labels) in zip(
            new, steps(found[1], [self.labels[p] for p in parts], self.labels[node]), strict=True
        ):
            self.children[made], self.labels[made] = (nodes[a], nodes[b]), labels
        return True

    def _parts(self, node: int) -> tuple[list[int], list[int]]:
        """Expand a product into up to MAX_EXHAUSTIVE parts, largest first; also return the expanded products."""
        parts, within = list(self.children[node]), [node]
        while len(parts) < MAX_EXHAUSTIVE:
            apart = max((p for p in parts if p in self.children), key=self._elements, default=None)
            if apart is None:
                break
            parts.remove(apart)
            parts += self.children[apart]
            within.append(apart)
        return parts, within

    def _elements(self, node: int) -> int:
        return prod(self.sizes[label] for label in self.labels[node])

    def _operations(self, node: int) -> int:
        a, b = self.children[node]
        return operations(self.labels[a] | self.labels[b], self.labels[node], self.sizes)

    def pairs(self) -> Pairs:
        """Return the order as positions in a list that removes two factors and appends their product."""
        return tuple(self._positions())

    def _positions(self) -> Iterator[tuple[int, int]]:
        listed = list(range(self.leaves))
        for node in self.inner():
            i, j = sorted(map(listed.index, self.children[node]))
            del listed[j], listed[i]
            listed.append(node)
            yield i, j
