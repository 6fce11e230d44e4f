"""What kernels take beside their points: the time of Python around array operations, and rows at places that are data.

Measured on kernels themselves, small ones made for the purpose: what is known of their work is taken off.
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
from einturnip.kernels.select import Mode, compile_kernel

_ROWS, _WIDE = 4096, 64  # of tables, and columns of wide ones
_SCATTERED = (("sum", F32), ("sum", F64), ("max", F32), ("sum", I64))


def _chain(length: int, points: int = 64, dtype: DType = F32) -> Einsum:
    """So many additions to one operand."""
    join: Scalar = OperandRef(0, dtype)
    for k in range(length):
        join = ScalarCall("add", (join, ScalarConst(k + 1.5, dtype)), dtype)
    return Einsum(("i",), (points,), 1, ((0,),), (dtype,), join, None)


def _batch(n: int) -> Einsum:
    """So many products of 4 by 4 matrices."""
    join = ScalarCall("mul", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    accesses: tuple[Access, ...] = ((0, 1, 3), (0, 3, 2))
    return Einsum(("b", "i", "j", "k"), (n, 4, 4, 4), 3, accesses, (F32, F32), join, aggregation("sum", F32))


def _gather(rows: int, width: int, of: int = _ROWS) -> Einsum:
    """Rows of a table, which has so many, by a vector of indices."""
    index = Key(2, ScalarCast(OperandRef(1, I32), I64))
    bounds, accesses = (rows, width, of), ((2, 1), (0,))
    pick = aggregation("pick", F32)
    return Einsum(
        ("n", "d", "v"), bounds, 2, accesses, (F32, I32), OperandRef(0, F32), pick, _shapes(bounds, accesses), (index,)
    )


def _scatter(op: str, dtype: DType, rows: int, width: int = 1) -> Einsum:
    """Rows of values folded into places that a vector of indices gives."""
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
    """Neighbours in a ring: fetched in pieces."""
    accesses: tuple[Access, ...] = ((Index(((0, 1),), 1, 1, n),),)
    return Einsum(("i",), (n,), 1, accesses, (F32,), OperandRef(0, F32), None, ((n,),))


def _shapes(bounds: Sequence[int], accesses: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(bounds[p] for p in access) for access in accesses)


def _caller(einsum: Einsum, mode: Mode = "full") -> Callable[[int], Callable[[], object]]:
    """Makes a call of the einsum's kernel on arrays of its own."""
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


def _least(einsum: Einsum, workers: int, seconds: float) -> float:
    """Seconds of a call; where several workers call, with what they wait for the interpreter's lock."""
    make = _caller(einsum)
    return min(seconds_in_parallel(make, workers, seconds / 3, waits=workers > 1) for _ in range(3))


def turn_times(workers: int, seconds: float) -> dict[str, float]:
    """Seconds of what a kernel does in Python, by the names of cost.kernel_work; all workers at once, as they
    share the interpreter's lock."""
    one, nine = (_least(_chain(n), workers, seconds) for n in (1, 9))
    few, many = (_least(_batch(n), workers, seconds) for n in (2, 66))
    pieces = _least(_ring(64), workers, seconds)
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
    """Seconds of an array operation beside its points, all workers at it: each gives up Python's lock and waits for it.

    Found on operations long enough for that, as those of kernels are.
    """
    few, many = _chain(1, _ROWS * 4), _chain(9, _ROWS * 4)
    alone = _least(many, 1, seconds) - _least(few, 1, seconds)
    busy = _least(many, workers, seconds) - _least(few, workers, seconds)
    tiny = (_least(_chain(9), 1, seconds) - _least(_chain(1), 1, seconds)) / 8
    return max((busy - alone) / 8, 0.0) + max(tiny, 1e-8)


def _loop_seconds(seconds: float) -> float:
    """Seconds of one more inner loop of an array operation."""
    x, out = np.ones((4096, 8), np.float32), np.ones((4096, 8), np.float32)
    row, column = np.ones((1, 8), np.float32), np.ones((4096, 1), np.float32)

    def timed(y: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        return seconds_in_parallel(lambda w: lambda: np.add(x, y, out=out), 1, seconds)

    del row
    return max((timed(column) - timed(x)) / 4096, 1e-10)


def keyed_rates(seconds: float, known: Machine) -> dict[str, float]:
    """Seconds a row and an element of gathers and of scatters: what the machine's other rates leave of them.

    One thread: of what two have to wait for each other, Python's turns tell.
    """
    rows = 16 * _ROWS
    sought = [f"rows.{bits}" for bits in TABLE_BITS] + [f"scatter.{op}.{d.numpy.name}" for op, d in _SCATTERED]
    free = tuple((name, 1e-15) for name in (*sought, "elements", "scattered"))
    bare = replace(known, points=known.points + free, turns=())
    code_cache.prepare([TAKER, *(c for op, d in _SCATTERED for c in scatter_codes(op, [d]))])  # as runs do

    def left(einsum: Einsum) -> float:
        kernel = compile_kernel(einsum, einsum.bounds, "full")
        return _least(einsum, 1, seconds) - work_seconds(simple_work(kernel), bare)

    def wanted(bits: int) -> float:
        """Seconds of one number of a table; no fewer are taken than it has lines, or a cache would hold those."""
        of = (1 << bits) // 4
        taken = max(rows, of * 4 // LINE)
        return left(_gather(taken, 1, of)) / taken

    each = {bits: wanted(bits) for bits in TABLE_BITS}
    wide = left(_gather(_ROWS, _WIDE)) / _ROWS  # of a table that lies in the second-level cache
    narrow = each[TABLE_BITS[1]]
    element = max((wide - narrow) / (_WIDE - 1), 1e-11)
    found = {f"rows.{bits}": max(number - element, 1e-10) for bits, number in each.items()} | {"elements": element}
    thin = {(op, dtype): left(_scatter(op, dtype, rows)) / rows for op, dtype in _SCATTERED}
    folded = (left(_scatter("sum", F32, _ROWS, _WIDE)) / _ROWS - thin["sum", F32]) / (_WIDE - 1)
    found["scattered"] = max(thin["sum", F32] - max(folded, 0.0), 1e-10)
    for (op, dtype), seconds in thin.items():
        found[f"scatter.{op}.{dtype.numpy.name}"] = max(seconds - found["scattered"], 1e-10)
    return found


def warm_up(seconds: float = 0.2) -> None:
    """Let the processor come up to speed."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        math.sqrt(2.0)
