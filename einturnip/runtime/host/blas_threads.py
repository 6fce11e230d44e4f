"""How many threads BLAS gets in steps that run in the caller's thread: all workers while the machine has them to spare.

BLAS divides a product among threads that wait for each other by spinning. Where other processes hold the cores it takes
many times longer than in one thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from einturnip.devices.host import blas_threads

# Seconds of a step from which on it is worth a look at the machine; the part of a step that its thread runs, at least,
# on a machine that nobody else uses.
WORTH_SECONDS, UNDISTURBED = 1e-3, 0.9


class BlasThreadChoice:
    """The threads of one plan's steps, each chosen by what the last one and the machine show."""

    def __init__(self, workers: int, seconds: float) -> None:
        """``seconds``: what a step takes, about."""
        self._workers = workers if seconds >= WORTH_SECONDS else 1
        self.threads = 1

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Within, BLAS calls use that many threads."""
        if self._workers == 1:
            with blas_threads(1):
                yield
            return
        if self.threads == 1 and others_running() + self._workers <= (os.cpu_count() or 1):
            self.threads = self._workers
        begin, ran = time.perf_counter(), time.thread_time()
        with blas_threads(self.threads):
            yield
        if time.thread_time() - ran < UNDISTURBED * (time.perf_counter() - begin):
            self.threads = 1


def others_running() -> int:
    """Threads that run or wait for a core at this moment, this one apart; 0 where the system does not tell."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].split("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return 0
