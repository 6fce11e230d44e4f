"""Many executions of a large plan at once: begins and ends drawn in orders that the dependencies allow.

What a read has to find is taken from one run in series by ``Oracle``, which knows nothing of how the verifier proves.
Bytes that exactly the same accesses touch are one cell. ``python -m tests.verify.extensions 1000 150 0``
counts for 150 seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

from tests.memgraph.cases import PROGRAMS
from tests.verify.large import pieces
from tests.verify.oracle import Labels, bytes_of, serial_faults
from tests.verify.plans import Json, real

UNWRITTEN, BUSY = -1, -2
# How often the op that became ready last is taken: rarely in wide orders, often in deep ones.
DEPTHS = (0.0, 0.3, 0.9)


class Extensions:
    """One plan as arrays. A cell holds who wrote it last: an op, or (from ``n`` on) a unit."""

    def __init__(self, plan: Json, of: Json | None = None) -> None:
        """``of``: the plan whose dependencies say in what series reads find what they should."""
        oracle = serial_faults(of or plan)
        self.n = len(plan["ops"])
        position = {op["id"]: i for i, op in enumerate(plan["ops"])}
        self.after = [sorted({position[a] for a in op["after"]}) for op in plan["ops"]]
        units = {u: k for k, u in enumerate(oracle.units)}
        self.unit = np.array([units.get(op["unit"], -1) for op in plan["ops"]])
        self.members = np.array([len(oracle.units[u]) for u in units] or [0])
        reads, writes = self._cells(oracle)
        self.sums = np.array([row is not None for row in oracle.sum_row])
        self.goes_on = np.array([oracle.goes_on.get(op["unit"]) is not None for op in plan["ops"]])
        own = [self._cells_of(row) if row is not None else set() for row in oracle.sum_row]
        self.sum_cells = _padded([sorted(o) for o in own], self.cells)
        self.read_cells = _padded([[c for c in r if c not in o] for r, o in zip(reads, own, strict=True)], self.cells)
        self.write_cells = _padded(writes, self.cells)
        self.token = np.where(self.unit >= 0, self.n + self.unit, np.arange(self.n))
        self._in_series(oracle.serial_order())

    def _cells(self, oracle: Any) -> tuple[list[list[int]], list[list[int]]]:
        rng = np.random.default_rng(0)
        marks = {tier: np.zeros(size, np.uint64) for tier, size in oracle.size.items()}
        for sides in oracle.rows:
            for side in sides:
                for row, where in side:
                    marks[row[0]][where] ^= rng.integers(1 << 63, dtype=np.uint64)
        cell: dict[str, Labels] = {}
        self.cells = 0
        for tier, mark in marks.items():
            found, inverse = np.unique(mark, return_inverse=True)
            cell[tier] = inverse + self.cells
            self.cells += len(found)
        self.cell = cell
        sides_of = [
            [sorted(set[int]().union(*(self._cells_of(row) for row, _ in side))) for side in sides]
            for sides in oracle.rows
        ]
        return [s[0] for s in sides_of], [s[1] for s in sides_of]

    def _cells_of(self, row: Any) -> set[int]:
        return set(np.unique(self.cell[row[0]][bytes_of(row)]).tolist())

    def _in_series(self, order: list[int]) -> None:
        memory = np.full(self.cells + 1, UNWRITTEN)
        self.expected = np.empty(self.read_cells.shape, np.int64)
        self.before = np.full(self.sum_cells.shape, UNWRITTEN)
        started: set[int] = set()
        for x in order:
            self.expected[x] = memory[self.read_cells[x]]
            u = int(self.unit[x])
            if u >= 0 and u not in started:
                started.add(u)
                self.before[self.unit == u] = memory[self.sum_cells[x]]
            memory[self.write_cells[x]] = self.token[x]
            memory[-1] = UNWRITTEN

    def drawn(self, count: int, seed: int) -> Labels:
        """Of ``count`` drawn executions whether each goes wrong: a read that finds something else, or bytes in use."""
        rng = np.random.default_rng(seed)
        run = _Run(self, count)
        deep = np.resize(DEPTHS, count)
        for _ in range(2 * self.n):
            run.step(rng, deep)
        return run.wrong


class _Run:
    """Many executions side by side, one row each; every step begins or ends one op in each."""

    def __init__(self, plan: Extensions, count: int) -> None:
        self.plan, self.rows = plan, np.arange(count)
        self.memory = np.full((count, plan.cells + 1), UNWRITTEN, np.int32)
        self.wrong = np.zeros(count, bool)
        self.waits = np.tile(np.array([len(a) for a in plan.after], np.int16), (count, 1))
        after: list[list[int]] = [[] for _ in plan.after]
        for x, before in enumerate(plan.after):
            for u in before:
                after[u].append(x)
        self.follow = np.array([x for xs in after for x in xs], np.int64)
        self.n_follow = np.array([len(xs) for xs in after])
        self.first = np.cumsum(self.n_follow) - self.n_follow
        # The next can be: an op that may begin (x) or one that runs and may end (x + n).
        self.open = np.zeros((count, plan.n + 1), np.int32)
        self.n_open = np.zeros(count, np.int64)
        self.done = np.zeros((count, len(plan.members)), np.int32)
        self.locked = np.zeros((count, len(plan.members)), bool)
        for x, before in enumerate(plan.after):
            if not before:
                self._add(self.rows, np.full(count, x))

    def _add(self, rows: Labels, events: Labels) -> None:
        self.open[rows, self.n_open[rows]] = events
        self.n_open[rows] += 1

    def step(self, rng: np.random.Generator, deep: Labels) -> None:
        """One begin or end in each execution."""
        p, rows = self.plan, self.rows
        last = self.n_open - 1
        at = np.where(rng.random(len(rows)) < deep, last, rng.integers(0, self.n_open))
        # An op whose unit is locked cannot begin; whoever holds the lock is open too, so that one is looked for.
        for _ in range(64):
            event = self.open[rows, at]
            unit = p.unit[event % p.n]
            barred = (event < p.n) & (unit >= 0) & self.locked[rows, unit]
            if not barred.any():
                break
            at = np.where(barred, rng.integers(0, self.n_open), at)
        for k in np.flatnonzero(barred):
            at[k] = np.flatnonzero(self.open[k, : self.n_open[k]] >= p.n)[0]
        event = self.open[rows, at]
        self.open[rows, at] = self.open[rows, last]
        self.n_open -= 1
        begins = event < p.n
        self._look(rows, event % p.n)
        self._begin(rows[begins], event[begins])
        self._end(rows[~begins], event[~begins] - p.n)

    def _look(self, rows: Labels, ops: Labels) -> None:
        """Each read finds its value, at its beginning and at its end, and a unit's with all that was added."""
        p = self.plan
        expected = p.expected[ops]
        self.wrong[rows] |= (self.memory[rows[:, None], p.read_cells[ops]] != expected).any(1)
        unit = expected - p.n
        sums = unit >= 0
        unit = np.where(sums, unit, 0)
        self.wrong[rows] |= (sums & (self.done[rows[:, None], unit] != p.members[unit])).any(1)

    def _begin(self, rows: Labels, ops: Labels) -> None:
        p = self.plan
        unit = p.unit[ops]
        here = self.memory[rows[:, None], p.sum_cells[ops]]
        first = self.done[rows, unit] == 0
        found = np.where(first[:, None], p.before[ops], p.token[ops][:, None])
        found[p.sum_cells[ops] == p.cells] = UNWRITTEN
        asked = p.sums[ops] & (~first | p.goes_on[ops])
        self.wrong[rows] |= asked & (here != found).any(1)
        cells = p.write_cells[ops]
        self.wrong[rows] |= (self.memory[rows[:, None], cells] <= BUSY).any(1)
        self.memory[rows[:, None], cells] = BUSY - ops[:, None]
        self.memory[rows, -1] = UNWRITTEN
        self.locked[rows[unit >= 0], unit[unit >= 0]] = True
        self._add(rows, ops + p.n)

    def _end(self, rows: Labels, ops: Labels) -> None:
        p = self.plan
        cells = p.write_cells[ops]
        own = self.memory[rows[:, None], cells] == BUSY - ops[:, None]
        self.wrong[rows] |= (~own & (cells != p.cells)).any(1)
        self.memory[rows[:, None], cells] = p.token[ops][:, None]
        self.memory[rows, -1] = UNWRITTEN
        unit = p.unit[ops]
        self.locked[rows[unit >= 0], unit[unit >= 0]] = False
        self.done[rows[unit >= 0], unit[unit >= 0]] += 1
        number = self.n_follow[ops]
        row = np.repeat(rows, number)
        start = np.repeat(self.first[ops] - (np.cumsum(number) - number), number)
        x = self.follow[start + np.arange(len(row))]
        self.waits[row, x] -= 1
        ready = self.waits[row, x] == 0
        row, x = row[ready], x[ready]
        # Several may become ready in one row: each takes the next free place of its row.
        place = np.arange(len(row)) - np.searchsorted(row, row)
        self.open[row, self.n_open[row] + place] = x
        np.add.at(self.n_open, row, 1)


def _padded(cells: list[list[int]], empty: int) -> Labels:
    """Rows of one length; the cell after the last one is always unwritten."""
    width = max(1, max(map(len, cells), default=1))
    return np.array([[*row, *[empty] * (width - len(row))] for row in cells], np.int64)


def plans() -> dict[str, str]:
    """Plans of several programs, in little memory and in more."""
    found = {f"{name}, tiles of {tile}": real(name, tile, 128) for name in sorted(PROGRAMS) for tile in (1, 2)}
    return found | {f"product of {n}³ tiles": "".join(pieces(n, held)) for n, held in ((5, 30), (8, 40), (10, 80))}


def main() -> None:
    """Count executions of each plan, a number of them at a time, alternately, for some seconds."""
    count, seconds, seed = map(int, sys.argv[1:4])
    made = {name: Extensions(json.loads(text)) for name, text in plans().items()}
    seen, wrong = Counter[str](), Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, extensions in made.items():
            if time.monotonic() < end:
                wrong[name] += int(extensions.drawn(count, seed).sum())
                seen[name] += count
        seed += 1
    for name, extensions in made.items():
        print(f"{name}: {extensions.n} ops, {seen[name]} executions, {wrong[name]} wrong")
    print(f"{seen.total()} executions, {wrong.total()} wrong")


if __name__ == "__main__":
    main()
