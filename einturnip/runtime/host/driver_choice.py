"""Chooses what runs a plan on the CPU.

A run costs the event loop about a millisecond: threads, a new arena and the state machine. Prepared ops keep all that
between runs; their driver is the caller's thread (inline) or worker threads.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum, contraction
from einturnip.memgraph.types import COMPUTE, FILES, MemGraph, OpKind
from einturnip.runtime.scheduler.policies import path_lengths
from einturnip.tuning.memory import (
    HANDOVER_SECONDS,
    INLINE_ARENA_NBYTES,
    INLINE_OPS,
    INLINE_SECONDS,
    PREPARED_OPS,
    STEP_PRODUCED_NBYTES,
)

Driver: TypeAlias = Literal["inline", "threads", "event loop"]
"""inline: prepared ops in the caller's thread, in serial order. threads: prepared ops, by worker threads. event loop:
by worker threads too, but each op is resolved when it runs; for files, spill, many ops and reproducible runs."""


def call_driver(graph: MemGraph) -> Driver:
    """Return the driver of a plan that calls run on arrays.

    A reproducible plan always has the event loop, because the size of a plan depends on the memory limit.
    """
    if graph.taskgraph.ordered or graph.spill_nbytes:
        return "event loop"
    is_short = len(graph) <= INLINE_OPS and float(graph.seconds.sum()) <= INLINE_SECONDS
    if is_short and 0 < arena_nbytes(graph) <= INLINE_ARENA_NBYTES:
        return "inline"
    inputs = len(graph.taskgraph.decomposition.graph.nodes)
    loads = graph.read_ptr[:-1][graph.kind == OpKind.LOAD]
    reads_output = bool((graph.read[loads, 0] >= FILES + inputs).any())
    return "event loop" if len(graph) > PREPARED_OPS or graph.devices > 1 or reads_output else "threads"


def step_driver(graph: MemGraph, workers: int) -> Driver:
    """Return the driver of a plan that runs step after step: inline where threads are no faster.

    Kernels are assumed to read the caller's arrays without a copy. Single products take the same time in either case,
    because BLAS divides them among threads.
    """
    divisible = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE, OpKind.MOVE))
    if not graph.taskgraph.ordered:
        divisible &= ~_single_products(graph)
    if graph.spill_nbytes or produced_nbytes(graph) > STEP_PRODUCED_NBYTES or not arena_nbytes(graph):
        return "event loop"
    seconds = np.where(divisible, graph.seconds, 0.0)
    # Ops that wait for each other take as long on several workers.
    saved = float(seconds.sum()) - max(float(seconds.sum()) / workers, max(path_lengths(graph, seconds), default=0.0))
    return "inline" if saved <= HANDOVER_SECONDS * len(graph) else "event loop"


def arena_nbytes(graph: MemGraph) -> int:
    """Return the bytes of the arena up to the last one that the graph uses."""
    rows = np.concatenate([graph.read, graph.write])
    here = rows[rows[:, 0] == COMPUTE]
    return int((here[:, 1] + here[:, 2]).max(initial=0))


def _single_products(graph: MemGraph) -> NDArray[np.bool_]:
    """Return, for each op, whether its kernel is one matrix product."""
    nodes = graph.taskgraph.decomposition.graph.nodes
    single = [isinstance(n, EinsumNode) and isinstance(n.einsum, Einsum) and _is_single(n.einsum) for n in nodes]
    node = np.where(graph.task >= 0, graph.taskgraph.node[graph.task], len(nodes))
    found: NDArray[np.bool_] = np.array([*single, False])[node]
    return found


def _is_single(einsum: Einsum) -> bool:
    found = contraction(einsum)
    return found is not None and not found.batch


def produced_nbytes(graph: MemGraph) -> int:
    """Return the bytes of the arena that ops other than loads write (the union of their intervals)."""
    loads = np.flatnonzero(graph.kind == OpKind.LOAD)
    rows = np.delete(graph.write, graph.write_ptr[loads], axis=0)
    here = rows[rows[:, 0] == COMPUTE]
    begun, ended = here[:, 1], here[:, 1] + here[:, 2]
    order = np.argsort(begun)
    reach = np.maximum.accumulate(ended[order])
    before = np.concatenate([begun[order][:1], reach[:-1]])
    return int(np.maximum(0, reach - np.maximum(begun[order], before)).sum())
