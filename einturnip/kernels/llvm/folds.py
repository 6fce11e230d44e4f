"""Aggregations in LLVM IR: the empty state, adding a value, combining two states."""

from __future__ import annotations

import math

import numpy as np

from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.fold import value_type
from einturnip.kernels.llvm.functions import MathFunctions
from einturnip.kernels.llvm.ir import IrBuilder, IrValue, element
from einturnip.kernels.llvm.primitives import extremum

State = tuple[IrValue, ...]


class VectorFold:
    """One aggregation over vectors or scalars."""

    def __init__(self, code: IrBuilder, aggregation: Aggregation) -> None:
        self.code, self.aggregation, self.op = code, aggregation, aggregation.combine
        self.dtype = value_type(aggregation)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Types of the state's components during the fold: never f16."""
        return (self.dtype, *(d.accumulator for d in self.aggregation.state[1:]))

    @property
    def indexed(self) -> bool:
        """Whether the state includes the index of its value."""
        return self.aggregation.indexed

    def empty(self, width: int) -> State:
        """Return the state of an empty range."""
        numbers = self.aggregation.identity
        return tuple(
            self.code.constant(float(n.real) if d.is_float else int(n.real), element(d), width)
            for n, d in zip(numbers, self.dtypes, strict=True)
        )

    def step(self, state: State, x: IrValue, index: IrValue | None) -> State:
        """Add one value in each lane."""
        if self.op == "log_add":
            return self._log_step(state, x)
        if self.indexed:
            assert index is not None
            return self._index_step(state, x, index)
        return (self._one(state[0], x),)

    def combine(self, a: State, b: State) -> State:
        """Combine the states of two ranges."""
        if self.op == "log_add":
            return self._log_combine(a, b)
        if self.indexed:
            take = self._prefers(a, b)
            return tuple(self.code.select(take, y, x) for x, y in zip(a, b, strict=True))
        return (self._one(a[0], b[0], careful=True),)

    def _one(self, a: IrValue, b: IrValue, careful: bool = False) -> IrValue:
        code, is_float = self.code, self.dtype.is_float
        match self.op:
            case "add" | "mul":
                return code.binary(f"f{self.op}" if is_float else self.op, a, b)
            case "max" | "min":
                if self.dtype.kind == "b":
                    return code.binary("or" if self.op == "max" else "and", a, b)
                return extremum(code, self.op == "max", a, b, self.dtype, careful)
            case "or" | "and":
                return code.binary(self.op, a, b)
        raise KeyError(self.op)

    # --- argmax and argmin --------------------------------------------------------------------------------------------

    def _beats(self, a: IrValue, b: IrValue) -> IrValue:
        """Return whether b is better than a; NaN is best."""
        code, greatest = self.code, self.op == "first_max"
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "i" else "u"
            return code.compare(f"icmp {sign}{'gt' if greatest else 'lt'}", b, a)
        better = code.compare(f"fcmp o{'gt' if greatest else 'lt'}", b, a)
        fresh = code.binary("and", code.compare("fcmp uno", b, b), code.compare("fcmp ord", a, a))
        return code.binary("or", better, fresh)

    def _index_step(self, state: State, x: IrValue, index: IrValue) -> State:
        """Add a value whose index is above all before it: it must be strictly better to win."""
        code = self.code
        absent = code.compare("icmp slt", state[1], code.constant(0, "i64", index.width))
        take = code.binary("or", self._beats(state[0], x), absent)
        return code.select(take, x, state[0]), code.select(take, index, state[1])

    def _prefers(self, a: State, b: State) -> IrValue:
        code = self.code
        same = code.compare("fcmp ueq" if self.dtype.is_float else "icmp eq", a[0], b[0])
        if self.dtype.is_float:  # both NaN, or equal
            one = code.binary("xor", code.compare("fcmp uno", a[0], a[0]), code.compare("fcmp uno", b[0], b[0]))
            same = code.binary("and", same, code.binary("xor", one, code.constant(1, "i1", one.width)))
        earlier = code.binary("and", same, code.compare("icmp ult", b[1], a[1]))  # -1 is the last
        absent = code.compare("icmp slt", a[1], code.constant(0, "i64", a[1].width))
        found = code.compare("icmp sge", b[1], code.constant(0, "i64", b[1].width))
        take = code.binary("or", code.binary("or", self._beats(a[0], b[0]), earlier), absent)
        return code.binary("and", take, found)

    # --- logsumexp ----------------------------------------------------------------------------------------------------

    def _log_step(self, state: State, x: IrValue) -> State:
        """Add x to (m, s) with one exp, of minus the distance between x and m."""
        one = self.code.constant(1, x.element, x.width)
        return self._log_combine(state, (x, one))

    def _log_combine(self, a: State, b: State) -> State:
        """Combine states: scale the sum that has the lower maximum; -inf adds nothing."""
        code, f = self.code, MathFunctions(self.code, a[0])
        limit = float(np.finfo(self.dtype.numpy).max) / 4
        top = extremum(code, True, a[0], b[0], self.dtype, careful=True)
        low, high = (self._clipped(x, limit) for x in (a[0], b[0]))
        gap = code.binary("fsub", high, low)
        above = code.compare("fcmp ogt", gap, f.number(0))
        scale = f.exp(code.make(f"fneg {f.absolute(gap)}", gap.element, gap.width))
        nothing = code.compare("fcmp oeq", b[0], f.number(-math.inf))
        added = code.select(nothing, f.number(0), b[1])
        kept = f.fused(a[1], scale, added)
        grown = f.fused(added, scale, a[1])
        return top, code.select(above, kept, grown)

    def _clipped(self, x: IrValue, limit: float) -> IrValue:
        code = self.code
        for greatest, edge in ((True, -limit), (False, limit)):
            x = extremum(code, greatest, code.constant(edge, x.element, x.width), x, self.dtype, careful=False)
        return x
