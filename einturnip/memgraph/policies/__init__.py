"""Offload policies: who leaves the device, how, and what comes ahead of its use, all placed by one walk.

``place(tasks, machine, budgets, policy)`` gives the memory graph; ``POLICIES`` makes each policy by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from einturnip.memgraph.policies.layerwise import TFLMS, VDNN, Sentinel, SuperNeurons, VDNNConv, ZeroOffload
from einturnip.memgraph.policies.lifetimes import G10, Capuchin, FlashNeuron, Tensile, Teraio
from einturnip.memgraph.policies.paging import DeepUM, Demand
from einturnip.memgraph.policies.place import place, place_trace
from einturnip.memgraph.policies.swapadvisor import SwapAdvisor
from einturnip.memgraph.policies.turnip import Ours, Turnip
from einturnip.memgraph.policies.types import Budgets, Leave, Memory, Policy, Trace

_KINDS: tuple[type[Policy], ...] = (
    Turnip,
    Demand,
    DeepUM,
    VDNN,
    VDNNConv,
    TFLMS,
    Capuchin,
    SuperNeurons,
    G10,
    Teraio,
    FlashNeuron,
    Sentinel,
    SwapAdvisor,
    ZeroOffload,
    Tensile,
    Ours,
)
POLICIES: dict[str, Callable[[], Policy]] = {kind.name: kind for kind in _KINDS}

__all__ = ["POLICIES", "Budgets", "Leave", "Memory", "Ours", "Policy", "Trace", "place", "place_trace"]
