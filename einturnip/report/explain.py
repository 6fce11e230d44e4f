"""Explains a plan: cost of each statement, tensors kept, fused or spilled and why, and totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from einturnip.core.units import counted, format_seconds, format_size
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.notes import facts, input_text, merged_text, notes
from einturnip.report.sites import idle_text, site_traffic, sites_text
from einturnip.report.statements import PlanStatement, statements, work_of
from einturnip.report.styled_lines import WIDTH, Line, text_of, truncated, wrapped
from einturnip.report.summary import bytes_text
from einturnip.report.tensor_work import TensorWork, total, work_by_node

_INDENT = 6
_TIMES = 16  # columns for time and share


def explain(planned: PlannedProgram, width: int = WIDTH) -> str:
    """Explain the plan as text."""
    return text_of(explained(planned, width))


def explained(planned: PlannedProgram, width: int = WIDTH) -> list[Line]:
    """Explain the plan statement by statement, then its budget and predicted totals."""
    work = work_by_node(planned.memgraph)
    lines = [*_inputs(planned, work, width), ()]
    lines.append(((f"{'line':>4}  {'statement':<{width - _INDENT - _TIMES}}{'time':>10}{'share':>6}", "head"),))
    for statement in statements(planned.graph):
        lines += _statement(planned, statement, work, width)
    return [*lines, (), *totals(planned, work, width)]


def _inputs(planned: PlannedProgram, work: Sequence[TensorWork], width: int) -> Iterator[Line]:
    yield ((f"{'line':>4}  input", "head"),)
    for i, node in enumerate(planned.graph.nodes):
        if isinstance(node, InputNode):
            shape = ", ".join(map(str, node.shape))
            name = f"{node.name} : {node.dtype}[{shape}]" if shape else f"{node.name} : {node.dtype}"
            text = input_text(planned, i, work[i])
            head: Line = ((f"{node.line:>4}  ", ""), (name, "name"))
            if _INDENT + len(name) + 2 + len(text) <= width:
                yield (*head, (f"  {text}", "note"))
            else:
                yield head
                yield from wrapped(text, _INDENT + 2, width, "note")


def _statement(
    planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork], width: int
) -> Iterator[Line]:
    columns = width - _INDENT - _TIMES
    number = f"{statement.line:>4}  "
    if not statement.nodes:
        yield (number, ""), (truncated(statement.text, columns), "name")
        yield from wrapped(merged_text(planned, statement), _INDENT + 2, width, "note")
        return
    own_work = work_of(statement, work)
    seconds = kernel_seconds(planned, own_work)
    all_seconds = kernel_seconds(planned, total(work))
    times = f"{format_seconds(seconds):>10}{seconds / all_seconds if all_seconds else 0:>6.0%}"
    yield (number, ""), (f"{truncated(statement.text, columns):<{columns}}", "name"), (times, "")
    yield from wrapped(facts(planned, statement, own_work), _INDENT + 2, width)
    for note in notes(planned, statement, work):
        yield from wrapped(note, _INDENT + 2, width, "warn" if note.startswith("spilled") else "note")


def kernel_seconds(planned: PlannedProgram, work: TensorWork) -> float:
    """Seconds of kernels, divided evenly among the workers."""
    return work.seconds[Lane.COMPUTE] / planned.machine.workers


def totals(planned: PlannedProgram, work: Sequence[TensorWork], width: int) -> Iterator[Line]:
    """Yield lines for memory, bytes moved, steps and time."""
    memory, predicted = planned.budget.memory, planned.prediction
    graph, arena = planned.memgraph, format_size(planned.budget.arena)
    others_nbytes = 0 if memory is None else memory - planned.budget.arena
    budget = f"{arena} for tiles, {format_size(graph.peak_nbytes)} of them used"
    if graph.devices > 1:
        sizes = list(dict.fromkeys(map(format_size, (min(graph.arenas_nbytes), max(graph.arenas_nbytes)))))
        used = format_size(graph.peak_nbytes)
        budget = f"{' to '.join(sizes)} for the tiles of each site, at most {used} of them used"
    if memory is not None:
        budget = f"{format_size(memory)} in all: {format_size(others_nbytes)} Python, libraries and workers; {budget}"
    places = {"on disk": graph.spill_nbytes, "in host memory": graph.host_nbytes}
    spill = ", ".join(f"{format_size(nbytes)} {place} at once" for place, nbytes in places.items() if nbytes)
    sums = total(work)
    ops = ", ".join(f"{n:,} {kind.name.lower()}" for kind in OpKind if (n := sums.ops.get(kind, 0)))
    rows = [
        ("memory", budget),
        ("spill", spill or "nothing"),
        *_links(predicted.link_bytes, predicted.link_bytes_lower_bound),
        *([("sites", sites_text(planned.memgraph, planned.machine.rates))] if planned.memgraph.devices > 1 else []),
        ("steps", ops or "none"),
        ("time", f"about {format_seconds(predicted.seconds)} on {_workers(planned)}: {_bound(planned, sums)}"),
    ]
    for name, text in rows:
        first, *others = wrapped(text, 9, width) or [((" " * 9, ""),)]
        yield (f"{name:<9}", "head"), (first[0][0][9:], "")
        yield from others
    idle = idle_text(planned.memgraph)
    for note in (*planned.decomposition.notes, *([idle] if idle else [])):
        yield from wrapped(f"warning: {note}", 0, width, "warn")


def _links(moved: Mapping[str, int], bound: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Bytes over each link, compared with their lower bound if they exceed it."""
    for (link, nbytes), name in zip(moved.items(), ("reads", "writes"), strict=False):
        lower = bound.get(link, 0)
        yield name, bytes_text(nbytes, lower if nbytes > 1.005 * lower else 0)


def _workers(planned: PlannedProgram) -> str:
    n = planned.machine.workers
    rate = planned.prediction.flops / planned.prediction.seconds / 1e9 if planned.prediction.seconds > 0 else 0.0
    return f"{counted(n, 'worker')} ({rate:.1f} GFLOP/s)"


def _bound(planned: PlannedProgram, work: TensorWork) -> str:
    """The bottleneck: lanes work concurrently, so the busiest one determines the time."""
    kernels, moving = kernel_seconds(planned, work), 0.0
    if planned.machine.link is not None:
        receiving = site_traffic(planned.memgraph).receive_seconds
        kernels -= float(receiving.sum()) / planned.machine.workers
        moving = float(receiving.max())
    busy = {"kernels": kernels, "moving": moving, "reading": work.seconds[Lane.IN], "writing": work.seconds[Lane.OUT]}
    longest = max(busy, key=lambda lane: busy[lane])
    others = ", ".join(f"{lane} {format_seconds(s)}" for lane, s in busy.items() if s > 0 and lane != longest)
    verb = "take" if longest == "kernels" else "takes"
    meanwhile = f"; meanwhile {others}" if others else ""
    return f"{longest} {verb} {format_seconds(busy[longest])}{meanwhile}"
