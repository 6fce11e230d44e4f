"""Plans by idle times relative to transfer times: Capuchin, G10, TERAIO, FlashNeuron, TENSILE."""

from __future__ import annotations

import numpy as np

from offload_policies.ahead_of_time import AheadOfTimePolicy, UseGap, gaps, idle_seconds
from offload_policies.types import AccessTrace, MemoryView


class Capuchin(AheadOfTimePolicy):
    """Swap hidden transfers, then swap or recompute by the smaller cost, until everything fits.

    Modelled: free time (idle time minus the transfers) ranks the gaps; while it is positive they are swapped; of the
    rest each is swapped or recomputed, whichever exposes less time, most bytes per second first. Returns are triggered
    by the transfer's time, earlier by the link's busy time (the feedback of later iterations, at its fixed point). Not
    modelled: recomputation of chains beyond three kernels.
    Source: Peng et al., Capuchin (ASPLOS 2020).
    """

    name = "capuchin"

    def choose(self) -> None:
        """Repeat until the profile fits."""
        trace = self.trace
        ranked = sorted(gaps(trace), key=lambda g: trace.round_trip(g.value) - idle_seconds(trace, g))
        chosen: list[UseGap] = []
        rest: list[UseGap] = []
        for gap in ranked:
            if self.over() <= 0:
                break
            if not self._helps(gap):
                continue
            if idle_seconds(trace, gap) > trace.round_trip(gap.value):
                chosen.append(gap)
                self.held[gap.after + 1 : gap.before] -= trace.size[gap.value]
            else:
                rest.append(gap)
        remade = self._exposed(rest, chosen)
        self.held[:] = 0
        latest = np.inf  # the link brings values back one after another: each trigger leaves time for those after it
        for gap in sorted(chosen, key=lambda g: -g.before):
            seconds = trace.fetch_seconds(trace.size[gap.value], trace.spill)
            latest = min(latest, trace.begins[gap.before]) - seconds
            self.swap(gap, self.lead(gap, trace.begins[gap.before] - latest))
        for gap in remade:
            self.swap(gap, gap.before, remake=True)

    def _helps(self, gap: UseGap) -> bool:
        """True where a step within the gap exceeds the device."""
        return bool((self.held[gap.after + 1 : gap.before] > self.trace.budgets.device).any())

    def _exposed(self, rest: list[UseGap], chosen: list[UseGap]) -> list[UseGap]:
        """Gaps that hide no swap: added to ``chosen``, or returned if recomputation exposes less time."""
        trace = self.trace

        def swap_cost(gap: UseGap) -> float:
            return max(0.0, trace.round_trip(gap.value) - idle_seconds(trace, gap))

        def remake_cost(gap: UseGap) -> float:
            maker = trace.maker[gap.value]
            kept = maker >= 0 and all(trace.stored[w] or trace.uses[w][-1] >= gap.before for w in trace.reads[maker])
            return trace.seconds[maker] if kept else float("inf")

        remade: list[UseGap] = []
        for gap in sorted(rest, key=lambda g: min(swap_cost(g), remake_cost(g)) / trace.size[g.value]):
            if self.over() <= 0:
                break
            if not self._helps(gap):
                continue
            self.held[gap.after + 1 : gap.before] -= trace.size[gap.value]
            (remade if remake_cost(gap) < swap_cost(gap) else chosen).append(gap)
        return remade


class G10(AheadOfTimePolicy):
    """Choose the gap with the most relief per transfer time, until everything fits.

    Modelled: benefit (bytes times seconds over capacity) relative to the link's time, eviction at once, return as early
    as the profile permits, to the disk if the transfers are hidden, else to the host. Not modelled: the unified page
    table.
    Source: Zhang et al., G10 (MICRO 2023).
    """

    name = "g10"
    disk_first = False

    def choose(self) -> None:
        """Greedy by benefit per second of link time."""
        trace, limit = self.trace, self.trace.budgets.device
        self.link_free = 0.0
        ranked = sorted(gaps(trace), key=self._benefit, reverse=True)
        for gap in ranked:
            if self.over() <= 0:
                break
            if not (self.held[gap.after + 1 : gap.before] > limit).any():
                continue
            disk = self._hides_on_disk(gap)
            tier = "disk" if disk else trace.spill
            latest = self.lead(gap, trace.fetch_seconds(trace.size[gap.value], tier))
            self.swap(gap, self._earliest(gap, latest), disk=disk)

    def _benefit(self, gap: UseGap) -> float:
        pressed = self.held[gap.after + 1 : gap.before] > self.trace.budgets.device
        seconds = np.asarray(self.trace.seconds)[gap.after + 1 : gap.before]
        relief = float(seconds[pressed].sum()) * self.trace.size[gap.value]
        return relief / self.trace.round_trip(gap.value)

    def _earliest(self, gap: UseGap, latest: int) -> int:
        """The earliest step from which on all steps have memory for the value."""
        room = self.held[gap.after + 1 : latest + 1] <= self.trace.budgets.device
        full = np.flatnonzero(~room)
        return gap.after + 2 + int(full[-1]) if len(full) else gap.after + 1

    def _hides_on_disk(self, gap: UseGap) -> bool:
        trace, size = self.trace, self.trace.size[gap.value]
        if trace.spill == "disk":
            return True
        there_and_back = trace.offload_seconds(size, "disk") + trace.fetch_seconds(size, "disk")
        wanted = 1.0 if self.disk_first else 4.0  # G10 uses the disk only with time to spare
        busy = self.link_free <= trace.begins[gap.after + 1]
        if wanted * there_and_back > idle_seconds(trace, gap) or not busy:
            return False
        self.link_free = trace.begins[gap.after + 1] + there_and_back
        return True


class Teraio(G10):
    """As G10, to the disk whenever the transfers are hidden, for disks that the device reads directly.

    Modelled: the offload plan of tensors with long idle times to the disk first, host memory as the fallback.
    Source: Yuan et al., TERAIO (arXiv 2506.06472).
    """

    name = "teraio"
    disk_first = True


class FlashNeuron(AheadOfTimePolicy):
    """Offload values in order of production while transfers are hidden, until everything fits.

    Modelled: the linear choice of phase one and its condition that offloading takes no longer than the kernels that it
    overlaps; returns by the transfer's time. Not modelled: compression, GPUDirect (the nearest memory is used).
    Source: Bae et al., FlashNeuron (FAST 2021).
    """

    name = "flashneuron"

    def choose(self) -> None:
        """In order of time, until everything fits."""
        trace = self.trace
        busy = 0.0
        for gap in sorted(gaps(trace), key=lambda g: g.after):
            if self.over() <= 0:
                break
            size = trace.size[gap.value]
            begin = max(busy, trace.begins[gap.after + 1])
            end = begin + trace.offload_seconds(size, trace.spill)
            back = trace.fetch_seconds(size, trace.spill)
            if trace.stored[gap.value] or end + back > trace.begins[gap.before]:
                continue
            busy = end
            self.swap(gap, self.lead(gap, back))


class Tensile(AheadOfTimePolicy):
    """At the step with the highest demand, evict the largest value with a hidden swap; repeat.

    Modelled: the greedy of one program over its peak, and returns scheduled into free time of the link. Not modelled:
    several programs at once, and swaps across iterations.
    Source: Zhang et al., TENSILE (arXiv 2105.13336).
    """

    name = "tensile"

    def prepare(self, trace: AccessTrace) -> None:
        """Gaps by the steps that they contain."""
        self.all = sorted(gaps(trace), key=lambda g: -trace.size[g.value])
        super().prepare(trace)

    def choose(self) -> None:
        """Repeat until everything fits, or nothing more can leave the largest step."""
        trace = self.trace
        left = self.all
        while self.over() > 0:
            peak = int(self.held.argmax())
            spanning = [g for g in left if g.after < peak < g.before]
            if not spanning:
                return
            hidden = [g for g in spanning if idle_seconds(trace, g) > trace.round_trip(g.value)]
            gap = max(hidden or spanning, key=lambda g: (trace.size[g.value], idle_seconds(trace, g)))
            self.swap(gap, max(peak + 1, self.lead(gap, trace.fetch_seconds(trace.size[gap.value], trace.spill))))
            left = [g for g in left if g is not gap]

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The largest value with the latest next use."""
        return super().price(v, step, memory) / self.trace.size[v]
