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
RUN_NBYTES = 5 * MIB  # what planning leaves (3 MiB), code that the run is the first to touch, progress, the report
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


def plan_nbytes(tasks: int, reads: int = 0, ops: int = 0) -> int:
    """What a plan of so many tile tasks takes, which read so many operands, and have so many ``ops``."""
    more = max(0, reads - USUAL_READS * tasks)
    return tasks * TASK_NBYTES + max(tasks, ops) * OP_NBYTES + more * READ_NBYTES


def overhead_nbytes(resident: int, workers: int, tasks: int, reads: int = 0, ops: int = 0, packed: int = 0) -> int:
    """What is not arena while a plan of so many tile tasks (see ``plan_nbytes``) is made and run by ``workers``.

    ``packed``: what a worker packs at most, beside its tiles, for a product.
    """
    beside = held_nbytes() + RUN_NBYTES + workers * (THREAD_NBYTES + packed) + SLACK_NBYTES
    return resident + beside + plan_nbytes(tasks, reads, ops)


def packed_by(graph: TaskGraph) -> int:
    """What a worker packs at most for a product of the plan, in bytes."""
    d = graph.decomposition
    made = zip(d.graph.nodes, d.partitionings, strict=True)
    return max((packed_nbytes(n.einsum, part.tiles) for n, part in made if isinstance(n, EinsumNode)), default=0)


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
