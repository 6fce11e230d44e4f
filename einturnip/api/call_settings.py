"""The settings of a call as its caller wrote them, and the memory that it may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from einturnip.api import plan_cache
from einturnip.api.known_sizes import checked_retries, checked_workers
from einturnip.api.result_memory import release
from einturnip.compiler import Options, reading_within
from einturnip.core.errors import BindError
from einturnip.core.process_resources import callers_nbytes
from einturnip.core.units import parse_size, parse_sizes, smallest_and_extra
from einturnip.cost.site_rates import parse_link, parse_rates
from einturnip.devices.kind import choose, is_on_host
from einturnip.storage.device_arrays import gpu_of
from einturnip.storage.types import Array

Size = str | int
Sizes = Size | Sequence[Size]
Target = str | os.PathLike[str] | Array

DASK = "dask"
"""The target of an output that becomes a Dask array, whose blocks stay on the workers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a call (see ``Program.__call__``)."""

    memory: Sizes | None = None
    arena: Sizes | None = None
    workers: int | None = None
    out: Mapping[str, Target] = field(default_factory=dict)
    spill: str | os.PathLike[str] | None = None
    spill_limit: Size | None = None
    policy: str = "critical-path"
    exact: bool = True
    device: str | None = None
    host_memory: Size | None = None
    reproducible: bool = False
    force: bool = False
    link: str | None = None
    rates: str | Sequence[float] | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        """Check the type of ``device``.

        Raises:
            BindError: it is no text.
        """
        if self.device is not None and not isinstance(self.device, str):
            raise BindError(f"device={self.device!r} is not a device. help: a text, such as device='cuda:0,1'")

    @property
    def word(self) -> str:
        """The device; the CPU if none is stated."""
        return self.device or "cpu"

    def on_device_of(self, data: Mapping[str, Any]) -> Settings:
        """Return the settings for a run on the GPU in whose memory inputs or targets are, if any is.

        Raises:
            BindError: they are on several GPUs, or another device is stated.
        """
        found = {n: gpu for n, value in (*data.items(), *self._targets()) if (gpu := gpu_of(value)) is not None}
        if not found:
            return self
        first, number = next(iter(found.items()))
        for name, other in found.items():
            if other != number:
                raise BindError(
                    f"{first} is in the memory of cuda:{number} and {name} in that of cuda:{other}. help: copy one to "
                    f"the other GPU, or to the host: cupy.asnumpy(x), or x.cpu() for torch"
                )
        if self.device is None:
            return replace(self, device=f"cuda:{number}")
        if choose(self.device).name != f"cuda:{number}":
            raise BindError(
                f"{first} is in the memory of cuda:{number}, and device={self.device!r}. help: leave out device=, or "
                "pass a copy on the host: cupy.asnumpy(x), or x.cpu() for torch"
            )
        return self

    def _targets(self) -> Iterable[tuple[str, Any]]:
        return ((f"output {n}", t) for n, t in self.out.items()) if isinstance(self.out, Mapping) else ()

    def options(self, on_workers: bool = False) -> Options:
        """The planner's options; the memory is that of each worker or of the device, not of this process."""
        memory, of_memory = _sizes(self.memory)
        arena, of_arena = _sizes(self.arena)
        return Options(
            memory=memory if on_workers or not is_on_host(self.word) else None,
            arena=arena,
            extra=of_arena or of_memory,
            workers=None if self.workers is None else checked_workers(self.workers),
            spill=None if self.spill is None else os.fspath(self.spill),
            spill_limit=None if self.spill_limit is None else parse_size(self.spill_limit),
            policy=self.policy,
            exact=self.exact,
            device=self.word,
            host_memory=None if self.host_memory is None else parse_size(self.host_memory),
            reproducible=self.reproducible,
            force=self.force,
            link=None if self.link is None else parse_link(self.link),
            rates=() if self.rates is None else parse_rates(self.rates),
            retries=checked_retries(self.retries),
        )

    def require_client(self, client: Any) -> None:
        """Refuse settings that only runs on the workers of a client have.

        Raises:
            BindError: names it.
        """
        if self.retries and client is None:
            raise BindError("retries= is for runs on workers, which can be lost. help: give client= too")

    def allowed(self) -> int | None:
        """Bytes that may be added to the process; None if the arena is given instead."""
        if self.arena is not None or not is_on_host(self.word):
            return None
        return plan_cache.free_share() if self.memory is None else _sizes(self.memory)[0]

    def reading(self, before: int) -> AbstractContextManager[None]:
        """Context in which the program is read within the memory. ``before``: the process's before the call."""
        allowed = self.allowed()
        limit = None if allowed is None else before + allowed
        return reading_within(replace(self.options(), memory=limit, base_nbytes=-before))

    def before(self) -> int:
        """Resident bytes of the process before the call, without modules that einturnip loaded lazily."""
        if self.memory is not None:
            release()  # memory left by earlier runs is not charged to this one
            plan_cache.release_idle_resources()
        return callers_nbytes()


def _sizes(sizes: Sizes | None) -> tuple[int | None, tuple[int, ...]]:
    return (None, ()) if sizes is None else smallest_and_extra(parse_sizes(sizes))
