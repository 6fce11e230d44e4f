"""The goals of ``einturnip bench disk``, with the measured values and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from einturnip.core.units import format_size
from harness.disk import SPARING, DiskResult, DiskRun
from harness.disk_cases import DiskCase
from harness.disk_peers import LIMITED, OURS

SHARE = 4
MOST_TIME, LEAST_RATE, LEAST_SPEED = 1.1, 0.9, 2.0


@dataclass(frozen=True, slots=True)
class DiskGoal:
    """``met`` is None if a required run was not measured."""

    asked: str
    found: str
    met: bool | None


def goals(case: DiskCase, runs: Sequence[DiskResult], about: Mapping[str, Any]) -> list[DiskGoal]:
    """The goals of a case, from one run of each way. ``about``: the machine with its disk's rate."""
    by_way = {run.way: run for run in runs}
    forms = list(dict.fromkeys(run.way.form for run in runs))
    return [
        *(g for form in forms for g in _alone(case, by_way, form, about)),
        *(g for form in forms for name in LIMITED for g in _beside(by_way, form, name)),
        *_bounded(runs),
    ]


def lines(found: Sequence[DiskGoal]) -> list[str]:
    """The goals as a table."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [f"| {goal.asked} | {goal.found} | {words[goal.met]} |" for goal in found]
    return ["| in a quarter of the data, cold | measured | met |", "|---|---|---|", *rows, ""] if rows else []


def _alone(
    case: DiskCase, runs: Mapping[DiskRun, DiskResult], form: str, about: Mapping[str, Any]
) -> Iterator[DiskGoal]:
    """Goals relative to unlimited memory if arithmetic dominates, relative to the disk if transfers do."""
    run = _done(runs, DiskRun(OURS, form, SHARE))
    if case.compute_bound:
        free = next((r for r in runs.values() if r.way.contender == OURS and not r.way.share and not r.error), None)
        asked = f"{form}: no more than {MOST_TIME} of the time without a limit"
        if run is None or free is None:
            yield DiskGoal(asked, "", None)
        else:
            ratio = run.seconds / free.seconds
            yield DiskGoal(asked, f"{ratio:.2f}", ratio <= MOST_TIME)
        return
    asked = f"{form}: at least {LEAST_RATE} of the disk's rate, inputs read and result written one after the other"
    if run is None or "disk_read" not in about:
        yield DiskGoal(asked, "", None)
        return
    inputs = case.data_nbytes - case.result_nbytes
    needs = inputs / about["disk_read"] + case.result_nbytes / about["disk_write"]
    yield DiskGoal(asked, f"{needs / run.seconds:.2f}", needs / run.seconds >= LEAST_RATE)


def _beside(runs: Mapping[DiskRun, DiskResult], form: str, name: str) -> Iterator[DiskGoal]:
    """Goals relative to a peer without a limit, and to one with the same limit."""
    ours, free, held = _done(runs, DiskRun(OURS, form, SHARE)), DiskRun(name, form, 0), DiskRun(name, form, SHARE)
    if free not in runs and held not in runs:
        return  # it lacks this work, or is not installed
    theirs = _done(runs, free)
    asked = f"{form}: no slower than {name} with all memory"
    sparing = f"{asked}, in no more than a quarter of its peak"
    if ours is None or theirs is None:
        ended = runs[free].error if free in runs else ""
        yield DiskGoal(asked, ended[:60], None if ours is None or free not in runs else True)
    else:
        slower = ours.seconds / theirs.seconds
        yield DiskGoal(asked, f"{slower:.2f} of its time", slower <= 1)
    least = None if theirs is None else runs.get(DiskRun(OURS, form, SPARING, of=name))
    yield DiskGoal(sparing, "", None) if theirs is None or least is None else _sparing(sparing, least, theirs)
    asked_held = f"{form}: {LEAST_SPEED:g} times as fast as {name} in the same memory, or {name} does not get there"
    if ours is None or held not in runs:
        yield DiskGoal(asked_held, "", None)
    elif runs[held].error:
        yield DiskGoal(asked_held, runs[held].error[:60].replace("|", " "), True)
    else:
        faster = runs[held].seconds / ours.seconds
        yield DiskGoal(asked_held, f"{faster:.2f}", faster >= LEAST_SPEED)


def _sparing(asked: str, ours: DiskResult, theirs: DiskResult) -> DiskGoal:
    """Goals in a quarter of a peer's peak, or in the minimum."""
    least = f" in {format_size(ours.memory or 0)}, the least" if ours.raised else ""
    if ours.error:
        return DiskGoal(asked, f"{ours.error[:60]}{least}".replace("|", " "), False)
    slower, more = ours.seconds / theirs.seconds, ours.resident / theirs.resident
    found = f"{slower:.2f} of its time, {more:.2f} of its peak{least}"
    return DiskGoal(asked, found, slower <= 1 and more * SPARING <= 1)


def _bounded(runs: Sequence[DiskResult]) -> Iterator[DiskGoal]:
    """The goal that every limit was kept."""
    bounded = [(run, run.memory) for run in runs if run.way.contender == OURS and run.way.share]
    if not bounded:
        return
    over = [f"{format_size(r.resident)} of {format_size(m)}" for r, m in bounded if m is not None and r.resident > m]
    ended = [run.error[:60] for run, _ in bounded if run.error]
    wrong = [f"{run.way}: another answer" for run, _ in bounded if not run.error and not run.agrees]
    bad = [*over, *ended, *wrong]
    yield DiskGoal("every memory kept, seen from outside, and every answer right", "; ".join(bad), not bad)


def _done(runs: Mapping[DiskRun, DiskResult], way: DiskRun) -> DiskResult | None:
    run = runs.get(way)
    return None if run is None or run.error else run
