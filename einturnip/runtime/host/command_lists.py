"""Ops in a row that are calls of machine code or of BLAS, all made by one call (``native.tape``).

From Python each takes some microseconds beside its kernel: as much as a product of small matrices does.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from einturnip.kernels.fp_status import INVALID, TELLING, unit
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.parallel_parts import Divisible
from einturnip.kernels.protocol import HostKernel, Relocatable
from einturnip.kernels.select import Code
from einturnip.memgraph.views import KernelOperands

PLAYER: Code = command_list.CommandListExecutor()


@dataclass(frozen=True)
class RecordedOp:
    """An op as calls. ``calls``: kind and words of each; ``arrays``: of each operand, then the result, the word that is
    its address; ``compares``: INVALID may be of what the tile does not hold, and the kernel itself can tell.

    ``moves``: words that go with the caller's arrays, as (call, word, tier, bytes from the array's address on).
    ``held``: what has to be there as long as the calls are made.
    """

    calls: Sequence[tuple[int, Sequence[int]]]
    arrays: Sequence[int]
    compares: bool
    held: object
    moves: list[tuple[int, int, int, int]] = field(default_factory=list)


class CommandListResult(NamedTuple):
    """What a tape met, by the number of the op; what the processor's clock showed before the first and after each."""

    bits: Mapping[int, int]
    stamps: array[int]

    def ends(self, begin: float, end: float) -> list[float]:
        """When each op ended, in seconds of the clock by which the tape began and ended."""
        first, last = self.stamps[0], self.stamps[-1]
        rate = (end - begin) / ((last - first) or 1)
        return [begin + rate * (stamp - first) for stamp in self.stamps[1:]]


def record_call(kernel: HostKernel, call: KernelOperands) -> RecordedOp | None:
    """A kernel's call that makes a whole tile, for tiles that lie as these do; None where it cannot be."""
    if isinstance(kernel, Divisible):
        parts = kernel.parts(call.outs, call.operands, call.origins, 1)
        if parts is None or parts.scratch >= 0:  # scratch is the thread's own
            return None
        entry = command_list.entry(parts.function)
        calls = [(command_list.CALL, [entry, *words]) for words in parts.words.tolist()]
        return RecordedOp(calls, [at + 1 for at in parts.arrays], parts.compares, parts)
    followed = kernel.followed(call.outs, call.operands) if isinstance(kernel, Relocatable) else None
    found = None if followed is None else command_list.gemm(followed.function)
    if followed is None or found is None:
        return None
    return RecordedOp([found], command_list.words_of(followed.function, followed.places), True, kernel)


class OpCommandList:
    """Ops that are played in a row. For one run at a time.

    ``again``: each op by itself; ``addresses``: by tier, where the caller's arrays stand when it is played.
    """

    def __init__(
        self, taped: Sequence[RecordedOp], again: Sequence[Callable[[], int]], addresses: Mapping[int, int]
    ) -> None:
        player = code_cache.find(PLAYER)
        assert player is not None
        self._player, self._taped, self._again, self._addresses = player, taped, again, addresses
        self._ops = [-1]  # the op that each call is of
        for op, found in enumerate(taped):
            self._ops += [op] * (len(found.calls) + 1)
        calls = len(self._ops)
        words = sum(len(call) for found in taped for _, call in found.calls)
        self._stamps = command_list.HEAD + 2 * calls + words
        self._memory = memory = array("q", bytes(8 * (self._stamps + len(taped) + 1)))
        self._address = memory.buffer_info()[0]
        memory[0], memory[1], memory[3] = self._address + 8 * command_list.HEAD, calls, TELLING
        self._moves = self._write()

    def _write(self) -> list[tuple[int, int, int]]:
        """Write table and words; gives the words that move, as (place, tier, bytes from the array's address on)."""
        memory, moves = self._memory, list[tuple[int, int, int]]()
        row, at = command_list.HEAD, command_list.HEAD + 2 * len(self._ops)

        def put(kind: int, place: int) -> None:
            nonlocal row
            memory[row], memory[row + 1] = kind, self._address + 8 * place
            row += 2

        put(command_list.STAMP, self._stamps)
        for op, found in enumerate(self._taped):
            for k, (kind, words) in enumerate(found.calls):
                put(kind, at)
                memory[at : at + len(words)] = array("q", words)
                moves += [(at + word, tier, offset) for call, word, tier, offset in found.moves if call == k]
                at += len(words)
            put(command_list.STAMP, self._stamps + op + 1)
        return moves

    def __call__(self) -> CommandListResult:
        """Play it: on after each call that raised something, which is told of its op."""
        memory, addresses, status, bits = self._memory, self._addresses, unit(), dict[int, int]()
        for place, tier, offset in self._moves:
            memory[place] = addresses[tier] + offset
        memory[2] = 0
        status.clear()
        self._player(self._address)
        while memory[2] < memory[1]:
            op, met = self._ops[memory[2] - 1], status.read()
            if met & INVALID and self._taped[op].compares:
                met = self._again[op]()
            bits[op] = bits.get(op, 0) | met
            status.clear()
            self._player(self._address)
        return CommandListResult(bits, memory[self._stamps :])
