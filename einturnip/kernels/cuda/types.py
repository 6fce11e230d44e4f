"""CudaKernel: a generated kernel with its source, launches, and bytes of parameters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.protocol import Mode

Dim3: TypeAlias = tuple[int, int, int]
FLAGS, PLACE, KEY, VALUE = range(4)
"""Words of a status record; see STATUS_NBYTES."""
NOWHERE = (1 << 63) - 1

STATUS_NBYTES = 32
"""Size of a status record: four 64-bit words in which a kernel reports. Initially 0, NOWHERE, NOWHERE, NOWHERE.

FLAGS: the flags INVALID, OVERFLOW and DIVIDE. PLACE: the first point, flat over the tile's labels, at which the value
of a key is out of range. KEY, VALUE: the number of that key and its value, written by the entry ``CudaKernel.explain``.
"""


@dataclass(frozen=True, slots=True)
class DeviceTile:
    """A tile in the device's memory. Units: bytes.

    ``aligned``: its address is a multiple of 16. ``span``: distance of its first and its last element.
    """

    strides: tuple[int, ...]
    aligned: bool = True
    span: int = 1 << 62


@dataclass(frozen=True, slots=True)
class TileLayout:
    """The properties of tiles that a kernel's code depends on.

    ``vector``: number of points of the output's last label that a thread computes; 1 works for any tile. ``packed``:
    operands of which ``vector`` consecutive elements are read by one load. ``transposed``: operands that a map reads
    through shared memory, because they are contiguous along the label ``across`` instead of the last one. ``narrow``:
    numbers of points and offsets fit into 32 bits.
    """

    vector: int = 1
    packed: frozenset[int] = frozenset()
    transposed: frozenset[int] = frozenset()
    across: int = -1
    narrow: bool = False


ANY = TileLayout()


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    A kernel's two parameters are structs by value: ``CudaKernel.head`` of the call, and ``fixed``.
    """

    entry: str
    grid: Dim3
    block: Dim3
    shared_nbytes: int
    fixed: bytes


@dataclass(frozen=True, slots=True)
class LaunchGrid:
    """A launch without its arguments. ``params``: numbers that the code reads as ``g.param``."""

    entry: str
    blocks: Dim3
    threads: Dim3
    params: tuple[int, ...] = ()
    shared_nbytes: int = 0


@dataclass(frozen=True)
class CudaKernel:
    """A tile kernel as CUDA C++; one source serves tiles of all extents, strides and addresses.

    ``source``: includes headers of ``kernels/``. ``entries``: its ``extern "C"`` functions. ``corners``: (operand,
    axis) pairs whose first index is a parameter of a call. ``sizes``: (operand, axis) pairs whose size is one.
    ``grids``: returns the launches for a tile's extents. ``workspace``: returns the bytes of workspace that they share.
    ``explain``: the entry, run by one thread, that reports a key out of range.
    """

    name: str
    source: str
    entries: tuple[str, ...]
    space: Einsum | Region
    mode: Mode
    layout: TileLayout
    corners: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, int], ...]
    grids: Callable[[tuple[int, ...]], tuple[LaunchGrid, ...]]
    workspace: Callable[[tuple[int, ...]], int]
    explain: str | None = None

    def workspace_nbytes(self, extents: tuple[int, ...]) -> int:
        """Return the bytes of workspace that a call needs, aligned to 256 bytes.

        Its contents need no initialisation.
        """
        return self.workspace(extents)

    def launches(
        self, extents: tuple[int, ...], operands: Sequence[DeviceTile], outs: Sequence[DeviceTile]
    ) -> tuple[Launch, ...]:
        """Return the launches for a tile, to be made in this order on one stream.

        They are the same for all tiles with equal extents and strides.

        Shapes:
            extents: by label of the space.
            operands, outs: as of a HostKernel's call (for finalize, operands are the state's components).
        """
        strides = [s for view in (*outs, *operands) for s in view.strides]
        sizes = [self.space.operand_shape(slot)[axis] for slot, axis in self.sizes]
        words = [*extents, *self.space.bounds, *strides, *sizes]
        return tuple(
            Launch(g.entry, g.blocks, g.threads, g.shared_nbytes, _words([*words, *g.params]))
            for g in self.grids(extents)
        )

    def explained(self, launches: Sequence[Launch]) -> Launch | None:
        """Return the launch that writes KEY and VALUE; None without keys.

        It is needed if the call's ``launches`` stored a PLACE.
        """
        if self.explain is None or not launches:
            return None
        return Launch(self.explain, (1, 1, 1), (1, 1, 1), 0, launches[0].fixed)

    def head(
        self,
        extents: tuple[int, ...],
        outs: Sequence[int],
        operands: Sequence[int],
        origins: Sequence[int],
        first: bool,
        workspace: int,
        status: int,
    ) -> bytes:
        """Return the first parameter of all launches of one call.

        Shapes:
            outs, operands, workspace, status: addresses in the device's memory.
            origins: by label, the index of the tile's first point in the whole tensor.
            first: the kernel initialises its state.
        """
        corners: list[int] = []
        if self.corners:
            tile = [(o, o + n) for o, n in zip(origins, extents, strict=True)]
            boxes = {slot: self.space.operand_box(slot, tile) for slot, _ in self.corners}
            corners = [boxes[slot][axis][0] for slot, axis in self.corners]
        return _words([*outs, *operands, workspace, status, int(first), *origins, *corners])


def _words(values: Sequence[int]) -> bytes:
    """Pack 64-bit words; at least one, since the size of an empty struct depends on the compiler."""
    return struct.pack(f"{len(values) or 1}q", *(values or (0,)))
