"""Plans by network layers: vDNN, TFLMS, SuperNeurons, Sentinel; by classes of tensors: ZeRO, FlexGen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import product

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.runtime.simulate.machine_prices import products
from offload_policies.ahead_of_time import AheadOfTimePolicy, UseGap, gaps
from offload_policies.paging import DemandPaging
from offload_policies.types import AccessTrace, Eviction, MemoryView, OffloadPolicy


def layers(trace: AccessTrace) -> list[int]:
    """The first step of each layer, which is a run of steps of one node."""
    node = trace.tasks.node
    found: list[int] = []
    for step, task in enumerate(trace.task):
        if not found or node[task] != node[trace.task[found[-1]]]:
            found.append(step)
    return found


class VDNN(AheadOfTimePolicy):
    """Layer by layer: a layer's values leave after the layer that reads them, and return a layer early.

    Modelled: offload-all, weights stay, the next layer waits for the offloads of this one, returns are issued one layer
    ahead. A layer is a run of kernels of one node. Not modelled: the choice of cuDNN algorithms.
    Source: Rhu et al., vDNN (MICRO 2016).
    """

    name = "vdnn-all"
    waits_for_offloads = True
    only_read_by_products = False

    def choose(self) -> None:
        """Every gap that contains a whole layer."""
        starts = layers(self.trace)
        multiply = products(self.trace.tasks)
        for gap in gaps(self.trace):
            of_use, of_return = bisect_right(starts, gap.after) - 1, bisect_right(starts, gap.before) - 1
            if self.trace.stored[gap.value] or of_return - of_use < 2:
                continue
            if self.only_read_by_products and not multiply[self.trace.task[gap.after]]:
                continue
            self.swap(gap, starts[of_return - 1])


class VDNNConv(VDNN):
    """As vDNN, but only values that convolutions read leave; here: contractions.

    Source: Rhu et al., vDNN (MICRO 2016), offload-conv.
    """

    name = "vdnn-conv"
    only_read_by_products = True


class TFLMS(AheadOfTimePolicy):
    """Swaps by distance: values with a next use beyond a threshold of layers leave, and return early.

    Modelled: the largest threshold with which the profile fits the device (as TFLMS tunes it), returns one layer ahead,
    longest distances first. Not modelled: fused swap-ins of one tensor (here they are one anyway).
    Source: Le et al., TFLMS (arXiv 1807.02037).
    """

    name = "tflms"

    def choose(self) -> None:
        """In order of falling distance, until everything fits."""
        starts = layers(self.trace)
        place = [bisect_right(starts, step) - 1 for step in range(len(self.trace))]
        far = sorted(gaps(self.trace), key=lambda g: place[g.after] - place[g.before])
        last = 0
        for gap in far:
            distance = place[gap.before] - place[gap.after]
            if distance < 2 or (distance != last and self.over() <= 0):
                break
            last = distance
            self.swap(gap, starts[place[gap.before] - 1])


class SuperNeurons(DemandPaging):
    """A tensor cache with LRU eviction, recomputation of cheap values, and prefetch of the next layer.

    Modelled: liveness, the LRU tensor cache, cost-aware recomputation of all but contractions (whose results are the
    checkpoints), prefetch up to the next contraction. Not modelled: workspace tuning, P2P and remote pools.
    Source: Wang et al., SuperNeurons (PPoPP 2018).
    """

    name = "superneurons"

    def prepare(self, trace: AccessTrace) -> None:
        """Find the layers and the checkpoints."""
        super().prepare(trace)
        self.starts = layers(trace)
        self.product = products(trace.tasks)

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values that this layer and the next read."""
        at = bisect_right(self.starts, step)
        end = self.starts[at + 1] if at + 1 < len(self.starts) else len(self.trace)
        for later in range(step + 1, end):
            for v in self.trace.needs[later]:
                if memory.fetchable(v):
                    yield v

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """Recomputed unless a contraction produces it."""
        maker = self.trace.maker[v]
        if maker >= 0 and not self.product[self.trace.task[maker]] and memory.remade_in(v) < self.trace.round_trip(v):
            return Eviction.RECOMPUTE
        return super().leave(v, step, memory)


class Sentinel(OffloadPolicy):
    """Intervals of layers: at the start of each, the next one's values arrive and unneeded ones leave.

    Modelled: short-lived values (within an interval) are never moved; the interval is the longest of which two fit the
    device. Not modelled: page-level profiling and false sharing, since values are tiles here.
    Source: Ren et al., Sentinel (HPCA 2021).
    """

    name = "sentinel"
    free = False

    def prepare(self, trace: AccessTrace) -> None:
        """Find the interval."""
        super().prepare(trace)
        self.interval = 1
        while self.interval < len(trace) and self._fits(2 * self.interval):
            self.interval *= 2

    def _fits(self, steps: int) -> bool:
        trace, limit = self.trace, self.trace.budgets.device
        for start in range(0, len(trace), steps):
            window = {v for s in range(start, min(start + 2 * steps, len(trace))) for v in trace.needs[s]}
            if sum(trace.size[v] for v in window) > limit:
                return False
        return True

    def _wanted(self, start: int, intervals: int) -> list[int]:
        steps = range(start, min(start + intervals * self.interval, len(self.trace)))
        return list(dict.fromkeys(v for s in steps for v in self.trace.needs[s]))

    def give_up(self, step: int, memory: MemoryView) -> Iterable[int]:
        """At an interval's start: values that neither it nor the next one needs."""
        if step % self.interval or self.interval == 1:
            return ()
        wanted = set(self._wanted(step, 2))
        return [v for v in memory.residents() if v not in wanted]

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """The rest of this interval, and the next one."""
        start = step // self.interval * self.interval
        return (v for v in self._wanted(start, 2) if memory.fetchable(v) and memory.next_use(v) > step)


class ZeroOffload(AheadOfTimePolicy):
    """Parameters, gradients and optimizer states are on the host; activations stay on the device.

    Modelled: weights leave after each use and return a layer early; values that become outputs (gradients, updated
    weights) leave as soon as they are computed. Not modelled: the optimizer's arithmetic on the host; its kernels stay
    on the device here, as all policies run the same kernels.
    Source: Ren et al., ZeRO-Offload (ATC 2021).
    """

    name = "zero-offload"
    layers_ahead = 1

    def choose(self) -> None:
        """Gaps of at least a layer, of weights and of values that become outputs."""
        for gap in self._far():
            if self._is_state(gap.value):
                self.swap(gap, self._return(gap))

    def prepare(self, trace: AccessTrace) -> None:
        """Find the layers, and the values of which outputs are made."""
        self.starts = layers(trace)
        outputs = {v for step in range(len(trace)) if trace.seconds[step] == 0.0 for v in trace.reads[step]}
        self.made_of = {v for w in outputs if trace.maker[w] >= 0 for v in trace.reads[trace.maker[w]]}
        super().prepare(trace)

    def _far(self) -> list[UseGap]:
        """Gaps that contain a whole layer."""
        return [g for g in gaps(self.trace) if self._layer(g.before) - self._layer(g.after) >= 2]

    def _layer(self, step: int) -> int:
        return bisect_right(self.starts, step) - 1

    def _return(self, gap: UseGap) -> int:
        return self.starts[max(0, self._layer(gap.before) - self.layers_ahead)]

    def _is_state(self, v: int) -> bool:
        return self.trace.stored[v] or v in self.made_of


class ZeroInfinity(ZeroOffload):
    """As ZeRO-Offload, with activations that leave as well, and a prefetcher that looks further ahead.

    Modelled: parameters and optimizer states leave after each use; then activations, longest distance first, until the
    profile fits; the prefetcher fetches for the layer after the next. What the host cannot hold goes to NVMe. Not
    modelled: the optimizer's arithmetic on the host; tiles of an operator, since kernels are tiles here; several GPUs.
    Source: Rajbhandari et al., ZeRO-Infinity (SC 2021).
    """

    name = "zero-infinity"
    layers_ahead = 2

    def choose(self) -> None:
        """Gaps of parameters and states, and as many of activations as the device lacks memory for."""
        super().choose()
        far = [gap for gap in self._far() if not self._is_state(gap.value)]
        for gap in sorted(far, key=lambda g: g.after - g.before):
            if self.over() <= 0:
                break
            self.swap(gap, self._return(gap))


class ZeroInference(ZeroOffload):
    """Weights are streamed from the host by layers; everything else stays on the device.

    Modelled: each tile of a weight leaves after a layer that reads it and returns a layer early; a program whose other
    values do not fit is refused. Not modelled: weights on NVMe, the key-value cache on the host, several GPUs.
    Source: Aminabadi et al., DeepSpeed Inference (SC 2022), section on ZeRO-Inference.
    """

    name = "zero-inference"

    def choose(self) -> None:
        """Gaps of weights.

        Raises:
            CapacityError: the other values do not fit.
        """
        for gap in self._far():
            if self.trace.stored[gap.value]:
                self.swap(gap, self._return(gap))
        if self.over() > 0:
            raise CapacityError("values other than weights do not fit")


class FlexGen(ZeroOffload):
    """A share of the weights and one of other values is streamed by layers; the rest stays on the device.

    Modelled: the two shares, in steps of a tenth, that fit and for which the longest of kernels, transfers in and
    transfers out is shortest, as in FlexGen's cost model; streamed values leave after their layer and return a layer
    early. Not modelled: the zig-zag order over batches, since all policies run the same order; compression; attention
    on the host.
    Source: Sheng et al., FlexGen (ICML 2023).
    """

    name = "flexgen"
    STEPS = 10

    def choose(self) -> None:
        """The gaps of the streamed values."""
        far = self._far()
        classes = [[g for g in far if self.trace.stored[g.value] == stored] for stored in (True, False)]
        choices = [[self._streamed(of_class, k) for k in range(self.STEPS + 1)] for of_class in classes]
        best = min(product(*choices), key=lambda pair: self._cost([*pair[0], *pair[1]]))
        for gap in (*best[0], *best[1]):
            self.swap(gap, self._return(gap))

    def _streamed(self, of_class: list[UseGap], tenths: int) -> list[UseGap]:
        """The gaps of a share of the values of a class, spread evenly."""
        number = {v: i for i, v in enumerate(dict.fromkeys(g.value for g in of_class))}
        chosen = {v for v, i in number.items() if (i + 1) * tenths // self.STEPS > i * tenths // self.STEPS}
        return [g for g in of_class if g.value in chosen]

    def _cost(self, streamed: list[UseGap]) -> tuple[int, float]:
        """Bytes that exceed the device; seconds of the longest of kernels and transfers in both directions."""
        trace, change = self.trace, np.zeros(len(self.trace) + 1, np.int64)
        for gap in streamed:
            change[gap.after + 1] -= trace.size[gap.value]
            change[max(gap.after + 2, self._return(gap))] += trace.size[gap.value]
        over = int((self.held + np.cumsum(change)[:-1]).max(initial=0)) - trace.budgets.device
        fetched = sum(trace.fetch_seconds(trace.size[g.value]) for g in streamed)
        written = {g.value for g in streamed if not trace.stored[g.value]}
        offloaded = sum(trace.offload_seconds(trace.size[v]) for v in written)
        return max(0, over), max(sum(trace.seconds), fetched, offloaded)
