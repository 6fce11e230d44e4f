"""Reports the share of each of several programs in a common run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import counted, format_seconds, format_size
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import FILES, Lane, MemGraph, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.scheduler.report import NumericWarning, RunReport
from einturnip.storage.types import Sink, Source, transfer_itemsize


@dataclass(frozen=True, slots=True)
class PartReport:
    """One program's part of a run. ``ended``: end of its last op. Units: seconds, bytes."""

    name: str
    program: str
    ops: int
    kernel_calls: int
    flops: float
    lanes: dict[str, float]
    nbytes_in: int
    nbytes_out: int
    ended: float
    warnings: tuple[NumericWarning, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dump."""
        return asdict(self)

    def text(self) -> str:
        """A line for a summary."""
        computing, moved = format_seconds(self.lanes["compute"]), "nothing moved"
        if self.nbytes_in or self.nbytes_out:
            moved = f"{format_size(self.nbytes_in)} in, {format_size(self.nbytes_out)} out"
        calls = counted(self.kernel_calls, "kernel call")
        return f"{self.name:<8} done after {format_seconds(self.ended)}: {calls} in {computing}, {moved}"


def part_reports(
    planned: PlannedProgram,
    report: RunReport,
    names: Sequence[str],
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
) -> list[PartReport]:
    """Divide a run by program."""
    graph, source = planned.memgraph, planned.graph
    first = [next(i for i, n in enumerate(source.nodes) if n.name.startswith(f"{name}.")) for name in names]
    program_of_op = np.searchsorted(np.array(first), _nodes_of_first_values(graph), side="right") - 1
    lane = np.array([k.lane for k in OpKind])[graph.kind]
    moved, timeline = graph.moved_nbytes() * _transferred_shares(planned, sources, sinks), report.timeline
    assert timeline is not None
    busy = timeline.end - timeline.begin
    flops = np.where(graph.task >= 0, graph.taskgraph.flops[graph.task], 0)
    reports = []
    for p, (name, (line, program)) in enumerate(zip(names, source.parts, strict=True)):
        of_program = program_of_op == p
        later_lines = [n for n, _ in source.parts[p + 1 :]]
        warnings = [w for w in report.warnings if w.line > line and all(w.line <= n for n in later_lines)]
        reports.append(
            PartReport(
                name,
                program,
                int(of_program.sum()),
                int((of_program & (graph.kind == OpKind.KERNEL)).sum()),
                float(flops[of_program].sum()),
                {kind.name.lower(): float(busy[of_program & (lane == kind)].sum()) for kind in Lane},
                int(moved[of_program & (lane == Lane.IN)].sum()),
                int(moved[of_program & (lane == Lane.OUT)].sum()),
                float(timeline.end[of_program].max(initial=0.0)),
                tuple(replace(w, line=w.line - line, merged=tuple(m - line for m in w.merged)) for w in warnings),
            )
        )
    return reports


def _transferred_shares(
    planned: PlannedProgram, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> NDArray[np.float64]:
    """The bytes that each op transfers for a byte in memory: none for random inputs and discarded outputs."""
    graph, source = planned.memgraph, planned.graph
    stores = [sources[n.name] if isinstance(n, InputNode) else None for n in source.nodes]
    stores += [sinks[name] for name, _ in source.outputs]
    shares = np.array([1.0] * FILES + [1.0 if s is None else transfer_itemsize(s) / s.dtype.itemsize for s in stores])
    loads, stored = graph.kind == OpKind.LOAD, graph.kind == OpKind.STORE
    found = np.ones(len(graph))
    found[loads] = shares[graph.read[graph.read_ptr[:-1][loads], 0]]
    found[stored] = shares[graph.write[graph.write_ptr[:-1][stored], 0]]
    return found


def _nodes_of_first_values(graph: MemGraph) -> NDArray[np.int64]:
    """The node whose tensor each op produces or moves: of the first value that it reads, else writes."""
    tasks, n = graph.taskgraph, len(graph)
    reading = np.diff(graph.read_ptr) > 0
    value = np.empty(n, np.int64)
    value[reading] = graph.read[graph.read_ptr[:-1][reading], 3]
    value[~reading] = graph.write[graph.write_ptr[:-1][~reading], 3]
    reports: NDArray[np.int64] = tasks.value_node[graph.all_unversioned(value)].astype(np.int64)
    return reports
