"""RunReport: what ran, how long, and what it moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NumericWarning:
    """A statement whose kernels made a nan, overflowed or divided by zero. ``tiles`` of them did.

    ``merged``: the lines that the same kernels compute, if any; it may have happened in one of those.
    """

    line: int
    statement: str
    kind: str
    tiles: int
    merged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a plan expects of its run. Units: seconds, bytes."""

    seconds: float
    flops: float
    peak_nbytes: dict[str, int]
    link_bytes: dict[str, int]
    link_bytes_lower_bound: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """As ``plan --format json`` names the fields."""
        return {
            "seconds": self.seconds,
            "flops": self.flops,
            "peak_bytes": self.peak_nbytes,
            "link_bytes": self.link_bytes,
            "link_bytes_lower_bound": self.link_bytes_lower_bound,
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    done_ops: int
    total_ops: int
    done_flops: int
    total_flops: int
    done_nbytes: int
    total_nbytes: int
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each op ran: columns by op. Seconds since the run began; ``thread`` counts those of the op's lane."""

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    thread: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run in figures.

    Units: seconds, bytes. ``lanes``: busy seconds of each lane, over all its workers. ``stalls``: seconds that compute
    workers stood still, by what they waited for: reads, writes, or memory (another kernel's bytes or accumulator).
    ``carried``: seconds that compute workers took for transfers, which keep a core as busy as a kernel does.
    ``memory_exceeded_nbytes``: by how much a process of the command line passed ``memory_nbytes``.
    ``link_bytes``: what loads and stores moved, counted where they happened. ``events``: what the dispatcher did, op
    for a launch and ~op for an end; empty where none was at work.
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

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dump; what is told op by op is left out."""
        out = asdict(replace(self, order=(), events=(), timeline=None))
        del out["order"], out["events"], out["timeline"]
        out["predicted"] = self.predicted.to_json()
        return out
