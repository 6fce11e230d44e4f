"""What a part of a region's block does, written down as a tape: its calls of machine code, and their arguments.

What is written down is relative: to the workspace, to where the block's parts of operands and results lie, and to the
block's first points. So one tape serves every block of a shape whose tensors lie alike and whose mask decides alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.program import Action, BlockContext, BlockProgram, ComputeStep, FoldStep, TakeState
from einturnip.kernels.fused.row_function import RowFunctionCall
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.llvm.contraction import ADDRESSES, MOST_ROOM_NBYTES, ROOM, PackedContraction, region_product

Ints = NDArray[np.int64]
_SPAN = 44  # bits of an address that tell where within a thing; those above tell which


class NotRecordable(Exception):
    """Something that is done there is no call of machine code."""


class PlaceholderMemory:
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
    made: Array = np.asarray(PlaceholderMemory(number, shape, like.strides, like.dtype))
    return made


@dataclass(frozen=True, slots=True)
class CommandList:
    """``table``: of each call its kind and where its arguments begin in ``words``, in bytes.

    ``places``: the words that are relative, ``bases``: to what.
    """

    table: Ints
    words: Ints
    places: Ints
    bases: Ints


@dataclass(slots=True)
class Recorder:
    """Writes a tape over so many ``memories``, of which the last is the room for what products pack.

    ``starts``: first points of labels, to which points are relative. ``operands``: memories whose tensors stay as they
    are while tapes are played. ``slots``: of steps that are products, where in the room theirs is.
    """

    memories: int
    operands: range
    slots: Mapping[int, int]
    starts: tuple[int, ...]
    table: list[tuple[int, int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    relative: list[tuple[int, int]] = field(default_factory=list)

    def done(self) -> CommandList:
        """What was written."""
        places, bases = zip(*self.relative, strict=True) if self.relative else ((), ())
        columns = (np.array(x, np.int64) for x in (self.words, places, bases))
        return CommandList(np.array(self.table, np.int64).reshape(-1, 2), *columns)

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
            raise NotRecordable
        self.begin(command_list.FILL4 if out.itemsize == 4 else command_list.FILL8)
        self.address(out.__array_interface__["data"][0])
        self.put(out.size)
        self.put(int.from_bytes(value.astype(out.dtype).tobytes().ljust(8, b"\0"), "little", signed=True))

    def program(self, program: BlockProgram, frame: BlockContext) -> None:
        """Every action of a program, over arrays that are nowhere."""
        for action in program.actions:
            self._action(action, frame)

    def _action(self, action: Action, frame: BlockContext) -> None:
        match action:
            case TakeState():
                action(frame)
            case RowFunctionCall():
                self._band(action, frame)
            case ComputeStep(once=True) if not frame.fresh:
                pass
            case ComputeStep():
                operands, out = action.arrays(frame)
                self._product(action.step, action.kernel, (out,), operands, True)
                frame.values[action.step] = out
            case FoldStep():
                operands = tuple([read(frame) for read in action.reads])
                states = frame.states[action.step][: action.components]
                self._product(action.step, action.kernel, states, operands, False)
            case _:
                raise NotRecordable

    def _band(self, action: RowFunctionCall, frame: BlockContext) -> None:
        argument = action.argument(frame)
        if argument is None or action.function is None:
            raise NotRecordable
        n = len(action.extents)
        self.begin(command_list.BAND)
        self.put(command_list.entry(action.function))
        for k, word in enumerate(argument):
            tensor, rest = divmod(k - 2 * n, n + 1)
            if n <= k < 2 * n:
                self.point(k - n, word)
            elif tensor >= 0 and rest == 0:
                self.address(word)
            else:
                self.put(word)

    def _product(
        self, step: int, kernel: Any, outs: tuple[Array, ...], operands: tuple[Array, ...], first: bool
    ) -> None:
        code = region_product(kernel) if step in self.slots else None
        function = None if code is None else code_cache.find(code)
        if code is None or function is None:
            self._by_blas(kernel, outs, operands, first)
            return
        made = PackedContraction(kernel, code, function)
        words, needed, _ = made.words(outs, operands, first)
        if needed > MOST_ROOM_NBYTES:
            raise NotRecordable
        if (words[ADDRESSES[1]] >> _SPAN) - 1 in self.operands:
            words = made.kept(words)
        self.begin(command_list.BAND)
        self.put(command_list.entry(function))
        for k, word in enumerate(words):
            if k in ADDRESSES:
                self.address(word)
            elif k == ROOM:
                self.relative.append((len(self.words), self.memories - 1))
                self.put(self.slots[step] * MOST_ROOM_NBYTES)
            else:
                self.put(word)

    def _by_blas(self, kernel: Any, outs: tuple[Array, ...], operands: tuple[Array, ...], first: bool) -> None:
        call = kernel.single(outs, operands, first) if isinstance(kernel, ContractionKernel) else None
        found = command_list.gemm(call)
        if found is None:
            raise NotRecordable
        kind, words = found
        self.begin(kind)
        for k, word in enumerate(words):
            if k in command_list.ADDRESSES:
                self.address(word)
            else:
                self.put(word)
