"""A planned program: the plan that a run executes, and the I/O lower bound that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from einturnip.cost.machine import Machine
from einturnip.devices.cpu import ON_CPU
from einturnip.devices.kind import DeviceChoice
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import Budget
from einturnip.planner.io_lower_bound import io_lower_bound
from einturnip.runtime.scheduler.report import Prediction
from einturnip.storage.types import Sink, Source, transfer_itemsize
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.types import Decomposition


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A plan with its budget, its predictions, and the files or arrays that it reads and writes.

    ``capacity``: arena bytes that it was placed in. ``limit``: maximum bytes of an intermediate of products, if any.
    """

    graph: EinGraph
    memgraph: MemGraph
    prediction: Prediction
    budget: Budget
    machine: Machine
    sources: Mapping[str, Source]
    targets: Mapping[str, str]
    device: DeviceChoice = ON_CPU
    staging: tuple[int, int] = (0, 0)
    capacity: int = 0
    limit: int | None = None

    @property
    def taskgraph(self) -> TaskGraph:
        """The tile tasks."""
        return self.memgraph.taskgraph

    @property
    def decomposition(self) -> Decomposition:
        """The tiling of each einsum."""
        return self.taskgraph.decomposition


def with_lower_bound(made: PlannedProgram) -> PlannedProgram:
    """Return the plan with the I/O lower bound for its arena, every tensor stored as it is in memory."""
    bound = io_lower_bound(made.graph, made.budget.arenas_nbytes(made.memgraph.devices))
    return replace(made, prediction=replace(made.prediction, link_bytes_lower_bound=bound))


def run_lower_bound(
    planned: PlannedProgram, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> dict[str, int]:
    """Return the I/O lower bound of a run with these sources and sinks, which may move fewer bytes."""
    sizes = {name: transfer_itemsize(source) for name, source in sources.items()}
    discarded = frozenset(name for name, sink in sinks.items() if not transfer_itemsize(sink))
    if not discarded and all(size == sources[name].dtype.itemsize for name, size in sizes.items()):
        return planned.prediction.link_bytes_lower_bound
    return io_lower_bound(planned.graph, planned.budget.arenas_nbytes(planned.memgraph.devices), sizes, discarded)
