"""A part of a task graph: some of its tasks, and the values that they use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import take_rows
from einturnip.taskgraph.types import Ints, TaskGraph


def subgraph(graph: TaskGraph, tasks: Ints, values: Ints) -> TaskGraph:
    """Return the graph of some tasks and values, numbered anew in their order.

    ``tasks``, ``values``: ascending; ``values`` includes all that the tasks make, read and see.
    """

    def renumbered(column: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.searchsorted(values, column).astype(np.int32)

    def rows(names: tuple[str, ...], kept: Ints) -> dict[str, Any]:
        return {name: getattr(graph, name)[kept] for name in names}

    key_ptr, keys = take_rows(graph.key_ptr, tasks)
    read_ptr, reads = take_rows(graph.read_ptr, tasks)
    box_ptr, boxes = take_rows(graph.box_ptr, values)
    return replace(
        graph,
        **rows(("kind", "node", "workspace", "seconds", "flops"), tasks),
        **rows(("value_kind", "value_node", "value_nbytes"), values),
        value=renumbered(graph.value[tasks]),
        key_ptr=key_ptr,
        key=graph.key[keys],
        read_ptr=read_ptr,
        read=renumbered(graph.read[reads]),
        seen=renumbered(graph.seen[reads]),
        box_ptr=box_ptr,
        box=graph.box[boxes],
        device=graph.device[values] if len(graph.device) else graph.device,
    )
