"""Parts of a multiplication: tables of where things stand, panels packed from any strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.routine import ONE, ZERO, Routine

ROWS = 12  # of a register tile; its columns are two vectors
CHUNK = 256  # terms of a left panel, which stands in the first cache
_SOON = 16  # terms of a right panel that are fetched before their time


@dataclass(frozen=True)
class ProductSpec:
    """All that the code of products hangs on."""

    dtype: DType

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def kind(self) -> str:
        """Its LLVM type."""
        return element(self.dtype)

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return 64 // self.dtype.itemsize

    @property
    def columns(self) -> int:
        """Of a register tile."""
        return 2 * self.width

    @property
    def line_nbytes(self) -> int:
        """Of a row of the left panel; odd in lines, so that rows do not stand in each other's way in the cache."""
        return CHUNK * self.dtype.itemsize + 64


def place() -> Routine:
    """Where a point of a list's labels stands in a tensor: bytes, by its number; the last label runs fastest."""
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
    """Where ``count`` points stand from ``begin`` on, the last one again up to ``padded``; then, how many from each on
    lie side by side."""
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
    """One panel: ``lanes`` rows or columns of ``count`` terms, from wherever they stand.

    Vectors are loaded along whichever lies side by side, and turned in registers where the panel has the other way.
    """

    def __init__(self, what: ProductSpec, name: str, lanes: int, lane_nbytes: int, term_nbytes: int) -> None:
        super().__init__(name, "target source places runs terms term_runs ahead", "count")
        self.what, self.lane_nbytes, self.term_nbytes = what, lane_nbytes, term_nbytes
        self.by_terms = term_nbytes == what.size  # terms of a lane lie side by side in the panel
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
        """As many lanes as a vector has, or the last ones."""
        straight = self.whether("sge", self.word(self["runs"], first), n)

        def chunks() -> None:
            self.each(self["count"], self.what.width, lambda p: self._chunk(p, first, n, straight))

        if self.by_terms:
            chunks()
        else:
            self.either(straight, lambda: self.each(self["count"], 1, lambda p: self._line(p, first)), chunks)

    def _line(self, p: IrValue, first: int) -> None:
        """One term of a vector's lanes, as they lie; what comes some panels later is fetched."""
        ahead = self.at(self["source"], self.word(self["ahead"], first))
        self.prefetch(self.at(ahead, self.word(self["terms"], p)))
        self.store(self.load(self._source(first, p), self.what.kind, self.what.width), self._target(first, p))

    def _lines(self, p: IrValue, firsts: Sequence[int]) -> None:
        """One term of all lanes, as they lie; terms that come soon are fetched too."""
        soon = self.word(self["terms"], self.least(self.plus(p, _SOON), self.minus(self["count"], 1)))
        here = self.at(self["source"], self.word(self["places"], 0))
        for first in firsts:
            self.prefetch(self.at(self.at(here, soon), first * self.what.size))
            self._line(p, first)

    def _chunk(self, p: IrValue, first: int, n: int, straight: IrValue) -> None:
        """As many terms as a vector has; at the end the last so many, some of them again."""
        last = self.minus(self["count"], self.what.width)
        enough = self.whether("sge", last, 0)
        start = self.select(enough, self.least(p, last), p)
        along = self.both(enough, self.whether("sge", self.word(self["term_runs"], start), self.what.width))

        def singly() -> None:
            end = self.least(self.plus(start, self.what.width), self["count"])
            self.each(self.minus(end, start), 1, lambda q: self._column(self.plus(start, q), first, n))

        def others() -> None:
            if self.by_terms:
                self.either(self.both(enough, straight), lambda: self._lanes(start, first, n), singly)
            else:
                singly()

        self.either(along, lambda: self._terms(start, first, n), others)

    def _terms(self, start: IrValue, first: int, n: int) -> None:
        """Lanes whose terms lie side by side."""
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
        """Terms whose lanes lie side by side, turned."""
        kind, width = self.what.kind, self.what.width
        mask = IrValue(f"<{', '.join(f'i1 {int(j < n)}' for j in range(width))}>", "i1", width)
        places = [self._source(first, self.plus(start, q)) for q in range(width)]
        rows = self.transposed([self.load_some(place, kind, mask) for place in places])
        for j in range(n):
            self.store(rows[j], self._target(first + j, start))

    def _column(self, p: IrValue, first: int, n: int) -> None:
        """One term, element by element."""
        for j in range(n):
            self.store(self.load(self._source(first + j, p), self.what.kind), self._target(first + j, p))


def packs(what: ProductSpec) -> list[Routine]:
    """``pack_left``: rows one after the other; ``pack_right``: the columns of a term side by side."""
    right = what.columns * what.size
    return [
        PanelPack(what, "pack_left", ROWS, what.line_nbytes, what.size),
        PanelPack(what, "pack_right", what.columns, what.size, right),
    ]
