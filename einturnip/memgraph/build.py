"""TaskGraph -> MemGraph: TURNIP's BUILDMEMGRAPH (arXiv 2405.16283), by simulating the serial order to fix addresses.

Two cursors walk the order: allocation runs ahead of completion, so what is loaded for a later task takes bytes that
were given up long before, and the load need not wait. An extent remembers the ops that must end before it is written
again; those become memory dependencies of whatever writes it next. Going past the paper: a clean copy stays until its
bytes are wanted and is then dropped without a write, victims are weighed by bytes moved over time won, and where the
free bytes are scattered the working set is laid out afresh instead of failing.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np

from einturnip.core.errors import CapacityError, TooLarge
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import offload_seconds, reload_seconds
from einturnip.memgraph.arena import MOST_NEIGHBOURS, Arena, Segment
from einturnip.memgraph.columns import ANY, OpColumns, PlanLimits
from einturnip.memgraph.eviction import EvictionQueue
from einturnip.memgraph.multi_arena import ArenaParts, arena_excess, name_copies
from einturnip.memgraph.spill_slots import SpillSlots
from einturnip.memgraph.task_rows import TaskRow, rows
from einturnip.memgraph.types import COMPUTE, DISK, FILES, MemGraph, OpKind, op_kind
from einturnip.taskgraph.types import TaskGraph, TaskKind

OP_KINDS = [op_kind(kind) for kind in TaskKind]
# Where more ops than this come before each of several, the first of those comes before the rest: m + n, not m n.
MOST_BEFORE_EACH = 8
# Of the capacity, how much the allocation cursor may take for tasks that are not complete yet.
LOOKAHEAD_SHARE = 0.03
PAGE, LINE = 4096, 64


def granule(capacity: int) -> int:
    """What allocations are rounded to: a page, so that direct I/O works, or a cache line in a tiny arena."""
    return PAGE if capacity >= 4 << 20 else LINE


def build(
    tasks: TaskGraph,
    capacity: int,
    machine: Machine,
    readable: frozenset[int] = frozenset(),
    ahead: int | None = None,
    parts: ArenaParts | None = None,
    most: PlanLimits = ANY,
) -> MemGraph:
    """Place every value of ``tasks`` in ``capacity`` bytes.

    ``readable``: outputs whose stored tiles can be read again. ``ahead``: for so many tasks ahead of those complete,
    values that are wanted late give up their bytes; two for each worker, if it is not stated. ``parts``: of the bytes,
    for programs that are to wait for none of each other's.

    Raises:
        CapacityError: one task's working set, ``needed``, is larger than the capacity. TooLarge: it is over ``most``.
    """
    ahead = 2 * machine.workers if ahead is None else ahead
    return _placed(tasks, capacity, machine, readable, ahead, parts, most).freeze(tasks)


def _placed(
    tasks: TaskGraph, capacity: int, machine: Machine, readable: frozenset[int],
    ahead: int, parts: ArenaParts | None, most: PlanLimits,
) -> OpColumns:  # fmt: skip
    """The ops; nothing else of the builder outlives this call. What fits by lines alone is placed by lines."""
    try:
        return _Builder(tasks, capacity, machine, readable, granule(capacity), ahead, parts, most).run()
    except CapacityError as error:
        if granule(capacity) == LINE or isinstance(error, TooLarge):
            raise
    return _Builder(tasks, capacity, machine, readable, LINE, ahead, parts, most).run()


def _all_nbytes(tasks: TaskGraph, granule: int) -> int:
    """What holds all values and every task's workspace at once: more is never of use."""
    sizes = np.concatenate([tasks.value_nbytes, tasks.workspace])
    return int((np.maximum(1, -(-sizes // granule)) * granule).sum())


class _Builder:
    """The simulated arena and the ops so far. Lives inside ``build``; value ids are the task graph's.

    What is known of a value is kept from its first op to its last use.
    """

    def __init__(
        self, tasks: TaskGraph, capacity: int, machine: Machine, readable: frozenset[int], granule: int,
        ahead: int, parts: ArenaParts | None, most: PlanLimits,
    ) -> None:  # fmt: skip
        self.t = tasks
        self.readable = readable
        self.machine = machine
        largest = int(tasks.value_nbytes.max(initial=0))
        room = min(capacity, _all_nbytes(tasks, granule)) // granule * granule
        if parts is not None:
            self.arenas, self.device = parts.arenas(granule, largest), parts.owner
        else:
            self.arenas = [Arena(room, granule, largest, k * room) for k in range(tasks.devices)]
            self.device = tasks.device.tobytes() if tasks.devices > 1 else bytes(tasks.n_values)
        self.arena = min(self.arenas, key=lambda arena: arena.capacity)  # sizes are rounded alike by all
        self.spill = SpillSlots(granule)
        self.ops = OpColumns(most)
        self.lookahead = int(capacity * LOOKAHEAD_SHARE) * tasks.devices
        self.ahead = ahead
        self.nbytes = array("q", tasks.value_nbytes.tobytes())
        self.size = array("q", self.arena.rounded_all(tasks.value_nbytes).tobytes())
        self.largest = self.arena.rounded(largest)
        self.version: dict[int, int] = {}  # of states that came back half-made
        self.origin = array("i")
        self.segment: dict[int, Segment] = {}
        self.writers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        # (tier, ops that wrote it there, as which value it stands there)
        self.home: dict[int, tuple[int, tuple[int, ...], int]] = {}
        self.base: dict[int, tuple[int, ...]] = {}  # what the state's unit continues
        self.load_task: dict[int, int] = {}
        # Boxes that several moves make are units, like states that several kernels touch.
        made, moves = np.unique(tasks.value[tasks.kind == TaskKind.MOVE], return_counts=True)
        self.shared = frozenset(made[moves > 1].tolist())
        self.loaded: set[int] = set()
        self.victims = EvictionQueue(tasks)
        self.idle = [self.victims, *(self.victims.beside() for _ in self.arenas[1:])]  # by device
        self.short = int(sum(self.size)) > self.arena.capacity  # else which of them may go is not kept
        self.completed = -1
        self.window: deque[tuple[int, int, set[int]]] = deque()  # (task, bytes newly taken, values used), oldest first
        self.window_nbytes = self.taken = 0
        self.deaths: dict[int, list[int]] = {}
        self.scratch: dict[int, tuple[Segment, int, Arena]] = {}

    def run(self) -> OpColumns:
        for task in rows(self.t):
            if task.kind == TaskKind.LOAD:
                # Loads happen where their value is first wanted.
                v = task.value
                self.load_task[v] = task.id
                self.home[v] = FILES + task.node, (), v
            else:
                self._place(task)
        while self.window:
            self._complete_next()
        name_copies(self.ops, self.t)
        peak = max(arena.peak + (arena.begin if self.t.devices == 1 else 0) for arena in self.arenas)
        self.ops.close(self.arenas[-1].end, self.spill.nbytes, peak, self.origin)
        return self.ops

    # One task: allocate, emit its op, note what dies with it.

    def _place(self, task: TaskRow) -> None:
        i, reads = task.id, task.reads
        made = -1 if task.kind == TaskKind.STORE else task.value
        wanted = {*reads} if made < 0 else {*reads, made}
        arena, size, victims = self.arena, self.size, self.victims
        scratch = arena.rounded(task.workspace) if task.workspace else 0
        if scratch + self.largest * len(wanted) > arena.capacity:
            total = sum([size[v] for v in wanted]) + scratch
            if total > arena.capacity and arena_excess(wanted, scratch, size, self.device, self.arenas):
                raise CapacityError(f"a tile's kernel holds {total} bytes at once", total)
        while self.window_nbytes > self.lookahead and len(self.window) > self.ahead:
            self._complete_next()
        self.taken = 0
        victims.pin(wanted, i)
        space = self._acquire(i, reads, made, scratch)
        if space is None:
            self._lay_out_afresh()
            space = self._acquire(i, reads, made, scratch)
            assert space is not None
        op = self._emit_task(task, made, space if scratch else None)
        if scratch:
            self.scratch[i] = space, op, self.arenas[self.device[made]]
        self.window.append((i, self.taken, wanted))
        self.window_nbytes += self.taken
        if last := victims.used(wanted, i):
            self.deaths[i] = last

    def _acquire(self, i: int, reads: Sequence[int], made: int, scratch: int) -> Segment | None:
        """Bytes for all that task ``i`` touches; the scratch segment, or some segment where it needs none."""
        seg: Segment | None = self.arena.head
        for v in reads:
            if v not in self.segment:
                seg = self._allocate(self.size[v], v, i, self.device[v])
                if seg is None:
                    return None
                self._bring_in(v, seg)
        if made >= 0 and made not in self.segment:
            seg = self._allocate(self.size[made], made, i, self.device[made])
            if seg is None:
                return None
            if made in self.home:
                self._bring_in(made, seg)
            else:
                self.segment[made] = seg
                self.writers.setdefault(made, [])
                self.readers.setdefault(made, [])
        return self._allocate(scratch, -2, i, self.device[made]) if scratch else seg

    def _emit_task(self, task: TaskRow, made: int, space: Segment | None) -> int:
        after: list[int] = []
        doubtful: tuple[int, ...] = ()
        held: list[int] = []
        nbytes, version, writers = self.nbytes, self.version, self.writers
        if task.kind == TaskKind.MOVE and self.t.devices > 1 and task.reads:
            self._copied(task.reads[0], made)
        for v in task.reads:
            if nbytes[v]:
                after += writers[v]
            held += COMPUTE, self.segment[v].offset, nbytes[v], version.get(v, v)
        unit = -1
        if made >= 0:
            seg = self.segment[made]
            if task.kind in (TaskKind.TOUCH, TaskKind.JOIN) or made in self.shared:
                unit = self._touch(made)
            if unit >= 0 and self.t.ordered and writers[made]:
                after.append(writers[made][-1])
            if made in self.base:
                after += self.base[made]  # the reload, which has waited for the bytes
            elif writers[made] and len(seg.deps) > MOST_BEFORE_EACH:
                after.append(writers[made][0])
            elif nbytes[made]:
                after += seg.certain
                doubtful = seg.doubtful
            writes = [COMPUTE, seg.offset, nbytes[made], version.get(made, made)]
        else:
            tier = FILES + len(self.t.decomposition.graph.nodes) + task.node
            writes = [tier, 0, nbytes[task.value], version.get(task.value, task.value)]
        if space is not None:
            after += space.certain
            doubtful += space.doubtful
            writes += (COMPUTE, space.offset, task.workspace, -1)
        op = self.ops.append(OP_KINDS[task.kind], task.id, unit, task.seconds, held, writes, after, doubtful)
        if made >= 0 and nbytes[made] and not writers[made]:
            self.arenas[self.device[made]].hand_on(seg, op)
        for v in {*task.reads}:
            self.readers[v].append(op)
            if len(writers[v]) > MOST_BEFORE_EACH:
                writers[v] = [op]  # whoever reads it from now on waits for this reader
        if made >= 0:
            writers[made].append(op)
        elif task.reads[0] not in self.home and self._can_be_read_again(task):
            self.home[task.reads[0]] = writes[0], (op,), writes[3]
        return op

    def _copied(self, v: int, made: int) -> None:
        """A copy on another device goes by the same name; of what stands in a file it can be read again from there."""
        if self.t.original[made] == self.t.original[v]:
            if v in self.version:
                self.version[made] = self.version[v]
            if v in self.home and self.home[v][0] >= FILES:
                self.home[made] = self.home[v]

    def _can_be_read_again(self, task: TaskRow) -> bool:
        """True where a store leaves all of its value in a file that can be read."""
        return task.node in self.readable and task.value == self.t.seen[self.t.read_ptr[task.id]]

    def _touch(self, v: int) -> int:
        """The unit that a touch of state ``v`` belongs to. A state that came back half-made starts its next unit."""
        if v in self.home:
            self._forget_home(v)
            self.base[v] = tuple(self.writers[v])
            self.origin.append(v)
            self.version[v] = self.t.n_values + len(self.origin) - 1
        return self.version.get(v, v)

    # Bytes: take them, fill them, give them up.

    def _allocate(self, size: int, value: int, i: int, device: int) -> Segment | None:
        """``size`` free bytes: given up long ago, or a victim's, or given up just now; None if too scattered."""
        arena = self.arenas[device]
        while True:
            seg = arena.take(size, value)
            if seg is not None:
                self.taken += size
                return seg
            chosen = self._to_spare(size, i, device) if len(self.window) <= self.ahead else None
            if chosen is None:
                if self.window:
                    self._complete_next()
                    continue
                found = arena.window(size, lambda v: self.victims.price(v, i, self.completed, self._evictable))
                if found is None:
                    return None
                chosen = found[1]
            for v in chosen:
                self._evict(v)

    def _to_spare(self, size: int, i: int, device: int) -> list[int] | None:
        """Neighbours to evict that are wanted late: the cheapest around the values that are wanted latest."""
        window, victims = self.arenas[device].window, self.idle[device]
        completed, evictable = self.completed, self._evictable
        distance = i - completed if self.window else 0

        def cost(v: int) -> float | None:
            return victims.spare(v, i, completed, distance, evictable)

        best: tuple[float, list[int]] | None = None
        for v in victims.latest(size // MOST_NEIGHBOURS, i, completed, distance, evictable):
            found = window(size, cost, self.segment[v])
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else best[1]

    def _bring_in(self, v: int, seg: Segment) -> None:
        """Load or reload ``v`` into ``seg``."""
        tier, wrote, known_as = self.home[v]
        offset = self.spill.offset(v) if tier == DISK else 0
        first = v in self.load_task and v not in self.loaded
        kind = OpKind.LOAD if first else OpKind.RELOAD
        read = float(self.t.seconds[self.load_task[v]]) if v in self.load_task else None
        self.loaded.add(v)
        op = self.ops.append(
            kind,
            self.load_task.get(v, -1),
            -1,
            read if first and read else reload_seconds(self.nbytes[v], tier == DISK, read, self.machine),
            [tier, offset, self.nbytes[v], known_as],
            [COMPUTE, seg.offset, self.nbytes[v], self.version.get(v, v)],
            [*seg.certain, *wrote] if self.nbytes[v] else (),
            seg.doubtful if self.nbytes[v] else (),
        )
        if self.nbytes[v]:
            self.arenas[self.device[v]].hand_on(seg, op)
        if tier == DISK:
            self.spill.read_by(v, op)
        self.segment[v] = seg
        self.writers[v], self.readers[v] = [op], []
        self.base.pop(v, None)

    def _evict(self, v: int) -> None:
        """Give up the bytes of ``v``; written to the spill file first unless a copy stands elsewhere."""
        seg = self.segment[v]
        if not self.writers[v]:  # nothing there yet
            del self.segment[v]
            self.arenas[self.device[v]].release(seg, seg.deps, seg.exact, seg.stands)
            return
        if v not in self.home:
            version = self.version.get(v, v)
            offset, deps = self.spill.take(v, self.size[v])
            op = self.ops.append(
                OpKind.OFFLOAD,
                -1,
                -1,
                offload_seconds(self.nbytes[v], self.machine),
                [COMPUTE, seg.offset, self.nbytes[v], version],
                [DISK, offset, self.nbytes[v], version],
                [*self.writers[v], *deps] if self.nbytes[v] else (),
            )
            self.spill.written_by(v, op)
            self.readers[v].append(op)
            self.home[v] = DISK, (op,), version
        self._release(v)

    def _release(self, v: int) -> None:
        seg, arena = self.segment.pop(v), self.arenas[self.device[v]]
        if self.nbytes[v]:  # every reader comes after every writer, so where there is a reader the readers say it all
            arena.release(seg, tuple(self.readers[v] or self.writers[v]), True)
        else:  # nobody touched the bytes: they wait for those who did before
            arena.release(seg, seg.deps, seg.exact, seg.stands)

    def _forget_home(self, v: int) -> None:
        home = self.home.pop(v, None)
        if home is not None and home[0] == DISK:
            self.spill.release(v)

    def _complete_next(self) -> None:
        """Move the completion cursor over one task: what died with it gives up its bytes."""
        i, taken, used = self.window.popleft()
        self.window_nbytes -= taken
        self.completed = i
        for v in used if self.short else ():
            if self.victims.pinned[v] == i:
                self.idle[self.device[v]].completed(v, i, self.size[v])
        if i in self.scratch:
            seg, op, arena = self.scratch.pop(i)
            arena.release(seg, (op,), True)
        for v in self.deaths.pop(i, ()):
            if v in self.segment:
                self._release(v)
            self._forget_home(v)
            self.loaded.discard(v)
            for known in (self.writers, self.readers, self.base, self.version, self.load_task):
                known.pop(v, None)

    def _lay_out_afresh(self) -> None:
        """Empty the arenas: the free bytes are too scattered for a working set that would fit."""
        while self.window:
            self._complete_next()
        for arena in self.arenas:
            for seg in list(arena):
                if seg.value >= 0:
                    self._evict(seg.value)
            arena.merge_all()

    def _evictable(self, v: int) -> int:
        """0: not in memory; 1: a copy stands elsewhere; 2: it must be written first."""
        if v not in self.segment:
            return 0
        return 1 if v in self.home else 2
