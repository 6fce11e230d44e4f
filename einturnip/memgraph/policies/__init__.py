"""Offload policies: who leaves the device, how, and what comes ahead of its use, all placed by one walk.

``place(tasks, machine, budgets, policy)`` gives the memory graph; ``POLICIES`` makes each policy by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from einturnip.memgraph.policies.paging import DeepUM, Demand
from einturnip.memgraph.policies.place import place, place_trace
from einturnip.memgraph.policies.turnip import Ours, Turnip
from einturnip.memgraph.policies.types import Budgets, Leave, Memory, Policy, Trace

POLICIES: dict[str, Callable[[], Policy]] = {kind.name: kind for kind in (Turnip, Demand, DeepUM, Ours)}

__all__ = ["POLICIES", "Budgets", "Leave", "Memory", "Policy", "Trace", "place", "place_trace"]
