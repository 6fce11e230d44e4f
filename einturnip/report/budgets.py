"""Predicted time for other budgets, and the minimum budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from einturnip.core.errors import CapacityError, NeedsMore
from einturnip.core.process_resources import exclude_foreign_memory, resident_nbytes
from einturnip.core.units import format_seconds, format_size
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import DISK, OpKind
from einturnip.planner.budget import overhead_nbytes, size_of
from einturnip.planner.planner import PlannedProgram
from einturnip.report.styled_lines import Line

# Maximum number of budgets to examine, and of CPU seconds for that.
MAX_POINTS = 8
PATIENCE = 2.0
MIB = 1 << 20
# Maximum ratio of planning times when the budget is halved.
MAX_TIME_RATIO = 3.0
# Memory of Python, libraries and workers besides all tensors.
PROCESS_NBYTES = 128 * MIB


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """The effect of a budget. ``spilled``: bytes to disk and back.

    ``whole``: no spill, and no input is read twice.
    """

    budget: int
    seconds: float
    spilled: int
    whole: bool
    stated: bool


@dataclass(frozen=True, slots=True)
class BudgetSweep:
    """Budgets by size, and the minimum budget (None: the given one, or unknown)."""

    points: tuple[BudgetPoint, ...]
    smallest: int | None


PlanFor = Callable[[int], PlannedProgram]


def sweep(plan_for: PlanFor, stated: PlannedProgram, patience: float = PATIENCE) -> BudgetSweep:
    """Plan for decreasing budgets, starting at one that fits everything, for ``patience`` CPU seconds.

    The largest budgets come first because smaller ones mean more tiles and a longer planning time. What the process has
    loaded since it planned for ``stated`` does not count, because a run of another budget does not load it.
    """
    loaded = 0 if stated.budget.memory is None else max(0, resident_nbytes() - _resident_when_planned(stated))
    with exclude_foreign_memory(lambda: loaded, False):
        return _swept(plan_for, stated, patience)


def _resident_when_planned(planned: PlannedProgram) -> int:
    """The resident memory that the account of a plan includes."""
    budget, graph = planned.budget, planned.memgraph
    assert budget.memory is not None
    size = size_of(planned.taskgraph, ops=len(graph))
    return budget.memory - budget.arena - overhead_nbytes(0, planned.machine.workers, size)


def _swept(plan_for: PlanFor, stated: PlannedProgram, patience: float) -> BudgetSweep:
    begin = time.process_time()
    budget = stated.budget.memory or stated.budget.arena
    points = {budget: _point(stated, budget, True)}
    smallest, is_known = min_budget(plan_for, budget, patience)
    sizes = _ladder(smallest, _tensors_nbytes(stated.graph) + PROCESS_NBYTES, budget)
    elapsed = 0.0
    for size in [*sizes, *([smallest] if is_known and smallest < budget else [])]:
        now = time.process_time()
        if now - begin + MAX_TIME_RATIO * elapsed > patience:
            break
        try:
            points[size] = _point(plan_for(size), size, False)
        except CapacityError:
            continue
        elapsed = time.process_time() - now
    return BudgetSweep(tuple(points[b] for b in sorted(points)), smallest if is_known and smallest < budget else None)


def min_budget(plan_for: PlanFor, upper: int, patience: float = PATIENCE) -> tuple[int, bool]:
    """The minimum budget, as a refusal names it, and True; or a lower bound of it and False.

    Planning that stops at its own memory limit names a lower bound only, from which the next refusal is asked.
    """
    begin, budget = time.process_time(), 1
    while budget < upper:
        try:
            plan_for(budget)
        except NeedsMore as error:
            budget = max(budget + 1, error.needed)
            if time.process_time() - begin > patience:
                return min(budget, upper), False
        except CapacityError as error:
            return min(error.needed or budget, upper), error.needed > 0
        else:
            return budget, True
    return upper, True


def _tensors_nbytes(graph: EinGraph) -> int:
    """Total bytes of all tensors."""
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)


def _ladder(smallest: int, top: int, stated: int) -> list[int]:
    """Powers of two (or four), largest first, not too close to the minimum or the given budget."""
    first, last = smallest.bit_length(), max(top - 1, smallest).bit_length()
    step = math.ceil((last - first + 1) / MAX_POINTS)
    return [
        1 << e for e in range(last, first - 1, -step) if 1 << e > 1.1 * smallest and not 0.9 < (1 << e) / stated < 1.1
    ]


def _point(planned: PlannedProgram, budget: int, stated: bool) -> BudgetPoint:
    graph = planned.memgraph
    moved = graph.nbytes_by_link()
    spilled = int(graph.read[graph.read_ptr[:-1][graph.kind == OpKind.OFFLOAD], 2].sum())
    reloads = graph.read[graph.read_ptr[:-1][graph.kind == OpKind.RELOAD]]
    reloaded = int(reloads[reloads[:, 0] == DISK, 2].sum())
    read = moved["disk->cpu:0"] - reloaded
    read_bound = planned.prediction.link_bytes_lower_bound.get("disk->cpu:0", 0)
    return BudgetPoint(
        budget, planned.prediction.seconds, spilled + reloaded, not spilled and read <= 1.01 * read_bound, stated
    )


def chart(swept: BudgetSweep, width: int) -> list[Line]:
    """The points as bars, with the given budget marked; trailing repetitions are omitted."""
    points = list(swept.points)
    while len(points) > 2 and not points[-1].stated and _are_equal(points[-1], points[-2]):
        points.pop()
    longest = max(p.seconds for p in points) or 1.0
    columns = max(8, width - 56)
    lines: list[Line] = [(("time against memory", "head"),)]
    for p in points:
        bar = "#" * max(1, round(columns * p.seconds / longest))
        note = "nothing spilled or read twice" if p.whole else f"{format_size(p.spilled)} spilled" if p.spilled else ""
        note = ", ".join([*["the minimum"] * (p.budget == swept.smallest), *([note] if note else [])])
        head = f"{'>' if p.stated else ' '}{format_size(p.budget):>9} {format_seconds(p.seconds):>9}  "
        lines.append(((head, "name" if p.stated else ""), (f"{bar:<{columns}}", "bar"), (f"  {note}", "note")))
    if swept.smallest is not None and swept.smallest != points[0].budget:
        lines.append(((f" {format_size(swept.smallest):>9}", ""), ("  is the minimum", "note")))
    return lines


def _are_equal(a: BudgetPoint, b: BudgetPoint) -> bool:
    same_time = abs(a.seconds - b.seconds) <= 0.005 * max(a.seconds, b.seconds)
    return same_time and (a.whole, a.spilled) == (b.whole, b.spilled)
