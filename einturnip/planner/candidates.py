"""Proposes tilings for a budget, best first by formula.

In: the equivalence classes of a graph, prices, and the arena that each tiling leaves. Out: the few tilings that are
worth lowering (``compare``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from einturnip.core.units import UNLIMITED_NBYTES
from einturnip.cost.machine import Machine
from einturnip.memgraph.build import granule
from einturnip.planner.io_lower_bound import TrafficBound
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.price import TilingPrices, coarsest_is_best
from einturnip.tiling.refine import blocked_classes, fit_capacity, improved
from einturnip.tiling.search import Tiling, thinner
from einturnip.tuning.search import (
    COLD_READ_WEIGHT,
    CROWDING,
    EXCESS_STEP,
    FEW_READS,
    FEWER_READS,
    LARGEST_WORKING_SET,
    MAX_CALLS,
    MAX_CLASS_PRICES,
    MAX_EXCESS,
    MAX_EXTENTS,
    MAX_FEWER_READS,
    MAX_FREE_TILES,
    MAX_GROUPS_BLOCKED,
    MAX_GROUPS_FITTED,
    MAX_LOWERED,
    MAX_PRICED,
    MAX_REFINEMENTS,
    MIN_SETS,
    OP_SECONDS,
    SETS,
)


def min_arena(tiling: Tiling) -> int:
    """Return the bytes in which a tiling can run: its largest working set, with each extent rounded up."""
    page = granule(tiling.working_set)
    return tiling.working_set + MAX_EXTENTS * page


class LazyTilings:
    """A sequence of tilings, coarsest first, that is computed on demand."""

    def __init__(self, tilings: Iterator[Tiling]) -> None:
        self._remaining = tilings
        self.coarsest = next(tilings)
        self._found = [self.coarsest]

    def __iter__(self) -> Iterator[Tiling]:
        """Yield every tiling, coarsest first."""
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
        """Return every tiling, coarsest first."""
        self._found += self._remaining
        return self._found


class TilingCandidates:
    """The tilings that fit a budget: those worth comparing, then finer and finer ones.

    A tiling whose largest working set fits may still fail, if tiles of other nodes have to stay in memory at the same
    time.

    ``available``: returns the arena bytes that the budget leaves for a tiling.
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
        """Yield the coarsest tiling if no finer one could be much faster."""
        coarsest, available = self.tilings.coarsest, self.available(self.tilings.coarsest)
        if coarsest.working_set * SETS <= available - MAX_EXTENTS * granule(available) and coarsest_is_best(
            self.graph, machine
        ):
            yield coarsest

    @property
    def min_moved_nbytes(self) -> float:
        """Bytes moved by a plan that moves each byte of the files once."""
        return sum(self.traffic.blocked_nbytes(UNLIMITED_NBYTES))

    @property
    def classes(self) -> int:
        """Equivalence classes of einsums, whose kernels are priced for each plan."""
        return len(self.graph.groups)

    def min_cost(self, tiling: Tiling) -> float:
        """Return a lower bound of the cost of a tiling's plan by formula: its kernels, and bytes moved once."""
        read, written = self.traffic.blocked_nbytes(UNLIMITED_NBYTES)
        bandwidth = self.prices.machine.read_bandwidth
        seconds = max(self.prices.computing_seconds(tiling.tiles), read / bandwidth)
        return seconds + COLD_READ_WEIGHT * (read + written) / bandwidth

    def limited_to(self, capacity: int) -> TilingCandidates:
        """Return the candidates for an arena of at most ``capacity`` bytes."""
        return TilingCandidates(
            self.graph, self.tilings, self.prices, lambda tiling: min(capacity, self.available(tiling)), self.traffic
        )

    def by_price(self) -> list[Tiling]:
        """Return the cheapest tilings of the sequence that leave memory for several working sets."""
        limit = max(1, min(MAX_PRICED, MAX_CLASS_PRICES // max(1, len(self.graph.groups))))
        priced = list(islice((c for c in self.tilings if self.fits(c) and self._fits_several(c)), limit))
        if len(self.graph.groups) <= MAX_GROUPS_BLOCKED:
            priced += [t for c in priced for t in thinner(self.graph, c) if t.kernel_calls <= MAX_CALLS]
        return sorted(priced, key=self.price)[:MAX_LOWERED]

    def to_compare(self) -> list[Tiling]:
        """Return the cheapest of ``by_price`` and of the tilings fitted to the memory."""
        found = {c.tiles: c for c in [*self.by_price(), *self._fitted]}
        for tiling, made in zip(self._fitted[:2], self._refined, strict=True):
            if LARGEST_WORKING_SET < made.working_set <= self.available(made) // MIN_SETS:
                # The tile is larger than kernels need; take the best of the smaller ones instead.
                made = self._refine(tiling, several_fit=True)
            if self._fits_several(made):
                found[made.tiles] = made
        return sorted(found.values(), key=self.price)[:MAX_LOWERED]

    def roomy_alternatives(self) -> list[Tiling]:
        """Return the best fitted tiling with memory for several working sets, if the best of all has not."""
        best = zip(self._fitted[:1], self._refined[:1], strict=True)
        tight = [tiling for tiling, better in best if not self._fits_several(better)]
        return [made for tiling in tight if self._fits_several(made := self._refine(tiling, several_fit=True))]

    @cached_property
    def _fitted(self) -> list[Tiling]:
        """The tilings fitted to the memory and the best of the sequence, cheapest first."""
        start = self.by_price()[:1] if self.blocked else []
        made = [
            self.prices.tiling(t)
            for tiling in start
            for t in fit_capacity(self.graph, tiling.tiles, self.available(tiling))
        ]
        return sorted([*start, *filter(self._fits_several, made)], key=self.price)[:MAX_LOWERED]

    @cached_property
    def _refined(self) -> list[Tiling]:
        """The two best fitted tilings after steps that lower their prices."""
        return [self._refine(tiling, several_fit=False) for tiling in self._fitted[:2]]

    def _refine(self, tiling: Tiling, several_fit: bool) -> Tiling:
        """Return a tiling after steps that lower its price; ``several_fit``: several working sets must fit."""
        capacity = self.available(tiling)

        def price(tiles: Sequence[int]) -> float:
            fits = not several_fit or self._fits_several(self.prices.tiling(tiles))
            return self.prices.of(tiles, capacity) if fits else math.inf

        return self.prices.tiling(improved(self.graph, tiling.tiles, price, self.blocked, MAX_REFINEMENTS))

    def with_fewer_reads(self, nbytes: float, similar: Tiling) -> list[Tiling]:
        """Return fitted tilings that by formula read at most about ``nbytes``, most promising first.

        They are fitted to the arena that is available for the tiling ``similar``. Their reads are computed for the
        arena that their own plans leave, since plans with many small tiles are large. The formula errs by a few
        percent, and by more if little memory is free. So tilings with memory for a few more tiles come first, and the
        refinement of the first of them is accepted only if it reads clearly less.
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
        steps = (improved(self.graph, c.tiles, stepped, self.blocked, MAX_REFINEMENTS) for c in ordered[:1])
        return list(dict.fromkeys([*map(self.prices.tiling, steps), *ordered]))

    def finer_than(self, excluded: Sequence[Tiling]) -> Iterator[Tiling]:
        """Yield finer and finer tilings that fit, for the case that none of the ``excluded`` could be placed."""
        fitting = self._fitting()
        calls = 0
        for tiling in fitting[:-1]:
            if tiling.kernel_calls >= 2 * calls and tiling not in excluded:
                calls = tiling.kernel_calls
                yield tiling
        yield from fitting[-1:]

    def price(self, tiling: Tiling) -> float:
        """Return the seconds by formula.

        If few working sets fit, transfers and kernels wait for each other, which costs up to CROWDING of the time.
        """
        available = self.available(tiling)
        crowding = 0.0 if self.blocked else max(0.0, 1 - available / max(1, tiling.working_set) / SETS)
        return self.prices.of(tiling.tiles, available) * (1 + CROWDING * crowding)

    def fits(self, tiling: Tiling) -> bool:
        """Return whether the largest working set of a tiling fits."""
        return min_arena(tiling) <= self.available(tiling)

    def _fitting(self) -> list[Tiling]:
        return [c for c in self.tilings.all() if self.fits(c)]

    def _fits_several(self, tiling: Tiling) -> bool:
        return tiling.kernel_calls <= MAX_CALLS and tiling.working_set <= min(
            LARGEST_WORKING_SET, self.available(tiling) // MIN_SETS
        )
