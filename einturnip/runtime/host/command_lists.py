"""Command lists: consecutive kernels of machine code or BLAS, executed by one call from Python.

A call from Python costs some microseconds on top of its kernel, as much as a product of small matrices takes.
``kernels.llvm.command_list`` defines the format and compiles the executor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from einturnip.kernels.fp_status import INVALID, REPORTED, unit
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.parallel_parts import Divisible
from einturnip.kernels.protocol import HostKernel, Relocatable
from einturnip.kernels.select import Code
from einturnip.memgraph.views import KernelOperands

EXECUTOR: Code = command_list.CommandListExecutor()
"""Machine code that executes a command list."""


@dataclass(frozen=True)
class RecordedOp:
    """An op as calls of machine code.

    ``calls``: kind and argument words of each call. ``arrays``: position of the word that holds the address of each
    operand, then of the result. ``compares``: the INVALID flag can be spurious, and only the kernel itself can decide.
    ``keep_alive``: object whose memory the calls use. ``relocations``: words that change with the caller's arrays, as
    (call, word, tier, offset in bytes from the array's address).
    """

    calls: Sequence[tuple[int, Sequence[int]]]
    arrays: Sequence[int]
    compares: bool
    keep_alive: object
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)


class CommandListResult(NamedTuple):
    """Flags and times of the ops of a command list.

    ``bits``: the floating-point flags of each op that raised any. ``stamps``: the processor's clock before the first op
    and after each op.
    """

    bits: Mapping[int, int]
    stamps: array[int]

    def ends(self, begin: float, end: float) -> list[float]:
        """Return when each op ended, on the clock by which the list began and ended. Units: seconds."""
        first, last = self.stamps[0], self.stamps[-1]
        rate = (end - begin) / ((last - first) or 1)
        return [begin + rate * (stamp - first) for stamp in self.stamps[1:]]


def record_call(kernel: HostKernel, call: KernelOperands) -> RecordedOp | None:
    """Record a kernel call that computes a whole tile; None if the kernel cannot be recorded.

    The record is valid for tiles with the same shapes and strides as those of ``call``.
    """
    if isinstance(kernel, Divisible):
        parts = kernel.parts(call.outs, call.operands, call.origins, 1)
        if parts is None or parts.scratch >= 0:  # scratch belongs to a thread, and the thread is not known yet
            return None
        entry = command_list.entry(parts.function)
        calls = [(command_list.CALL, [entry, *words]) for words in parts.words.tolist()]
        return RecordedOp(calls, [at + 1 for at in parts.arrays], parts.compares, parts)
    relocatable = kernel.relocatable_call(call.outs, call.operands) if isinstance(kernel, Relocatable) else None
    found = None if relocatable is None else command_list.gemm(relocatable.function)
    if relocatable is None or found is None:
        return None
    return RecordedOp([found], command_list.words_of(relocatable.function, relocatable.places), True, kernel)


class OpCommandList:
    """The command list of consecutive ops. For one run at a time.

    ``rerun``: runs each op by itself. ``addresses``: by tier, the current address of the caller's array.

    Memory layout, in words of 8 bytes: the head (see ``kernels.llvm.command_list``), a table with kind and argument
    address of each call, the argument words of all calls, then the clock stamps.
    """

    def __init__(
        self, recorded: Sequence[RecordedOp], rerun: Sequence[Callable[[], int]], addresses: Mapping[int, int]
    ) -> None:
        executor = code_cache.find(EXECUTOR)
        assert executor is not None
        self._executor, self._recorded, self._rerun, self._addresses = executor, recorded, rerun, addresses
        self._ops = [-1]  # the op that each call belongs to; the first call takes a clock stamp
        for op, found in enumerate(recorded):
            self._ops += [op] * (len(found.calls) + 1)
        calls = len(self._ops)
        words = sum(len(call) for found in recorded for _, call in found.calls)
        self._stamps = command_list.HEAD + 2 * calls + words
        self._memory = memory = array("q", bytes(8 * (self._stamps + len(recorded) + 1)))
        self._address = memory.buffer_info()[0]
        memory[0], memory[1], memory[3] = self._address + 8 * command_list.HEAD, calls, REPORTED
        self._relocations = self._write()

    def _write(self) -> list[tuple[int, int, int]]:
        """Write table and words; return the words to relocate.

        Each is (position, tier, offset from the array's address).
        """
        memory, relocations = self._memory, list[tuple[int, int, int]]()
        row, at = command_list.HEAD, command_list.HEAD + 2 * len(self._ops)

        def put(kind: int, place: int) -> None:
            nonlocal row
            memory[row], memory[row + 1] = kind, self._address + 8 * place
            row += 2

        put(command_list.STAMP, self._stamps)
        for op, found in enumerate(self._recorded):
            for k, (kind, words) in enumerate(found.calls):
                put(kind, at)
                memory[at : at + len(words)] = array("q", words)
                relocations += [
                    (at + word, tier, offset) for call, word, tier, offset in found.relocations if call == k
                ]
                at += len(words)
            put(command_list.STAMP, self._stamps + op + 1)
        return relocations

    def __call__(self) -> CommandListResult:
        """Execute the list.

        The executor returns after each call that raised a floating-point flag; the flag is assigned to the call's op,
        and execution resumes after it.
        """
        memory, addresses, status, bits = self._memory, self._addresses, unit(), dict[int, int]()
        for position, tier, offset in self._relocations:
            memory[position] = addresses[tier] + offset
        memory[2] = 0
        status.clear()
        self._executor(self._address)
        while memory[2] < memory[1]:
            op, flags = self._ops[memory[2] - 1], status.read()
            if flags & INVALID and self._recorded[op].compares:
                flags = self._rerun[op]()
            bits[op] = bits.get(op, 0) | flags
            status.clear()
            self._executor(self._address)
        return CommandListResult(bits, memory[self._stamps :])
