"""What several devices' arenas take besides what one does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from einturnip.memgraph.columns import OpColumns
from einturnip.taskgraph.types import TaskGraph


def too_much(values: Iterable[int], scratch: int, size: Sequence[int], device: bytes, capacity: int) -> bool:
    """Whether what a task holds on some device is more than its arena; a move holds bytes on two."""
    held = dict.fromkeys(range(max(device, default=0) + 1), scratch)
    for v in values:
        held[device[v]] += size[v]
    return max(held.values()) > capacity


def name_copies(ops: OpColumns, tasks: TaskGraph) -> None:
    """Name the copies of values on other devices by what they are copies of."""
    if tasks.devices == 1:
        return
    for flat in (ops.read, ops.write):
        rows = np.frombuffer(flat, np.int64).reshape(-1, 4)
        copied = (rows[:, 3] >= 0) & (rows[:, 3] < tasks.n_values)
        rows[copied, 3] = tasks.original[rows[copied, 3]]
