"""A graph's nodes as variables, whose values are ways to cut them, and the terms between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from einturnip.decomp.elimination import Factor, Memory, Problem, Table, View
from einturnip.decomp.repeats import Edges
from einturnip.decomp.ways import Ways, repartition


@dataclass
class Terms:
    """Variables by number, in the graph's order: nodes that are not inputs.

    ``every[kinds[v]]`` are the ways of v; ``slots[v]`` the variables that it reads, -1 for an input. ``loose``: those
    of which each reader pays as if they were made the way that suits it best: no more than it will. ``gathering``:
    those that pay nothing for what they read.
    """

    kinds: Sequence[int]
    every: Sequence[Ways]
    slots: Sequence[Sequence[int]]
    loose: frozenset[int] = frozenset()
    gathering: frozenset[int] = frozenset()
    tables: dict[tuple[int, int, int], Table] = field(default_factory=dict)
    leasts: dict[tuple[int, int, int], Table] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @cached_property
    def edges(self) -> Edges:
        """What reads what, by variable."""
        return Edges.of(self.slots)

    @property
    def ties(self) -> Edges:
        """What is bound to what it reads; of what is loose only the kind."""
        made, reader = self.edges.made, self.edges.reader
        if self.loose:
            loose = np.isin(made, list(self.loose))
            made = np.where(loose, -2 - np.array(self.kinds)[made], made)
        if self.gathering:
            made = np.where(np.isin(reader, list(self.gathering)), -1, made)
        return Edges(made, reader, self.edges.slot)

    def ways(self, v: int) -> Ways:
        """The ways of a variable."""
        return self.every[self.kinds[v]]

    def enter(self, problem: Problem, v: int, at: dict[int, View]) -> int:
        """Add a variable and its terms with what it reads; ``at[u]`` is how readers see u."""
        own = self.ways(v)
        x = problem.variable(own.own)
        at[v] = problem.view(x, own.made.of)
        for slot, u in enumerate(self.slots[v] if v not in self.gathering else ()):
            if u in self.loose:
                problem.factors.append(
                    Factor((problem.view(x, own.wanted[slot].of),), self._least(self.kinds[u], self.kinds[v], slot))
                )
            elif u >= 0:
                view = problem.view(x, own.wanted[slot].of)
                problem.factors.append(Factor((at[u], view), self.table(self.kinds[u], self.kinds[v], slot)))
        return x

    def _least(self, made: int, reader: int, slot: int) -> Table:
        """The least cost of each way that an operand is wanted."""
        key = made, reader, slot
        if key not in self.leasts:
            self.leasts[key] = self.table(*key).min(0)
        return self.leasts[key]

    def table(self, made: int, reader: int, slot: int) -> Table:
        """The cost of cutting a tensor of one kind of node anew for one operand of another kind."""
        key = made, reader, slot
        if key not in self.tables:
            source = self.every[made]
            self.tables[key] = repartition(source.made, self.every[reader].wanted[slot], source.itemsize)
        return self.tables[key]
