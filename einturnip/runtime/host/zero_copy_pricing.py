"""Adjusts the machine model for plans whose inputs and outputs are arrays, which need no copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.storage.arrays import ArraySource
from einturnip.storage.types import Source
from einturnip.tuning.memory import WAKE_SECONDS


def zero_copy_machine(
    machine: Machine, graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str]
) -> Machine:
    """Return the machine with nearly free transfers, if the graph reads and writes only arrays.

    With free transfers the planner chooses tiles just small enough to balance the workers. Graphs with matrix products
    by BLAS keep the rates of files, which lead to smaller tiles whose panels fit the cache.

    ``targets``: by output, its file; an output that goes to an array has its own name.
    """
    arrays = all(isinstance(source, ArraySource) for source in sources.values())
    if not arrays or any(target != name for name, target in targets.items()):
        return machine
    if not machine.compiled and _multiplies(graph):
        return machine
    rate, run = 10 * machine.memory_bandwidth, 1e-3 * machine.run_latency
    return replace(
        machine,
        read_bandwidth=rate,
        cached_bandwidth=rate,
        near_bandwidth=rate,
        write_bandwidth=rate,
        run_latency=run,
        cold_run_latency=run,
        page_latency=run,
        op_latency=max(machine.op_latency, WAKE_SECONDS),
        fault=0.1 * machine.fault,
    )


def _multiplies(graph: EinGraph) -> bool:
    """Return whether any node is a matrix-matrix product.

    A matrix-vector product uses each element of the matrix only once.
    """
    einsums = (node.einsum for node in graph.nodes if isinstance(node, EinsumNode))
    products = (contraction(e) for e in einsums if isinstance(e, Einsum))
    return any(c is not None and c.m and c.n and c.k for c in products)
