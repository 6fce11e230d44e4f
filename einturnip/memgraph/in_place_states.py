"""Lets the new value of a state overwrite the old one.

Each store of a tile waits for the loads it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from einturnip.memgraph.types import FILES, MemGraph, OpKind
from einturnip.tiling.types import Box


def write_in_place(graph: MemGraph, pairs: Mapping[int, int]) -> tuple[MemGraph, frozenset[int]]:
    """Return the graph with dependencies that let each output overwrite its input node in place.

    ``pairs``: output number by input node. Also returns the nodes that need a second copy, because one of their tiles
    is loaded, in the serial order, after a store that overwrites it.
    """
    added: list[tuple[int, int]] = []
    conflicting = set()
    for node, output in pairs.items():
        loads, stores = _loads(graph, node), _stores(graph, output)
        edges = [(before, after) for after, box in stores for before, other in loads if _overlap(box, other)]
        if any(before > after for before, after in edges):
            conflicting.add(node)
        else:
            added += edges
    return _with_dependencies(graph, added), frozenset(conflicting)


def _loads(graph: MemGraph, node: int) -> list[tuple[int, Box]]:
    """Return the ops that load a node's tiles from its file, each with its box."""
    tier = graph.read[:, 0] == FILES + node
    ops = np.searchsorted(graph.read_ptr, np.flatnonzero(tier), side="right") - 1
    values = graph.read[tier, 3].tolist()
    return [(op, _box(graph, v)) for op, v in zip(ops.tolist(), values, strict=True)]


def _stores(graph: MemGraph, output: int) -> list[tuple[int, Box]]:
    """Return the ops that store an output's tiles, each with its box."""
    number = FILES + len(graph.taskgraph.decomposition.graph.nodes) + output
    tier = graph.write[:, 0] == number
    ops = np.searchsorted(graph.write_ptr, np.flatnonzero(tier), side="right") - 1
    values = graph.write[tier, 3].tolist()
    found = [(op, _box(graph, v)) for op, v in zip(ops.tolist(), values, strict=True)]
    return [(op, box) for op, box in found if graph.kind[op] == OpKind.STORE]


def _box(graph: MemGraph, value: int) -> Box:
    return graph.taskgraph.get_value(graph.base(value)).box


def _overlap(a: Box, b: Box) -> bool:
    return all(max(p, r) < min(q, s) for (p, q), (r, s) in zip(a, b, strict=True))


def _with_dependencies(graph: MemGraph, edges: Iterable[tuple[int, int]]) -> MemGraph:
    """Return the graph with more dependencies: pairs (before, after) in the serial order."""
    rows = [graph.after[a:b].tolist() for a, b in zip(graph.after_ptr[:-1], graph.after_ptr[1:], strict=True)]
    for before, after in edges:
        if before not in rows[after]:
            rows[after].append(before)
    counts = np.array([0, *map(len, rows)], dtype=graph.after_ptr.dtype)
    after_ops = np.array([op for row in rows for op in row], dtype=graph.after.dtype)
    return replace(graph, after_ptr=np.cumsum(counts, dtype=graph.after_ptr.dtype), after=after_ops)
