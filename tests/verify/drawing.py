"""Drawn plans of a few ops over a few bytes: mostly right, with now and then a dependency or a byte that is not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.verify.plans import Json, op, plan_of

TIERS = [
    {"id": "cpu:0", "kind": "compute", "capacity": 6},
    {"id": "disk", "kind": "store", "capacity": None},
    {"id": "X", "kind": "input", "capacity": None},
    {"id": "Y", "kind": "output", "capacity": None},
]
Place = tuple[str, int, int]


class _Drawing:
    """Ops so far, and the contents of memory after all of them."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.ops: list[Json] = []
        self.standing: dict[Place, int] = {}
        self.size: dict[int, int] = {}
        self.units: dict[Place, tuple[int, int]] = {}
        self.stored = 0
        self.copies_of_units: set[int] = set()

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def room(self, tier: str, nbytes: int, apart: list[Place]) -> Place | None:
        """A place for ``nbytes`` bytes that does not overlap ``apart``."""
        places = [(tier, start, nbytes) for start in range(0, 6 - nbytes + 1)]
        free = [p for p in places if not any(_meet(p, other) for other in apart)]
        return self.draw(st.sampled_from(free)) if free else None

    def put(self, place: Place, value: int) -> None:
        for other in [p for p in self.standing if _meet(p, place)]:
            del self.standing[other]
        for other in [p for p in self.units if _meet(p, place)]:
            # Now and then the unit goes on all the same.
            if self.number(0, 7):
                del self.units[other]
        self.standing[place] = value

    def some(self, tier: str) -> list[tuple[Place, int]]:
        return sorted((p, v) for p, v in self.standing.items() if p[0] == tier)

    def add(self, kind: str, reads: list[Any], writes: list[Any], unit: int | None = None) -> None:
        self.ops.append(op(len(self.ops), kind, reads, writes, (), unit))

    def step(self) -> None:
        value = 10 * len(self.ops)
        here, there = self.some("cpu:0"), self.some("disk")
        kind = self.draw(st.sampled_from(["load", "kernel", "unit", "unit", "again", "offload", "reload", "store"]))
        if kind == "load" or not here:
            nbytes = self.number(1, 2)
            place = self.room("cpu:0", nbytes, [])
            assert place is not None
            self.add("load", [("X", 2 * len(self.ops), nbytes, value)], [(*place, value)])
            self.put(place, value)
        elif kind == "again" and self.units:
            place = self.draw(st.sampled_from(sorted(self.units)))
            unit, value = self.units[place]
            sources = [(p, v) for p, v in here if not _meet(p, place)][:1]
            self.add("kernel", [*[(*p, v) for p, v in sources], (*place, value)], [(*place, value)], unit)
        elif kind in ("kernel", "unit"):
            source = self.draw(st.sampled_from(here))
            nbytes = self.number(1, 2)
            place = self.room("cpu:0", nbytes, [source[0]])
            if place is None:
                return
            reads = [(*source[0], source[1])]
            if kind == "unit":
                self.add("kernel", [*reads, (*place, value)], [(*place, value)], value)
                self.put(place, value)
                self.units[place] = value, value
            else:
                self.add("kernel", reads, [(*place, value)])
                self.put(place, value)
        elif kind == "offload":
            source = self.draw(st.sampled_from(here))
            place = self.room("disk", source[0][2], [])
            assert place is not None
            self.add("offload", [(*source[0], source[1])], [(*place, source[1])])
            self.put(place, source[1])
            self.units.pop(source[0], None)
        elif kind == "reload" and there:
            source = self.draw(st.sampled_from(there))
            place = self.room("cpu:0", source[0][2], [])
            assert place is not None
            self.add("reload", [(*source[0], source[1])], [(*place, source[1])])
            self.put(place, source[1])
        elif kind == "store":
            source = self.draw(st.sampled_from(here))
            place = ("Y", self.stored, source[0][2])
            self.stored += source[0][2]
            self.add("store", [(*source[0], source[1])], [(*place, source[1])])
            self.units.pop(source[0], None)

    def finish(self) -> None:
        """Store what nobody has used, so that it is not lost."""
        for place, value in self.some("cpu:0"):
            used = any(row[3] == value for o in self.ops for row in o["reads"] if o["unit"] != value)
            if not used:
                self.add("store", [(*place, value)], [("Y", self.stored, place[2], value)])
                self.stored += place[2]


def _meet(a: Place, b: Place) -> bool:
    return a[0] == b[0] and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]


def _conflict(a: Json, b: Json) -> bool:
    """Two ops share bytes, one of them writing, and are not of one unit."""
    if a["unit"] is not None and a["unit"] == b["unit"]:
        mine = [row for row in a["writes"] if row in a["reads"]]
        others = [row for row in b["writes"] if row in b["reads"]]
        if mine == others:
            return False
    pairs = [(r, w) for r in (*a["reads"], *a["writes"]) for w in b["writes"]]
    pairs += [(r, w) for r in b["reads"] for w in a["writes"]]
    return any(_meet(tuple(r[:3]), tuple(w[:3])) for r, w in pairs)


@st.composite
def small_plans(draw: Any, most: int = 6) -> Json:
    """At most ``most`` ops, or a store or two more; all dependencies that bytes ask for, but for those taken away."""
    drawing = _Drawing(draw)
    for _ in range(draw(st.integers(2, most))):
        if len(drawing.ops) < most:
            drawing.step()
    drawing.finish()
    ops = drawing.ops
    taken = draw(st.sets(st.integers(0, 20), max_size=2))
    needed = 0
    for x, later in enumerate(ops):
        for u in range(x):
            if _conflict(ops[u], later):
                needed += 1
                if needed - 1 not in taken:
                    later["after"].append(u)
    if draw(st.integers(0, 3)) == 0:
        _spoil(draw, ops)
    return plan_of(ops, TIERS)


def _spoil(draw: Any, ops: list[Json]) -> None:
    """Change one number of one access."""
    rows = [row for o in ops for side in ("reads", "writes") for row in o[side]]
    row = rows[draw(st.integers(0, len(rows) - 1))]
    at = draw(st.sampled_from([1, 1, 2, 3]))
    others = [r[at] for r in rows]
    row[at] = draw(st.sampled_from(sorted({*others, max(row[at] - 1, 1), row[at] + 1})))
