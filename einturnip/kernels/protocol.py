"""What every tile kernel for the host is to the rest of the program."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from einturnip.kernels.expr.primitives import Array

Mode = Literal["whole", "touch", "finish", "join"]


Bound = Callable[[], int]
"""A kernel over tiles that are settled: gives the bits of what happened."""


class HostKernel(Protocol):
    """A compiled kernel. It allocates nothing: all that is temporary lies in the workspace it is given."""

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of workspace that a call needs, 64-byte aligned; at most 8 MiB whatever the tile.

        Only scatters need more: one that is done whole holds its state where that is not its result, and one that adds
        floats has a table of partial sums that grows with its rows (see ``native.partial_sums``), to a tenth of them.
        """

    @property
    def flops(self) -> int:
        """Scalar operations of a call: 2 a point of a contraction, else the join's operators a point that counts."""

    def __call__(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """Run over one tile and give the bits INVALID, OVERFLOW, DIVIDE of what happened in it.

        Shapes:
            outs: the result (whole, finish) or the state's components (touch, join), over the output's labels.
            operands: the part of each that the tile reads (``Einsum.operand_box``), any strides; for finish the
                state's components, for join those of the state that is accumulated.
            origins: by label, the index of the tile's first point in the whole tensor.
            first: a touch or join that initialises; any other adds to what the state holds.
            workspace: uint8, C-contiguous, at least ``workspace_nbytes``.

        Raises:
            OutOfRange: a key's value is no index of its label.
        """


@runtime_checkable
class Bindable(Protocol):
    """A kernel that may be made ready for tiles that it will be called with again and again."""

    def bound(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> Bound:
        """The call with these arguments (see HostKernel), all that can be done beforehand done."""


class RelocatableCall(NamedTuple):
    """A kernel over tiles that move: its call, and where each operand, then the result, is at that time.

    ``function``: what the call calls, with these places among its arguments.
    """

    call: Bound
    places: Sequence[ctypes.c_void_p]
    function: Callable[[], None]


@runtime_checkable
class Relocatable(Protocol):
    """A kernel that may be made ready for tiles that move, but for which all else stays as it is."""

    def followed(self, outs: tuple[Array, ...], operands: tuple[Array, ...]) -> RelocatableCall | None:
        """The call that makes a whole tile, for whoever sets the addresses before; None where it cannot be.

        INVALID among its bits may be of what the tile does not hold: the kernel itself can tell.
        """


class PreparableKernel(ABC):
    """A kernel whose call is to make it ready, and to run that."""

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
        """Run over one tile; gives what the floating-point unit saw."""
        return self.bound(outs, operands, origins, first, workspace)()
