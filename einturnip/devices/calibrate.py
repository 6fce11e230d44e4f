"""Measures the rates of array operations, matrix products and memory.

Plans run a kernel on every core, and the cores share caches, memory and, on some machines, arithmetic units.
``contention`` measures how much longer operations take then. It uses long operations, because with short ones the
threads would mainly wait for Python's lock.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import threadpoolctl

from einturnip.cost.machine_defaults import SIDES
from einturnip.ir.dtypes import BF16, F32, DType, from_numpy
from einturnip.ir.functions import PRICED_AS
from einturnip.kernels.blas.cblas import MatrixOperand, product
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.primitives import Array, first_along, flat_arg, mask_type, operation

Run = Callable[[], object]
POINTS = 1 << 16  # of one call: the size of a kernel's blocks
_SETTLE_SECONDS = 0.02  # time after which the system has moved two new threads from one core to two
_COPIED_NBYTES = 16 << 20  # larger than a core's caches
_FLOATS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = ("int32", "int64")
_UNARY = " ".join([*PRICED_AS, "reciprocal negative square exp_quiet"])
_BINARY = "add subtract multiply true_divide minimum maximum power floor_divide remainder less equal"
_OF_COMPLEX = "add subtract multiply true_divide exp negative absolute conjugate square equal"
_OF_INTEGERS = "add subtract multiply minimum maximum floor_divide remainder less greater_equal equal absolute negative"
_CONVERSIONS = (
    ("float16", "float32"),
    ("float32", "float16"),
    ("float32", "float64"),
    ("float64", "float32"),
    ("int32", "int64"),
    ("int64", "float32"),
    ("int64", "float64"),
    ("int32", "float32"),
    ("bool", "int64"),
    ("bool", "float32"),
    ("float32", "complex64"),
    ("float64", "complex128"),
    ("complex64", "complex128"),
)


def seconds_in_parallel(make: Callable[[int], Run], workers: int, seconds: float, waits: bool = False) -> float:
    """Return the seconds of one call while ``workers`` threads call at the same time.

    Each thread first makes a warm-up call.

    ``make``: returns the function that a worker calls. ``seconds``: duration of the measurement. ``waits``: measure
    wall time, which includes the time that threads wait for each other, instead of CPU time, which other programs do
    not affect.
    """
    clock = time.perf_counter if waits else time.thread_time
    counts, taken = _run_in_parallel(make, workers, seconds, clock)
    return sum(t / n for t, n in zip(taken, counts, strict=True)) / workers


def _run_in_parallel(
    make: Callable[[int], Run], workers: int, seconds: float, clock: Callable[[], float]
) -> tuple[list[int], list[float]]:
    """Return the number of calls of each worker, and their seconds by ``clock``."""
    counts, taken = [0] * workers, [0.0] * workers
    gate = threading.Barrier(workers)
    runs = [make(w) for w in range(workers)]

    def work(w: int) -> None:
        run = runs[w]
        with np.errstate(all="ignore"):
            run()
            if workers > 1 and seconds:
                settle_threads(run)
            gate.wait()
            started = clock()
            begin = now = time.perf_counter()
            n = 0
            while now - begin < seconds or n < 2:
                run()
                n += 1
                now = time.perf_counter()
            counts[w], taken[w] = n, clock() - started

    threads = [threading.Thread(target=work, args=(w,)) for w in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, taken


def settle_threads(run: Run) -> None:
    """Keep a new thread busy until the system has moved it to a core of its own."""
    until = time.perf_counter() + _SETTLE_SECONDS
    while time.perf_counter() < until:
        run()


@contextlib.contextmanager
def copying_threads(workers: int) -> Iterator[None]:
    """Run ``workers`` threads that copy memory within the context, as the other cores do in a run."""
    over = threading.Event()

    def copy() -> None:
        source, target = np.ones((2, _COPIED_NBYTES), np.uint8)
        while not over.is_set():
            np.copyto(target, source)

    threads = [threading.Thread(target=copy) for _ in range(workers)]
    for thread in threads:
        thread.start()
    time.sleep(_SETTLE_SECONDS if threads else 0.0)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def point_rates(seconds: float) -> dict[str, float]:
    """Return the seconds per point of array operations in one thread, by ``name.dtype``.

    ``seconds``: approximate duration of each measurement.
    """
    empty = seconds_in_parallel(lambda w: _call(np.add, [np.zeros(1, "f4")] * 2, np.zeros(1, "f4")), 1, seconds)
    found = {}
    for name, make, points in _operations():
        shortest = min(seconds_in_parallel(make, 1, seconds / 4) for _ in range(4))
        found[name] = max(shortest - empty, shortest / 10) / points
    return found


def _numbers(dtype: str, n: int = POINTS) -> Array:
    """Return numbers between 1/2 and 1, or small integers, for which no operation takes a slow path."""
    rng = np.random.default_rng(n)
    if dtype == "bool":
        return np.arange(n) % 512 < 200  # long runs of equal values, as in masks
    if dtype.startswith("int"):
        return rng.integers(1, 9, n).astype(dtype)
    return rng.uniform(0.5, 1.0, n).astype(BF16.numpy if dtype == "bfloat16" else dtype)


def _call(run: Callable[..., Any], arguments: list[Any], out: Array) -> Run:
    return lambda: run(*arguments, out=out)


def _operations() -> Iterator[tuple[str, Callable[[int], Run], int]]:
    """Yield each operation's name, a function that makes a call on new arrays, and its points."""
    for dtypes, names, count in (
        (_FLOATS, _UNARY, 1),
        (_FLOATS, _BINARY, 2),
        (_COMPLEX, _OF_COMPLEX, 0),
        (_INTEGERS, _OF_INTEGERS, 0),
        (("bool",), "logical_and logical_or logical_not", 0),
    ):
        for dtype in dtypes:
            for name in names.split():
                yield f"{name}.{dtype}", _plain(name, dtype, count), POINTS
    for source, target in _CONVERSIONS:
        yield f"convert.{source}.{target}", _made("convert", (source,), target), POINTS
    for dtype in (*_FLOATS, *_COMPLEX, *_INTEGERS, "float16", "bool"):
        yield f"copy.{dtype}", _made("convert", (dtype,), dtype), POINTS
    yield "convert.bfloat16.float32", _made("convert", ("bfloat16",), "float32"), POINTS
    yield "narrow_bf16.float32", _made("narrow_bf16", ("float32", "float32"), "bfloat16"), POINTS
    for dtype in _FLOATS:
        yield f"select_runs.{dtype}", _made("select_runs", ("bool", dtype, dtype), dtype), POINTS
        mask = mask_type(from_numpy(np.dtype(dtype))).name
        yield f"select_bits.bool.{dtype}", _made("select_bits", ("bool", dtype, dtype, mask), dtype), POINTS
    for dtype in (*_FLOATS, *_COMPLEX):
        yield f"gather.{dtype}", _transposed(dtype), POINTS
    yield from _folds()


def _plain(name: str, dtype: str, count: int) -> Callable[[int], Run]:
    run = operation(name)
    arguments = count or getattr(run, "nin", 1)

    def make(_: int) -> Run:
        given = [_numbers(dtype) for _ in range(arguments)]
        with np.errstate(all="ignore"):
            out = np.empty_like(given[0] if not isinstance(run, np.ufunc) else run(*given))
        return _call(run, given, out)

    return make


def _made(name: str, arguments: tuple[str, ...], out: str) -> Callable[[int], Run]:
    run = operation(name)
    target: Any = BF16.numpy if out == "bfloat16" else np.dtype(out)
    return lambda _: _call(run, [_numbers(d) for d in arguments], np.zeros(POINTS, target))


def _transposed(dtype: str) -> Callable[[int], Run]:
    """Gather transposed blocks of a matrix, one after another, as tiles are read: no block is in a cache."""

    def make(_: int) -> Run:
        side, run = math.isqrt(POINTS), operation("gather")
        whole = np.zeros((16 * side, 4 * side), dtype)
        blocks = itertools.cycle([whole[k * side : (k + 1) * side, :side].T for k in range(16)])
        out = np.zeros((side, side), dtype)
        return lambda: run(next(blocks), out=out)

    return make


def _folds() -> Iterator[tuple[str, Callable[[int], Run], int]]:
    """Yield reductions along rows and columns, and searches for the index of an extremum."""
    for dtype in (*_FLOATS, "int64", "complex64"):
        for op in ("add", "max", "mul") if dtype in _FLOATS else ("add",):
            for place, axis in (("inner", 1), ("outer", 0)):
                yield f"reduce.{FOLDS[op].__name__}.{place}.{dtype}", _fold(FOLDS[op], dtype, axis), POINTS
    yield "reduce.logical_or.inner.bool", _fold(FOLDS["or"], "bool", 1), POINTS
    for dtype in _FLOATS:
        yield f"flat_arg.{dtype}", _flat(dtype), POINTS
        yield f"first_along.{dtype}", _first(dtype), POINTS


def _fold(ufunc: np.ufunc, dtype: str, axis: int) -> Callable[[int], Run]:
    def make(_: int) -> Run:
        x = _numbers(dtype).reshape(-1, 512) if axis else _numbers(dtype).reshape(64, -1)
        out = ufunc.reduce(x, axis=axis, keepdims=True)
        return lambda: ufunc.reduce(x, axis=axis, keepdims=True, out=out)

    return make


def _flat(dtype: str) -> Callable[[int], Run]:
    def make(_: int) -> Run:
        x = _numbers(dtype).reshape(-1, 512)
        out = np.zeros(len(x), np.int64)
        return lambda: flat_arg(np.argmax, 1, x, x, out=out)

    return make


def _first(dtype: str) -> Callable[[int], Run]:
    def make(_: int) -> Run:
        x = _numbers(dtype).reshape(64, -1)
        best = x.max(0, keepdims=True)
        same, lost = np.zeros(x.shape, bool), np.zeros(best.shape, bool)
        ranks, top, out = np.zeros(x.shape, "u2"), np.zeros(best.shape, "u2"), np.zeros(best.shape, np.int64)
        return lambda: first_along(0, x, best, same, ranks, lost, top, out=out)

    return make


def contention(workers: int, seconds: float) -> tuple[float, float]:
    """Return the factors by which long array operations and products slow down when all workers run them."""

    def ratio(make: Callable[[int], Run]) -> float:
        rounds = [
            (seconds_in_parallel(make, 1, seconds / 3), seconds_in_parallel(make, workers, seconds / 3))
            for _ in range(5)
        ]
        return max(1.0, min(parallel for _, parallel in rounds) / min(single for single, _ in rounds))

    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        return ratio(_plain("exp", "float64", 1)), ratio(_products(F32, workers)(512, 512, 512))


def product_table(dtype: DType, seconds: float) -> tuple[float, ...]:
    """Return the seconds of accumulating products in one thread.

    The products are (m, k) by (k, n), for all m, n, k in SIDES.
    """
    make = _products(dtype, 1)
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        return tuple(seconds_in_parallel(make(m, n, k), 1, seconds) for m in SIDES for n in SIDES for k in SIDES)


def _products(dtype: DType, workers: int) -> Callable[[int, int, int], Callable[[int], Run]]:
    """Return a function that makes products of a size, with separate matrices for each worker."""
    largest, numpy = SIDES[-1], dtype.numpy
    matrices = [tuple(np.full(largest * largest, 0.5, numpy) for _ in range(3)) for _ in range(workers)]
    multiply = product(numpy, 1.0)
    scratch = [np.zeros(largest * largest, numpy) for _ in range(workers if multiply.scratch else 0)]

    def make(m: int, n: int, k: int) -> Callable[[int], Run]:
        def of(w: int) -> Run:
            a, b, c = (x.ctypes.data for x in matrices[w])
            work = scratch[w].ctypes.data if scratch else 0
            left, right, out = MatrixOperand(a, k, 1), MatrixOperand(b, n, 1), MatrixOperand(c, n, 1)
            return multiply.prepare(m, n, k, left, right, 1, out, work).run

        return of

    return make


def memory_rate(workers: int, seconds: float, nbytes: int = 32 << 20) -> float:
    """Return the bytes/s that each worker copies while all workers copy.

    The buffers are larger than the caches.
    """
    pairs = [tuple(np.ones(nbytes, np.uint8) for _ in range(2)) for _ in range(workers)]
    return nbytes / min(
        seconds_in_parallel(lambda w: lambda: np.copyto(pairs[w][0], pairs[w][1]), workers, seconds / 3)
        for _ in range(3)
    )


def fault_seconds(workers: int, nbytes: int = 256 << 20) -> float:
    """Return the seconds per byte of page faults.

    That is the first write to new memory by all workers, less a second write.

    Returns the smaller of two measurements.
    """
    return min(_fault_seconds(workers, nbytes) for _ in range(2))


def _fault_seconds(workers: int, nbytes: int) -> float:
    import mmap

    with mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        parts = np.array_split(np.frombuffer(memory, np.uint8), workers)
        times = []
        for _ in range(2):
            threads = [threading.Thread(target=part.fill, args=(1,)) for part in parts]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            times.append(time.perf_counter() - begin)
        del parts, threads
    return max(times[0] - times[1], 1e-12 * nbytes) / nbytes
