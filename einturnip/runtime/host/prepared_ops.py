"""Prepared ops: calls with resolved kernels and addresses, for plans that run repeatedly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from einturnip.devices.host import HostArena
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.parallel_parts import Divisible, KernelParts
from einturnip.kernels.protocol import Bindable, HostKernel, Relocatable, RelocatableCall
from einturnip.memgraph.types import COMPUTE, FILES, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array, KernelOperands, OpViews
from einturnip.runtime.host.command_lists import RecordedOp, record_call
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.types import slices
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling.types import Box

PreparedOp: TypeAlias = Callable[[], int]
"""Executes an op; returns the floating-point flags of its kernel. ``int`` itself is the op that does nothing."""

SMALL_NBYTES = 1 << 20
"""Bytes up to which a plain copy is faster than choosing blocks for ``copy_blocked``."""
STEP_NBYTES = 4 << 10
"""Approximate memory of one prepared op."""

_Window = tuple[int, tuple[Any, ...]]
"""A region of a caller's array: the array's tier and the index."""


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
        kernel: Callable[[KernelOperands], HostKernel],
        ops: Iterable[Op],
    ) -> None:
        self.arena = HostArena(max(1, arena_nbytes(graph)), large_pages=not fixed)
        self._zero_copy, self._fixed, self._choose = zero_copy, fixed, kernel
        self._views = OpViews(graph, self.arena, zero_copy)
        self._tasks, self._nodes = graph.taskgraph, len(graph.taskgraph.decomposition.graph.nodes)
        self.files: dict[int, Array] = {}
        self.addresses = dict[int, int]()  # by tier: address of each caller's array that kernels access directly
        self._begun: set[int] = set()
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
        for tier in self.addresses:
            self.addresses[tier] = _address(files[tier])

    def forget(self) -> None:
        """Drop the arrays with which the calls were prepared."""
        self._views.forget()

    def end(self) -> None:
        """Drop the arrays of a run."""
        self.files.clear()
        self._begun.clear()

    def _prepare(self, op: Op) -> PreparedOp:
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                return self._kernel(op)
            case OpKind.MOVE:
                return self._move(op)
            case OpKind.LOAD | OpKind.STORE if self._zero_copy.needs_no_copy(op):
                return int
            case OpKind.LOAD | OpKind.RELOAD:
                return self._copy(op, op.reads[0].tier, inward=True)
            case OpKind.OFFLOAD | OpKind.STORE:
                return self._copy(op, op.writes[0].tier, inward=False)

    def _kernel(self, op: Op) -> PreparedOp:
        call = self._views.call(op)
        bind = self._bound if self._fixed else self._unbound
        if op.unit < 0:
            return bind(op, call, False)
        later, first = bind(op, call, False), bind(op, call, not self._views.continues(op.unit))
        begun, unit = self._begun, op.unit

        def accumulate() -> int:
            if unit in begun:
                return later()
            begun.add(unit)
            return first()

        return accumulate

    def _bound(self, op: Op, call: KernelOperands, first: bool) -> PreparedOp:
        """Prepare a kernel call on tiles whose addresses are the same in every run."""
        kernel = self._choose(call)
        if isinstance(kernel, Bindable):
            return kernel.bound(call.outs, call.operands, call.origins, first, call.workspace)
        return lambda: kernel(call.outs, call.operands, call.origins, first, call.workspace)

    def _unbound(self, op: Op, call: KernelOperands, first: bool) -> PreparedOp:
        """Prepare a kernel call some of whose tiles are in the arrays of the present run."""
        task = self._tasks[op.task]
        made = self._window(op.writes[0].value)
        windows: list[tuple[int, _Window]] = []
        if task.kind not in (TaskKind.FINALIZE, TaskKind.COMBINE):
            box = self._tasks.decomposition.partitionings[task.node].box(task.key)
            for slot, seen in enumerate(task.seen):
                found = self._window(seen)
                if found is not None:
                    need = call.einsum.operand_box(slot, box)
                    windows.append((slot, (found[0], (*slices(need), ...))))
        if made is None and not windows:
            return self._bound(op, call, first)
        kernel, files, outs = self._choose(call), self.files, call.outs
        in_arrays = dict(windows)
        in_arena = [None if slot in in_arrays else operand for slot, operand in enumerate(call.operands)]
        origins, workspace, relocatable = call.origins, call.workspace, None
        if op.unit < 0 and call.mode == "full" and isinstance(kernel, Relocatable):
            relocatable = kernel.relocatable_call(outs, call.operands)
        if made is not None:
            outs = ()
        del call, op  # the closure below would keep the arrays alive

        def run() -> int:
            operands: list[Any] = in_arena.copy()
            for slot, (tier, window) in windows:
                operands[slot] = files[tier][window]
            results = outs if made is None else (files[made[0]][made[1]],)
            return kernel(results, tuple(operands), origins, first, workspace)

        if relocatable is None:
            return run
        return self._relocated(relocatable, windows if made is None else [*windows, (len(in_arena), made)], run)

    def _relocated(
        self,
        relocatable: RelocatableCall,
        windows: Sequence[tuple[int, _Window]],
        rerun: PreparedOp,
    ) -> PreparedOp:
        """Prepare a call that sets the addresses of its tiles first.

        ``rerun``: calls the kernel on the arrays.

        An INVALID flag may come from padding outside the tile, so ``rerun`` then decides.
        """
        relocations, addresses, call = list[tuple[ctypes.c_void_p, int, int]](), self.addresses, relocatable.call
        for slot, (tier, window) in windows:
            offset = _address(self._array(tier)[window]) - self._base(tier)
            relocations.append((relocatable.places[slot], tier, offset))

        def run() -> int:
            for place, tier, offset in relocations:
                place.value = addresses[tier] + offset
            bits = call()
            return rerun() if bits & INVALID else bits

        return run

    def _base(self, tier: int) -> int:
        """Return the address of the array with which calls are prepared.

        From now on ``begin`` updates it for each run.
        """
        return self.addresses.setdefault(tier, _address(self._array(tier)))

    def _array(self, tier: int) -> Array:
        """Return the caller's array with which calls are prepared."""
        array = self._zero_copy.array(tier - FILES)
        assert array is not None
        return array

    def record(self, op: Op) -> RecordedOp | None:
        """Record a kernel that computes a whole tile for a command list; None if that is not possible.

        Only while the arrays with which the calls were prepared exist.
        """
        call = self._views.call(op)
        kernel = self._choose(call)
        found = record_call(kernel, call) if call.mode == "full" and op.unit < 0 else None
        relocations = None if found is None else self._relocations(op, found.arrays)
        if found is None or relocations is None:
            return None
        for tier, word in relocations:
            base = self.addresses[tier]
            found.relocations.extend((k, word, tier, words[word] - base) for k, (_, words) in enumerate(found.calls))
        return found

    def parts(self, op: Op, max_parts: int) -> tuple[KernelParts, list[tuple[int, int]]] | None:
        """Divide a kernel call for a whole tile into at most ``max_parts`` parts; None if not possible.

        Also returns the argument words that hold an address in a caller's array, as (tier, word). Only while the
        arrays with which the calls were prepared exist.
        """
        call = self._views.call(op)
        kernel = self._choose(call)
        if call.mode != "full" or op.unit >= 0 or not isinstance(kernel, Divisible):
            return None
        found = kernel.parts(call.outs, call.operands, call.origins, max_parts)
        relocations = None if found is None else self._relocations(op, found.arrays)
        return None if found is None or relocations is None else (found, relocations)

    def _relocations(self, op: Op, words: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return the address words that point into a caller's array, as (tier, word).

        ``words``: positions of the addresses of operands and result. None if they are not one per operand and result.
        """
        values = (*self._tasks[op.task].seen, op.writes[0].value)
        if len(values) != len(words):
            return None
        windows = zip(words, map(self._window, values), strict=True)
        relocations = [(window[0], word) for word, window in windows if window is not None and not self._fixed]
        for tier, _ in relocations:
            self._base(tier)
        return relocations

    def _window(self, value: int, box: Box | None = None) -> _Window | None:
        """Return the window of a value, or of its part ``box``, in a caller's array; None in the arena."""
        number = self._zero_copy.file(value)
        if number is None or self._zero_copy(value) is None:
            return None
        return FILES + number, (*slices(self._tasks.get_value(value).box if box is None else box), ...)

    def _part(self, value: int, box: Box, array: Array) -> Callable[[], Array]:
        """Return a function that gives part ``box`` of a value in the present run.

        ``array``: the part in the arrays with which the calls are prepared.
        """
        found = None if self._fixed else self._window(value, box)
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
        copy = copy_blocked if array.nbytes > SMALL_NBYTES else np.copyto

        def load() -> int:
            copy(part(), files[tier][window])
            return 0

        def store() -> int:
            copy(files[tier][window], part())
            return 0

        return load if inward else store


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def arena_nbytes(graph: MemGraph) -> int:
    """Return the bytes of the arena up to the last one that the graph uses."""
    rows = np.concatenate([graph.read, graph.write])
    here = rows[rows[:, 0] == COMPUTE]
    return int((here[:, 1] + here[:, 2]).max(initial=0))


def numeric_events(graph: MemGraph, bits: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, by node, the number of tiles with an invalid operation, an overflow, and a division by zero.

    ``bits``: the floating-point flags of each op that raised any.
    """
    flags: dict[int, list[int]] = {}
    for op, found in bits.items():
        if found:
            node = int(graph.taskgraph.node[graph.task[op]])
            counts = flags.setdefault(node, [0, 0, 0])
            for k in range(3):
                counts[k] += found >> k & 1
    return flags
