"""A graph's nodes as variables, whose values are ways to cut them, and the terms between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from einturnip.decomp.elimination import Factor, Memory, Problem, Table, View
from einturnip.decomp.ways import Ways, repartition


@dataclass
class Terms:
    """Variables by number, in the graph's order: nodes that are not inputs.

    ``every[kinds[v]]`` are the ways of v; ``slots[v]`` the variables that it reads, -1 for an input.
    """

    kinds: Sequence[int]
    every: Sequence[Ways]
    slots: Sequence[Sequence[int]]
    tables: dict[tuple[int, int, int], Table] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def reads(self) -> list[list[int]]:
        """The variables that each reads."""
        return [[u for u in row if u >= 0] for row in self.slots]

    def ways(self, v: int) -> Ways:
        """The ways of a variable."""
        return self.every[self.kinds[v]]

    def enter(self, problem: Problem, v: int, at: dict[int, View]) -> int:
        """Add a variable and its terms with what it reads; ``at[u]`` is how readers see u."""
        own = self.ways(v)
        x = problem.variable(own.own)
        at[v] = problem.view(x, own.made.of)
        for slot, u in enumerate(self.slots[v]):
            if u >= 0:
                view = problem.view(x, own.wanted[slot].of)
                problem.factors.append(Factor((at[u], view), self._table(u, v, slot)))
        return x

    def _table(self, u: int, v: int, slot: int) -> Table:
        """The cost of cutting u's tensor anew for one operand of v."""
        key = self.kinds[u], self.kinds[v], slot
        if key not in self.tables:
            source = self.ways(u)
            self.tables[key] = repartition(source.made, self.ways(v).wanted[slot], source.itemsize)
        return self.tables[key]
