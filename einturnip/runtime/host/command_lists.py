"""Command lists: consecutive kernels of machine code or BLAS, executed by one call from Python.

A call from Python costs some microseconds on top of its kernel, as much as a product of small matrices takes.
``kernels.llvm.command_list`` defines the format and compiles the executor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from einturnip.kernels.fp_status import REPORTED, unit
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.llvm.code_cache import Code
from einturnip.kernels.llvm.command_list import CHANGES, CONDITION, N_CHANGES, NEXT_CALL, REPETITIONS
from einturnip.kernels.protocol import KernelCall

EXECUTOR: Code = command_list.CommandListExecutor()
"""Machine code that executes a command list."""
Change: TypeAlias = tuple[int, int, int]
"""A word that changes between repetitions; see ``command_list.CHANGE_WORDS``."""
_TRUE = command_list.N_CALLS
"""A word whose first byte is not 0: the number of calls is odd."""


class CommandListResult(NamedTuple):
    """Times of the ops of a command list.

    ``stamps``: the processor's clock before the first op and after each op, in the last repetition. ``runs``: how often
    the list was executed.
    """

    stamps: array[int]
    runs: int = 1

    def ends(self, begin: float, end: float) -> list[float]:
        """Return when each op ended, on the clock by which the list began and ended. Units: seconds."""
        first, last = self.stamps[0], self.stamps[-1]
        rate = (end - begin) / ((last - first) or 1)
        return [begin + rate * (stamp - first) for stamp in self.stamps[1:]]


def address_of_word(memory: array[int], position: int) -> int:
    """Return the address of a word of an array of words."""
    return memory.buffer_info()[0] + memory.itemsize * position


class OpCommandList:
    """The command list of consecutive ops, one call each. For one run at a time.

    ``memory``: words of 8 bytes: the head (see ``kernels.llvm.command_list``), a table with kind and argument address
    of each command, the argument words of all commands, then the clock stamps. Stamps and calls alternate.
    ``begins``: position of the first word of each call. ``record``: takes the position of a call and the floating-point
    flags that it raised, before the next call is made. ``position``: the call that raised flags last.
    """

    def __init__(self, calls: Sequence[KernelCall], record: Callable[[int, int], None]) -> None:
        executor = code_cache.find(EXECUTOR)
        assert executor is not None
        self._executor, self._calls, self._record, self.position, self._left = executor, calls, record, 0, 0
        kinds = [kind for call in calls if (kind := command_list.kind_of(call)) is not None]
        commands = [(kind, command_list.words_of(call, kind)) for call, kind in zip(calls, kinds, strict=True)]
        n = 2 * len(calls) + 1
        self._stamps = command_list.HEAD + 2 * n + sum(len(words) for _, words in commands)
        self.memory = memory = array("q", bytes(8 * (self._stamps + len(calls) + 1)))
        self._address = memory.buffer_info()[0]
        memory[0], memory[command_list.N_CALLS] = self._address + 8 * command_list.HEAD, n
        memory[command_list.STOP_FLAGS], memory[command_list.CONDITION] = REPORTED, self.address_of(_TRUE)
        self.begins, at = list[int](), command_list.HEAD + 2 * n
        table = [(command_list.STAMP, self._stamps)]
        for op, (kind, words) in enumerate(commands, 1):
            memory[at : at + len(words)] = array("q", words)
            self.begins.append(at + 1)  # the address of the function comes first
            table += [(kind, at), (command_list.STAMP, self._stamps + op)]
            at += len(words)
        rows = [x for kind, place in table for x in (kind, self._address + 8 * place)]
        memory[command_list.HEAD : command_list.HEAD + 2 * n] = array("q", rows)

    def __call__(self) -> CommandListResult:
        """Execute the list.

        The executor returns after each call that raised a floating-point flag; the flag is assigned to the call's op,
        and execution resumes after it. Repetitions end with the one in which a flag is recorded.
        """
        memory, status, n = self.memory, unit(), 2 * len(self._calls) + 1
        memory[NEXT_CALL] = 0
        status.clear()
        self._executor(self._address)
        while memory[NEXT_CALL] < n or (memory[NEXT_CALL] == n and memory[REPETITIONS]):
            self.position = op = memory[NEXT_CALL] // 2 - 1
            if flags := self._calls[op].checked(status.read()):
                self._record(op, flags)
                self._left += memory[REPETITIONS]
                memory[REPETITIONS] = 0
            status.clear()
            self._executor(self._address)
        return CommandListResult(memory[self._stamps :])

    def repeat(self, n: int, changes: Sequence[Change], condition: int) -> CommandListResult:
        """Execute the list up to ``n`` times, and no more after a repetition in which an op raised a flag.

        ``changes``: words that change before each repetition. ``condition``: the address of a byte that must not be 0
        then; 0 if there is none. The words and the byte at that address may be words of ``memory``.
        """
        memory, self._left = self.memory, 0
        words = array("q", [word for change in changes for word in change])
        memory[REPETITIONS], memory[N_CHANGES], memory[CHANGES] = n - 1, len(changes), words.buffer_info()[0]
        memory[CONDITION] = condition or self.address_of(_TRUE)
        try:
            stamps = self().stamps
            return CommandListResult(stamps, n - self._left - memory[REPETITIONS])
        finally:
            memory[REPETITIONS] = 0

    def address_of(self, word: int) -> int:
        """Return the address of a word of ``memory``."""
        return address_of_word(self.memory, word)
