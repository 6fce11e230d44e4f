"""Parallel for: threads take calls from a shared list until none is left, without returning to Python.

Dynamic assignment balances the load: with equal parts assigned beforehand, threads would wait for the slowest of them,
and for the one that wakes last.
"""

from __future__ import annotations

from dataclasses import dataclass

from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.routine import ONE, ZERO, Routine, module, number

# Words of a call: the function, its argument, the word of the argument that takes the address of the thread's scratch
# (-1: none), and the raised floating-point flags.
CALL = ("function", "argument", "scratch", "status")
# Words shared by the threads: the next call, the number of calls, the number completed, the address of the calls, the
# raised flags of all calls, and the number of the run.
SHARED = ("next", "count", "done", "calls", "seen", "run")
_PATIENCE = 2000  # times that a thread checks for calls still running, each after a pause of some 20 ns
_FLAGS = 0x3F  # of the unit's status word


@dataclass(frozen=True, slots=True)
class ParallelForCode:
    """The code of the loop; all its instances are equal.

    Its argument is an array of i64: the address of the shared words, and that of the thread's scratch. It returns when
    every call is complete, or after a short wait for other threads' calls.
    """


def parallel_for_ir(name: str) -> str:
    """Return its LLVM IR."""
    f = Routine(name, "words", "", linkage="")
    memory = f.make("alloca i32", "ptr", 0)
    shared, scratch = f.pointer_in(f["words"], 0), f.word(f["words"], 1)
    place = {word: f.words(shared, k) for k, word in enumerate(SHARED)}
    count, calls = f.word(shared, SHARED.index("count")), f.pointer_in(shared, SHARED.index("calls"))

    def taken(run: IrValue) -> list[IrValue]:
        return [run, f.update_shared("add", place["next"], ONE)]

    def one(carried: list[IrValue]) -> list[IrValue]:
        run, i = carried
        words = f.words(calls, f.times(i, len(CALL)))
        function, argument = (f.pointer_in(words, k) for k in range(2))
        takes_scratch = f.word(words, CALL.index("scratch"))

        def give_scratch() -> list[IrValue]:
            f.store(scratch, f.words(argument, takes_scratch))
            this_run = f.load_shared(place["run"])
            f.when(f.whether("ne", this_run, run), lambda: f.store(ZERO, f.as_pointer(scratch)))
            return [this_run]

        (run,) = f.choose(f.whether("sge", takes_scratch, 0), give_scratch, lambda: [run])
        f.set_status_word(memory, f.binary("and", f.status_word(memory), f.constant(~_FLAGS, "i32")))
        f.run_at(function, argument)
        flags = f.cast("zext", f.binary("and", f.status_word(memory), f.constant(_FLAGS, "i32")), "i64")
        f.store(flags, f.words(words, CALL.index("status")))
        f.update_shared("or", place["seen"], flags)
        f.update_shared("add", place["done"], ONE)
        return taken(run)

    f.repeat(taken(number(-1)), lambda carried: f.whether("slt", carried[1], count), one)

    def waits(carried: list[IrValue]) -> IrValue:
        unfinished = f.whether("slt", f.load_shared(place["done"]), count)
        return f.both(unfinished, f.whether("slt", carried[0], _PATIENCE))

    def pause(carried: list[IrValue]) -> list[IrValue]:
        f.run_intrinsic("x86.sse2.pause")
        return [f.plus(carried[0], 1)]

    f.repeat([ZERO], waits, pause)
    return module([f])
