"""TURNIP as published, and ours: memory graphs whose order is left open."""

from __future__ import annotations

from collections.abc import Iterable

from einturnip.memgraph.policies.types import NEVER, Leave, Memory, Policy, Trace

# Of the device's bytes, how many may be filled ahead with what the next steps read.
_SHARE = 0.5
MOST_AHEAD = 256


class Turnip(Policy):
    """Position-Belady windows, evicted only when forced; allocation runs ahead while bytes are free; no clean copies.

    Modelled: BUILDMEMGRAPH's allocation horizon (here: reads of the next steps, as long as bytes are free), the window
    of neighbours whose earliest next use is latest, every eviction written. Not modelled: outputs allocated ahead.
    Source: Bourgeois et al., TURNIP (arXiv 2405.16283).
    """

    name = "turnip"
    keeps_clean = False
    dearest = True

    def ahead(self, step: int, memory: Memory) -> Iterable[int]:
        """What the next steps read and the device lacks, in the order of its use."""
        return wanted_next(self.trace, step, MOST_AHEAD, memory)


class Ours(Policy):
    """The default: whom to evict, how, and what to bring ahead, decided in seconds of link time.

    A victim is priced by the transfers that it will cost over the time until it is wanted (a clean copy costs its
    return alone). ``ahead_share``: bytes of the device that reads of the next steps may take before their turn.
    ``early``: while the link out would stand still, what is wanted latest is written ahead of being pushed out.
    ``remake``: a value is made again where its kernels take less than ``remake`` times its transfers.
    Source: Belady (1966) for the farthest use; weights, early writes and remaking are ours.
    """

    name = "ours"
    fetch_evicts = True

    def __init__(self, steps_ahead: int = 4, weight: float = 1.0, remake: float = 0.0, power: float = 1.0) -> None:
        self.steps_ahead = steps_ahead
        self.weight = weight
        self.remake = remake
        self.power = power

    def prepare(self, trace: Trace) -> None:
        """Price a return and a round trip of every value once."""
        super().prepare(trace)
        spill, inputs = trace.spill, trace.machine.inputs
        self.back = [
            trace.fetch_seconds(n, inputs if stored else spill)
            for n, stored in zip(trace.size, trace.stored, strict=True)
        ]
        self.out = [trace.offload_seconds(n, spill) for n in trace.size]

    def ahead(self, step: int, memory: Memory) -> Iterable[int]:
        """What the next few steps read and the device lacks, in the order of its use."""
        return wanted_next(self.trace, step, self.steps_ahead, memory)

    def price(self, v: int, step: int, memory: Memory) -> float:
        """Seconds of link (or of kernels that make it again) for each second until ``v`` is wanted."""
        wanted = memory.next_use(v)
        if wanted >= NEVER:
            return 0.0
        cost = self.back[v] + (0.0 if memory.clean(v) else self.weight * self.out[v])
        if self.remake and not memory.clean(v):
            cost = min(cost, memory.remade_in(v) / self.remake)
        return float(cost / max(1, wanted - step) ** self.power)

    def leave(self, v: int, step: int, memory: Memory) -> Leave:
        """Made again where that takes less than the transfers, else the nearest memory with room."""
        if self.remake and memory.remade_in(v) < self.remake * (self.out[v] + self.back[v]):
            return Leave.RECOMPUTE
        return super().leave(v, step, memory)


def wanted_next(trace: Trace, step: int, steps: int, memory: Memory) -> Iterable[int]:
    """What the next ``steps`` steps touch and the device lacks, in the order of its use."""
    for later in range(step + 1, min(step + 1 + steps, len(trace))):
        for v in trace.needs[later]:
            if memory.fetchable(v):
                yield v
