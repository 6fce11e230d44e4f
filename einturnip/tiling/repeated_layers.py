"""Solves repeated layers of a graph once, by matrix powers in the (min, +) semiring.

A run of equal segments becomes one term between its inputs and outputs. In one segment everything is eliminated except
the tensors that pass to the next segment (and those that all segments read). That leaves a matrix: the cost of the
segment for each tiling of its inputs and outputs. The cost of n segments is its n-th power in the (min, +) semiring,
computed by repeated squaring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, pairwise

import numpy as np

from einturnip.tiling.cost_terms import CostTerms
from einturnip.tiling.elimination import CostFactor, Elimination, MinSumProblem, Table, VariableView
from einturnip.tiling.repeats import RepeatedRun
from einturnip.tuning.search import LARGEST_TABLE, MAX_LAYER_OPERATIONS, MINIMISED_AT_ONCE


@dataclass
class FoldedLayers:
    """All segments of a run as one term, or all but the first.

    ``table``: the cost of one segment by the tilings of the outer tensors, of its inputs and of its outputs; ``step``
    is the same with outputs as readers see them, and each of the three as one axis. ``shapes``: the number of tilings
    of the three. The first segment's inputs may have other tilings than its outputs, so the input axis is longer,
    outputs' tilings first; ``entry`` gives the position of the others.
    """

    run: RepeatedRun
    times: int
    work: Elimination
    table: Table
    step: Table
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    entry: list[Table]
    seen: list[Table]
    first: int
    scope: tuple[VariableView, ...] = ()

    @property
    def start(self) -> int:
        """The first node of the term."""
        return self.run.stop - self.times * self.run.period

    def enter(self, problem: MinSumProblem, at: dict[int, VariableView]) -> None:
        """Add the term to a problem: the outputs of the last segment become variables."""
        run = self.run
        scope = [at[u] for u in run.outer]
        for q, rows in zip(run.passed_on, self.entry, strict=True):
            view = at[self.start - run.period + q]
            scope.append(problem.view(view.variable, rows[problem.views[view.number]]))
        for q, n in zip(run.passed_on, self.shapes[2], strict=True):
            view = problem.view(problem.variable(np.zeros(n)), np.arange(n))
            at[run.stop - run.period + q] = view
            scope.append(view)
        self.scope = tuple(scope)
        table = _product(self.step, self._rest)
        problem.factors.append(CostFactor(self.scope, table.reshape([n for shape in self.shapes for n in shape])))

    @cached_property
    def _rest(self) -> Table:
        """Return the cost of all segments but the first."""
        return min_plus_power(self._inner, self.times - 1)

    @property
    def _inner(self) -> Table:
        """Return ``step`` of a segment whose inputs come from another segment."""
        outer, into, out = self.shapes
        some = (slice(None), *(slice(n) for n in out), slice(None))
        return self.step.reshape(-1, *into, math.prod(out))[some].reshape(-1, math.prod(out), math.prod(out))

    def rows(self, problem: MinSumProblem, chosen: list[int]) -> list[int]:
        """Return the candidate of every node of the segments, given the values of the problem's variables."""
        values = iter([int(problem.views[view.number][chosen[view.variable]]) for view in self.scope])
        outer, entering, leaving = (list(islice(values, len(shape))) for shape in self.shapes)
        e, start, stop = (
            int(np.ravel_multi_index(x, shape)) if shape else 0
            for x, shape in zip((outer, entering, leaving), self.shapes, strict=True)
        )
        inner = self._inner[e]
        path = cheapest_path(inner, int(np.argmin(self.step[e, start] + self._rest[e, :, stop])), stop, self.times - 1)
        solved: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        found = []
        for key in pairwise([tuple(entering), *(self._cuts(state) for state in path)]):
            if key not in solved:
                solved[key] = self._segment(tuple(outer), *key)
            found += solved[key]
        return found

    def _cuts(self, state: int) -> tuple[int, ...]:
        """Return the tiling of each tensor that is passed on."""
        return tuple(int(i) for i in np.unravel_index(state, self.shapes[2])) if self.shapes[2] else ()

    def _segment(self, outer: tuple[int, ...], entering: tuple[int, ...], leaving: tuple[int, ...]) -> list[int]:
        """Return the candidates of one segment's nodes, given the views of its inputs and outputs."""
        costs = self.table[(*outer, *entering)]
        for axis, (of, row) in enumerate(zip(self.seen, leaving, strict=True)):
            other = (of != row).reshape([-1 if a == axis else 1 for a in range(costs.ndim)])
            costs = np.where(other, np.inf, costs)
        best = np.unravel_index(int(np.argmin(costs)), costs.shape)
        kept = dict(enumerate(outer + entering))
        kept |= {self.first + q: int(row) for q, row in zip(self.run.passed_on, best, strict=True)}
        return self.work.chosen(kept)[self.first :]


def fold_layers(terms: CostTerms, run: RepeatedRun) -> FoldedLayers | None:
    """Return a run's segments as one term; None if its table is too large."""
    problem = MinSumProblem(memory=terms.memory)
    at: dict[int, VariableView] = {}
    times, entries = run.times, _entries(terms, run)
    if entries is None:  # the first segment is not part of the term
        times, own = run.times - 1, [terms.kinds[run.start + q] for q in run.passed_on]
        entries = [terms.merged_kind(kind, kind) for kind in own]
    if times < 2:
        return None
    into = {run.start + q: kind for q, (kind, _) in zip(run.passed_on, entries, strict=True)}
    for u in (*run.outer, *into):
        rows = len(terms.every[into.get(u, terms.kinds[u])].made.counts)
        at[u] = problem.view(problem.variable(np.zeros(rows)), np.arange(rows))
    n_before, n_outer = len(at), len(run.outer)
    entry = [rows for _, rows in entries]
    second = run.start + run.period
    for v in range(second, second + run.period):
        terms.enter(problem, v, at, into)
    sizes = [len(u) for u in problem.unary[:n_before]]
    seen = [terms.candidates_of(second + q).made.of for q in run.passed_on]
    shapes = tuple(sizes[:n_outer]), tuple(sizes[n_outer:]), tuple(int(of.max()) + 1 for of in seen)
    e, n, m = (math.prod(shape) for shape in shapes)
    if e * n * m > LARGEST_TABLE or e * n * m * m > MAX_LAYER_OPERATIONS:
        return None
    keep = [*range(n_before), *(n_before + q for q in run.passed_on)]
    work = Elimination(problem)
    table = work.left(keep) if work.run(frozenset(keep)) else None
    if table is None:
        return None
    step = table
    for axis, of in enumerate(seen, n_before):
        step = np.stack([step.compress(of == row, axis).min(axis) for row in range(int(of.max()) + 1)], axis)
    return FoldedLayers(run, times, work, table, step.reshape(e, n, m), shapes, entry, seen, n_before)


def _entries(terms: CostTerms, run: RepeatedRun) -> list[tuple[int, Table]] | None:
    """Return for each tensor passed on a kind that also has the candidates of its source before the run.

    Also returns where those are among the candidates. None if a source has another shape.
    """
    found = []
    for q in run.passed_on:
        u = run.start - run.period + q
        if u < 0 or u in run.outer:
            return None
        kind, rows = terms.merged_kind(terms.kinds[run.start + q], terms.kinds[u])
        if kind < 0:
            return None
        found.append((kind, rows))
    return found


def min_plus_power(step: Table, times: int) -> Table:
    """Return the cheapest path costs of ``times`` steps from each state to each, for each e of step[e]."""
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
    """Multiply matrices in the (min, +) semiring."""
    out = np.empty_like(a)
    rows = max(1, MINIMISED_AT_ONCE // (a.shape[1] * a.shape[2]))
    for e in range(len(a)):
        for lo in range(0, a.shape[1], rows):
            out[e, lo : lo + rows] = (a[e, lo : lo + rows, :, None] + b[e, None]).min(1)
    return out


def cheapest_path(step: Table, start: int, stop: int, times: int) -> list[int]:
    """Return the states of a cheapest path of ``times`` steps between two states, both included."""
    costs = {1: step}

    def cost(n: int) -> Table:
        if n not in costs:
            costs[n] = _product(cost(n // 2)[None], cost(n - n // 2)[None])[0]
        return costs[n]

    @cache
    def path(start: int, stop: int, n: int) -> tuple[int, ...]:
        if n == 1:
            return (stop,)
        half = n // 2
        middle = int(np.argmin(cost(half)[start] + cost(n - half)[:, stop]))
        return path(start, middle, half) + path(middle, stop, n - half)

    return [start, *path(start, stop, times)]
