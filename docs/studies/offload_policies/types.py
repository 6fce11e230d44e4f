"""The interface of offload policies: the trace and memories that they see, and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from einturnip.cost.described_machines import DescribedMachine
from einturnip.taskgraph.types import TaskGraph

NEVER = 1 << 60


class Eviction(Enum):
    """The destination of an evicted value without a copy."""

    HOST = "host"
    DISK = "disk"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class MemoryBudgets:
    """Bytes of each memory that a plan may use."""

    device: int
    host: int
    disk: int = 1 << 50


@dataclass(frozen=True)
class AccessTrace:
    """A program as a sequence of steps: step ``i`` runs task ``task[i]`` and touches ``needs[i]``.

    ``uses[v]``: the steps that touch ``v``. ``begins[i]``: the time at which step ``i`` would begin without waiting.
    ``stored[v]``: it is a tile of an input. ``maker[v]``: the one step that produces it, else -1. Units: bytes, rounded
    as the arena does, and seconds.
    """

    tasks: TaskGraph
    machine: DescribedMachine
    budgets: MemoryBudgets
    task: Sequence[int]
    needs: Sequence[tuple[int, ...]]
    reads: Sequence[tuple[int, ...]]
    uses: Sequence[Sequence[int]]
    size: Sequence[int]
    workspace: Sequence[int]
    seconds: Sequence[float]
    begins: Sequence[float]
    stored: Sequence[bool]
    maker: Sequence[int]

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.task)

    def fetch_seconds(self, nbytes: int, tier: str = "host") -> float:
        """Seconds of a transfer to the device."""
        return self.machine.link(tier, "device").seconds(nbytes)

    def offload_seconds(self, nbytes: int, tier: str = "host") -> float:
        """Seconds of a transfer from the device."""
        return self.machine.link("device", tier).seconds(nbytes)

    @property
    def spill(self) -> str:
        """The nearest memory for evicted values."""
        return "host" if self.budgets.host else "disk"

    def round_trip(self, v: int) -> float:
        """Seconds of a round trip of a value off the device and back."""
        nbytes = self.size[v]
        return self.offload_seconds(nbytes, self.spill) + self.fetch_seconds(nbytes, self.spill)


class MemoryView(Protocol):
    """The memories at a step of the walk."""

    @property
    def free_nbytes(self) -> int:
        """Free bytes of the device."""

    @property
    def host_free_nbytes(self) -> int:
        """Free bytes of the host tier."""

    def resident(self, v: int) -> bool:
        """True if the device holds the value."""

    def residents(self) -> Iterable[int]:
        """The values that the device holds."""

    def clean(self, v: int) -> bool:
        """True if another memory holds the value too, so that evicting it costs nothing now."""

    def fetchable(self, v: int) -> bool:
        """True if the value is not on the device and can be fetched."""

    def next_use(self, v: int) -> int:
        """The next step that touches the value, or NEVER; the current step counts."""

    def last_use(self, v: int) -> int:
        """The last step that touched or fetched it; -1 if there is none."""

    def remade_in(self, v: int) -> float:
        """Seconds of kernels to recompute the value for its next use; infinite if impossible."""


class OffloadPolicy:
    """Decides which values leave the device, how, and which are fetched ahead of use.

    By default a value is fetched when a step needs it, and the value with the latest next use is evicted.
    """

    name: ClassVar[str]
    # False: transfers are issued in program order, so those of a step start after the step before has ended.
    free: ClassVar[bool] = True
    # True: evicted values must have left before the next step begins.
    waits_for_offloads: ClassVar[bool] = False
    # False: a value with a copy is written again nevertheless, as without a record of copies.
    keeps_clean: ClassVar[bool] = True
    # True: a stored output is not written again when it leaves, but read from there.
    rereads: ClassVar[bool] = False
    # True: prefetches may evict values used later; else they take free bytes only.
    fetch_evicts: ClassVar[bool] = False
    # True: the most expensive value of a window of neighbours counts, not their sum.
    dearest: ClassVar[bool] = False

    def prepare(self, trace: AccessTrace) -> None:
        """See the whole program before it is walked."""
        self.trace = trace

    def give_up(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values to evict before ``step`` allocates; those that ``step`` needs are ignored."""
        return ()

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values to fetch once ``step`` has its bytes, in order; stops when one does not fit."""
        return ()

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The cost of evicting ``v``: the cheapest value is evicted."""
        return 1.0 / max(1, memory.next_use(v) - step)

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """The destination of a value without a copy."""
        return Eviction.HOST if memory.host_free_nbytes >= self.trace.size[v] else Eviction.DISK
