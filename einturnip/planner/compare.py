"""Which plan is predicted to be best, of those that are worth lowering: for the memory given, and for less of it.

A plan for less memory runs in more all the same. It may be the better one: fewer pages are touched for the first time,
and formulas err. Budgets below stand on a ladder, so that budgets near each other are held against the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from einturnip.core.machine import Machine
from einturnip.decomp.price import COLD
from einturnip.decomp.search import Cut
from einturnip.memgraph.types import MemGraph
from einturnip.planner.bound import link_bound
from einturnip.planner.candidates import Candidates
from einturnip.planner.cost import OP_SECONDS, cost_of_bytes, least_seconds_of, purse
from einturnip.planner.price import predicted_seconds
from einturnip.runtime.policies import policy
from einturnip.taskgraph.types import TaskGraph

# Of what is made only to be compared, what plans for the memory given may take; plans for less have the rest.
SHARE_GIVEN = 0.7
# And what plans that move fewer bytes may take besides.
SHARE_SPARING = 0.33
# The formula tells of products which cut is better: one is lowered only where that saves so many times what it takes.
PROMISED = 2.0
# The cut of the lowest price is lowered in any case, if by formula it costs at most this part of the best until then.
PROMISING = 0.9
# Cuts, or rungs of the ladder, in turn that bring nothing; cuts by price on each rung.
MOST_WORSE = 2
MOST_ON_A_RUNG = 2
# A cut is lowered for less memory only where that costs by formula hardly more than the best does. The formula tells
# of products how much more they read; of all else it counts fewer working sets at once as if they always took time.
MORE_BLOCKED, MORE = 1.02, 1.1
# From one plan to one for less memory, at least this part of the cost must be saved.
BETTER = 0.999
# Fewer bytes are worth time, for disks are shared, and wear; but who waits, waits: no plan is taken that is predicted
# to take SLOWER times what another does, but one that moves at most NEAR times what any must, where that is held to
# cost at most WORTH_NEAR times as much, bytes counted. A process reads some bytes beside, Python's files among them.
NEAR, WORTH_NEAR = 1.091, 1.15
SLOWER = 1.1
# A plan that comes to cost so many times what the best does is not made to its end, even if it might be faster.
TOO_MUCH = 1.5


@dataclass(frozen=True, slots=True)
class Rival:
    """What a plan must be better than: the seconds of the fastest, and what the best is held to cost."""

    seconds: float
    cost: float

    def most_nbytes(self, tasks: TaskGraph, machine: Machine) -> int:
        """Bytes that a plan of these tasks may move and be better all the same; negative where none can be."""
        least = least_seconds_of(tasks, machine)
        most = self.cost if least * SLOWER >= self.seconds else TOO_MUCH * self.cost
        return int((most - least) * machine.read_bandwidth / COLD)


Lower = Callable[[Cut, int | None, Rival | None], MemGraph | None]
"""The plan of a cut in the memory given or, where it is stated, in so many bytes.

None where it cannot be laid out, or is not better than a rival."""


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, the seconds it is predicted to take, and what it is held to cost for the bytes it moves too."""

    cut: Cut
    memgraph: MemGraph
    seconds: float
    cost: float

    @property
    def moved(self) -> int:
        """Bytes over all links."""
        return sum(self.memgraph.nbytes_by_link().values())


class _Comparison:
    """The plans made so far: the one that costs least of those not clearly slower than another, and the fastest.

    ``sparing``: the fastest of those that move nearly as little as any could, which ``near`` tells.
    """

    def __init__(self, lower: Lower, machine: Machine, near: Callable[[Found], bool]) -> None:
        self._lower = lower
        self._machine = machine
        self._near = near
        self.best: Found | None = None
        self.sparing: Found | None = None
        self._fastest: Found | None = None
        self._made = self._calls = 0

    def affords(self, cut: Cut, share: float) -> bool:
        """True where making one more plan is short beside the run; the first is always made."""
        if self._fastest is None:
            return True
        most = purse(self._fastest.seconds)
        return self._made + cut.kernel_calls * self._made / max(1, self._calls) <= share * most

    def make(self, cut: Cut, bound: int | None = None) -> bool:
        """Make the plan of a cut, in ``bound`` bytes if stated; True where it is the best by now."""
        rival = None
        if self.best is not None and self._fastest is not None:
            rival = Rival(self._fastest.seconds, self.best.cost)
        memgraph = self._lower(cut, bound, rival)
        if memgraph is None:
            return False
        self._made += len(memgraph)
        self._calls += cut.kernel_calls
        found = _found(cut, memgraph, self._machine)
        if (self.sparing is None or found.seconds < self.sparing.seconds) and self._near(found):
            self.sparing = found
        if self.best is None or self._fastest is None:
            self.best = self._fastest = found
            return True
        before = self.best
        if found.seconds < self._fastest.seconds:
            self._fastest = found
        admitted = [f for f in (before, found, self._fastest) if f.seconds <= SLOWER * self._fastest.seconds]
        self.best = min(admitted, key=lambda f: f.cost)
        return self.best is not before and not BETTER * before.cost < self.best.cost <= before.cost


def best_plan(candidates: Candidates, lower: Lower, machine: Machine) -> MemGraph | None:
    """The plan predicted to be best of those that are worth lowering; else the first that fits of ever finer ones."""
    for cut in candidates.whole(machine):
        whole = lower(cut, None, None)
        if whole is not None:
            return whole
    compared = candidates.compared()
    plans = _Comparison(lower, machine, lambda found: _is_near(found, candidates))
    worse = 0
    for cut in sorted(compared, key=lambda c: c.kernel_calls):  # those that are quickly made first
        best = plans.best
        if best is not None and candidates.blocked and not _promising(cut, best, candidates):
            continue
        promising = cut is compared[0] and best is not None and candidates.price(cut) < PROMISING * best.cost
        if promising or (worse < MOST_WORSE and plans.affords(cut, SHARE_GIVEN)):
            # Blocks of a product fill the memory by luck; of all else, ever finer tiles only cost more.
            worse = 0 if plans.make(cut) or candidates.blocked else worse + 1
    if plans.best is not None:
        _with_less(plans, plans.best, candidates)
        return _near_bound(plans.best, plans.sparing, candidates, lower, machine).memgraph
    finer = (lower(cut, None, None) for cut in candidates.finer(compared))
    return next((found for found in finer if found is not None), None)


def _with_less(plans: _Comparison, start: Found, candidates: Candidates) -> None:
    """Plans for less memory, down the ladder until it brings nothing more."""
    worse, cut = 0, start.cut
    most = (MORE_BLOCKED if candidates.blocked else MORE) * candidates.price(start.cut)
    for rung in rungs(start.memgraph.device_nbytes):
        on_rung = candidates.within(rung)
        better = False
        for other in dict.fromkeys((cut, *on_rung.by_price()[:MOST_ON_A_RUNG])):
            if not on_rung.fits(other) or on_rung.price(other) > most:
                continue
            if plans.affords(other, 1.0) and plans.make(other, rung):
                better, cut = True, other
        worse = 0 if better else worse + 1
        if worse == MOST_WORSE:
            return


def _promising(cut: Cut, than: Found, candidates: Candidates) -> bool:
    """True where by formula a cut saves more of what a plan costs than making its own takes."""
    saved = than.cost * (1 - candidates.price(cut) / candidates.price(than.cut))
    ops = len(than.memgraph) / max(1, than.cut.kernel_calls) * cut.kernel_calls
    return saved > PROMISED * OP_SECONDS * ops


def _near_bound(best: Found, sparing: Found | None, candidates: Candidates, lower: Lower, machine: Machine) -> Found:
    """A plan that moves nearly as little as any could, where products make the best by time move more."""
    if not candidates.blocked or _is_near(best, candidates):
        return best
    found = sparing if sparing is not None and sparing.cost <= WORTH_NEAR * best.cost else None
    left, (read, _) = SHARE_SPARING * purse(best.seconds), _near(candidates, best.cut)
    for cut in candidates.sparing(read):
        if left < cut.kernel_calls or (found is not None and not _promising(cut, found, candidates)):
            continue
        memgraph = lower(cut, None, Rival(0.0, WORTH_NEAR * best.cost))
        if memgraph is not None:
            left -= len(memgraph)
            made = _found(cut, memgraph, machine)
            worth = made.cost <= WORTH_NEAR * best.cost and _is_near(made, candidates)
            if worth and (found is None or made.seconds < found.seconds):
                found = made
    return best if found is None else found


def _near(candidates: Candidates, cut: Cut) -> tuple[float, float]:
    """Bytes that a plan near the bound of what any schedule moves reads at most, and those that it moves in all."""
    bound = link_bound(candidates.graph.graph, candidates.room(cut))
    most = NEAR * sum(bound.values())
    return most - bound["cpu:0->disk"], most


def _is_near(found: Found, candidates: Candidates) -> bool:
    return bool(candidates.blocked) and found.moved <= _near(candidates, found.cut)[1]


def _found(cut: Cut, memgraph: MemGraph, machine: Machine) -> Found:
    seconds = predicted_seconds(memgraph, machine, policy("critical-path"))
    return Found(cut, memgraph, seconds, seconds + cost_of_bytes(memgraph.nbytes_by_link(), machine))


def rungs(capacity: int) -> Iterator[int]:
    """Bytes below ``capacity``: powers of two and what lies half way between, down to a page."""
    power = 1 << capacity.bit_length()
    while power > 1 << 13:
        yield from (rung for rung in (power // 4 * 3, power // 2) if rung < capacity)
        power //= 2
