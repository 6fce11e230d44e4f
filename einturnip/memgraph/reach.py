"""Which op comes before which: a greedy cover by chains, and for each op how far along every chain it is reached from.

Source: chain decomposition of a transitive closure (Jagadish, 1990). Vectors are dropped once the last successor has
taken them over, so memory follows the frontier, not the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# Up to this many chains a vector is an array; beyond, graphs are wide, each op is reached from few chains: a dict.
WIDEST_ARRAY = 4096


class Chains:
    """Every op's chain and its position there. Ops are numbered in an order where dependencies come first."""

    def __init__(self, ptr: Sequence[int], after: Sequence[int]) -> None:
        n = len(ptr) - 1
        self.chain = [0] * n
        self.position = [0] * n
        self.successors = [0] * n
        tails: list[int] = []
        for x in range(n):
            best = -1
            for p in after[ptr[x] : ptr[x + 1]]:
                self.successors[p] += 1
                if tails[self.chain[p]] == p and p > best:
                    best = p
            if best < 0:
                self.chain[x] = len(tails)
                tails.append(x)
            else:
                c = self.chain[best]
                self.chain[x], self.position[x] = c, self.position[best] + 1
                tails[c] = x
        self.count = len(tails)


class Ancestry:
    """Walks the ops once, in order; at op x it knows every op that reaches x."""

    def __init__(self, ptr: Ints, after: NDArray[np.int32]) -> None:
        self.ptr, self.after = ptr.tolist(), after.tolist()
        self.chains = Chains(self.ptr, self.after)
        self._left = list(self.chains.successors)
        self._live: dict[int, Vector] = {}

    def __iter__(self) -> Iterator[tuple[int, Vector, list[int]]]:
        """For each op: its id, how far each chain reaches it, and those of its dependencies that no other implies."""
        chain, position = self.chains.chain, self.chains.position
        make = ArrayVector if self.chains.count <= WIDEST_ARRAY else DictVector
        for x in range(len(self.ptr) - 1):
            reach = make(self.chains.count)
            needed = []
            # Latest first: whatever another dependency implies has been merged by the time it is met.
            for p in sorted(self.after[self.ptr[x] : self.ptr[x + 1]], reverse=True):
                if reach.get(chain[p]) < position[p]:
                    needed.append(p)
                    reach.merge(self._live[p])
                    reach.put(chain[p], position[p])
                self._left[p] -= 1
                if not self._left[p]:
                    del self._live[p]
            if self._left[x]:
                self._live[x] = reach
            yield x, reach, needed

    def reaches(self, u: int, reach: Vector) -> bool:
        """True if op ``u`` comes before the op whose vector is ``reach``, in every order."""
        return reach.get(self.chains.chain[u]) >= self.chains.position[u]


class ArrayVector:
    """For each chain, the last position that reaches the op; -1: none."""

    __slots__ = ("_at",)

    def __init__(self, count: int) -> None:
        self._at = np.full(count, -1, np.int32)

    def get(self, chain: int) -> int:
        """Last position of ``chain`` that reaches the op."""
        return int(self._at[chain])

    def put(self, chain: int, position: int) -> None:
        """Note that ``position`` of ``chain`` reaches the op."""
        if self._at[chain] < position:
            self._at[chain] = position

    def merge(self, other: Vector) -> None:
        """Whatever reaches the other op reaches this one."""
        assert isinstance(other, ArrayVector)
        np.maximum(self._at, other._at, out=self._at)


class DictVector:
    """The same, for a graph of very many chains: absent means none."""

    __slots__ = ("_at",)

    def __init__(self, count: int) -> None:
        self._at: dict[int, int] = {}

    def get(self, chain: int) -> int:
        """Last position of ``chain`` that reaches the op."""
        return self._at.get(chain, -1)

    def put(self, chain: int, position: int) -> None:
        """Note that ``position`` of ``chain`` reaches the op."""
        if self._at.get(chain, -1) < position:
            self._at[chain] = position

    def merge(self, other: Vector) -> None:
        """Whatever reaches the other op reaches this one."""
        assert isinstance(other, DictVector)
        if not self._at:
            self._at = dict(other._at)
            return
        for c, p in other._at.items():
            if self._at.get(c, -1) < p:
                self._at[c] = p


Vector = ArrayVector | DictVector


def reduced(ptr: Ints, after: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int32]]:
    """The transitive reduction: the same order with no dependency that a longer path implies."""
    kept: list[int] = []
    ends = [0]
    for _, _, needed in Ancestry(ptr, after):
        kept.extend(reversed(needed))
        ends.append(len(kept))
    return np.array(ends, np.int64), np.array(kept, np.int32)
