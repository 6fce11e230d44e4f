"""What a budget leaves for the arena, and what the process itself takes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from dataclasses import dataclass

from einturnip.core.resident import resident_nbytes
from einturnip.eingraph.types import EinsumNode
from einturnip.kernels.blas.pack_buffers import packed_nbytes
from einturnip.memgraph.types import MemGraph
from einturnip.memgraph.views import MAX_CACHED
from einturnip.storage.chunks.chunked_source import held_nbytes
from einturnip.taskgraph.types import TaskGraph

MIB = 1 << 20
# Measured on CPython 3.11 with OpenBLAS: what a run adds to the resident memory before the arena is counted.
THREAD_NBYTES = 1 * MIB  # a worker: its stack, its share of malloc's arenas
SEARCH_LEFT_NBYTES = 3 * MIB  # what planning leaves, its plan aside
RUN_NBYTES = SEARCH_LEFT_NBYTES + 2 * MIB  # and code that the run is the first to touch, progress, the report
# Plan and state machine at their highest: a tile task, an op (there is one a task where nothing leaves the memory, and
# more where much does), an operand of those beyond USUAL_READS a task.
TASK_NBYTES, OP_NBYTES, READ_NBYTES = 350, 350, 120
USUAL_READS = 4
SLACK_NBYTES = 2 * MIB
# Peaks while graphs are made, by tracemalloc on plans of 3,000 to 19,000 ops (855 a task, 300 to 450 an op): columns
# that grow, and the dictionaries of the builders.
MAKING_TASK_NBYTES, MAKING_OP_NBYTES = 900, 450
# Tables of a run, by tracemalloc: state machine, ready ops, trace and transfers (165 an op); and entries that views of
# tiles keep, at most ``MAX_CACHED`` of them.
RUN_OP_NBYTES, VIEW_NBYTES = 200, 600
# Ops from which on what planning left behind is worth collecting before the run.
LARGE_PLAN = 2000


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes: ``memory`` the whole process may hold (None: only the arena was stated), ``arena`` of those for tiles."""

    memory: int | None
    arena: int


@dataclass(frozen=True, slots=True)
class PlanSize:
    """What a plan takes beside its arena by: tile tasks, operands that they read, ops; in bytes, what its run takes.

    ``packed``: the most that a worker packs for a product, beside its tiles; ``counts``: for pages of files.
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
        return ops * RUN_OP_NBYTES + min(ops, MAX_CACHED) * VIEW_NBYTES


def size_of(*graphs: TaskGraph, ops: int = 0) -> PlanSize:
    """The size of a plan of task graphs together."""
    decompositions = [graph.decomposition for graph in graphs]
    made = [pair for d in decompositions for pair in zip(d.graph.nodes, d.partitionings, strict=True)]
    packed = max((packed_nbytes(n.einsum, part.tiles) for n, part in made if isinstance(n, EinsumNode)), default=0)
    counts = sum(graph.counts_nbytes for graph in graphs)
    return PlanSize(sum(map(len, graphs)), sum(len(graph.read) for graph in graphs), ops, packed, counts)


def overhead_nbytes(resident: int, workers: int, plan: PlanSize) -> int:
    """What is not arena while a plan is made and run by ``workers``."""
    other = held_nbytes() + RUN_NBYTES + workers * (THREAD_NBYTES + plan.packed) + SLACK_NBYTES
    return resident + other + plan.nbytes + plan.run_nbytes + plan.counts


def excess_nbytes(graph: MemGraph, memory: int, workers: int) -> int:
    """Bytes by which a run of this plan would pass ``memory``; negative where it fits.

    Counts what is resident now. The estimates of the search are less exact: the heap that it leaves behind depends on
    the plans that it tried.
    """
    if (found := _peak_nbytes(graph, workers) - memory) > 0:
        trim_heap()
        found = _peak_nbytes(graph, workers) - memory
    return found


def fits(graph: MemGraph, memory: int | None, workers: int) -> bool:
    """Whether a plan that is in memory can run without passing ``memory``; None is any."""
    return memory is None or excess_nbytes(graph, memory, workers) <= 0


def _peak_nbytes(graph: MemGraph, workers: int) -> int:
    """The peak of the process if it runs the plan now, which is in memory already."""
    plan = size_of(graph.taskgraph, ops=len(graph))
    return overhead_nbytes(resident_nbytes(), workers, plan) - SEARCH_LEFT_NBYTES - plan.nbytes + graph.peak_nbytes


def rounded(nbytes: int) -> int:
    """Down to four significant bits: budgets that nobody stated are equal where the free memory hardly differs."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return nbytes // step * step


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Make a large value without the collector: it would walk all of it again and again, and find no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def trim_heap() -> None:
    """Return to the system what planning no longer needs, so that it does not count against the run."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
