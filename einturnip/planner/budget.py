"""Memory account: the bytes of the process outside the arena, and those that a budget leaves for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from einturnip.core.process_resources import resident_nbytes, trim_heap
from einturnip.core.program_limits import planning_limit
from einturnip.eingraph.types import EinsumNode
from einturnip.kernels.contraction_choice import packed_nbytes
from einturnip.memgraph.types import MemGraph
from einturnip.storage.chunks.chunked_source import reading_nbytes
from einturnip.taskgraph.types import TaskGraph
from einturnip.tuning.memory import (
    MAX_CACHED_VIEWS,
    OP_NBYTES,
    READ_NBYTES,
    RUN_NBYTES,
    RUN_OP_NBYTES,
    SEARCH_LEFT_NBYTES,
    SLACK_NBYTES,
    TASK_NBYTES,
    THREAD_NBYTES,
    USUAL_READS,
    VIEW_NBYTES,
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes: ``memory`` limits the whole process (None if only the arena is limited), ``arena`` the tiles.

    ``extra``: by device, bytes beyond ``arena``; () if all have the same.
    """

    memory: int | None
    arena: int
    extra: tuple[int, ...] = ()

    @property
    def largest_arena(self) -> int:
        """The bytes of the largest device's arena."""
        return self.arena + max(self.extra, default=0)

    def arenas_nbytes(self, devices: int) -> int:
        """Return the bytes of all devices' arenas."""
        return self.arena * devices + sum(self.extra)


@dataclass(frozen=True, slots=True)
class PlanSize:
    """The size of a plan: tile tasks, operands that they read, ops.

    ``packed``: the maximum bytes that a worker packs for a product; ``counts``: bytes of counters for pages of files.
    """

    tasks: int
    reads: int = 0
    ops: int = 0
    packed: int = 0
    counts: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the plan itself."""
        more = max(0, self.reads - USUAL_READS * self.tasks)
        return self.tasks * TASK_NBYTES + max(self.tasks, self.ops) * OP_NBYTES + more * READ_NBYTES

    @property
    def run_nbytes(self) -> int:
        """Bytes of the tables of a run."""
        ops = max(self.tasks, self.ops)
        return ops * RUN_OP_NBYTES + min(ops, MAX_CACHED_VIEWS) * VIEW_NBYTES


def size_of(*graphs: TaskGraph, ops: int = 0) -> PlanSize:
    """Return the size of a plan that executes several task graphs."""
    decompositions = [graph.decomposition for graph in graphs]
    made = [pair for d in decompositions for pair in zip(d.graph.nodes, d.partitionings, strict=True)]
    packed = max((packed_nbytes(n.einsum, part.tiles) for n, part in made if isinstance(n, EinsumNode)), default=0)
    counts = sum(graph.counts_nbytes for graph in graphs)
    return PlanSize(sum(map(len, graphs)), sum(len(graph.read) for graph in graphs), ops, packed, counts)


def overhead_nbytes(resident: int, workers: int, plan: PlanSize) -> int:
    """Return the bytes outside the arena while a plan is made and run by ``workers`` threads."""
    other = reading_nbytes() + RUN_NBYTES + workers * (THREAD_NBYTES + plan.packed) + SLACK_NBYTES
    return resident + other + plan.nbytes + plan.run_nbytes + plan.counts


def planning_within(memory: int | None, workers: int, base_nbytes: int = 0) -> AbstractContextManager[None]:
    """Return a context in which this thread reads and plans within ``memory``."""
    return planning_limit(memory, overhead_nbytes(0, workers, PlanSize(0)) - SEARCH_LEFT_NBYTES, base_nbytes)


@dataclass(frozen=True, slots=True)
class PlanningMemory:
    """The memory that a plan may use, of the process or of the arena on each device. Units: bytes.

    ``withheld``: part of ``memory`` that the plan must not use; negative for free heap that planning reuses. ``base``:
    see ``Options.base_nbytes``.
    """

    memory: int | None
    arena: int | None
    withheld: int = 0
    base: int = 0

    def available(self, resident: int, workers: int, plan: PlanSize) -> int:
        """Return the arena bytes left in addition to a plan, with ``resident`` bytes of the process in use."""
        if self.arena is not None:
            return self.arena
        assert self.memory is not None
        return self.memory - self.withheld - overhead_nbytes(resident, workers, plan)


def excess_nbytes(graph: MemGraph, memory: int, workers: int) -> int:
    """Return the bytes by which a run of this plan would exceed ``memory``; negative if it fits.

    The result uses the current resident memory. The estimates of the search are less exact, because the heap that it
    leaves behind depends on the plans that it tried.
    """
    if (found := _peak_nbytes(graph, workers) - memory) > 0:
        trim_heap()
        found = _peak_nbytes(graph, workers) - memory
    return found


def fits(graph: MemGraph, memory: int | None, workers: int) -> bool:
    """Return whether a plan that is in memory can run within ``memory``; None means no limit."""
    return memory is None or excess_nbytes(graph, memory, workers) <= 0


def _peak_nbytes(graph: MemGraph, workers: int) -> int:
    """Return the peak memory of the process if it runs the plan now; the plan is already in memory."""
    plan = size_of(graph.taskgraph, ops=len(graph))
    return overhead_nbytes(resident_nbytes(), workers, plan) - SEARCH_LEFT_NBYTES - plan.nbytes + graph.peak_nbytes


def rounded(nbytes: int) -> int:
    """Round down to four significant bits.

    Default budgets are rounded so that they stay equal when the free memory hardly changes.
    """
    step = 1 << max(0, nbytes.bit_length() - 4)
    return nbytes // step * step
