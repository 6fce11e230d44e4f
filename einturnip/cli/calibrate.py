"""``einturnip doctor --calibrate``: every rate that plans are priced with, measured and kept."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einturnip.cost.machine import Machine

_TINY = """input A : f32[n, m]
@tile(i = 4, j = 64)
B[i,j] = A[i,j] + 1
output B
"""


# Rounds, some seconds apart: at least, and at most while they are disturbed or no two agree in a figure.
ROUNDS, MOST_ROUNDS = 3, 6
AGREE = 1.25
# The part of the processors that a round has to itself where nothing else runs.
FREE = 0.9
# Figures of a machine in which rounds are to agree.
_FIGURES: dict[str, Callable[[Machine], float]] = {
    "products": lambda machine: machine.gemm_flops,
    "array operations": lambda machine: machine.point_seconds("exp.float64"),
    "copying": lambda machine: machine.memory_bandwidth,
    "ops": lambda machine: machine.op_latency,
    "reading": lambda machine: machine.cached_bandwidth,
    "writing": lambda machine: machine.write_bandwidth,
}


@dataclass(frozen=True, slots=True)
class CalibrationRound:
    """Rates as one round found them; ``free``: the part of the processors' time that it could have."""

    machine: Machine
    free: float


def calibrate(folder: Path, quick: bool) -> Iterator[tuple[str, Machine | None]]:
    """Measure in rounds; tells what it does as it goes, and the machine: the median of every rate over the rounds.

    What else runs for some seconds spoils a round, not the rates: there are more rounds until enough were undisturbed
    and two agree in every figure. Last, what makes the rates doubtful. Some 45 seconds, 30 if ``quick``.
    """
    from einturnip.devices.calibrate_kernels import warm_up

    warm_up()
    found: list[CalibrationRound] = []
    while len(found) < MOST_ROUNDS:
        yield from ((f"{word} ({len(found) + 1})", None) for word in _measured(folder, 1 if quick else 3, found))
        if sum(r.free >= FREE for r in found) >= ROUNDS and not unsteady([r.machine for r in best(found)]):
            break
    used = best(found)
    machines = [r.machine for r in used]
    yield "", median(machines)
    busy = 1 - min(r.free for r in used)
    if busy > 1 - FREE:
        yield f"other programs took {busy:.0%} of the processors: rates are too low, calibrate again", None
    for name, times in unsteady(machines).items():
        yield f"{name}: no two of {len(used)} rounds agree, {times:.1f} times between them: calibrate again", None


def best(found: Sequence[CalibrationRound]) -> list[CalibrationRound]:
    """The rounds that were not disturbed; those that were least, where these are too few."""
    least = sorted(found, key=lambda r: -r.free)
    return [r for k, r in enumerate(least) if k < ROUNDS or r.free >= FREE]


def median(found: Sequence[Machine]) -> Machine:
    """Of each rate the median."""
    return Machine.from_json(_middle([machine.to_json() for machine in found]))


def _middle(found: Sequence[Any]) -> Any:
    first = found[0]
    if isinstance(first, dict):
        return {name: _middle([one[name] for one in found]) for name in first}
    if isinstance(first, tuple):
        return tuple(_middle(each) for each in zip(*found, strict=True))
    return statistics.median(found)


def unsteady(found: Sequence[Machine]) -> dict[str, float]:
    """Figures whose median no other round comes near; how many times the greatest is the least."""
    far = {}
    for name, figure in _FIGURES.items():
        values = sorted(map(figure, found))
        middle = statistics.median(values)
        if sum(max(middle / x, x / middle) <= AGREE for x in values) < 2:
            far[name] = values[-1] / values[0]
    return far


def _measured(folder: Path, times: int, found: list[CalibrationRound]) -> Iterator[str]:
    """One round, added to what was found; tells what it does. ``times``: as long as the shortest."""
    from einturnip.core.process_limits import others_seconds, usable_cores
    from einturnip.devices.calibrate import contention, fault_seconds, memory_rate, point_rates, product_table
    from einturnip.devices.calibrate_files import file_rates
    from einturnip.devices.calibrate_kernels import keyed_rates, turn_times
    from einturnip.ir.dtypes import C64, C128, F32, F64

    workers, each = usable_cores(), 0.001 * times
    begin, others = time.monotonic(), others_seconds()
    yield "array operations"
    busy, multiplying = contention(workers, 30 * each)
    points = {name: busy * rate for name, rate in point_rates(each).items()}
    yield "matrix products"
    by_dtype = ((d.numpy.name, product_table(d, each / 4)) for d in (F32, F64, C64, C128))
    products = tuple((name, tuple(multiplying * x for x in table)) for name, table in by_dtype)
    yield "kernels and memory"
    turns = turn_times(workers, 10 * each)
    known = Machine(workers=workers, points=tuple(points.items()), turns=tuple(turns.items()), products=products)
    points |= keyed_rates(10 * each, known)
    memory, fault = memory_rate(workers, 60 * each), fault_seconds(workers)
    yield f"files in {folder}"
    files = file_rates(folder, times * (96 << 20), workers)
    yield "a plan of small steps"
    rates = {"memory_bandwidth": memory, "fault": fault, "op_latency": _op_latency(folder, workers)}
    tables = {"points": tuple(points.items()), "turns": tuple(turns.items()), "products": products}
    taken = (others_seconds() - others) / (workers * (time.monotonic() - begin))
    found.append(CalibrationRound(Machine(workers=workers, **rates, **tables, **files), 1 - max(0.0, taken)))  # type: ignore[arg-type]


def _op_latency(folder: Path, workers: int) -> float:
    """Seconds that an op of a plan takes beside its kernel or its bytes: those of a plan of many tiny ones, shared.

    By all workers and with files, as plans run that read and write: threads wait for each other and for Python's lock.
    Planned with the built-in rates: longer ops are run by other threads, so what is stored would change what is found.
    """
    import numpy as np

    from einturnip.api.program import compile
    from einturnip.core.unfinished_files import temporary_folder
    from einturnip.devices.stored import built_in

    program, least = compile(_TINY), float("inf")
    with built_in(), temporary_folder(os.path.join(folder, "calibration")) as room:
        given, out = Path(room) / "A.npy", Path(room) / "B.npy"
        np.save(given, np.ones((512, 512), np.float32))
        for _ in range(3):
            report = program(A=str(given), out={"B": str(out)}, arena="4MiB", workers=workers).report
            least = min(least, report.wall_seconds / sum(report.ops.values()))
    return least


def today() -> str:
    """The day, as it is written down."""
    return time.strftime("%Y-%m-%d %H:%M")
