"""Routines of a product: tables of offsets, and panels packed from any strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.routine import ONE, ZERO, Routine

ROWS = 12  # of a register tile; its columns are two vectors
CHUNK = 256  # terms of a left panel, which stays in the first-level cache
_SOON = 16  # terms of a right panel that are prefetched


@dataclass(frozen=True)
class ProductSpec:
    """All that the code of products depends on."""

    dtype: DType

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def kind(self) -> str:
        """LLVM type of an element."""
        return element(self.dtype)

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return 64 // self.dtype.itemsize

    @property
    def columns(self) -> int:
        """Columns of a register tile."""
        return 2 * self.width

    @property
    def line_nbytes(self) -> int:
        """Bytes of a row of the left panel: an odd number of cache lines, to avoid conflict misses."""
        return CHUNK * self.dtype.itemsize + 64


def place() -> Routine:
    """Return the routine that computes the byte offset of a point in a list of labels, the last fastest."""
    f = Routine("place", "list", "number word", "i64")
    count = f.word(f["list"], 0)

    def body(turn: IrValue, carried: list[IrValue]) -> list[IrValue]:
        left, offset = carried
        label = f.at(f["list"], f.plus(f.times(f.minus(f.minus(count, 1), turn), 32), 8))
        extent = f.word(label, 0)
        moved = f.times(f.integer("urem", left, extent), f.word(label, f["word"]))
        return [f.over(left, extent), f.plus(offset, moved)]

    _, offset = f.loop(ZERO, count, 1, [f["number"], ZERO], body)
    f.end = f"ret {offset}"
    return f


def table(what: ProductSpec) -> Routine:
    """Return the routine that tabulates byte offsets of points, and the lengths of contiguous runs.

    ``count`` points from ``begin`` on; the last offset is repeated up to ``padded``.
    """
    f = Routine("table", "places runs list", "begin count padded word")
    inner = f.at(f["list"], f.plus(f.times(f.word(f["list"], 0), 32), 8 - 32))
    extent, step = f.word(inner, 0), f.word(inner, f["word"])

    def fill(i: IrValue, carried: list[IrValue]) -> list[IrValue]:
        before, left = carried

        def anew() -> list[IrValue]:
            point = f.plus(f["begin"], i)
            here = f.make(f"call i64 @place({f['list']}, {point}, {f['word']})", "i64", 0)
            return [here, f.minus(extent, f.integer("urem", point, extent))]

        here, left = f.choose(f.whether("eq", left, 0), anew, lambda: [f.plus(before, step), left])
        f.store(here, f.words(f["places"], i))
        return [here, f.minus(left, 1)]

    last, _ = f.loop(ZERO, f["count"], 1, [ZERO, ZERO], fill)
    f.each(f.minus(f["padded"], f["count"]), 1, lambda i: f.store(last, f.words(f["places"], f.plus(f["count"], i))))

    def back(turn: IrValue, carried: list[IrValue]) -> list[IrValue]:
        i = f.minus(f.minus(f["padded"], 1), turn)
        behind, run = carried
        here = f.word(f["places"], i)
        run = f.select(f.whether("eq", f.minus(behind, here), what.size), f.plus(run, 1), ONE)
        f.store(run, f.words(f["runs"], i))
        return [here, run]

    f.loop(ZERO, f["padded"], 1, [ZERO, ZERO], back)
    return f


class PanelPack(Routine):
    """Packs one panel: ``lanes`` rows or columns of ``count`` terms, from any strides.

    Vectors are loaded along the contiguous direction, and transposed in registers if the panel has the other one.
    """

    def __init__(self, what: ProductSpec, name: str, lanes: int, lane_nbytes: int, term_nbytes: int) -> None:
        super().__init__(name, "target source places runs terms term_runs ahead", "count")
        self.what, self.lane_nbytes, self.term_nbytes = what, lane_nbytes, term_nbytes
        self.by_terms = term_nbytes == what.size  # the terms of a lane are contiguous in the panel
        firsts = range(0, lanes, what.width)

        def groups() -> None:
            for first in firsts:
                self._group(first, min(what.width, lanes - first))

        if self.by_terms:
            groups()
        else:
            together = self.whether("sge", self.word(self["runs"], 0), lanes)
            self.either(together, lambda: self.each(self["count"], 1, lambda p: self._lines(p, firsts)), groups)

    def _target(self, lane: int, term: IrValue) -> IrValue:
        return self.at(self.at(self["target"], lane * self.lane_nbytes), self.times(term, self.term_nbytes))

    def _source(self, lane: int, term: IrValue) -> IrValue:
        return self.at(self.at(self["source"], self.word(self["places"], lane)), self.word(self["terms"], term))

    def _group(self, first: int, n: int) -> None:
        """Pack a vector of lanes, or the remaining ones."""
        straight = self.whether("sge", self.word(self["runs"], first), n)

        def chunks() -> None:
            self.each(self["count"], self.what.width, lambda p: self._chunk(p, first, n, straight))

        if self.by_terms:
            chunks()
        else:
            self.either(straight, lambda: self.each(self["count"], 1, lambda p: self._line(p, first)), chunks)

    def _line(self, p: IrValue, first: int) -> None:
        """Pack one term of a contiguous vector of lanes, prefetching a later panel."""
        ahead = self.at(self["source"], self.word(self["ahead"], first))
        self.prefetch(self.at(ahead, self.word(self["terms"], p)))
        self.store(self.load(self._source(first, p), self.what.kind, self.what.width), self._target(first, p))

    def _lines(self, p: IrValue, firsts: Sequence[int]) -> None:
        """Pack one term of all lanes, which are contiguous, prefetching later terms."""
        soon = self.word(self["terms"], self.minimum(self.plus(p, _SOON), self.minus(self["count"], 1)))
        here = self.at(self["source"], self.word(self["places"], 0))
        for first in firsts:
            self.prefetch(self.at(self.at(here, soon), first * self.what.size))
            self._line(p, first)

    def _chunk(self, p: IrValue, first: int, n: int, straight: IrValue) -> None:
        """Pack a vector of terms; at the end the last vector, which may repeat some."""
        last = self.minus(self["count"], self.what.width)
        enough = self.whether("sge", last, 0)
        start = self.select(enough, self.minimum(p, last), p)
        along = self.both(enough, self.whether("sge", self.word(self["term_runs"], start), self.what.width))

        def singly() -> None:
            end = self.minimum(self.plus(start, self.what.width), self["count"])
            self.each(self.minus(end, start), 1, lambda q: self._column(self.plus(start, q), first, n))

        def others() -> None:
            if self.by_terms:
                self.either(self.both(enough, straight), lambda: self._lanes(start, first, n), singly)
            else:
                singly()

        self.either(along, lambda: self._terms(start, first, n), others)

    def _terms(self, start: IrValue, first: int, n: int) -> None:
        """Pack lanes whose terms are contiguous."""
        kind, width = self.what.kind, self.what.width
        vectors = [self.load(self._source(first + j, start), kind, width) for j in range(n)]
        if self.by_terms:
            for j, vector in enumerate(vectors):
                self.store(vector, self._target(first + j, start))
            return
        vectors += [self.constant(0, kind, width)] * (width - n)
        for q, vector in enumerate(self.transposed(vectors)):
            self.store(vector, self._target(first, self.plus(start, q)))

    def _lanes(self, start: IrValue, first: int, n: int) -> None:
        """Pack terms whose lanes are contiguous, transposed."""
        kind, width = self.what.kind, self.what.width
        mask = IrValue(f"<{', '.join(f'i1 {int(j < n)}' for j in range(width))}>", "i1", width)
        places = [self._source(first, self.plus(start, q)) for q in range(width)]
        rows = self.transposed([self.load_some(place, kind, mask) for place in places])
        for j in range(n):
            self.store(rows[j], self._target(first + j, start))

    def _column(self, p: IrValue, first: int, n: int) -> None:
        """Pack one term element by element."""
        for j in range(n):
            self.store(self.load(self._source(first + j, p), self.what.kind), self._target(first + j, p))


def packs(what: ProductSpec) -> list[Routine]:
    """Return ``pack_left``, which packs row by row, and ``pack_right``, which packs term by term."""
    right = what.columns * what.size
    return [
        PanelPack(what, "pack_left", ROWS, what.line_nbytes, what.size),
        PanelPack(what, "pack_right", what.columns, what.size, right),
    ]
