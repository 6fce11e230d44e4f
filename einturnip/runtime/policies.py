"""Dispatch policies: of the ops that may start, which does. Each gives every op a rank; the least goes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from einturnip.core.errors import BindError
from einturnip.memgraph.types import COMPUTE, MemGraph

Ranks: TypeAlias = list[float]
Policy: TypeAlias = Callable[[MemGraph], Ranks]


def critical_path(graph: MemGraph) -> Ranks:
    """Longest way to the end first; of two within a thousandth of the whole, the one whose bytes unblock more.

    Source: Graham's list scheduling with critical-path priorities (Kohler, 1975); the tie-break is ours.
    """
    n = len(graph)
    seconds = graph.seconds.tolist()
    ptr, after = graph.after_ptr.tolist(), graph.after.tolist()
    length = [0.0] * n
    for x in range(n - 1, -1, -1):
        length[x] += seconds[x]
        for p in after[ptr[x] : ptr[x + 1]]:
            if length[p] < length[x]:
                length[p] = length[x]
    longest = max(length, default=0.0)
    if longest == 0.0:
        return fixed_order(graph)
    bytes_read = np.zeros(n)
    rows = np.repeat(np.arange(n), np.diff(graph.read_ptr))
    held = graph.read[:, 0] == COMPUTE
    np.add.at(bytes_read, rows[held], graph.read[held, 2])
    steps = np.floor(np.array(length) / longest * 1000.0)
    frees = bytes_read / (bytes_read.max(initial=0.0) + 1.0)
    ranks: Ranks = (-(steps + 0.999 * frees)).tolist()
    return ranks


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
