"""Scatter of rows into a state, as NumPy's ``ufunc.at`` does one element at a time, without its lock.

Sums of floats use a table of partial sums, see ``partial_sums``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.partial_sums import (
    EVERY,
    NO_TABLE,
    OWNED,
    PROBE,
    SETTLE,
    TAKE,
    GroupSample,
    ScatterCode,
    TableFunction,
    address_of,
)
from einturnip.kernels.llvm.primitives import extremum
from einturnip.kernels.llvm.routine import module

_AHEAD = 8  # rows whose targets are prefetched
_KNOWN = frozenset({"add", "mul", "max", "min"})


def scatterer(op: str, dtype: DType) -> ScatterCode | None:
    """Return the code for an aggregation's first component; None if NumPy computes it."""
    known = op in _KNOWN and (dtype.is_integer or dtype.name in ("f32", "f64"))
    return ScatterCode(op, dtype) if known else None


def arguments(
    state: Array,
    rows: Array,
    columns: Array,
    values: Array,
    dense: bool,
    selected: Array | None,
    table: Sequence[int] = NO_TABLE,
) -> array[int]:
    """Return the argument: value (r, c) is folded into element ``rows[r] + columns[c]`` of the state.

    ``dense``: the columns' places are consecutive, and so are the values of a row. ``selected``: the mask of rows to
    fold, None for all. ``table``: see PartialSumTable.words.

    Shapes:
        state: a contiguous vector; rows: i32 or i64, columns: i64, contiguous vectors; selected: bool, as the rows.
    """
    state_at = address_of(state) + (int(columns[0]) * state.itemsize if dense else 0)
    mask_at = 0 if selected is None else address_of(selected)
    found = [state_at, address_of(rows), 0 if dense else address_of(columns), address_of(values), mask_at]
    limit = max(0, state.size - int(columns.max()))
    return array("q", [*found, len(rows), len(columns), limit, *values.strides, rows.itemsize == 4, *table])


def scatter_function(code: ScatterCode, name: str) -> str:
    """Return the LLVM IR."""
    sample = f"{name}_sample"
    return module([_Scatter(code, name, sample), *([GroupSample(code, sample)] if code.spills else [])])


class _Scatter(TableFunction):
    def __init__(self, code: ScatterCode, name: str, sample: str) -> None:
        super().__init__(code, name, "", "")
        self.sample = sample
        if not self.spills:
            self._fold_all()
            return
        takes, settles = (self.whether("eq", self.of["action"], action) for action in (TAKE, SETTLE))
        self.either(takes, self._take_all, lambda: self.either(settles, self._settle_all, self._fold_all))

    def _take_all(self) -> None:
        def one(group: IrValue) -> None:
            place = self.times(group, self.of["unit"])
            entry = self._home(place)
            self.store(IrValue(str(OWNED - 256), "i8", 0), self.at(self.places["tallies"], entry))
            self.store(place, self.words(self.places["owners"], entry))
            self._entry(entry, place, self._begin)

        self.each(self.of["groups"], 1, one)

    def _settle_all(self) -> None:
        def one(entry: IrValue) -> None:
            self.when(self._owned(entry), lambda: self._settle(entry, self.word(self.places["owners"], entry)))

        self.each(self.of["entries"], 1, one)

    def _fold_all(self) -> None:
        last = self.minus(self.of["n_rows"], 1)
        alone = self.whether("eq", self.of["n_columns"], 1)
        tabled = self.whether("ne", self.of["tallies"], 0)
        if self.spills:
            probes = self.whether("eq", self.of["action"], PROBE)
            self.when(
                probes, lambda: self.each(self.of["n_rows"], EVERY, lambda r: self.run(self.sample, self["words"], r))
            )

        def rows(body: Callable[[IrValue, IrValue], None]) -> None:
            def one(r: IrValue) -> None:
                ahead = self._place(self.minimum(self.plus(r, _AHEAD), last))
                self.prefetch(self._of_state(ahead))
                place = self._place(r)
                inside = self.whether("ult", place, self.of["limit"])
                self.when(inside, lambda: self._counted(r, lambda: body(r, place)))

            if not self.spills:
                self.each(self.of["n_rows"], 1, one)
                return

            def some(begin: IrValue) -> None:
                self.when(tabled, lambda: self.run(self.sample, self["words"], begin))
                self.span(begin, self.minimum(self.plus(begin, EVERY), self.of["n_rows"]), one)

            self.each(self.of["n_rows"], EVERY, some)

        side_by_side = lambda: self.either(alone, lambda: rows(self._alone), lambda: rows(self._run))  # noqa: E731
        self.either(self.dense, side_by_side, lambda: rows(self._scattered))

    def _values(self, r: IrValue) -> IrValue:
        return self.at(self.places["values"], self.times(r, self.of["row_step"]))

    def _fold(self, target: IrValue, source: IrValue, width: int = 0) -> None:
        old, new = (self.load(place, self.kind, width) for place in (target, source))
        self.store(self._one(old, new), target)

    def _one(self, a: IrValue, b: IrValue) -> IrValue:
        if self.op in ("max", "min"):
            return extremum(self, self.op == "max", a, b, self.dtype, careful=True)
        return self.binary(f"f{self.op}" if self.dtype.is_float else self.op, a, b)

    def _alone(self, r: IrValue, place: IrValue) -> None:
        self._fold(self._of_state(place), self._values(r))

    def _run(self, r: IrValue, place: IrValue) -> None:
        """Fold contiguous columns."""
        target, source = self._of_state(place), self._values(r)
        self._lines(lambda at, width: self._fold(self.at(target, at), self.at(source, at), width))

    def _scattered(self, r: IrValue, place: IrValue) -> None:
        source = self._values(r)

        def one(c: IrValue) -> None:
            target = self._of_state(self.plus(place, self.word(self.places["columns"], c)))
            self._fold(target, self.at(source, self.times(c, self.of["column_step"])))

        self.each(self.of["n_columns"], 1, one)


def fits(places: Array) -> bool:
    """Return whether places have the layout that the code reads."""
    return places.dtype in (np.int32, np.int64) and places.flags.c_contiguous and places.flags.aligned
