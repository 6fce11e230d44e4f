"""Routines of a packed contraction: register tiles of the result, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from einturnip.kernels.llvm.folds import VectorFold
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.pack_routines import values
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.routine import ZERO, Routine, number

# Treatment of a finished tile: stored to the result, added to it, stored non-temporally, or left in the workspace for
# TileUpdate, which handles partial tiles.
PUTS, ADDS, STREAMS, LEAVES = range(4)
_TERMS = 128  # terms that a strip's tile adds to one register before its sum is added to another
_FAR = 128  # maximum terms that a strip's rows are prefetched ahead
# Where a tile is left or stored: workspace, its first column in the result, and the offsets of its rows.
_RESULT = "target out places factor"


def tile(what: PackedSpec, height: int, vectors: int) -> Routine:
    """Return the routine that combines a left panel with a right one.

    It prefetches the source of the next left panel, one element a term, so that each row's lines are touched often.
    """
    f = Routine(f"tile{height}x{vectors}", f"{_RESULT} left right source ahead terms", "how breadth count")
    size, width = what.size, what.width
    _fetched(f, what, height, vectors)

    def term(p: IrValue, carried: list[IrValue]) -> list[IrValue]:
        row, *sums = carried
        f.prefetch(f.at(f["source"], f.plus(f.word(f["ahead"], row), f.word(f["terms"], p))))
        following = f.plus(row, 1)
        left = f.at(f["left"], f.times(p, size))
        rows = [
            [f.at(left, i * what.line_nbytes + k * what.left_nbytes) for k in range(what.left_panels)]
            for i in range(height)
        ]
        made = _added(f, what, vectors, rows, p, sums)
        return [f.select(f.whether("eq", following, what.rows), ZERO, following), *made]

    zeros = [*VectorFold(f, what.aggregation).empty(width)] * (height * vectors)
    _, *sums = f.loop(ZERO, f["count"], 1, [ZERO, *zeros], term)
    _ended(f, what, vectors, sums)
    return f


def strip_tile(what: PackedSpec, height: int, vectors: int) -> Routine:
    """Return the routine for left rows with contiguous terms, which are read without packing.

    It prefetches the terms used soon, near the end the next strip's first: far ahead into the second-level cache, since
    rows a power of two apart map to one set of the first, which keeps a line or two of each.
    """
    f = Routine(f"strip{height}x{vectors}", f"{_RESULT} right source rows ahead", "how breadth first count")
    size, width = what.size, what.width
    _fetched(f, what, height, vectors)
    source = f.at(f["source"], f["first"])
    lines = [f.at(source, f.word(f["rows"], i)) for i in range(height)]
    far = f.minimum(f["count"], _FAR)

    def fetch(later: IrValue, cache: int) -> None:
        """Prefetch each row from a term on, which may belong to the next strip."""
        inside = f.whether("slt", later, f["count"])
        table, term = f.select(inside, f["rows"], f["ahead"]), f.select(inside, later, f.minus(later, f["count"]))
        there = f.at(source, f.times(term, size))
        for i in range(height):
            f.prefetch(f.at(there, f.word(table, i)), cache)

    def vector(p: IrValue, sums: list[IrValue]) -> list[IrValue]:
        fetch(f.plus(p, far), 2)
        fetch(f.plus(p, width), 1)

        def term(t: IrValue, sums: list[IrValue]) -> list[IrValue]:
            here = f.plus(p, t)
            return _added(f, what, vectors, [[f.at(line, f.times(here, size))] for line in lines], here, sums)

        return f.loop(ZERO, f.minimum(f.minus(f["count"], p), width), 1, sums, term)

    zeros = [*VectorFold(f, what.aggregation).empty(width)] * (height * vectors)
    end = f.rounded(f["count"], width)

    def block(begin: IrValue, totals: list[IrValue]) -> list[IrValue]:
        """Compute a partial sum of so few terms that rounding stays small."""
        sums = f.loop(begin, f.minimum(f.plus(begin, _TERMS), end), width, zeros, vector)
        return [_combined(f, what, total, part) for total, part in zip(totals, sums, strict=True)]

    _ended(f, what, vectors, f.loop(ZERO, end, _TERMS, zeros, block))
    return f


def _added(
    f: Routine, what: PackedSpec, vectors: int, left: list[list[IrValue]], p: IrValue, sums: list[IrValue]
) -> list[IrValue]:
    """Add one term to the sums: an element of each row, joined with the panel's vectors.

    ``left``: by row, the address of its element in each left panel.
    """
    size, width, kind, graph = what.size, what.width, what.kind, what.graph
    right, fold = f.at(f["right"], f.times(p, what.term_nbytes)), VectorFold(f, what.aggregation)
    of_left, of_right = graph.nodes
    many = [
        {
            node: f.load(f.at(right, k * what.columns * size + v * width * size), kind, width)
            for k, node in enumerate(of_right)
        }
        for v in range(vectors)
    ]
    made = list[IrValue]()
    for i, places in enumerate(left):
        one = {node: f.splat(f.load(place, kind), width) for node, place in zip(of_left, places, strict=False)}
        for v in range(vectors):
            (value,) = values(f, what, one | many[v], [graph.root])
            made += fold.step((sums[vectors * i + v],), value, None)
    return made


def _combined(f: Routine, what: PackedSpec, a: IrValue, b: IrValue) -> IrValue:
    """Combine two partial results."""
    (found,) = VectorFold(f, what.aggregation).combine((a,), (b,))
    return found


def _fetched(f: Routine, what: PackedSpec, height: int, vectors: int) -> None:
    """Prefetch lines of the result, which are seldom in the first-level cache."""

    def fetch() -> None:
        for i in range(height):
            row = f.at(f["out"], f.word(f["places"], i))
            for v in range(vectors):
                f.prefetch(f.at(row, v * what.width * what.size))

    f.when(f.whether("slt", f["how"], STREAMS), fetch)


def _ended(f: Routine, what: PackedSpec, vectors: int, sums: list[IrValue]) -> None:
    """Store a tile with contiguous columns to the result; leave others in the workspace.

    One that is streamed has all its columns, at an address of whole cache lines.
    """
    kind, width, nbytes = what.kind, what.width, what.width * what.size

    def leave() -> None:
        for k, value in enumerate(sums):
            row, v = divmod(k, vectors)
            f.store(value, f.at(f["target"], (what.vectors * row + v) * nbytes))

    def stream() -> None:
        factors = _factors(f, what, width)
        for k, value in enumerate(sums):
            row, v = divmod(k, vectors)
            f.stream(_scaled(f, value, factors), f.at(f.at(f["out"], f.word(f["places"], row)), v * nbytes))

    def put(adds: bool) -> None:
        factors, last = _factors(f, what, width), f.minus(f["breadth"], (vectors - 1) * width)
        mask = f.compare("icmp slt", f.lanes("i64", width), f.splat(last, width))
        for k, value in enumerate(sums):
            row, v = divmod(k, vectors)
            there = f.at(f.at(f["out"], f.word(f["places"], row)), v * nbytes)
            value = _scaled(f, value, factors)
            if v < vectors - 1:
                f.store(_combined(f, what, f.load(there, kind, width), value) if adds else value, there)
            else:
                f.masked_store(
                    _combined(f, what, f.load_or_zero(there, kind, mask), value) if adds else value, there, mask
                )

    stored = partial(f.either, f.whether("eq", f["how"], ADDS), partial(put, True), partial(put, False))
    away = partial(f.either, f.whether("eq", f["how"], STREAMS), stream, leave)
    f.either(f.whether("sge", f["how"], STREAMS), away, stored)


def _factors(f: Routine, what: PackedSpec, width: int) -> IrValue | None:
    """Return the factor of a product of floats, in each lane; None for other joins."""
    if not what.is_product or not what.dtype.is_float:
        return None
    found = f.load(f["factor"], "double")
    return f.splat(found if what.kind == "double" else f.cast("fptrunc", found, what.kind), width)


def _scaled(f: Routine, value: IrValue, factors: IrValue | None) -> IrValue:
    return value if factors is None else f.binary("fmul", value, factors)


class TileUpdate(Routine):
    """Stores a register tile, times a factor if it is a product, to the result, or adds it."""

    def __init__(self, what: PackedSpec) -> None:
        super().__init__("update", "tile out rows columns runs factor", "height breadth how")
        self.what = what
        self.factors, self.factor = (_factors(self, what, width) for width in (what.width, 0))
        self.adds = self.whether("eq", self["how"], ADDS)
        for v in range(what.vectors):
            self._vectors(v * what.width)

    def _vectors(self, first: int) -> None:
        """Store a vector of columns from ``first`` on, or the remaining ones."""
        width = self.what.width
        there = self.minimum(self.minus(self["breadth"], first), width)
        whole = self.both(self.whether("sge", self.word(self["runs"], first), width), self.whether("eq", there, width))
        near = self.address(self._places(ZERO, first, 0)[1])
        even = self.whether("eq", self.integer("and", near, width * self.what.size - 1), 0)
        streams = self.both(even, self.whether("eq", self["how"], STREAMS))

        def full() -> None:
            put, add, stream = (partial(self._rows, partial(self._whole, first=first, how=how)) for how in range(3))
            self.either(self.adds, add, lambda: self.either(streams, stream, put))

        self.when(self.whether("sgt", there, 0), lambda: self.either(whole, full, lambda: self._parts(first, there)))

    def _rows(self, body: Callable[[IrValue], None]) -> None:
        self.each(self["height"], 1, body)

    def _parts(self, first: int, there: IrValue) -> None:
        """Store the columns run by run of contiguous ones."""

        def column(j: IrValue, carried: list[IrValue]) -> list[IrValue]:
            def run() -> list[IrValue]:
                count = self.minimum(self.word(self["runs"], self.plus(j, first)), self.minus(there, j))
                several = self.whether("sgt", count, 1)
                some, one = (partial(body, first=first, j=j, count=count) for body in (self._part, self._one))
                self.either(several, lambda: self._rows(some), lambda: self._rows(one))
                return [self.plus(j, count)]

            return self.choose(self.whether("eq", j, carried[0]), run, lambda: carried)

        self.loop(ZERO, there, 1, [ZERO], column)

    def _places(self, i: IrValue, first: int, j: IrValue | int) -> tuple[IrValue, IrValue]:
        """Return an element's address in the tile and in the result."""
        size, j = self.what.size, self.plus(number(j), first)
        here = self.at(self["tile"], self.plus(self.times(i, self.what.columns * size), self.times(j, size)))
        return here, self.at(self.at(self["out"], self.word(self["rows"], i)), self.word(self["columns"], j))

    def _whole(self, i: IrValue, first: int, how: int) -> None:
        kind, width = self.what.kind, self.what.width
        here, there = self._places(i, first, 0)
        value = _scaled(self, self.load(here, kind, width), self.factors)
        if how == STREAMS:
            self.stream(value, there)
        else:
            before = self.load(there, kind, width) if how == ADDS else None
            self.store(value if before is None else _combined(self, self.what, before, value), there)

    def _part(self, i: IrValue, first: int, j: IrValue, count: IrValue) -> None:
        kind, width = self.what.kind, self.what.width
        mask = self.compare("icmp slt", self.lanes("i64", width), self.splat(count, width))
        adds = self.splat(self.adds, width)
        here, there = self._places(i, first, j)
        value = _scaled(self, self.load_or_zero(here, kind, mask), self.factors)
        before = self.load_or_zero(there, kind, self.both(mask, adds))
        self.masked_store(self.select(adds, _combined(self, self.what, before, value), value), there, mask)

    def _one(self, i: IrValue, first: int, j: IrValue, count: IrValue) -> None:
        kind = self.what.kind
        here, there = self._places(i, first, j)
        value = _scaled(self, self.load(here, kind), self.factor)
        branches = (lambda: [_combined(self, self.what, self.load(there, kind), value)]), (lambda: [value])
        self.store(self.choose(self.adds, *branches)[0], there)
