"""Which plan is predicted to be best, of those that are worth lowering: for the memory given, and for less of it.

A plan for less memory runs in more all the same. It may be the better one: fewer pages are touched for the first time,
and formulas err. Budgets below stand on a ladder, so that budgets near each other are held against the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from einturnip.cost.machine import Machine
from einturnip.memgraph.types import MemGraph
from einturnip.planner.candidates import TilingCandidates
from einturnip.planner.predict import SEARCHED_BY, predicted_seconds, ranking_key
from einturnip.planner.ranking import OP_SECONDS, byte_cost_seconds, comparison_budget, min_task_seconds
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.price import COLD
from einturnip.tiling.search import Tiling

# Of what is made only to be compared, what plans for the memory given may take; plans for less have the rest. Of
# products less: the formula tells more of them.
SHARE_GIVEN, SHARE_BLOCKED = 0.7, 0.12
# And what plans that move fewer bytes may take besides.
SHARE_NEAR_BOUND = 0.33
# The formula tells of products which cut is better: one is lowered only where that saves so many times what it takes.
MIN_SAVING = 2.0
# Of all but products, the cut of the lowest price is lowered in any case, if by formula it costs at most this part of
# the best until then.
PROMISING = 0.9
# Cuts in turn that bring nothing, rungs of the ladder that do; cuts by price on each rung.
MAX_WORSE = 2
MAX_CAPACITIES_WORSE = 3
MAX_PER_CAPACITY = 2
# A cut is lowered for less memory only where that costs by formula hardly more than the best does. The formula tells
# of products how much more they read; of all else it counts fewer working sets at once as if they always took time.
MORE_BLOCKED, MORE = 1.02, 1.3
# What plans of products come to cost, times what the formula says: 1.08 to 1.22 of some forty. One that costs more had
# bad luck, which is not to be expected of others.
MAX_USUAL_RATIO = 1.2
# A plan that saves less of the time than this is no step worth following.
MIN_IMPROVEMENT = 0.999
# Who waits, waits: the fastest plan is taken, but for one that moves at most NEAR times what any must where that is
# held to cost at most WORTH_NEAR times as much, bytes counted: disks are shared, and wear. A process reads some bytes
# beside, Python's files among them.
NEAR, WORTH_NEAR = 1.091, 1.15
# Of its transfer, what a byte is worth where kernels hide it.
BYTE_PRICE = 0.25
# A plan that comes to cost more than the best does is not made to its end, or, where by its kernels it might be FASTER
# so many times, one that comes to cost so many times as much.
FASTER, TOO_MUCH = 1.03, 1.5


@dataclass(frozen=True, slots=True)
class Rival:
    """What a plan must be better than: seconds, and what the best is held to cost, bytes counted."""

    seconds: float
    cost: float

    def max_nbytes(self, tasks: TaskGraph, machine: Machine) -> int:
        """Bytes that a plan of these tasks may move and be better all the same; negative where none can be."""
        minimum = min_task_seconds(tasks, machine)
        if minimum > self.seconds:
            return -1
        limit = TOO_MUCH * self.cost if minimum * FASTER <= self.seconds < math.inf else self.cost
        return int((limit - minimum) * machine.read_bandwidth / COLD)


Lower = Callable[[Tiling, int | None, Rival | None], MemGraph | None]
"""The plan of a cut in the memory given or, where it is stated, in so many bytes.

None where it cannot be laid out, or is not better than a rival."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, the seconds it is predicted to take, and what it is held to cost for the bytes it moves too."""

    tiling: Tiling
    memgraph: MemGraph
    seconds: float
    cost: float

    @property
    def moved(self) -> int:
        """Bytes over all links."""
        return sum(self.memgraph.nbytes_by_link().values())

    @property
    def rank(self) -> tuple[int, int]:
        """What is less for a better plan, whatever the memory: its time, its bytes at a price, then those bytes."""
        return ranking_key(self.seconds + BYTE_PRICE / COLD * (self.cost - self.seconds), self.moved)


class _Comparison:
    """The best of the plans made so far, of all and of those that move ``is_near``-ly as little as any; what they took."""

    def __init__(self, lower: Lower, machine: Machine, is_near: Callable[[FoundPlan], bool]) -> None:
        self._lower, self._machine, self._near_bound_nbytes = lower, machine, is_near
        self.best: FoundPlan | None = None
        self.near_bound: FoundPlan | None = None
        self._made = self._calls = 0

    def affords(self, tiling: Tiling, share: float) -> bool:
        """True where making one more plan is short beside the run; the first is always made."""
        if self.best is None:
            return True
        limit = comparison_budget(self.best.seconds)
        return self._made + tiling.kernel_calls * self._made / max(1, self._calls) <= share * limit

    def make(self, tiling: Tiling, bound: int | None = None) -> bool:
        """Make the plan of a cut, in ``bound`` bytes if stated; True where it is the best by now."""
        rival = None if self.best is None else Rival(self.best.seconds, self.best.cost)
        memgraph = self._lower(tiling, bound, rival)
        if memgraph is None:
            return False
        self._made += len(memgraph)
        self._calls += tiling.kernel_calls
        found = _found(tiling, memgraph, self._machine)
        before = self.best
        if before is None or found.rank < before.rank:
            self.best = found
        if (self.near_bound is None or found.rank < self.near_bound.rank) and self._near_bound_nbytes(found):
            self.near_bound = found
        return before is None or found.seconds < MIN_IMPROVEMENT * before.seconds


def best_plan(candidates: TilingCandidates, lower: Lower, machine: Machine) -> FoundPlan | None:
    """The plan predicted to be best of those that are worth lowering; else the first that fits of ever finer ones."""
    for tiling in candidates.coarsest_if_best(machine):
        memgraph = lower(tiling, None, None)
        if memgraph is not None:
            return _found(tiling, memgraph, machine)
    compared = candidates.to_compare()
    plans = _Comparison(lower, machine, lambda found: _is_near(found, candidates))
    worse, share = 0, SHARE_BLOCKED if candidates.blocked else SHARE_GIVEN
    for tiling in sorted(compared, key=lambda c: c.kernel_calls):  # those that are quickly made first
        best = plans.best
        if best is not None and candidates.blocked and not _promising(tiling, best, candidates):
            continue
        lowest = tiling is compared[0] and not candidates.blocked
        promising = lowest and best is not None and candidates.price(tiling) < PROMISING * best.cost
        if promising or (worse < MAX_WORSE and plans.affords(tiling, share)):
            # Blocks of a product fill the memory by luck; of all else, ever finer tiles only cost more.
            worse = 0 if plans.make(tiling) or candidates.blocked else worse + 1
    if plans.best is not None:
        _try_smaller_arenas(plans, candidates)
        for tiling in candidates.roomy_alternatives():
            if plans.affords(tiling, 1.0) and _promising(tiling, plans.best, candidates):
                plans.make(tiling)
        return _near_bound(plans.best, plans.near_bound, candidates, lower, machine)
    finer = ((tiling, lower(tiling, None, None)) for tiling in candidates.finer_than(compared))
    return next((_found(tiling, made, machine) for tiling, made in finer if made is not None), None)


def _try_smaller_arenas(plans: _Comparison, candidates: TilingCandidates) -> None:
    """The best plan's cut in less memory, by halves until that brings nothing; then what costs least on each rung."""
    start = plans.best
    assert start is not None
    capacity = start.memgraph.device_nbytes
    limit = (MORE_BLOCKED if candidates.blocked else MORE) * start.cost / _cost_ratio(start, candidates)
    tried: set[tuple[Tiling, int]] = set()

    def better(tiling: Tiling, capacity_tried: int) -> bool:
        limited = candidates.limited_to(capacity_tried)
        worth = limited.fits(tiling) and limited.price(tiling) <= limit and (tiling, capacity_tried) not in tried
        tried.add((tiling, capacity_tried))
        return worth and plans.affords(tiling, 1.0) and plans.make(tiling, capacity_tried)

    def any_better(capacity_tried: int) -> bool:
        tilings = dict.fromkeys((start.tiling, *candidates.limited_to(capacity_tried).by_price()[:MAX_PER_CAPACITY]))
        return any([better(tiling, capacity_tried) for tiling in tilings])

    powers = (
        capacity_tried for capacity_tried in smaller_capacities(capacity) if not capacity_tried & (capacity_tried - 1)
    )
    _try_downward(powers, lambda capacity_tried: better(start.tiling, capacity_tried))
    _try_downward(smaller_capacities(capacity), any_better)


def _try_downward(capacities: Iterator[int], better: Callable[[int], bool]) -> None:
    """Ask of each rung whether it is better, until MOST_RUNGS_WORSE in turn are not."""
    worse = 0
    for capacity_tried in capacities:
        worse = 0 if better(capacity_tried) else worse + 1
        if worse == MAX_CAPACITIES_WORSE:
            return


def _promising(tiling: Tiling, other: FoundPlan, candidates: TilingCandidates) -> bool:
    """True where by formula a cut saves more of what a plan costs than making its own takes."""
    saved = other.cost - _cost_ratio(other, candidates) * candidates.price(tiling)
    ops = len(other.memgraph) / max(1, other.tiling.kernel_calls) * tiling.kernel_calls
    return saved > MIN_SAVING * OP_SECONDS * ops


def _cost_ratio(found: FoundPlan, candidates: TilingCandidates) -> float:
    """What other plans are expected to cost, times what the formula says, from one that is made."""
    price = candidates.price(found.tiling)
    if not (price and found.cost):  # nothing to compute, nothing to move
        return 1.0
    return min(found.cost / price, MAX_USUAL_RATIO) if candidates.blocked else found.cost / price


def _near_bound(
    best: FoundPlan, near_bound: FoundPlan | None, candidates: TilingCandidates, lower: Lower, machine: Machine
) -> FoundPlan:
    """A plan that moves nearly as little as any could, where products make the best by time move more.

    Cuts alike come out alike: after MOST_WORSE that by formula would do and do not, none is looked for.
    """
    if not candidates.blocked or best is near_bound:
        return best
    found = near_bound if near_bound is not None and near_bound.cost <= WORTH_NEAR * best.cost else None
    left, (read, _), worse = (
        SHARE_NEAR_BOUND * comparison_budget(best.seconds),
        _near_bound_nbytes(candidates, best.tiling),
        0,
    )
    for tiling in candidates.with_fewer_reads(read, best.tiling):
        if worse == MAX_WORSE or (found is not None and MIN_IMPROVEMENT * found.seconds <= best.seconds):
            break
        if left < tiling.kernel_calls or (found is not None and not _promising(tiling, found, candidates)):
            continue
        memgraph = lower(tiling, None, Rival(math.inf, WORTH_NEAR * best.cost))
        if memgraph is not None:
            left -= len(memgraph)
            made = _found(tiling, memgraph, machine)
            worth = made.cost <= WORTH_NEAR * best.cost and _is_near(made, candidates)
            worse = 0 if worth else worse + 1
            if worth and (found is None or made.rank < found.rank):
                found = made
    return best if found is None else found


def _near_bound_nbytes(candidates: TilingCandidates, tiling: Tiling) -> tuple[float, float]:
    """Bytes that a plan near what keeping square blocks of a product moves reads at most, and those it moves in all."""
    read, written = candidates.traffic.blocked_nbytes(candidates.available(tiling))
    limit = NEAR * (read + written)
    return limit - written, limit


def _is_near(found: FoundPlan, candidates: TilingCandidates) -> bool:
    return bool(candidates.blocked) and found.moved <= _near_bound_nbytes(candidates, found.tiling)[1]


def _found(tiling: Tiling, memgraph: MemGraph, machine: Machine) -> FoundPlan:
    seconds = predicted_seconds(memgraph, machine, policy(SEARCHED_BY))
    return FoundPlan(tiling, memgraph, seconds, seconds + byte_cost_seconds(memgraph.nbytes_by_link(), machine))


def smaller_capacities(capacity: int) -> Iterator[int]:
    """Bytes below ``capacity``: powers of two and what lies half way between, down to a page."""
    power = 1 << capacity.bit_length()
    while power > 1 << 13:
        yield from (capacity_tried for capacity_tried in (power // 4 * 3, power // 2) if capacity_tried < capacity)
        power //= 2
