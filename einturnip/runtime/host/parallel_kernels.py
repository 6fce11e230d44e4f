"""Kernels that all workers run together: cut in parts, of which each thread takes the next until none is left.

Tiles of equal size given to a thread each end with the slowest thread, and that is not known before: another program,
or the machine's other guests, take a core away; a thread wakes late. Parts cost no turn of Python: there may be many.
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

from einturnip.kernels.fp_status import INVALID, TELLING, fp_flags
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.parallel_for import CALL, ParallelForCode
from einturnip.kernels.llvm.thread_scratch import thread_scratch
from einturnip.kernels.parallel_parts import KernelParts
from einturnip.kernels.select import Code
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host.worker_pool import AssignedOps, WorkerPool

# Parts for each worker, so that the last ones end nearly together; the planned seconds that each takes at least.
PARTS, LEAST_SECONDS = 32, 50e-6
_POLL = 20e-6  # how often who has nothing left to do looks whether the others are done
_SHARER: Code = ParallelForCode()


@dataclass(frozen=True)
class ParallelOp:
    """One op's parts. ``moves``: words that go with the caller's arrays, as (tier, word); ``again``: the op whole."""

    op: int
    parts: KernelParts
    moves: Sequence[tuple[int, int]]
    again: Callable[[], int]


class ParallelOps:
    """Ops whose parts threads share. For one run at a time.

    ``first``: by tier, where the caller's arrays stood when the parts were made.
    """

    def __init__(self, shares: Sequence[ParallelOp], first: Mapping[int, int]) -> None:
        self._shares, self._first = shares, dict(first)
        self._length = max(share.parts.words.shape[1] for share in shares)
        counts = [len(share.parts.words) for share in shares]
        self._begins = np.concatenate([[0], np.cumsum(counts)])
        self._words = np.zeros((int(self._begins[-1]), self._length), np.int64)
        self._calls = np.zeros((len(self._words), len(CALL)), np.int64)
        moved: dict[int, list[NDArray[np.int64]]] = {tier: [] for tier in first}
        for share, begin in zip(shares, self._begins.tolist(), strict=False):
            words = share.parts.words
            rows = np.arange(begin, begin + len(words))
            self._words[rows, : words.shape[1]] = words
            self._calls[rows, 0] = ctypes.cast(share.parts.function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
            self._calls[rows, 2] = share.parts.scratch
            for tier, word in share.moves:
                moved[tier].append(rows * self._length + word)
        self._calls[:, 1] = self._words.ctypes.data + 8 * self._length * np.arange(len(self._words))
        self._moved = {tier: np.concatenate(places) for tier, places in moved.items() if places}
        self._flat = self._words.reshape(-1)
        self._work = _ParallelWork(self._calls, max(share.parts.scratch_nbytes for share in shares))
        self._asked = AssignedOps(self._work, ())

    @property
    def ops(self) -> list[int]:
        """What is shared."""
        return [share.op for share in self._shares]

    def run(self, addresses: Mapping[int, int], crew: WorkerPool, others: int) -> dict[int, int]:
        """Run every part, with so many threads of the crew that come to help; gives the bits of each op.

        ``addresses``: where the caller's arrays stand now, by tier.
        """
        for tier, places in self._moved.items():
            now = addresses[tier]
            if now != self._first[tier]:
                self._flat[places] += now - self._first[tier]
                self._first[tier] = now
        work = self._work
        mine = work.begin()
        for _ in range(min(others, len(self._calls) - 1)):
            crew.ask(Lane.COMPUTE, self._asked)
        if not work.finish(mine) & TELLING:
            return {}
        seen = np.bitwise_or.reduceat(self._calls[:, 3], self._begins[:-1]).tolist()
        return {share.op: self._met(share, bits) for share, bits in zip(self._shares, seen, strict=True) if bits}

    def _met(self, share: ParallelOp, seen: int) -> int:
        """What happened in an op; a comparison with NaN looks like something invalid: the kernel itself can tell."""
        bits = fp_flags(seen)
        return share.again() if bits & INVALID and share.parts.compares else bits


class _ParallelWork:
    """Parts as threads of a crew take them, in one run after another.

    Who comes late, even in the next run, finds no part or one to be done now: which are left is told last.
    """

    def __init__(self, calls: NDArray[np.int64], scratch_nbytes: int) -> None:
        function = code_cache.find(_SHARER)
        assert function is not None
        self._function, self._calls, self._count, self._room = function, calls, len(calls), scratch_nbytes
        self._shared = array("q", [len(calls), len(calls), len(calls), calls.ctypes.data, 0, 0])  # see share.SHARED
        self._address = self._shared.buffer_info()[0]

    def begin(self) -> array[int]:
        """All parts are to be done; gives this thread's argument for ``finish``."""
        argument, shared = self._argument(), self._shared
        shared[2] = shared[4] = 0
        shared[5] += 1
        shared[0] = 0
        return argument

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """See crew.Work."""
        with contextlib.suppress(MemoryError):  # of its room: the others do without
            self._take(self._argument())

    def finish(self, argument: array[int]) -> int:
        """Take parts too, and wait for those that others have taken, whatever interrupts; gives the bits of all."""
        interrupt: BaseException | None = None
        while self._shared[2] < self._count:
            try:
                self._take(argument)
                if self._shared[2] < self._count:
                    time.sleep(_POLL)
            except BaseException as error:  # nothing here raises by itself
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return self._shared[4]

    def _argument(self) -> array[int]:
        """Of a call of the code by this thread."""
        return array("q", [self._address, thread_scratch(self._room) if self._room else 0])

    def _take(self, argument: array[int]) -> None:
        self._function(argument.buffer_info()[0])


def max_chunks(seconds: float, ops: int, workers: int) -> int:
    """How many parts an op of so many planned seconds is cut into, being one of several that are shared."""
    return max(1, min(-(-PARTS * workers // ops), int(seconds / LEAST_SECONDS)))


def available(workers: int) -> bool:
    """Whether there are threads that could share, and the code that they do it by."""
    return workers > 1 and code_cache.find(_SHARER) is not None


def parallel_groups(
    kinds: Sequence[int], waits: Sequence[Sequence[int]], node: Callable[[int], Hashable]
) -> list[tuple[int, ...]]:
    """The ops that may be run as one: kernels of one node that wait for the same ops, so that none hangs on another."""
    groups: dict[Hashable, list[int]] = {}
    for k, kind in enumerate(kinds):
        if kind == OpKind.KERNEL:
            groups.setdefault((node(k), tuple(waits[k])), []).append(k)
    return [tuple(group) for group in groups.values()]
