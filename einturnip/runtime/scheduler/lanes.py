"""The lanes of a graph's ops: kernels, bytes in, bytes out; on several devices each has one for its kernels."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind


def lanes(graph: MemGraph, slots: Mapping[Lane, int]) -> tuple[Sequence[int] | None, Mapping[int, int]]:
    """The lane of each op, None where its kind tells, and how many ops each lane runs at once.

    ``slots``: of a device's kernels, and of all transfers. Moves from one device to another are of the lane of that
    to which they go.
    """
    if graph.devices == 1:
        return None, {int(lane): n for lane, n in slots.items()}
    of = lanes_of_kinds(graph).astype(np.int32)
    computing = of == Lane.COMPUTE
    device = graph.op_devices()[computing].astype(np.int32)
    of[computing] = np.where(device == 0, int(Lane.COMPUTE), device + len(Lane) - 1)
    found = {int(lane): n for lane, n in slots.items()}
    found |= {len(Lane) - 1 + k: slots[Lane.COMPUTE] for k in range(1, graph.devices)}
    return array("i", of.tobytes()), found


def lanes_of_kinds(graph: MemGraph) -> NDArray[np.uint8]:
    """What each op does, by its kind: of one device, its lane."""
    return np.array([kind.lane for kind in OpKind], np.uint8)[graph.kind]


def lane_kind(lane: int) -> Lane:
    """What a lane does."""
    return Lane(lane) if lane < len(Lane) else Lane.COMPUTE
