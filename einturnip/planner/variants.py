"""Which form of a program is planned: in which order its products are made, its kernels fused or apart."""

from __future__ import annotations

import math
from collections.abc import Callable
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

# A fused plan this many times slower than the unfused kernels alone is held against the whole unfused plan, however
# large the tensors are that fusion spares.
WORTH_COMPARING = 2.0
# Where fused kernels take at most NEARLY as long as apart, those are not planned if all their cuts cost so many times
# as much by formula, which counts an operand for each kernel that reads it.
NEARLY, TOO_DEAR = 1.1, 2.0
# What fits in the least memory fits in more: where the form for the memory does not, that for a byte is planned.
LEAST = 1
# Orders of products are looked for without regard to the memory where that is quickly done.
MOST_NODES = 1000


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A plan and the form that it is of. ``limit``: bytes that its products were kept within, if any."""

    graph: EinGraph
    lowered: LoweredPlan
    prediction: Prediction
    limit: int | None


Planning = Callable[[EinGraph, float], tuple[LoweredPlan, Prediction]]
"""Plans a graph, unless all its cuts cost more than so much by formula: then it raises TooDear."""


def best_form(
    graph: EinGraph, options: Options, limit: int | None, machine: Machine, planned: Planning
) -> PlannedVariant:
    """The best plan of all forms that are worth planning. ``limit``: the memory, in bytes.

    Raises:
        CapacityError: none fits.
    """
    apart, fused = _forms(graph, options, limit, machine)
    if options.again is not None:
        return _formed(planned, fused if options.again.fused else apart, limit)
    if options.reproducible:
        return _formed(planned, canonical_graph(fused, apart), limit)
    try:
        return _best_within(graph, options, limit, machine, planned, (apart, fused))
    except CapacityError as refused:
        frugal, frugal_fused = _forms(graph, options, LEAST, machine)
        if limit is None or frugal == apart:
            raise
        try:
            return _fused_or_not(planned, frugal_fused, frugal, LEAST, machine)
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
    """The best plan of the forms made with regard to the memory, and without."""
    apart, fused = within_limit
    if limit is None or len(graph.nodes) > MOST_NODES:
        return _fused_or_not(planned, fused, apart, limit, machine)
    free, free_fused = _forms(graph, options, None, machine)
    if free == apart:
        return _fused_or_not(planned, fused, apart, limit, machine)
    within = refused = None
    try:
        within = _fused_or_not(planned, fused, apart, limit, machine)
    except CapacityError as error:
        refused = error
    # Fewer operations may be worth a product that is larger than the memory: its tiles go to the disk and come back.
    most = math.inf if within is None else TOO_DEAR * within.lowered.price
    try:
        other = _fused_or_not(planned, free_fused, free, None, machine, most)
    except (CapacityError, TooExpensive):
        other = None
    return _one_of(within, other, refused)


def _one_of(one: PlannedVariant | None, other: PlannedVariant | None, refused: CapacityError | None) -> PlannedVariant:
    found = [formed for formed in (one, other) if formed is not None]
    if not found:
        assert refused is not None
        raise refused
    return min(found, key=lambda f: ranking_key(f.prediction.seconds, sum(f.prediction.link_bytes.values())))


def _forms(graph: EinGraph, options: Options, limit: int | None, machine: Machine) -> tuple[EinGraph, EinGraph]:
    """The program rewritten, with its kernels apart and fused."""
    apart = rewrite(graph, limit)
    if limit is not None and not is_feasible(apart, machine):
        apart = rewrite(graph, None)  # fewer operations, with intermediates beyond the memory
    require_in_time(apart, machine, options)
    if not options.exact:  # a product pays from some hundred terms on, where the join is machine code
        products = expand_squares(apart, EinsumInterner())
        if options.reproducible or min_seconds(products, machine) < min_seconds(apart, machine):
            apart = products
    rows = machine.compute.startswith("cpu")
    fused = fuse(apart, EinsumInterner(), limit, rows=rows) if options.fuse else apart
    require_storable(fused, machine, options)
    return apart, fused


def _formed(planned: Planning, graph: EinGraph, limit: int | None, most_price: float = math.inf) -> PlannedVariant:
    try:
        return PlannedVariant(graph, *planned(graph, most_price), limit)
    except CapacityError as error:
        refused = error.with_traceback(None)
    # All that was made stands in the frames that the error came by; the next form is to be planned in that memory.
    refused.__cause__ = refused.__context__ = None
    trim_heap()
    raise refused


def _fused_or_not(
    planned: Planning,
    fused: EinGraph,
    apart: EinGraph,
    limit: int | None,
    machine: Machine,
    most_price: float = math.inf,
) -> PlannedVariant:
    """The plan of the graph with regions, or of that without where only it fits or it is predicted to be faster.

    The other is not even made where it could hardly win: making a plan for tensors that fusion spares and that would
    not fit takes time and memory of its own.
    """
    if fused is apart:
        return _formed(planned, apart, limit, most_price)
    try:
        found = _formed(planned, fused, limit, most_price)
    except CapacityError as small:
        try:
            return _formed(planned, apart, limit, most_price)
        except CapacityError as error:
            raise error if error.needed < small.needed else small from None
    stored = sum(math.prod(n.shape) * n.dtype.itemsize for n in apart.nodes if not isinstance(n, InputNode))
    margin = WORTH_COMPARING if 2 * stored > found.lowered.budget.arena else 1.0
    computing = min_seconds(apart, machine)
    if found.prediction.seconds <= margin * computing:
        return found
    slower = min_seconds(fused, machine) > NEARLY * computing
    try:
        other = _formed(planned, apart, limit, math.inf if slower else TOO_DEAR * found.lowered.price)
    except (CapacityError, TooExpensive):
        return found
    return _one_of(found, other, None)
