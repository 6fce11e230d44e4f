"""Call cache: repeated calls are recognized by settings and array shapes, and run their plan at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from einturnip.api import plan_cache
from einturnip.api.jobs import Job
from einturnip.api.plan_cache import CachedPlan
from einturnip.eingraph.types import InputNode
from einturnip.storage.arrays import ArraySource
from einturnip.storage.file_versions import mapped_file
from einturnip.storage.types import Array

T = TypeVar("T")

MAX_CALLS = 256
# By call: the plan while it is cached, and the array of each node.
_calls: dict[Hashable, tuple[weakref.ref[CachedPlan], tuple[int | None, ...]]] = {}


def key_of(settings: Hashable, arrays: Iterable[Any]) -> Hashable | None:
    """The cache key of a call whose inputs are all arrays; None otherwise."""
    found: list[Hashable] = [settings, plan_cache.machine_key()]
    for array in arrays:
        if type(array) is not np.ndarray or (array.base is not None and mapped_file(array) is not None):
            return None
        found += array.shape, array.strides, array.dtype
    return tuple(found)


def run(
    key: Hashable | None, arrays: Sequence[Any], run_plan: Callable[[CachedPlan, Sequence[Array | None]], T]
) -> T | None:
    """The result of a cached call, run by ``run_plan``; None where the full path is needed."""
    try:
        entry = _calls.get(key)
    except TypeError:  # unhashable settings
        return None
    cached = entry[0]() if entry is not None else None
    if entry is None or cached is None:
        return None
    cached.use()
    return run_plan(cached, [None if position is None else arrays[position] for position in entry[1]])


def remember(key: Hashable | None, cached: CachedPlan, job: Job, given: Iterable[str]) -> None:
    """Cache a call, if its plan is small, its inputs are those given and its results are new arrays.

    ``given``: the inputs' names, in the order of the arrays.
    """
    if key is None or not cached.prepared.is_reusable or any(target is not None for target in job.targets.values()):
        return
    numbers = {name: position for position, name in enumerate(given)}
    if not all(isinstance(source, ArraySource) for source in job.sources.values()):
        return  # arrays of a type that the language lacks are converted as they are read
    names = [n.name if isinstance(n, InputNode) else None for n in cached.planned.graph.nodes]
    if not all(name in numbers for name in names if name is not None):
        return
    if len(_calls) >= MAX_CALLS:
        _calls.clear()
    _calls[key] = weakref.ref(cached), tuple([None if name is None else numbers[name] for name in names])
