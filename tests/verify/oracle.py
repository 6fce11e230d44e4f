"""The meaning of a plan, by running it: every byte carries a label, ops begin and end, and a read sees the labels.

It knows nothing of how the verifier proves. While an op runs, the bytes that it writes hold nothing that anybody may
use; when it ends they must still be its own, and what it read must still be there. A plan keeps its word if that is so
in every order of begins and ends that the dependencies allow.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Json = dict[str, Any]
Labels = np.ndarray[Any, np.dtype[np.int64]]
TRANSFERS = ("load", "offload", "reload", "store")
UNWRITTEN, BUSY = -1, -2


class Broken(Exception):
    """The plan does not keep its word; the message says where."""


def bytes_of(row: Sequence[Any]) -> Labels:
    """The addresses of an extent, in the order of the value's bytes."""
    starts = np.array([row[1]])
    for count, stride in row[4] if len(row) > 4 else ():
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return (starts[:, None] + np.arange(row[2])).ravel()


def padded(stored: int, held: int) -> bool:
    """Whether ``nbytes`` bytes of an output are all bytes of a value in memory."""
    return stored == held or (stored + 63) // 64 * 64 == held


@dataclass
class World:
    """Bytes at some moment. ``last``: who wrote an extent last; ``sums``: who has added to a unit's value."""

    memory: dict[str, Labels]
    ended: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    sums: dict[Any, frozenset[int]] = field(default_factory=dict)
    last: dict[Any, int] = field(default_factory=dict)

    def copy(self) -> World:
        memory = {tier: data.copy() for tier, data in self.memory.items()}
        return World(memory, set(self.ended), set(self.running), dict(self.sums), dict(self.last))

    def key(self) -> Any:
        return frozenset(self.ended), frozenset(self.running), tuple(d.tobytes() for d in self.memory.values())


class Oracle:
    """One plan, its ops by position."""

    def __init__(self, plan: Json) -> None:
        self.ops: list[Json] = plan["ops"]
        self.tiers = {tier["id"]: tier for tier in plan["tiers"]}
        position = {op["id"]: i for i, op in enumerate(self.ops)}
        self.after = [sorted({position[a] for a in op["after"]}) for op in self.ops]
        self.rows = [
            (
                [(row, bytes_of(row)) for row in op["reads"] if row[2]],
                [(row, bytes_of(row)) for row in op["writes"] if row[2]],
            )
            for op in self.ops
        ]
        self.units: dict[Any, set[int]] = {}
        for x, op in enumerate(self.ops):
            if op["unit"] is not None:
                self.units.setdefault(op["unit"], set()).add(x)
        self.sum_row = [self._sum_row(x) for x in range(len(self.ops))]
        self.tokens: dict[Any, int] = {}
        self.content: dict[int, Labels] = {}
        self.goes_on: dict[Any, int | None] = {}
        self.of_unit: set[int] = set()
        self.size = dict.fromkeys(self.tiers, 0)
        self._check_extents()

    def kind(self, row: Sequence[Any]) -> str:
        return str(self.tiers[row[0]]["kind"])

    def _check_extents(self) -> None:
        for op, sides in zip(self.ops, self.rows, strict=True):
            for row, where in (*sides[0], *sides[1]):
                if where.min() < 0:
                    raise Broken(f"op {op['id']} goes below byte 0")
                self.size[row[0]] = max(self.size[row[0]], int(where.max()) + 1)
            if any(self.kind(row) == "input" for row, _ in sides[1]):
                raise Broken(f"op {op['id']} writes an input")
        for tier in self.tiers.values():
            if tier["capacity"] is not None and self.size[tier["id"]] > tier["capacity"]:
                raise Broken(f"{tier['id']} is too small")

        for op, (_, writes) in zip(self.ops, self.rows, strict=True):
            if op["kind"] == "store" and any(self.kind(row) != "output" for row, _ in writes):
                raise Broken(f"op {op['id']} stores in what is no output")

    def _sum_row(self, x: int) -> Any:
        """The value that an op of a unit adds to."""
        op = self.ops[x]
        if op["unit"] is None:
            return None
        values = {row[3] for row, _ in self.rows[x][0]}
        found = [row for row, _ in self.rows[x][1] if row[3] in values]
        if (
            len(found) != 1
            or found[0][:4] not in [row[:4] for row, _ in self.rows[x][0]]
            or self.kind(found[0]) in ("input", "output")
        ):
            raise Broken(f"op {op['id']} of a unit accumulates nothing, or too much")
        if op["kind"] in (*TRANSFERS, "drop"):
            raise Broken(f"op {op['id']} of a unit is a transfer")
        others = [self._plain_sum_row(y) for y in self.units[op["unit"]]]
        if any(other != found[0] for other in others):
            raise Broken(f"unit {op['unit']} has two extents")
        return found[0]

    def _plain_sum_row(self, x: int) -> Any:
        values = {row[3] for row, _ in self.rows[x][0]}
        return next((row for row, _ in self.rows[x][1] if row[3] in values), None)

    # --- one op ---

    def label(self, token: Any, size: int) -> Labels:
        number = self.tokens.setdefault(token, len(self.tokens))
        return (number << 24) + np.arange(size)

    def world(self) -> World:
        return World({tier: np.full(n, UNWRITTEN, np.int64) for tier, n in self.size.items()})

    def ready(self, world: World, x: int) -> bool:
        if x in world.ended or x in world.running or not world.ended.issuperset(self.after[x]):
            return False
        unit = self.ops[x]["unit"]
        return unit is None or not world.running & self.units[unit]

    def begin(self, world: World, x: int) -> None:
        self._look(world, x)
        if self.sum_row[x] is not None:
            self._begin_sum(world, x)
        for row, where in self.rows[x][1]:
            memory = world.memory[row[0]]
            if (memory[where] <= BUSY).any():
                raise Broken(f"op {self.ops[x]['id']} writes bytes that another is writing")
            memory[where] = BUSY - x
        self._look(world, x)
        world.running.add(x)

    def _begin_sum(self, world: World, x: int) -> None:
        """An op of a unit finds the sum so far; the first one finds what the unit goes on from, if it does."""
        row, unit = self.sum_row[x], self.ops[x]["unit"]
        found = world.memory[row[0]][row[1] : row[1] + row[2]]
        if unit in world.sums:
            if not np.array_equal(found, self._sum(unit, world.sums[unit], row[2])):
                raise Broken(f"op {self.ops[x]['id']} does not find the sum of its unit")
            return
        if unit not in self.goes_on:
            before = world.last.get(tuple(row[:3]))
            brought = before is not None and self.ops[before]["kind"] in TRANSFERS
            names = [v for v in self.of_unit if brought and np.array_equal(self.content[v], found)]
            self.goes_on[unit] = names[0] if names else None
        start = self.goes_on[unit]
        if start is not None and not np.array_equal(found, self.content[start]):
            raise Broken(f"op {self.ops[x]['id']} goes on from value {start}, which is not there")

    def _sum(self, unit: Any, done: Iterable[int], size: int) -> Labels:
        return self.label(("unit", unit, frozenset(done)), size)

    def end(self, world: World, x: int) -> None:
        op = self.ops[x]
        self._look(world, x)
        for slot, (row, where) in enumerate(self.rows[x][1]):
            memory = world.memory[row[0]]
            if (memory[where] != BUSY - x).any():
                raise Broken(f"bytes that op {op['id']} was writing were written by another")
            if row is self.sum_row[x]:
                done = world.sums[op["unit"]] = world.sums.get(op["unit"], frozenset()) | {x}
                made = self._sum(op["unit"], done, len(where))
                if done == self.units[op["unit"]]:
                    self._name(row[3], made)
                    self.of_unit.add(row[3])
            else:
                made = self._made(x, slot, row, len(where))
                self._name(row[3], made)
            memory[where] = made[: len(where)]
            world.last[tuple(row[:3])] = x
        if op["kind"] == "drop":
            for row, where in self.rows[x][0]:
                world.memory[row[0]][where] = UNWRITTEN
        world.running.discard(x)
        world.ended.add(x)

    def _made(self, x: int, slot: int, row: Any, size: int) -> Labels:
        """The labels that an op writes: those that it read, or its own."""
        op, reads = self.ops[x], self.rows[x][0]
        if len(reads) == len(self.rows[x][1]) == 1:
            read, where = reads[0]
            if op["kind"] in TRANSFERS or (op["kind"] == "move" and read[3] == row[3]):
                if self.kind(read) == "input":
                    if len(where) > size or size % len(where):
                        return self.label(("op", x, slot), size)
                    self._name(read[3], self._given(read, size))
                    source = self._given(read, size)
                else:
                    source = self.content[read[3]]
                if row[3] != read[3] and self.kind(row) != "output" and not self._stored_as(read[3], row[3]):
                    raise Broken(f"op {op['id']} calls what it carries by another name")
                if len(source) == size or (self.kind(row) == "output" and padded(size, len(source))):
                    return source
        return self.label(("op", x, slot), size)

    def _stored_as(self, one: int, two: int) -> bool:
        """Whether two values are the same bytes because a store says so."""
        same = {one}
        for _ in self.ops:
            for op, (reads, writes) in zip(self.ops, self.rows, strict=True):
                if op["kind"] in TRANSFERS and len(reads) == len(writes) == 1 and self.kind(writes[0][0]) == "output":
                    pair = {reads[0][0][3], writes[0][0][3]}
                    if pair & same and padded(len(writes[0][1]), len(reads[0][1])):
                        same |= pair
        return two in same

    def _given(self, row: Any, size: int) -> Labels:
        return self.label(("input", row[0], bytes_of(row).tobytes()), size)

    def _name(self, v: int, made: Labels) -> None:
        known = self.content.setdefault(v, made)
        if not np.array_equal(known, made):
            raise Broken(f"value {v} is made twice, and not the same")

    def _look(self, world: World, x: int) -> None:
        """Each read finds its value, whole."""
        op = self.ops[x]
        for row, where in self.rows[x][0]:
            if self.sum_row[x] is not None and row[:4] == self.sum_row[x][:4]:
                continue
            if self.kind(row) == "input":
                known = self.content.get(row[3])
                if known is not None and not np.array_equal(known, self._given(row, len(known))):
                    raise Broken(f"value {row[3]} is not what op {op['id']} reads in an input")
                if known is None and op["kind"] not in TRANSFERS:
                    self._name(row[3], self._given(row, len(where)))
                continue
            expected = self.content.get(row[3])
            if expected is None:
                raise Broken(f"op {op['id']} reads value {row[3]}, which is not made yet")
            if len(where) != len(expected) and not (self.kind(row) == "output" and padded(len(where), len(expected))):
                raise Broken(f"op {op['id']} reads {len(where)} bytes of value {row[3]}, which has {len(expected)}")
            if not np.array_equal(world.memory[row[0]][where], expected[: len(where)]):
                raise Broken(f"op {op['id']} does not find value {row[3]}")

    # --- orders ---

    def serial_order(self) -> list[int]:
        """The first order that the dependencies allow."""
        order: list[int] = []
        done: set[int] = set()
        while len(order) < len(self.ops):
            x = next((x for x in range(len(self.ops)) if x not in done and done.issuperset(self.after[x])), None)
            if x is None:
                raise Broken("a cycle")
            order.append(x)
            done.add(x)
        return order

    def run(self, order: Iterable[int]) -> World:
        """One op after the other."""
        world = self.world()
        for x in order:
            self.begin(world, x)
            self.end(world, x)
        return world

    def explore(self) -> int:
        """Every order of begins and ends; returns how many moments there are."""
        start = self.world()
        seen = {start.key()}
        work = [start]
        while work:
            world = work.pop()
            for x in range(len(self.ops)):
                step = self.end if x in world.running else self.begin if self.ready(world, x) else None
                if step is not None:
                    after = world.copy()
                    step(after, x)
                    if after.key() not in seen:
                        seen.add(after.key())
                        work.append(after)
        return len(seen)

    def early(self, x: int, order: Sequence[int]) -> list[int]:
        """``order`` with ``x`` as early as can be: behind what it waits for, and nothing else."""
        wanted = {x}
        for y in sorted(range(len(order)), key=lambda at: -at):
            if order[y] in wanted:
                wanted.update(self.after[order[y]])
        return [y for y in order if y in wanted] + [y for y in order if y not in wanted]

    def overlapped(self, rng: random.Random) -> None:
        """A drawn order in which several ops run at a time."""
        world = self.world()
        while len(world.ended) < len(self.ops):
            ready = [x for x in range(len(self.ops)) if self.ready(world, x)]
            if ready and (not world.running or rng.random() < 0.7):
                self.begin(world, rng.choice(ready))
            else:
                self.end(world, rng.choice(sorted(world.running)))

    # --- what is stored, and what is lost ---

    def check_result(self) -> None:
        """Each byte of an output is stored once, with no hole; what is made is used."""
        for tier in self.tiers.values():
            if tier["kind"] == "output":
                rows = [where for _, writes in self.rows for row, where in writes if row[0] == tier["id"]]
                stored = np.sort(np.concatenate(rows)) if rows else np.empty(0, np.int64)
                end = tier["capacity"] if tier["capacity"] is not None else (stored[-1] + 1 if len(rows) else 0)
                if not np.array_equal(stored, np.arange(stored[0] if len(rows) else 0, end)):
                    raise Broken(f"{tier['id']} is not stored once and whole")
        used = [self.content[v] for v in self.goes_on.values() if v is not None]
        for x, (reads, writes) in enumerate(self.rows):
            if self._stores(x) or not (self.ops[x]["kind"] == "drop" or (writes and self._only_carries(x))):
                used += [self.content[row[3]] for row, _ in reads if row[:4] != (self.sum_row[x] or [])[:4]]
        firsts = {int(content[0]) for content in used}
        for x, (_, writes) in enumerate(self.rows):
            if self.sum_row[x] is not None:
                made = [self.content[self.sum_row[x][3]]]
            else:
                made = [] if self._only_carries(x) else [self.content[row[3]] for row, _ in writes]
            if made and not self._stores(x) and not firsts.intersection(int(m[0]) for m in made):
                raise Broken(f"what op {self.ops[x]['id']} makes is lost")

    def _stores(self, x: int) -> bool:
        return any(self.kind(row) == "output" for row, _ in self.rows[x][1])

    def _only_carries(self, x: int) -> bool:
        """Whether an op writes nothing of its own."""
        return self.sum_row[x] is None and not any(
            ("op", x, slot) in self.tokens for slot in range(len(self.rows[x][1]))
        )


def serial_faults(plan: Json) -> Oracle:
    """The plan run in its first order and held against the rules that know no order.

    Raises:
        Broken: it does not keep its word even so.
    """
    oracle = Oracle(plan)
    oracle.run(oracle.serial_order())
    oracle.check_result()
    return oracle


def keeps_its_word(plan: Json) -> str | None:
    """None, or where some order of a small plan goes wrong: all of them are tried."""
    try:
        serial_faults(plan).explore()
    except Broken as broken:
        return str(broken)
    return None


def seems_to_keep_its_word(plan: Json, near: Iterable[int], rng: random.Random, draws: int) -> str | None:
    """None, or where an order goes wrong: each op of ``near`` as early as can be, and some drawn orders."""
    try:
        oracle = serial_faults(plan)
        order = oracle.serial_order()
        for x in near:
            oracle.run(oracle.early(x, order))
        for _ in range(draws):
            oracle.overlapped(rng)
    except Broken as broken:
        return str(broken)
    return None


def orders(plan: Json) -> Iterator[int]:
    """Positions of all ops, nearest the end first: to be tried early."""
    yield from reversed(range(len(plan["ops"])))
