"""``einturnip doctor --calibrate``: every rate that plans are priced with, measured and kept."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from einturnip.core.machine import Machine

_TINY = """input A : f32[n, m]
@tile(i = 4, j = 64)
B[i,j] = A[i,j] + 1
output B
"""


def calibrate(folder: Path, quick: bool) -> Iterator[tuple[str, Machine | None]]:
    """Measure; tells what it does as it goes, and last the machine. Some 25 seconds, 10 if ``quick``."""
    from einturnip.core.dtypes import C64, C128, F32, F64
    from einturnip.devices.calibrate import contention, fault_seconds, memory_rate, point_rates, product_table
    from einturnip.devices.calibrate_files import file_rates
    from einturnip.devices.calibrate_kernels import keyed_rates, settle, turn_times
    from einturnip.devices.limits import usable_cores

    workers = usable_cores()
    each = 0.003 if quick else 0.01
    settle()
    yield "array operations", None
    busy, multiplying = contention(workers, 10 * each)
    points = {name: busy * rate for name, rate in point_rates(each).items()}
    yield "matrix products", None
    tables = ((d.numpy.name, product_table(d, each / 4)) for d in (F32, F64, C64, C128))
    products = tuple((name, tuple(multiplying * x for x in table)) for name, table in tables)
    yield "kernels and memory", None
    turns = turn_times(workers, 10 * each)
    known = Machine(workers=workers, points=tuple(points.items()), turns=tuple(turns.items()), products=products)
    points |= keyed_rates(10 * each, known)
    memory = memory_rate(workers, 0.5)
    fault = fault_seconds(workers)
    yield f"files in {folder}", None
    files = file_rates(folder, (128 if quick else 512) << 20)
    yield "a plan of small steps", None
    latency = _op_latency(folder, workers)
    yield (
        "",
        Machine(
            workers=workers,
            memory_bandwidth=memory,
            op_latency=latency,
            fault=fault,
            points=tuple(points.items()),
            turns=tuple(turns.items()),
            products=products,
            **files,  # type: ignore[arg-type]
        ),
    )


def _op_latency(folder: Path, workers: int) -> float:
    """Seconds that an op of a plan takes beside its kernel or its bytes: those of a plan of many tiny ones, shared.

    By all workers and with files, as plans run that read and write: threads wait for each other and for Python's lock.
    """
    import numpy as np

    from einturnip.api.program import compile

    program, least = compile(_TINY), float("inf")
    with tempfile.TemporaryDirectory(dir=folder) as room:
        given, out = Path(room) / "A.npy", Path(room) / "B.npy"
        np.save(given, np.ones((512, 512), np.float32))
        for _ in range(3):
            report = program(A=str(given), out={"B": str(out)}, arena="4MiB", workers=workers).report
            least = min(least, report.wall_seconds / sum(report.ops.values()))
    return least


def today() -> str:
    """The day, as it is written down."""
    return time.strftime("%Y-%m-%d %H:%M")
