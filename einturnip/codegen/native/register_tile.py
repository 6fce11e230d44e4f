"""Parts of a multiplication: a tile of the result in registers, and how it is put where it belongs."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.codegen.native.ir import Value
from einturnip.codegen.native.panels import ROWS, Multiplication
from einturnip.codegen.native.routine import ZERO, Routine

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
        super().__init__("update", "tile out rows columns runs factor", "height breadth adds")
        self.what = what
        factor = self.load(self["factor"], "double")
        self.factor = factor if what.kind == "double" else self.cast("fptrunc", factor, what.kind)
        self.factors = self.splat(self.factor, what.width)
        self.adds = self.whether("ne", self["adds"], 0)
        for v in range(2):
            self._vectors(v * what.width)

    def _vectors(self, first: int) -> None:
        """Columns from ``first`` on, as many as a vector has or there are."""
        width = self.what.width
        there = self.least(self.minus(self["breadth"], first), width)
        straight = self.whether("sge", self.word(self["runs"], first), there)
        whole = self.both(straight, self.whether("eq", there, width))

        def rows(body: Callable[[Value], None]) -> Callable[[], None]:
            return lambda: self.each(self["height"], 1, body)

        def full() -> None:
            ways = [rows(lambda i, adds=adds: self._row(i, first, adds)) for adds in (True, False)]  # type: ignore[misc]
            self.either(self.adds, ways[0], ways[1])

        def others() -> None:
            self.either(
                straight, rows(lambda i: self._part(i, first, there)), rows(lambda i: self._ones(i, first, there))
            )

        self.when(self.whether("sgt", there, 0), lambda: self.either(whole, full, others))

    def _places(self, i: Value, first: int) -> tuple[Value, Value]:
        """Where a row of the tile stands, and where it belongs, but for the column."""
        size = self.what.size
        here = self.at(self["tile"], self.plus(self.times(i, self.what.columns * size), first * size))
        return here, self.at(self["out"], self.word(self["rows"], i))

    def _row(self, i: Value, first: int, adds: bool) -> None:
        kind, width = self.what.kind, self.what.width
        here, there = self._places(i, first)
        there = self.at(there, self.word(self["columns"], first))
        value = self.binary("fmul", self.load(here, kind, width), self.factors)
        self.store(self.binary("fadd", self.load(there, kind, width), value) if adds else value, there)

    def _part(self, i: Value, first: int, count: Value) -> None:
        kind, width = self.what.kind, self.what.width
        mask = self.compare("icmp slt", self.lanes("i64", width), self.splat(count, width))
        adds = self.splat(self.adds, width)
        here, there = self._places(i, first)
        there = self.at(there, self.word(self["columns"], first))
        value = self.binary("fmul", self.load(here, kind, width), self.factors)
        before = self.load_some(there, kind, self.both(mask, adds))
        self.store_some(self.select(adds, self.binary("fadd", before, value), value), there, mask)

    def _ones(self, i: Value, first: int, count: Value) -> None:
        kind, size = self.what.kind, self.what.size
        here, row = self._places(i, first)

        def one(j: Value) -> None:
            there = self.at(row, self.word(self["columns"], self.plus(j, first)))
            value = self.binary("fmul", self.load(self.at(here, self.times(j, size)), kind), self.factor)
            ways = (lambda: [self.binary("fadd", self.load(there, kind), value)]), (lambda: [value])
            self.store(self.choose(self.adds, *ways)[0], there)

        self.each(count, 1, one)
