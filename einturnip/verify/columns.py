"""Converts ops from JSON objects to columns, batch by batch.

Format errors are reported with the path of the field.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from einturnip.verify.types import KINDS, NotAPlan, RunRepeats

KIND = {kind: number for number, kind in enumerate(KINDS)}
# Leaves space for sums of several such numbers in 64 bits.
LARGEST = 1 << 60
_FIELDS = ("id", "kind", "lane", "task", "reads", "writes", "after", "unit", "seconds")
_FORMAT_ERRORS = (KeyError, TypeError, ValueError, IndexError, OverflowError)


class RowColumns:
    """The accesses of one side, reads or writes, as columns. Tiers are numbered by first appearance."""

    def __init__(self, side: str, tiers: dict[str, int], repeats: dict[Any, int]) -> None:
        self.side = side
        self.tiers = tiers
        self.repeats = repeats
        self.counts = array("q")
        self.tier, self.repeat = array("i"), array("i")
        self.start, self.nbytes, self.value = array("q"), array("q"), array("q")

    def extend(self, batch: list[dict[str, Any]]) -> None:
        """Append the accesses of the ops; raise one of _FORMAT_ERRORS if one is malformed."""
        lists = [op[self.side] for op in batch]
        _require_type(lists, list)
        rows = list(chain.from_iterable(lists))
        _require_type(rows, list)
        starts, sizes = [row[1] for row in rows], [row[2] for row in rows]
        values = [row[3] for row in rows]
        _require_type(starts, int)
        _require_type(sizes, int)
        _require_type(values, int)
        lengths = set(map(len, rows))
        if lengths <= {4}:
            repeats = [0] * len(rows)
        elif lengths <= {4, 5}:
            repeats = [0] * len(rows)
            for i, row in enumerate(rows):
                if len(row) == 5:
                    sizes[i], repeats[i] = self._parse_repeats(row[2], row[4])
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

    def _parse_repeats(self, nbytes: int, axes: Any) -> tuple[int, int]:
        """Return the bytes of one run, and the number of its repetition pattern."""
        if type(axes) is not list:
            raise TypeError
        for count, stride in axes:
            if type(count) is not int or type(stride) is not int or count < 0 or stride < 0:
                raise ValueError
        nbytes, key = merge_runs(nbytes, axes)
        times, reach = run_extent(key)
        if max(nbytes * times, reach) > LARGEST:
            raise ValueError
        return nbytes, self.repeats.setdefault(key, len(self.repeats))


def merge_runs(nbytes: int, axes: list[list[int]]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the bytes of one run and its repetitions, with adjacent runs merged."""
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


def run_extent(axes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the number of runs, and the distance from the first to the last."""
    times, reach = 1, 0
    for count, stride in axes:
        times *= count
        reach += (count - 1) * stride
    return times, reach


class ParsedOps:
    """The ops parsed so far, as columns."""

    def __init__(self) -> None:
        self.tiers: dict[str, int] = {}
        self.repeats: dict[Any, int] = {(): 0}
        self.ids, self.task = array("q"), array("q")
        self.kind = array("B")
        self.unit, self.in_unit = array("q"), array("B")
        self.sides = RowColumns("reads", self.tiers, self.repeats), RowColumns("writes", self.tiers, self.repeats)
        self.after_counts, self.after = array("q"), array("q")
        self.site, self.transfer = array("q"), array("q")

    def extend(self, batch: list[Any]) -> None:
        """Append ops.

        Raises:
            NotAPlan: names the path of the first malformed field.
        """
        first = len(self.ids)
        try:
            self._extend(batch)
        except _FORMAT_ERRORS:
            raise_first_error(batch, first)

    def _extend(self, batch: list[Any]) -> None:
        _require_type(batch, dict)
        ids, tasks, units = [op["id"] for op in batch], [op["task"] for op in batch], [op["unit"] for op in batch]
        afters = [op["after"] for op in batch]
        flat = list(chain.from_iterable(afters))
        _require_type(ids, int)
        _require_type(tasks, int)
        _require_type(afters, list)
        _require_type(flat, int)
        _require_type([op["lane"] for op in batch], str)
        if not {type(op["seconds"]) for op in batch} <= {int, float}:
            raise TypeError
        given = [0 if unit is None else 1 for unit in units]
        units = [0 if unit is None else unit for unit in units]
        _require_type(units, int)
        kinds = [KIND[op["kind"]] for op in batch]
        sites, transfers = ([op.get(name, -1) for op in batch] for name in ("site", "transfer"))
        _require_type(sites, int)
        _require_type(transfers, int)
        for side in self.sides:
            side.extend(batch)
        # From here on, only numbers that are too large can fail.
        self.after.extend(flat)
        self.after_counts.extend(map(len, afters))
        self.task.extend(tasks)
        self.unit.extend(units)
        self.in_unit.extend(given)
        self.kind.extend(kinds)
        self.site.extend(sites)
        self.transfer.extend(transfers)
        self.ids.extend(ids)

    def repeats_table(self) -> RunRepeats:
        """Return the repetition patterns of runs, by number."""
        numbers = [run_extent(key) for key in self.repeats]
        return RunRepeats(
            tuple(self.repeats),
            np.array([times for times, _ in numbers], np.int64),
            np.array([reach for _, reach in numbers], np.int64),
        )


def _require_type(found: list[Any], kind: type) -> None:
    # By type instead of isinstance, because True is not accepted as a number.
    if not set(map(type, found)) <= {kind}:
        raise TypeError


def raise_first_error(batch: list[Any], first: int) -> NoReturn:
    """Raise NotAPlan for the first malformed field of a batch."""
    for i, op in enumerate(batch, first):
        path = f"ops[{i}]"
        if type(op) is not dict:
            refuse(path, "an object", op)
        for name in _FIELDS:
            if name not in op:
                raise NotAPlan(f"{path}: the field '{name}' is missing")
        for name in ("id", "task", *({"site", "transfer"} & op.keys())):
            _require_integer(f"{path}.{name}", op[name])
        if type(op["kind"]) is not str or op["kind"] not in KIND:
            refuse(f"{path}.kind", f"one of {', '.join(KINDS)}", op["kind"])
        if type(op["lane"]) is not str:
            refuse(f"{path}.lane", "the name of a lane", op["lane"])
        if op["unit"] is not None:
            _require_integer(f"{path}.unit", op["unit"], " or null")
        if type(op["seconds"]) not in (int, float):
            refuse(f"{path}.seconds", "a number", op["seconds"])
        for name in ("reads", "writes", "after"):
            if type(op[name]) is not list:
                refuse(f"{path}.{name}", "a list", op[name])
        for j, other in enumerate(op["after"]):
            _require_integer(f"{path}.after[{j}]", other)
        for side in ("reads", "writes"):
            for j, row in enumerate(op[side]):
                _check_row(f"{path}.{side}[{j}]", row)
    raise AssertionError("a batch was refused, but all its fields are valid")


def _check_row(path: str, row: Any) -> None:
    if type(row) is not list or len(row) not in (4, 5):
        refuse(
            path,
            "[tier, offset, nbytes, value] or, in a file, [tier, offset, nbytes, value, [[count, stride], ...]]",
            row,
        )
    if type(row[0]) is not str:
        refuse(f"{path}[0]", "the id of a tier", row[0])
    for j, what in ((1, "offset"), (2, "number of bytes"), (3, "value")):
        _require_integer(f"{path}[{j}]", row[j], f" ({what})")
    if not 0 <= row[2] <= LARGEST:
        refuse(f"{path}[2]", f"a number of bytes from 0 to {LARGEST}", row[2])
    if not -LARGEST <= row[1] <= LARGEST:
        refuse(f"{path}[1]", "an offset of less than 61 bits", row[1])
    if len(row) == 5:
        _check_repeats(f"{path}[4]", row)


def _check_repeats(path: str, row: list[Any]) -> None:
    if type(row[4]) is not list:
        refuse(path, "a list of [count, stride]", row[4])
    for j, axis in enumerate(row[4]):
        if type(axis) is not list or len(axis) != 2:
            refuse(f"{path}[{j}]", "[count, stride]", axis)
        for k, what in ((0, "count"), (1, "stride")):
            _require_integer(f"{path}[{j}][{k}]", axis[k], f" ({what})")
            if axis[k] < 0:
                refuse(f"{path}[{j}][{k}]", f"a {what} of 0 or more", axis[k])
    nbytes, key = merge_runs(row[2], row[4])
    times, reach = run_extent(key)
    if max(nbytes * times, reach) > LARGEST:
        refuse(path, f"an extent of at most {LARGEST} bytes", row[4])


def _require_integer(path: str, found: Any, more: str = "") -> None:
    if type(found) is not int or not -(1 << 63) <= found < 1 << 63:
        refuse(path, f"an integer{more}" + (" of 64 bits" if type(found) is int else ""), found)


def refuse(path: str, expected: str, found: Any) -> NoReturn:
    """Raise NotAPlan for a field."""
    shown = (
        repr(found) if not isinstance(found, (dict, list)) else f"a{'n object' if isinstance(found, dict) else ' list'}"
    )
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    raise NotAPlan(f"{path}: expected {expected}, found {shown}")
