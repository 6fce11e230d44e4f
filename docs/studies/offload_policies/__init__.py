"""Offload policies from the literature and our own, all with one placement walk.

In: a TaskGraph, a described machine, bytes of each memory, and a policy. Out: a MemGraph, from ``place``; ``POLICIES``
creates each policy by its name. Read ``types`` (inputs and decisions of a policy), ``trace``, ``placement`` (the walk,
over ``state``), then the policies: ``turnip`` (also our default), ``paging``, and those that plan ``ahead_of_time``
(``layerwise``, ``lifetimes``, ``swapadvisor``, ``autotm``). ``choose_offload`` searches for the default plan. No run
uses these policies. Only a checkout has this package, and ``docs/studies`` has to be on the path.
"""

from __future__ import annotations

from collections.abc import Callable

from offload_policies.layerwise import (
    TFLMS,
    VDNN,
    FlexGen,
    Sentinel,
    SuperNeurons,
    VDNNConv,
    ZeroInference,
    ZeroInfinity,
    ZeroOffload,
)
from offload_policies.lifetimes import G10, Capuchin, FlashNeuron, Tensile, Teraio
from offload_policies.paging import DeepUM, DemandPaging
from offload_policies.placement import place, place_trace
from offload_policies.swapadvisor import SwapAdvisor
from offload_policies.turnip import DefaultPolicy, TurnipPolicy
from offload_policies.types import AccessTrace, Eviction, MemoryBudgets, MemoryView, OffloadPolicy

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
    ZeroInfinity,
    ZeroInference,
    FlexGen,
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
