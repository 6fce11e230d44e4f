"""Proves a task graph: operands made before they are read, each value made once, every output tile stored."""

from __future__ import annotations

import math

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.taskgraph.types import TaskGraph, TaskKind, ValueKind


def check(graph: TaskGraph) -> None:
    """Prove the graph.

    Raises:
        InternalError: naming the task at fault.
    """
    n = len(graph)
    made = np.full(graph.n_values, n, np.int64)
    done = np.full(graph.n_values, -1, np.int64)
    makers = np.flatnonzero(graph.kind != TaskKind.STORE)
    np.minimum.at(made, graph.value[makers], makers)
    np.maximum.at(done, graph.value[makers], makers)
    single = graph.value_kind != ValueKind.STATE
    if (made == n).any():
        raise InternalError(f"value {int(np.argmax(made == n))} is never made")
    if (made[single] != done[single]).any():
        raise InternalError("a tile is made twice")
    users = np.repeat(np.arange(n), np.diff(graph.read_ptr))
    early = np.flatnonzero(done[graph.read] >= users)
    if len(early):
        task = int(users[early[0]])
        raise InternalError(f"task {task} reads value {int(graph.read[early[0]])} before it is whole")
    d = graph.decomposition
    for number, (name, node) in enumerate(d.graph.outputs):
        stores = np.flatnonzero((graph.kind == TaskKind.STORE) & (graph.node == number))
        if len(stores) != math.prod(d.output(node).counts) or len(np.unique(graph.value[stores])) != len(stores):
            raise InternalError(f"the tiles of output {name!r} are not stored once each")
