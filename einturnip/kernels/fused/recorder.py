"""Records the kernel calls of one part of a region's block as a command list.

Addresses are recorded as offsets from the workspace or from the block's part of an operand or output, and points as
offsets from the block's first point. So one list serves every block of the same shape, strides and condition values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import region_product
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.program import Action, BlockContext, BlockProgram, ComputeStep, FoldStep, TakeState
from einturnip.kernels.fused.row_function import RowFunctionCall
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.llvm.contraction import (
    MAX_SCRATCH_NBYTES,
    PackedContraction,
    keep_packed_right,
)
from einturnip.kernels.llvm.pack_loops import address_words
from einturnip.kernels.protocol import CallArguments, KernelCall, address_of

Ints = NDArray[np.int64]
_SPAN = 44  # placeholder addresses: the low bits are the offset within a memory, the bits above its number


class NotRecordable(Exception):
    """Raised for an action that is not a call of machine code."""


class PlaceholderMemory:
    """A range of addresses without memory: arrays over it can be sliced and reshaped but not read."""

    def __init__(self, number: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype.str,
            "shape": tuple(shape),
            "strides": tuple(strides),
            "data": ((number + 1 << _SPAN) + (1 << _SPAN - 1), False),
        }


def placeholder_array(number: int, like: Array, shape: Sequence[int]) -> Array:
    """Return an array with the type and strides of another, over placeholder memory ``number``."""
    made: Array = np.asarray(PlaceholderMemory(number, shape, like.strides, like.dtype))
    return made


@dataclass(frozen=True, slots=True)
class CommandList:
    """Recorded calls. ``table``: each call's kind and the byte offset of its arguments in ``words``.

    ``places``: the indices of the words that are offsets; ``bases``: by such word, the number of the memory or label
    whose address or first point is added.
    """

    table: Ints
    words: Ints
    places: Ints
    bases: Ints


@dataclass(slots=True)
class Recorder:
    """Records a command list over ``memories`` memories, the last of which is scratch for packing.

    ``operands``: the memories that a replay does not write. ``slots``: by step that is a product, the number of its
    part of the scratch. ``starts``: the first point of the recorded block. ``table``, ``words``: as in ``CommandList``.
    ``relative``: the words that are offsets, as pairs of index and base.
    """

    memories: int
    operands: range
    slots: Mapping[int, int]
    starts: tuple[int, ...]
    table: list[tuple[int, int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    relative: list[tuple[int, int]] = field(default_factory=list)

    def build(self) -> CommandList:
        """Return the recorded list."""
        places, bases = zip(*self.relative, strict=True) if self.relative else ((), ())
        columns = (np.array(x, np.int64) for x in (self.words, places, bases))
        return CommandList(np.array(self.table, np.int64).reshape(-1, 2), *columns)

    def begin(self, kind: int) -> None:
        """Start a call; its arguments follow."""
        self.table.append((kind, 8 * len(self.words)))

    def put(self, word: int) -> None:
        """Record a constant word."""
        self.words.append(word)

    def address(self, where: int) -> None:
        """Record an address in placeholder memory."""
        self.relative.append((len(self.words), (where >> _SPAN) - 1))
        self.words.append((where & (1 << _SPAN) - 1) - (1 << _SPAN - 1))

    def point(self, label: int, index: int) -> None:
        """Record an index of a label."""
        self.relative.append((len(self.words), self.memories + label))
        self.words.append(index - self.starts[label])

    def fill(self, out: Array, value: Array) -> None:
        """Record filling an array with a number."""
        if not out.flags.c_contiguous or out.itemsize not in (4, 8):
            raise NotRecordable
        self.begin(command_list.FILL4 if out.itemsize == 4 else command_list.FILL8)
        self.address(address_of(out))
        self.put(out.size)
        self.put(int.from_bytes(value.astype(out.dtype).tobytes().ljust(8, b"\0"), "little", signed=True))

    def program(self, program: BlockProgram, context: BlockContext) -> None:
        """Record every action of a program, run over placeholder arrays."""
        for action in program.actions:
            self._action(action, context)

    def _action(self, action: Action, context: BlockContext) -> None:
        match action:
            case TakeState():
                action(context)
            case RowFunctionCall():
                self._call(action.prepare(context))
            case ComputeStep(once=True) if not context.fresh:
                pass
            case ComputeStep():
                operands, out = action.arrays(context)
                self._product(action.step, action.kernel, (out,), operands, True)
                context.values[action.step] = out
            case FoldStep():
                operands = tuple([read(context) for read in action.reads])
                states = context.states[action.step][: action.components]
                self._product(action.step, action.kernel, states, operands, False)
            case _:
                raise NotRecordable

    def _call(self, call: KernelCall | None, scratch: int = 0) -> None:
        """Record a prepared call; ``scratch``: the offset of its scratch for packing."""
        kind = None if call is None else command_list.kind_of(call)
        if call is None or kind is None:
            raise NotRecordable
        function, *words = command_list.words_of(call, kind)
        self.begin(kind)
        self.put(function)
        for k, word in enumerate(words):
            if k in call.relocations:
                self.address(word)
            elif k in call.points:
                self.point(k - call.points.start, word)
            elif k == call.scratch:
                self.relative.append((len(self.words), self.memories - 1))
                self.put(scratch)
            else:
                self.put(word)

    def _product(
        self, step: int, kernel: Any, outs: tuple[Array, ...], operands: tuple[Array, ...], first: bool
    ) -> None:
        if not isinstance(kernel, ContractionKernel):
            raise NotRecordable
        arguments = CallArguments(outs, operands, (), first, outs[0])
        code = region_product(kernel) if step in self.slots else None
        function = None if code is None else code_cache.find(code)
        if code is None or function is None:
            self._call(kernel.prepare(arguments))
            return
        call = PackedContraction.of_product(kernel, code, function).prepare(arguments)
        if call.scratch_nbytes > MAX_SCRATCH_NBYTES:
            raise NotRecordable
        if (call.words[address_words(code)[1]] >> _SPAN) - 1 in self.operands:
            keep_packed_right(call.words)
        self._call(call, self.slots[step] * MAX_SCRATCH_NBYTES)
