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
    """Where a value goes that gives up its bytes and stands nowhere else."""

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
    """A program as a sequence of steps over values: step ``i`` runs task ``task[i]`` and touches ``needs[i]``.

    ``uses[v]``: the steps that touch ``v``. ``begins[i]``: when step ``i`` would begin if nothing ever waited.
    ``stored[v]``: it is a tile of an input. ``maker[v]``: the one step that makes it, else -1.
    Units: bytes, rounded as the arena does, and seconds.
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
        return len(self.task)

    def fetch_seconds(self, nbytes: int, tier: str = "host") -> float:
        """Seconds in which bytes reach the device."""
        return self.machine.link(tier, "device").seconds(nbytes)

    def offload_seconds(self, nbytes: int, tier: str = "host") -> float:
        """Seconds in which bytes leave the device."""
        return self.machine.link("device", tier).seconds(nbytes)

    @property
    def spill(self) -> str:
        """The nearest memory that values can be taken to."""
        return "host" if self.budgets.host else "disk"

    def round_trip(self, v: int) -> float:
        """Seconds that taking a value off the device and bringing it back takes."""
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
        """True where the device holds the value."""

    def residents(self) -> Iterable[int]:
        """The values that the device holds."""

    def clean(self, v: int) -> bool:
        """True where the value stands elsewhere too, so that giving up its bytes costs nothing now."""

    def fetchable(self, v: int) -> bool:
        """True where the value is not on the device and can be brought there."""

    def next_use(self, v: int) -> int:
        """The next step that touches the value, or NEVER; the step at hand counts."""

    def last_use(self, v: int) -> int:
        """The step that touched it last, or brought it; -1: none has."""

    def remade_in(self, v: int) -> float:
        """Seconds in which kernels can make the value again for its next use; infinite where they cannot."""


class OffloadPolicy:
    """Decides what leaves the device, how, and what comes ahead of its use.

    By itself: a value is brought when a step needs it, and the one wanted latest makes room.
    """

    name: ClassVar[str]
    # False: transfers are issued in the program's order, so that those of a step start after the step before has ended.
    free: ClassVar[bool] = True
    # True: what a step gives up must have left before the next step begins.
    waits_for_offloads: ClassVar[bool] = False
    # False: a value that stands elsewhere too is written again all the same, as where no copy is remembered.
    keeps_clean: ClassVar[bool] = True
    # True: what was stored as an output is not written again when it leaves, but read from there.
    rereads: ClassVar[bool] = False
    # True: what comes ahead of its use may push out what is wanted later; else it takes free bytes only.
    fetch_evicts: ClassVar[bool] = False
    # True: of a window of neighbours the dearest value counts, not their sum.
    dearest: ClassVar[bool] = False

    def prepare(self, trace: AccessTrace) -> None:
        """See the whole program before it is walked."""
        self.trace = trace

    def give_up(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values whose bytes are given up before ``step`` takes any; those that ``step`` needs are passed over."""
        return ()

    def ahead(self, step: int, memory: MemoryView) -> Iterable[int]:
        """Values to bring once ``step`` has its bytes, in order; it ends when one finds no room."""
        return ()

    def price(self, v: int, step: int, memory: MemoryView) -> float:
        """The cost of evicting ``v``: the cheapest value goes."""
        return 1.0 / max(1, memory.next_use(v) - step)

    def leave(self, v: int, step: int, memory: MemoryView) -> Eviction:
        """Where a value goes that stands nowhere else."""
        return Eviction.HOST if memory.host_free_nbytes >= self.trace.size[v] else Eviction.DISK
