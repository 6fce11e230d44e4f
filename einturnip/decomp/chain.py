"""Layers that repeat are solved once: a run of alike segments as one term between what goes in and what comes out.

Of one segment everything is eliminated but the tensors that pass from one segment to the next (and those that all of
them read). That leaves a matrix: what the segment costs, given how its tensors come in and go out. A run of n segments
costs the n-th power of it where products are sums and sums are minima, found by repeated squaring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from einturnip.decomp.elimination import AT_ONCE, LARGEST_TABLE, Elimination, Factor, Problem, Table, View
from einturnip.decomp.repeats import Run
from einturnip.decomp.terms import Terms

# Steps of one product of matrices.
MOST_STEPS = 1 << 26


@dataclass
class Fold:
    """All segments of a run as one term, or all but the first.

    ``table``: the cost of one segment by how the outer tensors, those handed in and those handed on are cut, the last
    by way; ``step`` is the same with the last by what readers see of the way, and each of the three as one axis.
    """

    run: Run
    times: int
    work: Elimination
    table: Table
    step: Table
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    seen: list[Table]
    first: int
    scope: tuple[View, ...] = ()

    @property
    def start(self) -> int:
        """The first node of the term."""
        return self.run.stop - self.times * self.run.period

    def enter(self, problem: Problem, at: dict[int, View]) -> None:
        """Add the term to a problem: what the last segment hands on becomes variables."""
        run = self.run
        outer = [at[u] for u in run.outer]
        entry = [at[self.start - run.period + q] for q in run.handed]
        ways = []
        for q, n in zip(run.handed, self.shapes[1], strict=True):
            view = problem.view(problem.variable(np.zeros(n)), np.arange(n))
            at[run.stop - run.period + q] = view
            ways.append(view)
        self.scope = (*outer, *entry, *ways)
        table = power(self.step, self.times).reshape(self.shapes[0] + self.shapes[1] * 2)
        problem.factors.append(Factor(self.scope, table))

    def rows(self, problem: Problem, chosen: list[int]) -> list[int]:
        """The row of its way for every node of the segments, where the problem's variables have these values."""
        values = [int(problem.views[view.number][chosen[view.variable]]) for view in self.scope]
        n, m = len(self.shapes[0]), len(self.shapes[1])
        outer, entry, end = values[:n], values[n : n + m], values[n + m :]
        e, start, stop = (
            int(np.ravel_multi_index(x, shape)) if shape else 0
            for x, shape in zip((outer, entry, end), (*self.shapes, self.shapes[1]), strict=True)
        )
        way = path(self.step[e], start, stop, self.times)
        solved = {key: self._segment(outer, *key) for key in set(pairwise(way))}
        return [row for key in pairwise(way) for row in solved[key]]

    def _segment(self, outer: list[int], come: int, gone: int) -> list[int]:
        """The rows of one segment's nodes, given what comes in and how what goes out is seen."""
        into = [int(i) for i in np.unravel_index(come, self.shapes[1])] if self.shapes[1] else []
        out = np.unravel_index(gone, self.shapes[1]) if self.shapes[1] else ()
        costs = self.table[(*outer, *into)]
        for axis, (of, row) in enumerate(zip(self.seen, out, strict=True)):
            other = (of != row).reshape([-1 if a == axis else 1 for a in range(costs.ndim)])
            costs = np.where(other, np.inf, costs)
        best = np.unravel_index(int(np.argmin(costs)), costs.shape)
        kept = dict(enumerate(outer + into))
        kept |= {self.first + q: int(row) for q, row in zip(self.run.handed, best, strict=True)}
        return self.work.chosen(kept)[self.first :]


def fold(terms: Terms, run: Run) -> Fold | None:
    """A run's segments as one term; None where that takes too large a table."""
    problem = Problem(memory=terms.memory)
    at: dict[int, View] = {}
    for u in (*run.outer, *(run.start + q for q in run.handed)):
        rows = len(terms.ways(u).made.counts)
        at[u] = problem.view(problem.variable(np.zeros(rows)), np.arange(rows))
    n_before, n_outer = len(at), len(run.outer)
    second = run.start + run.period
    for v in range(second, second + run.period):
        terms.enter(problem, v, at)
    keep = [*range(n_before), *(n_before + q for q in run.handed)]
    sizes = [len(u) for u in problem.unary[:n_before]]
    outer, handed = tuple(sizes[:n_outer]), tuple(sizes[n_outer:])
    e, n = math.prod(outer), math.prod(handed)
    if e * n * n > LARGEST_TABLE or e * n**3 > MOST_STEPS:
        return None
    work = Elimination(problem)
    table = work.left(keep) if work.run(frozenset(keep)) else None
    if table is None:
        return None
    seen = [terms.ways(second + q).made.of for q in run.handed]
    step = table
    for axis, of in enumerate(seen, n_before):
        step = np.stack([step.compress(of == row, axis).min(axis) for row in range(int(of.max()) + 1)], axis)
    times = run.times - (not _enters_alike(terms, run))
    return Fold(run, times, work, table, step.reshape(e, n, n), (outer, handed), seen, n_before)


def _enters_alike(terms: Terms, run: Run) -> bool:
    """True where what stands before the run is made in the same ways as what its segments hand on."""
    before = [run.start - run.period + q for q in run.handed]
    return all(
        u >= 0 and u not in run.outer and terms.ways(u).alike(terms.ways(run.start + q))
        for u, q in zip(before, run.handed, strict=True)
    )


def power(step: Table, times: int) -> Table:
    """The cheapest ways of so many steps from each state to each: of step[e] for each e."""
    result = None
    while times:
        if times & 1:
            result = step if result is None else _product(result, step)
        times >>= 1
        if times:
            step = _product(step, step)
    assert result is not None
    return result


def _product(a: Table, b: Table) -> Table:
    """Matrix products of minima of sums."""
    out = np.empty_like(a)
    rows = max(1, AT_ONCE // (a.shape[1] * a.shape[2]))
    for e in range(len(a)):
        for lo in range(0, a.shape[1], rows):
            out[e, lo : lo + rows] = (a[e, lo : lo + rows, :, None] + b[e, None]).min(1)
    return out


def path(step: Table, start: int, stop: int, times: int) -> list[int]:
    """The states of a cheapest way of so many steps from one state to another, both included."""
    costs = {1: step}

    def cost(n: int) -> Table:
        if n not in costs:
            costs[n] = _product(cost(n // 2)[None], cost(n - n // 2)[None])[0]
        return costs[n]

    @cache
    def way(start: int, stop: int, n: int) -> tuple[int, ...]:
        if n == 1:
            return (stop,)
        half = n // 2
        middle = int(np.argmin(cost(half)[start] + cost(n - half)[:, stop]))
        return way(start, middle, half) + way(middle, stop, n - half)

    return [start, *way(start, stop, times)]
