"""Chooses the number of BLAS threads for plans that run in the caller's thread.

All workers are used while cores are free, else one.

BLAS divides a product among threads that wait for each other by spinning. While other processes use the cores, this
takes many times longer than one thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from einturnip.devices.host import blas_threads
from einturnip.tuning.memory import LOOK_SECONDS, MIN_CHECK_SECONDS, UNDISTURBED_SHARE


class BlasThreadChoice:
    """Chooses BLAS threads for each run of one plan.

    The choice follows the machine's load and the CPU time of the previous run.
    """

    def __init__(self, workers: int, seconds: float) -> None:
        """``seconds``: approximate duration of a run."""
        self._workers = workers if seconds >= MIN_CHECK_SECONDS else 1
        self.threads, self._next_look = 1, 0.0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Choose the number of threads for one run, and limit BLAS to it within the context."""
        if self._workers == 1:
            with blas_threads(1):
                yield
            return
        begin, ran = time.perf_counter(), time.thread_time()
        if self.threads == 1 and begin >= self._next_look:
            self._next_look = begin + LOOK_SECONDS
            if other_running_threads() + self._workers <= (os.cpu_count() or 1):
                self.threads = self._workers
        with blas_threads(self.threads):
            yield
        if time.thread_time() - ran < UNDISTURBED_SHARE * (time.perf_counter() - begin):
            self.threads = 1


def other_running_threads() -> int:
    """Return the number of other threads that run or wait for a core; 0 if the system does not report it."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].split("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return 0
