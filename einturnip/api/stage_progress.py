"""The names of the stages of a program, and the progress of their runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from einturnip.api.step_plan import StepPlan
from einturnip.eingraph.build.stage_types import Stage
from einturnip.runtime.scheduler.report import Progress

PROGRESS_SECONDS = 0.1
"""[seconds] Between two reports of the iterations that are done."""


def heading(stage: Stage) -> str:
    """A stage in words."""
    if stage.iterations is None:
        return f"from line {stage.line} on"
    at_most = "at most " if has_bound(stage) else ""
    way = ", backward" if stage.iterations.values.step < 0 else ", again" if stage.iterations.replays else ""
    return f"the loop on line {stage.line}{way}: one of {at_most}{len(stage.iterations.values):,} iterations"


def is_while(stage: Stage) -> bool:
    """True if a stage is the body of a ``while``."""
    return stage.iterations is not None and stage.iterations.condition is not None


def has_bound(stage: Stage) -> bool:
    """True if only a run decides how many iterations there are: for a ``while``, and what derives it."""
    iterations = stage.iterations
    return iterations is not None and (iterations.condition is not None or iterations.counted is not None)


class StageProgress:
    """Reports how much of all stages is done."""

    def __init__(self, progress: Callable[[Progress], None] | None, stages: Sequence[tuple[Stage, StepPlan]]) -> None:
        self._progress, self._began = progress, time.monotonic()
        self._stages = [stage for stage, _ in stages]
        self._due = self._began + PROGRESS_SECONDS
        self._work = [_work(plan) for _, plan in stages]
        counts = [iteration_count(stage) for stage, _ in stages]
        self._total = [sum(n * work[k] for n, work in zip(counts, self._work, strict=True)) for k in range(3)]
        self._done = [0, 0, 0]

    def ended(self, number: int, value: int | None = None, runs: int = 1) -> None:
        """Note that the plan of a stage has run; of a loop, up to a value of its variable."""
        if self._progress is None:
            return
        for k, amount in enumerate(self._work[number]):
            self._done[k] += runs * amount
        now = time.monotonic()
        if now >= self._due or self._done[0] == self._total[0]:
            self._due = now + PROGRESS_SECONDS
            statement = "" if value is None else _iteration(self._stages[number], value)
            (ops, flops, nbytes), (all_ops, all_flops, all_nbytes) = self._done, self._total
            self._progress(Progress(ops, all_ops, flops, all_flops, nbytes, all_nbytes, now - self._began, statement))

    def skipped(self, number: int, runs: int) -> None:
        """Note that the plan of a stage will run that many times less than its bound."""
        for k, amount in enumerate(self._work[number]):
            self._total[k] -= runs * amount


def _iteration(stage: Stage, value: int) -> str:
    """An iteration in words, by the value of the loop's variable."""
    if has_bound(stage):
        return f"iteration {value + 1:,} of at most {iteration_count(stage):,} of line {stage.line}"
    return f"iteration {value} of line {stage.line}"


def _work(plan: StepPlan) -> tuple[int, int, int]:
    """Ops, operations and bytes of one run."""
    planned = plan.planned
    return len(planned.memgraph), int(planned.prediction.flops), sum(planned.memgraph.nbytes_by_link().values())


def iteration_count(stage: Stage) -> int:
    """How many times the plan of a stage runs, or the bound of a ``while``."""
    return 1 if stage.iterations is None else len(stage.iterations.values)
