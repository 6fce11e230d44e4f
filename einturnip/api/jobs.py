"""Jobs: a planned program with its inputs and output targets.

Used by the command line and the Python API.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api.inputs import close_all
from einturnip.compiler import Options, execute, make_plan, plan_passes
from einturnip.core.errors import BindError
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.types import FILES, output_tier
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.scheduler.report import Prediction, Progress, RunReport, log_run
from einturnip.storage.arrays import ArraySink
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.generated import SummarySink
from einturnip.storage.layout import c_layout
from einturnip.storage.open import OutputRequest, open_sinks, planned_offsets
from einturnip.storage.outputs.state_storage import DeferredOutput
from einturnip.storage.strided_array import StridedArray
from einturnip.storage.types import Array, Sink, Source

if TYPE_CHECKING:
    from einturnip.cluster.coordinator import OnWorkers
    from einturnip.cluster.transport import Cluster
    from einturnip.report.analyze import Analysis
    from einturnip.report.emit import FileTier
    from einturnip.report.trace import TracedRun

Missing = Callable[[InputNode], Source]
"""Returns a placeholder for an input without data, or raises an error that names it."""


def needs_data(node: InputNode) -> Source:
    """Refuse an input without data."""
    raise BindError(f"input {node.name} (line {node.line}) has no data. help: give it a file or an array")


@dataclass(frozen=True)
class Job:
    """A program planned for its inputs, options and output targets.

    ``bound`` is the program before rewrites for the budget. ``targets``: for each output a file as the user wrote it,
    an array, or None to discard it. ``on_workers``: the cluster that runs the plan, if any.
    """

    bound: EinGraph
    planned: PlannedProgram
    sources: Mapping[str, Source]
    targets: Mapping[str, str | Array | None]
    options: Options
    on_workers: OnWorkers | None = None

    @property
    def ran(self) -> PlannedProgram:
        """The plan of the last run: another one than planned if workers were lost."""
        return self.planned if self.on_workers is None else self.on_workers.plan.planned

    @property
    def device(self) -> str:
        """The device that runs the plan, in words."""
        return self.planned.device.description

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.planned.graph.program

    @property
    def prediction(self) -> Prediction:
        """The time, memory and bytes that the plan predicts."""
        return self.planned.prediction

    def explain(self) -> str:
        """Explain the plan as text."""
        from einturnip.report.explain import explain

        return explain(self.planned)

    def relations(self) -> list[dict[str, Any]]:
        """Describe each tensor as a relation of tiles."""
        from einturnip.report.relations import relation_json

        return list(relation_json(self.planned.taskgraph))

    def analysis(self, report: RunReport) -> Analysis:
        """Compare a run with its plan."""
        from einturnip.report.analyze import analyse

        return analyse(self.ran, report)

    def keep_runs(self) -> None:
        """Prepare for a trace. The report of a run of one plan has all that it needs."""

    def traced_runs(self, report: RunReport) -> list[TracedRun]:
        """The runs of plans that a run consisted of, for a trace: one."""
        from einturnip.report.trace import TracedRun

        return [TracedRun(self.ran, report, 0.0)]

    def replanned(self, budget: int) -> PlannedProgram:
        """Plan for another budget of the given kind, to inspect but not to run.

        Raises:
            CapacityError: states the minimum budget.
        """
        memory, arena = (budget, None) if self.options.arena is None else (None, budget)
        options = replace(self.options, memory=memory, arena=arena, check=False)
        return make_plan(self.bound, self.sources, self.planned.targets, options)

    def run(
        self, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None
    ) -> tuple[RunReport, dict[str, Sink]]:
        """Run the plan.

        Raises:
            StoreError, RunError, Interrupted: no incomplete output remains.
        """
        chunks = {} if self.on_workers is None else self.on_workers.plan.output_chunks
        sinks = open_sinks_of(self.planned.graph, self.targets, self.sources.values(), self.options, chunks)
        try:
            if self.on_workers is not None:
                report = self.on_workers.execute(self.sources, sinks, self.options, progress, stop)
            else:
                report = execute(self.planned, self.sources, sinks, self.options, progress, stop)
            log_run(report)
            return report, sinks
        except BaseException:
            for sink in sinks.values():
                sink.abort()
            raise

    def close(self) -> None:
        """Close the sources and drop the cached pages of their files; idempotent."""
        close_all(self.sources.values())


def open_sinks_of(
    graph: EinGraph,
    targets: Mapping[str, str | Array | None],
    sources: Collection[Source],
    options: Options,
    chunks: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> dict[str, Sink]:
    """Open a sink for each output of a graph; files allocate their disk space here.

    An array that the run reads is written at the end. ``chunks``: by output, see ``OutputRequest``.
    """
    requests = [replace(r, chunks=chunks.get(r.name, ())) for r in output_requests(graph, targets)]
    stored = [r for r in requests if r.spec is not None]
    opened: dict[str, Sink] = {}
    for request, sink in zip(stored, open_sinks(stored), strict=True):
        if isinstance(sink, ArraySink) and overlaps(sink.array, sources):
            opened[request.name] = DeferredOutput(sink, options.spill)
        elif isinstance(sink, DeviceArray) and overlaps(sink.array, sources):
            raise BindError(
                f"output {request.name}: the array given for it shares memory with an input. help: give another array"
            )
        else:
            opened[request.name] = sink
    return {r.name: opened.get(r.name) or SummarySink(r.name, r.shape, r.dtype) for r in requests}


def overlaps(array: Array, sources: Iterable[Source]) -> bool:
    """True if a source may share the array's memory."""
    return any(isinstance(s, StridedArray) and np.may_share_memory(array, s.array) for s in sources)


def output_requests(graph: EinGraph, targets: Mapping[str, str | Array | None]) -> list[OutputRequest]:
    """Describe each output and its target."""
    nodes = [(name, graph.nodes[node]) for name, node in graph.outputs]
    return [OutputRequest(targets.get(name), name, node.shape, node.dtype) for name, node in nodes]


def complete(graph: EinGraph, sources: Mapping[str, Source], missing: Missing) -> dict[str, Source]:
    """The sources of all inputs that the graph reads."""
    found = dict(sources)
    for node in graph.nodes:
        if isinstance(node, InputNode) and node.name not in found:
            found[node.name] = missing(node)
    return found


def plan_job(
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str | Array | None],
    options: Options,
    cluster: Cluster | None = None,
    kept: frozenset[str] = frozenset(),
) -> Job:
    """Plan a bound program, for the workers of a cluster if there is one.

    ``kept``: outputs whose blocks stay on the workers.

    Raises:
        CapacityError: it does not fit; the error states the minimum budget.
    """
    if cluster is not None:
        from einturnip.cluster.coordinator import plan_on_workers

        files = {name: target for name, target in targets.items() if isinstance(target, str)}
        on_workers = plan_on_workers(cluster, graph, sources, files, options, kept)
        return Job(graph, on_workers.plan.planned, sources, targets, options, on_workers)
    if "EINTURNIP_DUMP" not in os.environ:
        return Job(graph, make_plan(graph, sources, tiers(targets), options), sources, targets, options)
    from einturnip.api.dump import PlanDump

    dump, job = PlanDump(graph), None
    for name, planned in plan_passes(graph, sources, tiers(targets), options):
        job = Job(graph, planned, sources, targets, options)
        dump.write(name, planned, file_tiers(job))
    assert job is not None
    return job


def tiers(targets: Mapping[str, str | Array | None]) -> dict[str, str]:
    """The outputs that are kept, each with the file or name that identifies its tier."""
    return {name: t if isinstance(t, str) else name for name, t in targets.items() if t is not None}


def results_nbytes(graph: EinGraph, names: Iterable[str]) -> dict[str, int]:
    """Bytes of the given outputs."""
    selected = set(names)
    return {
        name: math.prod(graph.nodes[node].shape) * graph.nodes[node].dtype.itemsize
        for name, node in graph.outputs
        if name in selected
    }


def file_tiers(job: Job) -> dict[int, FileTier]:
    """The files and arrays of a memory graph's loads and stores, by tier number."""
    from einturnip.report.emit import FileTier

    graph = job.planned.graph
    tiers: dict[int, FileTier] = {}
    for i, node in enumerate(graph.nodes):
        if isinstance(node, InputNode):
            source = job.sources[node.name]
            tiers[FILES + i] = FileTier(source.tier, "input", source.extent)
    requests = output_requests(graph, job.targets)
    files = [r for r in requests if isinstance(r.spec, str)]
    offsets = dict(zip((r.name for r in files), planned_offsets(files), strict=True))
    for o, r in enumerate(requests):
        layout = c_layout(r.shape, r.dtype.itemsize, offsets.get(r.name) or 0)
        name = r.spec.partition("::")[0] if isinstance(r.spec, str) else r.name
        if any(tier.name == name and tier.kind == "input" for tier in tiers.values()):
            name += " (new)"  # an output that replaces an input's file: a separate file until it is complete
        tiers[output_tier(graph, o)] = FileTier(name, "output", layout.extent)
    return tiers
