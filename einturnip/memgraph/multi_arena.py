"""Plans with several arenas: those of devices, or of programs that share one memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from einturnip.memgraph.arena import Arena
from einturnip.memgraph.columns import OpColumns
from einturnip.taskgraph.types import TaskGraph


@dataclass(frozen=True)
class ArenaParts:
    """An arena divided among programs: bytes of each, and for each value the program it belongs to."""

    nbytes: Sequence[int]
    owner: bytes

    def arenas(self, granule: int, largest: int) -> list[Arena]:
        """Return the parts, one after the other."""
        sizes = [n // granule * granule for n in self.nbytes]
        begins = accumulate(sizes, initial=0)
        return [Arena(n, granule, largest, begin) for n, begin in zip(sizes, begins, strict=False)]


def address_range(arenas: Sequence[Arena]) -> tuple[int, tuple[int, ...]]:
    """Return the bytes of all devices' address ranges, and those of each one's arena if these differ."""
    sizes = tuple(arena.capacity for arena in arenas)
    return len(sizes) * max(sizes), sizes if len(set(sizes)) > 1 else ()


def arena_excess(
    values: Iterable[int], scratch: int, size: Sequence[int], owner: Sequence[int], arenas: Sequence[Arena]
) -> bool:
    """Return whether a task's working set exceeds an arena. A move has bytes in two of them."""
    held: dict[int, int] = {}
    for v in values:
        held[owner[v]] = held.get(owner[v], scratch) + size[v]
    return any(n > arenas[k].capacity for k, n in held.items())


def name_copies(ops: OpColumns, tasks: TaskGraph) -> None:
    """Give copies of values on other devices the number of the original value."""
    for flat in (ops.read, ops.write):
        rows = np.frombuffer(flat, np.int64).reshape(-1, 4)
        copied = (rows[:, 3] >= 0) & (rows[:, 3] < tasks.n_values)
        rows[copied, 3] = tasks.original[rows[copied, 3]]
