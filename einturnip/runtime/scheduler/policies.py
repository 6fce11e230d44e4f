"""Dispatch policies: each gives every op a rank, and the ready op with the lowest rank starts first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import BindError
from einturnip.memgraph.types import COMPUTE, MemGraph
from einturnip.runtime.scheduler.latest_starts import latest_starts
from einturnip.tuning.memory import ROWS_AT_ONCE

Ranks: TypeAlias = Sequence[float]
Policy: TypeAlias = Callable[[MemGraph], Ranks]


def critical_path(graph: MemGraph) -> Ranks:
    """Rank ops by the longest path to the end of the run, longest first.

    Path lengths that differ by less than a thousandth of the critical path count as equal; then the op that reads more
    bytes of the arena goes first, because its end makes more memory available. On several devices the path contains
    the ops that share a lane: see ``latest_starts``.

    Source: Graham's list scheduling with critical-path priorities (Kohler, 1975); the tie-break is ours.
    """
    if graph.devices > 1:
        return latest_starts(graph)
    n, length = len(graph), path_lengths(graph, graph.seconds)
    longest = max(length, default=0.0)
    if longest == 0.0:
        return fixed_order(graph)
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.read_ptr))
    arena_nbytes = np.where(graph.read[:, 0] == COMPUTE, graph.read[:, 2], 0)
    bytes_read = np.bincount(rows, arena_nbytes, minlength=n)
    steps = np.floor(np.frombuffer(length) / longest * 1000.0)
    frees = bytes_read / (bytes_read.max(initial=0.0) + 1.0)
    return array("d", (-(steps + 0.999 * frees)).tobytes())


def path_lengths(graph: MemGraph, seconds: NDArray[np.float64]) -> array[float]:
    """Return, for each op, the seconds of the longest path from its start to the end of the run.

    ``seconds``: of each op.
    """
    length = array("d", bytes(8 * len(graph)))
    for start in reversed(range(0, len(graph), ROWS_AT_ONCE)):
        ends = graph.after_ptr[start : start + ROWS_AT_ONCE + 1]
        after, places = graph.after[ends[0] : ends[-1]].tolist(), (ends - ends[0]).tolist()
        own = seconds[start : start + ROWS_AT_ONCE].tolist()
        for k in range(len(own) - 1, -1, -1):
            path = length[start + k] = length[start + k] + own[k]
            for p in after[places[k] : places[k + 1]]:
                if length[p] < path:
                    length[p] = path
    return length


def fixed_order(graph: MemGraph) -> Ranks:
    """Rank ops by the serial order for which addresses were planned."""
    return [float(x) for x in range(len(graph))]


def random_order(graph: MemGraph) -> Ranks:
    """Rank ops at random with a fixed seed: a baseline, and a test that any order gives the result."""
    ranks: Ranks = np.random.default_rng(0).random(len(graph)).tolist()
    return ranks


POLICIES: dict[str, Policy] = {
    "critical-path": critical_path,
    "fixed": fixed_order,
    "double-buffering": fixed_order,  # on a device's streams, transfers are also delayed: see runtime.stream.run
    "random": random_order,
}


def policy(name: str) -> Policy:
    """Return the policy called ``name``.

    Raises:
        BindError: no policy has that name; the message lists all names.
    """
    if name not in POLICIES:
        raise BindError(f"there is no policy {name!r}; there are: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
