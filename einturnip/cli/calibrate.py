"""``einturnip doctor --calibrate``: measures the rates that the cost model needs, and stores them."""

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


# Minimum number of rounds, and maximum number while rounds are disturbed or no two agree in a figure.
ROUNDS, MAX_ROUNDS = 3, 6
AGREE = 1.25
# Share of the processors' time from which a round counts as undisturbed.
MIN_FREE_SHARE = 0.9
# The figures of a machine in which two rounds must agree within the factor AGREE.
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
    """The rates of one round; ``free``: the share of the processors' time that no other program used."""

    machine: Machine
    free: float


def calibrate(folder: Path, quick: bool) -> Iterator[tuple[str, Machine | None]]:
    """Measure in rounds; yield progress messages, the machine, and then doubts about its rates.

    Every rate is the median over the rounds. Another program that runs for some seconds spoils a round, not the rates:
    rounds are added until enough were undisturbed and two agree in every figure. Takes about 45 seconds, 30 if
    ``quick``.
    """
    from einturnip.devices.calibrate_kernels import warm_up

    warm_up()
    found: list[CalibrationRound] = []
    while len(found) < MAX_ROUNDS:
        yield from ((f"{word} ({len(found) + 1})", None) for word in _measured(folder, 1 if quick else 3, found))
        if sum(r.free >= MIN_FREE_SHARE for r in found) >= ROUNDS and not unsteady([r.machine for r in best(found)]):
            break
    used = best(found)
    machines = [r.machine for r in used]
    yield "", median(machines)
    busy = 1 - min(r.free for r in used)
    if busy > 1 - MIN_FREE_SHARE:
        yield f"other programs took {busy:.0%} of the processors: rates are too low, calibrate again", None
    for name, times in unsteady(machines).items():
        yield f"{name}: no two of {len(used)} rounds agree, {times:.1f} times between them: calibrate again", None


def best(found: Sequence[CalibrationRound]) -> list[CalibrationRound]:
    """The undisturbed rounds; if there are too few, the least disturbed ones."""
    shortest = sorted(found, key=lambda r: -r.free)
    return [r for k, r in enumerate(shortest) if k < ROUNDS or r.free >= MIN_FREE_SHARE]


def median(found: Sequence[Machine]) -> Machine:
    """The machine with the median of each rate."""
    return Machine.from_json(_middle([machine.to_json() for machine in found]))


def _middle(found: Sequence[Any]) -> Any:
    first = found[0]
    if isinstance(first, dict):
        return {name: _middle([one[name] for one in found]) for name in first}
    if isinstance(first, tuple):
        return tuple(_middle(seconds) for seconds in zip(*found, strict=True))
    return statistics.median(found)


def unsteady(found: Sequence[Machine]) -> dict[str, float]:
    """The figures in which no other round is near the median, with the ratio of maximum to minimum."""
    ratios = {}
    for name, figure in _FIGURES.items():
        values = sorted(map(figure, found))
        middle = statistics.median(values)
        if sum(max(middle / x, x / middle) <= AGREE for x in values) < 2:
            ratios[name] = values[-1] / values[0]
    return ratios


def _measured(folder: Path, times: int, found: list[CalibrationRound]) -> Iterator[str]:
    """Measure one round and append it to ``found``; ``times`` scales its duration."""
    from einturnip.core.process_resources import others_seconds, usable_cores
    from einturnip.devices.calibrate import contention, fault_seconds, memory_rate, point_rates, product_table
    from einturnip.devices.calibrate_files import file_rates
    from einturnip.devices.calibrate_kernels import keyed_rates, python_times
    from einturnip.ir.dtypes import C64, C128, F32, F64

    workers, seconds = usable_cores(), 0.001 * times
    begin, others = time.monotonic(), others_seconds()
    yield "array operations"
    busy, multiplying = contention(workers, 30 * seconds)
    points = {name: busy * rate for name, rate in point_rates(seconds).items()}
    yield "matrix products"
    by_dtype = ((d.numpy.name, product_table(d, seconds / 4)) for d in (F32, F64, C64, C128))
    products = tuple((name, tuple(multiplying * x for x in table)) for name, table in by_dtype)
    yield "kernels and memory"
    turns = python_times(workers, 10 * seconds)
    machine_so_far = Machine(
        workers=workers, points=tuple(points.items()), turns=tuple(turns.items()), products=products
    )
    points |= keyed_rates(10 * seconds, machine_so_far)
    memory, fault = memory_rate(workers, 60 * seconds), fault_seconds(workers)
    yield f"files in {folder}"
    files = file_rates(folder, times * (96 << 20), workers)
    yield "a plan of small steps"
    rates = {"memory_bandwidth": memory, "fault": fault, "op_latency": _op_latency(folder, workers)}
    tables = {"points": tuple(points.items()), "turns": tuple(turns.items()), "products": products}
    used_by_others = (others_seconds() - others) / (workers * (time.monotonic() - begin))
    found.append(CalibrationRound(Machine(workers=workers, **rates, **tables, **files), 1 - max(0.0, used_by_others)))  # type: ignore[arg-type]


def _op_latency(folder: Path, workers: int) -> float:
    """Overhead of an op in seconds, without its kernel or transfer, from a plan of many tiny ops.

    All workers run it, and it reads and writes files, because threads then wait for each other and for Python's lock.
    It is planned with the built-in rates: stored rates decide which thread runs an op, and so would change the result.
    """
    import numpy as np

    from einturnip.api.program import compile
    from einturnip.core.regular_files import temporary_folder
    from einturnip.devices.stored import built_in

    program, shortest = compile(_TINY), float("inf")
    with built_in(), temporary_folder(os.path.join(folder, "calibration")) as folder_path:
        given, out = Path(folder_path) / "A.npy", Path(folder_path) / "B.npy"
        np.save(given, np.ones((512, 512), np.float32))
        for _ in range(3):
            report = program(A=str(given), out={"B": str(out)}, arena="4MiB", workers=workers).report
            shortest = min(shortest, report.wall_seconds / sum(report.ops.values()))
    return shortest


def today() -> str:
    """The date and time, as stored with the rates."""
    return time.strftime("%Y-%m-%d %H:%M")
