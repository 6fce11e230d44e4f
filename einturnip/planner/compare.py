"""Which plan is predicted to be best, of those that are worth lowering: for the memory given, and for less of it.

A plan for less memory runs in more all the same. It may be the better one: fewer pages are touched for the first time,
and formulas err. Budgets below stand on a ladder, so that budgets near each other are held against the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from einturnip.core.machine import Machine
from einturnip.decomp.price import COLD
from einturnip.decomp.search import Cut
from einturnip.memgraph.types import MemGraph
from einturnip.planner.bound import link_bound
from einturnip.planner.candidates import Candidates
from einturnip.planner.price import predicted_seconds
from einturnip.runtime.policies import policy

# Ops of plans that are made only to be compared: so many, and so many more for each second that the program will take.
OPS_COMPARED = 20_000
OPS_COMPARED_A_SECOND = 1500
# The same of plans for less memory; rungs of the ladder in turn that bring nothing; cuts by price on each of them.
OPS_OF_LESS = 1000
OPS_OF_LESS_A_SECOND = 1500
MOST_WORSE = 2
MOST_ON_A_RUNG = 2
# From one plan to one for less memory, at least this part of the seconds must be saved.
BETTER = 0.995
# A plan that moves at most NEAR times what any must goes before those that move more, unless it takes SLOWER times as
# long: disks are shared, and wear, but who waits, waits. Ops of plans made to find one: so many a second of the run.
NEAR = 1.1
SLOWER = 1.1
OPS_SPARING_A_SECOND = 6000

Lower = Callable[[Cut, int | None], MemGraph | None]
"""The plan of a cut in the memory given or, where it is stated, in so many bytes; None where it cannot be laid out."""


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


def best_plan(candidates: Candidates, lower: Lower, machine: Machine) -> MemGraph | None:
    """The plan predicted to be best of those that are worth lowering; else the first that fits of ever finer ones."""
    for cut in candidates.whole(machine):
        whole = lower(cut, None)
        if whole is not None:
            return whole
    compared = candidates.compared()
    best: Found | None = None
    made = 0
    few = OPS_COMPARED + OPS_COMPARED_A_SECOND * min(map(candidates.price, compared), default=0.0)
    for cut in sorted(compared, key=lambda c: 3 * c.kernel_calls > few):  # stable: by price among those quickly made
        if best is not None and made + cut.kernel_calls > few:
            continue
        memgraph = lower(cut, None)
        if memgraph is not None:
            made += len(memgraph)
            found = _found(cut, memgraph, machine)
            best = found if best is None or found.cost < best.cost else best
    if best is not None:
        best = _with_less(best, candidates, lower, machine)
        return _near_bound(best, candidates, lower, machine).memgraph
    finer = (lower(cut, None) for cut in candidates.finer(compared))
    return next((found for found in finer if found is not None), None)


def _with_less(best: Found, candidates: Candidates, lower: Lower, machine: Machine) -> Found:
    """The best plan for less memory, where that costs less: down the ladder until it brings nothing more."""
    left = OPS_OF_LESS + OPS_OF_LESS_A_SECOND * best.cost - len(best.memgraph)
    worse = 0
    for rung in rungs(best.memgraph.device_nbytes):
        on_rung = candidates.within(rung)
        before = best
        for cut in dict.fromkeys((best.cut, *on_rung.by_price()[:MOST_ON_A_RUNG])):
            if left < cut.kernel_calls:
                return best
            memgraph = lower(cut, rung) if on_rung.fits(cut) else None
            if memgraph is not None:
                left -= len(memgraph)
                found = _found(cut, memgraph, machine)
                best = found if found.cost < BETTER * best.cost else best
        worse = 0 if best is not before else worse + 1
        if worse == MOST_WORSE:
            break
    return best


def _near_bound(best: Found, candidates: Candidates, lower: Lower, machine: Machine) -> Found:
    """A plan that moves nearly as little as any could, where products make the best by time move more."""
    if not candidates.blocked:
        return best
    graph = candidates.graph.graph
    bound = link_bound(graph, candidates.room(best.cut))
    written = bound["cpu:0->disk"]
    near = NEAR * sum(bound.values())
    if best.moved <= near:
        return best
    left, good = OPS_SPARING_A_SECOND * best.seconds, list[Found]()
    for cut in candidates.sparing(near - written):
        if left < cut.kernel_calls:
            continue
        memgraph = lower(cut, None)
        if memgraph is not None:
            left -= len(memgraph)
            found = _found(cut, memgraph, machine)
            if found.moved <= near and found.seconds <= SLOWER * best.seconds:
                good.append(found)
    return min(good, key=lambda f: f.cost, default=best)


def _found(cut: Cut, memgraph: MemGraph, machine: Machine) -> Found:
    seconds = predicted_seconds(memgraph, machine, policy("critical-path"))
    return Found(cut, memgraph, seconds, seconds + cost_of_bytes(memgraph.nbytes_by_link(), machine))


def rungs(capacity: int) -> Iterator[int]:
    """Bytes below ``capacity``: powers of two and what lies half way between, down to a page."""
    power = 1 << capacity.bit_length()
    while power > 1 << 13:
        yield from (rung for rung in (power // 4 * 3, power // 2) if rung < capacity)
        power //= 2


def predicted_cost(graph: MemGraph, machine: Machine) -> float:
    """Predicted seconds, and what the bytes moved cost even where kernels hide them."""
    seconds = predicted_seconds(graph, machine, policy("critical-path"))
    return seconds + cost_of_bytes(graph.nbytes_by_link(), machine)


def cost_of_bytes(link_bytes: Mapping[str, int], machine: Machine) -> float:
    """Seconds that moved bytes are held to cost beside those of the simulated run."""
    return COLD * sum(link_bytes.values()) / machine.read_bandwidth
