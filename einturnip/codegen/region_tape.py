"""Blocks of a region's output as tapes: each part of a block is written down once, then played wherever its like lies.

One call plays many blocks, so that workers seldom wait for each other's turns at the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from einturnip.codegen.contraction import heard
from einturnip.codegen.mask import Held
from einturnip.codegen.native import library, tape
from einturnip.codegen.primitives import Array
from einturnip.codegen.protocol import Mode
from einturnip.codegen.region_program import Frame, Program
from einturnip.codegen.region_recorder import Ints, Recorder, Tape, Unplayable, elsewhere
from einturnip.codegen.status import INVALID, unit
from einturnip.codegen.window import view
from einturnip.core.region import Region

_GEMMS = {kind: name for (name, _), kind in tape.KINDS.items()}
_HEAD = 4  # words that the player reads
_MOST_WORDS, _MOST_TAPES = 1 << 14, 64  # of the tapes played by one call; of those kept
_NOTHING = Tape(np.empty((0, 2), np.int64), *[np.empty(0, np.int64)] * 3)

Box: TypeAlias = tuple[tuple[int, int], ...]
Part: TypeAlias = Literal["open", "first", "next", "finish"]
"""Of a block of the output: what its states start as, the first block folded into them, any other, the result."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A tape played once for each row of ``bases``: the addresses of its memories, then the labels' first points."""

    tape: Tape
    bases: Ints

    @property
    def n_words(self) -> int:
        """How long it is, written out."""
        return len(self.bases) * len(self.tape.words)


def play(turns: Sequence[Turns], workspace: Array) -> int:
    """Play tapes one after the other; gives what the floating-point unit saw."""
    calls = sum(len(t.bases) * len(t.tape.table) for t in turns)
    if not calls:
        return 0
    memory = np.empty(_HEAD + 2 * calls + sum(t.n_words for t in turns), np.int64)
    base, row, at = memory.__array_interface__["data"][0], _HEAD, _HEAD + 2 * calls
    for t in turns:
        times, n, size = len(t.bases), len(t.tape.table), len(t.tape.words)
        table = memory[row : row + 2 * times * n].reshape(times, n, 2)
        words = memory[at : at + times * size].reshape(times, size)
        table[...] = t.tape.table
        table[..., 1] += base + 8 * (at + size * np.arange(times)[:, None])
        words[...] = t.tape.words
        words[:, t.tape.places] += t.bases[:, t.tape.bases]
        row, at = row + 2 * times * n, at + times * size
    memory[:_HEAD] = base + 8 * _HEAD, calls, 0, 1
    return _played(memory, workspace)


def _played(memory: Ints, workspace: Array) -> int:
    """Play on after each call that raised "invalid": of a product, that may be its padding alone."""
    player, status, bits = library.find(tape.Player()), unit(), 0
    assert player is not None
    base, calls = memory.__array_interface__["data"][0], int(memory[1])
    while memory[2] < calls:
        status.clear()
        player(base)
        seen = status.read()
        if seen & INVALID:
            kind, where = memory[_HEAD + 2 * (int(memory[2]) - 1) :][:2].tolist()
            seen = heard(seen, _product_of(memory, kind, (where - base) // 8, workspace)) if kind in _GEMMS else seen
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


class Blocks(Protocol):
    """A region's kernel, as far as its blocks are recorded and played; see ``RegionKernel``."""

    region: Region
    mode: Mode
    states: dict[int, range]
    nothing: list[tuple[Array, ...]]

    def streamed(self, box: Box) -> tuple[tuple[Box, Held], ...]: ...

    def _program(self, extents: tuple[int, ...], held: Held) -> Program | None: ...

    def finisher(self, extents: tuple[int, ...]) -> Program: ...

    def stand(self, frame: Frame, box: Box, tile: Box) -> None: ...

    def bind(self, frame: Frame, components: tuple[Array, ...]) -> None: ...

    def rows(self, frame: Frame, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int: ...

    def finish(self, frame: Frame, box: Box, tile: Box, out: Array) -> int: ...


class Tapes:
    """The tapes of a region's kernel, each made when its like is first met; what none can be made of is done in steps.

    A block of the output is what opens its states, the blocks along the streamed labels, and what makes the result.
    ``accesses``: of the operands and of what the kernel writes; None where one reads more than a label's own point.
    """

    def __init__(self, kernel: Blocks) -> None:
        self.kernel, region = kernel, kernel.region
        states = [region.steps[k].labels[: region.steps[k].einsum.n_out] for k, n in kernel.states.items() for _ in n]
        written = [tuple(range(region.n_out))] if kernel.mode == "whole" else states
        plain = [tuple(p for p in access if isinstance(p, int)) for access in region.accesses]
        self.accesses = (*plain, *written) if plain == [*region.accesses] else None
        self.made: dict[Any, Tape | None] = {}

    def run(self, rows: Iterable[Box], frame: Frame, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Every block of the output, as ``RegionKernel`` does it."""
        bits, turns, size = 0, list[Turns](), 0
        kernel, places = self.kernel, self._places(frame, tile, outs)
        for box in rows:
            found, finished = self._row(box, frame, outs, first), self._finisher(box, frame, outs)
            if found is not None and finished is not None:
                found.append((finished, [box]))
            for made, boxes in found or ():
                most = max(1, _MOST_WORDS // max(1, len(made.words)))
                bases = places(boxes)
                for n in range(0, len(boxes), most):
                    turns.append(Turns(made, bases[n : n + most]))
                    size += turns[-1].n_words
                    if size > _MOST_WORDS:
                        bits, turns, size = bits | play(turns, frame.workspace), [], 0
            if found is None or finished is None:
                bits, turns, size = bits | play(turns, frame.workspace), [], 0
            if found is None:
                bits |= kernel.rows(frame, box, tile, outs, first)
            elif finished is None:
                kernel.stand(frame, box, tile)
                kernel.bind(frame, outs)
                bits |= kernel.finish(frame, box, tile, outs[0])
        return bits | play(turns, frame.workspace)

    def _places(self, frame: Frame, tile: Box, outs: tuple[Array, ...]) -> Callable[[Sequence[Box]], Ints]:
        """Of each of some boxes: the addresses of its parts, then its first points."""
        arrays, origin = (*frame.operands, *outs), np.array([o for o, _ in tile], np.int64)
        steps = np.zeros((len(tile), 1 + len(arrays)), np.int64)
        for i, (array, access) in enumerate(zip(arrays, self.accesses or (), strict=False)):
            for p, step in zip(access, array.strides, strict=True):
                steps[p, 1 + i] += step
        addresses = np.array([a.__array_interface__["data"][0] for a in (frame.workspace, *arrays)], np.int64)

        def bases(boxes: Sequence[Box]) -> Ints:
            points = np.array([[lo for lo, _ in box] for box in boxes], np.int64)
            return np.concatenate((addresses + (points - origin) @ steps, points), axis=1)

        return bases

    def _row(self, box: Box, frame: Frame, outs: tuple[Array, ...], first: bool) -> list[tuple[Tape, list[Box]]] | None:
        """What opens a block's states and folds into them: tapes, each with the blocks that it is played for."""
        found: list[tuple[Tape, list[Box]]] = []
        if first or self.kernel.mode == "whole":
            made = self._tape("open", box, frame, outs)
            if made is None:
                return None
            found.append((made, [box]))
        fresh = True
        for block, held in self.kernel.streamed(box):
            if self.kernel._program(_extents(block), held) is None:
                continue
            made = self._tape("first" if fresh else "next", block, frame, outs, held)
            if made is None:
                return None
            if found and found[-1][0] is made:
                found[-1][1].append(block)
            else:
                found.append((made, [block]))
            fresh = False
        return found

    def _finisher(self, box: Box, frame: Frame, outs: tuple[Array, ...]) -> Tape | None:
        """What makes the result of a block's states; nothing where the kernel leaves them."""
        return _NOTHING if self.kernel.mode == "touch" else self._tape("finish", box, frame, outs)

    def _tape(self, part: Part, box: Box, frame: Frame, outs: tuple[Array, ...], held: Held = ()) -> Tape | None:
        """The tape of a part; None where there is none."""
        if self.accesses is None:
            return None
        lying = tuple([a.strides for a in (*frame.operands, *outs)])
        key = part, _extents(box), held, lying
        if key not in self.made:
            if len(self.made) >= _MOST_TAPES:
                self.made.clear()
            self.made[key] = self._record(part, box, frame, outs, held)
        return self.made[key]

    def _record(self, part: Part, box: Box, frame: Frame, outs: tuple[Array, ...], held: Held) -> Tape | None:
        kernel, extents = self.kernel, _extents(box)
        near, unreal = self._unreal(frame, outs, extents)
        kernel.stand(near, box, box)
        kernel.bind(near, unreal)
        recorder = Recorder(1 + len(near.operands) + len(unreal), tuple([lo for lo, _ in box]))
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
        except Unplayable:
            return None
        return recorder.done()

    def _unreal(self, frame: Frame, outs: tuple[Array, ...], extents: Sequence[int]) -> tuple[Frame, tuple[Array, ...]]:
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
        return Frame(made[:n], (), workspace, workspace, values, list(states), made[n]), made[n:]


def _extents(box: Box) -> tuple[int, ...]:
    return tuple([hi - lo for lo, hi in box])
