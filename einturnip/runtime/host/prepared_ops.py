"""What the ops of a plan do, each made ready once: for plans that run again and again."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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

Step = Callable[[], int]
"""Does an op; gives the bits of what a kernel met."""

# Bytes up to which a copy is over before it is found out how to make it quicker.
SMALL_NBYTES = 1 << 20
# What an op that is made ready takes, about.
STEP_NBYTES = 4 << 10

_Window = tuple[int, tuple[Any, ...]]


class PreparedOps:
    """A step for each op, over an arena of its own. For one run at a time.

    ``in_place``: the tiles that are worked on in the caller's arrays; with ``fixed`` those are the same arrays in every
    run, else those that ``begin`` was given. ``kernel``: what a call is done by.
    """

    def __init__(
        self,
        graph: MemGraph,
        in_place: ZeroCopyTiles,
        fixed: bool,
        kernel: Callable[[KernelOperands], HostKernel],
        ops: Iterable[Op],
    ) -> None:
        self.arena = HostArena(max(1, arena_nbytes(graph)), large_pages=not fixed)
        self._in_place, self._fixed, self._choose = in_place, fixed, kernel
        self._views = OpViews(graph, self.arena, in_place)
        self._tasks, self._nodes = graph.taskgraph, len(graph.taskgraph.decomposition.graph.nodes)
        self.files: dict[int, Array] = {}
        self.addresses = dict[int, int]()  # of the caller's arrays that kernels are told of, by tier
        self._begun: set[int] = set()
        self.made = [self._step(op) for op in ops]
        if not fixed:
            self._views.forget()  # the arrays that the steps were made with

    def begin(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        """Before a run. ``inputs``: the array of each input by node; ``outputs``: that of each output."""
        files = self.files
        for i, array in enumerate(inputs):
            if array is not None:
                files[FILES + i] = array
        for o, array in enumerate(outputs):
            files[FILES + self._nodes + o] = array
        for tier in self.addresses:
            self.addresses[tier] = _address(files[tier])

    def forget(self) -> None:
        """Hold none of the arrays that the steps were made with."""
        self._views.forget()

    def end(self) -> None:
        """After a run: the caller's arrays are held no longer."""
        self.files.clear()
        self._begun.clear()

    def _step(self, op: Op) -> Step:
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                return self._kernel(op)
            case OpKind.MOVE:
                return self._move(op)
            case OpKind.LOAD | OpKind.STORE if self._in_place.there(op):
                return int
            case OpKind.LOAD | OpKind.RELOAD:
                return self._copy(op, op.reads[0].tier, inward=True)
            case OpKind.OFFLOAD | OpKind.STORE:
                return self._copy(op, op.writes[0].tier, inward=False)

    def _kernel(self, op: Op) -> Step:
        call = self._views.call(op)
        bind = self._bound if self._fixed else self._late
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

    def _bound(self, op: Op, call: KernelOperands, first: bool) -> Step:
        """The call of a kernel on tiles that never change their place."""
        kernel = self._choose(call)
        if isinstance(kernel, Bindable):
            return kernel.bound(call.outs, call.operands, call.origins, first, call.workspace)
        return lambda: kernel(call.outs, call.operands, call.origins, first, call.workspace)

    def _late(self, op: Op, call: KernelOperands, first: bool) -> Step:
        """The call of a kernel some of whose tiles stand in the caller's arrays, whichever these are."""
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
        there = dict(windows)
        settled = [None if slot in there else operand for slot, operand in enumerate(call.operands)]
        origins, workspace, followed = call.origins, call.workspace, None
        if op.unit < 0 and call.mode == "full" and isinstance(kernel, Relocatable):
            followed = kernel.followed(outs, call.operands)
        if made is not None:
            outs = ()
        del call, op

        def run() -> int:
            operands: list[Any] = settled.copy()
            for slot, (tier, window) in windows:
                operands[slot] = files[tier][window]
            results = outs if made is None else (files[made[0]][made[1]],)
            return kernel(results, tuple(operands), origins, first, workspace)

        if followed is None:
            return run
        return self._followed(followed, windows if made is None else [*windows, (len(settled), made)], run)

    def _followed(
        self,
        followed: RelocatableCall,
        windows: Sequence[tuple[int, _Window]],
        again: Step,
    ) -> Step:
        """A kernel that is told where its tiles are; ``again``: the kernel itself."""
        moves, addresses, call = list[tuple[ctypes.c_void_p, int, int]](), self.addresses, followed.call
        for slot, (tier, window) in windows:
            offset = _address(self._array(tier)[window]) - self._base(tier)
            moves.append((followed.places[slot], tier, offset))

        def run() -> int:
            for place, tier, offset in moves:
                place.value = addresses[tier] + offset
            bits = call()
            return again() if bits & INVALID else bits

        return run

    def _base(self, tier: int) -> int:
        """Where the caller's array is that the steps are made with; ``begin`` tells from then on where it is."""
        return self.addresses.setdefault(tier, _address(self._array(tier)))

    def _array(self, tier: int) -> Array:
        """The caller's array that the steps are made with."""
        array = self._in_place.array(tier - FILES)
        assert array is not None
        return array

    def taped(self, op: Op) -> RecordedOp | None:
        """The call of a kernel that makes a whole tile, as it is on a tape; None where it cannot be.

        As ``parts``: only as long as the arrays that the steps were made with are there.
        """
        call = self._views.call(op)
        kernel = self._choose(call)
        found = record_call(kernel, call) if call.mode == "full" and op.unit < 0 else None
        moves = None if found is None else self._moves(op, found.arrays)
        if found is None or moves is None:
            return None
        for tier, word in moves:
            base = self.addresses[tier]
            found.moves.extend((k, word, tier, words[word] - base) for k, (_, words) in enumerate(found.calls))
        return found

    def parts(self, op: Op, most: int) -> tuple[KernelParts, list[tuple[int, int]]] | None:
        """The call of a kernel that makes a whole tile in at most so many parts; None where it cannot be.

        With the words of a part that move with the caller's arrays: (tier, word). Only as long as the arrays that the
        steps were made with are there.
        """
        call = self._views.call(op)
        kernel = self._choose(call)
        if call.mode != "full" or op.unit >= 0 or not isinstance(kernel, Divisible):
            return None
        found = kernel.parts(call.outs, call.operands, call.origins, most)
        moves = None if found is None else self._moves(op, found.arrays)
        return None if found is None or moves is None else (found, moves)

    def _moves(self, op: Op, words: Sequence[int]) -> list[tuple[int, int]] | None:
        """Which of the words of operands and result go with the caller's arrays; None where there are other words."""
        values = (*self._tasks[op.task].seen, op.writes[0].value)
        if len(values) != len(words):
            return None
        windows = zip(words, map(self._window, values), strict=True)
        moves = [(window[0], word) for word, window in windows if window is not None and not self._fixed]
        for tier, _ in moves:
            self._base(tier)
        return moves

    def _window(self, value: int, box: Box | None = None) -> _Window | None:
        """Of a value, or its part ``box``, in a caller's array, the array's tier and the window; None in the arena."""
        number = self._in_place.file(value)
        if number is None or self._in_place(value) is None:
            return None
        return FILES + number, (*slices(self._tasks.get_value(value).box if box is None else box), ...)

    def _part(self, value: int, box: Box, array: Array) -> Callable[[], Array]:
        """Part ``box`` of a value in whichever run; ``array``: where it is in the one that the steps are made with."""
        found = None if self._fixed else self._window(value, box)
        if found is None:
            return lambda: array
        files, (tier, window) = self.files, found
        return lambda: files[tier][window]

    def _move(self, op: Op) -> Step:
        task = self._tasks[op.task]
        copied = zip(task.seen, self._tasks.copied(task), self._views.moved(op), strict=True)
        made = op.writes[0].value
        pairs = [(self._part(made, box, t), self._part(seen, box, s)) for seen, box, (t, s) in copied]

        def move() -> int:
            for target, source in pairs:
                target()[...] = source()
            return 0

        return move

    def _copy(self, op: Op, tier: int, inward: bool) -> Step:
        region, array = self._views.transferred(op)
        here = self._part((op.writes if inward else op.reads)[0].value, region, array)
        window: tuple[Any, ...] = (*slices(region), ...)  # a view even of a scalar
        files = self.files
        copy = copy_blocked if array.nbytes > SMALL_NBYTES else np.copyto

        def load() -> int:
            copy(here(), files[tier][window])
            return 0

        def store() -> int:
            copy(files[tier][window], here())
            return 0

        return load if inward else store


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def arena_nbytes(graph: MemGraph) -> int:
    """The end of the last byte of the arena that is used."""
    rows = np.concatenate([graph.read, graph.write])
    here = rows[rows[:, 0] == COMPUTE]
    return int((here[:, 1] + here[:, 2]).max(initial=0))


def numeric_events(graph: MemGraph, bits: Mapping[int, int]) -> dict[int, list[int]]:
    """By node, in how many tiles something invalid, an overflow or a division by zero happened.

    ``bits``: those that ops gave.
    """
    flags: dict[int, list[int]] = {}
    for op, found in bits.items():
        if found:
            node = int(graph.taskgraph.node[graph.task[op]])
            counts = flags.setdefault(node, [0, 0, 0])
            for k in range(3):
                counts[k] += found >> k & 1
    return flags
