"""Options of a run, as its user gives them."""

from __future__ import annotations

from dataclasses import dataclass

from einturnip.planner.replayed_plan import ReplayedChoices


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. Sizes in bytes.

    ``memory``: limit of the whole process; ``arena``: limit of tiles alone, instead; by default half of the free
    memory. ``check``: prove the memory graph before it runs. ``fuse``: allow fusion of einsums. ``exact``: rewrites
    keep every digit of results; otherwise squared distances may become matrix products. ``compiled``: compile expensive
    kernels to machine code before the run, if there is memory for a compiler. ``reproducible``: the bits depend only on
    the program, its data and this machine's libraries. ``base_nbytes``: resident bytes added to ``memory`` in messages,
    if the user's limit counts only what is added. ``replayed``: plan and schedule of a recorded run, used instead of a
    search. ``force``: plan programs that would be refused as infeasible (``feasible``). ``device``: ``cpu``,
    ``cuda:1``, ``cuda:0,1``, ...; except on the CPU, the budget is that of each device, and ``host_memory`` limits the
    process.
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
        """The options that a plan depends on, except its budget, machine and device."""
        return self.fuse, self.exact, self.reproducible, self.policy
