"""A graph's nodes as variables, whose values are ways to cut them, and the terms between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from einturnip.decomp.elimination import Factor, Memory, Problem, Table, View
from einturnip.decomp.repeats import Edges
from einturnip.decomp.ways import Seen, Ways, repartition


@dataclass
class Terms:
    """Variables by number, in the graph's order: nodes that are not inputs.

    ``every[kinds[v]]`` are the ways of v; ``edges`` say what reads what, by variable, inputs below 0. ``loose``: those
    of which each reader pays as if they were made the way that suits it best: no more than it will. ``gathering``:
    those that pay nothing for what they read.
    """

    kinds: Sequence[int]
    every: Sequence[Ways]
    edges: Edges
    loose: frozenset[int] = frozenset()
    gathering: frozenset[int] = frozenset()
    tables: dict[tuple[int, int], Table] = field(default_factory=dict)
    leasts: dict[tuple[int, int], Table] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @cached_property
    def first(self) -> list[int]:
        """The first edge of each variable as a reader, and the end of them all."""
        first: list[int] = np.searchsorted(self.edges.reader, np.arange(len(self.kinds) + 1)).tolist()
        return first

    @property
    def ties(self) -> Edges:
        """What is bound to what it reads; of what is loose only the kind."""
        made, reader = np.maximum(self.edges.made, -1), self.edges.reader
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
        reads = self.edges.made[self.first[v] : self.first[v + 1]].tolist()
        for u, wanted in zip(reads, own.wanted, strict=True) if v not in self.gathering else ():
            if u in self.loose:
                problem.factors.append(Factor((problem.view(x, wanted.of),), self._least(self.kinds[u], wanted)))
            elif u >= 0:
                problem.factors.append(Factor((at[u], problem.view(x, wanted.of)), self.table(self.kinds[u], wanted)))
        return x

    def _least(self, made: int, wanted: Seen) -> Table:
        """The least cost of each way that an operand is wanted."""
        key = made, id(wanted)
        if key not in self.leasts:
            self.leasts[key] = self.table(made, wanted).min(0)
        return self.leasts[key]

    def table(self, made: int, wanted: Seen) -> Table:
        """The cost of cutting a tensor of one kind of node anew as an operand of another kind is wanted."""
        key = made, id(wanted)
        if key not in self.tables:
            source = self.every[made]
            self.tables[key] = repartition(source.made, wanted, source.itemsize)
        return self.tables[key]
