"""The default offload plan: of a few settings of our policy the one that the simulator finds fastest.

Where the program is small, places are searched for as well: in a tight memory it matters more at which end of free
bytes a value lies, so that large ones find room side by side, than whom the policy sends away.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.memgraph.policies import Ours, Trace, place_trace
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.runtime.virtual import simulate_on

# How many steps to look ahead, in what share of the device; how much cheaper than transfers kernels that run again are.
Setting = tuple[int, float, float]
SETTINGS: tuple[Setting, ...] = (
    (16, 1.0, 0.0),
    (16, 0.6, 0.0),
    (16, 0.3, 0.0),
    (8, 1.0, 0.0),
    (4, 1.0, 0.0),
    (1, 1.0, 0.0),
    (16, 1.0, 0.5),
)
# Steps walked in the search for places, over all its plans.
STEPS_SEARCHED = 10_000


class _Search:
    """The fastest plan so far, and how it was made: the setting, and the values at the far end of free bytes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.seconds = float("inf")
        self.graph: MemGraph | None = None
        self.setting = SETTINGS[0]
        self.far = [False] * len(trace.size)
        self.refused: CapacityError | None = None

    def see(self, setting: Setting, far: list[bool]) -> None:
        """Place and simulate one plan; it is kept if none was faster."""
        try:
            graph = place_trace(self.trace, Ours(*setting), far)
        except CapacityError as refused:
            self.refused = refused
            return
        seconds = simulate_on(graph, self.trace.machine).makespan
        if seconds <= self.seconds:
            self.seconds, self.graph, self.setting, self.far = seconds, graph, setting, far


def place_ours(trace: Trace) -> MemGraph:
    """The memory graph of our policy.

    Raises:
        CapacityError: a step's working set is larger than the device's budget, or the lower tiers are full.
    """
    search = _Search(trace)
    for setting in SETTINGS:
        search.see(setting, search.far)
    if search.graph is None:
        assert search.refused is not None
        raise search.refused
    plans = STEPS_SEARCHED // max(1, len(trace))
    if plans and (search.graph.kind == OpKind.RELOAD).any():
        for far in _sides(trace):
            search.see(search.setting, far)
        _flip(search, plans)
    return search.graph


def _flip(search: _Search, plans: int) -> None:
    """Put a few values at the other end, in some plans under another setting."""
    rng = Random(0)
    n = len(search.far)
    for _ in range(plans):
        far = search.far.copy()
        for v in rng.sample(range(n), min(n, 1 << rng.randrange(4))):
            far[v] = not far[v]
        search.see(rng.choice(SETTINGS) if rng.random() < 0.2 else search.setting, far)


def _sides(trace: Trace) -> Iterator[list[bool]]:
    """Ways to tell apart the values that lie at the far end: all, small ones, those that live long, and the reverse."""
    size = np.array(trace.size)
    life = np.array([uses[-1] - uses[0] if uses else 0 for uses in trace.uses])
    for far in (size < 0, 2 * size <= size.max(initial=0), life > np.median(life) if len(life) else life > 0):
        yield far.tolist()
        yield (~far).tolist()
