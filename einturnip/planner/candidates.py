"""Which cuts are worth lowering for a budget, best first by formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from einturnip.cost.machine import Machine
from einturnip.memgraph.build import granule
from einturnip.planner.budget import MIB
from einturnip.planner.io_lower_bound import TrafficBound
from einturnip.planner.ranking import OP_SECONDS
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.price import TilingPrices, coarsest_is_best
from einturnip.tiling.refine import blocked_classes, fit_capacity, improved
from einturnip.tiling.search import Tiling, thinner

# Working sets that should fit at once, for overlap and for blocks of accumulators; the fewest that are tried before a
# cut is only a last resort; and how much slower a run is taken to be as it nears having just one.
SETS = 12
LEAST_SETS = 3
CROWDING = 0.5
# A tile need not be larger for any kernel to run at full rate; smaller ones leave room to overlap.
LARGEST_WORKING_SET = 50 * MIB
MOST_CALLS = 1_000_000
# Cuts of the way to single points that are priced; of all, how many may be lowered and compared.
MOST_PRICED = 10
MOST_LOWERED = 6
# Of bytes that are to be read at most, what cuts that are lowered for that read by formula, and what is clearly less;
# how much dearer than the cheapest they are at most, and by how much as dear; tiles that are left free, of which more
# are of no use; and how many such cuts are lowered.
SPARING, CLEARLY, HARDLY_DEARER, AS_DEAR = 1.003, 0.99, 1.15, 0.02
ROOMY, MOST_SPARING = 2, 8
# The most kinds of einsum for which I/O blocks are part of the price, and for which cuts are made to measure.
MOST_GROUPS_BLOCKED = 200
MOST_GROUPS_FITTED = 24
# Prices asked for in making one cut to measure.
EVALUATIONS = 60
# Page rounding of a task's operands, result and workspace.
MOST_EXTENTS = 16


def min_arena(cut: Tiling) -> int:
    """Bytes in which the cut can run: its largest working set, with each extent rounded up."""
    page = granule(cut.working_set)
    return cut.working_set + MOST_EXTENTS * page


class CandidateGroup:
    """The cuts, found as far as they are asked for."""

    def __init__(self, cuts: Iterator[Tiling]) -> None:
        self._rest = cuts
        self.coarsest = next(cuts)
        self._found = [self.coarsest]

    def __iter__(self) -> Iterator[Tiling]:
        """Every cut, coarsest first."""
        n = 0
        while n < len(self._found) or self._more():
            yield self._found[n]
            n += 1

    def _more(self) -> bool:
        cut = next(self._rest, None)
        if cut is not None:
            self._found.append(cut)
        return cut is not None

    def all(self) -> Sequence[Tiling]:
        """Every cut, coarsest first."""
        self._found += self._rest
        return self._found


class TilingCandidates:
    """The cuts that fit: those that should be compared, then ever finer ones.

    A cut whose largest working set fits may fail all the same, for tiles of other nodes that must stay beside it.
    """

    def __init__(
        self,
        graph: EquivalenceClasses,
        way: CandidateGroup,
        prices: TilingPrices,
        room: Callable[[Tiling], int],
        traffic: TrafficBound | None = None,
    ) -> None:
        self.graph = graph
        self.traffic = traffic or TrafficBound(graph.graph)
        self.way = way
        self.prices = prices
        self.room = room
        self.blocked = blocked_classes(graph) if len(graph.groups) <= MOST_GROUPS_FITTED else []

    def whole(self, machine: Machine) -> Iterator[Tiling]:
        """The coarsest cut, where nothing could be much better."""
        whole, room = self.way.coarsest, self.room(self.way.coarsest)
        if whole.working_set * SETS <= room - MOST_EXTENTS * granule(room) and coarsest_is_best(self.graph, machine):
            yield whole

    def within(self, capacity: int) -> TilingCandidates:
        """The cuts for at most so many bytes."""
        return TilingCandidates(
            self.graph, self.way, self.prices, lambda cut: min(capacity, self.room(cut)), self.traffic
        )

    def by_price(self) -> list[Tiling]:
        """The cuts of the way of which several working sets fit, those of the lowest prices."""
        roomy = list(islice((c for c in self.way if self.fits(c) and self._is_roomy(c)), MOST_PRICED))
        if len(self.graph.groups) <= MOST_GROUPS_BLOCKED:
            roomy += [t for c in roomy for t in thinner(self.graph, c) if t.kernel_calls <= MOST_CALLS]
        return sorted(roomy, key=self.price)[:MOST_LOWERED]

    def compared(self) -> list[Tiling]:
        """As ``by_price``, and cuts made to measure."""
        found = {c.tiles: c for c in [*self.by_price(), *self._measured]}
        for cut, made in zip(self._measured[:2], self._better, strict=True):
            if LARGEST_WORKING_SET < made.working_set <= self.room(made) // LEAST_SETS:
                # Larger than a tile need be, though memory has room: the best of those that are not.
                made = self._improved(cut, within=True)
            if self._is_roomy(made):
                found[made.tiles] = made
        return sorted(found.values(), key=self.price)[:MOST_LOWERED]

    def roomier(self) -> list[Tiling]:
        """Of the cut made to measure the best that leaves room, where the best of all does not."""
        best = zip(self._measured[:1], self._better[:1], strict=True)
        tight = [cut for cut, better in best if not self._is_roomy(better)]
        return [made for cut in tight if self._is_roomy(made := self._improved(cut, within=True))]

    @cached_property
    def _measured(self) -> list[Tiling]:
        """Cuts made to measure, the cheapest first, and the best of the way among them."""
        start = self.by_price()[:1] if self.blocked else []
        made = [self.prices.tiling(t) for cut in start for t in fit_capacity(self.graph, cut.tiles, self.room(cut))]
        return sorted([*start, *filter(self._is_roomy, made)], key=self.price)[:MOST_LOWERED]

    @cached_property
    def _better(self) -> list[Tiling]:
        """The best of them after steps that lower their prices, whether room is left or not."""
        return [self._improved(cut, within=False) for cut in self._measured[:2]]

    def _improved(self, cut: Tiling, within: bool) -> Tiling:
        """A cut after steps that lower its price; ``within``: that leave room for several working sets."""
        capacity = self.room(cut)

        def price(tiles: Sequence[int]) -> float:
            fits = not within or self._is_roomy(self.prices.tiling(tiles))
            return self.prices.of(tiles, capacity) if fits else math.inf

        return self.prices.tiling(improved(self.graph, cut.tiles, price, self.blocked, EVALUATIONS))

    def sparing(self, nbytes: float, like: Tiling) -> list[Tiling]:
        """Cuts made to measure that by formula read hardly more than so many bytes, those first that promise most.

        They are made for the room that a cut ``like`` these leaves, and read what they do in the room that their own
        plans leave: of many small tiles a plan is large. The formula errs by a few percent, and more where little is
        left free: cuts that leave a few tiles come before, and only those that read clearly less are what steps to a
        lower price lead to from the first of them.
        """
        capacity = self.room(like)

        def reads(cut: Tiling, most: float) -> bool:
            return self.prices.read_nbytes(cut.tiles, min(capacity, self.room(cut))) <= most * nbytes

        def cost(cut: Tiling) -> float:
            return self.price(cut) + OP_SECONDS * cut.kernel_calls

        def order(cut: Tiling) -> tuple[int, int, int]:
            dearer = int((cost(cut) / least - 1) / AS_DEAR)
            return -min(ROOMY, int(self.prices.free_tiles(cut.tiles, capacity))), dearer, cut.kernel_calls

        def stepped(tiles: Sequence[int]) -> float:
            cut = self.prices.tiling(tiles)
            return cost(cut) if self._is_roomy(cut) and reads(cut, CLEARLY) else math.inf

        made = map(self.prices.tiling, dict.fromkeys(fit_capacity(self.graph, self.way.coarsest.tiles, capacity)))
        found = [c for c in made if self._is_roomy(c) and reads(c, SPARING)]
        least = min(map(self.price, found), default=0.0)
        ordered = sorted((c for c in found if self.price(c) <= HARDLY_DEARER * least), key=order)[:MOST_SPARING]
        steps = (improved(self.graph, c.tiles, stepped, self.blocked, EVALUATIONS) for c in ordered[:1])
        return list(dict.fromkeys([*map(self.prices.tiling, steps), *ordered]))

    def finer(self, but: Sequence[Tiling]) -> Iterator[Tiling]:
        """Ever finer cuts that fit, for when none of the best can be laid out."""
        fitting = self._fitting()
        calls = 0
        for cut in fitting[:-1]:
            if cut.kernel_calls >= 2 * calls and cut not in but:
                calls = cut.kernel_calls
                yield cut
        yield from fitting[-1:]

    def price(self, cut: Tiling) -> float:
        """Seconds by formula. With few working sets in memory, transfers and kernels wait for each other."""
        room = self.room(cut)
        crowding = 0.0 if self.blocked else max(0.0, 1 - room / max(1, cut.working_set) / SETS)
        return self.prices.of(cut.tiles, room) * (1 + CROWDING * crowding)

    def fits(self, cut: Tiling) -> bool:
        """True where the cut's largest working set does."""
        return min_arena(cut) <= self.room(cut)

    def _fitting(self) -> list[Tiling]:
        return [c for c in self.way.all() if self.fits(c)]

    def _is_roomy(self, cut: Tiling) -> bool:
        return cut.kernel_calls <= MOST_CALLS and cut.working_set <= min(
            LARGEST_WORKING_SET, self.room(cut) // LEAST_SETS
        )
