"""Lets the new value of a state overwrite the old one in the same storage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.ir.einsum import Box
from einturnip.memgraph.columns import with_dependencies
from einturnip.memgraph.types import FILES, MemGraph, OpKind, output_tier
from einturnip.tiling.pieces import intersection


def write_in_place(graph: MemGraph, pairs: Mapping[int, int]) -> tuple[MemGraph, frozenset[int]]:
    """Return the graph in which outputs overwrite inputs: stores wait for the loads that they overlap.

    Also returns the input nodes that need a second copy, because the serial order loads one of their tiles after a
    store that overwrites it, or because another device loads it, for which a store cannot wait. ``pairs``: output
    number by input node.
    """
    added: list[tuple[int, int]] = []
    conflicting, device = set(), graph.op_devices()
    for node, output in pairs.items():
        loads, stores = _loads(graph, node), _stores(graph, output)
        both = ((store, load) for store in stores for load in loads)
        edges = [(store, load) for (store, a), (load, b) in both if intersection(a, b) is not None]
        if any(load > store or device[load] != device[store] for store, load in edges):
            conflicting.add(node)
        else:
            added += edges
    return with_dependencies(graph, added), frozenset(conflicting)


def _loads(graph: MemGraph, node: int) -> list[tuple[int, Box]]:
    """Return the ops that load a node's tiles from its file, each with its box."""
    tier = graph.read[:, 0] == FILES + node
    ops = np.searchsorted(graph.read_ptr, np.flatnonzero(tier), side="right") - 1
    values = graph.read[tier, 3].tolist()
    return [(op, _box(graph, v)) for op, v in zip(ops.tolist(), values, strict=True)]


def _stores(graph: MemGraph, output: int) -> list[tuple[int, Box]]:
    """Return the ops that store an output's tiles, each with its box."""
    tier = graph.write[:, 0] == output_tier(graph.taskgraph.decomposition.graph, output)
    ops = np.searchsorted(graph.write_ptr, np.flatnonzero(tier), side="right") - 1
    values = graph.write[tier, 3].tolist()
    found = [(op, _box(graph, v)) for op, v in zip(ops.tolist(), values, strict=True)]
    return [(op, box) for op, box in found if graph.kind[op] == OpKind.STORE]


def _box(graph: MemGraph, value: int) -> Box:
    return graph.taskgraph.get_value(graph.unversioned(value)).box
