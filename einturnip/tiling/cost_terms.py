"""A graph's nodes as variables, whose values are ways to cut them, and the terms between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from einturnip.tiling.elimination import CostFactor, EliminationCache, MinSumProblem, Table, VariableView
from einturnip.tiling.node_tilings import NodeTilings, TensorTilings, repartition
from einturnip.tiling.repeats import ReadEdges

NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclass
class CostTerms:
    """Variables by number, in the graph's order: nodes that are not inputs.

    ``every[kinds[v]]`` are the ways of v; ``edges`` say what reads what, by variable, inputs below 0. ``loose``: those
    of which each reader pays as if they were made the way that suits it best: no more than it will. ``gathering``:
    those that pay nothing for what they read.
    """

    kinds: Sequence[int]
    every: list[NodeTilings]
    edges: ReadEdges
    loose: frozenset[int] = frozenset()
    gathering: frozenset[int] = frozenset()
    tables: dict[tuple[int, int], Table] = field(default_factory=dict)
    leasts: dict[tuple[int, int], Table] = field(default_factory=dict)
    joined: dict[tuple[int, int], tuple[int, Table]] = field(default_factory=dict)
    memory: EliminationCache = field(default_factory=EliminationCache)

    @cached_property
    def first(self) -> list[int]:
        """The first edge of each variable as a reader, and the end of them all."""
        first: list[int] = np.searchsorted(self.edges.reader, np.arange(len(self.kinds) + 1)).tolist()
        return first

    @property
    def ties(self) -> ReadEdges:
        """What is bound to what it reads; of what is loose only the kind."""
        made, reader = np.maximum(self.edges.made, -1), self.edges.reader
        if self.loose:
            loose = np.isin(made, list(self.loose))
            made = np.where(loose, -2 - np.array(self.kinds)[made], made)
        if self.gathering:
            made = np.where(np.isin(reader, list(self.gathering)), -1, made)
        return ReadEdges(made, reader, self.edges.slot)

    def ways(self, v: int) -> NodeTilings:
        """The ways of a variable."""
        return self.every[self.kinds[v]]

    def reads(self, v: int) -> list[int]:
        """What a variable reads."""
        reads: list[int] = self.edges.made[self.first[v] : self.first[v + 1]].tolist()
        return reads

    def enter(
        self, problem: MinSumProblem, v: int, at: dict[int, VariableView], instead: Mapping[int, int] = NOTHING
    ) -> int:
        """Add a variable and its terms with what it reads; ``at[u]`` is how readers see u, of kind ``instead[u]``."""
        own = self.ways(v)
        x = problem.variable(own.own)
        at[v] = problem.view(x, own.made.of)
        for u, wanted in zip(self.reads(v), own.wanted, strict=True) if v not in self.gathering else ():
            if u in self.loose:
                problem.factors.append(CostFactor((problem.view(x, wanted.of),), self._least(self.kinds[u], wanted)))
            elif u >= 0:
                table = self.table(instead.get(u, self.kinds[u]), wanted)
                problem.factors.append(CostFactor((at[u], problem.view(x, wanted.of)), table))
        return x

    def together(self, kind: int, other: int) -> tuple[int, Table]:
        """A kind made in the ways of two, those of the first foremost, and where those of the other are among them.

        It is -1 where the two are no tensors of one shape.
        """
        key = kind, other
        if key not in self.joined:
            a, b = self.every[kind], self.every[other]
            n, shape = len(a.made.tiles), a.bounds[: a.n_out]
            if kind == other:
                self.joined[key] = kind, np.arange(n)
            elif (shape, a.itemsize) != (b.bounds[: b.n_out], b.itemsize):
                self.joined[key] = -1, np.arange(0)
            else:
                tiles = np.concatenate((a.made.tiles, b.made.tiles))
                nothing = np.zeros(len(tiles))
                both = NodeTilings(shape, len(shape), a.itemsize, tiles, nothing, nothing, ())
                rows = both.made.of[n:]
                if len(both.made.tiles) > n:
                    self.every.append(both)
                    kind = len(self.every) - 1
                self.joined[key] = kind, rows
        return self.joined[key]

    def _least(self, made: int, wanted: TensorTilings) -> Table:
        """The least cost of each way that an operand is wanted."""
        key = made, id(wanted)
        if key not in self.leasts:
            self.leasts[key] = self.table(made, wanted).min(0)
        return self.leasts[key]

    def table(self, made: int, wanted: TensorTilings) -> Table:
        """The cost of cutting a tensor of one kind of node anew as an operand of another kind is wanted."""
        key = made, id(wanted)
        if key not in self.tables:
            source = self.every[made]
            self.tables[key] = repartition(source.made, wanted, source.itemsize)
        return self.tables[key]
