"""TURNIP as published, and ours: memory graphs whose order is left open."""

from __future__ import annotations

from collections.abc import Iterable

from offload_policies.types import NEVER, AccessTrace, Eviction, MemoryView, OffloadPolicy

MOST_AHEAD = 256
# How much dearer it is that an accumulator leaves before its sum is whole: it goes when nothing else can.
HALF_MADE = 1e6


class TurnipPolicy(OffloadPolicy):
    """Position-Belady windows, evicted only when forced; allocation runs ahead while bytes are free; no clean copies.

    Modelled: BUILDMEMGRAPH's allocation horizon (here: reads of the next steps, as long as bytes are free), the window
    of neighbours whose earliest next use is latest, every eviction written. Not modelled: outputs allocated ahead.
    Source: Bourgeois et al., TURNIP (arXiv 2405.16283).
    """

    name = "turnip"
    keeps_clean = False
    dearest = True

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values that the next steps read and the device lacks, in the order of its use."""
        return wanted_next(self.trace, step, MOST_AHEAD, memory)


class DefaultPolicy(OffloadPolicy):
    """The default: whom to evict, how, and what to bring ahead, decided in seconds of link time.

    A victim is priced by the transfers that it will cost over the time until it is wanted (a clean copy costs its
    return alone). What the next ``steps_ahead`` steps read is brought, as long as all that they touch fits together
    into ``share`` of the device. ``remake``: a value is made again where its kernels take less than ``remake`` times
    its transfers.
    Source: Belady (1966) for the farthest use; the weights and the bound on what comes ahead are ours.
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
        """Values that the next few steps read and the device lacks, in the order of its use."""
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
        """Seconds of link (or of kernels that make it again) for each second until ``v`` is wanted."""
        wanted = memory.next_use(v)
        if wanted >= NEVER:
            return 0.0
        cost = self.back[v] + (0.0 if memory.clean(v) else self.out[v])
        if self.remake and not memory.clean(v):
            cost = min(cost, memory.remade_in(v) / self.remake)
        if self.made[wanted] == v:  # half made: it would have to be written again and again
            cost *= HALF_MADE
        return cost / max(1, wanted - step)

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """Made again where that takes less than the transfers, else the nearest memory with room."""
        if self.remake and memory.remade_in(v) < self.remake * (self.out[v] + self.back[v]):
            return Eviction.RECOMPUTE
        return super().leave(v, step, memory)


def wanted_next(trace: AccessTrace, step: int, steps: int, memory: MemoryView) -> Iterable[int]:
    """Values that the next ``steps`` steps touch and the device lacks, in the order of its use."""
    for later in range(step + 1, min(step + 1 + steps, len(trace))):
        for v in trace.needs[later]:
            if memory.fetchable(v):
                yield v
