"""How a program is to be run, as its user asks."""

from __future__ import annotations

from dataclasses import dataclass

from einturnip.planner.replayed_plan import ReplayedChoices

MAX_SECONDS = 7 * 86400
"""A program that is predicted to take longer is refused, unless it is forced."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is to be run. Sizes in bytes.

    ``memory``: the whole process; ``arena``: tiles alone, instead; neither: half of what the machine has free.
    ``check``: prove the memory graph before it runs. ``fuse``: einsums may run together where that spares bytes.
    ``exact``: rewrites keep every result's digits; else squared distances may become matrix products (``expansion``).
    ``compiled``: kernels that take long become machine code before the run, where the memory has room for a compiler.
    ``reproducible``: the bits hang on the program, its data and this machine's libraries, and on nothing else here.
    ``base_nbytes``: bytes by which what the user stated differs from ``memory``, for messages: what the process had
    taken. ``replayed``: the plan and the schedule of a recorded run, instead of a search and of what happens to end
    first. ``force``: plan what would otherwise be refused as hopeless (``feasible``). ``device``: ``cpu``, ``cuda:1``,
    ``cuda:0,1`` and the like; on any but the CPU the budget is each device's, and ``host_memory`` bounds the process.
    """

    memory: int | None = None
    arena: int | None = None
    workers: int | None = None
    spill: str | None = None
    spill_limit: int | None = None
    policy: str = "critical-path"
    check: bool = True
    fuse: bool = True
    exact: bool = True
    compiled: bool = True
    reproducible: bool = False
    replayed: ReplayedChoices | None = None
    base_nbytes: int = 0
    device: str = "cpu"
    host_memory: int | None = None
    force: bool = False

    @property
    def plan_key(self) -> tuple[object, ...]:
        """What a plan depends on of them, beside its budget, the machine and the device."""
        return self.fuse, self.exact, self.reproducible, self.policy
