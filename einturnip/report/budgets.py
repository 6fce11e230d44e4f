"""Predicted time against budget: what more memory would bring, and the least that does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from einturnip.core.errors import CapacityError
from einturnip.core.units import format_seconds, format_size
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import DISK, OpKind
from einturnip.planner.planned_program import PlannedProgram
from einturnip.report.styled_lines import Line

# Budgets looked at, and seconds of the processor that looking at them may take.
MOST_POINTS = 8
PATIENCE = 2.0
MIB = 1 << 20
# How much longer the plan for half a budget may take to make.
MORE = 3.0
# Beside all tensors, what Python, libraries and workers take.
BESIDE = 128 * MIB


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """What a budget brings. ``spilled``: bytes to disk and back; ``whole``: none, and no input is read twice."""

    budget: int
    seconds: float
    spilled: int
    whole: bool
    stated: bool


@dataclass(frozen=True, slots=True)
class BudgetSweep:
    """Budgets by size, and the least that would do (None: the one stated is)."""

    points: tuple[BudgetPoint, ...]
    least: int | None


PlanFor = Callable[[int], PlannedProgram]


def sweep(plan_for: PlanFor, stated: PlannedProgram, patience: float = PATIENCE) -> BudgetSweep:
    """Plans for budgets from what holds everything downward, as many as ``patience`` (processor seconds) allows.

    The smaller a budget the more tiles, and the longer its plan takes to make: hence the order.
    """
    begin = time.process_time()
    budget = stated.budget.memory or stated.budget.arena
    points = {budget: _point(stated, budget, True)}
    least = min_budget(plan_for, budget)
    rungs = _ladder(least, _everything(stated.graph) + BESIDE, budget)
    took = 0.0
    for rung in [*rungs, *([least] if least < budget else [])]:
        now = time.process_time()
        if now - begin + MORE * took > patience:
            break
        try:
            points[rung] = _point(plan_for(rung), rung, False)
        except CapacityError:
            continue
        took = time.process_time() - now
    return BudgetSweep(tuple(points[b] for b in sorted(points)), least if least < budget else None)


def min_budget(plan_for: PlanFor, enough: int) -> int:
    """The least budget that would do, as the refusal of one byte tells it."""
    try:
        plan_for(1)
    except CapacityError as error:
        return min(error.needed, enough)
    return 1


def _everything(graph: EinGraph) -> int:
    """Bytes of all tensors together."""
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)


def _ladder(least: int, top: int, stated: int) -> list[int]:
    """Powers of two (of four, where those are many) between, largest first, none beside the least or the stated."""
    first, last = least.bit_length(), max(top - 1, least).bit_length()
    step = math.ceil((last - first + 1) / MOST_POINTS)
    return [1 << e for e in range(last, first - 1, -step) if 1 << e > 1.1 * least and not 0.9 < (1 << e) / stated < 1.1]


def _point(planned: PlannedProgram, budget: int, stated: bool) -> BudgetPoint:
    graph = planned.memgraph
    moved = graph.nbytes_by_link()
    spilled = int(graph.read[graph.read_ptr[:-1][graph.kind == OpKind.OFFLOAD], 2].sum())
    fetched = graph.read[graph.read_ptr[:-1][graph.kind == OpKind.RELOAD]]
    back = int(fetched[fetched[:, 0] == DISK, 2].sum())
    read = moved["disk->cpu:0"] - back
    least = planned.prediction.link_bytes_lower_bound.get("disk->cpu:0", 0)
    return BudgetPoint(budget, planned.prediction.seconds, spilled + back, not spilled and read <= 1.01 * least, stated)


def chart(found: BudgetSweep, width: int) -> list[Line]:
    """The points as bars, the stated budget marked, repetitions at the end left out."""
    shown = list(found.points)
    while len(shown) > 2 and not shown[-1].stated and _alike(shown[-1], shown[-2]):
        shown.pop()
    longest = max(p.seconds for p in shown) or 1.0
    room = max(8, width - 56)
    lines: list[Line] = [(("time against memory", "head"),)]
    for p in shown:
        bar = "#" * max(1, round(room * p.seconds / longest))
        note = "nothing spilled or read twice" if p.whole else f"{format_size(p.spilled)} spilled" if p.spilled else ""
        note = ", ".join([*["the least"] * (p.budget == found.least), *([note] if note else [])])
        head = f"{'>' if p.stated else ' '}{format_size(p.budget):>9} {format_seconds(p.seconds):>9}  "
        lines.append(((head, "name" if p.stated else ""), (f"{bar:<{room}}", "bar"), (f"  {note}", "note")))
    if found.least is not None and found.least != shown[0].budget:
        lines.append(((f" {format_size(found.least):>9}", ""), ("  is the least that would do", "note")))
    return lines


def _alike(a: BudgetPoint, b: BudgetPoint) -> bool:
    near = abs(a.seconds - b.seconds) <= 0.005 * max(a.seconds, b.seconds)
    return near and (a.whole, a.spilled) == (b.whole, b.spilled)
