"""Lowers and simulates the most promising tilings, and returns the plan predicted to be best.

Tilings are also tried in smaller arenas. A plan for less memory also runs in more, and may be faster: it has fewer page
faults, and formulas err. The smaller capacities are powers of two and their midpoints, so that similar budgets compare
the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from einturnip.core.errors import NeedsMore
from einturnip.core.phases import tried
from einturnip.cost.machine import Machine
from einturnip.memgraph.types import MemGraph
from einturnip.planner.candidates import TilingCandidates
from einturnip.planner.predict import (
    SEARCHED_BY,
    byte_cost_seconds,
    comparison_budget,
    min_task_seconds,
    predicted_seconds,
    ranking_key,
    touched_nbytes,
    with_numpy_kernels,
)
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.search import Tiling
from einturnip.tuning.memory import OPS_PER_TASK
from einturnip.tuning.search import (
    ALWAYS_COMPARED,
    CLASS_OPS,
    COLD_READ_WEIGHT,
    FREE_OPS,
    HIDDEN_BYTE_PRICE,
    MAX_CAPACITIES_WORSE,
    MAX_COST_NEAR,
    MAX_COST_OF_FASTER,
    MAX_MORE,
    MAX_MORE_BLOCKED,
    MAX_PER_CAPACITY,
    MAX_USUAL_RATIO,
    MAX_WORSE,
    MIN_IMPROVEMENT,
    MIN_PAGES_SAVED,
    MIN_SAVING,
    MUCH_FASTER,
    NEAR_MIN_BYTES,
    OP_SECONDS,
    PROMISING,
    SHARE_BLOCKED,
    SHARE_GIVEN,
    SHARE_NEAR_BOUND,
)


@dataclass(frozen=True, slots=True)
class Rival:
    """The best plan so far as a limit for the next: its seconds, and its cost including the bytes moved."""

    seconds: float
    cost: float

    @classmethod
    def of(cls, seconds: float, link_bytes: Mapping[str, int], machine: Machine) -> Rival:
        """Return a plan of these predicted seconds and bytes by link."""
        return cls(seconds, seconds + byte_cost_seconds(link_bytes, machine))

    def max_nbytes(self, tasks: TaskGraph, machine: Machine) -> int:
        """Return the bytes that a plan of these tasks may move and still be better; negative if none can be."""
        minimum = min_task_seconds(tasks, machine)
        if minimum > self.seconds:
            return -1
        limit = MAX_COST_OF_FASTER * self.cost if minimum * MUCH_FASTER <= self.seconds < math.inf else self.cost
        return int((limit - minimum) * machine.read_bandwidth / COLD_READ_WEIGHT)


Lower = Callable[[Tiling, int | None, Rival | None], MemGraph | None]
"""Returns the plan of a tiling in the given memory, or in a stated number of bytes.

None if it cannot be placed, or is not better than a rival."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, its predicted seconds, and its cost including the bytes moved."""

    tiling: Tiling
    memgraph: MemGraph
    seconds: float
    cost: float

    @property
    def moved(self) -> int:
        """Bytes moved over all links."""
        return sum(self.memgraph.nbytes_by_link().values())

    @property
    def rank(self) -> tuple[int, int]:
        """A key that is smaller for a better plan: time with a small price for bytes, then the bytes."""
        return ranking_key(self.seconds + HIDDEN_BYTE_PRICE / COLD_READ_WEIGHT * (self.cost - self.seconds), self.moved)


class _Comparison:
    """The plans made so far: the best of all, and the best of those near the I/O bound.

    It also counts the time spent on making plans, in ops: each plan costs its ops, and CLASS_OPS for each of the
    ``classes`` of einsums, whose kernels are priced. ``min_cost``: lower bound of a tiling's cost, by formula.
    ``rival``: the plan of another variant, which must be beaten.
    """

    def __init__(
        self,
        lower: Lower,
        machine: Machine,
        is_near: Callable[[FoundPlan], bool],
        classes: int = 0,
        min_cost: Callable[[Tiling], float] = lambda _: 0.0,
        rival: Rival | None = None,
    ) -> None:
        self._lower, self._machine, self._is_near = lower, machine, is_near
        self._pricing, self._min_cost = CLASS_OPS * classes, min_cost
        self.best: FoundPlan | None = None
        self.near_bound: FoundPlan | None = None
        self._rival = rival
        self._spent = self._made = self._calls = 0

    def affords(self, tiling: Tiling, share: float, saved: float = math.inf) -> bool:
        """Return whether another plan can be made in the time allowed; the first is always made.

        Beyond FREE_OPS, the time spent must not exceed what the plan could save: by its lower bound, and ``saved``.
        """
        rival = self._to_beat
        if rival is None:
            return True
        ops = tiling.kernel_calls * (self._made / self._calls if self._calls else OPS_PER_TASK)
        spent = self._spent + self._pricing + ops
        if spent > (1.0 if self.best is None else share) * comparison_budget(rival.seconds):
            return False
        return spent <= FREE_OPS or (spent - FREE_OPS) * OP_SECONDS <= min(saved, rival.cost - self._min_cost(tiling))

    @property
    def _to_beat(self) -> Rival | None:
        """The best plan so far, of this or another variant."""
        if self.best is None:
            return self._rival
        own = Rival(self.best.seconds, self.best.cost)
        return own if self._rival is None else min(own, self._rival, key=lambda rival: rival.cost)

    def make(self, tiling: Tiling, bound: int | None = None) -> bool:
        """Make the plan of a tiling, in ``bound`` bytes if given; return whether it is the best so far."""
        memgraph = self._lower(tiling, bound, self._to_beat)
        self._spent += self._pricing
        if memgraph is None:
            return False
        self._spent += len(memgraph)
        self._made += len(memgraph)
        self._calls += tiling.kernel_calls
        before = self.best
        found = _found(tiling, memgraph, self._machine, before)
        if before is None or found.rank < before.rank:
            self.best = found
        if (self.near_bound is None or found.rank < self.near_bound.rank) and self._is_near(found):
            self.near_bound = found
        return before is None or found.seconds < MIN_IMPROVEMENT * before.seconds


def best_plan(
    candidates: TilingCandidates, lower: Lower, machine: Machine, rival: Rival | None = None
) -> FoundPlan | None:
    """Return the plan predicted to be best.

    If none of the compared tilings fits, return the first finer one that does; None if there is none. With a ``rival``,
    return None if no plan was found that could be better.
    """
    for tiling in candidates.coarsest_if_best(machine):
        memgraph = lower(tiling, None, rival)
        if memgraph is not None:
            return _found(tiling, memgraph, machine)
    plans = _Comparison(
        lower, machine, lambda found: _is_near(found, candidates), candidates.classes, candidates.min_cost, rival
    )
    try:
        compared = candidates.to_compare()
        found = _best_of_several(plans, candidates, compared, machine)
        if found is not None:
            return _near_bound(found, plans.near_bound, candidates, lower, machine)
        if rival is not None:
            return None
        finer = ((tiling, lower(tiling, None, None)) for tiling in candidates.finer_than(compared))
        return next((_found(tiling, made, machine) for tiling, made in finer if made is not None), None)
    except NeedsMore:
        if plans.best is None:
            raise
        return plans.best


def _best_of_several(
    plans: _Comparison, candidates: TilingCandidates, compared: list[Tiling], machine: Machine
) -> FoundPlan | None:
    worse, share = 0, SHARE_BLOCKED if candidates.blocked else SHARE_GIVEN
    for tiling in sorted(compared, key=lambda c: c.kernel_calls):  # plans that are made fast come first
        best = plans.best
        if best is not None and candidates.blocked and not _promising(tiling, best, candidates):
            similar = tiling in compared[:ALWAYS_COMPARED] and _reads_once(best, candidates)
            if not similar:
                continue
        lowest = tiling is compared[0] and not candidates.blocked
        promising = lowest and best is not None and candidates.price(tiling) < PROMISING * best.cost
        if promising or (worse < MAX_WORSE and plans.affords(tiling, share)):
            # Whether blocks of a product fill the memory evenly varies from tiling to tiling; otherwise finer tiles
            # only cost more.
            worse = 0 if plans.make(tiling) or candidates.blocked else worse + 1
    if plans.best is not None:
        _try_smaller_arenas(plans, candidates, machine)
        for tiling in candidates.roomy_alternatives():
            if plans.affords(tiling, 1.0) and _promising(tiling, plans.best, candidates):
                plans.make(tiling)
    return plans.best


def _try_smaller_arenas(plans: _Comparison, candidates: TilingCandidates, machine: Machine) -> None:
    """Lower the best tiling in smaller and smaller arenas, then the cheapest tilings for each capacity."""
    start = plans.best
    assert start is not None
    capacity = min(start.memgraph.arenas_nbytes)
    if _reads_once(start, candidates):  # a smaller arena saves nothing but page faults
        capacity = max(0, capacity - int(MIN_PAGES_SAVED * start.seconds / machine.fault)) if machine.fault else 0
    limit = (MAX_MORE_BLOCKED if candidates.blocked else MAX_MORE) * start.cost / _cost_ratio(start, candidates)
    # With the same tiles, a smaller arena saves at most page faults, and transfers of bytes that are in the cache or
    # were moved more than once. Kernels take as long, and so do their waits for each other.
    moving = (COLD_READ_WEIGHT + 1) * start.moved - COLD_READ_WEIGHT * candidates.min_moved_nbytes
    saved = touched_nbytes(start.memgraph) * machine.fault + moving / machine.read_bandwidth
    lowered: set[tuple[Tiling, int]] = set()

    def better(tiling: Tiling, capacity_tried: int) -> bool:
        limited = candidates.limited_to(capacity_tried)
        worth = limited.fits(tiling) and limited.price(tiling) <= limit and (tiling, capacity_tried) not in lowered
        lowered.add((tiling, capacity_tried))
        limit_saved = saved if tiling == start.tiling else math.inf
        return worth and plans.affords(tiling, 1.0, limit_saved) and plans.make(tiling, capacity_tried)

    def any_better(capacity_tried: int) -> bool:
        if not plans.affords(start.tiling, 1.0):
            return False
        tilings = dict.fromkeys((start.tiling, *candidates.limited_to(capacity_tried).by_price()[:MAX_PER_CAPACITY]))
        return any([better(tiling, capacity_tried) for tiling in tilings])

    powers = (smaller for smaller in smaller_capacities(capacity) if not smaller & (smaller - 1))
    _try_downward(powers, lambda capacity_tried: better(start.tiling, capacity_tried))
    _try_downward(smaller_capacities(capacity), any_better)


def _try_downward(capacities: Iterator[int], better: Callable[[int], bool]) -> None:
    """Call ``better`` for each capacity until MAX_CAPACITIES_WORSE consecutive ones bring no improvement."""
    worse = 0
    for capacity_tried in capacities:
        worse = 0 if better(capacity_tried) else worse + 1
        if worse == MAX_CAPACITIES_WORSE:
            return


def _promising(tiling: Tiling, other: FoundPlan, candidates: TilingCandidates) -> bool:
    """Return whether a tiling saves by formula more cost than making its plan takes."""
    saved = other.cost - _cost_ratio(other, candidates) * candidates.price(tiling)
    ops = len(other.memgraph) / max(1, other.tiling.kernel_calls) * tiling.kernel_calls
    return saved > MIN_SAVING * OP_SECONDS * ops


def _cost_ratio(found: FoundPlan, candidates: TilingCandidates) -> float:
    """Return the expected ratio of a plan's cost to its formula, estimated from a plan that was made."""
    price = candidates.price(found.tiling)
    if not (price and found.cost):  # nothing to compute, nothing to move
        return 1.0
    capped = candidates.blocked and not _reads_once(found, candidates)
    return min(found.cost / price, MAX_USUAL_RATIO) if capped else found.cost / price


def _near_bound(
    best: FoundPlan, near_bound: FoundPlan | None, candidates: TilingCandidates, lower: Lower, machine: Machine
) -> FoundPlan:
    """Return a plan that moves nearly the minimum of bytes, if products make the fastest plan move more.

    Similar tilings give similar plans, so the search ends after MAX_WORSE consecutive plans that are no better.
    """
    if not candidates.blocked or best is near_bound:
        return best
    found = near_bound if near_bound is not None and near_bound.cost <= MAX_COST_NEAR * best.cost else None
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
        memgraph = lower(tiling, None, Rival(math.inf, MAX_COST_NEAR * best.cost))
        if memgraph is not None:
            left -= len(memgraph)
            made = _found(tiling, memgraph, machine)
            worth = made.cost <= MAX_COST_NEAR * best.cost and _is_near(made, candidates)
            worse = 0 if worth else worse + 1
            if worth and (found is None or made.rank < found.rank):
                found = made
    return best if found is None else found


def _near_bound_nbytes(candidates: TilingCandidates, tiling: Tiling) -> tuple[float, float]:
    """Return the maximum bytes read, and moved in total, by a plan that counts as near the bound.

    The bound is the traffic of keeping square blocks of a product in memory.
    """
    read, written = candidates.traffic.blocked_nbytes(candidates.available(tiling))
    limit = NEAR_MIN_BYTES * (read + written)
    return limit - written, limit


def _is_near(found: FoundPlan, candidates: TilingCandidates) -> bool:
    return bool(candidates.blocked) and found.moved <= _near_bound_nbytes(candidates, found.tiling)[1]


def _reads_once(found: FoundPlan, candidates: TilingCandidates) -> bool:
    """Return whether a plan of products moves each byte of the files only once."""
    return bool(candidates.blocked) and found.moved <= NEAR_MIN_BYTES * candidates.min_moved_nbytes


def _found(tiling: Tiling, memgraph: MemGraph, machine: Machine, best: FoundPlan | None = None) -> FoundPlan:
    """Return the plan with its seconds, in the kernels that would run.

    NumPy runs those whose machine code is not worth compiling. They are not looked up for a plan that is no faster than
    ``best`` even in machine code.
    """
    seconds = predicted_seconds(memgraph, machine, policy(SEARCHED_BY))
    if best is None or seconds < best.seconds:
        actual = with_numpy_kernels(
            memgraph, machine, None
        )  # without room for a compiler, Planner.passes plans for NumPy
        seconds = seconds if actual is memgraph else predicted_seconds(actual, machine, policy(SEARCHED_BY))
    tried(seconds)
    return FoundPlan(tiling, memgraph, seconds, seconds + byte_cost_seconds(memgraph.nbytes_by_link(), machine))


def smaller_capacities(capacity: int) -> Iterator[int]:
    """Yield capacities below ``capacity``: powers of two and their midpoints, down to two pages."""
    power = 1 << capacity.bit_length()
    while power > 1 << 13:
        yield from (smaller for smaller in (power // 4 * 3, power // 2) if smaller < capacity)
        power //= 2
