"""Parts of a multiplication: a tile of the result in registers, and how it is put where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from einturnip.codegen.native.ir import Value
from einturnip.codegen.native.panels import ROWS, Multiplication
from einturnip.codegen.native.routine import ZERO, Routine, number

# What becomes of a tile: it is put where it belongs, added to what is there, or put there past the caches.
PUTS, ADDS, STREAMS = range(3)
HEIGHTS = (4, ROWS)  # of tiles: the last rows are done in a lower one where they are few


def tile(what: Multiplication, height: int, vectors: int) -> Routine:
    """The sum over terms of a column of the left panel times a row of the right one.

    Meanwhile what the next left panel is made of is fetched, an element a term: so often each row's lines are met.
    """
    f = Routine(f"tile{height}x{vectors}", "target left right source ahead terms", "count")
    size, width, kind = what.size, what.width, what.kind

    def term(p: Value, carried: list[Value]) -> list[Value]:
        row, *sums = carried
        f.prefetch(f.at(f["source"], f.plus(f.word(f["ahead"], row), f.word(f["terms"], p))))
        following = f.plus(row, 1)
        left, right = f.at(f["left"], f.times(p, size)), f.at(f["right"], f.times(p, what.columns * size))
        many = [f.load(f.at(right, v * width * size), kind, width) for v in range(vectors)]
        made = []
        for i in range(height):
            one = f.splat(f.load(f.at(left, i * what.line_nbytes), kind), width)
            made += [f.intrinsic("fma", one, many[v], sums[vectors * i + v]) for v in range(vectors)]
        return [f.select(f.whether("eq", following, ROWS), ZERO, following), *made]

    zeros = [f.constant(0, kind, width)] * (height * vectors)
    _, *sums = f.loop(ZERO, f["count"], 1, [ZERO, *zeros], term)
    for k, value in enumerate(sums):
        row, v = divmod(k, vectors)
        f.store(value, f.at(f["target"], (2 * row + v) * width * size))
    return f


class Update(Routine):
    """A register tile, times a factor, put where it belongs or added to what is there."""

    def __init__(self, what: Multiplication) -> None:
        super().__init__("update", "tile out rows columns runs factor", "height breadth how")
        self.what = what
        factor = self.load(self["factor"], "double")
        self.factor = factor if what.kind == "double" else self.cast("fptrunc", factor, what.kind)
        self.factors = self.splat(self.factor, what.width)
        self.adds = self.whether("eq", self["how"], ADDS)
        for v in range(2):
            self._vectors(v * what.width)

    def _vectors(self, first: int) -> None:
        """Columns from ``first`` on, as many as a vector has or there are."""
        width = self.what.width
        there = self.least(self.minus(self["breadth"], first), width)
        whole = self.both(self.whether("sge", self.word(self["runs"], first), width), self.whether("eq", there, width))
        near = self.address(self._places(ZERO, first, 0)[1])
        even = self.whether("eq", self.integer("and", near, width * self.what.size - 1), 0)
        streams = self.both(even, self.whether("eq", self["how"], STREAMS))

        def full() -> None:
            put, add, stream = (partial(self._rows, partial(self._whole, first=first, how=how)) for how in range(3))
            self.either(self.adds, add, lambda: self.either(streams, stream, put))

        self.when(self.whether("sgt", there, 0), lambda: self.either(whole, full, lambda: self._parts(first, there)))

    def _rows(self, body: Callable[[Value], None]) -> None:
        self.each(self["height"], 1, body)

    def _parts(self, first: int, there: Value) -> None:
        """Columns that lie side by side together, then those after them."""

        def column(j: Value, carried: list[Value]) -> list[Value]:
            def run() -> list[Value]:
                count = self.least(self.word(self["runs"], self.plus(j, first)), self.minus(there, j))
                several = self.whether("sgt", count, 1)
                some, one = (partial(body, first=first, j=j, count=count) for body in (self._part, self._one))
                self.either(several, lambda: self._rows(some), lambda: self._rows(one))
                return [self.plus(j, count)]

            return self.choose(self.whether("eq", j, carried[0]), run, lambda: carried)

        self.loop(ZERO, there, 1, [ZERO], column)

    def _places(self, i: Value, first: int, j: Value | int) -> tuple[Value, Value]:
        """Where an element of the tile stands, and where it belongs."""
        size, j = self.what.size, self.plus(number(j), first)
        here = self.at(self["tile"], self.plus(self.times(i, self.what.columns * size), self.times(j, size)))
        return here, self.at(self.at(self["out"], self.word(self["rows"], i)), self.word(self["columns"], j))

    def _whole(self, i: Value, first: int, how: int) -> None:
        kind, width = self.what.kind, self.what.width
        here, there = self._places(i, first, 0)
        value = self.binary("fmul", self.load(here, kind, width), self.factors)
        if how == STREAMS:
            self.stream(value, there)
        else:
            self.store(self.binary("fadd", self.load(there, kind, width), value) if how == ADDS else value, there)

    def _part(self, i: Value, first: int, j: Value, count: Value) -> None:
        kind, width = self.what.kind, self.what.width
        mask = self.compare("icmp slt", self.lanes("i64", width), self.splat(count, width))
        adds = self.splat(self.adds, width)
        here, there = self._places(i, first, j)
        value = self.binary("fmul", self.load_some(here, kind, mask), self.factors)
        before = self.load_some(there, kind, self.both(mask, adds))
        self.store_some(self.select(adds, self.binary("fadd", before, value), value), there, mask)

    def _one(self, i: Value, first: int, j: Value, count: Value) -> None:
        kind = self.what.kind
        here, there = self._places(i, first, j)
        value = self.binary("fmul", self.load(here, kind), self.factor)
        ways = (lambda: [self.binary("fadd", self.load(there, kind), value)]), (lambda: [value])
        self.store(self.choose(self.adds, *ways)[0], there)
