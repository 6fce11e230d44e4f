"""ParallelFor: kernels divided into chunks, of which each worker takes the next one.

With one equal tile per thread, a run ends with the slowest thread. It cannot be predicted: other processes or virtual
machines use a core, or a thread wakes late. A machine-code loop takes the chunks without Python, so there can be many.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.fp_status import INVALID, REPORTED, fp_flags
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.parallel_for import CALL, ParallelForCode
from einturnip.kernels.llvm.thread_scratch import thread_scratch
from einturnip.kernels.parallel_parts import KernelParts
from einturnip.kernels.select import Code
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host.worker_pool import AssignedOps, WorkerPool

CHUNKS_PER_WORKER = 32
"""Chunks for each worker, so that the workers end nearly together."""
MIN_CHUNK_SECONDS = 50e-6
"""Planned seconds of a chunk, at least."""
_POLL_SECONDS = 20e-6  # between checks whether other threads have finished their chunks
_PARALLEL_FOR: Code = ParallelForCode()


@dataclass(frozen=True)
class ParallelOp:
    """One op divided into chunks.

    ``relocations``: argument words that hold an address in a caller's array, as (tier, word). ``rerun``: runs the op
    without dividing it.
    """

    op: int
    parts: KernelParts
    relocations: Sequence[tuple[int, int]]
    rerun: Callable[[], int]


class ParallelOps:
    """Ops whose chunks several threads take. For one run at a time.

    ``addresses``: by tier, the address of the caller's array with which the chunks were prepared.

    Memory layout: ``_words`` has the argument words of each chunk. ``_calls`` has a row for each chunk: the function,
    the address of its argument words, the position of the scratch word, and the flags that the call raised.
    """

    def __init__(self, parallel: Sequence[ParallelOp], addresses: Mapping[int, int]) -> None:
        self._parallel, self._addresses = parallel, dict(addresses)
        self._length = max(one.parts.words.shape[1] for one in parallel)
        counts = [len(one.parts.words) for one in parallel]
        self._begins = np.concatenate([[0], np.cumsum(counts)])
        self._words = np.zeros((int(self._begins[-1]), self._length), np.int64)
        self._calls = np.zeros((len(self._words), len(CALL)), np.int64)
        relocated: dict[int, list[NDArray[np.int64]]] = {tier: [] for tier in addresses}
        for one, begin in zip(parallel, self._begins.tolist(), strict=False):
            words = one.parts.words
            rows = np.arange(begin, begin + len(words))
            self._words[rows, : words.shape[1]] = words
            self._calls[rows, 0] = ctypes.cast(one.parts.function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
            self._calls[rows, 2] = one.parts.scratch
            for tier, word in one.relocations:
                relocated[tier].append(rows * self._length + word)
        self._calls[:, 1] = self._words.ctypes.data + 8 * self._length * np.arange(len(self._words))
        self._relocated = {tier: np.concatenate(places) for tier, places in relocated.items() if places}
        self._flat = self._words.reshape(-1)
        self._work = _ParallelWork(self._calls, max(one.parts.scratch_nbytes for one in parallel))
        self._assigned = AssignedOps(self._work, ())

    @property
    def ops(self) -> list[int]:
        """The ops that are divided."""
        return [one.op for one in self._parallel]

    def run(self, addresses: Mapping[int, int], pool: WorkerPool, others: int) -> dict[int, int]:
        """Run every chunk; return the floating-point flags of each op that raised any.

        ``addresses``: by tier, the present address of the caller's array. ``others``: number of threads of the pool
        that are asked to help.
        """
        for tier, places in self._relocated.items():
            now = addresses[tier]
            if now != self._addresses[tier]:
                self._flat[places] += now - self._addresses[tier]
                self._addresses[tier] = now
        work = self._work
        mine = work.begin()
        for _ in range(min(others, len(self._calls) - 1)):
            pool.submit(Lane.COMPUTE, self._assigned)
        if not work.finish(mine) & REPORTED:
            return {}
        seen = np.bitwise_or.reduceat(self._calls[:, 3], self._begins[:-1]).tolist()
        return {one.op: self._flags(one, word) for one, word in zip(self._parallel, seen, strict=True) if word}

    def _flags(self, one: ParallelOp, word: int) -> int:
        """Return an op's floating-point flags.

        A comparison with NaN also raises INVALID, so then the kernel itself has to decide.
        """
        bits = fp_flags(word)
        return one.rerun() if bits & INVALID and one.parts.compares else bits


class _ParallelWork:
    """The chunks as the pool's threads take them, in one run after another.

    A thread may wake late, even during the next run; it then finds no chunk, or one of the present run. This is safe
    because ``begin`` resets the counter of the next chunk only after all other fields.
    """

    def __init__(self, calls: NDArray[np.int64], scratch_nbytes: int) -> None:
        function = code_cache.find(_PARALLEL_FOR)
        assert function is not None
        self._function, self._calls, self._count, self._scratch_nbytes = function, calls, len(calls), scratch_nbytes
        self._shared = array("q", [len(calls), len(calls), len(calls), calls.ctypes.data, 0, 0])  # see SHARED
        self._address = self._shared.buffer_info()[0]

    def begin(self) -> array[int]:
        """Make all chunks available; return this thread's argument for ``finish``."""
        argument, shared = self._argument(), self._shared
        shared[2] = shared[4] = 0
        shared[5] += 1
        shared[0] = 0
        return argument

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """See PoolWork."""
        with contextlib.suppress(MemoryError):  # no scratch for this thread: the other threads take its chunks
            self._take(self._argument())

    def finish(self, argument: array[int]) -> int:
        """Take chunks too, and wait until all are done; return the union of the flags.

        An interrupt is raised only after that, since the other threads still use the arrays.
        """
        interrupt: BaseException | None = None
        while self._shared[2] < self._count:
            try:
                self._take(argument)
                if self._shared[2] < self._count:
                    time.sleep(_POLL_SECONDS)
            except BaseException as error:  # only an interrupt: the code above raises nothing
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return self._shared[4]

    def _argument(self) -> array[int]:
        """Return the calling thread's argument of the machine code: shared state and scratch."""
        scratch = thread_scratch(self._scratch_nbytes) if self._scratch_nbytes else 0
        return array("q", [self._address, scratch])

    def _take(self, argument: array[int]) -> None:
        self._function(argument.buffer_info()[0])


def max_chunks(seconds: float, ops: int, workers: int) -> int:
    """Return the maximum number of chunks of one op.

    ``seconds``: its planned duration. ``ops``: number of ops in its group.
    """
    return max(1, min(-(-CHUNKS_PER_WORKER * workers // ops), int(seconds / MIN_CHUNK_SECONDS)))


def available(workers: int) -> bool:
    """Return whether there are several workers, and the compiled loop over chunks."""
    return workers > 1 and code_cache.find(_PARALLEL_FOR) is not None


def parallel_groups(
    kinds: Sequence[int], waits: Sequence[Sequence[int]], node: Callable[[int], Hashable]
) -> list[tuple[int, ...]]:
    """Return groups of ops that can run as one: kernels of one node with the same dependencies."""
    groups: dict[Hashable, list[int]] = {}
    for k, kind in enumerate(kinds):
        if kind == OpKind.KERNEL:
            groups.setdefault((node(k), tuple(waits[k])), []).append(k)
    return [tuple(group) for group in groups.values()]
