"""RunReport: time, bytes moved, memory and warnings of one run, next to the plan's prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from einturnip.core.events import log
from einturnip.core.units import format_seconds, format_size

Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True, slots=True)
class NumericWarning:
    """A statement whose kernels produced a nan, overflowed or divided by zero.

    ``kind``: which of these. ``tiles``: number of tiles in which it happened. ``merged``: lines of other statements
    that the same fused kernels compute, and in which it may have happened instead. ``element``: the first nan or
    infinite element of the first such tile, such as ``y[12] = nan``; empty if none shows it. ``causes``: the elements
    of inputs that it comes from, such as ``x[12] = -1``: those that are nan or infinite, else all if they are few.
    """

    line: int
    statement: str
    kind: str
    tiles: int
    merged: tuple[int, ...] = ()
    element: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Time, operations, peak memory and bytes that a plan predicts. Units: seconds, bytes."""

    seconds: float
    flops: float
    peak_nbytes: dict[str, int]
    link_bytes: dict[str, int]
    link_bytes_lower_bound: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the fields under the names that ``plan --format json`` uses."""
        return {
            "seconds": self.seconds,
            "flops": self.flops,
            "peak_bytes": self.peak_nbytes,
            "link_bytes": self.link_bytes,
            "link_bytes_lower_bound": self.link_bytes_lower_bound,
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a run is done, passed to a progress callback.

    ``statement``: source text of the last kernel that ended.
    """

    done_ops: int
    total_ops: int
    done_flops: int
    total_flops: int
    done_nbytes: int
    total_nbytes: int
    elapsed_seconds: float
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When and where each op ran: one column entry per op.

    ``begin``, ``end``: seconds since the run began. ``thread``: number of the thread within the op's lane, or of the
    site.
    """

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    thread: NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class SiteReport:
    """The measurements of one worker of a run on a cluster. Units: seconds, bytes.

    ``memory_nbytes``: limit of its process, if any. ``received_nbytes``: bytes that came from each other site, counted
    as they arrived; ``planned_nbytes``: those that the plan states. ``waited_seconds``: time without a kernel in which
    a value of that site was awaited.
    """

    site: int
    worker: str
    host: str
    peak_resident_nbytes: int
    memory_nbytes: int | None
    arena_peak_nbytes: int
    compute_seconds: float
    received_nbytes: dict[int, int]
    planned_nbytes: dict[int, int]
    spilled_nbytes: int
    waited_seconds: dict[int, float]


@dataclass(frozen=True, slots=True)
class WhileReport:
    """How a ``while`` ended: after ``iterations`` of its ``bound``.

    ``reached_bound``: the bound ended it, and its condition still held.
    """

    line: int
    statement: str
    iterations: int
    bound: int
    reached_bound: bool


@dataclass(frozen=True, slots=True)
class RunReport:
    """The measurements of one run.

    Units: seconds, bytes. ``lanes``: busy seconds of each lane, summed over its workers. ``stalls``: idle seconds of
    compute workers by the cause they waited for: reads, writes, or memory (bytes or an accumulator that another kernel
    uses). ``carried``: seconds that compute workers spent on transfers, which occupy a core as a kernel does.
    ``memory_exceeded_nbytes``: by how much a process of the command line exceeded ``memory_nbytes``.
    ``link_bytes``: bytes that loads and stores moved, counted by the transfers themselves. ``events``: the dispatcher's
    decisions, ``op`` for a launch and ``~op`` for an end; empty where a run had no dispatcher. ``loops``: one entry for
    each ``while``. ``retries``: the reason for each attempt of a run on workers that was given up; all else is of the
    last attempt.
    """

    wall_seconds: float
    flops: float
    ops: dict[str, int]
    lanes: dict[str, float]
    stalls: dict[str, float]
    link_bytes: dict[str, int]
    link_bytes_lower_bound: dict[str, int]
    arena_nbytes: int
    arena_peak_nbytes: int
    memory_nbytes: int | None
    peak_resident_nbytes: int
    workers: int
    warnings: tuple[NumericWarning, ...]
    predicted: Prediction
    carried: float = 0.0
    memory_exceeded_nbytes: int = 0
    order: tuple[int, ...] = field(default=(), repr=False, compare=False)
    events: Sequence[int] = field(default=(), repr=False, compare=False)
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    sites: tuple[SiteReport, ...] = ()
    loops: tuple[WhileReport, ...] = ()
    retries: tuple[str, ...] = ()

    def of_sites(self, sites: tuple[SiteReport, ...], workers: int) -> RunReport:
        """Return the report of a run on workers, with the memory of the fullest worker."""
        fullest = max(sites, key=lambda site: site.peak_resident_nbytes - (site.memory_nbytes or 0))
        peak, memory = fullest.peak_resident_nbytes, fullest.memory_nbytes
        exceeded = 0 if memory is None else max(0, peak - memory)
        found = replace(self, sites=sites, workers=workers, memory_nbytes=memory, memory_exceeded_nbytes=exceeded)
        return replace(found, peak_resident_nbytes=peak)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dump``, without the columns that have one entry per op."""
        out = asdict(replace(self, order=(), events=(), timeline=None))
        del out["order"], out["events"], out["timeline"]
        out["predicted"] = self.predicted.to_json()
        return out


def joined_report(runs: Sequence[tuple[RunReport, int]], wall_seconds: float) -> RunReport:
    """Return the report of runs one after the other; each report stands for a number of runs.

    Work, bytes and busy times add up, and memory is that of the largest. Idle time is what is left of
    ``wall_seconds``.
    """
    warnings: dict[tuple[int, str], NumericWarning] = {}
    for report, _ in runs:
        for warning in report.warnings:
            warnings.setdefault((warning.line, warning.kind), warning)
    return replace(
        runs[0][0],
        wall_seconds=wall_seconds,
        flops=sum(times * report.flops for report, times in runs),
        ops=_total([(report.ops, times) for report, times in runs]),
        lanes=_total([(report.lanes, times) for report, times in runs]),
        stalls=_total([(report.stalls, times) for report, times in runs]),
        link_bytes=_total([(report.link_bytes, times) for report, times in runs]),
        link_bytes_lower_bound={},
        arena_nbytes=max(report.arena_nbytes for report, _ in runs),
        arena_peak_nbytes=max(report.arena_peak_nbytes for report, _ in runs),
        peak_resident_nbytes=max(report.peak_resident_nbytes for report, _ in runs),
        warnings=tuple(warnings.values()),
        predicted=joined_prediction([(report.predicted, times) for report, times in runs]),
        carried=sum(times * report.carried for report, times in runs),
        order=(),
        events=(),
        timeline=None,
    )


def joined_prediction(runs: Sequence[tuple[Prediction, int]]) -> Prediction:
    """Return the prediction of plans that run one after the other, each with its number of runs."""
    return Prediction(
        sum(times * plan.seconds for plan, times in runs),
        sum(times * plan.flops for plan, times in runs),
        max((plan.peak_nbytes for plan, _ in runs), key=lambda peak: sum(peak.values())),
        _total([(plan.link_bytes, times) for plan, times in runs]),
        {},
    )


def _total(amounts: Sequence[tuple[Mapping[str, Amount], int]]) -> dict[str, Amount]:
    """Sum amounts by name, each multiplied by a number of runs."""
    found: dict[str, Amount] = {}
    for amount_of, times in amounts:
        for name, amount in amount_of.items():
            more = times * amount
            found[name] = found[name] + more if name in found else more
    return found


def log_plan(prediction: Prediction) -> None:
    """Log that a plan was made: the event ``planned``, with the prediction."""
    log("planned", f"planned: {format_seconds(prediction.seconds)} predicted", prediction.to_json())


def log_run(report: RunReport) -> None:
    """Log the event ``ran``, with the run's time, bytes moved and peak of memory."""
    fields = {
        "seconds": report.wall_seconds,
        "flops": report.flops,
        "link_bytes": report.link_bytes,
        "peak_bytes": report.peak_resident_nbytes,
        "memory_bytes": report.memory_nbytes,
    }
    peak = format_size(report.peak_resident_nbytes)
    log("ran", f"ran {format_seconds(report.wall_seconds)}, peak memory {peak}", fields)
