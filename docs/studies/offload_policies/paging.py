"""Demand paging: CUDA's managed memory, and DeepUM's correlation prefetch."""

from __future__ import annotations

from collections.abc import Iterable

from offload_policies.types import AccessTrace, MemoryView, OffloadPolicy


class DemandPaging(OffloadPolicy):
    """Page faults on demand; the least recently used value is evicted, and always written.

    Modelled: CUDA managed memory at the granularity of tiles: a kernel faults on absent values, the link waits for the
    kernel before, evictions delay the fault. Not modelled: 4 KiB faults (which are slower), the driver's density
    prefetch (which is faster). Read-only inputs are dropped, as with cudaMemAdviseSetReadMostly.
    Source: CUDA C++ Programming Guide, Unified Memory; Chen et al., vDNN++/UM studies use the same baseline.
    """

    name = "lru"
    free = False

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The longer unused, the cheaper."""
        return 1.0 / (1 + step - memory.last_use(v))


class DeepUM(DemandPaging):
    """Correlation prefetch on managed memory: after a step, its successors of the run before are fetched.

    Modelled: the correlation tables learnt from one run (the program does not change, so the next ``CHAIN`` steps are
    known), pre-eviction of the least recently used values that are not about to be used, prefetches that may evict. Not
    modelled: wrong predictions at the ends of tables, UM block granularity.
    Source: Jung, Kim, Lee, DeepUM (ASPLOS 2023).
    """

    name = "deepum"
    fetch_evicts = True
    CHAIN = 32  # maximum number of kernels to prefetch ahead; the paper's best degree

    def prepare(self, trace: AccessTrace) -> None:
        """Learn from one run."""
        super().prepare(trace)
        self.next_steps = self.CHAIN

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """The successors of this step in the tables that are not on the device."""
        for later in range(step + 1, min(step + 1 + self.next_steps, len(self.trace))):
            for v in self.trace.needs[later]:
                if memory.fetchable(v):
                    yield v

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The longer unused, the cheaper; values predicted to be used come last."""
        soon = memory.next_use(v) <= step + self.next_steps
        return (1e6 if soon else 1.0) / (1 + step - memory.last_use(v))
