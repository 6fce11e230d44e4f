"""``einturnip bench loop``: overhead of the runtime's loop per op, and of a run per program."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from einturnip.devices.host import blas_threads
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.planner.predict import slots
from einturnip.runtime.host.event_loop import run_ops
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.taskgraph.types import TaskGraph

# Side of the f32 product that is a kernel: about a millisecond of one core.
SIDE = 368
KERNELS = 800
# Bytes of an uncached read, and the number of reads, with as many products.
READ_NBYTES, READS = 4 << 20, 256
# Number of measurements, and of runs of the tiny program.
ROUNDS = 5
STARTS = 9
TINY = "input x : f32[n]\ny[i] = 2 * x[i]\noutput y\n"


@dataclass(frozen=True)
class LoopFigure:
    """One figure: ``what``, and its value in ``unit``."""

    what: str
    value: float
    unit: str


def bench(folder: Path, small: bool) -> Iterator[LoopFigure]:
    """Measure every figure; files are created in ``folder`` and removed again."""
    for n in (10**3,) if small else (10**4, 10**5, 10**6):
        for name, seconds in (("run at once", 0.0), ("handed to other threads", 1.0)):
            yield LoopFigure(f"an empty op, of {n:,} {name}", 1e6 * _trivial(n, seconds), "us")
    with blas_threads(1):
        yield from _products(20 if small else KERNELS)
        yield from _overlap(folder, 4 if small else READS)
    yield LoopFigure("einturnip run of a tiny program, whole process", _start(2 if small else STARTS), "s")


def page(figures: Sequence[LoopFigure], about: Mapping[str, Any], command: str) -> str:
    """The figures as Markdown."""
    rows = [
        "# The event loop",
        "",
        f"`{command}`, {about['date']}. {about['processor']}, {about['cores']} cores; Python {about['python']}, NumPy "
        f"{about['numpy']}; {'; '.join(about['blas'])}.",
        "",
        f"Overhead of the runtime. Kernels are {SIDE} x {SIDE} f32 products on one thread.",
        "",
        "| | |",
        "|---|---:|",
        *(f"| {f.what} | {f.value:.3g} {f.unit} |" for f in figures),
    ]
    return "\n".join(rows) + "\n"


def write(figures: Sequence[LoopFigure], folder: Path, about: Mapping[str, Any], command: str) -> list[Path]:
    """The figures as loop.json and loop.md."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": about, "command": command, "figures": [asdict(f) for f in figures]}
    made = {"loop.json": json.dumps(data, indent=1) + "\n", "loop.md": page(figures, about, command)}
    for name, text in made.items():
        (folder / name).write_text(text)
    return [folder / name for name in made]


def graph(kinds: Sequence[OpKind], after: Sequence[int], seconds: float) -> MemGraph:
    """Ops of these kinds without data, each after one earlier op or none (-1), with planned ``seconds``."""
    waits = np.array(after, np.int32)
    none, n = np.empty((0, 4), np.int64), len(kinds)
    ptr, unused = np.zeros(n + 1, np.int64), np.full(n, -1, np.int32)
    return MemGraph(
        cast(TaskGraph, None), 0, 0, 0, np.array(kinds, np.uint8), unused, unused, np.full(n, seconds), ptr, none, ptr,
        none, np.concatenate([[0], np.cumsum(waits >= 0)]), waits[waits >= 0], np.empty(0, np.int32),
    )  # fmt: skip


def _trivial(n: int, seconds: float) -> float:
    """Seconds per op of parallel chains in which every second op is a load."""
    kinds = [OpKind.LOAD if i % 2 else OpKind.KERNEL for i in range(n)]
    found = graph(kinds, [max(-1, i - 9) for i in range(n)], seconds)
    return _run(found, _nothing, 2).seconds / n


def _nothing(op: int) -> None:
    """An empty op."""


def _run(found: MemGraph, execute: Callable[[int], None], workers: int) -> RunTrace:
    """Run ops on a new worker pool."""
    lanes = slots(workers)
    return run_ops(found, SchedulerState(found, range(len(found)), lanes), execute, str, lanes)


def _products(n: int) -> Iterator[LoopFigure]:
    """Kernels of a millisecond on one worker, on two, and on two bare threads."""
    a = np.ones((SIDE, SIDE), np.float32)
    outs = [np.empty_like(a) for _ in range(16)]
    found = graph([OpKind.KERNEL] * n, [-1] * n, 1e-3)

    def execute(op: int) -> None:
        np.matmul(a, a, out=outs[op % len(outs)])

    one, two, bare, shares = [], [], [], []
    for _ in range(ROUNDS):
        one.append(_run(found, execute, 1).seconds)
        trace = _run(found, execute, 2)
        two.append(trace.seconds)
        shares.append(1 - trace.busy[Lane.COMPUTE] / (2 * trace.seconds))
        bare.append(_bare(execute, n))
    yield LoopFigure("a kernel on one worker", 1e3 * _median(one) / n, "ms")
    yield LoopFigure("speed of two workers relative to one", _median(np.divide(one, two)), "times")
    yield LoopFigure("speed of two bare threads relative to one worker", _median(np.divide(one, bare)), "times")
    yield LoopFigure("share of two workers' time outside kernels", 100 * _median(shares), "%")


def _bare(execute: Callable[[int], None], n: int) -> float:
    """Seconds in which two threads run as many ops without a scheduler."""

    def work(ops: Sequence[int]) -> None:
        for op in ops:
            execute(op)

    threads = [threading.Thread(target=work, args=(range(k, n, 2),)) for k in range(2)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def _overlap(folder: Path, n: int) -> Iterator[LoopFigure]:
    """Uncached reads with products: the share of the shorter time that both run."""
    with ExitStack() as opened:
        file = opened.enter_context(tempfile.NamedTemporaryFile(dir=folder))
        block = os.urandom(READ_NBYTES)
        for _ in range(n):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        try:
            fd = os.open(file.name, os.O_RDONLY | os.O_DIRECT)
        except OSError:  # this file system has no such reads
            return
        opened.callback(os.close, fd)
        runs = np.array([_mixed(fd, n) for _ in range(ROUNDS)])
    reading, computing, both = runs[np.argsort(runs[:, 2])[ROUNDS // 2]].tolist()
    yield LoopFigure(f"uncached reads of {n * READ_NBYTES >> 20} MiB alone, for {n} products", reading, "s")
    yield LoopFigure("its products alone, on one worker", computing, "s")
    yield LoopFigure("both in one run", both, "s")
    hidden = (runs[:, 0] + runs[:, 1] - runs[:, 2]) / runs[:, :2].min(1)
    yield LoopFigure("overlap, share of the shorter of the two", 100 * _median(hidden), "%")


def _mixed(fd: int, n: int) -> tuple[float, float, float]:
    """A run of loads, each of a file's next block, and of products: seconds of either, and of the run."""
    a = np.ones((SIDE, SIDE), np.float32)
    out, buffers = np.empty_like(a), threading.local()

    def execute(op: int) -> None:
        if op % 2:
            np.matmul(a, a, out=out)
            return
        if not hasattr(buffers, "mine"):
            buffers.mine = mmap.mmap(-1, READ_NBYTES)
        os.preadv(fd, [buffers.mine], READ_NBYTES * (op // 2))

    trace = _run(graph([OpKind.LOAD, OpKind.KERNEL] * n, [-1] * (2 * n), 1e-3), execute, 1)
    begin, end = trace.timeline.begin, trace.timeline.end
    return _covered(begin[::2], end[::2]), _covered(begin[1::2], end[1::2]), float(end.max())


def _covered(begin: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    """Seconds in which at least one of the ops ran."""
    order = np.argsort(begin)
    before = np.concatenate([[0.0], np.maximum.accumulate(end[order])[:-1]])
    return float(np.maximum(0.0, end[order] - np.maximum(begin[order], before)).sum())


def _median(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.median(values))


def _start(n: int) -> float:
    """Seconds of a run of a tiny program in a process of its own, from the second run on.

    Modules are compiled to byte code, as those of an installed package are.
    """
    times = []
    with tempfile.TemporaryDirectory() as at:
        program = Path(at) / "tiny.ein"
        program.write_text(TINY)
        np.save(Path(at) / "x.npy", np.ones(4, np.float32))
        words = [sys.executable, "-m", "einturnip", "run", "tiny.ein", "-i", "x=x.npy", "-o", "y=y.npy", "-q"]
        compiled = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(at) / "compiled")}
        for _ in range(n + 1):
            begin = time.perf_counter()
            subprocess.run(words, cwd=at, check=True, env=compiled)
            times.append(time.perf_counter() - begin)
    return _median(times[1:])
