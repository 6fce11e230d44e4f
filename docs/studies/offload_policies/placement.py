"""TaskGraph -> MemGraph under any offload policy: one walk that fixes addresses and dependencies.

The rules that make a graph safe are those of TURNIP's BUILDMEMGRAPH (arXiv 2405.16283), as in ``memgraph/build.py``: an
op comes after the producers of its operands; an op that overwrites bytes comes after all of their earlier users; an
offload comes after the value's producer, a return after the offload. The policy decides which values are evicted,
whether they are written and where, or recomputed, and which values are fetched ahead of use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine
from einturnip.memgraph.arena import FREE, Arena, Segment
from einturnip.memgraph.columns import OpColumns
from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, MemGraph, OpKind, op_kind
from einturnip.taskgraph.types import TaskGraph, TaskKind
from offload_policies.state import FragmentedArena, ResidentValues
from offload_policies.trace import granule, trace
from offload_policies.types import AccessTrace, Eviction, MemoryBudgets, OffloadPolicy

_OP_KINDS = [op_kind(kind) for kind in TaskKind]
_TIERS = {Eviction.HOST: HOST, Eviction.DISK: DISK}
_WORKSPACE = -2


def place(tasks: TaskGraph, machine: DescribedMachine, budgets: MemoryBudgets, policy: OffloadPolicy) -> MemGraph:
    """Place every value on the device and create every transfer, as ``policy`` decides.

    Raises:
        CapacityError: a step's working set is larger than the device's budget, or the lower tiers are full.
    """
    return place_trace(trace(tasks, machine, budgets), policy)


# A residence of a value: the value, and the next step that uses it when its bytes are allocated.
Stay = tuple[int, int]


def place_trace(
    seen: AccessTrace,
    policy: OffloadPolicy,
    far: Sequence[bool] | None = None,
    places: Mapping[Stay, int] | None = None,
    taken: dict[Stay, int] | None = None,
) -> MemGraph:
    """``place`` with a trace that was made before.

    ``far``: values at the end of free bytes instead of the front. ``places``: requested offsets of residences, used if
    the values there can be evicted. ``taken`` is filled with the offsets of all residences.
    """
    policy.prepare(seen)
    walk = PlacementWalk(seen, policy, far or [False] * len(seen.size), places or {})
    for step in range(len(seen)):
        walk.take_step(step)
    if taken is not None:
        taken.update(walk.taken)
    return walk.freeze()


class PlacementWalk(ResidentValues):
    """The walk: allocates and frees bytes, and emits ops."""

    def __init__(
        self, seen: AccessTrace, policy: OffloadPolicy, far: Sequence[bool], places: Mapping[Stay, int]
    ) -> None:
        super().__init__(seen)
        self.policy, self.far, self.places = policy, far, places
        self.taken: dict[Stay, int] = {}
        unit = granule(seen.budgets.device)
        self.arena = Arena(seen.budgets.device, unit)
        self.tiers = {HOST: Arena(seen.budgets.host, unit), DISK: Arena(seen.budgets.disk, unit)}
        self.slot: dict[int, Segment] = {}  # of offloaded values
        self.slot_users: dict[int, list[int]] = {}
        self.ops = OpColumns()
        self.before: tuple[int, ...] = ()  # dependencies of transfers issued now
        self.before_that: tuple[int, ...] = ()  # dependencies of transfers issued a step ago
        self.leaving: list[int] = []

    @property
    def free_nbytes(self) -> int:
        """Free bytes of the device's memory."""
        return self.arena.free_nbytes

    @property
    def host_free_nbytes(self) -> int:
        """Free bytes of the host's memory."""
        return self.tiers[HOST].free_nbytes

    def take_step(self, step: int) -> None:
        """Place one step: evictions, the step's operands, its op, and prefetches."""
        self.step = step
        needs = self.trace.needs[step]
        before, self.before = self.before, self.before_that
        for v in self.policy.give_up(step, self):
            if self.segment[v] is not None and v not in needs and self.next_use(v) < self.never:
                self.evict(v)
        self.before = before
        op = self._run_somehow(step)
        if not self.policy.free and self.kind[self.trace.task[step]] != TaskKind.STORE:
            self.before, self.before_that = (op,), self.before
        for v in needs:
            self.touched[v] = step
        for v in needs:
            if self.advance(v, step) == self.never:
                self._die(v)
        for v in self.policy.ahead(step, self):
            if self.fetchable(v) and not self._fetch_ahead(v):
                break

    def freeze(self) -> MemGraph:
        """The graph."""
        self.ops.close(self.arena.capacity, self.tiers[DISK].peak, self.arena.peak, self.origin)
        return replace(self.ops.freeze(self.trace.tasks), host_nbytes=self.tiers[HOST].peak)

    def _run_somehow(self, step: int) -> int:
        """Emit the op of a step; if free bytes are too scattered, everything else leaves the device, then all."""
        for kept in (self.trace.needs[step], ()):
            try:
                return self._run(step)
            except FragmentedArena:
                self._empty(kept)
        try:
            return self._run(step)
        except FragmentedArena:
            raise CapacityError("a recomputation does not fit together with the step that needs it") from None

    def _run(self, step: int) -> int:
        """Emit the op of a step after fetching its operands; raises Scattered if bytes are too scattered."""
        trace = self.trace
        needs = trace.needs[step]
        total = sum(trace.size[v] for v in needs) + trace.workspace[step]
        if total > self.arena.capacity:
            raise CapacityError(f"a tile's kernel holds {total} bytes at once", total)
        self.pinned = dict.fromkeys(needs)
        for v in trace.reads[step]:
            self._bring(v)
        task = trace.task[step]
        kind = self.kind[task]
        made = -1 if kind == TaskKind.STORE else self.value[task]
        if made >= 0 and self.segment[made] is None:
            if self.home[made] is not None:
                self._bring(made)
            else:
                self.segment[made] = self._allocate(made)
        return self._emit(step, made, trace.workspace[step])

    def _emit(self, step: int, made: int, workspace: int) -> int:
        """Emit the op of a step whose values have their bytes."""
        task, nbytes = self.trace.task[step], self.nbytes
        kind = self.kind[task]
        space = self._allocate(_WORKSPACE, workspace) if workspace else None
        reads = self.read[self.read_ptr[task] : self.read_ptr[task + 1]]
        after: list[int] = []
        held: list[int] = []
        for v in reads:
            after += self.writers[v] if nbytes[v] else ()
            held += (COMPUTE, self.held(v).offset, nbytes[v], self.version[v])
        unit, doubtful = -1, tuple[int, ...]()
        if made >= 0:
            seg = self.held(made)
            if kind in (TaskKind.ACCUMULATE, TaskKind.COMBINE) or self.shared[made]:
                unit = self._unit_of(made)
                after += self.base[made]
            doubtful = seg.deps
            writes = [COMPUTE, seg.offset, nbytes[made], self.version[made]]
        else:
            v = self.value[task]
            writes = [self.output_tier + self.node[task], 0, nbytes[v], self.version[v]]
        if space is not None:
            doubtful += space.deps
            writes += (COMPUTE, space.offset, int(self.trace.tasks.workspace[task]), -1)
        after += self._ordered(kind)
        seconds = self.transfer_seconds(nbytes[self.value[task]], out=True) if made < 0 else self.trace.seconds[step]
        op = self.ops.append(_OP_KINDS[kind], task, unit, seconds, held, writes, after, doubtful)
        for v in dict.fromkeys(reads):
            self.readers[v].append(op)
        if made >= 0:
            self.writers[made].append(op)
        elif self.policy.rereads and task in self.whole and self.home[reads[0]] is None:
            self.home[reads[0]] = writes[0], (op,), writes[3]
        if space is not None:
            self.arena.release(space, (op,), True)
        return op

    def _ordered(self, kind: int) -> Sequence[int]:
        """Ops that an op waits for because its policy issues work in program order."""
        leaving, self.leaving = self.leaving, []
        return leaving if self.policy.waits_for_offloads and kind != TaskKind.STORE else ()

    def _unit_of(self, v: int) -> int:
        """The unit of an op that accumulates into ``v``; a reloaded partial state starts its next unit."""
        if self.home[v] is not None:
            self._forget(v)
            self.base[v] = tuple(self.writers[v])
            self.new_version(v)
        return self.version[v]

    # Bytes: allocate, fill and free them.

    def _bring(self, v: int) -> None:
        """Ensure that the device holds ``v``."""
        if self.segment[v] is not None:
            return
        if v in self.dropped:
            self._make_again(v)
        else:
            self._fetch(v, self._allocate(v))

    def _make_again(self, v: int) -> None:
        """Run the kernel that produced ``v`` again."""
        step = self.trace.maker[v]
        fresh = [w for w in self.trace.reads[step] if w not in self.pinned]
        self.pinned.update(dict.fromkeys(fresh))
        for w in self.trace.reads[step]:
            self._bring(w)
        self.segment[v] = self._allocate(v)
        self.dropped.discard(v)
        self.new_version(v)
        self.writers[v], self.readers[v], self.base[v] = [], [], ()
        try:
            self._emit(step, v, self.trace.workspace[step])
        except FragmentedArena:
            self.dropped.add(v)
            raise
        for w in fresh:
            del self.pinned[w]

    def _fetch(self, v: int, seg: Segment) -> None:
        """Load or reload ``v`` into ``seg``."""
        home = self.home[v]
        assert home is not None
        tier, wrote, known_as = home
        offset = self.slot[v].offset if v in self.slot else 0
        first = FILES <= tier < self.output_tier and v not in self.loaded
        self.loaded.add(v)
        op = self.ops.append(
            OpKind.LOAD if first else OpKind.RELOAD,
            self.load_task[v],
            -1,
            self.transfer_seconds(self.nbytes[v], out=False, tier=tier),
            [tier, offset, self.nbytes[v], known_as],
            [COMPUTE, seg.offset, self.nbytes[v], self.version[v]],
            [*wrote, *self.before] if self.nbytes[v] else (),
            seg.deps,
        )
        if v in self.slot:
            self.slot_users[v].append(op)
        self.segment[v] = seg
        self.touched[v] = self.step
        self.writers[v], self.readers[v], self.base[v] = [op], [], ()

    def _fetch_ahead(self, v: int) -> bool:
        """Fetch ``v`` before its use if bytes are free; with ``fetch_evicts`` values used later are evicted."""
        size = self.trace.size[v]
        wanted = self.next_use(v)
        self.pinned = {}
        seg = self._stated(v, wanted if self.policy.fetch_evicts else self.never) if self.places else None
        seg = seg or self.arena.take(size, v, self.far[v])
        if seg is None and self.policy.fetch_evicts:
            chosen = self._window(size, wanted)
            for w in chosen or ():
                self.evict(w)
            seg = self.arena.take(size, v, self.far[v]) if chosen else None
        if seg is None:
            return False
        self.taken[v, wanted] = seg.offset
        self._fetch(v, seg)
        return True

    def _allocate(self, v: int, size: int = 0) -> Segment:
        """Bytes for ``v``: free ones, or those of the cheapest neighbours."""
        size = size or self.trace.size[v]
        far = v >= 0 and self.far[v]
        seg = (self._stated(v, -1) if v >= 0 and self.places else None) or self.arena.take(size, v, far)
        if seg is None:
            chosen = self._window(size, -1)
            if chosen is None:
                raise FragmentedArena
            for w in chosen:
                self.evict(w)
            seg = self.arena.take(size, v, far)
            assert seg is not None
        if v >= 0:
            self.taken[v, self.next_use(v)] = seg.offset
        return seg

    def _stated(self, v: int, later_than: int) -> Segment | None:
        """The requested bytes for ``v``, if all values there can be evicted and are used later."""
        at, size = self.places.get((v, self.next_use(v))), self.trace.size[v]
        if at is None or at + size > self.arena.capacity:
            return None
        here = [seg.value for seg in self.arena if seg.offset < at + size and at < seg.offset + seg.size]
        held = [w for w in here if w != FREE]
        if any(w < 0 or w in self.pinned or self.next_use(w) <= later_than for w in held):
            return None
        for w in held:
            self.evict(w)
        return self.arena.take_at(at, size, v)

    def _window(self, size: int, later_than: int) -> list[int] | None:
        """The cheapest adjacent values whose bytes, with free ones between, are at least ``size``."""
        policy, step = self.policy, self.step
        best: tuple[float, list[int]] | None = None
        run: list[tuple[int, float, int]] = []
        total, price = 0, 0.0
        for seg in self.arena:
            v, cost = seg.value, 0.0
            if v != FREE:
                if v < 0 or v in self.pinned or self.next_use(v) <= later_than:
                    run, total, price = [], 0, 0.0
                    continue
                cost = policy.price(v, step, self)
            run.append((seg.size, cost, v))
            total, price = total + seg.size, price + cost
            while total - run[0][0] >= size:
                total, price = total - run[0][0], price - run[0][1]
                run.pop(0)
            if total >= size:
                worth = max(c for _, c, _ in run) if policy.dearest else price
                if best is None or worth < best[0]:
                    best = worth, [w for _, _, w in run if w != FREE]
        return None if best is None else best[1]

    def evict(self, v: int, remake: bool = True) -> None:
        """Free the bytes of ``v``: dropped if a copy exists or it will be recomputed, else written first."""
        seg = self.held(v)
        if not self.writers[v]:
            self.segment[v] = None
            self.arena.release(seg, seg.deps, seg.exact)
            return
        if self.home[v] is not None and (self.policy.keeps_clean or not self.nbytes[v]):
            self._release(v)
            return
        where = self.policy.leave(v, self.step, self)
        if where is Eviction.RECOMPUTE and (not remake or self.remade_in(v) == float("inf")):
            where = Eviction.HOST
        if where is Eviction.RECOMPUTE:
            self._forget(v)
            self.dropped.add(v)
        else:
            self._offload(v, seg, _TIERS[where])
        self._release(v)

    def _offload(self, v: int, seg: Segment, tier: int) -> None:
        if self.home[v] is not None:
            self._forget(v)
        size = self.trace.size[v]
        slot = self.tiers[tier].take(size, v)
        if slot is None:
            tier = DISK if tier == HOST else HOST
            slot = self.tiers[tier].take(size, v)
        if slot is None:
            raise CapacityError("the memories below the device are full")
        op = self.ops.append(
            OpKind.OFFLOAD,
            -1,
            -1,
            self.transfer_seconds(self.nbytes[v], out=True, tier=tier),
            [COMPUTE, seg.offset, self.nbytes[v], self.version[v]],
            [tier, slot.offset, self.nbytes[v], self.version[v]],
            [*self.writers[v], *self.before] if self.nbytes[v] else (),
            slot.deps,
        )
        self.slot[v], self.slot_users[v] = slot, [op]
        self.leaving.append(op)
        self.readers[v].append(op)
        self.home[v] = tier, (op,), self.version[v]

    def _release(self, v: int) -> None:
        seg = self.held(v)
        self.segment[v] = None
        if self.nbytes[v]:  # every reader comes after every writer
            self.arena.release(seg, tuple(self.readers[v] or self.writers[v]), True)
        else:
            self.arena.release(seg, seg.deps, seg.exact)

    def _forget(self, v: int) -> None:
        """The copy of ``v`` in another memory is no longer needed."""
        slot = self.slot.pop(v, None)
        if slot is not None:
            home = self.home[v]
            assert home is not None
            self.tiers[home[0]].release(slot, tuple(self.slot_users.pop(v)), True)
        self.home[v] = (FILES + self.node[self.load_task[v]], (), v) if self.trace.stored[v] else None

    def _die(self, v: int) -> None:
        if self.segment[v] is not None:
            self._release(v)
        self._forget(v)

    def _empty(self, kept: Sequence[int]) -> None:
        """Empty the device except for ``kept``: free bytes are too scattered for a step that would fit."""
        for seg in list(self.arena):
            if seg.value >= 0 and seg.value not in kept:
                self.evict(seg.value, remake=False)
        if not kept:
            self.arena.merge_all()
