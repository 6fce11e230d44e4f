"""Paging: bytes come when they are touched. CUDA's managed memory, and DeepUM's prefetch by what followed what."""

from __future__ import annotations

from collections.abc import Iterable

from offload_policies.types import AccessTrace, MemoryView, OffloadPolicy


class DemandPaging(OffloadPolicy):
    """Faults on demand; the least recently used goes, always written.

    Modelled: CUDA managed memory at the grain of tiles: a kernel faults on what is not there, the link waits for the
    kernel before, evictions stand in the way of the fault. Not modelled: 4 KiB faults (which are slower), the driver's
    density prefetch (which is faster). Read-only inputs are dropped, as with cudaMemAdviseSetReadMostly.
    Source: CUDA C++ Programming Guide, Unified Memory; Chen et al., vDNN++/UM studies name the same baseline.
    """

    name = "lru"
    free = False

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The longer untouched the cheaper."""
        return 1.0 / (1 + step - memory.last_use(v))


class DeepUM(DemandPaging):
    """Correlation prefetch on managed memory: after a step, what followed it in the run before is brought.

    Modelled: the correlation tables learnt from one run (the program does not change, so the next ``CHAIN`` steps are
    known), pre-eviction of the least recently used that is not about to be used, prefetches that may evict. Not
    modelled: wrong predictions at the ends of tables, UM block granularity.
    Source: Jung, Kim, Lee, DeepUM (ASPLOS 2023).
    """

    name = "deepum"
    fetch_evicts = True
    CHAIN = 32  # kernels that prefetching runs ahead at most; the paper's best degree

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
        """The longer untouched the cheaper; what the tables predict to be used goes last."""
        soon = memory.next_use(v) <= step + self.next_steps
        return (1e6 if soon else 1.0) / (1 + step - memory.last_use(v))
