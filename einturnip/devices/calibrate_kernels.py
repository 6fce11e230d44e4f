"""Measures the overhead of Python in kernels, and the rates of gathers and scatters.

The measurements run small kernels made for this purpose, and subtract the part of their time that is already known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from einturnip.cost.kernel_work import simple_work, work_seconds
from einturnip.cost.machine import Machine
from einturnip.cost.machine_defaults import TABLE_BITS
from einturnip.devices.calibrate import seconds_in_parallel
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, F64, I32, I64, DType
from einturnip.ir.einsum import Access, Einsum, Index, Key
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.take_rows import LINE
from einturnip.kernels.numpy.indexed_load import TAKER
from einturnip.kernels.numpy.scatter import scatter_codes
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import compile_kernel

_ROWS, _WIDE = 4096, 64  # rows of tables; columns of wide tables
_SCATTERED = (("sum", F32), ("sum", F64), ("max", F32), ("sum", I64))


def _chain(length: int, points: int = 64, dtype: DType = F32) -> Einsum:
    """Return an einsum of ``length`` additions to one operand."""
    join: Scalar = OperandRef(0, dtype)
    for k in range(length):
        join = ScalarCall("add", (join, ScalarConst(k + 1.5, dtype)), dtype)
    return Einsum(("i",), (points,), 1, ((0,),), (dtype,), join, None)


def _batch(n: int) -> Einsum:
    """Return an einsum of ``n`` products of 4 by 4 matrices."""
    join = ScalarCall("mul", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    accesses: tuple[Access, ...] = ((0, 1, 3), (0, 3, 2))
    return Einsum(("b", "i", "j", "k"), (n, 4, 4, 4), 3, accesses, (F32, F32), join, aggregation("sum", F32))


def _gather(rows: int, width: int, table_rows: int = _ROWS) -> Einsum:
    """Return an einsum that gathers ``rows`` rows of a table by a vector of indices."""
    index = Key(2, ScalarCast(OperandRef(1, I32), I64))
    bounds, accesses = (rows, width, table_rows), ((2, 1), (0,))
    pick = aggregation("pick", F32)
    return Einsum(
        ("n", "d", "v"), bounds, 2, accesses, (F32, I32), OperandRef(0, F32), pick, _shapes(bounds, accesses), (index,)
    )


def _scatter(op: str, dtype: DType, rows: int, width: int = 1) -> Einsum:
    """Return an einsum that folds rows of values into rows given by a vector of indices."""
    index = Key(0, ScalarCast(OperandRef(1, I32), I64))
    bounds, accesses = (_ROWS, width, rows), ((2, 1), (2,))
    fold = aggregation(op, dtype)
    return Einsum(
        ("g", "d", "n"),
        bounds,
        2,
        accesses,
        (dtype, I32),
        OperandRef(0, dtype),
        fold,
        _shapes(bounds, accesses),
        (index,),
    )


def _ring(n: int) -> Einsum:
    """Return an einsum that reads each point's neighbour in a ring, which takes several copies."""
    accesses: tuple[Access, ...] = ((Index(((0, 1),), 1, 1, n),),)
    return Einsum(("i",), (n,), 1, accesses, (F32,), OperandRef(0, F32), None, ((n,),))


def _shapes(bounds: Sequence[int], accesses: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(bounds[p] for p in access) for access in accesses)


def _caller(einsum: Einsum, mode: Mode = "full") -> Callable[[int], Callable[[], object]]:
    """Return a function that makes a call of the einsum's kernel on new arrays."""
    kernel = compile_kernel(einsum, einsum.bounds, mode)
    below = einsum.bounds[einsum.keys[0].label] if einsum.keys else _ROWS

    def make(_: int) -> Callable[[], object]:
        rng = np.random.default_rng(0)
        operands = []
        for slot, dtype in enumerate(einsum.dtypes):
            shape = einsum.operand_extents(slot, einsum.bounds)
            whole = rng.integers(0, below, shape) if dtype.is_integer else rng.uniform(0.5, 1, shape)
            operands.append(whole.astype(dtype.numpy))
        outs = tuple(np.zeros(shape, d.numpy) for shape, d in einsum.components(einsum.bounds))
        workspace = np.zeros(kernel.workspace_nbytes, np.uint8)
        origins = (0,) * len(einsum.bounds)
        return lambda: kernel(outs, tuple(operands), origins, True, workspace)

    return make


def _call_seconds(einsum: Einsum, workers: int, seconds: float) -> float:
    """Return the shortest time of a call.

    With several workers, it includes their waits for the interpreter's lock.
    """
    make = _caller(einsum)
    return min(seconds_in_parallel(make, workers, seconds / 3, waits=workers > 1) for _ in range(3))


def python_times(workers: int, seconds: float) -> dict[str, float]:
    """Return the seconds of what kernels do in Python, by the names of ``cost.kernel_work``.

    All workers run at the same time, because they share the interpreter's lock.
    """
    one, nine = (_call_seconds(_chain(n), workers, seconds) for n in (1, 9))
    few, many = (_call_seconds(_batch(n), workers, seconds) for n in (2, 66))
    pieces = _call_seconds(_ring(64), workers, seconds)
    call = max(one - (nine - one) / 8, 1e-8)
    step = _step_seconds(workers, seconds)
    return {
        "step": step,
        "call": call * 0.75,
        "block": call * 0.25,
        "turn": max((many - few) / 64, 1e-8),
        "action": call / 4,
        "piece": max(pieces - one, 1e-8),
        "loop": _loop_seconds(seconds),
    }


def _step_seconds(workers: int, seconds: float) -> float:
    """Return the fixed seconds of an array operation while all workers run such operations.

    Each operation releases Python's lock and then waits for it. This is measured on long operations like those of
    kernels, since short ones do not release the lock.
    """
    few, many = _chain(1, _ROWS * 4), _chain(9, _ROWS * 4)
    single = _call_seconds(many, 1, seconds) - _call_seconds(few, 1, seconds)
    parallel = _call_seconds(many, workers, seconds) - _call_seconds(few, workers, seconds)
    tiny = (_call_seconds(_chain(9), 1, seconds) - _call_seconds(_chain(1), 1, seconds)) / 8
    return max((parallel - single) / 8, 0.0) + max(tiny, 1e-8)


def _loop_seconds(seconds: float) -> float:
    """Return the seconds that each further inner loop adds to an array operation."""
    x, out = np.ones((4096, 8), np.float32), np.ones((4096, 8), np.float32)
    column = np.ones((4096, 1), np.float32)

    def timed(y: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        return seconds_in_parallel(lambda w: lambda: np.add(x, y, out=out), 1, seconds)

    return max((timed(column) - timed(x)) / 4096, 1e-10)


def keyed_rates(seconds: float, known: Machine) -> dict[str, float]:
    """Return the seconds per row and per element of gathers and scatters.

    That is the measured time less the time that ``known`` predicts for the rest of the kernel. Measured in one thread;
    ``python_times`` covers the waits of several threads.
    """
    rows = 16 * _ROWS
    names = [f"rows.{bits}" for bits in TABLE_BITS] + [f"scatter.{op}.{d.numpy.name}" for op, d in _SCATTERED]
    free = tuple((name, 1e-15) for name in (*names, "elements", "scattered"))
    bare = replace(known, points=known.points + free, turns=())
    code_cache.prepare([TAKER, *(c for op, d in _SCATTERED for c in scatter_codes(op, [d]))])  # as runs do

    def unexplained(einsum: Einsum) -> float:
        """Return the measured seconds less those that the known rates predict."""
        kernel = compile_kernel(einsum, einsum.bounds, "full")
        return _call_seconds(einsum, 1, seconds) - work_seconds(simple_work(kernel), bare)

    def element_seconds(bits: int) -> float:
        """Return the seconds to gather one element of a table of ``1 << bits`` bytes.

        Gathers at least one element per cache line, since otherwise the lines used could fit a smaller cache.
        """
        table_rows = (1 << bits) // 4
        taken = max(rows, table_rows * 4 // LINE)
        return unexplained(_gather(taken, 1, table_rows)) / taken

    each = {bits: element_seconds(bits) for bits in TABLE_BITS}
    wide = unexplained(_gather(_ROWS, _WIDE)) / _ROWS  # of a table that fits the second-level cache
    narrow = each[TABLE_BITS[1]]
    element = max((wide - narrow) / (_WIDE - 1), 1e-11)
    found = {f"rows.{bits}": max(number - element, 1e-10) for bits, number in each.items()} | {"elements": element}
    thin = {(op, dtype): unexplained(_scatter(op, dtype, rows)) / rows for op, dtype in _SCATTERED}
    folded = (unexplained(_scatter("sum", F32, _ROWS, _WIDE)) / _ROWS - thin["sum", F32]) / (_WIDE - 1)
    found["scattered"] = max(thin["sum", F32] - max(folded, 0.0), 1e-10)
    for (op, dtype), seconds in thin.items():
        found[f"scatter.{op}.{dtype.numpy.name}"] = max(seconds - found["scattered"], 1e-10)
    return found


def warm_up(seconds: float = 0.2) -> None:
    """Keep the processor busy until it runs at full clock frequency."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        math.sqrt(2.0)
