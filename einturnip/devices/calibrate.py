"""The rates of array operations, matrix products and memory.

Plans run with a kernel on every core, which share the caches, the memory and, on some machines, the arithmetic: how
much longer an operation takes then is measured on long ones, since short ones would only fight for Python's lock.
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
from einturnip.kernels.blas.cblas import MatrixOperand, product
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.primitives import Array, first_along, flat_arg, mask_type, operation

Run = Callable[[], object]
POINTS = 1 << 16  # of one call, as many as a kernel's blocks have
_SPREAD = 0.02  # seconds; two threads that were just started may take turns on one processor as long
_COPIED = 16 << 20  # bytes; no cache holds them for long
_FLOATS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = ("int32", "int64")
_UNARY = "exp log log1p expm1 sqrt sin cos tan tanh reciprocal negative absolute sign floor ceil rint square exp_quiet"
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
    """Seconds of one call while ``workers`` threads call at once, each what ``make`` made it; after one call each.

    Seconds of the processor, which other programs do not take part in; those of a clock with ``waits``, where what
    threads wait for each other counts.
    """
    clock = time.perf_counter if waits else time.thread_time
    counts, taken = _together(make, workers, seconds, clock)
    return sum(t / n for t, n in zip(taken, counts, strict=True)) / workers


def _together(
    make: Callable[[int], Run], workers: int, seconds: float, clock: Callable[[], float]
) -> tuple[list[int], list[float]]:
    """Of each worker its calls, and the seconds that they took by ``clock``."""
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
    """Keep a new thread busy for a moment: until then two of them may stand on one processor."""
    until = time.perf_counter() + _SPREAD
    while time.perf_counter() < until:
        run()


@contextlib.contextmanager
def copying_threads(workers: int) -> Iterator[None]:
    """So many threads copy memory meanwhile, as processors do that are busy in a run."""
    over = threading.Event()

    def copy() -> None:
        source, target = np.ones((2, _COPIED), np.uint8)
        while not over.is_set():
            np.copyto(target, source)

    threads = [threading.Thread(target=copy) for _ in range(workers)]
    for thread in threads:
        thread.start()
    time.sleep(_SPREAD if threads else 0.0)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def point_rates(seconds: float) -> dict[str, float]:
    """Seconds a point of array operations in one thread, by ``name.dtype``; each is measured for about ``seconds``."""
    empty = seconds_in_parallel(lambda w: _call(np.add, [np.zeros(1, "f4")] * 2, np.zeros(1, "f4")), 1, seconds)
    found = {}
    for name, make, points in _operations():
        least = min(seconds_in_parallel(make, 1, seconds / 4) for _ in range(4))
        found[name] = max(least - empty, least / 10) / points
    return found


def _numbers(dtype: str, n: int = POINTS) -> Array:
    """Numbers between 1/2 and 1, or small whole ones: no operation meets its slow cases."""
    rng = np.random.default_rng(n)
    if dtype == "bool":
        return np.arange(n) % 512 < 200  # in runs, as masks are
    if dtype.startswith("int"):
        return rng.integers(1, 9, n).astype(dtype)
    return rng.uniform(0.5, 1.0, n).astype(BF16.numpy if dtype == "bfloat16" else dtype)


def _call(run: Callable[..., Any], arguments: list[Any], out: Array) -> Run:
    return lambda: run(*arguments, out=out)


def _operations() -> Iterator[tuple[str, Callable[[int], Run], int]]:
    """Name, what makes a call of it on arrays of its own, and the points of a call."""
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
    """Blocks of a matrix, one after the other, as tiles are read: none is in a cache."""

    def make(_: int) -> Run:
        side, run = math.isqrt(POINTS), operation("gather")
        whole = np.zeros((16 * side, 4 * side), dtype)
        blocks = itertools.cycle([whole[k * side : (k + 1) * side, :side].T for k in range(16)])
        out = np.zeros((side, side), dtype)
        return lambda: run(next(blocks), out=out)

    return make


def _folds() -> Iterator[tuple[str, Callable[[int], Run], int]]:
    """Reductions along rows and columns, and where an extremum stands."""
    for dtype in (*_FLOATS, "int64", "complex64"):
        for op in ("sum", "max", "prod") if dtype in _FLOATS else ("sum",):
            for way, axis in (("inner", 1), ("outer", 0)):
                yield f"reduce.{FOLDS[op].__name__}.{way}.{dtype}", _fold(FOLDS[op], dtype, axis), POINTS
    yield "reduce.logical_or.inner.bool", _fold(FOLDS["any"], "bool", 1), POINTS
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
    """How many times longer long array operations and products take while all workers are at them."""

    def ratio(make: Callable[[int], Run]) -> float:
        turns = [
            (seconds_in_parallel(make, 1, seconds / 3), seconds_in_parallel(make, workers, seconds / 3))
            for _ in range(5)
        ]
        return max(1.0, min(busy for _, busy in turns) / min(alone for alone, _ in turns))

    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        return ratio(_plain("exp", "float64", 1)), ratio(_products(F32, workers)(512, 512, 512))


def product_table(dtype: DType, seconds: float) -> tuple[float, ...]:
    """Seconds of products (m, k) by (k, n) that add to what is there, for all m, n, k of SIDES, in one thread."""
    make = _products(dtype, 1)
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        return tuple(seconds_in_parallel(make(m, n, k), 1, seconds) for m in SIDES for n in SIDES for k in SIDES)


def _products(dtype: DType, workers: int) -> Callable[[int, int, int], Callable[[int], Run]]:
    """Makes products of some size, in each worker of matrices of its own."""
    largest, numpy = SIDES[-1], dtype.numpy
    held = [tuple(np.full(largest * largest, 0.5, numpy) for _ in range(3)) for _ in range(workers)]
    multiply = product(numpy, 1.0)
    scratch = [np.zeros(largest * largest, numpy) for _ in range(workers if multiply.scratch else 0)]

    def make(m: int, n: int, k: int) -> Callable[[int], Run]:
        def of(w: int) -> Run:
            a, b, c = (x.ctypes.data for x in held[w])
            room = scratch[w].ctypes.data if scratch else 0
            left, right, out = MatrixOperand(a, k, 1), MatrixOperand(b, n, 1), MatrixOperand(c, n, 1)
            return lambda: multiply(m, n, k, left, right, 1, out, room)

        return of

    return make


def memory_rate(workers: int, seconds: float, nbytes: int = 32 << 20) -> float:
    """Bytes a second that each worker copies between buffers larger than the caches, while the others do too."""
    held = [tuple(np.ones(nbytes, np.uint8) for _ in range(2)) for _ in range(workers)]
    return nbytes / min(
        seconds_in_parallel(lambda w: lambda: np.copyto(held[w][0], held[w][1]), workers, seconds / 3) for _ in range(3)
    )


def fault_seconds(workers: int, nbytes: int = 256 << 20) -> float:
    """Seconds a byte that the first touch of fresh memory by all workers takes beside the writing; the less of two."""
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
