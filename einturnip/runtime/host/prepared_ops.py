"""Prepared ops: calls with resolved kernels and addresses, for plans that run repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from einturnip.devices.host import HostArena
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall, Point, PythonCall, address_of
from einturnip.memgraph.types import FILES, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array, NodeTile, OpViews
from einturnip.runtime.host.driver_choice import arena_nbytes
from einturnip.runtime.host.zero_copy import Window, ZeroCopyTiles
from einturnip.runtime.numeric_events import NumericEvents, host_parts
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.types import slices
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling.types import Box
from einturnip.tuning.memory import BLOCKED_COPY_NBYTES

PreparedOp: TypeAlias = Callable[[], int]
"""Executes an op; returns the floating-point flags of its kernel."""

_Move = tuple[int, Any, Any, Any]
"""Words to update for each run: tier of the caller's array, memory, position, offset in bytes from its address."""


class PreparedOps:
    """A prepared call for each op, over an own arena. For one run at a time.

    ``zero_copy``: the tiles that kernels access in the caller's arrays. ``fixed``: these are the same arrays in every
    run; otherwise each run uses the arrays passed to ``begin``. ``kernel``: chooses the kernel of a call.
    """

    def __init__(
        self,
        graph: MemGraph,
        zero_copy: ZeroCopyTiles,
        fixed: bool,
        kernel: Callable[[NodeTile, CallArguments], HostKernel],
        ops: Iterable[Op],
    ) -> None:
        self.arena = HostArena(max(1, arena_nbytes(graph)), large_pages=not fixed)
        self._zero_copy, self._fixed, self._choose = zero_copy, fixed, kernel
        self._graph, self._views = graph, OpViews(graph, self.arena, zero_copy)
        self._tasks, self._nodes = graph.taskgraph, len(graph.taskgraph.decomposition.graph.nodes)
        self.files: dict[int, Array] = {}
        self.addresses = dict[int, int]()  # by tier: address of each caller's array that kernels access directly
        self._begun: set[int] = set()
        self.kernel_calls = dict[int, KernelCall]()  # by position among the ops: those that are one kernel call
        # By kernel op: its result in the arena or in a caller's array, and the index of its first element.
        self._results: dict[int, tuple[Array | None, Window | None, Point]] = {}
        self._no_events, self._lock = NumericEvents(graph), Lock()
        self._events = self._no_events
        self._moves: list[list[_Move]] = []
        self.ids = list[int]()  # the number of each op
        self.calls = [self._prepare(op) for op in ops]
        if not fixed:
            self._views.forget()

    def begin(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        """Set the arrays of a run. ``inputs``: the array of each input by node. ``outputs``: of each output."""
        files = self.files
        for i, array in enumerate(inputs):
            if array is not None:
                files[FILES + i] = array
        for o, array in enumerate(outputs):
            files[FILES + self._nodes + o] = array
        now = {tier: address_of(files[tier]) for tier in self.addresses}
        if now != self.addresses:
            self.addresses = now
            for moves in self._moves:
                for tier, memory, position, offset in moves:
                    memory[position] = now[tier] + offset

    def relocate(self, ops: Sequence[int], memory: Any, begins: Sequence[Any]) -> None:
        """Update copies of the words of ``ops`` for each run, in place of the words themselves.

        ``begins``: the position of each copy's first word in ``memory``; for an op divided into chunks, of each chunk.
        """
        for k, begin in zip(ops, begins, strict=True):
            self._moves[k] = [
                (tier, memory, begin + word, memory[begin + word] - self.addresses[tier])
                for tier, _, word, _ in self._moves[k]
            ]

    def record(self, op: int, flags: int) -> None:
        """Record the flags that an op raised, before a later op runs."""
        array, window, origins = self._results[op]
        if window is not None:
            array = self.files[window[0]][window[1]]
        with self._lock:
            if self._events is self._no_events:
                self._events = NumericEvents(self._graph)
        self._events.record(op, flags, array, origins, host_parts)

    def located_events(self) -> NumericEvents:
        """Return the events of a run whose ops have ended."""
        if self._events is not self._no_events:
            self._events.locate(self._read_input)
        return self._events

    def _read_input(self, number: int, region: Box) -> list[tuple[Box, Array]]:
        window: tuple[Any, ...] = (*slices(region), ...)
        return [(region, self.files[FILES + number][window])]

    def end(self) -> None:
        """Drop the arrays of a run."""
        self.files.clear()
        self._begun.clear()
        self._events = self._no_events

    def _prepare(self, op: Op) -> PreparedOp:
        self.ids.append(op.id)
        self._moves.append([])
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                return self._kernel(op)
            case OpKind.MOVE:
                return self._move(op)
            case OpKind.LOAD | OpKind.RELOAD:
                return self._copy(op, op.reads[0].tier, inward=True)
            case OpKind.OFFLOAD | OpKind.STORE:
                return self._copy(op, op.writes[0].tier, inward=False)

    def _kernel(self, op: Op) -> PreparedOp:
        tile, arguments = self._views.call(op.id, op.unit >= 0 and not self._views.continues(op.unit))
        kernel, windows = self._choose(tile, arguments), {} if self._fixed else self._windows(op, tile)
        window = windows.get(len(arguments.operands))
        self._results[op.id] = None if window else arguments.outs[0], window, arguments.origins[: tile.einsum.n_out]
        first = self._kernel_call(kernel, arguments, windows)
        if op.unit < 0:
            self.kernel_calls[len(self._moves) - 1] = first
            return first.run
        later = self._kernel_call(kernel, arguments._replace(first=False), windows)
        begun, unit = self._begun, op.unit

        def accumulate() -> int:
            if unit in begun:
                return later.run()
            begun.add(unit)
            return first.run()

        return accumulate

    def _kernel_call(self, kernel: HostKernel, arguments: CallArguments, windows: Mapping[int, Window]) -> KernelCall:
        """Prepare a kernel call; ``windows``: the operands, then outputs, in the arrays of the present run."""
        call = kernel.prepare(arguments)
        if not windows:
            return call
        on_arrays = self._on_arrays(kernel, arguments, windows)
        if len(call.relocations) != len(arguments.operands) + len(arguments.outs):
            return PythonCall(lambda: on_arrays().run())
        if call.fallback is not None:  # another run of the call would add the tile again
            call.fallback = lambda flags: on_arrays().checked(flags)
        for slot, (tier, _) in windows.items():
            word = call.relocations[slot]
            base = self.addresses.setdefault(tier, address_of(self._array(tier)))
            self._moves[-1].append((tier, call.words, word, call.words[word] - base))
        return call

    def _on_arrays(
        self, kernel: HostKernel, arguments: CallArguments, windows: Mapping[int, Window]
    ) -> Callable[[], KernelCall]:
        """Return a function that prepares the call on the arrays of the present run."""
        outs, operands, origins, first, workspace = arguments
        in_arena = [None if slot in windows else tensor for slot, tensor in enumerate((*operands, *outs))]
        files, n = self.files, len(operands)
        del arguments, outs, operands  # the closure below would keep the arrays alive

        def on_arrays() -> KernelCall:
            tensors: list[Any] = in_arena.copy()
            for slot, (tier, window) in windows.items():
                tensors[slot] = files[tier][window]
            return kernel.prepare(CallArguments(tuple(tensors[n:]), tuple(tensors[:n]), origins, first, workspace))

        return on_arrays

    def _windows(self, op: Op, tile: NodeTile) -> dict[int, Window]:
        """Return the windows of an op's tiles in the caller's arrays, by operand, then output."""
        task, window, found = self._tasks[op.task], self._zero_copy.window, list[Window | None]()
        if task.kind in (TaskKind.FINALIZE, TaskKind.COMBINE):
            found += [None] * len(tile.einsum.components(tile.extents))
        else:
            box = self._tasks.decomposition.partitionings[task.node].box(task.key)
            found += [window(seen, tile.einsum.operand_box(slot, box)) for slot, seen in enumerate(task.seen)]
        found.append(window(op.writes[0].value))
        return {slot: place for slot, place in enumerate(found) if place is not None}

    def _array(self, tier: int) -> Array:
        """Return the caller's array with which calls are prepared."""
        array = self._zero_copy.array(tier - FILES)
        assert array is not None
        return array

    def _part(self, value: int, box: Box, array: Array) -> Callable[[], Array]:
        """Return a function that gives part ``box`` of a value in the present run.

        ``array``: the part in the arrays with which the calls are prepared.
        """
        found = None if self._fixed else self._zero_copy.window(value, box)
        if found is None:
            return lambda: array
        files, (tier, window) = self.files, found
        return lambda: files[tier][window]

    def _move(self, op: Op) -> PreparedOp:
        task = self._tasks[op.task]
        copied = zip(task.seen, self._tasks.copied(task), self._views.moved(op), strict=True)
        made = op.writes[0].value
        pairs = [(self._part(made, box, t), self._part(seen, box, s)) for seen, box, (t, s) in copied]

        def move() -> int:
            for target, source in pairs:
                target()[...] = source()
            return 0

        return move

    def _copy(self, op: Op, tier: int, inward: bool) -> PreparedOp:
        region, array = self._views.transferred(op)
        part = self._part((op.writes if inward else op.reads)[0].value, region, array)
        window: tuple[Any, ...] = (*slices(region), ...)  # a view even of a scalar
        files = self.files
        copy = copy_blocked if array.nbytes > BLOCKED_COPY_NBYTES else np.copyto

        def load() -> int:
            copy(part(), files[tier][window])
            return 0

        def store() -> int:
            copy(files[tier][window], part())
            return 0

        return load if inward else store
