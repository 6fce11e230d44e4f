"""Loads of guarded operands, and the interior of a tile, where no guarded index leaves its axis.

At the edges, a masked load gives lanes whose index is outside the fill, and reads no memory for them. In the interior a
guarded operand is loaded as any other. A select in place of the mask would be folded into multiplications by constants,
which are then not fused with additions: a point's bits would depend on whether it is at the edge of a vector.
"""

from __future__ import annotations

from functools import reduce

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Index, labels_read
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.values import NodeValues

_ZERO = IrValue("0", "i64", 0)


class GuardedLoads(NodeValues):
    """Loads guarded inputs at points of the register tile.

    ``within``: by label, the range of the current strip. ``are_inside``: whether the code being written is for points
    whose guarded indices are all within their axes. ``sizes``: of the axes of ``spec.guards``.
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
        mask, passed = self._lanes_inside(slot, coordinate), self._to_memory(self._wide(fill), dtype)
        if self.mask is not None:  # lanes past the end repeat the first
            first = self._first(address, is_inside, code.lane(fill) if fill.width else fill, dtype)
            passed = code.select(self.mask, passed, code.splat(first, self.width))
            mask = code.binary("and", mask, self.mask)
        return self._to_register(self._chosen(address, step, mask, passed, dtype), dtype)

    def _first(self, address: IrValue, is_inside: IrValue, fill: IrValue, dtype: DType) -> IrValue:
        """Load one element, or convert its fill, as it is in memory."""
        passed = self.code.first(self._to_memory(fill, dtype), self.width)
        mask = self.code.first(is_inside, self.width)
        return self.code.lane(self._chosen(address, None, mask, passed, dtype))

    def _index_of(self, index: Index, coordinate: dict[int, int]) -> IrValue:
        """Return an index before it is clamped; for a vector that of its first lane."""
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
        """Return whether no guarded index leaves its axis at any point of the loops still to be written."""
        found = IrValue("true", "i1", 0)
        for (_, _, index), size in zip(self.spec.guards, self.sizes, strict=True):
            low, high = self._ends(index, -1)
            found = self.code.binary("and", found, self._is_within(low, high, size))
        return found

    def _is_within(self, low: IrValue, high: IrValue, size: IrValue) -> IrValue:
        above = self.code.compare("icmp sge", low, _ZERO)
        return self.code.binary("and", above, self.code.compare("icmp slt", high, size))

    def _interior(self, label: int, step: int, span: tuple[IrValue, IrValue]) -> tuple[IrValue, IrValue]:
        """Return the part of a label's range in which all guarded indices are within their axes.

        It is in whole steps of the range, and empty if no step is inside at every point of the other labels.
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
        """Return the smallest and the largest value of an index over the loops still to be written.

        ``label`` contributes nothing but its first point in the tensor.
        """
        low = high = IrValue(str(index.offset), "i64", 0)
        for p, c in index.terms:
            begin, last = (_ZERO, _ZERO) if p == label else self._range(p)
            ends = [self._times(self.code.integer("add", at, self.origins[p]), c) for at in (begin, last)]
            low = self.code.integer("add", low, ends[c < 0])
            high = self.code.integer("add", high, ends[c > 0])
        return low, high

    def _range(self, label: int) -> tuple[IrValue, IrValue]:
        """Return the first and last point of a label in the code being written."""
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
