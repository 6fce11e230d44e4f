"""The contents of each memory during the walk: the part of the walk that policies can query."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from einturnip.memgraph.arena import Segment
from einturnip.memgraph.types import DISK, FILES, HOST
from einturnip.taskgraph.types import TaskKind
from offload_policies.types import NEVER, AccessTrace

# Maximum depth of recomputation: a value, its operands, theirs.
DEEPEST = 3
_NAMES = {HOST: "host", DISK: "disk"}


class FragmentedArena(Exception):
    """The free bytes are too scattered for a step that would fit."""


class ResidentValues:
    """Addresses of values, their writers and readers there, and their next uses."""

    never = NEVER

    def __init__(self, trace: AccessTrace) -> None:
        tasks, n = trace.tasks, trace.tasks.n_values
        self.trace = trace
        self.step = 0
        self.kind, self.node, self.value = tasks.kind.tolist(), tasks.node.tolist(), tasks.value.tolist()
        self.read_ptr, self.read = tasks.read_ptr.tolist(), tasks.read.tolist()
        self.nbytes: list[int] = tasks.value_nbytes.tolist()
        moved = np.bincount(tasks.value[tasks.kind == TaskKind.MOVE], minlength=n)
        self.shared: list[bool] = (moved > 1).tolist()
        self.output_tier = FILES + len(tasks.decomposition.graph.nodes)
        stores = np.flatnonzero(tasks.kind == TaskKind.STORE)
        self.whole = {
            *stores[tasks.seen[tasks.read_ptr[stores]] == tasks.value[stores]].tolist()
        }  # all of it is stored
        self.version = list(range(n))
        self.origin: list[int] = []
        self.segment: list[Segment | None] = [None] * n
        self.writers: list[list[int]] = [[] for _ in range(n)]
        self.readers: list[list[int]] = [[] for _ in range(n)]
        self.base: list[tuple[int, ...]] = [()] * n  # what the state's unit continues
        # (tier, ops that wrote it there, as which value it is there)
        self.home: list[tuple[int, tuple[int, ...], int] | None] = [None] * n
        self.load_task = [-1] * n
        for i in np.flatnonzero(tasks.kind == TaskKind.LOAD).tolist():
            v = self.value[i]
            self.load_task[v] = i
            self.home[v] = FILES + self.node[i], (), v
        self.loaded: set[int] = set()
        self.dropped: set[int] = set()
        self.pinned: dict[int, None] = {}
        self.touched = [-1] * n
        self._at = [0] * n

    def held(self, v: int) -> Segment:
        """The value's address on the device."""
        seg = self.segment[v]
        assert seg is not None
        return seg

    def resident(self, v: int) -> bool:
        """True if the device holds the value."""
        return self.segment[v] is not None

    def residents(self) -> Iterator[int]:
        """The values that the device holds."""
        return (v for v, seg in enumerate(self.segment) if seg is not None)

    def clean(self, v: int) -> bool:
        """True if another memory holds the value too."""
        return self.home[v] is not None

    def fetchable(self, v: int) -> bool:
        """True if the value is not on the device and can be fetched."""
        return self.segment[v] is None and self.home[v] is not None

    def next_use(self, v: int) -> int:
        """The next step that touches the value, or NEVER; the current step counts."""
        uses = self.trace.uses[v]
        return uses[self._at[v]] if self._at[v] < len(uses) else NEVER

    def last_use(self, v: int) -> int:
        """The last step that touched or fetched it; -1 if there is none."""
        return self.touched[v]

    def advance(self, v: int, step: int) -> int:
        """Record that ``step`` has used ``v``; returns its next use, or NEVER."""
        uses, at = self.trace.uses[v], self._at[v]
        while at < len(uses) and uses[at] <= step:
            at += 1
        self._at[v] = at
        return uses[at] if at < len(uses) else NEVER

    def new_version(self, v: int) -> None:
        """Distinguish the contents of ``v`` from now on from the earlier ones."""
        self.origin.append(v)
        self.version[v] = self.trace.tasks.n_values + len(self.origin) - 1

    def transfer_seconds(self, nbytes: int, out: bool, tier: int = FILES) -> float:
        """Seconds of a transfer between the device and a tier."""
        name = _NAMES.get(tier, self.trace.machine.inputs)
        return self.trace.offload_seconds(nbytes, name) if out else self.trace.fetch_seconds(nbytes, name)

    def remade_in(self, v: int) -> float:
        """Seconds of kernels to recompute the value for its next use; infinite if impossible.

        Their operands must still be in use then, so that they are available, and all must fit together with that use.
        """
        wanted = self.next_use(v)
        if wanted >= NEVER:
            return float("inf")
        chain: dict[int, int] = {}
        if not self._chain(v, wanted, chain, DEEPEST):
            return float("inf")
        trace = self.trace
        read = {w for step in chain.values() for w in trace.reads[step]}
        beside = read | set(trace.needs[wanted]) | {*chain}
        workspace = max(trace.workspace[step] for step in (*chain.values(), wanted))
        if sum(trace.size[w] for w in beside) + workspace > trace.budgets.device // 2:
            return float("inf")
        return sum(trace.seconds[step] for step in chain.values())

    def _chain(self, v: int, wanted: int, chain: dict[int, int], depth: int) -> bool:
        """Collect the steps that recompute ``v``; False if impossible."""
        step = self.trace.maker[v]
        if step < 0 or depth == 0 or self.home[v] is not None:
            return False
        chain[v] = step
        for w in self.trace.reads[step]:
            if self.trace.stored[w] or w in chain:
                continue
            uses = self.trace.uses[w]
            if uses[-1] < wanted:
                return False  # it will be gone by then
            if w in self.dropped and not self._chain(w, wanted, chain, depth - 1):
                return False
        return True
