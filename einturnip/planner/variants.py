"""Searches the variants of a program: contraction order, and fused or unfused kernels.

In: the graph of a program. Out: the best plan of the variants that are worth planning; its run stays within the memory
limit. For one graph the search prices tilings that fit, and lowers and simulates the best few. The sequence of tilings
does not depend on the budget, so feasibility is monotone: a tiling that fits a budget fits every larger one.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from einturnip.core.errors import CapacityError, NeedsMore
from einturnip.core.process_resources import resident_nbytes, trim_heap
from einturnip.core.units import MIB, format_minimum, format_size
from einturnip.cost.machine import Machine
from einturnip.devices.kind import kind_of
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.rewrite.expand_squares import expand_squares
from einturnip.eingraph.rewrite.passes import recompute_small, rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import Budget, excess_nbytes
from einturnip.planner.candidates import LazyTilings, TilingCandidates
from einturnip.planner.canonical import canonical_graph
from einturnip.planner.compare import Rival, best_plan
from einturnip.planner.feasible import is_feasible, require_in_time, require_storable
from einturnip.planner.lower import PlanLowering
from einturnip.planner.predict import SEARCHED_BY, min_seconds, predict, ranking_key
from einturnip.planner.replayed_plan import class_tiles, classes_for, tiling_from_extents
from einturnip.planner.request import GraphRequest, PlanRequest
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.report import Prediction
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.file_layout import in_chunks
from einturnip.tiling.price import TilingPrices
from einturnip.tiling.search import Tiling, successive_tilings
from einturnip.tiling.types import Decomposition
from einturnip.tuning.memory import FIT_MARGIN, LARGE_PLAN, RESIDENT_NOISE_NBYTES
from einturnip.tuning.search import (
    FREE_OPS,
    MAX_CALLS,
    MAX_DEVICES_COMPARED,
    MAX_GROUPS_BLOCKED,
    MAX_OPS_OF_VARIANTS,
    MAX_ORDERED_NODES,
    MIN_GAIN_OF_UNFUSED,
    NODE_OPS,
    OP_SECONDS,
    SIMILAR_TIME,
    SMALLEST_LIMIT,
    TOO_EXPENSIVE,
    WORTH_COMPARING,
)


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A decomposition and its memory graph, with the budget.

    ``capacity``: arena bytes that it was placed in; ``price``: cost of its cheapest tiling by formula, in seconds,
    bytes included; ``seconds``: simulated time in critical-path order, if it was compared with others.
    """

    decomposition: Decomposition
    memgraph: MemGraph
    budget: Budget
    capacity: int
    price: float = 0.0
    seconds: float | None = None


class TooExpensive(Exception):
    """Every plan of the graph costs more than the given limit, or than the rival."""


def plan(request: GraphRequest) -> LoweredPlan:
    """Return the best plan of a graph that fits its memory.

    Raises:
        CapacityError: none fits; ``needed`` is the minimum budget of the kind given.
        TooExpensive: every tiling costs more than ``max_price`` by formula, or more than the rival.
    """
    graph, machine, layouts, choose = request.graph, request.machine, request.layouts, request.choose
    classes, sites = classes_for(graph, request.devices, machine.rates, request.ordered)
    grouped = equivalence_classes(graph, in_chunks(classes, graph, layouts) if choose is None else classes)
    lowering = PlanLowering(grouped, request, sites)
    tilings = LazyTilings(
        successive_tilings(grouped, machine, layouts, MAX_CALLS) if choose is None else iter([choose(grouped)])
    )
    price, seconds, best = 0.0, None, None
    found = None
    if choose is not None:
        found = lowering.lower(tilings.coarsest, request.max_arena)
    elif request.max_arena is None:
        prices = TilingPrices(grouped, machine, layouts, len(grouped.groups) <= MAX_GROUPS_BLOCKED)
        candidates = TilingCandidates(grouped, tilings, prices, lowering.available)
        cheapest = candidates.by_price()
        price = min(map(candidates.price, cheapest), default=0.0)
        if price > request.max_price:
            raise TooExpensive
        if request.devices > MAX_DEVICES_COMPARED:
            found = next((memgraph for memgraph in map(lowering.lower, cheapest) if memgraph is not None), None)
        else:
            best = best_plan(candidates, lowering.lower, machine, request.rival)
            if best is not None:
                found, seconds = best.memgraph, best.seconds
            elif request.rival is not None:
                raise TooExpensive
        del candidates, prices
    if found is None:
        needed, found = lowering.min_budget(tilings.all())
        if found is None:
            lowering.release_memory()
            raise lowering.refusal(needed)
        found = lowering.with_recompute(found)
    lowering.release_memory()
    budget = Budget(request.memory.memory, lowering.available_with_plan(found), request.extra)
    return LoweredPlan(found.taskgraph.decomposition, found, budget, lowering.capacity_of(found), price, seconds)


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A plan and its variant. ``limit``: maximum bytes of an intermediate of products, if any."""

    graph: EinGraph
    lowered: LoweredPlan
    prediction: Prediction
    limit: int | None


@dataclass(frozen=True)
class Variants:
    """The rewritten program, unfused and fused. ``limit``: maximum bytes of an intermediate, if any."""

    unfused: EinGraph
    fused: EinGraph
    limit: int | None
    machine: Machine

    @cached_property
    def computing(self) -> float:
        """Seconds in the kernels of the unfused program, by formula; no plan of it takes less."""
        return min_seconds(self.unfused, self.machine)

    @cached_property
    def computing_fused(self) -> float:
        """The same of the fused program."""
        return self.computing if self.fused is self.unfused else min_seconds(self.fused, self.machine)


def best_variant(request: PlanRequest) -> PlannedVariant:
    """Return the best plan over all variants worth planning.

    Raises:
        CapacityError: none fits.
    """
    limit, replayed = request.rewrite_limit, request.options.replayed
    variants = _variants(request, limit)
    if replayed is not None:
        return plan_variant(request, request.of_graph(variants.fused if replayed.fused else variants.unfused), limit)
    if request.options.reproducible:
        return plan_variant(request, request.of_graph(canonical_graph(variants.fused, variants.unfused)), limit)
    try:
        return _best_within(request, variants)
    except CapacityError as refused:
        try:
            smallest = _variants(request, SMALLEST_LIMIT)
            if limit is None or smallest.unfused == variants.unfused:
                raise refused
            return _fused_or_not(request, smallest)
        except CapacityError as error:
            raise _smaller_refusal(error, refused) from None


def _best_within(request: PlanRequest, variants: Variants) -> PlannedVariant:
    """Return the best plan over the variants made for the memory limit and those made without one."""
    if variants.limit is None or len(request.graph.nodes) > MAX_ORDERED_NODES:
        return _fused_or_not(request, variants)
    unlimited = _variants(request, None)
    if unlimited.unfused == variants.unfused:
        return _fused_or_not(request, variants)
    within = refused = None
    try:
        within = _fused_or_not(request, variants)
    except CapacityError as error:
        refused = error
    computing = min(unlimited.computing, unlimited.computing_fused)
    if within is not None and not _worth_planning(request, unlimited.fused, within.prediction.seconds - computing):
        return within
    # Fewer operations may be worth an intermediate larger than the memory, whose tiles are spilled and reloaded.
    max_price, other = math.inf if within is None else TOO_EXPENSIVE * within.lowered.price, None
    with suppress(CapacityError, TooExpensive):
        other = _fused_or_not(request, unlimited, max_price, within)
    return _faster_of(within, other, refused)


def _worth_planning(request: PlanRequest, graph: EinGraph, saved: float) -> bool:
    """Return whether a variant is small, or planning it takes less than the ``saved`` seconds of all runs."""
    return saved > 0 and OP_SECONDS * (NODE_OPS * len(graph.nodes) - FREE_OPS) <= saved * request.options.runs


def _rival(found: PlannedVariant | None, machine: Machine) -> Rival | None:
    """Return the plan of a variant as the one to beat."""
    return None if found is None else Rival.of(found.prediction.seconds, found.prediction.link_bytes, machine)


def _smaller_refusal(one: CapacityError, other: CapacityError) -> CapacityError:
    """Return the refusal that names the smaller minimum; a lower bound only if neither names one."""
    return min(one, other, key=lambda e: (isinstance(e, NeedsMore), e.needed))


def _faster_of(
    one: PlannedVariant | None, other: PlannedVariant | None, refused: CapacityError | None
) -> PlannedVariant:
    found = [variant for variant in (one, other) if variant is not None]
    if not found:
        assert refused is not None
        raise refused
    return min(found, key=lambda f: ranking_key(f.prediction.seconds, sum(f.prediction.link_bytes.values())))


def _variants(request: PlanRequest, limit: int | None) -> Variants:
    options, machine, unfused = request.options, request.machine, rewrite(request.graph, limit)
    if limit is not None and not is_feasible(unfused, machine):
        unfused = rewrite(request.graph, None)  # fewer operations, with intermediates beyond the memory
    require_in_time(unfused, machine, options)
    if (devices := len(request.device.numbers)) > 1 and not options.reproducible:
        recomputed = recompute_small(unfused)
        # Each device saves a transfer, at least, for each node, and computes its share of the additional work.
        saved = devices * machine.op_latency * (len(unfused.nodes) - len(recomputed.nodes))
        if min_seconds(recomputed, machine) - min_seconds(unfused, machine) < saved:
            unfused = recomputed
    if not options.exact:  # products pay from about a hundred terms on, compared with compiled joins
        products = expand_squares(unfused, EinsumInterner())
        if options.reproducible or min_seconds(products, machine) < min_seconds(unfused, machine):
            unfused = products
    fused = unfused
    if options.fuse and sum(isinstance(node, EinsumNode) for node in unfused.nodes) > 1:
        from einturnip.eingraph.fusion.fuse import fuse  # many programs have one statement

        fused = fuse(unfused, EinsumInterner(), limit, rows=kind_of(machine.compute).on_host)
    require_storable(fused, machine, options)
    return Variants(unfused, fused, limit, machine)


def plan_variant(request: PlanRequest, graph: GraphRequest, limit: int | None) -> PlannedVariant:
    """Return the plan of one graph with its prediction.

    ``limit``: maximum bytes of an intermediate of products, if any.

    Raises:
        CapacityError: it does not fit. TooExpensive: by formula, it costs more than the graph's ``max_price``.
    """
    try:
        lowered = plan(graph)
    except CapacityError as error:
        refused = error.with_traceback(None)
    else:
        known = lowered.seconds if request.options.policy == SEARCHED_BY else None
        prediction = predict(lowered.memgraph, request.machine, policy(request.options.policy), known)
        if len(lowered.memgraph) >= LARGE_PLAN:
            trim_heap()
        return PlannedVariant(graph.graph, lowered, prediction, limit)
    # The traceback keeps the failed plan alive; drop it, so that the next variant can use its memory.
    refused.__cause__ = refused.__context__ = None
    if request.memory is not None:
        trim_heap()
    raise refused


def _fused_or_not(
    request: PlanRequest, variants: Variants, max_price: float = math.inf, rival: PlannedVariant | None = None
) -> PlannedVariant:
    """Return the plan of the fused graph, or of the unfused one if it is better or the only one that fits.

    The unfused plan is not made if it is unlikely to win, nor the fused one if its kernels alone take longer.
    """
    fused, unfused, limit, machine = variants.fused, variants.unfused, variants.limit, request.machine
    unfused_request = replace(request.of_graph(unfused), max_price=max_price, rival=_rival(rival, machine))
    if fused is unfused:
        return plan_variant(request, unfused_request, limit)
    computing, computing_fused = variants.computing, variants.computing_fused
    other, unfused_first = None, computing_fused > WORTH_COMPARING * computing
    if unfused_first:
        with suppress(CapacityError, TooExpensive):
            other = plan_variant(request, unfused_request, limit)
            dispatching = len(fused.nodes) * machine.op_latency / machine.workers
            if not _worth_planning(request, fused, other.prediction.seconds - computing_fused - dispatching):
                return other
    try:
        found = plan_variant(
            request, replace(request.of_graph(fused), max_price=max_price, rival=_rival(other or rival, machine)), limit
        )
    except TooExpensive:
        if other is None:
            raise
        return other
    except CapacityError as fused_refusal:
        if other is not None:
            return other
        try:
            return plan_variant(request, unfused_request, limit)
        except CapacityError as error:
            raise _smaller_refusal(error, fused_refusal) from None
    stored = sum(math.prod(n.shape) * n.dtype.itemsize for n in unfused.nodes if not isinstance(n, InputNode))
    saved = found.prediction.seconds - computing * (WORTH_COMPARING if 2 * stored > found.lowered.budget.arena else 1.0)
    slower = computing_fused > SIMILAR_TIME * computing
    is_large = len(request.device.numbers) > MAX_DEVICES_COMPARED and len(found.lowered.memgraph) > MAX_OPS_OF_VARIANTS
    if (is_large and not slower) or not _worth_planning(request, unfused, saved):
        return found
    if not unfused_first:
        try:
            price = math.inf if slower else TOO_EXPENSIVE * found.lowered.price
            other_request = replace(unfused_request, max_price=price, rival=_rival(found, machine))
            other = plan_variant(request, other_request, limit)
        except (CapacityError, TooExpensive):
            return found
    # An unfused plan needs more memory, and predictions are not exact.
    if other is None or other.prediction.seconds > (1 - MIN_GAIN_OF_UNFUSED) * found.prediction.seconds:
        return found
    return other


Fallback: TypeAlias = Literal["same tiling", "another search", "minimum memory"]
# The ways to make a smaller plan, in the order in which they are tried; "same tiling": in a smaller arena.
FALLBACKS: tuple[Fallback, ...] = ("same tiling", "same tiling", "another search", "minimum memory")


def best_variant_in_memory(request: PlanRequest) -> PlannedVariant:
    """Return the best plan over all variants or, if its run would not fit the memory, a smaller one.

    The search only estimates the size of plans. Once a plan is made, the resident memory is measured, including the
    heap that the search left behind, and plans that are too large are replaced by smaller ones (``FALLBACKS``). So the
    program is refused only if the plan with minimum memory does not fit.

    Raises:
        CapacityError: no plan fits.
    """
    began, memory, workers = resident_nbytes(), request.memory, request.machine.workers
    found: PlannedVariant | None = best_variant(request)
    assert found is not None
    if memory is None or request.options.arena is not None or request.options.replayed is not None:
        return found
    excess = excess_nbytes(found.lowered.memgraph, memory, workers)
    for fallback in FALLBACKS:
        if excess <= 0:
            break
        if found is not None:
            graph, limit = request.of_graph(found.graph), found.limit
            classes, _ = classes_for(found.graph, graph.devices, graph.machine.rates, graph.ordered)
            tiles = class_tiles(found.lowered.decomposition, classes)
            max_arena = found.lowered.memgraph.peak_nbytes - excess - FIT_MARGIN
            found = None  # the last reference, so that the next plan is made in its memory
        trim_heap()
        reused = resident_nbytes() - began  # heap that the next search counts as taken, but reuses
        try:
            found = plan_variant(
                request, _smaller(fallback, graph, tiles, max_arena, excess + FIT_MARGIN, reused), limit
            )
        except CapacityError:
            if fallback == "minimum memory":
                raise
            continue
        excess = excess_nbytes(found.lowered.memgraph, memory, workers)
    assert found is not None
    if excess <= 0:
        arena = min(found.lowered.budget.arena, found.lowered.memgraph.peak_nbytes - excess)
        return replace(found, lowered=replace(found.lowered, budget=Budget(memory, arena)))
    stated = memory + request.options.base_nbytes
    needed = -(-(stated + excess + RESIDENT_NOISE_NBYTES) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(stated)}; the minimum is {format_minimum(needed)}", needed
    )


def _smaller(
    fallback: Fallback, graph: GraphRequest, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> GraphRequest:
    """Return the request for a smaller plan of a graph.

    ``tiles``: of the plan that exceeds the memory by ``excess`` bytes; they are placed in ``max_arena`` bytes.
    ``reused``: bytes of heap that the next search reuses.
    """
    if fallback == "another search":
        return replace(graph, memory=replace(graph.memory, withheld=excess - reused))
    smaller = replace(graph, memory=replace(graph.memory, withheld=-reused), max_arena=0)
    if fallback == "minimum memory":
        return smaller

    def choose(grouped: EquivalenceClasses) -> Tiling:
        tiling = tiling_from_extents(grouped, tiles)
        if tiling.working_set > max_arena:
            raise CapacityError("a tile's kernel needs more", tiling.working_set)
        return tiling

    return replace(smaller, choose=choose, max_arena=max_arena)
