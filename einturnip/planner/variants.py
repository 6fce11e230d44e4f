"""Chooses the variant of a program to plan: contraction order, and fused or unfused kernels.

In: the graph of a program. Out: the best plan over the variants worth planning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from einturnip.core.errors import CapacityError
from einturnip.cost.machine import Machine
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.interning import EinsumInterner
from einturnip.eingraph.rewrite.expand_squares import expand_squares
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.budget import trim_heap
from einturnip.planner.canonical import canonical_graph
from einturnip.planner.feasible import is_feasible, require_in_time, require_storable
from einturnip.planner.options import Options
from einturnip.planner.plan import LoweredPlan, TooExpensive
from einturnip.planner.predict import min_seconds, ranking_key
from einturnip.runtime.scheduler.report import Prediction

# If a fused plan takes more than this multiple of the unfused kernels alone, the unfused plan is made for comparison,
# even if the tensors that fusion avoids are large; if the fused kernels alone do, it is made first.
WORTH_COMPARING = 2.0
# If fused kernels take at most SIMILAR_TIME times as long as unfused ones, unfused kernels are not planned if by
# formula all their tilings cost TOO_EXPENSIVE times as much. The formula counts an operand for each kernel that reads
# it.
SIMILAR_TIME, TOO_EXPENSIVE = 1.1, 2.0
# If the variant for the given memory does not fit, the variant for a memory of this many bytes is planned.
MIN_LIMIT = 1
# Maximum number of nodes for which contraction orders without a memory limit are tried too.
MAX_NODES = 1000


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A plan and its variant. ``limit``: bytes that intermediates of products were kept within, if any."""

    graph: EinGraph
    lowered: LoweredPlan
    prediction: Prediction
    limit: int | None


Planning = Callable[[EinGraph, float], tuple[LoweredPlan, Prediction]]
"""Plans a graph; raises TooExpensive if by formula all its tilings cost more than the given price."""


def best_variant(
    graph: EinGraph, options: Options, limit: int | None, machine: Machine, planned: Planning
) -> PlannedVariant:
    """Return the best plan over all variants worth planning. ``limit``: the memory, in bytes.

    Raises:
        CapacityError: none fits.
    """
    unfused, fused = _variants(graph, options, limit, machine)
    if options.replayed is not None:
        return _plan_variant(planned, fused if options.replayed.fused else unfused, limit)
    if options.reproducible:
        return _plan_variant(planned, canonical_graph(fused, unfused), limit)
    try:
        return _best_within(graph, options, limit, machine, planned, (unfused, fused))
    except CapacityError as refused:
        smallest, smallest_fused = _variants(graph, options, MIN_LIMIT, machine)
        if limit is None or smallest == unfused:
            raise
        try:
            return _fused_or_not(planned, smallest_fused, smallest, MIN_LIMIT, machine)
        except CapacityError as error:
            raise min(error, refused, key=lambda e: e.needed) from None


def _best_within(
    graph: EinGraph,
    options: Options,
    limit: int | None,
    machine: Machine,
    planned: Planning,
    within_limit: tuple[EinGraph, EinGraph],
) -> PlannedVariant:
    """Return the best plan over the variants made for the memory limit and those made without one."""
    unfused, fused = within_limit
    if limit is None or len(graph.nodes) > MAX_NODES:
        return _fused_or_not(planned, fused, unfused, limit, machine)
    unlimited, unlimited_fused = _variants(graph, options, None, machine)
    if unlimited == unfused:
        return _fused_or_not(planned, fused, unfused, limit, machine)
    within = refused = None
    try:
        within = _fused_or_not(planned, fused, unfused, limit, machine)
    except CapacityError as error:
        refused = error
    # Fewer operations may be worth an intermediate larger than the memory, whose tiles are spilled and reloaded.
    price_limit = math.inf if within is None else TOO_EXPENSIVE * within.lowered.price
    try:
        other = _fused_or_not(planned, unlimited_fused, unlimited, None, machine, price_limit)
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


def _variants(graph: EinGraph, options: Options, limit: int | None, machine: Machine) -> tuple[EinGraph, EinGraph]:
    """Return the rewritten program, unfused and fused."""
    unfused = rewrite(graph, limit)
    if limit is not None and not is_feasible(unfused, machine):
        unfused = rewrite(graph, None)  # fewer operations, with intermediates beyond the memory
    require_in_time(unfused, machine, options)
    if not options.exact:  # products pay from about a hundred terms on, compared with compiled joins
        products = expand_squares(unfused, EinsumInterner())
        if options.reproducible or min_seconds(products, machine) < min_seconds(unfused, machine):
            unfused = products
    rows = machine.compute.startswith("cpu")
    fused = fuse(unfused, EinsumInterner(), limit, rows=rows) if options.fuse else unfused
    require_storable(fused, machine, options)
    return unfused, fused


def _plan_variant(planned: Planning, graph: EinGraph, limit: int | None, max_price: float = math.inf) -> PlannedVariant:
    try:
        return PlannedVariant(graph, *planned(graph, max_price), limit)
    except CapacityError as error:
        refused = error.with_traceback(None)
    # Frames of the traceback hold the failed plan; drop them, so that the next variant can use their memory.
    refused.__cause__ = refused.__context__ = None
    trim_heap()
    raise refused


def _fused_or_not(
    planned: Planning,
    fused: EinGraph,
    unfused: EinGraph,
    limit: int | None,
    machine: Machine,
    max_price: float = math.inf,
) -> PlannedVariant:
    """Return the plan of the fused graph, or of the unfused one if that is better or alone fits.

    The unfused plan is not made if it could hardly win: planning tensors that fusion avoids, and that would not fit,
    takes time and memory. Nor is the fused plan made if the unfused one takes less time than the fused kernels alone.
    """
    if fused is unfused:
        return _plan_variant(planned, unfused, limit, max_price)
    computing, computing_fused = min_seconds(unfused, machine), min_seconds(fused, machine)
    other, unfused_first = None, computing_fused > WORTH_COMPARING * computing
    if unfused_first:
        with suppress(CapacityError, TooExpensive):
            other = _plan_variant(planned, unfused, limit, max_price)
            if other.prediction.seconds <= computing_fused + len(fused.nodes) * machine.op_latency / machine.workers:
                return other
    try:
        found = _plan_variant(planned, fused, limit, max_price)
    except CapacityError as fused_refusal:
        if other is not None:
            return other
        try:
            return _plan_variant(planned, unfused, limit, max_price)
        except CapacityError as error:
            raise error if error.needed < fused_refusal.needed else fused_refusal from None
    stored = sum(math.prod(n.shape) * n.dtype.itemsize for n in unfused.nodes if not isinstance(n, InputNode))
    margin = WORTH_COMPARING if 2 * stored > found.lowered.budget.arena else 1.0
    if found.prediction.seconds <= margin * computing:
        return found
    if not unfused_first:
        slower = computing_fused > SIMILAR_TIME * computing
        try:
            other = _plan_variant(planned, unfused, limit, math.inf if slower else TOO_EXPENSIVE * found.lowered.price)
        except (CapacityError, TooExpensive):
            return found
    return found if other is None else _faster_of(found, other, None)
