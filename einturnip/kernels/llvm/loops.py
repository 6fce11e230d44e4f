"""Loops of a kernel over its outputs: register tiles, a masked last step, sweeps over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from einturnip.kernels.llvm.folds import State, VectorFold
from einturnip.kernels.llvm.guarded_loads import GuardedLoads
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.memory import Coordinate, Place

STRIP_NBYTES = 16 << 10  # of a row of partial sums, which stays in the first-level cache
_STRIP = 128  # rows of a result over which adjacent vectors are stored, where operands are transposed
_EDGE = -1  # the number of an edge, in place of a label: 0 before the interior, 1 after it
_ZERO, _TRUE = IrValue("0", "i64", 0), IrValue("true", "i1", 0)


class OutputLoops(GuardedLoads):
    """The loops around a register tile, which ``_tile`` writes.

    ``order``: nodes, arguments first. ``first``: whether a tile
    initialises its outputs, else it is combined with them. ``partial``: rows of partial results of a sweep, the
    innermost level's first. ``merged``: the row that tiles combine with their outputs instead of folding operands.
    """

    order: list[int]
    first: IrValue
    partial: list[Place]
    merged: Place | None

    def _tile(self) -> None:
        """Write one register tile."""
        raise NotImplementedError

    def _each(
        self, label: int, step: int, begin: IrValue, end: IrValue, inside: Callable[[], None], moving: Sequence[int]
    ) -> None:
        """Write a loop without carried values; values that are invariant in it are computed before it."""
        self._fix(frozenset(moving))
        self._loop(label, step, begin, end, inside)

    def _fix(self, moving: frozenset[int]) -> None:
        """Compute nodes before a loop that depend on none of the labels still to be looped over."""
        still = moving | (frozenset(range(self.n)) - self.at.keys())
        for node in self.order:
            n = self.graph[node]
            if n.op not in ("number", "iota") and n.labels and not n.labels & (still | self.counts.keys()):
                self.value(node, {})

    def _strips(self, label: int, inside: Callable[[], None], moving: Sequence[int]) -> None:
        """Loop over strips of a few rows, whose pages stay in the TLB while adjacent vectors are stored."""
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

    def _all_tiles(self, labels: Sequence[int]) -> None:
        """Write the loops over register tiles, those whose reads are all inside apart from those at the edges."""
        if labels or not self.spec.guards:
            self._tiles(labels, bool(self.spec.guards))
            return
        known = dict(self.known)

        def tile(are_inside: bool) -> None:
            self.known, self.are_inside = dict(known), are_inside
            self._tile()

        self.code.either(self._is_inside(), lambda: tile(True), lambda: tile(False))
        self.known, self.are_inside = known, False

    def _split(
        self, label: int, size: int, span: tuple[IrValue, IrValue], inside: Callable[[], None], moving: Sequence[int]
    ) -> None:
        """Write the loops over full steps along a label: before and after its interior, then in it."""
        (begin, end), (first, last) = span, self._interior(label, size, span)

        def edge() -> None:
            is_before = self.code.compare("icmp eq", self.at[_EDGE], _ZERO)
            start, stop = self.code.select(is_before, begin, last), self.code.select(is_before, first, end)
            self._each(label, size, start, stop, inside, moving)

        def interior() -> None:
            self.are_inside = True
            inside()
            self.are_inside = False

        self._loop(_EDGE, 1, _ZERO, IrValue("2", "i64", 0), edge)
        self._each(label, size, first, last, interior, moving)

    def _tiles(self, labels: Sequence[int], splits: bool = False) -> None:
        """Loop over full register tiles along each label, then over the remaining points one at a time.

        ``splits``: the outermost loop is split into the edges and the interior of guarded reads.
        """
        if not labels:
            self._tile()
            return
        # The vector label is the outermost loop: its operands stay in the cache during the others.
        label = labels[-1]
        count = self.counts[label]
        begin, extent = self.within.get(label, (IrValue("0", "i64", 0), self.extents[label]))
        size = count * (self.width if label == self.vector else 1)
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size)) if size > 1 else extent

        def inside() -> None:
            self._tiles(labels[:-1])

        if splits:
            self._split(label, size, (begin, whole), inside, labels)
        else:
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
        """Write at most one step of fewer points than a vector has."""
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
        """Return the points of the register tile along labels."""
        found: list[dict[int, int]] = [{}]
        for label in labels:
            found = [{**c, label: k} for c in found for k in range(self.counts[label])]
        return found

    # --- sweeps -------------------------------------------------------------------------------------------------------

    def _make_partial_rows(self) -> None:
        """Allocate a row of partial sums on the stack for each level of blocks, as long as a strip."""
        itemsize = self.spec.out_dtypes[0].itemsize
        steps = [IrValue(str(itemsize * (p == self.vector)), "i64", 0) for p in range(self.n)]
        for _ in range(sum(map(len, self.spec.blocks))):
            row = self.code.make(f"alloca [{STRIP_NBYTES} x i8], align 64", "ptr", 0)
            self.partial.append((row, steps))

    def _sweep_strips(self, labels: Sequence[int]) -> None:
        """Sweep all folded rows; over one strip of outputs at a time if partial sums have rows of their own."""
        if not self.partial:
            self._sweep(labels, self.first, [self.outs[0]])
            return
        label, extent = self.vector, self.extents[self.vector]
        length = STRIP_NBYTES // self.spec.out_dtypes[0].itemsize
        outs, rows, first = self.outs, self.partial, self.first

        def strip() -> None:
            begin = self.at[label]
            self.within[label] = begin, self.code.intrinsic("smin", self.code.integer("add", begin, length), extent)
            before = self.code.integer("mul", begin, -self.spec.out_dtypes[0].itemsize)
            self._sweep(labels, first, [*((self.code.pointer(row, before), steps) for row, steps in rows), outs[0]])
            del self.within[label]

        self._each(label, length, _ZERO, extent, strip, (*labels, label))
        self.outs, self.first = outs, first

    def _sweep(self, labels: Sequence[int], first: IrValue, places: Sequence[Place]) -> None:
        """Fold a few points at a time over all outputs, whose states stay in the first-level cache.

        Whole rows are read in memory order. ``first``: whether nothing has been folded yet. ``places``: by level the
        address of its states; the last is the result.
        """
        sizes = self.spec.blocks[labels[0] - self.n_out]
        inner = sum(map(len, self.spec.blocks[labels[0] - self.n_out + 1 :]))
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
        """Sweep part of a label in blocks, whose partial sums are added to those of the level above."""
        (begin, end), label = span, labels[0]
        step = self.counts[label] if label == self.spec.swept else 1
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
        """Sweep an innermost block of a label: a few rows at a time, then the remaining ones."""
        (begin, end), label = span, labels[0]
        size = self.counts[label] if label == self.spec.swept else 1
        rest = self.code.integer("urem", self.code.integer("sub", end, begin), size)
        whole = self.code.integer("sub", end, rest) if size > 1 else end

        def inside() -> None:
            begins = self.code.binary("and", first, self.code.compare("icmp eq", self.at[label], begin))
            if len(labels) > 1:
                self._sweep(labels[1:], begins, places)
                return
            self.outs, self.first = [places[-1]], begins
            self._all_tiles([self.vector])

        self._each(label, size, begin, whole, inside, (*labels, self.vector))
        if size > 1:
            self.counts[label] = 1
            self._each(label, 1, whole, end, inside, (*labels, self.vector))
            self.counts[label] = size

    # --- across lanes -------------------------------------------------------------------------------------------------

    def _across(
        self, fold: VectorFold, coordinates: list[dict[int, int]], states: list[State]
    ) -> tuple[list[dict[int, int]], list[State]]:
        """Fold the lanes of each state, and the vectors of each point."""
        groups: dict[Coordinate, list[State]] = {}
        for coordinate, state in zip(coordinates, states, strict=True):
            key = tuple(k for p, k in coordinate.items() if p != self.vector)
            groups.setdefault(key, []).append(state)
        labels = [p for p, _ in self.spec.tile if p != self.vector]
        whole = [reduce(fold.combine, group) for group in groups.values()]
        found: list[State] = []
        while whole:
            n = min(self.width, 1 << len(whole).bit_length() - 1)
            found += self._lanes(fold, whole[:n])
            whole = whole[n:]
        return [dict(zip(labels, key, strict=True)) for key in groups], found

    def _lanes(self, fold: VectorFold, states: list[State]) -> list[State]:
        """Fold the lanes of a power of two of vectors, each vector pass handling halves of two of them.

        Lanes are combined in the same order as for a single vector.
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
