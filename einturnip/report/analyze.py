"""Compares a run with its plan, statement by statement, like a database's EXPLAIN ANALYZE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import counted, format_seconds, format_size
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.statements import statements, work_of
from einturnip.report.styled_lines import WIDTH, Line, text_of, truncated
from einturnip.report.tensor_work import TensorWork, total, work_by_node
from einturnip.runtime.scheduler.report import RunReport, Timeline

Seconds = NDArray[np.float64]

LANES = {Lane.COMPUTE: "kernels", Lane.IN: "reading", Lane.OUT: "writing"}
_COLUMNS = 29  # for predicted, actual and their ratio


@dataclass(frozen=True, slots=True)
class LaneMeasure:
    """The work of a lane for a statement, an input or the whole run.

    Seconds are of the lane: those of kernels are divided by the workers, and concurrent transfers share their time.
    """

    lane: str
    ops: int
    nbytes: int
    predicted: float
    actual: float


@dataclass(frozen=True, slots=True)
class AnalysisRow:
    """A statement (``within``: the line in whose kernels it runs, if it has none of its own) or an input."""

    line: int
    text: str
    measures: tuple[LaneMeasure, ...]
    flops: int = 0
    within: int | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """A run compared with its plan. Units: seconds, bytes."""

    rows: tuple[AnalysisRow, ...]
    total: tuple[LaneMeasure, ...]
    report: RunReport

    def text(self, width: int = WIDTH) -> str:
        """Format as a table."""
        return text_of(analysed(self, width))

    def to_json(self) -> dict[str, Any]:
        """Plain values: the run's report, with ``statements`` and ``total``."""
        rows = [asdict(row) for row in self.rows]
        return self.report.to_json() | {"statements": rows, "total": [asdict(m) for m in self.total]}


def analyse(planned: PlannedProgram, report: RunReport) -> Analysis:
    """Analyze the run of a plan, statement by statement."""
    graph, workers = planned.memgraph, planned.machine.workers
    assert report.timeline is not None
    work = work_by_node(graph)
    actual_work = work_by_node(graph, shares(graph, report.timeline))
    rows = [
        AnalysisRow(node.line, f"input {node.name}", _measures(work[i], actual_work[i], workers))
        for i, node in enumerate(planned.graph.nodes)
        if isinstance(node, InputNode)
    ]
    for s in statements(planned.graph):
        measures = _measures(work_of(s, work), work_of(s, actual_work), workers)
        rows.append(AnalysisRow(s.line, s.text, measures, work_of(s, work).flops, s.within))
    return Analysis(tuple(rows), _measures(total(work), total(actual_work), workers), report)


def joined(parts: Sequence[tuple[Analysis, int]], report: RunReport) -> Analysis:
    """Join the analyses of plans that ran one after the other, each with its number of runs."""
    rows = [
        replace(row, measures=_times_runs(row.measures, runs), flops=runs * row.flops)
        for analysis, runs in parts
        for row in analysis.rows
    ]
    lanes: dict[str, LaneMeasure] = {}
    for analysis, runs in parts:
        for m in _times_runs(analysis.total, runs):
            old = lanes.get(m.lane, LaneMeasure(m.lane, 0, 0, 0.0, 0.0))
            lanes[m.lane] = LaneMeasure(
                m.lane, old.ops + m.ops, old.nbytes + m.nbytes, old.predicted + m.predicted, old.actual + m.actual
            )
    return Analysis(tuple(rows), tuple(lanes.values()), report)


def _times_runs(measures: Iterable[LaneMeasure], runs: int) -> tuple[LaneMeasure, ...]:
    return tuple(
        LaneMeasure(m.lane, runs * m.ops, runs * m.nbytes, runs * m.predicted, runs * m.actual) for m in measures
    )


def shares(graph: MemGraph, timeline: Timeline) -> Seconds:
    """Seconds of each op in its lane: overlapping transfers divide the time equally."""
    seconds = timeline.end - timeline.begin
    lanes = np.array([kind.lane for kind in OpKind])[graph.kind]
    for lane in (Lane.IN, Lane.OUT):
        ops = np.flatnonzero(lanes == lane)
        seconds[ops] = _shared(timeline.begin[ops], timeline.end[ops])
    return seconds


def _shared(begin: Seconds, end: Seconds) -> Seconds:
    """For each interval, the integral over it of 1 / (number of open intervals)."""
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    open_after = np.cumsum(np.where(order < len(begin), 1, -1))
    interval = np.diff(times[order], prepend=times[order][:1])
    share = np.concatenate([[0.0], interval[1:] / np.maximum(open_after[:-1], 1)]) if len(times) else interval
    integral = np.empty(len(times))
    integral[order] = np.cumsum(share)
    return integral[len(begin) :] - integral[: len(begin)]


def _measures(work: TensorWork, actual_work: TensorWork, workers: int) -> tuple[LaneMeasure, ...]:
    measures = []
    for lane, name in LANES.items():
        ops = sum(n for kind, n in work.ops.items() if kind.lane == lane)
        if ops:
            share = workers if lane == Lane.COMPUTE else 1
            seconds = work.seconds[lane] / share, actual_work.seconds[lane] / share
            measures.append(LaneMeasure(name, ops, work.moved(lane) if lane != Lane.COMPUTE else 0, *seconds))
    return tuple(measures)


def analysed(analysis: Analysis, width: int = WIDTH) -> list[Line]:
    """The table's lines."""
    columns = width - _COLUMNS
    head: Line = ((f"{'line  statement':<{columns}}{'predicted':>11}{'actual':>11}{'x':>7}", "head"),)
    lines = [head]
    for row in analysis.rows:
        lines += _row(row, analysis.report.workers, columns)
    return [*lines, (), *_totals(analysis, columns)]


def _row(row: AnalysisRow, workers: int, columns: int) -> Iterator[Line]:
    kernels = [m for m in row.measures if m.lane == "kernels"]
    name: Line = ((f"{row.line:>4}  ", ""), (f"{truncated(row.text, columns - 7):<{columns - 6}}", "name"))
    if row.within is not None:
        yield (*name, (f"{f'in line {row.within}':>{_COLUMNS}}", "note"))
        return
    first = kernels[0] if kernels else row.measures[0] if len(row.measures) == 1 else None
    yield (*name, (_times(first.predicted, first.actual), "")) if first else name
    for m in row.measures:
        text = _lane_text(m, row, workers)
        yield (
            (f"{'':8}{truncated(text, columns - 9):<{columns - 8}}", "note"),
            (_times(m.predicted, m.actual) * (m != first), ""),
        )


def _lane_text(m: LaneMeasure, row: AnalysisRow, workers: int) -> str:
    if m.lane != "kernels":
        return f"{m.lane} {format_size(m.nbytes)}, {counted(m.ops, 'tile')}"
    per_call = format_seconds(m.actual * workers / m.ops)
    if not row.flops:  # of an input, whose tiles are copied
        return f"{m.ops:,} {'copy' if m.ops == 1 else 'copies'} of {per_call}"
    rate = row.flops / m.actual / 1e9 if m.actual > 0 else 0.0
    return f"{counted(m.ops, 'kernel call')} of {per_call}, {rate:.1f} GFLOP/s"


def _times(predicted: float, actual: float) -> str:
    ratio = f"{actual / predicted:>7.2f}" if predicted > 0 else f"{'':7}"
    return f"{format_seconds(predicted):>11}{format_seconds(actual):>11}{ratio}"


def _totals(analysis: Analysis, columns: int) -> Iterator[Line]:
    """Yield the lanes, the whole run, bytes and memory."""
    report, predicted = analysis.report, analysis.report.predicted
    for m in analysis.total:
        what = f" by {report.workers} workers" if m.lane == "kernels" else f" {format_size(m.nbytes)}"
        yield (f"{m.lane + what:<{columns}}", ""), (_times(m.predicted, m.actual), "")
    yield (f"{'whole run':<{columns}}", "head"), (_times(predicted.seconds, report.wall_seconds), "head")
    for link, nbytes in predicted.link_bytes.items():
        if actual := report.link_bytes.get(link, 0):  # random inputs and discarded outputs move nothing
            yield ((_line(f"bytes {link}", nbytes, actual, columns), ""),)
    yield (
        (
            _line("arena, at most", max(predicted.peak_nbytes.values(), default=0), report.arena_peak_nbytes, columns),
            "",
        ),
    )
    if report.memory_nbytes is not None:
        yield (
            (_line("memory of the process, at most", report.memory_nbytes, report.peak_resident_nbytes, columns), ""),
        )


def _line(name: str, predicted: int, actual: int, columns: int) -> str:
    ratio = f"{actual / predicted:>7.2f}" if predicted else ""
    return f"{name:<{columns}}{format_size(predicted):>11}{format_size(actual):>11}{ratio}"
