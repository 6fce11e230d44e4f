"""What a budget leaves for the arena, and what the process itself takes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from dataclasses import dataclass

from einturnip.codegen.packed import packed_nbytes
from einturnip.eingraph.types import EinsumNode
from einturnip.stores.chunked import held_nbytes
from einturnip.taskgraph.types import TaskGraph

MIB = 1 << 20
# Measured on CPython 3.11 with OpenBLAS: what a run adds to the resident memory before the arena is counted.
THREAD_NBYTES = 1 * MIB  # a worker: its stack, its share of malloc's arenas
LEFT_NBYTES = 3 * MIB  # what planning leaves, its plan aside
RUN_NBYTES = LEFT_NBYTES + 2 * MIB  # and code that the run is the first to touch, progress, the report
# Plan and state machine at their highest: a tile task, an op (there is one a task where nothing leaves the memory, and
# more where much does), an operand of those beyond USUAL_READS a task.
TASK_NBYTES, OP_NBYTES, READ_NBYTES = 350, 350, 120
USUAL_READS = 4
SLACK_NBYTES = 2 * MIB
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


def size_of(*graphs: TaskGraph, ops: int = 0) -> PlanSize:
    """The size of a plan of task graphs together."""
    cuts = [graph.decomposition for graph in graphs]
    made = [pair for d in cuts for pair in zip(d.graph.nodes, d.partitionings, strict=True)]
    packed = max((packed_nbytes(n.einsum, part.tiles) for n, part in made if isinstance(n, EinsumNode)), default=0)
    counts = sum(graph.counts_nbytes for graph in graphs)
    return PlanSize(sum(map(len, graphs)), sum(len(graph.read) for graph in graphs), ops, packed, counts)


def overhead_nbytes(resident: int, workers: int, plan: PlanSize) -> int:
    """What is not arena while a plan is made and run by ``workers``."""
    beside = held_nbytes() + RUN_NBYTES + workers * (THREAD_NBYTES + plan.packed) + SLACK_NBYTES
    return resident + beside + plan.nbytes + plan.counts


def rounded(nbytes: int) -> int:
    """Down to four significant bits: budgets that nobody stated are equal where the free memory hardly differs."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return nbytes // step * step


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Make a large value without the collector: it would walk all of it again and again, and find no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def give_back() -> None:
    """Return to the system what planning no longer needs, so that it does not count against the run."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
