"""What a generated CUDA kernel is to the device that runs it: source, launches and the bytes of their arguments."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.protocol import Mode

Dim3: TypeAlias = tuple[int, int, int]
# Words of a call's status: see STATUS_NBYTES.
FLAGS, PLACE, KEY, VALUE = range(4)
NOWHERE = (1 << 63) - 1

STATUS_NBYTES = 32
"""Four 64-bit words that a kernel reports in; before a call the first is 0 and the others NOWHERE.

FLAGS: the bits of INVALID, OVERFLOW and DIVIDE. PLACE: the first point, flat over the tile's label space, where a key's
value is no index of its label, or NOWHERE. KEY and VALUE: which key and what value; ``CudaKernel.explain`` writes them.
"""


@dataclass(frozen=True, slots=True)
class DeviceTile:
    """A tile in the device's memory. Units: strides in bytes. ``aligned``: its address is a multiple of 16."""

    strides: tuple[int, ...]
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class TileLayout:
    """What a kernel's code hangs on of how its tiles lie: ``vector`` points of the output's last label go together.

    ``packed`` are the operands that are read 16 bytes (or ``vector`` elements) at once. Vector 1 suits any tile.
    """

    vector: int = 1
    packed: frozenset[int] = frozenset()


ANY = TileLayout()


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. Its two parameters are structs by value: the call's ``CudaKernel.head`` and ``fixed``."""

    entry: str
    grid: Dim3
    block: Dim3
    shared_nbytes: int
    fixed: bytes


@dataclass(frozen=True, slots=True)
class LaunchGrid:
    """A launch before its arguments: ``params`` are the numbers that the code reads of it."""

    entry: str
    blocks: Dim3
    threads: Dim3
    params: tuple[int, ...] = ()
    shared_nbytes: int = 0


@dataclass(frozen=True)
class CudaKernel:
    """A tile kernel as CUDA C++: one source for tiles of every size, shape of strides and place.

    ``source`` includes headers of ``kernels/``; ``entries`` are its ``extern "C"`` functions. ``grids`` gives the
    launches of a tile of some extents, ``workspace`` the bytes that they share. ``corners``: (operand, axis) whose
    first index a call is given. ``explain``: the entry that tells a wrong key, one thread.
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
        """Bytes of workspace that a call needs, 256-byte aligned; their contents before it are of no matter."""
        return self.workspace(extents)

    def launches(
        self, extents: tuple[int, ...], operands: Sequence[DeviceTile], outs: Sequence[DeviceTile]
    ) -> tuple[Launch, ...]:
        """What to launch for a tile, one after the other on one stream; the same for all tiles that lie alike.

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
        """The launch that writes KEY and VALUE, of the call's launches; after one that left a PLACE."""
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
        """The first parameter of every launch of one call.

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
    """64-bit words; an empty struct of C++ would have no agreed size, so there is always one."""
    return struct.pack(f"{len(values) or 1}q", *(values or (0,)))
