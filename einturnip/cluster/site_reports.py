"""The report of a run on workers, made from the measurements of each worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from einturnip.cluster.chunks import ChunkPlaces
from einturnip.cluster.planning import THREADS, SitesPlan
from einturnip.compiler import report_of
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import Lane
from einturnip.runtime.numeric_events import NumericEvents, causes_of, from_sources
from einturnip.runtime.scheduler.report import RunReport, SiteReport
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.sites.types import Role
from einturnip.storage.generated import SummarySink
from einturnip.storage.types import Sink, Source


def joined_events(
    plan: SitesPlan, results: list[dict[str, Any]], sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> NumericEvents:
    """Return the numeric events of all sites; adds their summaries of outputs to the sinks."""
    graph = plan.planned.graph
    read = from_sources([sources[n.name] if isinstance(n, InputNode) else None for n in graph.nodes])
    events = NumericEvents(plan.planned.memgraph)
    for part, result in zip(plan.parts, results, strict=True):
        events.add(result["events"], part.number)
        for name, summary in result["summaries"].items():
            sink = sinks[name]
            assert isinstance(sink, SummarySink)
            sink.add(summary)
    for name, number in graph.outputs:
        sink = sinks[name]
        if isinstance(sink, SummarySink) and sink.first_nan is not None:
            sink.nan_causes = causes_of(graph, number, sink.first_nan, read)
    return events.locate(read)


def run_report(
    plan: SitesPlan,
    results: list[dict[str, Any]],
    events: NumericEvents,
    bound: dict[str, int],
    seconds: float,
    bounded: bool,
    chunks: ChunkPlaces,
) -> RunReport:
    """Return the report of a run. ``seconds``: of the run; ``bounded``: its workers' memory has a limit."""
    trace = RunTrace(len(plan.planned.memgraph))
    trace.timeline = replace(trace.timeline, thread=np.zeros(len(plan.planned.memgraph), np.uint16))  # a site each
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
                memory_nbytes=plan.memories[site] if bounded else None,
                arena_peak_nbytes=part.graph.peak_nbytes,
                compute_seconds=result["busy"].get(int(Lane.COMPUTE), 0.0),
                received_nbytes=dict(sorted(result["received"].items())),
                planned_nbytes=_added(part.moved_nbytes(Role.RECEIVE), chunks.planned[site]),
                spilled_nbytes=part.spilled_nbytes(),
                waited_seconds=result["waited"],
            )
        )
        plan.forget_pages()
    planned = plan.planned
    found = report_of(planned, events, moved, trace, None, bound)
    return found.of_sites(tuple(sites), THREADS * len(sites))


def _added(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    return {site: a.get(site, 0) + b.get(site, 0) for site in sorted({*a, *b})}
