"""TaskGraph.

Tile tasks in serial order, as read-only columns (10⁶ tasks as objects would be gigabytes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.einsum import Box
from einturnip.tiling.types import Decomposition

Ints = NDArray[np.int64]
UNASSIGNED = 0xFFFF
"""The device of a value that is where its first reader is."""


class TaskKind(IntEnum):
    """The kinds of task."""

    LOAD = 0  # a tile of an input comes from its file or array
    KERNEL = 1  # one complete tile of an einsum
    ACCUMULATE = 2  # one tile of an einsum, accumulated into a state
    FINALIZE = 3  # a state becomes a tile
    MOVE = 4  # repartition: parts of a box of a tensor are copied from tiles, or from the pieces of a concatenation
    STORE = 5  # a tile of an output goes to its file or array
    COMBINE = 6  # one state is accumulated into another

    @property
    def word(self) -> str:
        """Name of the kind in printed plans."""
        return ("load", "kernel", "kernel", "aggregate", "move", "store", "aggregate")[self]


class ValueKind(IntEnum):
    """The kinds of value."""

    TILE = 0  # a box of a node's tensor
    STATE = 1  # an accumulator of one output tile, or of some of its terms
    VIEW = 2  # the bytes of another value, seen as a box of a concatenation that contains it


_TASK_KINDS, _VALUE_KINDS = tuple(TaskKind), tuple(ValueKind)


class Task(NamedTuple):
    """One task. ``value`` is made, accumulated into, or stored; ``reads`` are operands; ``key`` its tile.

    ``seen``: for each operand the value it is seen as, itself or a view. The key of a move holds the boxes that it
    copies from each operand, (start, stop) per axis; the ``value`` of a store is the box that it writes.
    """

    id: int
    kind: TaskKind
    node: int
    key: tuple[int, ...]
    value: int
    reads: tuple[int, ...]
    seen: tuple[int, ...]
    workspace: int
    seconds: float
    flops: int


class Value(NamedTuple):
    """One value: ``box`` of a node's tensor, or the state of that box."""

    id: int
    kind: ValueKind
    node: int
    box: Box
    nbytes: int


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in serial order: operands precede readers; a load comes where it is first needed.

    ``key``, ``read`` and ``box`` are CSR: row i is ``x[x_ptr[i]:x_ptr[i + 1]]``; ``seen`` belongs to ``read``. A
    ``box`` row is start, stop per axis. ``ordered``: accumulations keep their order, so that results have the same
    bits. The last ``repeats`` values are recomputed copies of others.

    On several devices ``device`` is that of each value, and ``original`` the value that it is a copy of, or itself; on
    one device both are empty. ``counts_nbytes``: bytes of page counters for files. ``finished``: of each output, the
    elements that are stored already, and no task stores; empty if there are none.
    """

    decomposition: Decomposition
    kind: NDArray[np.uint8]
    node: NDArray[np.int32]
    value: NDArray[np.int32]
    workspace: Ints
    seconds: NDArray[np.float64]
    flops: Ints
    key_ptr: Ints
    key: NDArray[np.int32]
    read_ptr: Ints
    read: NDArray[np.int32]
    seen: NDArray[np.int32]
    value_kind: NDArray[np.uint8]
    value_node: NDArray[np.int32]
    value_nbytes: Ints
    box_ptr: Ints
    box: Ints
    ordered: bool = False
    repeats: int = 0
    devices: int = 1
    device: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))
    original: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    counts_nbytes: int = 0
    finished: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.kind)

    def __getitem__(self, i: int) -> Task:
        """Return a task as a record; columns are faster for many."""
        return Task(
            i,
            _TASK_KINDS[self.kind[i]],
            int(self.node[i]),
            tuple(self.key[self.key_ptr[i] : self.key_ptr[i + 1]].tolist()),
            int(self.value[i]),
            tuple(self.read[self.read_ptr[i] : self.read_ptr[i + 1]].tolist()),
            tuple(self.seen[self.read_ptr[i] : self.read_ptr[i + 1]].tolist()),
            int(self.workspace[i]),
            float(self.seconds[i]),
            int(self.flops[i]),
        )

    def __iter__(self) -> Any:
        """Return all tasks as records."""
        return (self[i] for i in range(len(self)))

    def copied(self, task: Task) -> tuple[Box, ...]:
        """Return the boxes that a move copies, one per operand."""
        flat = task.key
        n = len(flat) // max(1, len(task.reads))
        rows = (flat[r * n : (r + 1) * n] for r in range(len(task.reads)))
        return tuple(tuple(zip(row[::2], row[1::2], strict=True)) for row in rows)

    @property
    def n_values(self) -> int:
        """Number of values."""
        return len(self.value_kind)

    def boxes(self, values: NDArray[Any], rank: int) -> Ints:
        """Return the boxes of values whose node has ``rank`` axes. Shape: (values, rank, 2)."""
        found: Ints = self.box[self.box_ptr[values][:, None] + np.arange(2 * rank)]
        return found.reshape(len(values), rank, 2)

    def get_value(self, v: int) -> Value:
        """Return value ``v`` as a named tuple."""
        flat = self.box[self.box_ptr[v] : self.box_ptr[v + 1]].tolist()
        return Value(
            v,
            _VALUE_KINDS[self.value_kind[v]],
            int(self.value_node[v]),
            tuple(zip(flat[::2], flat[1::2], strict=True)),
            int(self.value_nbytes[v]),
        )
