"""Dispatch policies: of the ops that may start, which does. Each gives every op a rank; the least goes first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from einturnip.core.errors import BindError
from einturnip.memgraph.types import COMPUTE, MemGraph

Ranks: TypeAlias = Sequence[float]
Policy: TypeAlias = Callable[[MemGraph], Ranks]
OPS_AT_ONCE = 4096


def critical_path(graph: MemGraph) -> Ranks:
    """Longest way to the end first; of two within a thousandth of the whole, the one whose bytes unblock more.

    Source: Graham's list scheduling with critical-path priorities (Kohler, 1975); the tie-break is ours.
    """
    n = len(graph)
    length = array("d", bytes(8 * n))
    for start in reversed(range(0, n, OPS_AT_ONCE)):
        ends = graph.after_ptr[start : start + OPS_AT_ONCE + 1]
        after, places = graph.after[ends[0] : ends[-1]].tolist(), (ends - ends[0]).tolist()
        seconds = graph.seconds[start : start + OPS_AT_ONCE].tolist()
        for k in range(len(seconds) - 1, -1, -1):
            way = length[start + k] = length[start + k] + seconds[k]
            for p in after[places[k] : places[k + 1]]:
                if length[p] < way:
                    length[p] = way
    longest = max(length, default=0.0)
    if longest == 0.0:
        return fixed_order(graph)
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.read_ptr))
    held = np.where(graph.read[:, 0] == COMPUTE, graph.read[:, 2], 0)
    bytes_read = np.bincount(rows, held, minlength=n)
    steps = np.floor(np.frombuffer(length) / longest * 1000.0)
    frees = bytes_read / (bytes_read.max(initial=0.0) + 1.0)
    return array("d", (-(steps + 0.999 * frees)).tobytes())


def fixed_order(graph: MemGraph) -> Ranks:
    """The serial order that the addresses were planned with."""
    return [float(x) for x in range(len(graph))]


def random_order(graph: MemGraph) -> Ranks:
    """Any order, the same at every call: a baseline, and a test of the graph."""
    ranks: Ranks = np.random.default_rng(0).random(len(graph)).tolist()
    return ranks


POLICIES: dict[str, Policy] = {
    "critical-path": critical_path,
    "fixed": fixed_order,
    "double-buffering": fixed_order,  # on a device's streams transfers are held back as well: see on_device
    "random": random_order,
}


def policy(name: str) -> Policy:
    """The policy called ``name``.

    Raises:
        BindError: there is none of that name; the message lists those there are.
    """
    if name not in POLICIES:
        raise BindError(f"there is no policy {name!r}; there are: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
