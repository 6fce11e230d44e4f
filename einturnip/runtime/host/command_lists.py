"""Command lists: consecutive kernels of machine code or BLAS, executed by one call from Python.

A call from Python costs some microseconds on top of its kernel, as much as a product of small matrices takes.
``kernels.llvm.command_list`` defines the format and compiles the executor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from einturnip.kernels.fp_status import REPORTED, unit
from einturnip.kernels.llvm import code_cache, command_list
from einturnip.kernels.protocol import KernelCall
from einturnip.kernels.select import Code

EXECUTOR: Code = command_list.CommandListExecutor()
"""Machine code that executes a command list."""


class CommandListResult(NamedTuple):
    """Times of the ops of a command list.

    ``stamps``: the processor's clock before the first op and after each op.
    """

    stamps: array[int]

    def ends(self, begin: float, end: float) -> list[float]:
        """Return when each op ended, on the clock by which the list began and ended. Units: seconds."""
        first, last = self.stamps[0], self.stamps[-1]
        rate = (end - begin) / ((last - first) or 1)
        return [begin + rate * (stamp - first) for stamp in self.stamps[1:]]


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
        self._executor, self._calls, self._record, self.position = executor, calls, record, 0
        kinds = [kind for call in calls if (kind := command_list.kind_of(call)) is not None]
        commands = [(kind, command_list.words_of(call, kind)) for call, kind in zip(calls, kinds, strict=True)]
        n = 2 * len(calls) + 1
        self._stamps = command_list.HEAD + 2 * n + sum(len(words) for _, words in commands)
        self.memory = memory = array("q", bytes(8 * (self._stamps + len(calls) + 1)))
        self._address = memory.buffer_info()[0]
        memory[0], memory[1], memory[3] = self._address + 8 * command_list.HEAD, n, REPORTED
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
        and execution resumes after it.
        """
        memory, status = self.memory, unit()
        memory[2] = 0
        status.clear()
        self._executor(self._address)
        while memory[2] < memory[1]:
            self.position = op = memory[2] // 2 - 1
            if flags := self._calls[op].checked(status.read()):
                self._record(op, flags)
            status.clear()
            self._executor(self._address)
        return CommandListResult(memory[self._stamps :])
