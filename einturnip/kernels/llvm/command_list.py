"""Command lists: calls recorded as numbers, and the machine code that runs them in order.

Between two calls made from Python, a thread releases the interpreter lock and takes it again; with several threads,
each waits for the others. One call that runs a hundred commands does this once.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.routine import ONE, ZERO, Branch, Routine, module
from einturnip.kernels.protocol import KernelCall

# Kinds of commands. CALL: call a machine code function with its one argument. FILL: fill words of 4 or 8 bytes. STAMP:
# store the processor's clock. GEMM: of f32 or f64, by a library whose sizes have 32 or 64 bits. COPY: copy rows.
CALL, FILL4, FILL8, GEMM, STAMP, COPY = 0, 1, 2, 3, 7, 8
KINDS = {("float32", 4): 3, ("float64", 4): 4, ("float32", 8): 5, ("float64", 8): 6}
# Words of the argument before the table: the table's address, the number of calls, the next call, the flags that stop
# the executor; then how often it repeats the list: the number of further repetitions, the address of the byte that must
# not be 0 for one to begin, the number of words that change before it, and the address of the changes.
N_CALLS, NEXT_CALL, STOP_FLAGS, REPETITIONS, CONDITION, N_CHANGES, CHANGES, HEAD = 1, 2, 3, 4, 5, 6, 7, 8
CHANGE_WORDS = 3
"""Words of a change: the address of the word that changes, the number that is added to it, and a factor of that number
afterwards; with -1 the word alternates between two values."""
# Words of a GEMM: their number; alpha and beta.
GEMM_WORDS, SCALARS = 15, (7, 12)
_FILLED = 16  # words that a fill stores at once
COPY_BYTES = ctypes.CDLL(None).memmove
"""The C library's ``memmove``: addresses of the target and the source, number of bytes."""
COPY_ROWS = 3
"""The position of further words of a command that copies: the number of rows, and the bytes between two of them in the
target and in the source."""
ONE_ROW = (1, 0, 0)
COPY_BYTES.argtypes, COPY_BYTES.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None


@dataclass(frozen=True, slots=True)
class CommandListExecutor:
    """The code that runs a command list; all its instances are equal.

    Its argument is an array of i64 that begins with HEAD words: the address of the table, the number of calls, the next
    call, and flags of the floating-point unit's status word (1 is "invalid"); the executor stops after a call that
    raised one of these flags. The table has two words for each call: its kind and the address of its arguments.

    After the last call the list is repeated, with changed words, as often as the head says. If its condition does not
    hold any more, the next call is one beyond the end.
    """


def entry(function: Any) -> int:
    """Return the address of a function's code."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def kind_of(call: KernelCall) -> int | None:
    """Return the kind of a prepared call as a command; None if the executor cannot make the call."""
    function: Any = call.function
    if function is None or isinstance(call.words, array):
        return None if function is None else CALL
    if function is COPY_BYTES:
        return COPY
    types: Sequence[Any] = getattr(function, "argtypes", None) or ()
    if len(types) != GEMM_WORDS - 1:
        return None
    name = {ctypes.c_float: "float32", ctypes.c_double: "float64"}.get(types[SCALARS[0] - 1], "")
    return KINDS.get((name, ctypes.sizeof(types[3])))


def words_of(call: KernelCall, kind: int) -> list[int]:
    """Return the argument words of a command: the address of the call's function, then its words."""
    if kind in (CALL, COPY):
        return [entry(call.function), *call.words, *(ONE_ROW if kind == COPY else ())]
    name = next(name for (name, _), gemm in KINDS.items() if gemm == kind)
    words = (_bits(word, name) if k in SCALARS else word for k, word in enumerate(call.words, 1))
    return [entry(call.function), *words]


def _bits(value: float, name: str) -> int:
    (word,) = struct.unpack("<i", struct.pack("<f", value)) if name == "float32" else struct.unpack(
        "<q", struct.pack("<d", value))  # fmt: skip
    return int(word)


def command_list_ir(name: str) -> str:
    """Return its LLVM IR."""
    f = Routine(name, "words", "", linkage="")
    head, memory = f["words"], f.make("alloca i32", "ptr", 0)
    table, count = f.pointer_in(head, 0), f.word(head, N_CALLS)
    stops, none = f.cast("trunc", f.word(head, STOP_FLAGS), "i32"), f.constant(0, "i32")

    def one(carried: list[IrValue]) -> list[IrValue]:
        i = carried[0]
        kind, words = f.word(table, f.times(i, 2)), f.pointer_in(f.words(table, f.times(i, 2)), 1)
        cases: dict[int, Branch] = {
            CALL: lambda: f.run_at(f.pointer_in(words, 0), f.words(words, 1)),
            FILL4: lambda: _fill(f, words, "i32"),
            FILL8: lambda: _fill(f, words, "i64"),
            COPY: lambda: _copy(f, words),
            STAMP: lambda: f.store(f.call("llvm.readcyclecounter", [], "i64", 0), words),
        }
        cases |= {kind: partial(_gemm, f, words, name, size) for (name, size), kind in KINDS.items()}
        f.switch(kind, cases)
        raised = f.binary("and", f.status_word(memory), stops)
        following = f.plus(i, 1)
        return [following, f.select(f.compare("icmp ne", raised, none), following, carried[1]), raised]

    def again() -> list[IrValue]:
        """Begin another repetition if the condition holds; returns the next call, and whether to go on."""

        def begin() -> list[IrValue]:
            f.store(f.minus(f.word(head, REPETITIONS), 1), f.words(head, REPETITIONS))
            changes = f.pointer_in(head, CHANGES)
            f.span(ZERO, f.word(head, N_CHANGES), lambda i: _change(f, f.words(changes, f.times(i, CHANGE_WORDS))))
            return [ZERO, ONE]

        byte = f.load(f.pointer_in(head, CONDITION), "i8")
        return f.choose(f.compare("icmp ne", byte, f.constant(0, "i8")), begin, lambda: [f.plus(count, 1), ZERO])

    def list_once(carried: list[IrValue]) -> list[IrValue]:
        following, _, raised = f.repeat(
            [carried[0], count, none], lambda within: f.whether("slt", within[0], within[1]), one
        )
        ended = f.both(f.whether("eq", following, count), f.compare("icmp eq", raised, none))
        repeats = f.both(ended, f.whether("sgt", f.word(head, REPETITIONS), 0))
        return f.choose(repeats, again, lambda: [following, ZERO])

    following, _ = f.repeat([f.word(head, NEXT_CALL), ONE], lambda carried: f.whether("ne", carried[1], 0), list_once)
    f.store(following, f.words(head, NEXT_CALL))
    return module([f])


def _change(f: Routine, change: IrValue) -> None:
    """Add to a word, and multiply the number that is added by its factor."""
    place, added, factor = f.pointer_in(change, 0), f.word(change, 1), f.word(change, 2)
    f.store(f.plus(f.word(place, 0), added), place)
    f.store(f.times(added, factor), f.words(change, 1))


def _copy(f: Routine, words: IrValue) -> None:
    """Call ``memmove`` for each row. Arguments: its address, then its own, then those of COPY_ROWS."""
    move, target, source = (f.pointer_in(words, k) for k in range(3))
    nbytes, rows, to, by = (f.word(words, k) for k in range(3, 7))
    f.span(ZERO, rows, lambda i: f.run_at(move, f.at(target, f.times(i, to)), f.at(source, f.times(i, by)), nbytes))


def _fill(f: Routine, words: IrValue, kind: str) -> None:
    """Fill words. Arguments: an address, the number of words, and the word."""
    place, count, word = f.pointer_in(words, 0), f.word(words, 1), f.word(words, 2)
    size, value = {"i32": 4, "i64": 8}[kind], word if kind == "i64" else f.cast("trunc", word, kind)
    whole, many = f.minus(count, f.integer("urem", count, _FILLED)), f.splat(value, _FILLED)
    f.span(ZERO, whole, lambda i: f.store(many, f.at(place, f.times(i, size))), _FILLED)
    f.span(whole, count, lambda i: f.store(value, f.at(place, f.times(i, size))))


def _gemm(f: Routine, words: IrValue, dtype: str, size: int) -> None:
    """Call cblas_?gemm. Arguments: its address, then its own, with alpha and beta by their bits."""
    whole, real = f"i{8 * size}", "float" if dtype == "float32" else "double"
    kinds = ["i32"] * 3 + [whole] * 3 + [real, "ptr", whole, "ptr", whole, real, "ptr", whole]
    places = (f.words(words, k) for k in range(1, GEMM_WORDS))
    f.run_at(f.pointer_in(words, 0), *(f.load(place, kind) for place, kind in zip(places, kinds, strict=True)))
