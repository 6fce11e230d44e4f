"""Arena and spill slots as state machines: no two values hold one byte, and no wait is forgotten."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from einturnip.memgraph.arena import FREE, Arena, Segment
from einturnip.memgraph.eviction import SpillSlots

GRANULE = 64
sizes = st.integers(1, 12).map(lambda n: n * GRANULE)


class ArenaMachine(RuleBasedStateMachine):
    """``last[g]``: the ops that last used granule ``g``; the arena may report more, never fewer."""

    @initialize(granules=st.integers(1, 48), spare=st.integers(0, GRANULE - 1), largest=st.integers(0, 24))
    def begin(self, granules: int, spare: int, largest: int) -> None:
        self.arena = Arena(granules * GRANULE + spare, GRANULE, largest * GRANULE)
        self.last: list[set[int]] = [set() for _ in range(granules)]
        self.held: dict[int, Segment] = {}
        self.wanted: dict[int, float] = {}
        self.ops = 0

    def granules(self, seg: Segment) -> range:
        return range(seg.offset // GRANULE, (seg.offset + seg.size) // GRANULE)

    def longest_run(self, gone: frozenset[int] = frozenset()) -> int:
        """Return the longest run of bytes that are free, or would be without the values ``gone``."""
        longest = run = 0
        for seg in self.arena:
            run = run + seg.size if seg.value == FREE or seg.value in gone else 0
            longest = max(longest, run)
        return longest

    @rule(size=sizes, price=st.floats(0.1, 10))
    def take(self, size: int, price: float) -> None:
        room, value = self.longest_run(), len(self.wanted)
        seg = self.arena.take(size, value)
        assert (seg is not None) == (room >= size)
        if seg is not None:
            assert seg.size == size and seg.value == value
            for g in self.granules(seg):
                assert self.last[g] <= {*seg.deps}
            if seg.exact:
                assert {*seg.deps} <= self.last[seg.offset // GRANULE]
            self.held[value] = seg
        self.wanted[value] = price

    @precondition(lambda self: self.held)
    @rule(data=st.data(), users=st.integers(1, 3))
    def release(self, data: st.DataObject, users: int) -> None:
        self.give_up(data.draw(st.sampled_from(sorted(self.held))), users)

    def give_up(self, value: int, users: int) -> None:
        seg, ops = self.held.pop(value), tuple(range(self.ops, self.ops + users))
        self.ops += users
        for g in self.granules(seg):
            self.last[g] = {*ops}
        self.arena.release(seg, ops, True)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_up_untouched(self, data: st.DataObject) -> None:
        """Bytes that were never written keep their earlier dependencies."""
        seg = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        self.arena.release(seg, seg.deps, seg.exact)

    @rule(size=sizes, data=st.data())
    def make_room(self, size: int, data: st.DataObject) -> None:
        """The chosen neighbours hold enough bytes, and no cheaper choice does."""
        stay = data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else set()
        around = (
            self.held[data.draw(st.sampled_from(sorted(self.held)))] if self.held and data.draw(st.booleans()) else None
        )
        found = self.arena.cheapest_eviction(size, lambda v: None if v in stay else self.wanted[v], around)
        movable = frozenset(v for v in self.held if v not in stay)
        if found is None:
            assert around is not None or self.longest_run(movable) < size
            return
        price, values = found
        assert not stay.intersection(values) and self.longest_run(frozenset(values)) >= size
        assert abs(price - sum(self.wanted[v] * self.held[v].size for v in values)) < 1e-6
        for v in values:
            if around is None and self.wanted[v] * self.held[v].size < price - 1e-6:
                assert self.longest_run(frozenset((v,))) < size
        for v in values:
            self.give_up(v, 1)
        assert self.longest_run() >= size

    @precondition(lambda self: not self.held)
    @rule()
    def merge(self) -> None:
        self.arena.merge_all()
        assert len(list(self.arena)) == 1

    @invariant()
    def segments_lie_side_by_side(self) -> None:
        if not hasattr(self, "arena"):
            return
        at, free, held = 0, 0, {}
        before: Segment | None = None
        for seg in self.arena:
            assert seg.offset == at and seg.size > 0 and seg.size % GRANULE == 0 and seg.prev is before
            assert seg.newest == max(seg.deps, default=-1)
            at, before = at + seg.size, seg
            if seg.value == FREE:
                free += seg.size
            else:
                held[seg.value] = seg
            for g in self.granules(seg):
                assert seg.value != FREE or self.last[g] <= {*seg.deps}
        assert at == self.arena.capacity and free == self.arena.free_nbytes
        assert held == self.held and len(self.arena._allocated) == len(held)
        assert all(seg.offset + seg.size <= self.arena.peak for seg in held.values())


class SlotsMachine(RuleBasedStateMachine):
    """Slots of the spill file: an op that reuses one waits for all its earlier users."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = SpillSlots(GRANULE)
        self.live: dict[int, tuple[int, int]] = {}
        self.users: dict[int, set[int]] = {}  # by offset, since it was taken last
        self.before: dict[int, set[int]] = {}
        self.values = self.ops = 0

    @rule(size=sizes)
    def take(self, size: int) -> None:
        v = self.values
        self.values += 1
        offset, deps = self.slots.take(v, size)
        assert offset == self.slots.offset(v) and {*deps} == self.before.get(offset, set())
        assert all(offset + size <= o or o + s <= offset for o, s in self.live.values())
        assert offset + size <= self.slots.nbytes
        self.live[v] = offset, size
        self.slots.written_by(v, self.ops)
        self.users[offset] = {self.ops}
        self.ops += 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        v = data.draw(st.sampled_from(sorted(self.live)))
        self.slots.read_by(v, self.ops)
        self.users[self.live[v][0]].add(self.ops)
        self.ops += 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        v = data.draw(st.sampled_from(sorted(self.live)))
        offset, _ = self.live.pop(v)
        self.before[offset] = self.users.pop(offset)
        self.slots.release(v)


TestArena = ArenaMachine.TestCase
TestSlots = SlotsMachine.TestCase
