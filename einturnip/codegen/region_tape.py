"""A block of a region's output as a tape: its products, bands and fills are written down once, then played.

What is written down is relative: to the workspace, to where the block's parts of operands and results lie, and to the
block's first points. So one tape serves every block of a shape whose tensors lie alike and whose mask decides alike.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.codegen.contraction import ContractionKernel, heard
from einturnip.codegen.mask import Held
from einturnip.codegen.native import library, tape
from einturnip.codegen.primitives import Array
from einturnip.codegen.protocol import Mode
from einturnip.codegen.region_band import RunBand
from einturnip.codegen.region_program import Action, Compute, Fold, Frame, Program, Take
from einturnip.codegen.status import INVALID, unit
from einturnip.codegen.window import view
from einturnip.core.region import Region

Ints = NDArray[np.int64]
_SPAN = 44  # bits of an address that tell where within a thing; those above tell which
# Of the arguments of cblas_?gemm: how many there are, which are addresses, and which alpha and beta.
_GEMM_ARGUMENTS, _ADDRESSES, _SCALARS = 14, (7, 9, 12), (6, 11)
_GEMMS = {kind: name for (name, _), kind in tape.KINDS.items()}
_HEAD = 4  # words that the player reads
_MOST_WORDS, _MOST_TAPES = 1 << 14, 64  # of the tapes played by one call; of those kept


class Unplayable(Exception):
    """Something that is done there is no call of machine code."""


class Elsewhere:
    """Memory that is nowhere: arrays over it are cut and laid out as any, never read."""

    def __init__(self, number: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype.str,
            "shape": tuple(shape),
            "strides": tuple(strides),
            "data": ((number + 1 << _SPAN) + (1 << _SPAN - 1), False),
        }


def elsewhere(number: int, like: Array, shape: Sequence[int]) -> Array:
    """An array that lies as another does, in memory ``number``."""
    made: Array = np.asarray(Elsewhere(number, shape, like.strides, like.dtype))
    return made


@dataclass(frozen=True, slots=True)
class Tape:
    """``table``: of each call its kind and where its arguments begin in ``words``, in bytes.

    ``places``: the words that are relative, ``bases``: to what.
    """

    table: Ints
    words: Ints
    places: Ints
    bases: Ints


@dataclass(slots=True)
class Recorder:
    """Writes a tape over so many ``memories``. ``starts``: first points of labels, to which points are relative."""

    memories: int
    starts: tuple[int, ...]
    table: list[tuple[int, int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    relative: list[tuple[int, int]] = field(default_factory=list)

    def done(self) -> Tape:
        """What was written."""
        places, bases = zip(*self.relative, strict=True) if self.relative else ((), ())
        columns = (np.array(x, np.int64) for x in (self.words, places, bases))
        return Tape(np.array(self.table, np.int64).reshape(-1, 2), *columns)

    def begin(self, kind: int) -> None:
        """One call more, whose arguments follow."""
        self.table.append((kind, 8 * len(self.words)))

    def put(self, word: int) -> None:
        """A number as it is."""
        self.words.append(word)

    def address(self, where: int) -> None:
        """An address in memory that is nowhere."""
        self.relative.append((len(self.words), (where >> _SPAN) - 1))
        self.words.append((where & (1 << _SPAN) - 1) - (1 << _SPAN - 1))

    def point(self, label: int, index: int) -> None:
        """An index of a label."""
        self.relative.append((len(self.words), self.memories + label))
        self.words.append(index - self.starts[label])

    def fill(self, out: Array, value: Array) -> None:
        """A number in every place of an array."""
        if not out.flags.c_contiguous or out.itemsize not in (4, 8):
            raise Unplayable
        self.begin(tape.FILL4 if out.itemsize == 4 else tape.FILL8)
        self.address(out.__array_interface__["data"][0])
        self.put(out.size)
        self.put(int.from_bytes(value.astype(out.dtype).tobytes().ljust(8, b"\0"), "little", signed=True))

    def program(self, program: Program, frame: Frame) -> None:
        """Every action of a program, over arrays that are nowhere."""
        for action in program.actions:
            self._action(action, frame)

    def _action(self, action: Action, frame: Frame) -> None:
        match action:
            case Take():
                action(frame)
            case RunBand():
                self._band(action, frame)
            case Compute(once=True) if not frame.fresh:
                pass
            case Compute():
                operands, out = action.arrays(frame)
                self._product(action.kernel, (out,), operands, True)
                frame.values[action.step] = out
            case Fold():
                operands = tuple([read(frame) for read in action.reads])
                self._product(action.kernel, frame.states[action.step][: action.components], operands, False)
            case _:
                raise Unplayable

    def _band(self, action: RunBand, frame: Frame) -> None:
        argument = action.argument(frame)
        if argument is None or action.function is None:
            raise Unplayable
        n = len(action.extents)
        self.begin(tape.BAND)
        self.put(_entry(action.function))
        for k, word in enumerate(argument):
            tensor, rest = divmod(k - 2 * n, n + 1)
            if n <= k < 2 * n:
                self.point(k - n, word)
            elif tensor >= 0 and rest == 0:
                self.address(word)
            else:
                self.put(word)

    def _product(self, kernel: Any, outs: tuple[Array, ...], operands: tuple[Array, ...], first: bool) -> None:
        call = kernel.single(outs, operands, first) if isinstance(kernel, ContractionKernel) else None
        function: Any = call.func if isinstance(call, partial) else None
        types: Sequence[Any] = getattr(function, "argtypes", None) or ()
        name = kernel.dtype.numpy.name if types else ""
        kind = tape.KINDS.get((name, ctypes.sizeof(types[3]))) if len(types) == _GEMM_ARGUMENTS else None
        if kind is None or not isinstance(call, partial):
            raise Unplayable
        self.begin(kind)
        self.put(_entry(function))
        for k, word in enumerate(call.args):
            if k in _ADDRESSES:
                self.address(word)
            else:
                self.put(_bits(word, name) if k in _SCALARS else word)


def _bits(value: float, name: str) -> int:
    (word,) = struct.unpack("<i", struct.pack("<f", value)) if name == "float32" else struct.unpack(
        "<q", struct.pack("<d", value))  # fmt: skip
    return int(word)


def _entry(function: Any) -> int:
    """Where a function's code is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


Box: TypeAlias = tuple[tuple[int, int], ...]
Lying: TypeAlias = tuple[tuple[int, ...], ...]
"""The strides of each tensor."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A tape with what its words are relative to: the addresses of its memories, then the labels' first points."""

    tape: Tape
    bases: Sequence[int]


def play(ready: Sequence[Ready], workspace: Array) -> int:
    """Play tapes one after the other; gives what the floating-point unit saw."""
    if not ready:
        return 0
    calls = sum(len(r.tape.table) for r in ready)
    memory = np.empty(_HEAD + 2 * calls + sum(len(r.tape.words) for r in ready), np.int64)
    base, row, at = memory.__array_interface__["data"][0], _HEAD, _HEAD + 2 * calls
    for r in ready:
        n, size = 2 * len(r.tape.table), len(r.tape.words)
        table, words = memory[row : row + n].reshape(-1, 2), memory[at : at + size]
        np.add(r.tape.table, (0, base + 8 * at), out=table)
        np.copyto(words, r.tape.words)
        words[r.tape.places] += np.array(r.bases, np.int64)[r.tape.bases]
        row, at = row + n, at + size
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A block's tape, and whether it makes the result too."""

    tape: Tape
    finishes: bool


class Tapes:
    """The tapes of a region's kernel, each made when its block is first met; what none can be made of is done in steps.

    ``accesses``: of the operands and of what the kernel writes; None where one reads more than a label's own point.
    """

    def __init__(self, kernel: Blocks) -> None:
        self.kernel, region = kernel, kernel.region
        states = [region.steps[k].labels[: region.steps[k].einsum.n_out] for k, n in kernel.states.items() for _ in n]
        written = [tuple(range(region.n_out))] if kernel.mode == "whole" else states
        plain = [tuple(p for p in access if isinstance(p, int)) for access in region.accesses]
        self.accesses = (*plain, *written) if plain == [*region.accesses] else None
        self.made: dict[Any, Recorded | None] = {}

    def run(self, rows: Iterable[Box], frame: Frame, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Every block of the output, as ``RegionKernel`` does it."""
        bits, ready, size = 0, list[Ready](), 0
        arrays = (*frame.operands, *outs)
        lying = tuple([a.strides for a in arrays])
        addresses = [a.__array_interface__["data"][0] for a in (frame.workspace, *arrays)]
        for box in rows:
            found = self._tape(box, frame, outs, first, lying)
            if found is not None:
                ready.append(Ready(found.tape, self._bases(box, tile, addresses, lying)))
                size += len(found.tape.words)
            if found is None or not found.finishes or size > _MOST_WORDS:
                bits |= play(ready, frame.workspace)
                ready, size = [], 0
            if found is None:
                bits |= self.kernel.rows(frame, box, tile, outs, first)
            elif not found.finishes:
                self.kernel.stand(frame, box, tile)
                self.kernel.bind(frame, outs)
                bits |= self.kernel.finish(frame, box, tile, outs[0])
        return bits | play(ready, frame.workspace)

    def _bases(self, box: Box, tile: Box, addresses: Sequence[int], lying: Lying) -> list[int]:
        """The addresses of the block's parts, then its first points."""
        gone = [lo - o for (lo, _), (o, _) in zip(box, tile, strict=True)]
        found = [addresses[0]]
        for address, access, strides in zip(addresses[1:], self.accesses or (), lying, strict=True):
            found.append(address + sum([gone[p] * step for p, step in zip(access, strides, strict=True)]))
        return [*found, *[lo for lo, _ in box]]

    def _tape(self, box: Box, frame: Frame, outs: tuple[Array, ...], first: bool, lying: Lying) -> Recorded | None:
        """A block's tape; None where there is none."""
        if self.accesses is None:
            return None
        blocks = self.kernel.streamed(box)
        starts = [lo for lo, _ in box]
        shape = tuple([hi - lo for lo, hi in box])
        pattern = tuple(
            [(tuple([(lo - o, hi - o) for (lo, hi), o in zip(b, starts, strict=True)]), held) for b, held in blocks]
        )
        key = shape, pattern, first, lying
        if key not in self.made:
            if len(self.made) >= _MOST_TAPES:
                self.made.clear()
            self.made[key] = self._record(box, blocks, frame, outs, first)
        return self.made[key]

    def _record(
        self,
        box: Box,
        blocks: Sequence[tuple[Box, Held]],
        frame: Frame,
        outs: tuple[Array, ...],
        first: bool,
    ) -> Recorded | None:
        kernel, extents = self.kernel, tuple([hi - lo for lo, hi in box])
        near, unreal = self._unreal(frame, outs, extents)
        recorder = Recorder(1 + len(near.operands) + len(unreal), tuple([lo for lo, _ in box]))
        kernel.stand(near, box, box)
        kernel.bind(near, unreal)
        try:
            if first or kernel.mode == "whole":
                for states, values in zip(near.states, kernel.nothing, strict=True):
                    for state, value in zip(states, values, strict=True):
                        recorder.fill(state, value)
            for block, held in blocks:
                program = kernel._program(tuple([hi - lo for lo, hi in block]), held)
                if program is not None:
                    kernel.stand(near, block, box)
                    recorder.program(program, near)
                    near.fresh = False
        except Unplayable:
            return None
        if kernel.mode == "touch":
            return Recorded(recorder.done(), True)
        folded = recorder.done()
        kernel.stand(near, box, box)
        try:
            recorder.program(kernel.finisher(extents), near)
        except Unplayable:
            return Recorded(folded, False)
        return Recorded(recorder.done(), True)

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
