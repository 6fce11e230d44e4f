"""The default offload plan: the fastest in simulation of several settings and the builder's plan.

For small programs addresses are searched as well: in a small memory they matter more than the choice of victims,
because values that are used together must fit side by side. Among plans that are almost equally fast, the one is taken
that is fastest when op times vary randomly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine
from einturnip.cost.machine import Machine
from einturnip.memgraph.build import build
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.runtime.simulate.dispatch import free_order
from einturnip.runtime.simulate.machine_prices import priced
from einturnip.runtime.simulate.simulator import TimingNoise, lanes_of, slots_of
from einturnip.runtime.simulate.virtual_clock import run
from offload_policies import AccessTrace, DefaultPolicy, place_trace
from offload_policies.placement import Stay
from offload_policies.trace import granule

# Steps to look ahead; share of the device for that; how much cheaper recomputation must be than transfers.
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
# Steps walked in the search for addresses, over all its plans.
STEPS_SEARCHED = 40_000
# A plan slower by this share is accepted with probability 1/e at the beginning of the search, later with less.
TEMPERATURE = 0.02
# Kinds of changes: values moved to the other end of free bytes, residences given an address, or released from it.
FLIPPED, MOVED, FORGOTTEN = 0.3, 0.6, 0.25
# Plans within NEAR times the fastest one's time, at most COMPARED of them, are compared under noise.
NEAR, COMPARED = 1.003, 8
NOISES = tuple(TimingNoise(1.0, 1.0, seed) for seed in range(1_000_000, 1_000_004))


@dataclass(frozen=True, eq=False)
class _OffloadPlan:
    """A way to place a program, and its result.

    ``far``: values at the far end of free bytes. ``places``: residences with a requested offset; ``taken``: the offsets
    of all residences.
    """

    setting: Setting
    far: Sequence[bool]
    places: dict[Stay, int]
    graph: MemGraph | None = None
    seconds: float = math.inf
    taken: Sequence[tuple[Stay, int]] = ()


def place_default(trace: AccessTrace) -> MemGraph:
    """The memory graph of our policy.

    Raises:
        CapacityError: a step's working set is larger than the device's budget, or the lower tiers are full.
    """
    near = [False] * len(trace.size)
    found = [_seen(trace, _OffloadPlan(setting, near, {})) for setting in SETTINGS]
    best = _least(found)
    if best.graph is None:  # raises with the reason
        return place_trace(trace, DefaultPolicy(*SETTINGS[-1]))
    plans = STEPS_SEARCHED // max(1, len(trace))
    if plans and (best.graph.kind == OpKind.RELOAD).any():
        best = _least([best, *(_seen(trace, replace(best, far=far)) for far in _sides(trace))])
        found += _annealed(trace, best, plans)
    return _steadiest(trace, [_built(trace, best), *found])


def _built(trace: AccessTrace, plan: _OffloadPlan) -> _OffloadPlan:
    """The plan of the builder that host runs use; stored outputs can be read again."""
    machine = replace(trace.machine, memory=trace.machine.memory | {"host": trace.budgets.host})
    outputs = frozenset(range(len(trace.tasks.decomposition.graph.outputs)))
    try:
        graph = priced(build(trace.tasks, trace.budgets.device, Machine(), outputs), machine)
    except CapacityError:
        return replace(plan, graph=None, seconds=math.inf)
    return replace(plan, graph=graph, seconds=makespan_on(graph, trace.machine))


def _steadiest(trace: AccessTrace, plans: Sequence[_OffloadPlan]) -> MemGraph:
    """The graph of the plan that is fastest under noise, among the few fastest without."""
    best = min(plan.seconds for plan in plans)
    few = sorted((plan for plan in plans if plan.seconds <= NEAR * best), key=lambda plan: plan.seconds)
    graphs = [plan.graph for plan in few[:COMPARED] if plan.graph is not None]
    if len(graphs) == 1:
        return graphs[0]
    return min(graphs, key=lambda graph: sum(makespan_on(graph, trace.machine, noise) for noise in NOISES))


def _least(plans: Sequence[_OffloadPlan]) -> _OffloadPlan:
    """The fastest; among equals the last."""
    return min(reversed(plans), key=lambda plan: plan.seconds)


def _seen(trace: AccessTrace, plan: _OffloadPlan) -> _OffloadPlan:
    """Place and simulate a plan."""
    taken: dict[Stay, int] = {}
    try:
        graph = place_trace(trace, DefaultPolicy(*plan.setting), plan.far, plan.places, taken)
    except CapacityError:
        return replace(plan, graph=None, seconds=math.inf)
    return replace(plan, graph=graph, seconds=makespan_on(graph, trace.machine), taken=tuple(taken.items()))


def _annealed(trace: AccessTrace, best: _OffloadPlan, plans: int) -> list[_OffloadPlan]:
    """The fastest plans of simulated annealing over small changes."""
    rng = Random(0)
    at, met = best, [best]
    for i in range(plans):
        plan = _seen(trace, _changed(trace, at, rng))
        warmth = TEMPERATURE * met[0].seconds * (1 - i / plans)
        if plan.seconds <= at.seconds or rng.random() < math.exp((at.seconds - plan.seconds) / warmth):
            at = plan
        if plan.seconds < met[0].seconds:
            met = [plan, *(near for near in met if near.seconds <= NEAR * plan.seconds)]
        elif plan is at and plan.seconds <= NEAR * met[0].seconds and len(met) < COMPARED:
            met.append(plan)
    return met


def _changed(trace: AccessTrace, plan: _OffloadPlan, rng: Random) -> _OffloadPlan:
    """Change values to the other end, or residences to other addresses; in some plans another setting."""
    kind = rng.random()
    if kind < FLIPPED:
        far, n = [*plan.far], len(plan.far)
        for v in rng.sample(range(n), min(n, 1 << rng.randrange(4))):
            far[v] = not far[v]
        plan = replace(plan, far=far)
    elif kind < FLIPPED + MOVED:
        places = plan.places.copy()
        for _ in range(1 << rng.randrange(3)):
            if places and rng.random() < FORGOTTEN:
                del places[rng.choice([*places])]
            else:
                stay = rng.choice(plan.taken)[0]
                places[stay] = rng.choice(_beside(trace, plan, stay))
        plan = replace(plan, places=places)
    if kind >= FLIPPED + MOVED or rng.random() < 0.1:
        plan = replace(plan, setting=rng.choice(SETTINGS))
    return plan


def _beside(trace: AccessTrace, plan: _OffloadPlan, stay: Stay) -> list[int]:
    """Offsets at which a residence begins or ends where another one or the memory begins or ends."""
    size, unit = trace.size[stay[0]], granule(trace.budgets.device)
    end = trace.budgets.device // unit * unit
    edges = {0, end, *(at for _, at in plan.taken), *(at + trace.size[v] for (v, _), at in plan.taken)}
    found = {at for edge in edges for at in (edge, edge - size) if 0 <= at <= end - size}
    return sorted(found)


def _sides(trace: AccessTrace) -> Iterator[list[bool]]:
    """Sets of values for the far end: all, small ones, long-lived ones, and their complements."""
    size = np.array(trace.size)
    life = np.array([uses[-1] - uses[0] if uses else 0 for uses in trace.uses])
    for far in (size < 0, 2 * size <= size.max(initial=0), life > np.median(life) if len(life) else life > 0):
        yield far.tolist()
        yield (~far).tolist()


def makespan_on(graph: MemGraph, machine: DescribedMachine, noise: TimingNoise | None = None) -> float:
    """The makespan of ``simulate_on`` in free order, without its other results."""
    names, lanes = lanes_of(graph, machine)
    slots = slots_of(names, machine)
    of = lanes.tolist()
    dispatch = free_order(graph, of, slots, 0)
    seconds = graph.seconds if noise is None else noise.applied(graph)
    return run(dispatch.graph, dispatch.ranks, slots, seconds.tolist(), of, dispatch.in_order).makespan
