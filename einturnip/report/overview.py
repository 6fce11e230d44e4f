"""A plan as one JSON object, printed by ``einturnip plan --format json`` unless an IR is requested."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import Lane
from einturnip.planner.planner import PlannedProgram
from einturnip.report.budgets import BudgetSweep
from einturnip.report.emit import budget
from einturnip.report.notes import input_text, merged_text, notes, size
from einturnip.report.sites import sites_json
from einturnip.report.statements import PlanStatement, statements, stored_nodes, work_of
from einturnip.report.tensor_work import TensorWork, work_by_node


def to_json(planned: PlannedProgram, program: str, swept: BudgetSweep | None) -> dict[str, Any]:
    """Statements, inputs, totals and, if examined, other budgets. Units: seconds, bytes."""
    graph, work = planned.graph, work_by_node(planned.memgraph)
    inputs = [
        {"name": n.name, "line": n.line, "shape": n.shape, "dtype": str(n.dtype), "text": input_text(planned, i, w)}
        | work_json(w)
        for i, (n, w) in enumerate(zip(graph.nodes, work, strict=True))
        if isinstance(n, InputNode)
    ]
    out: dict[str, Any] = {
        "schema": "einturnip.plan/1",
        "program": program,
        "budget": budget(planned),
        "predicted": planned.prediction.to_json(),
        "workers": planned.machine.workers,
        "spill_bytes": planned.memgraph.spill_nbytes,
        "host_spill_bytes": planned.memgraph.host_nbytes,
        "inputs": inputs,
        "statements": [_statement(planned, s, work) for s in statements(graph)],
    }
    if planned.memgraph.devices > 1:
        out |= sites_json(planned.memgraph, planned.machine.rates)
    if swept is not None:
        points = [asdict(p) for p in swept.points]
        out["budgets"] = [{f"{k}_bytes" if k in ("budget", "spilled") else k: v for k, v in p.items()} for p in points]
        out["least_bytes"] = swept.smallest
    return out


def _statement(planned: PlannedProgram, statement: PlanStatement, work: tuple[TensorWork, ...]) -> dict[str, Any]:
    head: dict[str, Any] = {"line": statement.line, "text": statement.text}
    if not statement.nodes:
        return head | {"within": statement.within, "notes": [merged_text(planned, statement)]}
    graph, nodes = planned.graph, stored_nodes(planned.graph, statement)
    node, cut = graph.nodes[nodes[-1]], planned.decomposition.output(nodes[-1])
    head |= {"nodes": list(statement.nodes), "name": node.name, "dtype": str(node.dtype), "shape": node.shape}
    head |= {"bytes": size(node), "tiles": cut.counts, "tile": cut.tiles, "times": len(nodes)}
    return head | work_json(work_of(statement, work)) | {"notes": list(notes(planned, statement, work))}


def work_json(work: TensorWork) -> dict[str, Any]:
    """Seconds by lane, summed over its ops; bytes and ops by kind."""
    return {
        "seconds": {lane.name.lower(): work.seconds[lane] for lane in Lane},
        "moved_bytes": {kind.name.lower(): n for kind, n in work.nbytes.items()},
        "ops": {kind.name.lower(): n for kind, n in work.ops.items()},
        "flops": work.flops,
        "held_bytes": work.peak_nbytes,
    }
