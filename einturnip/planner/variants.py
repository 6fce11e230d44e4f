"""Chooses the variant of a program to plan: contraction order, and fused or unfused kernels.

In: the graph of a program. Out: the best plan over the variants worth planning.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from einturnip.core.errors import CapacityError
from einturnip.devices.registry import kind_of
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.interning import EinsumInterner
from einturnip.eingraph.rewrite.expand_squares import expand_squares
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.budget import trim_heap
from einturnip.planner.canonical import canonical_graph
from einturnip.planner.feasible import is_feasible, require_in_time, require_storable
from einturnip.planner.plan import LoweredPlan, TooExpensive, plan, release_search_memory
from einturnip.planner.predict import SEARCHED_BY, min_seconds, predict, ranking_key
from einturnip.planner.request import GraphRequest, PlanRequest
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.report import Prediction
from einturnip.tuning.search import MAX_ORDERED_NODES, SIMILAR_TIME, SMALLEST_LIMIT, TOO_EXPENSIVE, WORTH_COMPARING


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A plan and its variant. ``limit``: bytes that intermediates of products were kept within, if any."""

    graph: EinGraph
    lowered: LoweredPlan
    prediction: Prediction
    limit: int | None


@dataclass(frozen=True, slots=True)
class Variants:
    """The rewritten program, unfused and fused, for a limit of intermediates in bytes, if any."""

    unfused: EinGraph
    fused: EinGraph
    limit: int | None


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
        smallest = _variants(request, SMALLEST_LIMIT)
        if limit is None or smallest.unfused == variants.unfused:
            raise
        try:
            return _fused_or_not(request, smallest)
        except CapacityError as error:
            raise min(error, refused, key=lambda e: e.needed) from None


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
    # Fewer operations may be worth an intermediate larger than the memory, whose tiles are spilled and reloaded.
    max_price = math.inf if within is None else TOO_EXPENSIVE * within.lowered.price
    try:
        other = _fused_or_not(request, unlimited, max_price)
    except (CapacityError, TooExpensive):
        other = None
    return _faster_of(within, other, refused)


def _faster_of(
    one: PlannedVariant | None, other: PlannedVariant | None, refused: CapacityError | None
) -> PlannedVariant:
    found = [variant for variant in (one, other) if variant is not None]
    if not found:
        assert refused is not None
        raise refused
    return min(found, key=lambda f: ranking_key(f.prediction.seconds, sum(f.prediction.link_bytes.values())))


def _variants(request: PlanRequest, limit: int | None) -> Variants:
    graph, options, machine = request.graph, request.options, request.machine
    unfused = rewrite(graph, limit)
    if limit is not None and not is_feasible(unfused, machine):
        unfused = rewrite(graph, None)  # fewer operations, with intermediates beyond the memory
    require_in_time(unfused, machine, options)
    if not options.exact:  # products pay from about a hundred terms on, compared with compiled joins
        products = expand_squares(unfused, EinsumInterner())
        if options.reproducible or min_seconds(products, machine) < min_seconds(unfused, machine):
            unfused = products
    rows = kind_of(machine.compute).on_host
    fused = fuse(unfused, EinsumInterner(), limit, rows=rows) if options.fuse else unfused
    require_storable(fused, machine, options)
    return Variants(unfused, fused, limit)


def plan_variant(request: PlanRequest, graph: GraphRequest, limit: int | None) -> PlannedVariant:
    """Return the plan of one graph with its prediction.

    ``limit``: bytes that its intermediates were kept within.

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
        release_search_memory(lowered.memgraph)
        return PlannedVariant(graph.graph, lowered, prediction, limit)
    # Frames of the traceback hold the failed plan; drop them, so that the next variant can use their memory.
    refused.__cause__ = refused.__context__ = None
    trim_heap()
    raise refused


def _fused_or_not(request: PlanRequest, variants: Variants, max_price: float = math.inf) -> PlannedVariant:
    """Return the plan of the fused graph, or of the unfused one if that is better or alone fits.

    The unfused plan is not made if it could hardly win: planning tensors that fusion avoids, and that would not fit,
    takes time and memory. Nor is the fused plan made if the unfused one takes less time than the fused kernels alone.
    """
    fused, unfused, limit, machine = variants.fused, variants.unfused, variants.limit, request.machine
    unfused_request = replace(request.of_graph(unfused), max_price=max_price)
    if fused is unfused:
        return plan_variant(request, unfused_request, limit)
    computing, computing_fused = min_seconds(unfused, machine), min_seconds(fused, machine)
    other, unfused_first = None, computing_fused > WORTH_COMPARING * computing
    if unfused_first:
        with suppress(CapacityError, TooExpensive):
            other = plan_variant(request, unfused_request, limit)
            if other.prediction.seconds <= computing_fused + len(fused.nodes) * machine.op_latency / machine.workers:
                return other
    try:
        found = plan_variant(request, replace(request.of_graph(fused), max_price=max_price), limit)
    except CapacityError as fused_refusal:
        if other is not None:
            return other
        try:
            return plan_variant(request, unfused_request, limit)
        except CapacityError as error:
            raise error if error.needed < fused_refusal.needed else fused_refusal from None
    stored = sum(math.prod(n.shape) * n.dtype.itemsize for n in unfused.nodes if not isinstance(n, InputNode))
    margin = WORTH_COMPARING if 2 * stored > found.lowered.budget.arena else 1.0
    if found.prediction.seconds <= margin * computing:
        return found
    if not unfused_first:
        slower = computing_fused > SIMILAR_TIME * computing
        try:
            price = math.inf if slower else TOO_EXPENSIVE * found.lowered.price
            other = plan_variant(request, replace(unfused_request, max_price=price), limit)
        except (CapacityError, TooExpensive):
            return found
    return found if other is None else _faster_of(found, other, None)
