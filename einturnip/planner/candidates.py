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
MIN_SETS = 3
CROWDING = 0.5
# A tile need not be larger for any kernel to run at full rate; smaller ones leave room to overlap.
LARGEST_WORKING_SET = 50 * MIB
MAX_CALLS = 1_000_000
# Cuts of the way to single points that are priced; of all, how many may be lowered and compared.
MAX_PRICED = 10
MAX_LOWERED = 6
# Of bytes that are to be read at most, what cuts that are lowered for that read by formula, and what is clearly less;
# how much dearer than the cheapest they are at most, and by how much as dear; tiles that are left free, of which more
# are of no use; and how many such cuts are lowered.
FEW_READS, FEWER_READS, MAX_EXCESS, EXCESS_STEP = 1.003, 0.99, 1.15, 0.02
MAX_FREE_TILES, MAX_FEWER_READS = 2, 8
# The most kinds of einsum for which I/O blocks are part of the price, and for which cuts are made to measure.
MAX_GROUPS_BLOCKED = 200
MAX_GROUPS_FITTED = 24
# Prices asked for in making one cut to measure.
EVALUATIONS = 60
# Page rounding of a task's operands, result and workspace.
MAX_EXTENTS = 16


def min_arena(tiling: Tiling) -> int:
    """Bytes in which the cut can run: its largest working set, with each extent rounded up."""
    page = granule(tiling.working_set)
    return tiling.working_set + MAX_EXTENTS * page


class LazyTilings:
    """The cuts, found as far as they are asked for."""

    def __init__(self, tilings: Iterator[Tiling]) -> None:
        self._remaining = tilings
        self.coarsest = next(tilings)
        self._found = [self.coarsest]

    def __iter__(self) -> Iterator[Tiling]:
        """Every cut, coarsest first."""
        n = 0
        while n < len(self._found) or self._find_next():
            yield self._found[n]
            n += 1

    def _find_next(self) -> bool:
        tiling = next(self._remaining, None)
        if tiling is not None:
            self._found.append(tiling)
        return tiling is not None

    def all(self) -> Sequence[Tiling]:
        """Every cut, coarsest first."""
        self._found += self._remaining
        return self._found


class TilingCandidates:
    """The cuts that fit: those that should be compared, then ever finer ones.

    A cut whose largest working set fits may fail all the same, for tiles of other nodes that must stay beside it.
    """

    def __init__(
        self,
        graph: EquivalenceClasses,
        tilings: LazyTilings,
        prices: TilingPrices,
        available: Callable[[Tiling], int],
        traffic: TrafficBound | None = None,
    ) -> None:
        self.graph = graph
        self.traffic = traffic or TrafficBound(graph.graph)
        self.tilings = tilings
        self.prices = prices
        self.available = available
        self.blocked = blocked_classes(graph) if len(graph.groups) <= MAX_GROUPS_FITTED else []

    def coarsest_if_best(self, machine: Machine) -> Iterator[Tiling]:
        """The coarsest cut, where nothing could be much better."""
        coarsest_if_best, available = self.tilings.coarsest, self.available(self.tilings.coarsest)
        if coarsest_if_best.working_set * SETS <= available - MAX_EXTENTS * granule(available) and coarsest_is_best(
            self.graph, machine
        ):
            yield coarsest_if_best

    def limited_to(self, capacity: int) -> TilingCandidates:
        """The cuts for at most so many bytes."""
        return TilingCandidates(
            self.graph, self.tilings, self.prices, lambda tiling: min(capacity, self.available(tiling)), self.traffic
        )

    def by_price(self) -> list[Tiling]:
        """The cuts of the way of which several working sets fit, those of the lowest prices."""
        priced = list(islice((c for c in self.tilings if self.fits(c) and self._fits_several(c)), MAX_PRICED))
        if len(self.graph.groups) <= MAX_GROUPS_BLOCKED:
            priced += [t for c in priced for t in thinner(self.graph, c) if t.kernel_calls <= MAX_CALLS]
        return sorted(priced, key=self.price)[:MAX_LOWERED]

    def to_compare(self) -> list[Tiling]:
        """As ``by_price``, and cuts made to measure."""
        found = {c.tiles: c for c in [*self.by_price(), *self._fitted]}
        for tiling, made in zip(self._fitted[:2], self._refined, strict=True):
            if LARGEST_WORKING_SET < made.working_set <= self.available(made) // MIN_SETS:
                # Larger than a tile need be, though memory has room: the best of those that are not.
                made = self._refine(tiling, limited_to=True)
            if self._fits_several(made):
                found[made.tiles] = made
        return sorted(found.values(), key=self.price)[:MAX_LOWERED]

    def roomy_alternatives(self) -> list[Tiling]:
        """Of the cut made to measure the best that leaves room, where the best of all does not."""
        best = zip(self._fitted[:1], self._refined[:1], strict=True)
        tight = [tiling for tiling, better in best if not self._fits_several(better)]
        return [made for tiling in tight if self._fits_several(made := self._refine(tiling, limited_to=True))]

    @cached_property
    def _fitted(self) -> list[Tiling]:
        """Cuts made to measure, the cheapest first, and the best of the way among them."""
        start = self.by_price()[:1] if self.blocked else []
        made = [
            self.prices.tiling(t)
            for tiling in start
            for t in fit_capacity(self.graph, tiling.tiles, self.available(tiling))
        ]
        return sorted([*start, *filter(self._fits_several, made)], key=self.price)[:MAX_LOWERED]

    @cached_property
    def _refined(self) -> list[Tiling]:
        """The best of them after steps that lower their prices, whether room is left or not."""
        return [self._refine(tiling, limited_to=False) for tiling in self._fitted[:2]]

    def _refine(self, tiling: Tiling, limited_to: bool) -> Tiling:
        """A cut after steps that lower its price; ``limited_to``: that leave room for several working sets."""
        capacity = self.available(tiling)

        def price(tiles: Sequence[int]) -> float:
            fits = not limited_to or self._fits_several(self.prices.tiling(tiles))
            return self.prices.of(tiles, capacity) if fits else math.inf

        return self.prices.tiling(improved(self.graph, tiling.tiles, price, self.blocked, EVALUATIONS))

    def with_fewer_reads(self, nbytes: float, similar: Tiling) -> list[Tiling]:
        """Cuts made to measure that by formula read hardly more than so many bytes, those first that promise most.

        They are made for the room that a cut ``similar`` these leaves, and read what they do in the room that their own
        plans leave: of many small tiles a plan is large. The formula errs by a few percent, and more where little is
        left free: cuts that leave a few tiles come before, and only those that read clearly less are what steps to a
        lower price lead to from the first of them.
        """
        capacity = self.available(similar)

        def reads(tiling: Tiling, limit: float) -> bool:
            return self.prices.read_nbytes(tiling.tiles, min(capacity, self.available(tiling))) <= limit * nbytes

        def cost(tiling: Tiling) -> float:
            return self.price(tiling) + OP_SECONDS * tiling.kernel_calls

        def order(tiling: Tiling) -> tuple[int, int, int]:
            excess = int((cost(tiling) / lowest - 1) / EXCESS_STEP)
            return (
                -min(MAX_FREE_TILES, int(self.prices.free_tiles(tiling.tiles, capacity))),
                excess,
                tiling.kernel_calls,
            )

        def stepped(tiles: Sequence[int]) -> float:
            tiling = self.prices.tiling(tiles)
            return cost(tiling) if self._fits_several(tiling) and reads(tiling, FEWER_READS) else math.inf

        made = map(self.prices.tiling, dict.fromkeys(fit_capacity(self.graph, self.tilings.coarsest.tiles, capacity)))
        found = [c for c in made if self._fits_several(c) and reads(c, FEW_READS)]
        lowest = min(map(self.price, found), default=0.0)
        ordered = sorted((c for c in found if self.price(c) <= MAX_EXCESS * lowest), key=order)[:MAX_FEWER_READS]
        steps = (improved(self.graph, c.tiles, stepped, self.blocked, EVALUATIONS) for c in ordered[:1])
        return list(dict.fromkeys([*map(self.prices.tiling, steps), *ordered]))

    def finer_than(self, excluded: Sequence[Tiling]) -> Iterator[Tiling]:
        """Ever finer cuts that fit, for when none of the best can be laid out."""
        fitting = self._fitting()
        calls = 0
        for tiling in fitting[:-1]:
            if tiling.kernel_calls >= 2 * calls and tiling not in excluded:
                calls = tiling.kernel_calls
                yield tiling
        yield from fitting[-1:]

    def price(self, tiling: Tiling) -> float:
        """Seconds by formula. With few working sets in memory, transfers and kernels wait for each other."""
        available = self.available(tiling)
        crowding = 0.0 if self.blocked else max(0.0, 1 - available / max(1, tiling.working_set) / SETS)
        return self.prices.of(tiling.tiles, available) * (1 + CROWDING * crowding)

    def fits(self, tiling: Tiling) -> bool:
        """True where the cut's largest working set does."""
        return min_arena(tiling) <= self.available(tiling)

    def _fitting(self) -> list[Tiling]:
        return [c for c in self.tilings.all() if self.fits(c)]

    def _fits_several(self, tiling: Tiling) -> bool:
        return tiling.kernel_calls <= MAX_CALLS and tiling.working_set <= min(
            LARGEST_WORKING_SET, self.available(tiling) // MIN_SETS
        )
