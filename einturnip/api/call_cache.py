"""Calls that are known again by their settings and their arrays' shapes: their plan is run at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from einturnip.api import plan_cache
from einturnip.api.jobs import Job
from einturnip.api.plan_cache import CachedPlan
from einturnip.eingraph.types import InputNode
from einturnip.storage.file_versions import mapped_file
from einturnip.storage.types import Array

T = TypeVar("T")

MOST = 256
# By call: the plan, while it is kept, and which of the call's arrays each node is.
_known: dict[Hashable, tuple[weakref.ref[CachedPlan], tuple[int | None, ...]]] = {}


def key_of(settings: Hashable, arrays: Iterable[Any]) -> Hashable | None:
    """What a call's plan depends on, all its inputs being arrays; None where one is not."""
    found: list[Hashable] = [settings, plan_cache.machine_key()]
    for array in arrays:
        if type(array) is not np.ndarray or (array.base is not None and mapped_file(array) is not None):
            return None
        found += array.shape, array.strides, array.dtype
    return tuple(found)


def run(
    key: Hashable | None, arrays: Sequence[Any], way: Callable[[CachedPlan, Sequence[Array | None]], T]
) -> T | None:
    """What a call that was made before gives: its plan run one ``way``; None where it has to be made at length."""
    try:
        known = _known.get(key)
    except TypeError:  # settings that nothing can be looked up by
        return None
    kept = known[0]() if known is not None else None
    if known is None or kept is None:
        return None
    kept.use()
    return way(kept, [None if at is None else arrays[at] for at in known[1]])


def remember(key: Hashable | None, kept: CachedPlan, job: Job, given: Iterable[str]) -> None:
    """Know a call again, if its plan is small, its inputs are those given and its results new arrays.

    ``given``: the inputs' names, in the order of its arrays.
    """
    if key is None or not kept.ready.again or any(target is not None for target in job.targets.values()):
        return
    numbers = {name: at for at, name in enumerate(given)}
    names = [n.name if isinstance(n, InputNode) else None for n in kept.planned.graph.nodes]
    if not all(name in numbers for name in names if name is not None):
        return
    if len(_known) >= MOST:
        _known.clear()
    _known[key] = weakref.ref(kept), tuple([None if name is None else numbers[name] for name in names])
