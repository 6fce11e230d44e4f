"""SwapAdvisor: a genetic search over the choice and timing of swaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offload_policies.ahead_of_time import AheadOfTimePolicy, UseGap, gaps, idle_seconds
from offload_policies.types import AccessTrace

POPULATION = 24
GENERATIONS = 30
LEADS = (1.0, 2.0, 4.0, 8.0)  # multiples of a transfer's own time by which it is issued early


class SwapAdvisor(AheadOfTimePolicy):
    """Choice of gaps and lead times by a genetic algorithm over a small simulation.

    Modelled: genes for swaps and for their timing, crossover, mutation, selection by simulated time. Not modelled:
    genes for the order of the operators and for memory pools, since all policies here share order and placement.
    Source: Huang, Jin, Li, SwapAdvisor (ASPLOS 2020).
    """

    name = "swapadvisor"

    def choose(self) -> None:
        """Search, then swap according to the best genome."""
        found = [g for g in gaps(self.trace) if idle_seconds(self.trace, g) > 0 or g.before - g.after > 2]
        if self.over() <= 0 or not found:
            return
        for gap, gene in zip(found, _Search(self, found).run().tolist(), strict=True):
            if gene:
                self.swap(gap, self.lead(gap, LEADS[gene - 1] * self.back_seconds(gap)))

    def back_seconds(self, gap: UseGap) -> float:
        """Seconds of the return."""
        return self.trace.fetch_seconds(self.trace.size[gap.value], self.trace.spill)


class _Search:
    """A gene for each gap: 0 if the value stays, else 1 + the number of its lead."""

    def __init__(self, policy: SwapAdvisor, found: list[UseGap]) -> None:
        self.trace: AccessTrace = policy.trace
        self.gaps = found
        self.held = policy.held
        self.rng = np.random.default_rng(0)
        self.out = np.array([self.trace.offload_seconds(self.trace.size[g.value], self.trace.spill) for g in found])
        self.back = np.array([policy.back_seconds(g) for g in found])
        self.size = np.array([self.trace.size[g.value] for g in found], np.int64)
        self.after = np.array([g.after for g in found])
        self.before = np.array([g.before for g in found])
        self.issue = np.array([[policy.lead(g, x * policy.back_seconds(g)) for x in LEADS] for g in found])

    def run(self) -> NDArray[np.int64]:
        """The best genome of all generations."""
        idle = np.array([idle_seconds(self.trace, g) for g in self.gaps]) > self.out + self.back
        people = [np.where(self.rng.random(len(idle)) < p, 1 + (~idle).astype(int), 0) for p in np.linspace(0, 1, 12)]
        people += [self.rng.integers(0, len(LEADS) + 1, len(idle)) for _ in range(POPULATION - len(people))]
        scored = sorted(((self._seconds(p), n, p) for n, p in enumerate(people)), key=lambda s: s[:2])
        for _ in range(GENERATIONS):
            parents = [p for _, _, p in scored[: POPULATION // 2]]
            children = [self._child(parents) for _ in range(POPULATION // 2)]
            scored += [(self._seconds(c), len(scored) + n, c) for n, c in enumerate(children)]
            scored = sorted(scored, key=lambda s: s[:2])[:POPULATION]
            scored = [(seconds, n, p) for n, (seconds, _, p) in enumerate(scored)]
        return np.asarray(scored[0][2], np.int64)

    def _child(self, parents: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        a, b = (parents[i] for i in self.rng.integers(0, len(parents), 2))
        cut = sorted(self.rng.integers(0, len(a) + 1, 2).tolist())
        child = np.concatenate([a[: cut[0]], b[cut[0] : cut[1]], a[cut[1] :]])
        changed = self.rng.random(len(child)) < 2.0 / len(child)
        child[changed] = self.rng.integers(0, len(LEADS) + 1, int(changed.sum()))
        return child

    def _seconds(self, genome: NDArray[np.int64]) -> float:
        """Kernels in sequence, transfers in order on two links; values that do not fit cost a round trip."""
        trace = self.trace
        swapped = np.flatnonzero(genome)
        issue = self.issue[swapped, genome[swapped] - 1]
        change = np.zeros(len(trace) + 1, np.int64)
        np.add.at(change, self.after[swapped] + 1, self.size[swapped])
        np.add.at(change, np.maximum(issue, self.after[swapped] + 1), -self.size[swapped])
        over = np.maximum(0, self.held - np.cumsum(change)[:-1] - trace.budgets.device)
        begins = np.asarray(trace.begins)
        # Offloads leave in the order of their uses; returns in the order of their issue, after their offload.
        left = _queue(begins[self.after[swapped] + 1], self.out[swapped])
        order = np.argsort(issue, kind="stable")
        ready = np.maximum(begins[issue[order]], left[order])
        arrived = _queue(ready, self.back[swapped][order])
        late = float(np.maximum(0.0, arrived - begins[self.before[swapped][order]]).max(initial=0.0))
        forced = float(np.maximum(0, np.diff(over, prepend=0)).sum())
        link = trace.round_trip(self.gaps[0].value) / max(1, trace.size[self.gaps[0].value])
        return float(begins[-1]) + late + forced * link


def _queue(ready: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """End of each of several transfers in order on one link: a max-plus prefix."""
    total = np.cumsum(seconds)
    ends: NDArray[np.float64] = np.maximum.accumulate(ready - (total - seconds)) + total
    return ends
