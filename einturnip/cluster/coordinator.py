"""Begins a run on workers, watches it, and publishes its outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import numpy as np

from einturnip.cluster.chunks import ChunkPlaces, kept_grids
from einturnip.cluster.planning import PARTS, THREADS, SitesPlan, plan_on
from einturnip.cluster.tensors import HELD, input_places, output_places, tile_of
from einturnip.cluster.transport import Cluster, RunLines
from einturnip.compiler import compile_kernels, report_of
from einturnip.core import errors
from einturnip.core.errors import DeviceError, EinturnipError, Interrupted, RunError
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.types import FILES, Lane
from einturnip.planner.planned_program import run_lower_bound
from einturnip.planner.request import Options
from einturnip.runtime.numeric_events import NumericEvents, causes_of, from_sources
from einturnip.runtime.scheduler.report import Progress, RunReport, SiteReport
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.sites.types import Role
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.generated import SummarySink
from einturnip.storage.types import Array, Sink, Source, empty
from einturnip.tuning.memory import JOIN_SECONDS, LOST_SECONDS, SCHEDULER_LOST_SECONDS, TICK_SECONDS


def plan_on_workers(
    cluster: Cluster,
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    kept: frozenset[str] = frozenset(),
) -> OnWorkers:
    """Plan a program for the workers of a cluster; see ``planning.plan_on``."""
    cluster.locate(sources, options.memory)
    return OnWorkers(cluster, plan_on(cluster.workers(), graph, sources, targets, options, kept))


@dataclass(frozen=True, slots=True)
class OnWorkers:
    """A plan, and the cluster whose workers run it.

    ``arrays``: the outputs that stayed on the workers in the last run, as Dask arrays.
    """

    cluster: Cluster
    plan: SitesPlan
    arrays: dict[str, Any] = field(default_factory=dict)

    def execute(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: Options,
        progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> RunReport:
        """Run the plan; its outputs are committed when every site has ended.

        Raises:
            RunError, StoreError, DeviceError, Interrupted: nothing is committed; the caller aborts the sinks.
        """
        plan, planned = self.plan, self.plan.planned
        compile_kernels(planned, options)
        run = _ClusterRun(self.cluster, plan, sources, sinks, options)
        began = time.perf_counter()
        results = run.results(progress, stop)
        seconds = time.perf_counter() - began
        require_unchanged_inputs(sources.values(), sinks.values())
        events = _events(plan, results, sources, sinks)
        for sink in sinks.values():
            sink.commit()
        self.arrays.update(run.arrays)
        bound = run_lower_bound(planned, sources, sinks)
        return _report(plan, results, events, bound, seconds, options.arena is None, run.chunks)


def _events(
    plan: SitesPlan, results: list[dict[str, Any]], sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> NumericEvents:
    """Return the numeric events of all sites, and add their summaries of outputs."""
    graph = plan.planned.graph
    read = from_sources([sources[n.name] if isinstance(n, InputNode) else None for n in graph.nodes])
    events = NumericEvents(plan.planned.memgraph)
    for part, result in zip(plan.parts, results, strict=True):
        events.add(result["events"], part.number.tolist())
        for name, summary in result["summaries"].items():
            sink = sinks[name]
            assert isinstance(sink, SummarySink)
            sink.add(summary)
    for name, number in graph.outputs:
        sink = sinks[name]
        if isinstance(sink, SummarySink) and sink.first_nan is not None:
            sink.nan_causes = causes_of(graph, number, sink.first_nan, read)
    return events.locate(read)


def _no_scheduler() -> RunError:
    return RunError("the scheduler of the cluster is gone. Nothing was written. help: start it and run again")


class _ClusterRun:
    def __init__(
        self,
        cluster: Cluster,
        plan: SitesPlan,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: Options,
    ) -> None:
        self.cluster, self.plan, self.sources, self.sinks = cluster, plan, sources, sinks
        graph = plan.planned.graph
        inputs, outputs = input_places(graph, sources), output_places(sinks, plan.output_chunks)
        self.more: dict[str, Any] = {
            "inputs": inputs,
            "outputs": outputs,
            "spill": options.spill,
            "spill_limit": options.spill_limit,
            "reproducible": options.reproducible,
            "compiled": plan.planned.machine.compiled,
            "bounded": options.arena is None,
        }
        addresses = [worker.address for worker in plan.workers]
        self.chunks = cluster.chunk_places(plan.parts, graph, sources, addresses, len(plan.planned.memgraph))
        self.kept = kept_grids(plan.parts, graph, plan.kept)
        self.arrays: dict[str, Any] = {}
        self._begun = dict[int, str]()  # by site, the last statement that it began
        self._device = plan.planned.memgraph.op_devices()
        names = [n.name for n in graph.nodes if isinstance(n, InputNode)]
        self._held = {name for name in names if inputs.get(name) == HELD}

    def results(
        self, progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> list[dict[str, Any]]:
        """Run all sites and return what each of them measured."""
        sites = [worker.address for worker in self.plan.workers]
        lines = self.cluster.begin(sites, self._part, self._tile, self._store, lambda op: int(self._device[op]))
        try:
            found = self._watch(lines, progress, stop)
            self._keep(lines, stop)
            return found
        finally:
            lines.say("stop")
            lines.close()

    def _watch(
        self, lines: RunLines, progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> list[dict[str, Any]]:
        """Take what the sites say until all have ended.

        Raises:
            EinturnipError: one has failed or is gone.
        """
        count = len(self.plan.parts)
        joined, ready, done = set[int](), set[int](), dict[int, dict[str, Any]]()
        ops, began, asked = [0] * count, time.monotonic(), 0.0
        while len(done) < count:
            if stop is not None and stop.is_set():
                raise Interrupted("interrupted")
            if not self.cluster.answers():
                raise _no_scheduler()
            now = time.monotonic()
            if len(joined) < count and now - asked > 1:
                asked = now
                self._require_present(lines, joined, now - began)
            try:
                state, site, content = lines.events.get(timeout=TICK_SECONDS)
            except Empty:
                continue
            match state:
                case "joined":
                    joined.add(site)
                case "ready":
                    ready.add(site)
                    if len(ready) == count:
                        lines.say("go")
                case "progress":
                    ops[site] = content["ops"]
                    if content["node"] >= 0:
                        self._begun[site] = self._statement(content["node"])
                    if progress is not None:
                        progress(self._progress(sum(ops), content["seconds"], self._begun.get(site, "")))
                case "done":
                    done[site] = PARTS.from_bytes(content["result"])
                case "failed":
                    raise self._failure(lines, site, content, done)
                case "lost" if site not in done:
                    raise self._lost(site)
        return [done[site] for site in range(count)]

    def _require_present(self, lines: RunLines, joined: set[int], waited: float) -> None:
        for site in lines.missing():
            raise self._lost(site)
        late = [site for site in range(len(self.plan.parts)) if site not in joined]
        if waited > JOIN_SECONDS and late:
            raise DeviceError(
                f"{self.plan.workers[late[0]].name} has not begun within {JOIN_SECONDS} s: it runs other tasks, "
                "or cannot reach this process. help: wait for them, or give the run workers of its own"
            )

    def _lost(self, site: int) -> RunError:
        """Return the error for a site that is gone; if the scheduler is, workers end because of that."""
        until = time.monotonic() + SCHEDULER_LOST_SECONDS
        while time.monotonic() < until:
            if not self.cluster.answers():
                return _no_scheduler()
            time.sleep(TICK_SECONDS)
        begun = f" It had last begun {self._begun[site]}." if site in self._begun else ""
        return RunError(
            f"{self.plan.workers[site].name} is gone: its process ended or its machine does not answer.{begun} "
            "Nothing was written. help: run again"
        )

    def _statement(self, node: int) -> str:
        graph = self.plan.planned.graph
        line = graph.nodes[node].line
        return f"{graph.place(line)}: {graph.statement(line)}"

    def _failure(self, lines: RunLines, site: int, content: Any, done: Collection[int]) -> EinturnipError:
        """Return the error for a site's failure; if it lost another site, that one is at fault."""
        if content.get("ending"):
            return self._lost(site)
        until, closing = time.monotonic() + LOST_SECONDS, {site, *done}
        while content.get("lost") and time.monotonic() < until:
            if not self.cluster.answers():
                return _no_scheduler()
            try:
                state, other, _ = lines.events.get(timeout=TICK_SECONDS)
            except Empty:
                continue
            if state == "lost" and other not in closing:
                return self._lost(other)
            if state in ("failed", "done"):
                closing.add(other)
        kind = getattr(errors, content["kind"], None)
        text = f"{self.plan.workers[site].name}: {content['text']}"
        if not (isinstance(kind, type) and issubclass(kind, EinturnipError)):
            return RunError(f"{text} ({content['kind']})")
        found = RunError(text) if kind is errors.OutOfRange else kind(text)
        return found

    def _progress(self, done: int, seconds: float, statement: str) -> Progress:
        total = sum(len(part.graph) for part in self.plan.parts)
        flops, nbytes = int(self.plan.planned.prediction.flops), sum(self.plan.planned.prediction.link_bytes.values())
        share = done / max(1, total)
        return Progress(done, total, int(share * flops), flops, int(share * nbytes), nbytes, seconds, statement)

    def _part(self, site: int) -> bytes:
        addresses = tuple(worker.address for worker in self.plan.workers)
        own = {
            "inputs": self.more["inputs"] | self.chunks.inputs[site],
            "outputs": self.more["outputs"] | {name: ("blocks", grid.borders) for name, (grid, _) in self.kept.items()},
            "served": self.chunks.served[site],
            "extra": self.plan.extra[site],
        }
        return b"".join(PARTS.to_bytes((self.plan.parts[site], self.plan.memory, addresses, self.more | own)))

    def _keep(self, lines: RunLines, stop: threading.Event | None) -> None:
        """Make Dask arrays of the blocks that stay on the workers."""
        for name, (grid, site_of) in self.kept.items():
            node = self.plan.planned.graph.nodes[dict(self.plan.planned.graph.outputs)[name]]
            blocks = lines.blocks(name, list(grid.indices()), site_of)
            while not blocks.is_complete(TICK_SECONDS):
                if stop is not None and stop.is_set():
                    raise Interrupted("interrupted")
                for site in lines.missing():
                    raise self._lost(site)
            self.arrays[name] = blocks.array(grid.extents, node.dtype.numpy)

    def _tile(self, number: int) -> Array:
        """Return the tile of a held input that an op reads."""
        graph = self.plan.planned.memgraph
        tier, region = tile_of(graph, graph[number])
        name = self.plan.planned.graph.nodes[tier - FILES].name
        if graph[number].kind.lane != Lane.IN or name not in self._held:
            raise RunError("this tile is in a file")
        source = self.sources[name]
        out = empty(region, source.dtype.numpy)
        source.read(region, out)
        return out

    def _store(self, number: int, data: Any) -> None:
        """Take the tile of a held output that an op stores."""
        graph, program = self.plan.planned.memgraph, self.plan.planned.graph
        tier, region = tile_of(graph, graph[number])
        sink = self.sinks[program.outputs[tier - FILES - len(program.nodes)][0]]
        tile = np.frombuffer(data, np.uint8).view(sink.dtype.numpy).reshape([hi - lo for lo, hi in region])
        sink.write(region, tile)


def _report(
    plan: SitesPlan,
    results: list[dict[str, Any]],
    events: NumericEvents,
    bound: dict[str, int],
    seconds: float,
    bounded: bool,
    chunks: ChunkPlaces,
) -> RunReport:
    trace = RunTrace(len(plan.planned.memgraph))
    trace.seconds = seconds
    moved: dict[str, int] = {}
    sites = []
    for site, (worker, part, result) in enumerate(zip(plan.workers, plan.parts, results, strict=True)):
        begin, end = result["times"]
        ran = np.flatnonzero(end[: len(part.number)])  # senders do not time transfers
        trace.timeline.begin[part.number[ran]], trace.timeline.end[part.number[ran]] = begin[ran], end[ran]
        trace.timeline.thread[part.number[ran]] = site
        for lane, busy in result["busy"].items():
            trace.busy[Lane(lane)] += busy
        for cause, idle in result["stalls"].items():
            trace.stalls[cause] += idle
        for direction, nbytes in result["moved"].items():
            moved[direction] = moved.get(direction, 0) + nbytes
        across = sum(result["received"].values())
        moved["across"] = moved.get("across", 0) + across
        sites.append(
            SiteReport(
                site=site,
                worker=worker.address,
                host=worker.host,
                peak_resident_nbytes=result["peak"],
                arena_peak_nbytes=part.graph.peak_nbytes,
                compute_seconds=result["busy"].get(int(Lane.COMPUTE), 0.0),
                received_nbytes=dict(sorted(result["received"].items())),
                planned_nbytes=_added(part.moved_nbytes(Role.RECEIVE), chunks.planned[site]),
                spilled_nbytes=part.spilled_nbytes(),
                waited_seconds=result["waited"],
            )
        )
    planned = plan.planned
    found = report_of(planned, events, moved, trace, None, bound)
    return found.of_sites(tuple(sites), plan.memory if bounded else None, THREADS * len(sites))


def _added(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    return {site: a.get(site, 0) + b.get(site, 0) for site in sorted({*a, *b})}
