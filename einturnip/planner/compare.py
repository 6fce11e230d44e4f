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
SHARE_SPARING = 0.33
# The formula tells of products which cut is better: one is lowered only where that saves so many times what it takes.
PROMISED = 2.0
# Of all but products, the cut of the lowest price is lowered in any case, if by formula it costs at most this part of
# the best until then.
PROMISING = 0.9
# Cuts in turn that bring nothing, rungs of the ladder that do; cuts by price on each rung.
MOST_WORSE = 2
MOST_RUNGS_WORSE = 3
MOST_ON_A_RUNG = 2
# A cut is lowered for less memory only where that costs by formula hardly more than the best does. The formula tells
# of products how much more they read; of all else it counts fewer working sets at once as if they always took time.
MORE_BLOCKED, MORE = 1.02, 1.3
# What plans of products come to cost, times what the formula says: 1.08 to 1.22 of some forty. One that costs more had
# bad luck, which is not to be expected of others.
USUAL = 1.2
# A plan that saves less of the time than this is no step worth following.
BETTER = 0.999
# Who waits, waits: the fastest plan is taken, but for one that moves at most NEAR times what any must where that is
# held to cost at most WORTH_NEAR times as much, bytes counted: disks are shared, and wear. A process reads some bytes
# beside, Python's files among them.
NEAR, WORTH_NEAR = 1.091, 1.15
# Of its transfer, what a byte is worth where kernels hide it.
PRICE = 0.25
# A plan that comes to cost more than the best does is not made to its end, or, where by its kernels it might be FASTER
# so many times, one that comes to cost so many times as much.
FASTER, TOO_MUCH = 1.03, 1.5


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """What a plan must be better than: seconds, and what the best is held to cost, bytes counted."""

    seconds: float
    cost: float

    def most_nbytes(self, tasks: TaskGraph, machine: Machine) -> int:
        """Bytes that a plan of these tasks may move and be better all the same; negative where none can be."""
        least = min_task_seconds(tasks, machine)
        if least > self.seconds:
            return -1
        most = TOO_MUCH * self.cost if least * FASTER <= self.seconds < math.inf else self.cost
        return int((most - least) * machine.read_bandwidth / COLD)


Lower = Callable[[Tiling, int | None, BestSoFar | None], MemGraph | None]
"""The plan of a cut in the memory given or, where it is stated, in so many bytes.

None where it cannot be laid out, or is not better than a rival."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, the seconds it is predicted to take, and what it is held to cost for the bytes it moves too."""

    cut: Tiling
    memgraph: MemGraph
    seconds: float
    cost: float

    @property
    def moved(self) -> int:
        """Bytes over all links."""
        return sum(self.memgraph.nbytes_by_link().values())

    @property
    def merit(self) -> tuple[int, int]:
        """What is less for a better plan, whatever the memory: its time, its bytes at a price, then those bytes."""
        return ranking_key(self.seconds + PRICE / COLD * (self.cost - self.seconds), self.moved)


class _Comparison:
    """The best of the plans made so far, of all and of those that move ``near``-ly as little as any; what they took."""

    def __init__(self, lower: Lower, machine: Machine, near: Callable[[FoundPlan], bool]) -> None:
        self._lower, self._machine, self._near = lower, machine, near
        self.best: FoundPlan | None = None
        self.sparing: FoundPlan | None = None
        self._made = self._calls = 0

    def affords(self, cut: Tiling, share: float) -> bool:
        """True where making one more plan is short beside the run; the first is always made."""
        if self.best is None:
            return True
        most = comparison_budget(self.best.seconds)
        return self._made + cut.kernel_calls * self._made / max(1, self._calls) <= share * most

    def make(self, cut: Tiling, bound: int | None = None) -> bool:
        """Make the plan of a cut, in ``bound`` bytes if stated; True where it is the best by now."""
        rival = None if self.best is None else BestSoFar(self.best.seconds, self.best.cost)
        memgraph = self._lower(cut, bound, rival)
        if memgraph is None:
            return False
        self._made += len(memgraph)
        self._calls += cut.kernel_calls
        found = _found(cut, memgraph, self._machine)
        before = self.best
        if before is None or found.merit < before.merit:
            self.best = found
        if (self.sparing is None or found.merit < self.sparing.merit) and self._near(found):
            self.sparing = found
        return before is None or found.seconds < BETTER * before.seconds


def best_plan(candidates: TilingCandidates, lower: Lower, machine: Machine) -> FoundPlan | None:
    """The plan predicted to be best of those that are worth lowering; else the first that fits of ever finer ones."""
    for cut in candidates.whole(machine):
        whole = lower(cut, None, None)
        if whole is not None:
            return _found(cut, whole, machine)
    compared = candidates.compared()
    plans = _Comparison(lower, machine, lambda found: _is_near(found, candidates))
    worse, share = 0, SHARE_BLOCKED if candidates.blocked else SHARE_GIVEN
    for cut in sorted(compared, key=lambda c: c.kernel_calls):  # those that are quickly made first
        best = plans.best
        if best is not None and candidates.blocked and not _promising(cut, best, candidates):
            continue
        lowest = cut is compared[0] and not candidates.blocked
        promising = lowest and best is not None and candidates.price(cut) < PROMISING * best.cost
        if promising or (worse < MOST_WORSE and plans.affords(cut, share)):
            # Blocks of a product fill the memory by luck; of all else, ever finer tiles only cost more.
            worse = 0 if plans.make(cut) or candidates.blocked else worse + 1
    if plans.best is not None:
        _with_less(plans, candidates)
        for cut in candidates.roomier():
            if plans.affords(cut, 1.0) and _promising(cut, plans.best, candidates):
                plans.make(cut)
        return _near_bound(plans.best, plans.sparing, candidates, lower, machine)
    finer = ((cut, lower(cut, None, None)) for cut in candidates.finer(compared))
    return next((_found(cut, made, machine) for cut, made in finer if made is not None), None)


def _with_less(plans: _Comparison, candidates: TilingCandidates) -> None:
    """The best plan's cut in less memory, by halves until that brings nothing; then what costs least on each rung."""
    start = plans.best
    assert start is not None
    capacity = start.memgraph.device_nbytes
    most = (MORE_BLOCKED if candidates.blocked else MORE) * start.cost / _luck(start, candidates)
    tried: set[tuple[Tiling, int]] = set()

    def better(cut: Tiling, rung: int) -> bool:
        on_rung = candidates.within(rung)
        worth = on_rung.fits(cut) and on_rung.price(cut) <= most and (cut, rung) not in tried
        tried.add((cut, rung))
        return worth and plans.affords(cut, 1.0) and plans.make(cut, rung)

    def any_better(rung: int) -> bool:
        cuts = dict.fromkeys((start.cut, *candidates.within(rung).by_price()[:MOST_ON_A_RUNG]))
        return any([better(cut, rung) for cut in cuts])

    halves = (rung for rung in smaller_capacities(capacity) if not rung & (rung - 1))
    _downward(halves, lambda rung: better(start.cut, rung))
    _downward(smaller_capacities(capacity), any_better)


def _downward(ladder: Iterator[int], better: Callable[[int], bool]) -> None:
    """Ask of each rung whether it is better, until MOST_RUNGS_WORSE in turn are not."""
    worse = 0
    for rung in ladder:
        worse = 0 if better(rung) else worse + 1
        if worse == MOST_RUNGS_WORSE:
            return


def _promising(cut: Tiling, than: FoundPlan, candidates: TilingCandidates) -> bool:
    """True where by formula a cut saves more of what a plan costs than making its own takes."""
    saved = than.cost - _luck(than, candidates) * candidates.price(cut)
    ops = len(than.memgraph) / max(1, than.cut.kernel_calls) * cut.kernel_calls
    return saved > PROMISED * OP_SECONDS * ops


def _luck(found: FoundPlan, candidates: TilingCandidates) -> float:
    """What other plans are expected to cost, times what the formula says, from one that is made."""
    price = candidates.price(found.cut)
    if not (price and found.cost):  # nothing to compute, nothing to move
        return 1.0
    return min(found.cost / price, USUAL) if candidates.blocked else found.cost / price


def _near_bound(
    best: FoundPlan, sparing: FoundPlan | None, candidates: TilingCandidates, lower: Lower, machine: Machine
) -> FoundPlan:
    """A plan that moves nearly as little as any could, where products make the best by time move more.

    Cuts alike come out alike: after MOST_WORSE that by formula would do and do not, none is looked for.
    """
    if not candidates.blocked or best is sparing:
        return best
    found = sparing if sparing is not None and sparing.cost <= WORTH_NEAR * best.cost else None
    left, (read, _), worse = SHARE_SPARING * comparison_budget(best.seconds), _near(candidates, best.cut), 0
    for cut in candidates.sparing(read, best.cut):
        if worse == MOST_WORSE or (found is not None and BETTER * found.seconds <= best.seconds):
            break
        if left < cut.kernel_calls or (found is not None and not _promising(cut, found, candidates)):
            continue
        memgraph = lower(cut, None, BestSoFar(math.inf, WORTH_NEAR * best.cost))
        if memgraph is not None:
            left -= len(memgraph)
            made = _found(cut, memgraph, machine)
            worth = made.cost <= WORTH_NEAR * best.cost and _is_near(made, candidates)
            worse = 0 if worth else worse + 1
            if worth and (found is None or made.merit < found.merit):
                found = made
    return best if found is None else found


def _near(candidates: TilingCandidates, cut: Tiling) -> tuple[float, float]:
    """Bytes that a plan near what keeping square blocks of a product moves reads at most, and those it moves in all."""
    read, written = candidates.traffic.blocked_nbytes(candidates.room(cut))
    most = NEAR * (read + written)
    return most - written, most


def _is_near(found: FoundPlan, candidates: TilingCandidates) -> bool:
    return bool(candidates.blocked) and found.moved <= _near(candidates, found.cut)[1]


def _found(cut: Tiling, memgraph: MemGraph, machine: Machine) -> FoundPlan:
    seconds = predicted_seconds(memgraph, machine, policy(SEARCHED_BY))
    return FoundPlan(cut, memgraph, seconds, seconds + byte_cost_seconds(memgraph.nbytes_by_link(), machine))


def smaller_capacities(capacity: int) -> Iterator[int]:
    """Bytes below ``capacity``: powers of two and what lies half way between, down to a page."""
    power = 1 << capacity.bit_length()
    while power > 1 << 13:
        yield from (rung for rung in (power // 4 * 3, power // 2) if rung < capacity)
        power //= 2
