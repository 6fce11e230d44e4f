"""ParallelFor: kernels divided into chunks, of which each worker takes the next one.

With one equal tile per thread, a run ends with the slowest thread. It cannot be predicted: other processes or virtual
machines use a core, or a thread wakes late. A machine-code loop takes the chunks without Python, so there can be many.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.fp_status import REPORTED, fp_flags
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.code_cache import Code
from einturnip.kernels.llvm.command_list import entry
from einturnip.kernels.llvm.parallel_for import CALL, ParallelForCode
from einturnip.kernels.protocol import KernelCall
from einturnip.kernels.thread_scratch import thread_scratch
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host.run_resources import AssignedOps, WorkerPool
from einturnip.tuning.memory import CHUNKS_PER_WORKER, MIN_CHUNK_SECONDS, POLL_SECONDS

_PARALLEL_FOR: Code = ParallelForCode()


class ParallelOps:
    """Ops whose chunks several threads take. For one run at a time.

    ``memory``: the argument words of all chunks, one after the other. ``begins``: by op, the position of the first word
    of each chunk. Private memory: ``_calls`` has a row for each chunk: the function, the address of its argument words,
    the position of the scratch word, and the flags that the call raised.
    """

    def __init__(self, divided: Sequence[tuple[KernelCall, NDArray[np.int64]]]) -> None:
        """``divided``: the call of each op, and the words of its chunks (see KernelCall)."""
        self._ops = [call for call, _ in divided]
        length = max(chunks.shape[1] for _, chunks in divided)
        self._first = np.cumsum([0, *(len(chunks) for _, chunks in divided)])
        words = np.zeros((int(self._first[-1]), length), np.int64)
        self._calls = np.zeros((len(words), len(CALL)), np.int64)
        self.begins = list[NDArray[np.int64]]()
        for (call, chunks), first in zip(divided, self._first.tolist(), strict=False):
            rows = np.arange(first, first + len(chunks))
            words[rows, : chunks.shape[1]] = chunks
            self._calls[rows, 0] = entry(call.function)
            self._calls[rows, 2] = call.scratch
            self.begins.append(rows * length)
        self._calls[:, 1] = words.ctypes.data + 8 * length * np.arange(len(words))
        self.memory = words.reshape(-1)
        self._work = _ParallelWork(self._calls, max(call.scratch_nbytes for call in self._ops))
        self._assigned = AssignedOps(self._work, ())

    def run(self, pool: WorkerPool, others: int) -> dict[int, int]:
        """Run every chunk; return the floating-point flags of each op that raised any, by its position.

        ``others``: number of threads of the pool that are asked to help.
        """
        work = self._work
        mine = work.begin()
        for _ in range(min(others, len(self._calls) - 1)):
            pool.submit(Lane.COMPUTE, self._assigned)
        if not work.finish(mine) & REPORTED:
            return {}
        seen = map(fp_flags, np.bitwise_or.reduceat(self._calls[:, 3], self._first[:-1]).tolist())
        return {k: self._ops[k].checked(flags) for k, flags in enumerate(seen) if flags}


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
                    time.sleep(POLL_SECONDS)
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
