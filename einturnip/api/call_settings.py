"""How a call is to be run, as its caller wrote it, and the memory that it may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from einturnip.api import plan_cache
from einturnip.api.known_sizes import workers_stated
from einturnip.api.result_memory import release
from einturnip.compiler import Options
from einturnip.core.resident import callers_nbytes
from einturnip.core.units import parse_size
from einturnip.storage.types import Array

Size = str | int
Target = str | os.PathLike[str] | Array


@dataclass(frozen=True, slots=True)
class Settings:
    """How a call is to be run, as its caller wrote it (see ``Program.__call__``)."""

    memory: Size | None = None
    arena: Size | None = None
    workers: int | None = None
    out: Mapping[str, Target] = field(default_factory=dict)
    spill: str | os.PathLike[str] | None = None
    spill_limit: Size | None = None
    policy: str = "critical-path"
    exact: bool = True
    device: str = "cpu"
    host_memory: Size | None = None
    reproducible: bool = False
    force: bool = False

    def options(self) -> Options:
        """The same for the planner, but for the memory of the process."""
        return Options(
            memory=None if self.device == "cpu" or self.memory is None else parse_size(self.memory),
            arena=None if self.arena is None else parse_size(self.arena),
            workers=None if self.workers is None else workers_stated(self.workers),
            spill=None if self.spill is None else os.fspath(self.spill),
            spill_limit=None if self.spill_limit is None else parse_size(self.spill_limit),
            policy=self.policy,
            exact=self.exact,
            device=self.device,
            host_memory=None if self.host_memory is None else parse_size(self.host_memory),
            reproducible=self.reproducible,
            force=self.force,
        )

    def allowed(self) -> int | None:
        """Bytes that may be added to the process; None where the arena is stated instead."""
        if self.arena is not None or self.device != "cpu":
            return None
        return plan_cache.free_share() if self.memory is None else parse_size(self.memory)

    def before(self) -> int:
        """Resident bytes of the process before the call, without the modules that einturnip loaded late."""
        if self.memory is not None:
            release()  # what earlier runs left is none of this one's budget
            plan_cache.release_idle_resources()
        return callers_nbytes()
