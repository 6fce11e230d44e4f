"""The border between the host and devices with streams, where neither waits for the work of the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import MemGraph


def running_devices(graph: MemGraph, host: int | None) -> NDArray[np.integer]:
    """Return the device whose streams run each op.

    That is the device whose bytes the op writes, except for a value that arrives on the host: its sender copies it.
    """
    writing = graph.op_devices()
    return (
        writing
        if host is None
        else np.where(graph.between_devices() & (writing == host), graph.source_devices(), writing)
    )


def released_at_end(graph: MemGraph, host: int | None) -> NDArray[np.bool_]:
    """Return which ops release those that wait for them when they have ended, not when they are issued.

    These are the ops of the host, and those that one of the host's waits for.
    """
    found = np.zeros(len(graph), bool)
    if host is not None:
        at_host = running_devices(graph, host) == host
        found[at_host] = True
        found[graph.after[np.repeat(at_host, np.diff(graph.after_ptr))]] = True
    return found
