"""Loads of guarded operands such as ``X[i-1 ? 0]``, whose index can leave its axis.

A tile has an interior, in which no guarded index leaves its axis, and edges. In the interior a guarded operand is
loaded like any other. At the edges the load is masked: a lane whose index is outside the axis gets the fill value, and
no memory is read for it.

The load is masked because LLVM would fold a plain load and a select into a multiplication by a constant, and would then
not contract it with an addition. The result of a point would depend on its position in a vector.
"""

from __future__ import annotations

from functools import reduce

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Index, labels_read
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.values import NodeValues

_ZERO = IrValue("0", "i64", 0)


class GuardedLoads(NodeValues):
    """Emits loads of guarded operands at points of the register tile.

    ``within``: by label, the range of the loop nest that is being emitted, where it covers part of the tile.
    ``are_inside``: the code being emitted is for the interior. ``sizes``: the sizes of the axes in ``spec.guards``.
    """

    within: dict[int, tuple[IrValue, IrValue]]
    are_inside: bool
    sizes: list[IrValue]

    def _labels_read(self, node: int) -> frozenset[int]:
        n = self.graph[node]
        if n.op != "guarded":
            return n.labels
        assert isinstance(n.payload, int)
        return labels_read(self.spec.einsum.accesses[n.payload])

    # --- loads --------------------------------------------------------------------------------------------------------

    def _guarded(self, node: int, coordinate: dict[int, int]) -> IrValue:
        if self.are_inside:
            return self._input(node, coordinate)
        code, n, labels = self.code, self.graph[node], self._labels_read(node)
        slot, dtype = n.payload, n.dtype
        assert isinstance(slot, int)
        address = self._address(self.operands[slot], labels, coordinate)
        fill = self.value(n.arguments[0], coordinate)
        is_inside = self._first_is_inside(slot, coordinate)
        if self.vector not in labels:
            if not fill.width:
                return self._to_register(self._first(address, is_inside, fill, dtype), dtype)
            found = self._first(address, is_inside, code.lane(fill), dtype)
            inside = self._wide(self._to_register(found, dtype))
            return code.select(code.splat(is_inside, self.width), inside, fill)
        apart = slot in self.spec.strided or slot in self.spec.crossed
        step = self.operands[slot][1][self.vector] if apart else None
        mask, passthru = self._lanes_inside(slot, coordinate), self._to_memory(self._wide(fill), dtype)
        if self.mask is not None:  # lanes past the end hold the value of the first lane
            first = self._first(address, is_inside, code.lane(fill) if fill.width else fill, dtype)
            passthru = code.select(self.mask, passthru, code.splat(first, self.width))
            mask = code.binary("and", mask, self.mask)
        return self._to_register(self._load_lanes(address, step, mask, passthru, dtype), dtype)

    def _first(self, address: IrValue, is_inside: IrValue, fill: IrValue, dtype: DType) -> IrValue:
        """Return one element, or the fill if it is outside the axis, in its memory type."""
        passthru = self.code.first(self._to_memory(fill, dtype), self.width)
        mask = self.code.first(is_inside, self.width)
        return self.code.lane(self._load_lanes(address, None, mask, passthru, dtype))

    def _index_of(self, index: Index, coordinate: dict[int, int]) -> IrValue:
        """Return an index before clamping; for a vector, the index of its first lane."""
        total = IrValue(str(index.offset), "i64", 0)
        for label, c in index.terms:
            at = self.code.integer("add nsw", self._local(label, coordinate), self.origins[label])
            total = self.code.integer("add nsw", total, self._times(at, c))
        return total

    def _first_is_inside(self, slot: int, coordinate: dict[int, int]) -> IrValue:
        """Return whether the indices of an operand are within their axes, in the first lane."""
        guards = zip(self.spec.guards, self.sizes, strict=True)
        tests = [
            self.code.compare("icmp ult", self._index_of(index, coordinate), size)
            for (guarded, _, index), size in guards
            if guarded == slot
        ]
        return reduce(lambda a, b: self.code.binary("and", a, b), tests)

    def _lanes_inside(self, slot: int, coordinate: dict[int, int]) -> IrValue:
        """Return the lanes in which the indices of an operand are within their axes."""
        code, width, tests = self.code, self.width, []
        for (guarded, _, index), size in zip(self.spec.guards, self.sizes, strict=True):
            if guarded != slot:
                continue
            c = dict(index.terms).get(self.vector, 0)
            lanes = IrValue(f"<{', '.join(f'i64 {c * i}' for i in range(width))}>", "i64", width)
            at = code.binary("add", code.splat(self._index_of(index, coordinate), width), lanes)
            tests.append(code.compare("icmp ult", at, code.splat(size, width)))
        return reduce(lambda a, b: code.binary("and", a, b), tests)

    # --- the interior -------------------------------------------------------------------------------------------------

    def _is_inside(self) -> IrValue:
        """Return whether the loops still to be emitted stay in the interior."""
        found = IrValue("true", "i1", 0)
        for (_, _, index), size in zip(self.spec.guards, self.sizes, strict=True):
            low, high = self._ends(index, -1)
            found = self.code.binary("and", found, self._is_within(low, high, size))
        return found

    def _is_within(self, low: IrValue, high: IrValue, size: IrValue) -> IrValue:
        above = self.code.compare("icmp sge", low, _ZERO)
        return self.code.binary("and", above, self.code.compare("icmp slt", high, size))

    def _interior(self, label: int, step: int, span: tuple[IrValue, IrValue]) -> tuple[IrValue, IrValue]:
        """Return the interior of a label's range, in whole steps.

        All guarded indices are within their axes there. It holds for every point of the other labels, and is empty if
        there is no such part.
        """
        code, (begin, end) = self.code, span
        first, last = begin, end
        for (_, _, index), size in zip(self.spec.guards, self.sizes, strict=True):
            low, high = self._ends(index, label)
            c = dict(index.terms).get(label, 0)
            if c == 0:
                last = code.select(self._is_within(low, high, size), last, begin)
                continue
            # The points where 0 <= low + c x and high + c x < size.
            below, beyond = (low, high) if c > 0 else (high, low)
            if c > 0:
                low_end = code.integer("sub", _ZERO, self._floor(below, c))
                high_end = code.integer("sub", _ZERO, self._floor(code.integer("sub", beyond, size), c))
            else:
                low_end = code.integer("add", self._floor(code.integer("sub", below, size), -c), 1)
                high_end = code.integer("add", self._floor(beyond, -c), 1)
            first, last = code.intrinsic("smax", first, low_end), code.intrinsic("smin", last, high_end)
        steps = code.integer("udiv", code.integer("add", code.integer("sub", first, begin), step - 1), step)
        first = code.intrinsic("smin", code.integer("add", begin, code.integer("mul", steps, step)), end)
        rest = code.integer("urem", code.integer("sub", code.intrinsic("smax", first, last), first), step)
        return first, code.integer("sub", code.intrinsic("smax", first, last), rest)

    def _ends(self, index: Index, label: int) -> tuple[IrValue, IrValue]:
        """Return the minimum and the maximum of an index over the loops still to be emitted.

        ``label`` is fixed at the tile's first point.
        """
        low = high = IrValue(str(index.offset), "i64", 0)
        for p, c in index.terms:
            begin, last = (_ZERO, _ZERO) if p == label else self._range(p)
            ends = [self._times(self.code.integer("add", at, self.origins[p]), c) for at in (begin, last)]
            low = self.code.integer("add", low, ends[c < 0])
            high = self.code.integer("add", high, ends[c > 0])
        return low, high

    def _range(self, label: int) -> tuple[IrValue, IrValue]:
        """Return the first and the last point of a label in the code being emitted."""
        if label in self.within:
            begin, end = self.within[label]
        elif label in self.at:
            count = self.counts.get(label, 1) * (self.width if label == self.vector else 1)
            begin, end = self.at[label], self.code.integer("add", self.at[label], count)
        else:
            begin, end = _ZERO, self.extents[label]
        return begin, self.code.integer("sub", end, 1)

    def _times(self, x: IrValue, c: int) -> IrValue:
        return x if c == 1 else self.code.integer("mul", x, c)

    def _floor(self, x: IrValue, divisor: int) -> IrValue:
        """Return x / divisor, rounded down."""
        if divisor == 1:
            return x
        quotient = self.code.integer("sdiv", x, divisor)
        rest = self.code.integer("sub", x, self.code.integer("mul", quotient, divisor))
        return self.code.integer("add", quotient, self.code.integer("ashr", rest, 63))
