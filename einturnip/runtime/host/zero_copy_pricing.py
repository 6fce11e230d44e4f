"""What plans are priced with where inputs and results are arrays of the caller, on which tiles are worked in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.storage.arrays import ArraySource
from einturnip.storage.types import Source

# Seconds of an op beside its kernel where no transfer hides it: threads wake for it.
LATENCY = 1.0e-4


def zero_copy_machine(
    machine: Machine, graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str]
) -> Machine:
    """The machine as it is to this graph: where nothing is read from files or written to them, transfers only count.

    Tiles then are as large as evens out the workers. Graphs with matrix products that BLAS does keep the rates of files
    and with them smaller tiles, whose panels are copied in the cache. ``targets``: arrays are called as they are.
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
        op_latency=max(machine.op_latency, LATENCY),
        fault=0.1 * machine.fault,
    )


def _multiplies(graph: EinGraph) -> bool:
    """Whether any of it is a product of matrices: of one matrix and a vector every element is used once."""
    einsums = (node.einsum for node in graph.nodes if isinstance(node, EinsumNode))
    products = (contraction(e) for e in einsums if isinstance(e, Einsum))
    return any(c is not None and c.m and c.n and c.k for c in products)
