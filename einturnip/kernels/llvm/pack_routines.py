"""Routines of a packed contraction: tables of offsets, and panels packed from any strides."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.primitives import write
from einturnip.kernels.llvm.routine import ONE, ZERO, Routine

_SOON = 16  # terms of a right panel that are prefetched


def place(what: PackedSpec) -> Routine:
    """Return the routine that computes the byte offset of a point in a list of labels, the last fastest."""
    f = Routine("place", "list", "number word", "i64")
    count = f.word(f["list"], 0)

    def body(turn: IrValue, carried: list[IrValue]) -> list[IrValue]:
        left, offset = carried
        label = f.at(f["list"], f.plus(f.times(f.minus(f.minus(count, 1), turn), 8 * what.record), 8))
        extent = f.word(label, 0)
        moved = f.times(f.integer("urem", left, extent), f.word(label, f["word"]))
        return [f.over(left, extent), f.plus(offset, moved)]

    _, offset = f.loop(ZERO, count, 1, [f["number"], ZERO], body)
    f.end = f"ret {offset}"
    return f


def table(what: PackedSpec) -> Routine:
    """Return the routine that tabulates byte offsets of points, and the lengths of contiguous runs.

    ``count`` points from ``begin`` on; the last offset is repeated up to ``padded``.
    """
    f = Routine("table", "places runs list", "begin count padded word")
    inner = f.at(f["list"], f.plus(f.times(f.word(f["list"], 0), 8 * what.record), 8 - 8 * what.record))
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

    def __init__(self, what: PackedSpec, name: str, lanes: int, lane_nbytes: int, term_nbytes: int) -> None:
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
        rows = self.transposed([self.load_or_zero(place, kind, mask) for place in places])
        for j in range(n):
            self.store(rows[j], self._target(first + j, start))

    def _column(self, p: IrValue, first: int, n: int) -> None:
        """Pack one term element by element."""
        for j in range(n):
            self.store(self.load(self._source(first + j, p), self.what.kind), self._target(first + j, p))


class SideMap(Routine):
    """Replaces a side's packed operands by what is computed from them, the same number of panels or fewer.

    It takes one panel of the left, or a vector of columns of the right; ``lanes``: rows of the left.
    """

    def __init__(self, what: PackedSpec, side: int) -> None:
        super().__init__(("map_left", "map_right")[side], "panel", "count")
        self.what, self.side = what, side
        width = what.width
        if side:
            self.each(self["count"], 1, lambda p: self._vectors(self.times(p, what.term_nbytes), None))
            return

        def some(p: IrValue) -> None:
            left = self.compare("icmp slt", self.lanes("i64", width), self.splat(self.minus(self["count"], p), width))
            at = self.times(p, what.size)
            self.each(what.rows, 1, lambda r: self._vectors(self.plus(at, self.times(r, what.line_nbytes)), left))

        self.each(self["count"], width, some)

    def _vectors(self, at: IrValue, mask: IrValue | None) -> None:
        """Compute a vector of each panel; lanes outside the mask, which may be no numbers, count as 0."""
        what, graph = self.what, self.what.graph
        step = what.columns * what.size if self.side else what.left_nbytes
        known = {}
        for k, slot in enumerate(what.sides[self.side]):
            place = self.at(self.at(self["panel"], at), k * step)
            known[graph.inputs[slot]] = (
                self.load(place, what.kind, what.width) if mask is None else self.load_or_zero(place, what.kind, mask)
            )
        for k, value in enumerate(values(self, what, known, graph.nodes[self.side])):
            self.store(value, self.at(self.at(self["panel"], at), k * step))


def values(f: Routine, what: PackedSpec, known: dict[int, IrValue], nodes: Sequence[int]) -> list[IrValue]:
    """Compute nodes of the join from those that are known."""
    graph, made = what.graph.graph, dict(known)

    def value(node: int) -> IrValue:
        if node not in made:
            n = graph[node]
            arguments = [value(a) for a in n.arguments]
            x = write(f, n, arguments, [graph[a].dtype for a in n.arguments])
            made[node] = x if x.width else f.splat(x, what.width)
        return made[node]

    return [value(node) for node in nodes]


def packs(what: PackedSpec) -> list[Routine]:
    """Return ``pack_left``, which packs row by row, ``pack_right``, term by term, and the side maps."""
    maps = [SideMap(what, side) for side in (0, 1) if not what.graph.is_packed(side)]
    return [
        PanelPack(what, "pack_left", what.rows, what.line_nbytes, what.size),
        PanelPack(what, "pack_right", what.columns, what.size, what.term_nbytes),
        *maps,
    ]
