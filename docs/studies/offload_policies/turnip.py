"""TURNIP as published, and ours: memory graphs with an open order."""

from __future__ import annotations

from collections.abc import Iterable

from offload_policies.types import NEVER, AccessTrace, Eviction, MemoryView, OffloadPolicy

MOST_AHEAD = 256
# Factor on the cost of evicting an accumulator before its sum is complete: it goes last.
HALF_MADE = 1e6


class TurnipPolicy(OffloadPolicy):
    """Position-Belady windows, evicted only when forced; allocation runs ahead; no clean copies.

    Modelled: BUILDMEMGRAPH's allocation horizon (here: reads of the next steps, as long as bytes are free), the window
    of neighbours whose earliest next use is latest, every eviction written. Not modelled: outputs allocated ahead.
    Source: Bourgeois et al., TURNIP (arXiv 2405.16283).
    """

    name = "turnip"
    keeps_clean = False
    dearest = True

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values that the next steps read and the device lacks, in the order of their use."""
        return wanted_next(self.trace, step, MOST_AHEAD, memory)


class DefaultPolicy(OffloadPolicy):
    """The default: victims, destinations and prefetches, decided by seconds of link time.

    The price of a victim is its future transfers divided by the time until its next use (a clean copy costs its return
    alone). Values that the next ``steps_ahead`` steps read are fetched, as long as all values of these steps fit into
    ``share`` of the device. ``remake``: a value is recomputed if its kernels take less than ``remake`` times its
    transfers.
    Source: Belady (1966) for the farthest use; the weights and the bound on prefetching are ours.
    """

    name = "ours"
    fetch_evicts = True
    rereads = True

    def __init__(self, steps_ahead: int = 16, share: float = 1.0, remake: float = 0.0) -> None:
        self.steps_ahead = steps_ahead
        self.share = share
        self.remake = remake

    def prepare(self, trace: AccessTrace) -> None:
        """Price a return and a round trip of every value once."""
        super().prepare(trace)
        spill, inputs = trace.spill, trace.machine.inputs
        self.back = [
            trace.fetch_seconds(n, inputs if stored else spill)
            for n, stored in zip(trace.size, trace.stored, strict=True)
        ]
        self.out = [trace.offload_seconds(n, spill) for n in trace.size]
        self.made = trace.tasks.value[trace.task].tolist()

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values that the next few steps read and the device lacks, in the order of their use."""
        trace = self.trace
        room = int(self.share * trace.budgets.device)
        touched: set[int] = set()
        for later in range(step + 1, min(step + 1 + self.steps_ahead, len(trace))):
            for v in trace.needs[later]:
                if v not in touched:
                    touched.add(v)
                    room -= trace.size[v]
            if room < trace.workspace[later]:
                return
            for v in trace.needs[later]:
                if memory.fetchable(v):
                    yield v

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """Seconds of link time (or of recomputation) per second until ``v`` is used."""
        wanted = memory.next_use(v)
        if wanted >= NEVER:
            return 0.0
        cost = self.back[v] + (0.0 if memory.clean(v) else self.out[v])
        if self.remake and not memory.clean(v):
            cost = min(cost, memory.remade_in(v) / self.remake)
        if self.made[wanted] == v:  # incomplete: it would have to be written repeatedly
            cost *= HALF_MADE
        return cost / max(1, wanted - step)

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """Recomputed if that takes less time than the transfers, else the nearest memory with free bytes."""
        if self.remake and memory.remade_in(v) < self.remake * (self.out[v] + self.back[v]):
            return Eviction.RECOMPUTE
        return super().leave(v, step, memory)


def wanted_next(trace: AccessTrace, step: int, steps: int, memory: MemoryView) -> Iterable[int]:
    """Values that the next ``steps`` steps touch and the device lacks, in the order of their use."""
    for later in range(step + 1, min(step + 1 + steps, len(trace))):
        for v in trace.needs[later]:
            if memory.fetchable(v):
                yield v
