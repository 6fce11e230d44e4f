"""EinDecomp's cost model as a min-sum problem: nodes are variables, tilings values, edges terms."""

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

    ``every[kinds[v]]`` are the candidates of v; ``edges`` list the reads by variable, inputs below 0. ``relaxed``:
    variables whose readers pay the lower bound, as if each got its preferred tiling. ``unpriced``: variables that pay
    nothing for their reads.
    """

    kinds: Sequence[int]
    every: list[NodeTilings]
    edges: ReadEdges
    relaxed: frozenset[int] = frozenset()
    unpriced: frozenset[int] = frozenset()
    tables: dict[tuple[int, int], Table] = field(default_factory=dict)
    min_costs: dict[tuple[int, int], Table] = field(default_factory=dict)
    merged: dict[tuple[int, int], tuple[int, Table]] = field(default_factory=dict)
    memory: EliminationCache = field(default_factory=EliminationCache)

    @cached_property
    def first(self) -> list[int]:
        """Return the first edge of each variable as a reader, and the end of all edges."""
        first: list[int] = np.searchsorted(self.edges.reader, np.arange(len(self.kinds) + 1)).tolist()
        return first

    @property
    def keys(self) -> ReadEdges:
        """Return the keys that tie each variable to its operands; a loose operand gives only its kind."""
        made, reader = np.maximum(self.edges.made, -1), self.edges.reader
        if self.relaxed:
            relaxed = np.isin(made, list(self.relaxed))
            made = np.where(relaxed, -2 - np.array(self.kinds)[made], made)
        if self.unpriced:
            made = np.where(np.isin(reader, list(self.unpriced)), -1, made)
        return ReadEdges(made, reader, self.edges.slot)

    def candidates_of(self, v: int) -> NodeTilings:
        """Return the candidates of a variable."""
        return self.every[self.kinds[v]]

    def reads(self, v: int) -> list[int]:
        """Return the operands of a variable."""
        reads: list[int] = self.edges.made[self.first[v] : self.first[v + 1]].tolist()
        return reads

    def enter(
        self, problem: MinSumProblem, v: int, at: dict[int, VariableView], instead: Mapping[int, int] = NOTHING
    ) -> int:
        """Add a variable and its terms with its operands to a problem.

        ``at[u]`` is the view of operand u, of kind ``instead[u]``.
        """
        own = self.candidates_of(v)
        x = problem.variable(own.own)
        at[v] = problem.view(x, own.made.of)
        for u, required in zip(self.reads(v), own.required, strict=True) if v not in self.unpriced else ():
            if u in self.relaxed:
                problem.factors.append(
                    CostFactor((problem.view(x, required.of),), self._min_costs(self.kinds[u], required))
                )
            elif u >= 0:
                table = self.table(instead.get(u, self.kinds[u]), required)
                problem.factors.append(CostFactor((at[u], problem.view(x, required.of)), table))
        return x

    def merged_kind(self, kind: int, other: int) -> tuple[int, Table]:
        """Return a kind with the candidates of two kinds, and where those of the other are among them.

        Candidates of the first kind come first. The result is -1 if the two are not tensors of one shape.
        """
        key = kind, other
        if key not in self.merged:
            a, b = self.every[kind], self.every[other]
            n, shape = len(a.made.tiles), a.bounds[: a.n_out]
            if kind == other:
                self.merged[key] = kind, np.arange(n)
            elif (shape, a.itemsize) != (b.bounds[: b.n_out], b.itemsize):
                self.merged[key] = -1, np.arange(0)
            else:
                tiles = np.concatenate((a.made.tiles, b.made.tiles))
                nothing = np.zeros(len(tiles))
                both = NodeTilings(shape, len(shape), a.itemsize, tiles, nothing, nothing, ())
                rows = both.made.of[n:]
                if len(both.made.tiles) > n:
                    self.every.append(both)
                    kind = len(self.every) - 1
                self.merged[key] = kind, rows
        return self.merged[key]

    def _min_costs(self, made: int, required: TensorTilings) -> Table:
        """Return the lowest cost of each tiling that a reader may require of an operand."""
        key = made, id(required)
        if key not in self.min_costs:
            self.min_costs[key] = self.table(made, required).min(0)
        return self.min_costs[key]

    def table(self, made: int, required: TensorTilings) -> Table:
        """Return the costs of repartitioning a tensor of one kind for a reader of another kind."""
        key = made, id(required)
        if key not in self.tables:
            source = self.every[made]
            self.tables[key] = repartition(source.made, required, source.itemsize)
        return self.tables[key]
