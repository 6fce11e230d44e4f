"""Packing of right panels in squares, where operand and panel are contiguous along different labels.

Vectors are loaded along the operand's contiguous direction, a square of them is transposed in registers, and stored
along the panel's. So each cache line is touched once, however far apart the lines are.
"""

from __future__ import annotations

from collections.abc import Callable

from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.routine import Routine, number

RUN = 256  # elements of a run
_AHEAD = 4  # squares that are prefetched


class TransposedBlock(Routine):
    """Common parts of packing in squares of columns and of terms.

    ``step``: points of the list between neighbours in the operand; ``part``: the number of neighbours.
    """

    def __init__(self, what: PackedSpec, name: str, pointers: str, numbers: str) -> None:
        super().__init__(name, pointers, numbers)
        self.what = what

    def _span(self, end: IrValue, body: Callable[[IrValue, IrValue], None]) -> None:
        """Loop over vectors of up to all lanes: first point, and number of lanes."""
        width = self.what.width
        self.each(end, width, lambda start: body(start, self.minimum(self.minus(end, start), width)))

    def _load_transposed(self, places: list[IrValue], count: IrValue) -> list[IrValue]:
        """Load vectors of ``count`` elements and transpose them."""
        kind, width = self.what.kind, self.what.width
        mask = self.compare("icmp slt", self.lanes("i64", width), self.splat(count, width))
        return self.transposed([self.load_or_zero(place, kind, mask) for place in places])

    def _some(self, vectors: list[IrValue], count: IrValue, body: Callable[[IrValue, IrValue], None]) -> None:
        """Run the body on the first ``count`` vectors, by way of memory."""
        size = self.what.width * self.what.size
        near = self.at(self["near"], RUN * size)
        for q, vector in enumerate(vectors):
            self.store(vector, self.at(near, q * size))

        def one(q: IrValue) -> None:
            body(q, self.load(self.at(near, self.times(q, size)), self.what.kind, self.what.width))

        self.each(count, 1, one)


class ColumnBlock(TransposedBlock):
    """Packs a square of columns: ``step`` adjacent in the result by ``part`` adjacent in the operand."""

    def __init__(self, what: PackedSpec) -> None:
        super().__init__(what, "pack_columns", "panels source columns terms near", "first step part panel_nbytes count")
        even = self.both(
            self.whether("eq", self._odd(self["first"]), 0),
            self.both(self.whether("eq", self._odd(self["step"]), 0), self.whether("eq", self._odd(self["part"]), 0)),
        )
        self.either(even, lambda: self._all(True), lambda: self._all(False))

    def _odd(self, n: IrValue) -> IrValue:
        return self.integer("urem", n, self.what.width)

    def _all(self, even: bool) -> None:
        def lanes(start: IrValue, n: IrValue) -> None:
            self.each(self["count"], 1, lambda p: self._term(start, n, p, even))

        self._span(self["step"], lanes)

    def _term(self, start: IrValue, n: IrValue, p: IrValue, even: bool) -> None:
        """Pack lanes from ``start`` on of a term: copy each lane's run, then transpose squares of them."""
        here = self.at(self["source"], self.word(self["terms"], p))
        following = self.minimum(self.plus(p, _AHEAD), self.minus(self["count"], 1))
        ahead = self.at(self["source"], self.word(self["terms"], following))
        nbytes = RUN * self.what.size

        def run(begin: IrValue) -> None:
            length = self.minimum(self.minus(self["part"], begin), RUN)
            column = self.plus(self["first"], self.plus(start, self.times(begin, self["step"])))

            def lane(j: IrValue) -> None:
                moved = self.word(self["columns"], self.plus(column, j))
                source, later = self.at(here, moved), self.at(ahead, moved)
                self.prefetch(later)
                self.prefetch(self.at(later, self.times(self.minus(length, 1), self.what.size)))
                target = self.at(self["near"], self.times(j, nbytes))
                self._span(length, lambda q, m: self._copy(source, target, q, m))

            self.each(n, 1, lane)
            self._span(length, lambda q, m: self._square(column, n, p, q, m, even))

        self.each(self["part"], RUN, run)

    def _copy(self, source: IrValue, target: IrValue, q: IrValue, m: IrValue) -> None:
        kind, width, size = self.what.kind, self.what.width, self.what.size
        mask = self.compare("icmp slt", self.lanes("i64", width), self.splat(m, width))
        at = self.times(q, size)
        self.store(self.load_or_zero(self.at(source, at), kind, mask), self.at(target, at))

    def _square(self, first: IrValue, n: IrValue, p: IrValue, q: IrValue, m: IrValue, even: bool) -> None:
        """Pack one square of lanes, from neighbour ``q`` on."""
        what, step = self.what, self["step"]
        column = self.plus(first, self.times(q, step))
        near = self.at(self["near"], self.times(q, what.size))
        rows = [self.load(self.at(near, j * RUN * what.size), what.kind, what.width) for j in range(what.width)]
        vectors = self.transposed(rows)
        if even:
            for k, vector in enumerate(vectors):
                self.store(vector, self._place(self.plus(column, self.times(step, k)), p)[0])
        else:
            self._some(vectors, m, lambda k, vector: self._put(self.plus(column, self.times(step, k)), p, n, vector))

    def _place(self, column: IrValue, p: IrValue) -> tuple[IrValue, IrValue]:
        """Return the address of a column's element, and the lanes of its panel from it on."""
        what = self.what
        panel, lane = self.over(column, what.columns), self.integer("urem", column, what.columns)
        offset = self.plus(self.times(panel, self["panel_nbytes"]), self.times(lane, what.size))
        place = self.at(self["panels"], self.plus(offset, self.times(p, what.term_nbytes)))
        return place, self.minus(number(what.columns), lane)

    def _put(self, column: IrValue, p: IrValue, n: IrValue, vector: IrValue) -> None:
        """Store the first ``n`` lanes, which may continue in the next panel."""
        what, lanes = self.what, self.lanes("i64", self.what.width)
        place, available = self._place(column, p)
        here = self.minimum(n, available)
        self.masked_store(vector, place, self.compare("icmp slt", lanes, self.splat(here, what.width)))
        inside = self.compare("icmp slt", lanes, self.splat(n, what.width))
        rest = self.both(inside, self.compare("icmp sge", lanes, self.splat(here, what.width)))
        further = self.at(place, self.minus(self["panel_nbytes"], what.columns * what.size))
        self.when(self.whether("sgt", n, here), lambda: self.masked_store(vector, further, rest))


class TermBlock(TransposedBlock):
    """Packs terms of a vector of columns, in squares of ``step`` times ``part`` terms."""

    def __init__(self, what: PackedSpec) -> None:
        super().__init__(what, "pack_terms", "panel source columns terms near", "step part count")
        self.blocks(self["count"], self.times(self["step"], self["part"]), self._one)

    def _one(self, first: IrValue) -> None:
        def terms(o: IrValue) -> None:
            self._span(self["part"], lambda q, m: self._square(self.plus(self.plus(first, o), self._by(q)), m))

        self.each(self["step"], 1, terms)

    def _by(self, q: IrValue) -> IrValue:
        return self.times(q, self["step"])

    def _square(self, term: IrValue, m: IrValue) -> None:
        """Pack a vector of columns from a term on."""
        width, nbytes = self.what.width, self.what.term_nbytes
        rows = [self.words(self["columns"], j) for j in range(width)]
        following = self.minimum(self.plus(term, _AHEAD), self.minus(self["count"], 1))
        ahead = self.at(self["source"], self.word(self["terms"], following))
        for row in rows:
            self.prefetch(self.at(ahead, self.load(row, "i64")))
        here = self.at(self["source"], self.word(self["terms"], term))
        vectors = self._load_transposed([self.at(here, self.load(row, "i64")) for row in rows], m)

        def place(q: IrValue) -> IrValue:
            return self.at(self["panel"], self.times(self.plus(term, self._by(q)), nbytes))

        def every() -> None:
            for q, vector in enumerate(vectors):
                self.store(vector, place(number(q)))

        def some() -> None:
            self._some(vectors, m, lambda q, vector: self.store(vector, place(q)))

        self.either(self.whether("eq", m, width), every, some)
