"""Ops as JSON objects into columns, a batch at a time; what is wrong with one is told with the path of the field."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from einturnip.verify.types import KINDS, NotAPlan, RunRepeats

KIND = {kind: number for number, kind in enumerate(KINDS)}
# Room for sums of a few of them in 64 bits.
LARGEST = 1 << 60
_FIELDS = ("id", "kind", "lane", "task", "reads", "writes", "after", "unit", "seconds")
_WRONG = (KeyError, TypeError, ValueError, IndexError, OverflowError)


class RowColumns:
    """The accesses of one side, as they come. Tiers are numbered as they are first named."""

    def __init__(self, side: str, tiers: dict[str, int], repeats: dict[Any, int]) -> None:
        self.side = side
        self.tiers = tiers
        self.repeats = repeats
        self.counts = array("q")
        self.tier, self.repeat = array("i"), array("i")
        self.start, self.nbytes, self.value = array("q"), array("q"), array("q")

    def extend(self, batch: list[dict[str, Any]]) -> None:
        """Append the accesses of the ops; raises one of _WRONG where one is not of the form."""
        lists = [op[self.side] for op in batch]
        _all_are(lists, list)
        rows = list(chain.from_iterable(lists))
        _all_are(rows, list)
        starts, sizes = [row[1] for row in rows], [row[2] for row in rows]
        values = [row[3] for row in rows]
        _all_are(starts, int)
        _all_are(sizes, int)
        _all_are(values, int)
        lengths = set(map(len, rows))
        if lengths <= {4}:
            repeats = [0] * len(rows)
        elif lengths <= {4, 5}:
            repeats = [0] * len(rows)
            for i, row in enumerate(rows):
                if len(row) == 5:
                    sizes[i], repeats[i] = self._repeated(row[2], row[4])
        else:
            raise ValueError
        if rows and not (
            min(sizes) >= 0 and max(sizes) <= LARGEST and -LARGEST <= min(starts) <= max(starts) <= LARGEST
        ):
            raise ValueError
        self.value.extend(values)
        tiers = self.tiers
        for row in rows:
            if row[0] not in tiers:
                if type(row[0]) is not str:
                    raise TypeError
                tiers[row[0]] = len(tiers)
        self.tier.extend([tiers[row[0]] for row in rows])
        self.start.extend(starts)
        self.nbytes.extend(sizes)
        self.repeat.extend(repeats)
        self.counts.extend(map(len, lists))

    def _repeated(self, nbytes: int, axes: Any) -> tuple[int, int]:
        """Bytes of one run and the number of how it repeats."""
        if type(axes) is not list:
            raise TypeError
        for count, stride in axes:
            if type(count) is not int or type(stride) is not int or count < 0 or stride < 0:
                raise ValueError
        nbytes, key = merged(nbytes, axes)
        times, reach = repeated(key)
        if max(nbytes * times, reach) > LARGEST:
            raise ValueError
        return nbytes, self.repeats.setdefault(key, len(self.repeats))


def merged(nbytes: int, axes: list[list[int]]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Bytes of one run and how it repeats, with runs that touch made one."""
    found: list[tuple[int, int]] = []
    for count, stride in reversed(axes):
        if count == 0:
            return 0, ()
        if count == 1:
            continue
        if not found and stride == nbytes:
            nbytes *= count
        elif found and stride == found[-1][0] * found[-1][1]:
            found[-1] = found[-1][0] * count, found[-1][1]
        else:
            found.append((count, stride))
    return nbytes, tuple(reversed(found)) if nbytes else ()


def repeated(axes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """How many runs there are, and how far the last begins behind the first."""
    times, reach = 1, 0
    for count, stride in axes:
        times *= count
        reach += (count - 1) * stride
    return times, reach


class ParsedOps:
    """Ops as they come."""

    def __init__(self) -> None:
        self.tiers: dict[str, int] = {}
        self.repeats: dict[Any, int] = {(): 0}
        self.ids, self.task = array("q"), array("q")
        self.kind = array("B")
        self.unit, self.in_unit = array("q"), array("B")
        self.sides = RowColumns("reads", self.tiers, self.repeats), RowColumns("writes", self.tiers, self.repeats)
        self.after_counts, self.after = array("q"), array("q")

    def extend(self, batch: list[Any]) -> None:
        """Append ops.

        Raises:
            NotAPlan: with the path of the first field that is not of the form.
        """
        first = len(self.ids)
        try:
            self._extend(batch)
        except _WRONG:
            explain(batch, first)

    def _extend(self, batch: list[Any]) -> None:
        _all_are(batch, dict)
        ids, tasks, units = [op["id"] for op in batch], [op["task"] for op in batch], [op["unit"] for op in batch]
        afters = [op["after"] for op in batch]
        flat = list(chain.from_iterable(afters))
        _all_are(ids, int)
        _all_are(tasks, int)
        _all_are(afters, list)
        _all_are(flat, int)
        _all_are([op["lane"] for op in batch], str)
        if not {type(op["seconds"]) for op in batch} <= {int, float}:
            raise TypeError
        given = [0 if unit is None else 1 for unit in units]
        units = [0 if unit is None else unit for unit in units]
        _all_are(units, int)
        kinds = [KIND[op["kind"]] for op in batch]
        for side in self.sides:
            side.extend(batch)
        # Only numbers that do not fit can be refused from here on.
        self.after.extend(flat)
        self.after_counts.extend(map(len, afters))
        self.task.extend(tasks)
        self.unit.extend(units)
        self.in_unit.extend(given)
        self.kind.extend(kinds)
        self.ids.extend(ids)

    def repeats_table(self) -> RunRepeats:
        """The ways in which runs repeat, by number."""
        numbers = [repeated(key) for key in self.repeats]
        return RunRepeats(
            tuple(self.repeats),
            np.array([times for times, _ in numbers], np.int64),
            np.array([reach for _, reach in numbers], np.int64),
        )


def _all_are(found: list[Any], kind: type) -> None:
    # By type and not isinstance: True is no number here.
    if not set(map(type, found)) <= {kind}:
        raise TypeError


def explain(batch: list[Any], first: int) -> NoReturn:
    """Say which field of which op is not of the form."""
    for i, op in enumerate(batch, first):
        path = f"ops[{i}]"
        if type(op) is not dict:
            wrong(path, "an object", op)
        for name in _FIELDS:
            if name not in op:
                raise NotAPlan(f"{path}: the field '{name}' is missing")
        for name in ("id", "task"):
            _whole(f"{path}.{name}", op[name])
        if type(op["kind"]) is not str or op["kind"] not in KIND:
            wrong(f"{path}.kind", f"one of {', '.join(KINDS)}", op["kind"])
        if type(op["lane"]) is not str:
            wrong(f"{path}.lane", "the name of a lane", op["lane"])
        if op["unit"] is not None:
            _whole(f"{path}.unit", op["unit"], " or null")
        if type(op["seconds"]) not in (int, float):
            wrong(f"{path}.seconds", "a number", op["seconds"])
        for name in ("reads", "writes", "after"):
            if type(op[name]) is not list:
                wrong(f"{path}.{name}", "a list", op[name])
        for j, other in enumerate(op["after"]):
            _whole(f"{path}.after[{j}]", other)
        for side in ("reads", "writes"):
            for j, row in enumerate(op[side]):
                _explain_row(f"{path}.{side}[{j}]", row)
    raise AssertionError("a batch was refused, but nothing is wrong with it")


def _explain_row(path: str, row: Any) -> None:
    if type(row) is not list or len(row) not in (4, 5):
        wrong(
            path,
            "[tier, offset, nbytes, value] or, in a file, [tier, offset, nbytes, value, [[count, stride], ...]]",
            row,
        )
    if type(row[0]) is not str:
        wrong(f"{path}[0]", "the id of a tier", row[0])
    for j, what in ((1, "offset"), (2, "number of bytes"), (3, "value")):
        _whole(f"{path}[{j}]", row[j], f" ({what})")
    if not 0 <= row[2] <= LARGEST:
        wrong(f"{path}[2]", f"a number of bytes from 0 to {LARGEST}", row[2])
    if not -LARGEST <= row[1] <= LARGEST:
        wrong(f"{path}[1]", "an offset of less than 61 bits", row[1])
    if len(row) == 5:
        _explain_repeats(f"{path}[4]", row)


def _explain_repeats(path: str, row: list[Any]) -> None:
    if type(row[4]) is not list:
        wrong(path, "a list of [count, stride]", row[4])
    for j, axis in enumerate(row[4]):
        if type(axis) is not list or len(axis) != 2:
            wrong(f"{path}[{j}]", "[count, stride]", axis)
        for k, what in ((0, "count"), (1, "stride")):
            _whole(f"{path}[{j}][{k}]", axis[k], f" ({what})")
            if axis[k] < 0:
                wrong(f"{path}[{j}][{k}]", f"a {what} of 0 or more", axis[k])
    nbytes, key = merged(row[2], row[4])
    times, reach = repeated(key)
    if max(nbytes * times, reach) > LARGEST:
        wrong(path, f"an extent of at most {LARGEST} bytes", row[4])


def _whole(path: str, found: Any, more: str = "") -> None:
    if type(found) is not int or not -(1 << 63) <= found < 1 << 63:
        wrong(path, f"a whole number{more}" + (" of 64 bits" if type(found) is int else ""), found)


def wrong(path: str, expected: str, found: Any) -> NoReturn:
    """Refuse a field."""
    shown = (
        repr(found) if not isinstance(found, (dict, list)) else f"a{'n object' if isinstance(found, dict) else ' list'}"
    )
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    raise NotAPlan(f"{path}: expected {expected}, found {shown}")
