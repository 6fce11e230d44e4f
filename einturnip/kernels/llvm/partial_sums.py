"""Partial sums of a scatter, which keep its sums of floats accurate.

A sum of n terms, added in sequence, may be off by n roundings, and an f32 stops growing at 2**24. So one row in EVERY
is counted for its group, and after SPILL of them, which are about 128 rows of the group, the group's value in the state
moves to an entry of a table, a sum and the rounding errors made in it (Knuth's TwoSum), and the state restarts at zero.
When all rows are folded, the table's sums are added to the state. The hot loop adds in the state's own type; the table
is hardly ever touched.

If the table has an entry for each group, the whole state moves there before the first row, so that no group's error
grows with its rows or with the calls that fold into the state. If there are too many groups, only groups that were
counted SPILL times get an entry, the nearest free one from the position that a hash of the group gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.routine import ZERO, Branch, Routine
from einturnip.kernels.llvm.take_rows import LINE

EVERY = 16  # one row of these is counted
SPILL = 8  # counted rows of a group, a power of two below 128
# Actions: fold rows; move the state into the table; add the table's sums to the state; PROBE counts rows and moves the
# state of groups with many of them, then folds.
FOLD, TAKE, SETTLE, PROBE = range(4)
_NEAR = 8  # probed entries, from the position that a group's hash gives
OWNED = 128  # the bit of a tally that marks its entry as occupied
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 over the golden ratio: spreads places evenly over the entries


@dataclass(frozen=True, slots=True)
class ScatterCode:
    """Code that adds rows to one component of a state; its argument is the i64 array WORDS.

    Rows are folded in order, each from its first column on, as NumPy does. A row whose place is outside the state is
    left out.
    """

    op: str
    dtype: DType

    @property
    def spills(self) -> bool:
        """Whether it can use a table of partial sums."""
        return self.op == "add" and self.dtype.is_float


@dataclass(frozen=True, slots=True)
class PartialSumTable:
    """Partial sums of groups, over the columns of a block.

    Shapes:
        tallies: u8, a power of two of entries: rows since the last move, and OWNED.
        owners: i64, by entry, the place of its group.
        sums: of the state's type, entries x 2 x columns at least: sums, then their rounding errors.
    """

    tallies: Array
    owners: Array
    sums: Array

    def words(self, unit: int, groups: int, action: int = 0) -> list[int]:
        """Return the code's arguments for the table; ``action``: FOLD, TAKE, SETTLE or PROBE.

        ``groups``: their number if each has an entry of its own; their places are multiples of ``unit``.
        """
        entries = len(self.tallies)
        mixer, shift = _MIXER, 65 - entries.bit_length()
        if groups:
            mixer, shift = 1, _zeros(unit)
        addresses = map(address_of, (self.tallies, self.owners, self.sums))
        return [*addresses, entries, self.sums.nbytes // entries, mixer, shift, unit, groups, action]

    def entries_of(self, places: Array, unit: int, out: Array) -> None:
        """Compute the entries of groups that have one of their own.

        Multiples of an odd number differ in their low bits, so the places need no division.
        """
        np.right_shift(places, _zeros(unit), out=out)
        np.bitwise_and(out, len(self.tallies) - 1, out=out)

    @property
    def wide_sums(self) -> Array:
        """The bytes of f32 sums as one f64 a column, for NumPy: entries x columns."""
        return self.sums.view(np.float64).reshape(len(self.tallies), -1)


def _zeros(unit: int) -> int:
    """Return the number of trailing zero bits."""
    return (unit & -unit).bit_length() - 1


OF_ROWS = ("state", "rows", "columns", "values", "counts", "n_rows", "n_columns", "limit", "row_step", "column_step")
OF_BLOCK = (*OF_ROWS, "narrow")
OF_TABLE = ("tallies", "owners", "sums", "entries", "entry_nbytes", "mixer", "shift", "unit", "groups", "action")
WORDS = (*OF_BLOCK, *OF_TABLE)
NO_TABLE = (0,) * len(OF_TABLE)


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


class TableFunction(Routine):
    """A function whose first argument is the array of WORDS, with the operations on the table."""

    def __init__(self, code: ScatterCode, name: str, numbers: str, linkage: str) -> None:
        super().__init__(name, "words", numbers, linkage=linkage)
        self.op, self.dtype, self.spills = code.op, code.dtype, code.spills
        self.item, self.kind = code.dtype.itemsize, element(code.dtype)
        self.of = {text: self.word(self["words"], k) for k, text in enumerate(WORDS)}
        self.places = {text: self.as_pointer(self.of[text]) for text in (*OF_BLOCK[:5], *OF_TABLE[:3])}
        self.dense = self.whether("eq", self.of["columns"], 0)
        self.narrow = self.whether("ne", self.of["narrow"], 0)

    def _place(self, r: IrValue) -> IrValue:
        """Return the place of a row."""
        return self.position(self.places["rows"], r, self.narrow)

    def _of_state(self, place: IrValue) -> IrValue:
        return self.at(self.places["state"], self.times(place, self.item))

    def _counted(self, r: IrValue, body: Branch) -> None:
        """Run the body if a row is selected, or all rows are."""

        def masked() -> None:
            bit = self.load(self.at(self.places["counts"], r), "i8")
            self.when(self.make(f"icmp ne {bit}, 0", "i1", 0), body)

        self.either(self.whether("eq", self.of["counts"], 0), body, masked)

    def _lines(self, body: Callable[[IrValue, int], None]) -> None:
        """Loop over byte offsets of contiguous columns: vectors, then single columns."""
        width = LINE // self.item
        lines = self.over(self.of["n_columns"], width)
        self.each(lines, 1, lambda i: body(self.times(i, LINE), width))
        begin = self.times(lines, width)
        rest = self.minus(self.of["n_columns"], begin)
        self.each(rest, 1, lambda c: body(self.times(self.plus(begin, c), self.item), 0))

    def _tally(self, place: IrValue) -> None:
        """Count a row for its group, and move the group's state to the table after SPILL of them."""
        home = self._home(place)
        at = self.at(self.places["tallies"], home)
        more = self.binary("add", self.load(at, "i8"), self.constant(1, "i8"))
        self.store(more, at)

        def full() -> None:
            self.store(self._bits(more, OWNED), at)
            own = self.whether("ne", self.of["groups"], 0)
            (entry,) = self.choose(own, lambda: [home], lambda: [self._search(home, place)])
            self._move(entry, place)

        self.when(self._has(more, SPILL), full)

    def _home(self, place: IrValue) -> IrValue:
        """Return the first entry probed for a group, whose tally counts it."""
        mixed = self.integer("lshr", self.integer("mul", place, self.of["mixer"]), self.of["shift"])
        return self._within(mixed)

    def _within(self, entry: IrValue) -> IrValue:
        return self.integer("and", entry, self.minus(self.of["entries"], 1))

    def _bits(self, byte: IrValue, mask: int) -> IrValue:
        return self.binary("and", byte, IrValue(str(mask - (mask & 128) * 2), "i8", 0))

    def _has(self, byte: IrValue, bit: int) -> IrValue:
        return self.make(f"icmp ne i8 {self._bits(byte, bit).name}, 0", "i1", 0)

    def _owned(self, entry: IrValue) -> IrValue:
        return self._has(self.load(self.at(self.places["tallies"], entry), "i8"), OWNED)

    def _search(self, home: IrValue, place: IrValue) -> IrValue:
        """Return the group's entry, else the nearest free one, else the first probed."""

        def near(distance: IrValue, carried: list[IrValue]) -> list[IrValue]:
            # From the farthest to the nearest; the group's own entry wins over a free one.
            entry = self._within(self.plus(home, self.minus(IrValue(str(_NEAR - 1), "i64", 0), distance)))
            owned = self._owned(entry)
            same = self.both(owned, self.whether("eq", self.word(self.places["owners"], entry), place))
            free = self.make(f"xor {owned}, true", "i1", 0)
            return [self.select(free, entry, carried[0]), self.select(same, entry, carried[1])]

        none = IrValue("-1", "i64", 0)
        free, own = self.loop(ZERO, IrValue(str(_NEAR), "i64", 0), 1, [home, none], near)
        return self.select(self.whether("slt", own, 0), free, own)

    def _move(self, entry: IrValue, place: IrValue) -> None:
        """Move the state of a group to an entry; a previous owner's sum returns to the state."""
        owned, owner_at = self._owned(entry), self.words(self.places["owners"], entry)
        same = self.both(owned, self.whether("eq", self.load(owner_at, "i64"), place))

        def take() -> None:
            self.when(owned, lambda: self._settle(entry, self.load(owner_at, "i64")))
            at = self.at(self.places["tallies"], entry)
            self.store(self.binary("or", self.load(at, "i8"), IrValue(str(OWNED - 256), "i8", 0)), at)
            self.store(place, owner_at)
            self._entry(entry, place, self._begin)

        self.either(same, lambda: self._entry(entry, place, self._two_sum), take)

    def _begin(self, of_state: IrValue, sum_at: IrValue, error_at: IrValue, width: int) -> None:
        """Start a sum from the state."""
        zero = self.constant(0, self.kind, width)
        self.store(self.load(of_state, self.kind, width), sum_at)
        for at in (error_at, of_state):
            self.store(zero, at)

    def _entry(self, entry: IrValue, place: IrValue, body: Callable[[IrValue, IrValue, IrValue, int], None]) -> None:
        """Run the body for each column or vector of columns: addresses in the state, of the sum and its error."""
        sums = self.at(self.places["sums"], self.times(entry, self.of["entry_nbytes"]))
        errors = self.at(sums, self.times(self.of["n_columns"], self.item))
        state = self._of_state(place)

        def line(at: IrValue, width: int) -> None:
            body(self.at(state, at), self.at(sums, at), self.at(errors, at), width)

        def scattered() -> None:
            def one(c: IrValue) -> None:
                at = self.times(c, self.item)
                of_state = self._of_state(self.plus(place, self.word(self.places["columns"], c)))
                body(of_state, self.at(sums, at), self.at(errors, at), 0)

            self.each(self.of["n_columns"], 1, one)

        self.either(self.dense, lambda: self._lines(line), scattered)

    def _two_sum(self, of_state: IrValue, sum_at: IrValue, error_at: IrValue, width: int) -> None:
        """Compute ``sum, error = sum + x, error + rounding error of that``, and reset the state to zero."""
        x, old, error = (self.load(of, self.kind, width) for of in (of_state, sum_at, error_at))
        zero = self.constant(0, self.kind, width)
        new = self._exact("fadd", old, x)
        self.store(zero, of_state)
        self.store(new, sum_at)
        # Infinity - infinity would raise "invalid", so a sum that is not finite has no error.
        finite = self._finite(new)
        x, old, new = (self.select(finite, v, zero) for v in (x, old, new))
        part = self._exact("fsub", new, old)
        lost = self._exact(
            "fadd", self._exact("fsub", old, self._exact("fsub", new, part)), self._exact("fsub", x, part)
        )
        self.store(self._exact("fadd", error, lost), error_at)

    def _exact(self, op: str, a: IrValue, b: IrValue) -> IrValue:
        return self.make(f"{op} {a}, {b.name}", a.element, a.width)

    def _finite(self, value: IrValue) -> IrValue:
        """Test the bits: comparing a NaN would raise "invalid"."""
        kind, mask = ("i32", 0x7F800000) if self.item == 4 else ("i64", 0x7FF0000000000000)
        ones = self.constant(mask, kind, value.width)
        return self.compare("icmp ne", self.binary("and", self.cast("bitcast", value, kind), ones), ones)

    def _settle(self, entry: IrValue, place: IrValue) -> None:
        """Add an entry's sum to the state."""

        def add(of_state: IrValue, sum_at: IrValue, error_at: IrValue, width: int) -> None:
            total, error = (self.load(of, self.kind, width) for of in (sum_at, error_at))
            error = self.select(self._finite(total), error, self.constant(0, self.kind, width))
            # The state's small sum and the error are added first, so that neither is lost in the large one.
            small = self._exact("fadd", self.load(of_state, self.kind, width), error)
            self.store(self._exact("fadd", total, small), of_state)

        self._entry(entry, place, add)


class GroupSample(TableFunction):
    """Counts one of the next EVERY rows for its group; not inlined, to keep the loop over rows small."""

    def __init__(self, code: ScatterCode, name: str) -> None:
        super().__init__(code, name, "begin", "internal ")
        last = self.minus(self.of["n_rows"], 1)
        # A varying one of them, so that no periodic pattern of the data is missed.
        turn = self.integer("lshr", self.integer("mul", self["begin"], _MIXER), 64 - (EVERY.bit_length() - 1))
        r = self.minimum(self.plus(self["begin"], turn), last)
        place = self._place(r)
        inside = self.whether("ult", place, self.of["limit"])
        self.when(inside, lambda: self._counted(r, lambda: self._tally(place)))

    @property
    def text(self) -> str:
        """The function's IR."""
        return super().text.replace(") #0 {", ") noinline #0 {")
