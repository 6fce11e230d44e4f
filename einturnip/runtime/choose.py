"""The default offload plan: of a few settings of our policy the one that the simulator finds fastest."""

from __future__ import annotations

from einturnip.core.errors import CapacityError
from einturnip.memgraph.policies import Ours, Trace, place_trace
from einturnip.memgraph.types import MemGraph
from einturnip.runtime.virtual import simulate_on

# How far to look ahead, in what share of the device; and whether cheap kernels may run again instead of transfers.
SETTINGS = (
    {"steps_ahead": 16},
    {"steps_ahead": 16, "share": 0.6},
    {"steps_ahead": 16, "share": 0.3},
    {"steps_ahead": 8},
    {"steps_ahead": 4},
    {"steps_ahead": 1},
    {"steps_ahead": 16, "remake": 0.5},
)


def place_ours(trace: Trace) -> MemGraph:
    """The memory graph of our policy.

    Raises:
        CapacityError: a step's working set is larger than the device's budget, or the lower tiers are full.
    """
    best: tuple[float, MemGraph] | None = None
    for setting in SETTINGS:
        try:
            graph = place_trace(trace, Ours(**setting))
        except CapacityError:
            if best is None and "remake" not in setting:
                raise
            continue
        seconds = simulate_on(graph, trace.machine).makespan
        if best is None or seconds < best[0]:
            best = seconds, graph
    assert best is not None
    return best[1]
