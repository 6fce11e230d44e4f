"""Lowers a TaskGraph to a MemGraph by simulating the serial order (TURNIP, arXiv 2405.16283).

Two cursors walk the order. The allocation cursor runs ahead of the completion cursor, so that a tile loaded for a later
task takes bytes that were freed long before and its load need not wait. Each extent remembers the ops that must end
before it is written again; they become memory dependencies of the next op that writes it. Differences from the paper: a
tile that is also in a file stays until its bytes are needed and is then dropped without a write; eviction candidates
are ranked by bytes moved over time gained; if the free bytes are too scattered, the arena is emptied and filled anew.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np

from einturnip.core.errors import CapacityError, TooLarge
from einturnip.core.units import LINE_NBYTES, PAGE_NBYTES
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import offload_seconds, reload_seconds
from einturnip.memgraph.arena import Arena, Segment
from einturnip.memgraph.columns import UNLIMITED, OpColumns, PlanLimits, TaskRow, rows
from einturnip.memgraph.eviction import EvictionQueue, join_spill_files, spill_files
from einturnip.memgraph.multi_arena import ArenaParts, address_range, arena_excess, name_copies
from einturnip.memgraph.types import COMPUTE, DISK, FILES, MemGraph, OpKind, op_kind, output_tier
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import LOOKAHEAD_SHARE, MAX_DEPS_PER_OP, MAX_NEIGHBOURS

OP_KINDS = [op_kind(kind) for kind in TaskKind]


def granule(capacity: int) -> int:
    """Return the allocation granule: a page, so that direct I/O works, or a cache line in a tiny arena."""
    return PAGE_NBYTES if capacity >= 4 << 20 else LINE_NBYTES


def build(
    tasks: TaskGraph,
    capacity: int,
    machine: Machine,
    readable: frozenset[int] = frozenset(),
    ahead: int | None = None,
    parts: ArenaParts | None = None,
    limits: PlanLimits = UNLIMITED,
    extra: Sequence[int] = (),
) -> MemGraph:
    """Place every value of ``tasks`` in ``capacity`` bytes of each device.

    ``readable``: outputs whose stored tiles can be read again. ``ahead``: number of tasks by which the allocation
    cursor runs ahead by evicting values with a distant next use; two per worker by default. ``parts``: separate parts
    of the arena, for programs that must not wait for each other. ``extra``: by device, bytes of its arena in addition.

    Raises:
        CapacityError: one task's working set, ``needed``, is larger than the capacity.
        TooLarge: the plan exceeds ``limits``.
    """
    ahead = 2 * machine.workers if ahead is None else ahead
    return _placed(tasks, capacity, machine, readable, ahead, parts, limits, extra).freeze(tasks)


def _placed(
    tasks: TaskGraph, capacity: int, machine: Machine, readable: frozenset[int],
    ahead: int, parts: ArenaParts | None, limits: PlanLimits, extra: Sequence[int],
) -> OpColumns:  # fmt: skip
    """Place the values in whole pages, or in whole cache lines if pages do not fit."""
    try:
        return _Builder(tasks, capacity, machine, readable, granule(capacity), ahead, parts, limits, extra).run()
    except CapacityError as error:
        if granule(capacity) == LINE_NBYTES or isinstance(error, TooLarge):
            raise
    return _Builder(tasks, capacity, machine, readable, LINE_NBYTES, ahead, parts, limits, extra).run()


def _all_nbytes(tasks: TaskGraph, granule: int) -> int:
    """Return the bytes that hold all values and workspaces at once; a larger arena is of no use."""
    sizes = np.concatenate([tasks.value_nbytes, tasks.workspace])
    return int((np.maximum(1, -(-sizes // granule)) * granule).sum())


class _Builder:
    """The simulated arenas and the ops so far. A value is tracked from its first op to its last use."""

    def __init__(
        self, tasks: TaskGraph, capacity: int, machine: Machine, readable: frozenset[int], granule: int,
        ahead: int, parts: ArenaParts | None, limits: PlanLimits, extra: Sequence[int],
    ) -> None:  # fmt: skip
        self.t, self.readable, self.machine = tasks, readable, machine
        largest = int(tasks.value_nbytes.max(initial=0))
        every = _all_nbytes(tasks, granule)
        sizes = [min(capacity + more, every) // granule * granule for more in extra or [0] * tasks.devices]
        if parts is not None:
            self.arenas = parts.arenas(granule, largest)
            self.device: Sequence[int] = parts.owner
        else:
            self.arenas = [Arena(size, granule, largest, k * max(sizes)) for k, size in enumerate(sizes)]
            self.device = array("H", tasks.device.tobytes()) if tasks.devices > 1 else bytes(tasks.n_values)
        self.arena = min(self.arenas, key=lambda arena: arena.capacity)  # all arenas round sizes in the same way
        self.spill = spill_files(tasks.devices, len(self.arenas), granule)
        self.ops = OpColumns(limits)
        self.lookahead = int(capacity * LOOKAHEAD_SHARE) * tasks.devices
        self.ahead = ahead
        self.nbytes = array("q", tasks.value_nbytes.tobytes())
        self.size = array("q", self.arena.rounded_all(tasks.value_nbytes).tobytes())
        self.largest = self.arena.rounded(largest)
        self.version: dict[int, int] = {}  # of partial states that were reloaded
        self.origin = array("i")
        self.segment: dict[int, Segment] = {}
        self.writers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        # The copy of a value in another tier: (tier, ops that wrote it, version of the value there).
        self.backing: dict[int, tuple[int, tuple[int, ...], int]] = {}
        self.reloads: dict[int, tuple[int, ...]] = {}  # of the partial state that a unit continues
        self.load_task: dict[int, int] = {}
        # A box that several moves write is a unit, as is a state that several kernels accumulate into.
        made, moves = np.unique(tasks.value[tasks.kind == TaskKind.MOVE], return_counts=True)
        self.shared = frozenset(made[moves > 1].tolist())
        self.loaded: set[int] = set()
        self.candidates = EvictionQueue(tasks)
        self.queues = [self.candidates, *(self.candidates.for_other_arena() for _ in self.arenas[1:])]  # by device
        self.may_evict = int(sum(self.size)) > self.arena.capacity
        self.completed = -1
        self.in_flight: deque[tuple[int, int, set[int]]] = deque()  # placed, not complete: task, bytes taken, values
        self.in_flight_nbytes = self.taken = 0
        self.last_uses = dict[int, list[int]]()  # by task, the values that no later task uses
        self.scratch: dict[int, tuple[Segment, int, Arena]] = {}

    def run(self) -> OpColumns:
        for task in rows(self.t):
            if task.kind == TaskKind.LOAD:
                # A load is emitted where its value is first used.
                v = task.value
                self.load_task[v] = task.id
                self.backing[v] = FILES + task.node, (), v
            else:
                self._place(task)
        while self.in_flight:
            self._complete_next()
        if self.t.devices > 1:
            name_copies(self.ops, self.t)
        peak = max(arena.peak + (arena.begin if self.t.devices == 1 else 0) for arena in self.arenas)
        several = self.t.devices > 1
        capacity, sizes = address_range(self.arenas) if several else (self.arenas[-1].end, ())
        self.ops.close(capacity, join_spill_files(self.ops, self.spill), peak, self.origin, sizes)
        return self.ops

    # One task: allocate, emit its op, record the values whose last use it is.

    def _place(self, task: TaskRow) -> None:
        i, reads = task.id, task.reads
        made = -1 if task.kind == TaskKind.STORE else task.value
        used = {*reads} if made < 0 else {*reads, made}
        arena, size, candidates = self.arena, self.size, self.candidates
        scratch = arena.rounded(task.workspace) if task.workspace else 0
        if scratch + self.largest * len(used) > arena.capacity:
            total = sum([size[v] for v in used]) + scratch
            if total > arena.capacity and arena_excess(used, scratch, size, self.device, self.arenas):
                raise CapacityError(f"a tile's kernel holds {total} bytes at once", total)
        while self.in_flight_nbytes > self.lookahead and len(self.in_flight) > self.ahead:
            self._complete_next()
        self.taken = 0
        candidates.pin(used, i)
        space = self._acquire(i, reads, made, scratch)
        if space is None:
            self._evict_all()
            space = self._acquire(i, reads, made, scratch)
            assert space is not None
        op = self._emit_task(task, made, space if scratch else None)
        if scratch:
            self.scratch[i] = space, op, self.arenas[self.device[made]]
        self.in_flight.append((i, self.taken, used))
        self.in_flight_nbytes += self.taken
        if last := candidates.used(used, i):
            self.last_uses[i] = last

    def _acquire(self, i: int, reads: Sequence[int], made: int, scratch: int) -> Segment | None:
        """Allocate the values of task ``i``; return its scratch segment, or any segment if it has none."""
        seg: Segment | None = self.arena.head
        for v in reads:
            if v not in self.segment:
                seg = self._allocate(self.size[v], v, i, self.device[v])
                if seg is None:
                    return None
                self._load(v, seg)
        if made >= 0 and made not in self.segment:
            seg = self._allocate(self.size[made], made, i, self.device[made])
            if seg is None:
                return None
            if made in self.backing:
                self._load(made, seg)
            else:
                self.segment[made] = seg
                self.writers.setdefault(made, [])
                self.readers.setdefault(made, [])
        return self._allocate(scratch, -2, i, self.device[made]) if scratch else seg

    def _emit_task(self, task: TaskRow, made: int, space: Segment | None) -> int:
        after: list[int] = []
        possible: tuple[int, ...] = ()
        reads: list[int] = []
        nbytes, version, writers = self.nbytes, self.version, self.writers
        if task.kind == TaskKind.MOVE and self.t.devices > 1 and task.reads:
            self._record_copy(task.reads[0], made)
        for v in task.reads:
            if nbytes[v]:
                after += writers[v]
            reads += COMPUTE, self.segment[v].offset, nbytes[v], version.get(v, v)
        unit = -1
        if made >= 0:
            seg = self.segment[made]
            if task.kind in (TaskKind.ACCUMULATE, TaskKind.COMBINE) or made in self.shared:
                unit = self._accumulate_unit(made)
            if unit >= 0 and self.t.ordered and writers[made]:
                after.append(writers[made][-1])
            if made in self.reloads:
                after += self.reloads[made]  # the reload has waited for the bytes
            elif writers[made] and len(seg.deps) > MAX_DEPS_PER_OP:
                after.append(writers[made][0])
            elif nbytes[made]:
                after += seg.certain_deps
                possible = seg.possible_deps
            writes = [COMPUTE, seg.offset, nbytes[made], version.get(made, made)]
        else:
            tier = output_tier(self.t.decomposition.graph, task.node)
            writes = [tier, 0, nbytes[task.value], version.get(task.value, task.value)]
        if space is not None:
            after += space.certain_deps
            possible += space.possible_deps
            writes += (COMPUTE, space.offset, task.workspace, -1)
        op = self.ops.append(OP_KINDS[task.kind], task.id, unit, task.seconds, reads, writes, after, possible)
        if made >= 0 and nbytes[made] and not writers[made]:
            self.arenas[self.device[made]].collapse_deps(seg, op)
        for v in {*task.reads}:
            self.readers[v].append(op)
            if len(writers[v]) > MAX_DEPS_PER_OP:
                writers[v] = [op]  # later readers wait for this reader only
        if made >= 0:
            writers[made].append(op)
        elif task.reads[0] not in self.backing and self._stays_readable(task):
            self.backing[task.reads[0]] = writes[0], (op,), writes[3]
        return op

    def _record_copy(self, v: int, made: int) -> None:
        """Record that ``made`` is a copy of ``v`` on another device, which the same file backs."""
        if self.t.original[made] == self.t.original[v]:
            if v in self.version:
                self.version[made] = self.version[v]
            if v in self.backing and self.backing[v][0] >= FILES:
                self.backing[made] = self.backing[v]

    def _stays_readable(self, task: TaskRow) -> bool:
        """Return whether a store leaves its whole value in a readable file."""
        return task.node in self.readable and task.value == self.t.seen[self.t.read_ptr[task.id]]

    def _accumulate_unit(self, v: int) -> int:
        """Return the unit of an op that accumulates into ``v``; a reloaded partial state starts a new unit."""
        if v in self.backing:
            self._drop_backing(v)
            self.reloads[v] = tuple(self.writers[v])
            self.origin.append(v)
            self.version[v] = self.t.n_values + len(self.origin) - 1
        return self.version.get(v, v)

    # Bytes: allocate, fill, evict and release them.

    def _allocate(self, size: int, value: int, i: int, device: int) -> Segment | None:
        """Allocate free bytes; without any, evict distant values, then complete tasks, then evict any value."""
        arena = self.arenas[device]
        while True:
            seg = arena.take(size, value)
            if seg is not None:
                self.taken += size
                return seg
            chosen = self._choose_distant(size, i, device) if len(self.in_flight) <= self.ahead else None
            if chosen is None:
                if self.in_flight:
                    self._complete_next()
                    continue
                found = arena.cheapest_eviction(
                    size, lambda v: self.candidates.price(v, i, self.completed, self._evictable)
                )
                if found is None:
                    return None
                chosen = found[1]
            for v in chosen:
                self._evict(v)

    def _choose_distant(self, size: int, i: int, device: int) -> list[int] | None:
        """Return the cheapest adjacent values to evict, among those whose next use is farthest away."""
        cheapest, candidates = self.arenas[device].cheapest_eviction, self.queues[device]
        completed, evictable = self.completed, self._evictable
        distance = i - completed if self.in_flight else 0

        def cost(v: int) -> float | None:
            return candidates.price_if_distant(v, i, completed, distance, evictable)

        best: tuple[float, list[int]] | None = None
        for v in candidates.farthest_next_use(size // MAX_NEIGHBOURS, i, completed, distance, evictable):
            found = cheapest(size, cost, self.segment[v])
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else best[1]

    def _load(self, v: int, seg: Segment) -> None:
        """Load or reload ``v`` into ``seg``."""
        tier, wrote, version = self.backing[v]
        offset = self.spill[self.device[v]].offset(v) if tier == DISK else 0
        first = v in self.load_task and v not in self.loaded
        kind = OpKind.LOAD if first else OpKind.RELOAD
        read = float(self.t.seconds[self.load_task[v]]) if v in self.load_task else None
        self.loaded.add(v)
        op = self.ops.append(
            kind,
            self.load_task.get(v, -1),
            -1,
            read if first and read else reload_seconds(self.nbytes[v], tier == DISK, read, self.machine),
            [tier, offset, self.nbytes[v], version],
            [COMPUTE, seg.offset, self.nbytes[v], self.version.get(v, v)],
            [*seg.certain_deps, *wrote] if self.nbytes[v] else (),
            seg.possible_deps if self.nbytes[v] else (),
        )
        if self.nbytes[v]:
            self.arenas[self.device[v]].collapse_deps(seg, op)
        if tier == DISK:
            self.spill[self.device[v]].read_by(v, op)
        self.segment[v] = seg
        self.writers[v], self.readers[v] = [op], []
        self.reloads.pop(v, None)

    def _evict(self, v: int) -> None:
        """Free the bytes of ``v``; without a copy in another tier, write it to the spill file first."""
        seg = self.segment[v]
        if not self.writers[v]:  # not written yet
            del self.segment[v]
            self.arenas[self.device[v]].release(seg, seg.deps, seg.exact, seg.required)
            return
        if v not in self.backing:
            version = self.version.get(v, v)
            slots = self.spill[self.device[v]]
            offset, deps = slots.take(v, self.size[v])
            op = self.ops.append(
                OpKind.OFFLOAD,
                -1,
                -1,
                offload_seconds(self.nbytes[v], self.machine),
                [COMPUTE, seg.offset, self.nbytes[v], version],
                [DISK, offset, self.nbytes[v], version],
                [*self.writers[v], *deps] if self.nbytes[v] else (),
            )
            slots.written_by(v, op)
            self.readers[v].append(op)
            self.backing[v] = DISK, (op,), version
        self._release(v)

    def _release(self, v: int) -> None:
        seg, arena = self.segment.pop(v), self.arenas[self.device[v]]
        if self.nbytes[v]:  # every reader comes after every writer, so the readers imply the writers
            arena.release(seg, tuple(self.readers[v] or self.writers[v]), True)
        else:  # no op used the bytes, so the earlier dependencies remain
            arena.release(seg, seg.deps, seg.exact, seg.required)

    def _drop_backing(self, v: int) -> None:
        backing = self.backing.pop(v, None)
        if backing is not None and backing[0] == DISK:
            self.spill[self.device[v]].release(v)

    def _complete_next(self) -> None:
        """Advance the completion cursor by one task and release the values whose last use it was."""
        i, taken, used = self.in_flight.popleft()
        self.in_flight_nbytes -= taken
        self.completed = i
        for v in used if self.may_evict else ():
            if self.candidates.pinned[v] == i:
                self.queues[self.device[v]].completed(v, i, self.size[v])
        if i in self.scratch:
            seg, op, arena = self.scratch.pop(i)
            arena.release(seg, (op,), True)
        for v in self.last_uses.pop(i, ()):
            if v in self.segment:
                self._release(v)
            self._drop_backing(v)
            self.loaded.discard(v)
            for known in (self.writers, self.readers, self.reloads, self.version, self.load_task):
                known.pop(v, None)

    def _evict_all(self) -> None:
        """Empty the arenas, because the free bytes are too scattered for a working set that would fit."""
        while self.in_flight:
            self._complete_next()
        for arena in self.arenas:
            for seg in list(arena):
                if seg.value >= 0:
                    self._evict(seg.value)
            arena.merge_all()

    def _evictable(self, v: int) -> int:
        """Return 0 if ``v`` is not in memory, 1 if another tier has a copy, 2 if it must be written first."""
        if v not in self.segment:
            return 0
        return 1 if v in self.backing else 2
