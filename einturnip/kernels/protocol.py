"""Interfaces of host kernels: the call, and the optional ways to prepare a call beforehand."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from einturnip.kernels.expr.primitives import Array

Mode = Literal["full", "accumulate", "finalize", "combine"]
"""Work of a kernel on one tile of an einsum or a region.

full: computes the result from all points of the aggregated labels. accumulate: folds the tile into a state. finalize:
turns a state into the result. combine: adds one state to another.
"""


Bound = Callable[[], int]
"""A prepared call of a kernel; returns the raised floating-point flags."""


class HostKernel(Protocol):
    """A compiled kernel. It allocates nothing: temporary values go to the given workspace."""

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of workspace that a call needs, 64-byte aligned; at most 8 MiB for any tile.

        Only scatters need more. One over a full tile keeps its state there unless the result is the state. One that
        adds floats has a table of partial sums (see ``llvm.partial_sums``) of up to a tenth of its rows.
        """

    @property
    def flops(self) -> int:
        """Scalar operations of a call: 2 a point of a contraction, else the operators at unmasked points."""

    def __call__(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """Run over one tile and return the raised flags: INVALID, OVERFLOW, DIVIDE.

        Shapes:
            outs: the result (full, finalize) or the state's components (accumulate, combine), over the output's labels.
            operands: the part of each that the tile reads (``Einsum.operand_box``), any strides; for finalize the
                state's components, for combine those of the state that is added.
            origins: by label, the index of the tile's first point in the whole tensor.
            first: True if accumulate or combine initialises the state; False adds to it.
            workspace: uint8, C-contiguous, at least ``workspace_nbytes``.

        Raises:
            OutOfRange: a key's value is no index of its label.
        """


@runtime_checkable
class Bindable(Protocol):
    """A kernel that can prepare a call for repeated use on the same tiles."""

    def bound(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> Bound:
        """Prepare the call with these arguments (see HostKernel)."""


class RelocatableCall(NamedTuple):
    """A prepared call whose tiles may move: the caller sets ``places`` to their addresses first.

    ``places``: by operand, then the result. ``function``: the machine code function that the call invokes with these
    places among its arguments.
    """

    call: Bound
    places: Sequence[ctypes.c_void_p]
    function: Callable[[], None]


@runtime_checkable
class Relocatable(Protocol):
    """A kernel that can prepare a call for tiles that move but keep their shape and strides."""

    def relocatable_call(self, outs: tuple[Array, ...], operands: tuple[Array, ...]) -> RelocatableCall | None:
        """Prepare the call that computes a full tile at addresses set by the caller; None if not possible.

        Its INVALID flag may come from padding outside the tile; calling the kernel itself decides that.
        """


class PreparableKernel(ABC):
    """A kernel whose call prepares it and runs the prepared call."""

    @abstractmethod
    def bound(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> Bound:
        """See Bindable."""

    def __call__(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """Run over one tile and return the raised floating-point flags."""
        return self.bound(outs, operands, origins, first, workspace)()
