"""Rows folded into a state at places that are data: what NumPy's ``at`` does element by element under Python's lock."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from einturnip.codegen.native.ir import Value, element
from einturnip.codegen.native.memory import METADATA
from einturnip.codegen.native.primitives import extremum
from einturnip.codegen.native.routine import Routine, Way
from einturnip.codegen.native.take import LINE
from einturnip.codegen.primitives import Array
from einturnip.core.dtypes import DType

_AHEAD = 8  # rows whose places are fetched before their time
_KNOWN = frozenset({"sum", "prod", "max", "min"})


@dataclass(frozen=True, slots=True)
class Scatterer:
    """The code that folds rows into a state's component of one type; its argument is an array of i64: WORDS.

    Rows are folded in their order, each from its first column on, as NumPy does. One whose place is outside the state
    is left out.
    """

    op: str
    dtype: DType


WORDS = ("state", "rows", "columns", "values", "counts", "n_rows", "n_columns", "limit", "row_step", "column_step")


def scatterer(op: str, dtype: DType) -> Scatterer | None:
    """The code for an aggregation's first component; None where NumPy does it."""
    op = "sum" if op == "mean" else op
    known = op in _KNOWN and (dtype.is_integer or dtype.name in ("f32", "f64"))
    return Scatterer(op, dtype) if known else None


def arguments(
    state: Array, rows: Array, columns: Array, values: Array, dense: bool, counts: Array | None
) -> array[int]:
    """The argument: value (r, c) goes to element ``rows[r] + columns[c]`` of the state, where row r counts.

    ``dense``: the columns' places follow each other, and so do the values of a row.

    Shapes:
        state: a vector in one run; rows, columns: i64, vectors in one run; counts: bool, as the rows.
    """
    state_at = _address(state) + (int(columns[0]) * state.itemsize if dense else 0)
    counted = 0 if counts is None else _address(counts)
    found = [state_at, _address(rows), 0 if dense else _address(columns), _address(values), counted]
    limit = max(0, state.size - int(columns.max()))
    return array("q", [*found, len(rows), len(columns), limit, *values.strides])


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def scatter_function(code: Scatterer, name: str) -> str:
    """The LLVM IR of it."""
    made = _Scatter(code, name)
    return "\n".join([made.text, *made.declared]) + f"\n{METADATA}"


class _Scatter(Routine):
    def __init__(self, code: Scatterer, name: str) -> None:
        super().__init__(name, "words", "", linkage="")
        self.op, self.dtype = code.op, code.dtype
        self.item, self.kind = code.dtype.itemsize, element(code.dtype)
        self.of = {text: self.word(self["words"], k) for k, text in enumerate(WORDS)}
        self.places = {text: self._pointer(self.of[text]) for text in WORDS[:5]}
        last = self.minus(self.of["n_rows"], 1)
        alone = self.whether("eq", self.of["n_columns"], 1)

        def rows(body: Callable[[Value, Value], None]) -> None:
            def one(r: Value) -> None:
                ahead = self.word(self.places["rows"], self.least(self.plus(r, _AHEAD), last))
                self.prefetch(self._of_state(ahead))
                place = self.word(self.places["rows"], r)
                inside = self.whether("ult", place, self.of["limit"])
                self.when(inside, lambda: self._counted(r, lambda: body(r, place)))

            self.each(self.of["n_rows"], 1, one)

        dense = self.whether("eq", self.of["columns"], 0)
        side_by_side = lambda: self.either(alone, lambda: rows(self._alone), lambda: rows(self._run))  # noqa: E731
        self.either(dense, side_by_side, lambda: rows(self._apart))

    def _pointer(self, address: Value) -> Value:
        return self.make(f"inttoptr {address} to ptr", "ptr", 0)

    def _of_state(self, place: Value) -> Value:
        return self.at(self.places["state"], self.times(place, self.item))

    def _counted(self, r: Value, body: Way) -> None:
        """Where a row counts, or all do."""

        def masked() -> None:
            bit = self.load(self.at(self.places["counts"], r), "i8")
            self.when(self.make(f"icmp ne {bit}, 0", "i1", 0), body)

        self.either(self.whether("eq", self.of["counts"], 0), body, masked)

    def _values(self, r: Value) -> Value:
        return self.at(self.places["values"], self.times(r, self.of["row_step"]))

    def _fold(self, target: Value, source: Value, width: int = 0) -> None:
        old, new = (self.load(place, self.kind, width) for place in (target, source))
        self.store(self._one(old, new), target)

    def _one(self, a: Value, b: Value) -> Value:
        if self.op in ("max", "min"):
            return extremum(self, self.op == "max", a, b, self.dtype, careful=True)
        name = {"sum": "add", "prod": "mul"}[self.op]
        return self.binary(f"f{name}" if self.dtype.is_float else name, a, b)

    def _alone(self, r: Value, place: Value) -> None:
        self._fold(self._of_state(place), self._values(r))

    def _run(self, r: Value, place: Value) -> None:
        """Columns side by side: vectors, then one by one."""
        target, source, width = self._of_state(place), self._values(r), LINE // self.item
        lines = self.over(self.of["n_columns"], width)

        def line(i: Value) -> None:
            at = self.times(i, LINE)
            self._fold(self.at(target, at), self.at(source, at), width)

        self.each(lines, 1, line)
        begin = self.times(lines, width)

        def one(c: Value) -> None:
            at = self.times(self.plus(begin, c), self.item)
            self._fold(self.at(target, at), self.at(source, at))

        self.each(self.minus(self.of["n_columns"], begin), 1, one)

    def _apart(self, r: Value, place: Value) -> None:
        source = self._values(r)

        def one(c: Value) -> None:
            target = self._of_state(self.plus(place, self.word(self.places["columns"], c)))
            self._fold(target, self.at(source, self.times(c, self.of["column_step"])))

        self.each(self.of["n_columns"], 1, one)


def fits(places: Array) -> bool:
    """Whether places are as the code reads them."""
    return places.dtype == np.int64 and places.flags.c_contiguous and places.flags.aligned
