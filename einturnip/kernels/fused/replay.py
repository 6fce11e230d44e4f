"""Replays the recorded kernel calls of a region's blocks.

The work on a block of the output has parts: initialise the states, fold each block along the streamed labels, compute
the result. The calls of each part are recorded once as a command list, for each shape, strides and condition values.
One call of machine code then replays the command lists of many blocks, so that worker threads seldom wait for the
interpreter lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from einturnip.ir.einsum import Box, contraction
from einturnip.kernels.blas.contraction import drop_spurious_invalid
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import view
from einturnip.kernels.fp_status import INVALID, unit
from einturnip.kernels.fused.block_iterator import extents_of
from einturnip.kernels.fused.partial_states import CombineStates, FoldBlock, OpenState
from einturnip.kernels.fused.program import BlockContext
from einturnip.kernels.fused.recorder import CommandList, Ints, NotRecordable, Recorder, placeholder_array
from einturnip.kernels.fused.region_spec import RegionSpec
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.llvm.contraction import MAX_SCRATCH_NBYTES
from einturnip.kernels.mask import ConditionValues
from einturnip.kernels.thread_scratch import thread_scratch

_GEMMS = {kind: name for (name, _), kind in command_list.KINDS.items()}
_MAX_WORDS = 1 << 14  # maximum words of the lists that one call replays
_MAX_LISTS = 64  # maximum cached lists of a kernel
_MAX_REPLAYS, _MAX_TILES = 2048, 16  # maximum list replays of a tile whose sequence is cached, and maximum cached tiles
_EMPTY_LIST = CommandList(np.empty((0, 2), np.int64), *[np.empty(0, np.int64)] * 3)

_Command: TypeAlias = tuple[CommandList, Box]
Part: TypeAlias = Literal["open", "first", "next", "finalize"]
"""A part of the work on an output block: initialise states, fold the first or a later block, compute the result."""


class _Replay(NamedTuple):
    """The command lists that one call replays; ``points``: of their blocks, relative to the tile."""

    lists: list[CommandList]
    points: Ints


class _Combine(NamedTuple):
    """A combination of two states between two calls; ``rows``: the output block, relative to the tile."""

    rows: Ints
    levels: CombineStates


def replay(lists: Sequence[CommandList], bases: Ints, workspace: Array) -> int:
    """Replay command lists in order and return the raised floating-point flags.

    ``bases``: a row for each list: the addresses of its memories, then the first points of labels.
    """
    # The argument of the executor is one array: its head, the tables of all lists, then the words of all lists.
    # Occurrences of the same list are copied and relocated (``bases`` added to the relative words) together.
    lengths = [len(t.table) for t in lists]
    calls = sum(lengths)
    if not calls:
        return 0
    begins = np.cumsum([0, *lengths])
    memory = np.empty(command_list.HEAD + 2 * calls + sum(len(t.words) for t in lists), np.int64)
    base, at = memory.__array_interface__["data"][0], command_list.HEAD + 2 * calls
    table = memory[command_list.HEAD : at].reshape(calls, 2)
    occurrences: dict[int, list[int]] = {}
    for i, t in enumerate(lists):
        occurrences.setdefault(id(t), []).append(i)
    for mine in occurrences.values():
        made, times = lists[mine[0]], len(mine)
        n, size = len(made.table), len(made.words)
        words = memory[at : at + times * size].reshape(times, size)
        words[...] = made.words
        words[:, made.places] += bases[mine][:, made.bases]
        rows = begins[mine][:, None] + np.arange(n)
        table[rows, 0] = made.table[:, 0]
        table[rows, 1] = made.table[:, 1] + (base + 8 * (at + size * np.arange(times)[:, None]))
        at += times * size
    memory[: command_list.HEAD] = 0
    memory[: command_list.STOP_FLAGS + 1] = base + 8 * command_list.HEAD, calls, 0, 1
    return _run_calls(memory, workspace)


def _run_calls(memory: Ints, workspace: Array) -> int:
    """Run the calls and return the raised flags.

    The executor stops after a call that raised "invalid". If the call is a product, its padding can be the only cause,
    which the result shows; the flag is dropped then. The run resumes, and stops no more once the flag is certain.
    """
    executor, status, bits = code_cache.find(command_list.CommandListExecutor()), unit(), 0
    assert executor is not None
    base, calls = memory.__array_interface__["data"][0], int(memory[command_list.N_CALLS])
    while memory[command_list.NEXT_CALL] < calls:
        status.clear()
        executor(base)
        seen = status.read()
        if seen & INVALID:
            kind, where = memory[command_list.HEAD + 2 * (int(memory[command_list.NEXT_CALL]) - 1) :][:2].tolist()
            seen = (
                drop_spurious_invalid(seen, _product_of(memory, kind, (where - base) // 8, workspace))
                if kind in _GEMMS
                else seen
            )
        bits |= seen
        memory[command_list.STOP_FLAGS] = not bits & INVALID
    return bits


def _product_of(memory: Ints, kind: int, at: int, near: Array) -> Array:
    """Return the matrix that a recorded product has written; ``at``: the place of its words in ``memory``.

    ``near``: an array from which addresses can be viewed.
    """
    dtype = np.dtype(_GEMMS[kind])
    m, n, target, width = (int(memory[at + 1 + k]) for k in (3, 4, 12, 13))
    return view(
        near, target - near.__array_interface__["data"][0], (m, n), (width * dtype.itemsize, dtype.itemsize), dtype
    )


class RecordedBlocks(Protocol):
    """The interface of ``RegionKernel`` that recording and replaying use."""

    spec: RegionSpec
    states: dict[int, range]
    identities: list[tuple[Array, ...]]

    def move_to(self, context: BlockContext, box: Box, tile: Box) -> None: ...

    def bind(
        self, context: BlockContext, components: tuple[Array, ...], rows: Box, level: int | None = None
    ) -> None: ...

    def combine_states(
        self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], levels: CombineStates
    ) -> int: ...

    def rows(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int: ...

    def finalize(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...]) -> int: ...


class RegionCommandLists:
    """Runs a region's kernel by cached command lists; the kernel runs blocks that cannot be recorded.

    ``accesses``: the labels of each operand and output; None if an index is not a label. ``slots``: by step that is a
    product, the number of its part of the scratch for packing. ``recorded``: command lists by part, shape and strides.
    ``replays``: the sequence of replays of a whole tile, by the strides of its tensors.
    """

    def __init__(self, kernel: RecordedBlocks) -> None:
        self.kernel, self.spec, region = kernel, kernel.spec, kernel.spec.region
        states = [region.steps[k].labels[: region.steps[k].einsum.n_out] for k, n in kernel.states.items() for _ in n]
        written = [tuple(range(region.n_out))] if kernel.spec.mode == "full" else states
        plain = [tuple(p for p in access if isinstance(p, int)) for access in region.accesses]
        self.accesses = (*plain, *written) if kernel.spec.records else None
        products = [k for k, step in enumerate(region.steps) if contraction(step.einsum) is not None]
        self.slots = {k: n for n, k in enumerate(products)}
        self.recorded: dict[Any, CommandList | None] = {}
        self.replays: dict[Any, list[_Replay | _Combine]] = {}

    def run(self, rows: Iterable[Box], context: BlockContext, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Compute every block of the output, as ``RegionKernel`` does."""
        kernel, places, bits = self.kernel, self._places(context, tile, outs), 0
        strides = tuple([a.strides for a in (*context.operands, *outs)])
        origin = np.array([o for o, _ in tile], np.int64)
        key = strides, first, tile if kernel.spec.mask.conditions else extents_of(tile)
        if key in self.replays:
            for part in self.replays[key]:
                if isinstance(part, _Replay):
                    bits |= replay(part.lists, places(part.points + origin), context.workspace)
                else:
                    ends = part.rows + origin[:, None]
                    bits |= kernel.combine_states(context, _box(ends), tile, outs, part.levels)
            return bits
        pending, replayed = list[_Command](), list[_Replay | _Combine]()
        size, complete = 0, True

        def flush() -> int:
            nonlocal size
            if not pending:
                return 0
            points = np.array([[lo for lo, _ in box] for _, box in pending], np.int64)
            lists, size = [t for t, _ in pending], 0
            pending.clear()
            replayed.append(_Replay(lists, points - origin))
            return replay(lists, places(points), context.workspace)

        for box in rows:
            found, finished = self._row(box, context, outs, first), self._finalizer(box, context, outs)
            for item in found or ():
                if isinstance(item, CombineStates):
                    bits |= flush() | kernel.combine_states(context, box, tile, outs, item)
                    replayed.append(_Combine(np.array(box, np.int64) - origin[:, None], item))
                    continue
                pending.append(item)
                size += len(item[0].words)
                if size > _MAX_WORDS:
                    bits |= flush()
            if found is not None and finished is not None:
                pending.append((finished, box))
                size += len(finished.words)
                continue
            bits, complete = bits | flush(), False
            if found is None:
                bits |= kernel.rows(context, box, tile, outs, first)
            else:
                bits |= kernel.finalize(context, box, tile, outs)
        bits |= flush()
        if complete and sum(map(_size, replayed)) <= _MAX_REPLAYS:
            self.replays = {key: replayed} if len(self.replays) >= _MAX_TILES else {**self.replays, key: replayed}
        return bits

    def _places(self, context: BlockContext, tile: Box, outs: tuple[Array, ...]) -> Callable[[Ints], Ints]:
        """Return the function that maps the first points of blocks to the ``bases`` of ``replay``."""
        arrays, origin = (*context.operands, *outs), np.array([o for o, _ in tile], np.int64)
        steps = np.zeros((len(tile), 2 + len(arrays)), np.int64)
        for i, (array, access) in enumerate(zip(arrays, self.accesses or (), strict=False)):
            for p, step in zip(access, array.strides, strict=True):
                steps[p, 1 + i] += step
        near = [a.__array_interface__["data"][0] for a in (context.workspace, *arrays)]
        addresses = np.array([*near, self._scratch()], np.int64)

        def bases(points: Ints) -> Ints:
            return np.concatenate((addresses + (points - origin) @ steps, points), axis=1)

        return bases

    def _scratch(self) -> int:
        """Return the address of this thread's scratch for packing, with its packed operands marked invalid."""
        begin = thread_scratch(len(self.slots) * MAX_SCRATCH_NBYTES)
        for slot in self.slots.values():
            ctypes.memset(begin + slot * MAX_SCRATCH_NBYTES, 0, 8)
        return begin

    def _row(
        self, box: Box, context: BlockContext, outs: tuple[Array, ...], first: bool
    ) -> list[_Command | CombineStates] | None:
        """Return the command lists and combinations of states that fold an output block.

        None if a part cannot be recorded.
        """
        found: list[_Command | CombineStates] = []
        if first or self.spec.mode == "full":
            made = self._command_list("open", box, box, context, outs)
            if made is None:
                return None
            found.append((made, box))
        current: Box = ()
        for step in self.spec.levels.steps(self.spec.iterator.streamed(box)):
            match step:
                case CombineStates():
                    found.append(step)
                    continue
                case OpenState(level):
                    block, made = box, self._command_list("open", box, box, context, outs, (), level)
                case FoldBlock(level, block, decided):
                    if self.spec.program(extents_of(block), decided) is None:
                        continue
                    part: Part = "next" if block[: self.spec.region.n_out] == current else "first"
                    made = self._command_list(part, block, box, context, outs, decided, level)
                    current = block[: self.spec.region.n_out]
            if made is None:
                return None
            found.append((made, block))
        return found

    def _finalizer(self, box: Box, context: BlockContext, outs: tuple[Array, ...]) -> CommandList | None:
        """Return the list that computes a block's result; an empty one if the kernel only accumulates."""
        return (
            _EMPTY_LIST if self.spec.mode == "accumulate" else self._command_list("finalize", box, box, context, outs)
        )

    def _command_list(
        self,
        part: Part,
        box: Box,
        rows: Box,
        context: BlockContext,
        outs: tuple[Array, ...],
        decided: ConditionValues = (),
        level: int | None = None,
    ) -> CommandList | None:
        """Return the cached or newly recorded list of a part; None if it cannot be recorded.

        ``level``: of the partial state to fold into; None for the tile's state.
        """
        if self.accesses is None:
            return None
        strides = tuple([a.strides for a in (*context.operands, *outs)])
        # A state in the workspace has the shape of the whole output block ``rows``, so its strides and the place of
        # ``box`` in it are part of the key. The strides of other states are those of the outputs.
        within = [(lo - first, end - first) for (lo, _), (first, end) in zip(box, rows, strict=True)]
        inside = self.spec.mode == "full" or level not in (None, self.spec.levels.partial)
        place = tuple(within[: self.spec.region.n_out]) if inside else ()
        key = part, extents_of(box), decided, strides, place, level
        if key not in self.recorded:
            if len(self.recorded) >= _MAX_LISTS:
                self.recorded.clear()
            self.recorded[key] = self._record(part, box, rows, context, outs, decided, level)
        return self.recorded[key]

    def _record(
        self,
        part: Part,
        box: Box,
        rows: Box,
        context: BlockContext,
        outs: tuple[Array, ...],
        decided: ConditionValues,
        level: int | None,
    ) -> CommandList | None:
        kernel, extents = self.kernel, extents_of(box)
        recorded, outputs = self._placeholders(context, outs, extents)
        kernel.move_to(recorded, box, box)
        kernel.bind(recorded, outputs, rows, level)
        n = len(recorded.operands)
        starts = tuple([lo for lo, _ in box])
        recorder = Recorder(2 + n + len(outputs), range(1, 1 + n), self.slots, starts)
        try:
            match part:
                case "open":
                    for states, values in zip(recorded.states, kernel.identities, strict=True):
                        for state, value in zip(states, values, strict=True):
                            recorder.fill(state, value)
                case "finalize":
                    recorder.program(kernel.spec.finalizer(extents), recorded)
                case _:
                    program = kernel.spec.program(extents, decided)
                    assert program is not None
                    if part == "next":  # a discarded recording of "first" places the values that are computed once
                        replace(recorder, table=[], words=[], relative=[]).program(program, recorded)
                    recorded.fresh = part == "first"
                    recorder.program(program, recorded)
        except NotRecordable:
            return None
        return recorder.build()

    def _placeholders(
        self, context: BlockContext, outs: tuple[Array, ...], extents: Sequence[int]
    ) -> tuple[BlockContext, tuple[Array, ...]]:
        """Return a context over placeholder memory, and its outputs, for a block of these extents."""
        arrays, n = (*context.operands, *outs), len(context.operands)
        accesses = self.accesses or ()
        made = tuple(
            placeholder_array(1 + i, a, [extents[p] for p in access])
            for i, (a, access) in enumerate(zip(arrays, accesses, strict=True))
        )
        workspace = placeholder_array(0, context.workspace, context.workspace.shape)
        steps = len(context.values)
        values, states = [workspace] * steps, [()] * steps
        return BlockContext(made[:n], (), workspace, workspace, values, list(states), made[n]), made[n:]


def _box(ends: Ints) -> Box:
    return tuple([(lo, hi) for lo, hi in ends.tolist()])


def _size(part: _Replay | _Combine) -> int:
    return len(part.lists) if isinstance(part, _Replay) else 1
