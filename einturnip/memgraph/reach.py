"""Which op comes before which: a cover by chains, and for each op how far along every chain it is reached from.

Source: chain decomposition of a transitive closure (Jagadish, 1990). Chains are grown while the ops are walked: an op
extends any chain whose last op reaches it, so there are about as many chains as ops that may run at once. A vector is
dropped when its op's last successor has merged it; memory follows the frontier, not the graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Vector:
    """For each chain the last position that reaches an op. Holds a span of chains; outside of it nothing does."""

    __slots__ = ("_at", "_low")

    def __init__(self) -> None:
        self._low = 0
        self._at = np.empty(0, np.int32)

    def get(self, chain: int) -> int:
        """Last position of ``chain`` that reaches the op; -1: none."""
        i = chain - self._low
        return int(self._at[i]) if 0 <= i < len(self._at) else -1

    def merge(self, other: Vector, chain: int, position: int) -> None:
        """Whatever reaches the other op reaches this one, and so does that op itself."""
        self._cover(other._low, other._low + len(other._at))
        a = other._low - self._low
        part = self._at[a : a + len(other._at)]
        np.maximum(part, other._at, out=part)
        self._cover(chain, chain + 1)
        if self._at[chain - self._low] < position:
            self._at[chain - self._low] = position

    def ended(self, last: NDArray[np.int32]) -> int:
        """A chain whose last op reaches this one, or -1."""
        hits = np.flatnonzero(self._at == last[self._low : self._low + len(self._at)])
        return self._low + int(hits[0]) if len(hits) else -1

    def _cover(self, low: int, high: int) -> None:
        if low == high:
            return
        if not len(self._at):
            self._low, self._at = low, np.full(high - low, -1, np.int32)
        elif low < self._low or high > self._low + len(self._at):
            start, stop = min(low, self._low), max(high, self._low + len(self._at))
            wider = np.full(stop - start, -1, np.int32)
            wider[self._low - start : self._low - start + len(self._at)] = self._at
            self._low, self._at = start, wider


class Ancestry:
    """Walks the ops once, in order; at op x it knows every op that reaches x. Dependencies have lower numbers."""

    def __init__(self, ptr: Ints, after: NDArray[np.int32]) -> None:
        self.ptr, self.after = ptr.tolist(), after.tolist()
        n = len(ptr) - 1
        self.chain = [0] * n
        self.position = [0] * n
        self.chains = 0
        self._left = np.bincount(after, minlength=n).tolist()

    def __iter__(self) -> Iterator[tuple[int, Vector, list[int]]]:
        """For each op: its id, what reaches it, and those of its dependencies that no other implies."""
        chain, position, left = self.chain, self.position, self._left
        last = np.full(64, -1, np.int32)
        live: dict[int, Vector] = {}
        for x in range(len(self.ptr) - 1):
            reach = Vector()
            needed = []
            # Latest first: whatever another dependency implies has been merged by the time it is met.
            for p in sorted(self.after[self.ptr[x] : self.ptr[x + 1]], reverse=True):
                if reach.get(chain[p]) < position[p]:
                    needed.append(p)
                    reach.merge(live[p], chain[p], position[p])
                left[p] -= 1
                if not left[p]:
                    del live[p]
            c = reach.ended(last)
            if c < 0:
                c = self.chains
                self.chains += 1
                if c == len(last):
                    last = np.concatenate([last, np.full(c, -1, np.int32)])
            last[c] += 1
            chain[x], position[x] = c, int(last[c])
            if left[x]:
                live[x] = reach
            yield x, reach, needed

    def reaches(self, u: int, reach: Vector) -> bool:
        """True if op ``u`` comes before the op whose vector is ``reach``, in every order."""
        return reach.get(self.chain[u]) >= self.position[u]


def reduced(ptr: Ints, after: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int32]]:
    """The transitive reduction: the same order with no dependency that a longer path implies."""
    kept: list[int] = []
    ends = [0]
    for _, _, needed in Ancestry(ptr, after):
        kept.extend(reversed(needed))
        ends.append(len(kept))
    return np.array(ends, np.int64), np.array(kept, np.int32)
