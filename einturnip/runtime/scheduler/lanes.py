"""Assigns each op to a lane, a class of ops that share a resource: kernels, bytes in, bytes out.

With several devices, each device has its own lane for kernels; the lanes for bytes in and out are shared.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind


def lanes(graph: MemGraph, slots: Mapping[Lane, int]) -> tuple[Sequence[int] | None, Mapping[int, int]]:
    """Return the lane of each op, and the slots of each lane.

    On one device the lanes are None, since an op's kind determines its lane.

    A lane's slots are the number of ops that it runs at once. ``slots``: of the kernels of one device, and of the
    transfers of all devices. A move between devices belongs to the compute lane of its destination.
    """
    if graph.devices == 1:
        return None, {int(lane): n for lane, n in slots.items()}
    of = lanes_of_kinds(graph.kind).astype(np.int32)
    computing = of == Lane.COMPUTE
    device = graph.op_devices()[computing].astype(np.int32)
    of[computing] = np.where(device == 0, int(Lane.COMPUTE), device + len(Lane) - 1)
    found = {int(lane): n for lane, n in slots.items()}
    found |= {len(Lane) - 1 + k: slots[Lane.COMPUTE] for k in range(1, graph.devices)}
    return array("i", of.tobytes()), found


def lanes_of_kinds(kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the lanes of ops of these kinds, without regard to devices."""
    return np.array([kind.lane for kind in OpKind], np.uint8)[kinds]


def lane_kind(lane: int) -> Lane:
    """Return the kind of a lane: COMPUTE, IN or OUT. Lanes above these are the kernels of further devices."""
    return Lane(lane) if lane < len(Lane) else Lane.COMPUTE
