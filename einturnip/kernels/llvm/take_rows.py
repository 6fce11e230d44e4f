"""Gather of a table's rows by number; NumPy does it under the interpreter lock, one thread at a time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.routine import ZERO, Routine, module

LINE = 64
_LANES = 16
_AHEAD = 8  # rows that are prefetched
_FETCHED = 2048  # bytes of each that are prefetched
# Minimum bytes of all rows for non-temporal stores, which need full cache lines.
STREAMED_NBYTES = 4 << 20
_WORDS = {4: "i32", 8: "i64"}  # rows that are one word


@dataclass(frozen=True, slots=True)
class RowTakeCode:
    """The code that gathers rows; all its instances are equal.

    Its argument is the i64 array WORDS. Numbers out of range are clamped to the nearest row.
    """


WORDS = ("table", "numbers", "count", "last", "step", "row_nbytes", "out", "out_step", "narrow", "streams")


def take_rows_ir(name: str) -> str:
    """Return its LLVM IR."""
    return module([_Take(name)])


def arguments(table: Array, step: int, last: int, numbers: Array, row_nbytes: int, out: Array, to: int) -> array[int]:
    """Return the argument: row ``numbers[i]`` of the table goes ``i * to`` bytes into ``out``.

    ``step``: bytes from one row to the next in the table; ``last``: the last row's number.

    Shapes:
        numbers: i32 or i64, a contiguous vector.
    """
    at, place = table.__array_interface__["data"][0], out.__array_interface__["data"][0]
    streams = row_nbytes * numbers.size >= STREAMED_NBYTES and not (place | to | row_nbytes) % LINE
    narrow = numbers.itemsize == 4
    numbered = numbers.__array_interface__["data"][0]
    return array("q", [at, numbered, numbers.size, last, step, row_nbytes, place, to, narrow, streams])


class _Take(Routine):
    def __init__(self, name: str) -> None:
        super().__init__(name, "words", "", linkage="")
        self.of = {text: self.word(self["words"], k) for k, text in enumerate(WORDS)}
        self.places = {text: self.as_pointer(self.of[text]) for text in ("table", "numbers", "out")}
        self.narrow = self.whether("ne", self.of["narrow"], 0)
        self._of_words(list(_WORDS.items()))
        self.run_intrinsic("x86.sse.sfence")

    def _of_words(self, words: Sequence[tuple[int, str]]) -> None:
        """Gather rows of the first of these words, else of the next, else of any size."""
        if not words:
            streams = self.whether("ne", self.of["streams"], 0)
            self.either(streams, lambda: self._rows(True), lambda: self._rows(False))
            return
        nbytes, kind = words[0]
        is_word = self.whether("eq", self.of["row_nbytes"], nbytes)
        self.either(is_word, lambda: self._single_words(kind), lambda: self._of_words(words[1:]))

    def _single_words(self, kind: str) -> None:
        """Gather rows of one word each; loads that do not depend on one another overlap without a prefetch."""

        def one(i: IrValue) -> None:
            self.store(self.load(self._row(i), kind), self.at(self.places["out"], self.times(i, self.of["out_step"])))

        self.each(self.of["count"], 1, one)

    def _row(self, i: IrValue) -> IrValue:
        """Return the address of a row of the table."""
        found = self.intrinsic("smax", self.position(self.places["numbers"], i, self.narrow), ZERO)
        return self.at(self.places["table"], self.times(self.minimum(found, self.of["last"]), self.of["step"]))

    def _rows(self, streams: bool) -> None:
        last, nbytes = self.minus(self.of["count"], 1), self.of["row_nbytes"]

        def one(i: IrValue) -> None:
            ahead = self._row(self.minimum(self.plus(i, _AHEAD), last))
            self.each(self.minimum(nbytes, _FETCHED), LINE, lambda b: self.prefetch(self.at(ahead, b)))
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
        """Copy the bytes from ``begin`` on in words of one size; return where the last full word ends."""
        count = self.over(self.minus(nbytes, begin), size)

        def word(i: IrValue) -> None:
            at = self.plus(begin, self.times(i, size))
            self.store(self.load(self.at(source, at), kind), self.at(target, at))

        self.each(count, 1, word)
        return self.plus(begin, self.times(count, size))


def fits(numbers: Array) -> bool:
    """Return whether row numbers have the layout that the code reads."""
    return numbers.dtype in (np.int32, np.int64) and numbers.flags.c_contiguous and numbers.flags.aligned
