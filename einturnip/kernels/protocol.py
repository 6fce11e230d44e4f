"""The interface of host kernels: a prepared call can be made, repeated, moved, divided and recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import INVALID, unit
from einturnip.kernels.thread_scratch import thread_scratch

Mode = Literal["full", "accumulate", "finalize", "combine"]
"""Work of a kernel on one tile of an einsum or a region.

full: computes the result from all points of the aggregated labels. accumulate: folds the tile into a state. finalize:
turns a state into the result. combine: adds one state to another.
"""


Tiles: TypeAlias = tuple[Array, ...]
Point: TypeAlias = tuple[int, ...]


class CallArguments(NamedTuple):
    """The tiles of one kernel call.

    Shapes:
        outs: the result (full, finalize) or the state's components (accumulate, combine), over the output's labels.
        operands: the part of each that the tile reads (``Einsum.operand_box``), any strides; for finalize the
            state's components, for combine those of the state that is added.
        origins: by label, the index of the tile's first point in the whole tensor.
        first: True if accumulate or combine initialises the state; False adds to it.
        workspace: uint8, C-contiguous, at least the kernel's ``workspace_nbytes``.
    """

    outs: Tiles
    operands: Tiles
    origins: Point
    first: bool
    workspace: Array


class KernelCall:
    """A prepared call of a kernel: a function and the words that it takes.

    Tiles of the same shapes and strides can take the place of the arguments: their addresses are written to the
    ``relocations`` among the words.

    ``function``: machine code, which takes the address of the words, or a function of BLAS, which takes the words
    themselves; None if Python makes the call. ``relocations``: the word with the address of each operand, then of each
    output; empty if there is not one for each. ``fallback``: takes the raised flags if INVALID may be spurious, and
    returns the right ones. ``points``: the words with the origins. ``scratch``: the word that takes the address of
    ``scratch_nbytes`` bytes of the thread's own scratch; -1 for none. ``packed``: the operand that is packed as a whole
    into the scratch, if it fits; -1 if there is none. ``divide``: takes a number of parts; returns the
    words [part, word] of calls that together compute the tile, in any order, at most FINER times as many. None if
    the call cannot be divided.
    """

    function: Callable[..., object] | None = None
    words: array[int] | list[Any]
    relocations: Sequence[int] = ()
    fallback: Callable[[int], int] | None = None
    points = range(0)
    scratch, scratch_nbytes, packed = -1, 0, -1
    divide: Callable[[int], NDArray[np.int64]] | None = None

    def __init__(
        self,
        function: Callable[..., object],
        words: array[int] | list[Any],
        relocations: Sequence[int] = (),
        fallback: Callable[[int], int] | None = None,
    ) -> None:
        self.function, self.words, self.relocations, self.fallback = function, words, relocations, fallback
        self._arguments: Sequence[Any] = (words.buffer_info()[0],) if isinstance(words, array) else words

    def run(self) -> int:
        """Make the call and return the raised flags: INVALID, OVERFLOW, DIVIDE."""
        assert self.function is not None
        if self.scratch >= 0:
            self.words[self.scratch] = thread_scratch(self.scratch_nbytes)
        status = unit()
        status.clear()
        self.function(*self._arguments)
        flags = status.read()
        return self.checked(flags) if flags else 0

    def checked(self, flags: int) -> int:
        """Return the flags that the call has raised without spurious ones."""
        return self.fallback(flags) if flags & INVALID and self.fallback is not None else flags


class PythonCall(KernelCall):
    """A call that Python makes by ``run``. It cannot be moved, divided or recorded."""

    def __init__(self, run: Callable[[], int]) -> None:
        self.run = run  # type: ignore[method-assign]


class HostKernel(Protocol):
    """A compiled kernel. It allocates nothing: temporary values go to the given workspace."""

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of workspace that a call needs, 64-byte aligned; at most 8 MiB for any tile.

        Only scatters need more. One over a full tile keeps its state there unless the result is the state. One that
        adds floats has a table of partial sums (see ``llvm.partial_sums``) of up to a tenth of its rows.
        """

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """Prepare the call with these arguments; neither reads nor writes the tiles."""

    def __call__(self, outs: Tiles, operands: Tiles, origins: Point, first: bool, workspace: Array) -> int:
        """Prepare and make a call; see CallArguments.

        Raises:
            OutOfRange: a key's value is no index of its label.
        """


class PreparableKernel(ABC):
    """A kernel whose call prepares it and runs the prepared call."""

    @abstractmethod
    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""

    def __call__(self, outs: Tiles, operands: Tiles, origins: Point, first: bool, workspace: Array) -> int:
        """Run over one tile and return the raised floating-point flags."""
        return self.prepare(CallArguments(outs, operands, origins, first, workspace)).run()


class MachineCode(PreparableKernel):
    """A kernel by machine code; ``fallback``: of NumPy or BLAS, for tiles that do not fit it."""

    fallback: HostKernel

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of workspace that the fallback needs; machine code needs none."""
        return self.fallback.workspace_nbytes


def address_of(tensor: Array) -> int:
    """Return the address of an array's first element."""
    return int(tensor.__array_interface__["data"][0])
