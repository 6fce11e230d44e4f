"""The traffic of a plan for several sites: bytes between each pair, first reads, kernel seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import BindError
from einturnip.core.units import format_seconds, format_size
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.sites.input_traffic import InputTraffic, input_traffic
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved
from einturnip.tiling.site_lower_bound import lower_bound_nbytes
from einturnip.tiling.sites import Sites

MAX_NAMED = 4
"""Inputs that a sentence names."""


@dataclass(frozen=True)
class SiteTraffic:
    """Units: bytes, seconds. ``between[a, b]``: moved from site a to site b; the others are by site.

    ``first_reads``: what a site reads from files, each tile once; ``kernel_seconds``: planned, on one worker;
    ``receive_seconds``: planned, of all moves from other sites. ``inputs``: see ``InputTraffic``.
    """

    between: NDArray[np.int64]
    first_reads: NDArray[np.int64]
    kernel_seconds: NDArray[np.float64]
    receive_seconds: NDArray[np.float64]
    inputs: tuple[InputTraffic, ...] = ()

    @property
    def arriving(self) -> NDArray[np.int64]:
        """Bytes that each site receives from the others and reads from files for the first time."""
        total: NDArray[np.int64] = self.between.sum(axis=0) + self.first_reads
        return total


def site_traffic(graph: MemGraph) -> SiteTraffic:
    """Count the traffic of a plan."""
    n, here, source = graph.devices, graph.op_devices(), graph.source_devices()
    between, reads, seconds = np.zeros((n, n), np.int64), np.zeros(n, np.int64), np.zeros(n)
    moves = np.flatnonzero(source != here)
    np.add.at(between, (source[moves], here[moves]), graph.read[graph.read_ptr[moves], 2])
    loads, kernels = (np.flatnonzero(graph.kind == kind) for kind in (OpKind.LOAD, OpKind.KERNEL))
    np.add.at(reads, here[loads], graph.read[graph.read_ptr[loads], 2])
    np.add.at(seconds, here[kernels], graph.seconds[kernels])
    receiving = np.bincount(here[moves], graph.seconds[moves], n).astype(np.float64)
    return SiteTraffic(between, reads, seconds, receiving, input_traffic(graph))


def idle_text(graph: MemGraph) -> str:
    """Name the sites that compute nothing; "" if there are none. Names the largest statement too."""
    kernels = np.flatnonzero(graph.kind == OpKind.KERNEL)
    found = _idle(graph.devices, np.unique(graph.op_devices()[kernels]))
    nodes, calls = np.unique(graph.taskgraph.node[graph.task[kernels]], return_counts=True)
    if not found or not len(nodes):
        return found
    node = graph.taskgraph.decomposition.graph.nodes[nodes[calls.argmax()]]
    return f"{found}: {node.name} (line {node.line}) has the most kernel calls, {calls.max():,}"


def require_work(graphs: Sequence[MemGraph], rates: object = None) -> None:
    """Refuse a plan for a stated number of sites of which some compute nothing.

    ``graphs``: of the whole program, or of each of its segments. ``rates``: stated ones, if any.

    Raises:
        BindError: names the sites, the largest statement, and for equal sites the largest number that all have work.
    """
    computing = np.unique(np.concatenate([g.op_devices()[g.kind == OpKind.KERNEL] for g in graphs]))
    found = idle_text(graphs[0]) if len(graphs) == 1 else _idle(graphs[0].devices, computing)
    if found:
        fewer = "state fewer sites" if rates else f"--sites {_most_with_work(graphs, len(computing))}"
        raise BindError(f"{found}. help: {fewer}")


def _most_with_work(graphs: Sequence[MemGraph], at_most: int) -> int:
    programs = [graph.taskgraph.decomposition.graph for graph in graphs]
    for count in range(at_most, 1, -1):
        working = set[int]()
        for program in programs:
            sites = Sites(program, count)
            working.update(*(sites.of_node(i) for i, n in enumerate(program.nodes) if isinstance(n, EinsumNode)))
        if len(working) == count:
            return count
    return 1


def _idle(sites: int, computing: NDArray[Any]) -> str:
    idle = np.setdiff1d(np.arange(sites), computing).tolist()
    if not idle or sites == 1:
        return ""
    verb = "computes" if len(idle) == 1 else "compute"
    return f"{len(idle)} of {sites} sites (such as cpu:{idle[0]}) {verb} nothing"


def sites_text(graph: MemGraph, rates: Sequence[float] = ()) -> str:
    """One sentence: totals, and the range over the sites. ``rates``: of the sites; () if they are equal."""
    traffic = site_traffic(graph)
    return traffic_text(traffic, _beyond_bound(graph, traffic, rates))


def traffic_text(traffic: SiteTraffic, more: str = "") -> str:
    """One sentence: totals, and the range over the sites. ``more`` follows the bytes between them."""
    total = f"{format_size(int(traffic.between.sum()))} between {len(traffic.between)} sites"
    busiest = ""
    if traffic.between.any():
        a, b = np.unravel_index(int(traffic.between.argmax()), traffic.between.shape)
        busiest = f", at most {format_size(int(traffic.between.max()))} over one link (cpu:{a} to cpu:{b})"
    arriving = _range(traffic.arriving, format_size)
    kernels, receiving = (_range(t, format_seconds) for t in (traffic.kernel_seconds, traffic.receive_seconds))
    total += busiest + more + _inputs_text(traffic.inputs)
    return (
        f"{total}; with first reads each receives {arriving}; "
        f"each computes {kernels} on one worker and receives for {receiving}"
    )


def _range(amounts: NDArray[Any], text: Callable[[float], str]) -> str:
    """The smallest and the largest amount, or one if both read the same."""
    return " to ".join(dict.fromkeys(text(float(x)) for x in (amounts.min(), amounts.max())))


def _inputs_text(inputs: Sequence[InputTraffic]) -> str:
    """Say which inputs further sites read again, and which they receive from the site that has read them."""
    again, sent = [x for x in inputs if x.read_again], [x for x in inputs if x.sent]
    found = []
    if again:
        found.append(f"read {_named(again)} again ({format_size(sum(x.read_again for x in again))})")
    if sent:
        found.append(f"receive {_named(sent)} ({format_size(sum(x.sent for x in sent))})")
    return f"; further sites {' and '.join(found)}" if found else ""


def _named(inputs: Sequence[InputTraffic]) -> str:
    names = [x.name for x in inputs]
    if len(names) > MAX_NAMED:
        names[MAX_NAMED - 1 :] = [f"{len(names) - MAX_NAMED + 1} more inputs"]
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _beyond_bound(graph: MemGraph, traffic: SiteTraffic, rates: Sequence[float]) -> str:
    """The ratio to the lower bound, for a program of one product: a sum of several bounds says little."""
    program = graph.taskgraph.decomposition.graph
    bound = lower_bound_nbytes(program, graph.devices, rates)
    alone = sum(not isinstance(node, InputNode) for node in program.nodes) == 1
    return f", {_exchanged(graph, traffic) / bound:.2f} times the lower bound" if bound and alone else ""


def _exchanged(graph: MemGraph, traffic: SiteTraffic) -> int:
    """Return the bytes that arrive at sites beyond one copy of each input."""
    nodes = graph.taskgraph.decomposition.graph.nodes
    inputs = sum(math.prod(n.shape) * n.dtype.itemsize for n in nodes if isinstance(n, InputNode))
    return max(0, int(traffic.arriving.sum()) - inputs)


def sites_json(graph: MemGraph, rates: Sequence[float] = ()) -> dict[str, Any]:
    """The fields of a plan for several sites. ``rates``: of the sites; () if they are equal.

    ``sites``, ``site_links``, ``site_inputs``; ``eindecomp_bytes``: what EinDecomp counts, of unlike sites for the
    calls that each has;
    ``exchanged_bytes``: what arrives at sites beyond one copy of each input, further reads of files included, to
    compare with
    ``site_lower_bound_bytes``, the bound for sites that compute in proportion to their rates.
    """
    traffic, program = site_traffic(graph), graph.taskgraph.decomposition.graph
    return traffic_json(traffic) | {
        "eindecomp_bytes": _counted_nbytes(program, graph.devices, rates),
        "exchanged_bytes": _exchanged(graph, traffic),
        "site_lower_bound_bytes": lower_bound_nbytes(program, graph.devices, rates),
    }


def traffic_json(traffic: SiteTraffic) -> dict[str, Any]:
    """The fields ``sites`` and ``site_links``: what each site, and each pair of sites, sends and receives."""
    pairs = np.argwhere(traffic.between).tolist()
    return {
        "sites": [
            {
                "id": f"cpu:{k}",
                "bytes_in": int(traffic.between[:, k].sum()),
                "bytes_out": int(traffic.between[k].sum()),
                "first_read_bytes": int(traffic.first_reads[k]),
                "kernel_seconds": float(traffic.kernel_seconds[k]),
                "receive_seconds": float(traffic.receive_seconds[k]),
            }
            for k in range(len(traffic.between))
        ],
        "site_links": {f"cpu:{a}->cpu:{b}": int(traffic.between[a, b]) for a, b in pairs},
        "site_inputs": [
            {"name": x.name, "read_bytes": x.read, "read_again_bytes": x.read_again, "sent_bytes": x.sent}
            for x in traffic.inputs
        ],
    }


def _counted_nbytes(program: EinGraph, sites: int, rates: Sequence[float]) -> int:
    return Sites(program, sites, rates).counted_nbytes if rates else moved(eindecomp(program, sites)).total
