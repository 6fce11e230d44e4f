"""Rows of a table, by their numbers: what NumPy takes under the interpreter's lock, one thread at a time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.memory import METADATA
from einturnip.kernels.llvm.routine import ZERO, Routine

LINE = 64
_LANES = 16
_AHEAD = 8  # rows whose first lines are fetched before their time
_FETCHED = 2048  # bytes of each of those
# Bytes of rows from which on they are stored past the caches, where they are whole lines.
STREAMED_NBYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RowTakeCode:
    """The code that takes rows; there is one.

    Its argument is an array of i64: WORDS. A number that is none of a row's counts as the nearest that is.
    """


WORDS = ("table", "numbers", "count", "last", "step", "row_nbytes", "out", "out_step", "streams")


def take_rows_ir(name: str) -> str:
    """The LLVM IR of it."""
    made = _Take(name)
    return "\n".join([made.text, *made.declared]) + f"\n{METADATA}"


def arguments(table: Array, step: int, last: int, numbers: Array, row_nbytes: int, out: Array, to: int) -> array[int]:
    """The argument: row ``numbers[i]``, so many ``step`` of bytes into the table, goes ``i * to`` bytes into ``out``.

    Shapes:
        numbers: i64, a vector in one run.
    """
    at, place = table.__array_interface__["data"][0], out.__array_interface__["data"][0]
    streams = row_nbytes * numbers.size >= STREAMED_NBYTES and not (place | to | row_nbytes) % LINE
    numbered = numbers.__array_interface__["data"][0]
    return array("q", [at, numbered, numbers.size, last, step, row_nbytes, place, to, streams])


class _Take(Routine):
    def __init__(self, name: str) -> None:
        super().__init__(name, "words", "", linkage="")
        self.of = {text: self.word(self["words"], k) for k, text in enumerate(WORDS)}
        self.places = {text: self._pointer(self.of[text]) for text in ("table", "numbers", "out")}
        self.either(self.whether("ne", self.of["streams"], 0), lambda: self._rows(True), lambda: self._rows(False))
        self.declared.setdefault("declare void @llvm.x86.sse.sfence()")
        self.line("call void @llvm.x86.sse.sfence()")

    def _pointer(self, address: IrValue) -> IrValue:
        return self.make(f"inttoptr {address} to ptr", "ptr", 0)

    def _row(self, i: IrValue) -> IrValue:
        """Where a row of the table begins."""
        found = self.intrinsic("smax", self.word(self.places["numbers"], i), ZERO)
        return self.at(self.places["table"], self.times(self.least(found, self.of["last"]), self.of["step"]))

    def _rows(self, streams: bool) -> None:
        last, nbytes = self.minus(self.of["count"], 1), self.of["row_nbytes"]

        def one(i: IrValue) -> None:
            ahead = self._row(self.least(self.plus(i, _AHEAD), last))
            self.each(self.least(nbytes, _FETCHED), LINE, lambda b: self.prefetch(self.at(ahead, b)))
            self._copy(self._row(i), self.at(self.places["out"], self.times(i, self.of["out_step"])), nbytes, streams)

        self.each(self.of["count"], 1, one)

    def _copy(self, source: IrValue, target: IrValue, nbytes: IrValue, streams: bool) -> None:
        def line(i: IrValue) -> None:
            at = self.times(i, LINE)
            put = self.stream if streams else self.store
            put(self.load(self.at(source, at), "float", _LANES), self.at(target, at))

        lines = self.over(nbytes, LINE)
        self.each(lines, 1, line)
        if streams:  # of whole lines
            return
        begin = self.times(lines, LINE)
        for size, kind in ((8, "i64"), (1, "i8")):
            begin = self._rest(source, target, begin, nbytes, size, kind)

    def _rest(self, source: IrValue, target: IrValue, begin: IrValue, nbytes: IrValue, size: int, kind: str) -> IrValue:
        """The bytes from ``begin`` on in words of one size; gives where the last whole one ends."""
        count = self.over(self.minus(nbytes, begin), size)

        def word(i: IrValue) -> None:
            at = self.plus(begin, self.times(i, size))
            self.store(self.load(self.at(source, at), kind), self.at(target, at))

        self.each(count, 1, word)
        return self.plus(begin, self.times(count, size))


def fits(numbers: Array) -> bool:
    """Whether rows' numbers are as the code reads them."""
    return numbers.dtype == np.int64 and numbers.flags.c_contiguous and numbers.flags.aligned
