"""Prepared ops: calls with resolved kernels and addresses, for plans that run repeatedly."""

from __future__ import annotations

import itertools
import math
import weakref
from array import array as array_of_words
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from einturnip.devices.host import HostArena
from einturnip.ir.einsum import Box
from einturnip.kernels.llvm.command_list import COPY_BYTES, COPY_ROWS
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall, Point, PythonCall, address_of
from einturnip.memgraph.types import FILES, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array, NodeTile, OpViews
from einturnip.runtime.host.command_lists import Change, address_of_word
from einturnip.runtime.host.driver_choice import arena_nbytes
from einturnip.runtime.host.zero_copy import Window, ZeroCopyTiles
from einturnip.runtime.numeric_events import NumericEvents, host_parts
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import c_layout
from einturnip.storage.types import slices
from einturnip.taskgraph.types import TaskKind
from einturnip.tuning.memory import BLOCKED_COPY_NBYTES

PreparedOp: TypeAlias = Callable[[], int]
"""Executes an op; returns the floating-point flags of its kernel."""

AddressStep: TypeAlias = tuple[int, int]
"""How the address of an array changes from one iteration of a loop to the next: by a number of bytes, which is
multiplied by a factor each time, 1 or -1."""
_Place = tuple[Any, Any, Any]
_Move = tuple[int, Any, Any, Any]
"""A word to update for each run: tier of the caller's array, memory, position, offset in bytes from its address."""


def rows_of(array: Array) -> tuple[int, int, int] | None:
    """Return the contiguous rows of an array: their number, their bytes, the bytes from one to the next.

    None if the rows do not follow each other at one distance.
    """
    rows, nbytes, step = 1, array.itemsize, 0
    for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if n == 1:
            continue
        if rows == 1 and stride == nbytes:
            nbytes *= n
        elif rows == 1 or stride == step * rows:
            rows, step = rows * n, stride if rows == 1 else step
        else:
            return None
    return rows, nbytes, step


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
        # By tier: the dtype of arrays that are copied byte by byte. Outputs of a run with another layout, and copies.
        self._copied = dict[int, np.dtype[Any]]()
        self._strided = list[tuple[Array, Array]]()
        self._in_rows = set[int]()  # tiers whose arrays the last run copied row by row
        self.addresses = dict[int, int]()  # by tier: address of each caller's array that kernels access directly
        self._begun: set[int] = set()
        self.kernel_calls = dict[int, KernelCall]()  # by position among the ops: those that are one kernel call
        # By kernel op: its result in the arena or in a caller's array, and the index of its first element.
        self._results: dict[int, tuple[Array | None, Window | None, Point]] = {}
        self._no_events, self._lock = NumericEvents(graph), Lock()
        self._events = self._no_events
        self._moves: list[list[_Move]] = []
        self._by_tier: dict[int, list[_Place]] | None = None  # the same by tier, once all calls are prepared
        self._last = dict[int, weakref.ref[Array]]()  # by tier: the array of the previous run
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
        if self._by_tier is None:
            self._by_tier = {tier: [] for tier in self.addresses}
            for tier, *place in itertools.chain.from_iterable(self._moves):
                self._by_tier[tier].append(tuple(place))
        for tier, places in self._by_tier.items():
            last = self._last.get(tier)
            if last is None or last() is not files[tier]:
                self._set_address(tier, places)

    def changes(self, steps: Mapping[int, AddressStep]) -> list[Change] | None:
        """Return how the words that ``begin`` has set change from one iteration of a loop to the next.

        ``steps``: by tier, of arrays that are not the same in each iteration; all words are in one command list. The
        next ``begin`` sets all these words again. None if an array is not contiguous, and has been copied.
        """
        assert self._by_tier is not None
        if self._strided or any(tier in self._copied and tier not in self._last for tier in steps):
            return None
        found = list[Change]()
        for tier, (nbytes, factor) in steps.items():
            self._last.pop(tier, None)
            if tier in self._by_tier:
                self.addresses[tier] = -1
                places = [address_of_word(memory, position) for memory, position, _ in self._by_tier[tier]]
                found += [(place, nbytes, factor) for place in places if nbytes]
        return found

    def set_inputs(self, inputs: Sequence[Array | None]) -> None:
        """Set the arrays in which the causes of events are searched, by node."""
        self.files.update({FILES + i: array for i, array in enumerate(inputs) if array is not None})

    def _set_address(self, tier: int, places: Sequence[_Place]) -> None:
        """Update the words with addresses in a caller's array, which the previous run did not have."""
        array, dtype = self.files[tier], self._copied.get(tier)
        self._last[tier] = weakref.ref(array)
        if dtype is not None and (not array.flags.c_contiguous or array.dtype != dtype or tier in self._in_rows):
            self._in_rows.discard(tier)
            if not self._set_rows(tier, dtype, places):
                del self._last[tier]
                self._make_contiguous(tier, dtype)
        address = address_of(self.files[tier])
        if address != self.addresses[tier]:
            self.addresses[tier] = address
            for memory, position, offset in places:
                memory[position] = address + offset

    def _set_rows(self, tier: int, dtype: np.dtype[Any], places: Sequence[_Place]) -> bool:
        """Let the command that copies a whole array copy its rows; return whether there is such a command."""
        array = self.files[tier]
        layout, is_input = rows_of(array), tier < FILES + self._nodes
        if layout is None or array.dtype != dtype or len(places) != 1:
            return False
        ((memory, position, _),), (rows, nbytes, step) = places, layout
        begin = position - int(is_input)
        if isinstance(memory, list) or memory[begin + 2] * memory[begin + COPY_ROWS] != array.nbytes:
            return False
        memory[begin + 2] = nbytes
        steps = (nbytes, step) if is_input else (step, nbytes)
        memory[begin + COPY_ROWS : begin + COPY_ROWS + 3] = array_of_words("q", (rows, *steps))
        if rows > 1:
            self._in_rows.add(tier)
        return True

    def _make_contiguous(self, tier: int, dtype: np.dtype[Any]) -> None:
        """Replace a run's array that cannot be copied byte by byte."""
        array = self.files[tier]
        if tier < FILES + self._nodes:
            self.files[tier] = np.ascontiguousarray(array, dtype)
            return
        self.files[tier] = made = np.empty(array.shape, dtype)
        self._strided.append((array, made))

    def finish(self) -> None:
        """Complete the outputs of a run whose ops have ended."""
        for array, made in self._strided:
            np.copyto(array, made)

    def relocate(self, ops: Sequence[int], memory: Any, begins: Sequence[Any]) -> None:
        """Update copies of the words of ``ops`` for each run, in place of the words themselves.

        ``begins``: the position of each copy's first word in ``memory``; for an op divided into chunks, of each chunk.
        """
        self._by_tier = None
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
        self._strided.clear()
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
        found = self._zero_copy.window((op.writes if inward else op.reads)[0].value)
        offset = self._offset(tier, region, array) if found is None else None
        if offset is not None:
            call = self._copy_call(tier, offset, array, inward)
            self.kernel_calls[len(self._moves) - 1] = call
            return call.run
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

    def _offset(self, tier: int, region: Box, array: Array) -> int | None:
        """Return the bytes before a region in a caller's array; None if the region may not be contiguous.

        ``array``: the region in the arena. Large arrays are left out: those that are not contiguous are copied.
        """
        if tier < FILES or not array.flags.c_contiguous:
            return None
        graph, number = self._tasks.decomposition.graph, tier - FILES
        shape = graph.nodes[number if number < self._nodes else graph.outputs[number - self._nodes][1]].shape
        if math.prod(shape) * array.itemsize > BLOCKED_COPY_NBYTES:
            return None
        offset, _, repeats = c_layout(shape, array.itemsize, 0).extent(region)
        return None if repeats else offset

    def _copy_call(self, tier: int, offset: int, array: Array, inward: bool) -> KernelCall:
        """Return the call that copies bytes of a caller's array to or from the arena."""
        caller = self._zero_copy.array(tier - FILES)
        base = self.addresses.setdefault(tier, 0 if caller is None else address_of(caller))
        places = [address_of(array), base + offset]
        self._copied[tier] = array.dtype
        call = KernelCall(COPY_BYTES, [*(places if inward else places[::-1]), array.nbytes])
        self._moves[-1].append((tier, call.words, int(inward), offset))
        return call
