"""Calls of a program that are known again by their settings and their arrays' shapes: run at once."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from einturnip.api import plan_cache
from einturnip.api.jobs import Job
from einturnip.api.plan_cache import Kept
from einturnip.api.results import Result
from einturnip.api.running import run_on_arrays
from einturnip.eingraph.types import InputNode

MOST = 256
# By call: the plan, while it is kept, and the input that each node is.
_known: dict[Hashable, tuple[weakref.ref[Kept], tuple[str | None, ...]]] = {}


def key_of(settings: Hashable, data: Mapping[str, Any]) -> Hashable | None:
    """What a call's plan depends on, all its inputs being arrays; None where one is not."""
    found: list[Hashable] = [settings, plan_cache.machine_key()]
    for name, array in data.items():
        if type(array) is not np.ndarray:
            return None
        found += name, array.shape, array.strides, array.dtype
    return tuple(found)


def run(key: Hashable | None, data: Mapping[str, Any]) -> Result | None:
    """The results of a call that was made before; None where it has to be made at length."""
    known = _known.get(key) if key is not None else None
    kept = known[0]() if known is not None else None
    if known is None or kept is None:
        return None
    kept.use()
    return run_on_arrays(kept, [None if name is None else data[name] for name in known[1]])


def remember(key: Hashable | None, kept: Kept, job: Job, data: Mapping[str, Any]) -> None:
    """Know a call again, if its plan is small, its inputs are those given and its results new arrays."""
    if key is None or not kept.ready.again or any(target is not None for target in job.targets.values()):
        return
    names = tuple([n.name if isinstance(n, InputNode) else None for n in kept.planned.graph.nodes])
    if not all(name in data for name in names if name is not None):
        return
    if len(_known) >= MOST:
        _known.clear()
    _known[key] = weakref.ref(kept), names
