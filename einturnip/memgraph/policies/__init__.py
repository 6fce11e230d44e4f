"""Offload policies: who leaves the device, how, and what comes ahead of its use, all placed by one walk.

``place(tasks, machine, budgets, policy)`` gives the memory graph; ``POLICIES`` makes each policy by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from einturnip.memgraph.policies.layerwise import TFLMS, VDNN, Sentinel, SuperNeurons, VDNNConv, ZeroOffload
from einturnip.memgraph.policies.lifetimes import G10, Capuchin, FlashNeuron, Tensile, Teraio
from einturnip.memgraph.policies.paging import DeepUM, DemandPaging
from einturnip.memgraph.policies.placement import place, place_trace
from einturnip.memgraph.policies.swapadvisor import SwapAdvisor
from einturnip.memgraph.policies.turnip import DefaultPolicy, TurnipPolicy
from einturnip.memgraph.policies.types import AccessTrace, Eviction, MemoryBudgets, MemoryView, OffloadPolicy

_KINDS: tuple[type[OffloadPolicy], ...] = (
    TurnipPolicy,
    DemandPaging,
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
    DefaultPolicy,
)
POLICIES: dict[str, Callable[[], OffloadPolicy]] = {kind.name: kind for kind in _KINDS}

__all__ = [
    "POLICIES",
    "MemoryBudgets",
    "Eviction",
    "MemoryView",
    "DefaultPolicy",
    "OffloadPolicy",
    "AccessTrace",
    "place",
    "place_trace",
]
