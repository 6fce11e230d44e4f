"""Variable elimination: chooses values that minimise a sum of terms of few variables (min-sum).

Source: Bertele and Brioschi, Nonserial Dynamic Programming (1972).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.tuning.search import LARGEST_TABLE, MINIMISED_AT_ONCE

Table = NDArray[Any]


class VariableView(NamedTuple):
    """A variable as a term sees it: ``of`` maps each of its values to a row of the term's table."""

    variable: int
    number: int


@dataclass(frozen=True)
class CostFactor:
    """A term: a table with one axis per view, no two of one variable."""

    scope: tuple[VariableView, ...]
    table: Table


@dataclass
class EliminationCache:
    """Results of eliminations, keyed by their inputs, so that equivalent subproblems are solved once.

    Tables are keyed by identity and kept alive, so that their ids are not reused; views by content: number and count of
    distinct rows (``known``: by identity too).
    """

    contents: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    known: dict[int, tuple[Table, tuple[int, int]]] = field(default_factory=dict)
    found: dict[Hashable, tuple[Table, tuple[Table, ...], object]] = field(default_factory=dict)


@dataclass
class MinSumProblem:
    """Variables with the cost of each value, and terms of several variables, added one by one."""

    unary: list[Table] = field(default_factory=list)
    factors: list[CostFactor] = field(default_factory=list)
    views: list[Table] = field(default_factory=list)
    contents: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    memory: EliminationCache = field(default_factory=EliminationCache)
    _known: dict[tuple[int, int], VariableView] = field(default_factory=dict)

    def variable(self, unary: Table) -> int:
        """Add a variable."""
        self.unary.append(unary)
        return len(self.unary) - 1

    def view(self, variable: int, of: Table) -> VariableView:
        """Return the view in which value x of a variable is row ``of[x]``; equal views are shared."""
        memory = self.memory
        if id(of) not in memory.known:
            written, contents = of.tobytes(), memory.contents
            if written not in contents:
                contents[written] = len(contents), int(of.max(initial=0)) + 1
            memory.known[id(of)] = of, contents[written]
        content, rows = memory.known[id(of)][1]
        key = variable, content
        if key not in self._known:
            self._known[key] = VariableView(variable, len(self.views))
            self.views.append(of)
            self.contents.append(content)
            self.rows.append(rows)
        return self._known[key]


def minimise(problem: MinSumProblem) -> list[int]:
    """Return the best value of every variable: exact while tables stay small, else a local optimum."""
    work = Elimination(problem)
    exact = work.run()
    chosen = work.chosen({})
    return chosen if exact else _improve(problem, chosen)


class Elimination:
    """The remaining terms by variable while variables are eliminated."""

    def __init__(self, problem: MinSumProblem) -> None:
        self.problem = problem
        self.unary = list(problem.unary)
        self.touching: list[list[CostFactor]] = [[] for _ in problem.unary]
        for f in problem.factors:
            self._add(f)
        self.undone: list[tuple[int, Table, list[CostFactor]]] = []
        self.fixed: dict[int, int] = {}

    def run(self, keep: frozenset[int] = frozenset()) -> bool:
        """Eliminate all variables but ``keep``, cheapest first; return False if one was guessed."""
        left = set(range(len(self.unary))) - keep
        sizes = {x: self._table_size(x) for x in left}
        queue = [(added, x) for x, (added, _) in sizes.items()]
        heapify(queue)
        exact = True
        while left:
            added, x = heappop(queue)
            if x not in left or added != sizes[x][0]:
                continue
            large = sizes[x][1] > LARGEST_TABLE
            if large and (fits := [(*sizes[v], v) for v in left if sizes[v][1] <= LARGEST_TABLE]):
                heappush(queue, (added, x))
                large, x = False, min(fits)[2]
            elif large:
                exact = False
                heappush(queue, (added, x))
                x = max(left, key=lambda v: (len(self._neighbours(v)), -v))
            near = self._neighbours(x) & left
            left.discard(x)
            if large:
                self._fix(x)
            else:
                self._eliminate(x)
            for y in near:
                sizes[y] = self._table_size(y)
                heappush(queue, (sizes[y][0], y))
        return exact

    def chosen(self, kept: Mapping[int, int]) -> list[int]:
        """Return the values by back-substitution, given the values of the kept variables."""
        values = {**self.fixed, **kept}
        for x, unary, terms in reversed(self.undone):
            cost = unary + sum((_row(self.problem, f, x, values) for f in terms), 0.0)
            values[x] = int(np.argmin(cost))
        return [values[v] for v in range(len(self.unary))]

    def left(self, keep: Sequence[int]) -> Table | None:
        """Return the remaining cost as a table with one axis per kept variable; None if it is too large."""
        sizes = [len(self.unary[x]) for x in keep]
        if math.prod(sizes) > LARGEST_TABLE:
            return None
        table = np.zeros(sizes)
        for axis, x in enumerate(keep):
            table += self.unary[x].reshape([-1 if a == axis else 1 for a in range(len(keep))])
        for f in {id(f): f for x in keep for f in self.touching[x]}.values():
            order = sorted(f.scope, key=lambda view: keep.index(view.variable))
            term = f.table.transpose([f.scope.index(view) for view in order])
            for k, view in enumerate(order):
                term = term.take(self.problem.views[view.number], axis=k)
            present = {view.variable for view in order}
            table += term.reshape([n if x in present else 1 for x, n in zip(keep, sizes, strict=True)])
        return table

    def _add(self, f: CostFactor) -> None:
        """Add a term; a term of one variable is added to its own cost."""
        if any(self.problem.rows[view.number] == 1 for view in f.scope):
            f = self._without_constants(f)
        if len(f.scope) == 1:
            own, unary = f.scope[0], self.unary[f.scope[0].variable]
            memory = self.problem.memory.found
            key = id(unary), id(f.table), self.problem.contents[own.number]
            if key not in memory:
                memory[key] = unary + f.table[self.problem.views[own.number]], (), (unary, f.table)
            self.unary[own.variable] = memory[key][0]
        elif f.scope:
            for view in f.scope:
                self.touching[view.variable].append(f)

    def _without_constants(self, f: CostFactor) -> CostFactor:
        """Return the term without the variables for which its table has a single row.

        NumPy's arrays have at most 64 axes.
        """
        rows, memory = self.problem.rows, self.problem.memory.found
        kept = tuple(a for a, view in enumerate(f.scope) if rows[view.number] > 1)
        key = id(f.table), kept
        if key not in memory:
            memory[key] = f.table.reshape([f.table.shape[a] for a in kept]), (), (f.table,)
        return CostFactor(tuple(f.scope[a] for a in kept), memory[key][0])

    def _take(self, x: int) -> list[CostFactor]:
        """Remove and return the terms with ``x``."""
        mine = self.touching[x]
        for f in mine:
            for view in f.scope:
                if view.variable != x:
                    self.touching[view.variable] = [g for g in self.touching[view.variable] if g is not f]
        self.touching[x] = []
        return mine

    def _neighbours(self, x: int) -> set[int]:
        return {view.variable for f in self.touching[x] for view in f.scope} - {x}

    def _scope(self, x: int, factors: list[CostFactor]) -> dict[int, set[VariableView]]:
        scope: dict[int, set[VariableView]] = {}
        for f in factors:
            for view in f.scope:
                if view.variable != x:
                    scope.setdefault(view.variable, set()).add(view)
        return scope

    def _table_size(self, x: int) -> tuple[int, int]:
        """Return the entries that eliminating ``x`` adds to all tables, and those of the table it makes."""
        rows, sizes = self.problem.rows, dict[int, int]()
        for v, number in {view for f in self.touching[x] for view in f.scope}:
            sizes[v] = sizes.get(v, 1) * rows[number]
        made = math.prod([min(len(self.unary[v]), size) for v, size in sizes.items() if v != x])
        return made - sum([f.table.size for f in self.touching[x]]), made

    def _eliminate(self, x: int) -> None:
        """Replace the terms with ``x`` by their minimum over its values."""
        mine, unary = self._take(x), self.unary[x]
        self.undone.append((x, unary, mine))
        if not mine:
            return
        scope = self._scope(x, mine)
        local = {v: k for k, v in enumerate(scope)}
        contents = self.problem.contents
        key = (
            id(unary),
            tuple((id(f.table), tuple((local.get(w.variable, -1), contents[w.number]) for w in f.scope)) for f in mine),
        )
        memory = self.problem.memory.found
        if key not in memory:
            best, views = self._minimum(x, unary, mine, scope)
            memory[key] = best, tuple(self.problem.views[view.number] for view in views), (unary, mine)
        best, seen, _ = memory[key]
        self._add(CostFactor(tuple(self.problem.view(v, of) for v, of in zip(scope, seen, strict=True)), best))

    def _minimum(
        self, x: int, unary: Table, mine: list[CostFactor], scope: dict[int, set[VariableView]]
    ) -> tuple[Table, list[VariableView]]:
        """Return the minimum of the sum of terms over the values of ``x``, and its views of other variables."""
        merged = {v: _merge(self.problem, v, sorted(views, key=lambda w: w.number)) for v, views in scope.items()}
        axes = {v: a for a, v in enumerate(merged)}
        rows = [self.problem.rows[view.number] for view, _ in merged.values()]
        best = _min_sum(unary, [_align(self.problem, f, x, merged, axes) for f in mine], rows)
        return best, [view for view, _ in merged.values()]

    def _fix(self, x: int) -> None:
        """Fix ``x`` to the value that is best if each other variable could adapt to it alone."""
        mine = self._take(x)
        cost = self.unary[x].copy()
        for f in mine:
            axis = next(a for a, view in enumerate(f.scope) if view.variable == x)
            others = tuple(a for a in range(f.table.ndim) if a != axis)
            cost = cost + f.table.min(axis=others)[self.problem.views[f.scope[axis].number]]
        self.fixed[x] = value = int(np.argmin(cost))
        for f in mine:
            axis = next(a for a, view in enumerate(f.scope) if view.variable == x)
            row = int(self.problem.views[f.scope[axis].number][value])
            self._add(CostFactor(f.scope[:axis] + f.scope[axis + 1 :], f.table.take(row, axis=axis)))


def _min_sum(unary: Table, terms: list[tuple[Table, Table]], rows: list[int]) -> Table:
    """Return the minimum over x of unary[x] + the sum of table[of[x]]; a table with ``rows``."""
    best, unary = np.full(rows, np.inf), unary.reshape(-1, *[1] * len(rows))
    terms = sorted(terms, key=lambda term: term[1].size)  # sums of small tables stay small
    block = max(1, MINIMISED_AT_ONCE // math.prod(rows[1:]))
    step = max(1, MINIMISED_AT_ONCE // math.prod([min(block, rows[0]), *rows[1:]]))
    buffer = np.empty((min(step, len(unary)), min(block, rows[0]), *rows[1:]))  # reused, because fresh pages are slow
    for lo in range(0, rows[0], block):
        here, part = slice(lo, lo + block), best[lo : lo + block]
        *near, (of_last, last) = [(of, table[:, here] if table.shape[1] > 1 else table) for of, table in terms]
        for start in range(0, len(unary), step):
            some = slice(start, start + step)
            cost = unary[some]
            for of, table in near:
                cost = cost + table[of[some]]
            cost = np.add(cost, last[of_last[some]], out=buffer[: len(cost), : len(part)])
            np.minimum(part, cost.min(0), out=part)
    return best


def _merge(
    problem: MinSumProblem, variable: int, views: list[VariableView]
) -> tuple[VariableView, dict[VariableView, Table]]:
    """Return one view that distinguishes everything that ``views`` do, and each view's rows in it."""
    if len(views) == 1:
        return views[0], {views[0]: np.arange(problem.rows[views[0].number])}
    together = np.stack([problem.views[view.number] for view in views], 1)
    unique, of = np.unique(together, axis=0, return_inverse=True)
    return problem.view(variable, of.reshape(-1)), {view: unique[:, k] for k, view in enumerate(views)}


def _align(
    problem: MinSumProblem,
    f: CostFactor,
    x: int,
    merged: dict[int, tuple[VariableView, dict[VariableView, Table]]],
    axes: dict[int, int],
) -> tuple[Table, Table]:
    """Return a term as a table: rows of ``x`` first, then one axis per other variable, size 1 if absent."""
    (mine,) = (view for view in f.scope if view.variable == x)
    others = sorted((view for view in f.scope if view.variable != x), key=lambda view: axes[view.variable])
    table = f.table.transpose([f.scope.index(view) for view in (mine, *others)])
    shape = [table.shape[0]] + [1] * len(axes)
    for k, view in enumerate(others):
        table = table.take(merged[view.variable][1][view], axis=k + 1)
        shape[axes[view.variable] + 1] = table.shape[k + 1]
    return problem.views[mine.number], table.reshape(shape)


def _row(problem: MinSumProblem, f: CostFactor, x: int, chosen: dict[int, int]) -> Table:
    """Return a term's cost of each value of ``x``, with the other variables fixed."""
    at: list[slice | int] = []
    mine = None
    for variable, number in f.scope:
        of = problem.views[number]
        if variable == x:
            mine = of
            at.append(slice(None))
        else:
            at.append(int(of[chosen[variable]]))
    row: Table = f.table[tuple(at)][mine]
    return row


def _improve(problem: MinSumProblem, chosen: list[int]) -> list[int]:
    """Change one variable at a time while that lowers the cost."""
    touching: dict[int, list[CostFactor]] = {}
    for f in problem.factors:
        for view in f.scope:
            touching.setdefault(view.variable, []).append(f)
    current = dict(enumerate(chosen))
    changed = True
    while changed:
        changed = False
        for x, unary in enumerate(problem.unary):
            cost = unary + sum((_row(problem, f, x, current) for f in touching.get(x, ())), 0.0)
            best = int(np.argmin(cost))
            if cost[best] < cost[current[x]]:
                current[x], changed = best, True
    return [current[v] for v in range(len(chosen))]
