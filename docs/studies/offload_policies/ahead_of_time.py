"""Plans made before the walk: for chosen gaps between two uses of a value, its departure and return.

Most published systems choose *which* gaps and *when*; everything else is here. If they run out of memory nevertheless,
the value with the latest next use is evicted. Inputs arrive a few steps before their first use, since those systems
have them on the device, or feed them, before a step begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offload_policies.types import AccessTrace, Eviction, MemoryView, OffloadPolicy

# Number of steps before its first use at which a tile of an input arrives.
FED = 8


@dataclass(frozen=True, slots=True)
class UseGap:
    """No step between ``after`` and ``before``, two consecutive uses, touches ``value``."""

    value: int
    after: int
    before: int


def gaps(trace: AccessTrace) -> Iterator[UseGap]:
    """Every gap with at least one step, by value."""
    for v, uses in enumerate(trace.uses):
        for a, b in zip(uses[:-1], uses[1:], strict=True):
            if b - a > 1:
                yield UseGap(v, a, b)


def idle_seconds(trace: AccessTrace, gap: UseGap) -> float:
    """Seconds of kernels within the gap."""
    return trace.begins[gap.before] - trace.begins[gap.after + 1]


def profile(trace: AccessTrace) -> NDArray[np.int64]:
    """Bytes in use at each step if nothing leaves before its last use."""
    change = np.zeros(len(trace) + 1, np.int64)
    for v, uses in enumerate(trace.uses):
        if uses:
            change[uses[0]] += trace.size[v]
            change[uses[-1] + 1] -= trace.size[v]
    held: NDArray[np.int64] = np.cumsum(change)[:-1] + np.array(trace.workspace, np.int64)
    return held


class AheadOfTimePolicy(OffloadPolicy):
    """Chosen gaps. ``choose`` fills them with ``swap``; offloads begin at once, returns at a given step."""

    free = False

    def prepare(self, trace: AccessTrace) -> None:
        """Choose the gaps."""
        super().prepare(trace)
        self.out: dict[int, list[int]] = {}
        self.back: dict[int, list[int]] = {}
        self.remakes: set[tuple[int, int]] = set()
        self.to_disk: set[tuple[int, int]] = set()
        self.pending: list[int] = []
        self.held = profile(trace)
        self.choose()

    def choose(self) -> None:
        """Call ``swap`` for each gap in which a value leaves."""
        raise NotImplementedError

    def swap(self, gap: UseGap, back: int, remake: bool = False, disk: bool = False) -> None:
        """Offload the value after ``gap.after`` and bring it back after step ``back``."""
        self.out.setdefault(gap.after + 1, []).append(gap.value)
        if remake:
            self.remakes.add((gap.value, gap.before))
        else:
            self.back.setdefault(max(gap.after + 1, min(back, gap.before - 1)), []).append(gap.value)
        if disk:
            self.to_disk.add((gap.value, gap.before))
        self.held[gap.after + 1 : gap.before if remake else max(gap.after + 2, back)] -= self.trace.size[gap.value]

    def over(self) -> int:
        """Bytes by which the largest step still exceeds the device."""
        return int(self.held.max(initial=0)) - self.trace.budgets.device

    def lead(self, gap: UseGap, seconds: float) -> int:
        """The latest step in the gap that begins ``seconds`` of kernels before the gap's end."""
        at = int(np.searchsorted(self.trace.begins, self.trace.begins[gap.before] - seconds, side="right")) - 1
        return max(gap.after + 1, min(at, gap.before - 1))

    def give_up(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values chosen to leave now."""
        return self.out.get(step, ())

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values chosen to return now, or earlier if they found no memory."""
        self.pending += self.back.get(step, ())
        self.pending = [v for v in self.pending if memory.fetchable(v)]
        return (*self.pending, *self._fed(step, memory))

    def _fed(self, step: int, memory: MemoryView) -> Iterator[int]:
        trace = self.trace
        for later in range(step + 1, min(step + 1 + FED, len(trace))):
            for v in trace.needs[later]:
                if trace.stored[v] and memory.last_use(v) < 0 and memory.fetchable(v):
                    yield v

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """As chosen for the current gap; by default the nearest memory with free bytes."""
        key = v, memory.next_use(v)
        if key in self.remakes:
            return Eviction.RECOMPUTE
        return Eviction.DISK if key in self.to_disk else super().leave(v, step, memory)
