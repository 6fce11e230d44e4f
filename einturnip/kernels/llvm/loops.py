"""Loops of a kernel over its outputs: register tiles, vectors along one label, a masked last step, rows swept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from einturnip.kernels.llvm.folds import State, VectorFold
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.memory import Coordinate, Place
from einturnip.kernels.llvm.values import NodeValues

STRIP_NBYTES = 16 << 10  # of a row of partial sums, which stays in the nearest cache
_STRIP = 128  # rows of a result that vectors are put in side by side, where operands are turned
_ZERO, _TRUE = IrValue("0", "i64", 0), IrValue("true", "i1", 0)


class OutputLoops(NodeValues):
    """The loops around a register tile, ``_tile``.

    ``order``: nodes, arguments first; ``within``: of a label, from where to where a strip goes; ``first``: whether what
    a tile makes is the first that comes to its place, else it joins what is there. ``partial``: rows of partial results
    of a sweep, the innermost level's first; ``merged``: the row that tiles take instead of folding anything.
    ``blocks``: of each aggregated label the sizes of its blocks of partial sums.
    """

    order: list[int]
    within: dict[int, tuple[IrValue, IrValue]]
    first: IrValue
    partial: list[Place]
    merged: Place | None
    blocks: list[tuple[int, ...]]

    def _tile(self) -> None:
        """One register tile."""
        raise NotImplementedError

    def _each(
        self, label: int, step: int, begin: IrValue, end: IrValue, inside: Callable[[], None], moving: Sequence[int]
    ) -> None:
        """A loop without carried values; what does not move inside is computed before it."""
        self._fix(frozenset(moving))

        def body(index: IrValue, _: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            self.at[label] = index
            inside()
            self.known = kept
            return []

        self.code.loop(begin, end, step, [], body)
        self.at.pop(label, None)

    def _fix(self, moving: frozenset[int]) -> None:
        """Compute once, ahead of a loop, what depends on none of the labels that still move."""
        still = moving | (frozenset(range(self.n)) - self.at.keys())
        for node in self.order:
            n = self.graph[node]
            if n.op not in ("number", "iota") and n.labels and not n.labels & (still | self.counts.keys()):
                self.value(node, {})

    def _strips(self, label: int, inside: Callable[[], None], moving: Sequence[int]) -> None:
        """A few rows at a time, so that the TLB holds their pages while vectors are stored side by side in them."""
        extent = self.extents[label]
        strips = self.code.integer("sdiv", self.code.integer("add", extent, _STRIP - 1), _STRIP)

        def strip() -> None:
            begin = self.at[label]
            last = self.code.integer("add", begin, _STRIP)
            short = self.code.compare("icmp sgt", last, extent)
            self.within[label] = begin, self.code.select(short, extent, last)
            inside()
            del self.within[label]

        self._each(label, _STRIP, IrValue("0", "i64", 0), self.code.integer("mul", strips, _STRIP), strip, moving)

    def _tiles(self, labels: Sequence[int]) -> None:
        """The register tile along each of its labels: whole tiles, then what remains, singly."""
        if not labels:
            self._tile()
            return
        # The vectors' label is walked outermost: what it reads stays in the cache while the others pass.
        label = labels[-1]
        count = self.counts[label]
        begin, extent = self.within.get(label, (IrValue("0", "i64", 0), self.extents[label]))
        size = count * (self.width if label == self.vector else 1)
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size)) if size > 1 else extent

        def inside() -> None:
            self._tiles(labels[:-1])

        self._each(label, size, begin, whole, inside, labels)
        if size == 1:
            return
        self.counts[label] = 1
        if label == self.vector:
            if count > 1:
                rest = self.code.integer("sub", extent, self.code.integer("urem", extent, self.width))
                self._each(label, self.width, whole, rest, inside, labels)
                whole = rest
            self._masked(label, (whole, extent), inside, labels)
        else:
            self._each(label, 1, whole, extent, inside, labels)
        self.counts[label] = count

    def _masked(
        self, label: int, span: tuple[IrValue, IrValue], inside: Callable[[], None], moving: Sequence[int]
    ) -> None:
        """At most one step of fewer points than a vector has."""
        begin, end = span
        rest = self.code.integer("sub", end, begin)
        some = self.code.compare("icmp sgt", rest, IrValue("0", "i64", 0))
        end = self.code.integer("add", begin, self.width)
        end = self.code.make(f"select {some}, {end}, {begin}", "i64", 0)
        lanes = self.code.lanes("i64", self.width)
        before = self.mask
        self.mask = self.code.compare("icmp slt", lanes, self.code.splat(rest, self.width))
        self._each(label, self.width, begin, end, inside, moving)
        self.mask = before

    def _coordinates(self, labels: Sequence[int]) -> list[dict[int, int]]:
        """The points of the register tile along labels."""
        found: list[dict[int, int]] = [{}]
        for label in labels:
            found = [{**c, label: k} for c in found for k in range(self.counts[label])]
        return found

    # --- sweeps -------------------------------------------------------------------------------------------------------

    def _make_partial_rows(self) -> None:
        """For each level of blocks a row of partial sums on the stack, as long as a strip of outputs."""
        itemsize = self.recipe.out_dtypes[0].itemsize
        steps = [IrValue(str(itemsize * (p == self.vector)), "i64", 0) for p in range(self.n)]
        for _ in range(sum(map(len, self.blocks))):
            row = self.code.make(f"alloca [{STRIP_NBYTES} x i8], align 64", "ptr", 0)
            self.partial.append((row, steps))

    def _sweep_strips(self, labels: Sequence[int]) -> None:
        """All rows that are folded, over a strip of outputs at a time where partial sums wait in rows of their own."""
        if not self.partial:
            self._sweep(labels, self.first, [self.outs[0]])
            return
        label, extent = self.vector, self.extents[self.vector]
        length = STRIP_NBYTES // self.recipe.out_dtypes[0].itemsize
        outs, rows, first = self.outs, self.partial, self.first

        def strip() -> None:
            begin = self.at[label]
            self.within[label] = begin, self.code.intrinsic("smin", self.code.integer("add", begin, length), extent)
            before = self.code.integer("mul", begin, -self.recipe.out_dtypes[0].itemsize)
            self._sweep(labels, first, [*((self.code.pointer(row, before), steps) for row, steps in rows), outs[0]])
            del self.within[label]

        self._each(label, length, _ZERO, extent, strip, (*labels, label))
        self.outs, self.first = outs, first

    def _sweep(self, labels: Sequence[int], first: IrValue, places: Sequence[Place]) -> None:
        """A few points along what is folded at a time, over all outputs, whose states wait in the nearest cache.

        So whole rows are read one after the other, as they lie. ``first``: whether nothing was folded yet. ``places``:
        where the states of each level are, the last one's where the result goes.
        """
        sizes = self.blocks[labels[0] - self.n_out]
        inner = sum(map(len, self.blocks[labels[0] - self.n_out + 1 :]))
        assert len(places) == inner + len(sizes) + 1
        self._sweep_blocks(labels, (_ZERO, self.extents[labels[0]]), sizes, first, places)

    def _sweep_blocks(
        self,
        labels: Sequence[int],
        span: tuple[IrValue, IrValue],
        sizes: Sequence[int],
        first: IrValue,
        places: Sequence[Place],
    ) -> None:
        """Part of a label, in blocks whose partial sums join those of the level above."""
        (begin, end), label = span, labels[0]
        step = self.counts[label] if label == self.recipe.swept else 1
        if not sizes:
            self._sweep_rows(labels, span, first, places)
            return
        size = sizes[-1] * step

        def block() -> None:
            start = self.at[label]
            stop = self.code.intrinsic("smin", self.code.integer("add", start, size), end)
            begins = self.code.binary("and", first, self.code.compare("icmp eq", start, begin))
            self._sweep_blocks(labels, (start, stop), sizes[:-1], _TRUE, places[:-1])
            self.merged, self.outs, self.first = places[-2], [places[-1]], begins
            self._tiles([self.vector])
            self.merged = None

        self._each(label, size, begin, end, block, (*labels, self.vector))

    def _sweep_rows(
        self, labels: Sequence[int], span: tuple[IrValue, IrValue], first: IrValue, places: Sequence[Place]
    ) -> None:
        """A block of the innermost level of a label: its rows, a few at a time, then those that remain."""
        (begin, end), label = span, labels[0]
        size = self.counts[label] if label == self.recipe.swept else 1
        rest = self.code.integer("urem", self.code.integer("sub", end, begin), size)
        whole = self.code.integer("sub", end, rest) if size > 1 else end

        def inside() -> None:
            begins = self.code.binary("and", first, self.code.compare("icmp eq", self.at[label], begin))
            if len(labels) > 1:
                self._sweep(labels[1:], begins, places)
                return
            self.outs, self.first = [places[-1]], begins
            self._tiles([self.vector])

        self._each(label, size, begin, whole, inside, (*labels, self.vector))
        if size > 1:
            self.counts[label] = 1
            self._each(label, 1, whole, end, inside, (*labels, self.vector))
            self.counts[label] = size

    # --- across lanes -------------------------------------------------------------------------------------------------

    def _across(
        self, fold: VectorFold, coordinates: list[dict[int, int]], states: list[State]
    ) -> tuple[list[dict[int, int]], list[State]]:
        """The lanes of each state folded together, and the vectors of one point."""
        groups: dict[Coordinate, list[State]] = {}
        for coordinate, state in zip(coordinates, states, strict=True):
            key = tuple(k for p, k in coordinate.items() if p != self.vector)
            groups.setdefault(key, []).append(state)
        labels = [p for p, _ in self.recipe.tile if p != self.vector]
        whole = [reduce(fold.combine, group) for group in groups.values()]
        found: list[State] = []
        while whole:
            n = min(self.width, 1 << len(whole).bit_length() - 1)
            found += self._lanes(fold, whole[:n])
            whole = whole[n:]
        return [dict(zip(labels, key, strict=True)) for key in groups], found

    def _lanes(self, fold: VectorFold, states: list[State]) -> list[State]:
        """The lanes of each of two, four, ... vectors folded together: two halves at a time in one vector.

        Lanes meet in the order in which those of one vector alone would.
        """
        code, distance, places, n = self.code, self.width // 2, [0] * len(states), 1
        while distance:
            if len(states) > 1:
                pairs = list(zip(states[::2], states[1::2], strict=True))
                halves = [[code.halves(x, y, distance) for x, y in zip(a, b, strict=True)] for a, b in pairs]
                states = [fold.combine(tuple(h[0] for h in both), tuple(h[1] for h in both)) for both in halves]
                places = [at + (distance if k & n else 0) for k, at in enumerate(places)]
            else:
                states = [fold.combine(states[0], tuple(code.swapped(v, distance) for v in states[0]))]
            distance, n = distance // 2, 2 * n
        return [tuple(code.lane(v, at) for v in states[0]) for at in places]
