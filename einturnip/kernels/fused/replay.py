"""Blocks of a region's output as tapes: each part of a block is written down once, then played wherever its like lies.

One call plays many blocks, so that workers seldom wait for each other's turns at the interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from einturnip.ir.contraction import contraction
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import drop_spurious_invalid
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import view
from einturnip.kernels.fp_status import INVALID, unit
from einturnip.kernels.fused.block_iterator import BlockIterator, Box
from einturnip.kernels.fused.program import BlockContext, BlockProgram
from einturnip.kernels.fused.recorder import CommandList, Ints, NotRecordable, Recorder, elsewhere
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.llvm.contraction import MOST_ROOM_NBYTES
from einturnip.kernels.llvm.pack_loops import KEPT
from einturnip.kernels.llvm.thread_scratch import thread_scratch
from einturnip.kernels.mask import ConditionValues, LabelMask
from einturnip.kernels.protocol import Mode

_GEMMS = {kind: name for (name, _), kind in command_list.KINDS.items()}
_MOST_WORDS, _MOST_TAPES = 1 << 14, 64  # of the tapes played by one call; of those kept
_MOST_TURNS, _MOST_KNOWN = 2048, 16  # of the tapes played for a tile that are remembered; of tiles
_NOTHING = CommandList(np.empty((0, 2), np.int64), *[np.empty(0, np.int64)] * 3)

Part: TypeAlias = Literal["open", "first", "next", "finish"]
"""Of a block of the output: what its states start as, the first block folded into them, any other, the result."""


def play(tapes: Sequence[CommandList], bases: Ints, workspace: Array) -> int:
    """Play tapes one after the other; gives what the floating-point unit saw.

    ``bases``: a row for each, the addresses of its memories, then the labels' first points.
    """
    lengths = [len(t.table) for t in tapes]
    calls = sum(lengths)
    if not calls:
        return 0
    begins = np.cumsum([0, *lengths])
    memory = np.empty(command_list.HEAD + 2 * calls + sum(len(t.words) for t in tapes), np.int64)
    base, at = memory.__array_interface__["data"][0], command_list.HEAD + 2 * calls
    table = memory[command_list.HEAD : at].reshape(calls, 2)
    turns: dict[int, list[int]] = {}
    for i, t in enumerate(tapes):
        turns.setdefault(id(t), []).append(i)
    for mine in turns.values():
        made, times = tapes[mine[0]], len(mine)
        n, size = len(made.table), len(made.words)
        words = memory[at : at + times * size].reshape(times, size)
        words[...] = made.words
        words[:, made.places] += bases[mine][:, made.bases]
        rows = begins[mine][:, None] + np.arange(n)
        table[rows, 0] = made.table[:, 0]
        table[rows, 1] = made.table[:, 1] + (base + 8 * (at + size * np.arange(times)[:, None]))
        at += times * size
    memory[: command_list.HEAD] = base + 8 * command_list.HEAD, calls, 0, 1
    return _played(memory, workspace)


def _played(memory: Ints, workspace: Array) -> int:
    """Play on after each call that raised "invalid": of a product, that may be its padding alone."""
    player, status, bits = code_cache.find(command_list.CommandListExecutor()), unit(), 0
    assert player is not None
    base, calls = memory.__array_interface__["data"][0], int(memory[1])
    while memory[2] < calls:
        status.clear()
        player(base)
        seen = status.read()
        if seen & INVALID:
            kind, where = memory[command_list.HEAD + 2 * (int(memory[2]) - 1) :][:2].tolist()
            seen = (
                drop_spurious_invalid(seen, _product_of(memory, kind, (where - base) // 8, workspace))
                if kind in _GEMMS
                else seen
            )
        bits |= seen
        memory[3] = not bits & INVALID
    return bits


def _product_of(memory: Ints, kind: int, at: int, near: Array) -> Array:
    """The matrix that a call has made."""
    dtype = np.dtype(_GEMMS[kind])
    m, n, target, width = (int(memory[at + 1 + k]) for k in (3, 4, 12, 13))
    return view(
        near, target - near.__array_interface__["data"][0], (m, n), (width * dtype.itemsize, dtype.itemsize), dtype
    )


class RecordedBlocks(Protocol):
    """A region's kernel, as far as its blocks are recorded and played; see ``RegionKernel``."""

    region: Region
    mode: Mode
    states: dict[int, range]
    nothing: list[tuple[Array, ...]]
    mask: LabelMask
    walk: BlockIterator

    def _program(self, extents: tuple[int, ...], held: ConditionValues) -> BlockProgram | None: ...

    def finisher(self, extents: tuple[int, ...]) -> BlockProgram: ...

    def stand(self, frame: BlockContext, box: Box, tile: Box) -> None: ...

    def bind(self, frame: BlockContext, components: tuple[Array, ...], rows: Box) -> None: ...

    def rows(self, frame: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int: ...

    def finish(self, frame: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...]) -> int: ...


class RegionCommandLists:
    """The tapes of a region's kernel, each made when its like is first met; what none can be made of is done in steps.

    A block of the output is what opens its states, the blocks along the streamed labels, and what makes the result.
    ``accesses``: of the operands and of what the kernel writes; None where one reads more than a label's own point.
    """

    def __init__(self, kernel: RecordedBlocks) -> None:
        self.kernel, region = kernel, kernel.region
        states = [region.steps[k].labels[: region.steps[k].einsum.n_out] for k, n in kernel.states.items() for _ in n]
        written = [tuple(range(region.n_out))] if kernel.mode == "whole" else states
        plain = [tuple(p for p in access if isinstance(p, int)) for access in region.accesses]
        self.accesses = (*plain, *written) if plain == [*region.accesses] else None
        products = [k for k, step in enumerate(region.steps) if contraction(step.einsum) is not None]
        self.slots = {k: n for n, k in enumerate(products)}
        self.made: dict[Any, CommandList | None] = {}
        # Of tiles met before, by how their tensors lie: what is played, and where, from the tile's first point on.
        self.known: dict[Any, list[tuple[list[CommandList], Ints]]] = {}

    def run(self, rows: Iterable[Box], frame: BlockContext, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Every block of the output, as ``RegionKernel`` does it."""
        kernel, places, bits = self.kernel, self._places(frame, tile, outs), 0
        lying = tuple([a.strides for a in (*frame.operands, *outs)])
        origin = np.array([o for o, _ in tile], np.int64)
        key = lying, first, tile if kernel.mask.conditions else _extents(tile)
        if key in self.known:
            for tapes, points in self.known[key]:
                bits |= play(tapes, places(points + origin), frame.workspace)
            return bits
        turns, played, size, whole = list[tuple[CommandList, Box]](), list[tuple[list[CommandList], Ints]](), 0, True

        def flush() -> int:
            nonlocal size
            if not turns:
                return 0
            points = np.array([[lo for lo, _ in box] for _, box in turns], np.int64)
            tapes, size = [t for t, _ in turns], 0
            turns.clear()
            played.append((tapes, points - origin))
            return play(tapes, places(points), frame.workspace)

        for box in rows:
            found, finished = self._row(box, frame, outs, first), self._finisher(box, frame, outs)
            for turn in found or ():
                turns.append(turn)
                size += len(turn[0].words)
                if size > _MOST_WORDS:
                    bits |= flush()
            if found is not None and finished is not None:
                turns.append((finished, box))
                size += len(finished.words)
                continue
            bits, whole = bits | flush(), False
            if found is None:
                bits |= kernel.rows(frame, box, tile, outs, first)
            else:
                bits |= kernel.finish(frame, box, tile, outs)
        bits |= flush()
        if whole and sum(len(tapes) for tapes, _ in played) <= _MOST_TURNS:
            self.known = {key: played} if len(self.known) >= _MOST_KNOWN else {**self.known, key: played}
        return bits

    def _places(self, frame: BlockContext, tile: Box, outs: tuple[Array, ...]) -> Callable[[Ints], Ints]:
        """Of each of some boxes, told by its first points: the addresses of its parts, then those points."""
        arrays, origin = (*frame.operands, *outs), np.array([o for o, _ in tile], np.int64)
        steps = np.zeros((len(tile), 2 + len(arrays)), np.int64)
        for i, (array, access) in enumerate(zip(arrays, self.accesses or (), strict=False)):
            for p, step in zip(access, array.strides, strict=True):
                steps[p, 1 + i] += step
        near = [a.__array_interface__["data"][0] for a in (frame.workspace, *arrays)]
        addresses = np.array([*near, self._room()], np.int64)

        def bases(points: Ints) -> Ints:
            return np.concatenate((addresses + (points - origin) @ steps, points), axis=1)

        return bases

    def _room(self) -> int:
        """The address of this thread's room for what products pack; nothing is kept there from other operands."""
        begin = thread_scratch(len(self.slots) * MOST_ROOM_NBYTES)
        for slot in self.slots.values():
            ctypes.memset(begin + slot * MOST_ROOM_NBYTES, 0, 8 * len(KEPT))
        return begin

    def _row(
        self, box: Box, frame: BlockContext, outs: tuple[Array, ...], first: bool
    ) -> list[tuple[CommandList, Box]] | None:
        """What opens a block's states and folds into them: tapes, each with the blocks that it is played for."""
        found: list[tuple[CommandList, Box]] = []
        if first or self.kernel.mode == "whole":
            made = self._tape("open", box, box, frame, outs)
            if made is None:
                return None
            found.append((made, box))
        stands: Box = ()
        for block, held in self.kernel.walk.streamed(box):
            if self.kernel._program(_extents(block), held) is None:
                continue
            part: Part = "next" if block[: self.kernel.region.n_out] == stands else "first"
            made = self._tape(part, block, box, frame, outs, held)
            if made is None:
                return None
            found.append((made, block))
            stands = block[: self.kernel.region.n_out]
        return found

    def _finisher(self, box: Box, frame: BlockContext, outs: tuple[Array, ...]) -> CommandList | None:
        """What makes the result of a block's states; nothing where the kernel leaves them."""
        return _NOTHING if self.kernel.mode == "touch" else self._tape("finish", box, box, frame, outs)

    def _tape(
        self, part: Part, box: Box, rows: Box, frame: BlockContext, outs: tuple[Array, ...], held: ConditionValues = ()
    ) -> CommandList | None:
        """The tape of a part; None where there is none."""
        if self.accesses is None:
            return None
        lying = tuple([a.strides for a in (*frame.operands, *outs)])
        # States in the workspace lie as all the rows do; elsewhere, as the tile does.
        within = [(lo - first, end - first) for (lo, _), (first, end) in zip(box, rows, strict=True)]
        place = tuple(within[: self.kernel.region.n_out]) if self.kernel.mode == "whole" else ()
        key = part, _extents(box), held, lying, place
        if key not in self.made:
            if len(self.made) >= _MOST_TAPES:
                self.made.clear()
            self.made[key] = self._record(part, box, rows, frame, outs, held)
        return self.made[key]

    def _record(
        self, part: Part, box: Box, rows: Box, frame: BlockContext, outs: tuple[Array, ...], held: ConditionValues
    ) -> CommandList | None:
        kernel, extents = self.kernel, _extents(box)
        near, unreal = self._unreal(frame, outs, extents)
        kernel.stand(near, box, box)
        kernel.bind(near, unreal, rows)
        n = len(near.operands)
        starts = tuple([lo for lo, _ in box])
        recorder = Recorder(2 + n + len(unreal), range(1, 1 + n), self.slots, starts)
        try:
            match part:
                case "open":
                    for states, values in zip(near.states, kernel.nothing, strict=True):
                        for state, value in zip(states, values, strict=True):
                            recorder.fill(state, value)
                case "finish":
                    recorder.program(kernel.finisher(extents), near)
                case _:
                    program = kernel._program(extents, held)
                    assert program is not None
                    if part == "next":  # where the first has put what is made once
                        replace(recorder, table=[], words=[], relative=[]).program(program, near)
                    near.fresh = part == "first"
                    recorder.program(program, near)
        except NotRecordable:
            return None
        return recorder.done()

    def _unreal(
        self, frame: BlockContext, outs: tuple[Array, ...], extents: Sequence[int]
    ) -> tuple[BlockContext, tuple[Array, ...]]:
        """A frame whose memory is nowhere, over the parts that a block of these extents has of each tensor."""
        arrays, n = (*frame.operands, *outs), len(frame.operands)
        accesses = self.accesses or ()
        made = tuple(
            elsewhere(1 + i, a, [extents[p] for p in access])
            for i, (a, access) in enumerate(zip(arrays, accesses, strict=True))
        )
        workspace = elsewhere(0, frame.workspace, frame.workspace.shape)
        steps = len(frame.values)
        values, states = [workspace] * steps, [()] * steps
        return BlockContext(made[:n], (), workspace, workspace, values, list(states), made[n]), made[n:]


def _extents(box: Box) -> tuple[int, ...]:
    return tuple([hi - lo for lo, hi in box])
