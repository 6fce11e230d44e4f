"""Costs of kernel tasks: computed once for all tiles of equal extents."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from einturnip.cost.machine import Machine
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.taskgraph.costs import KernelCosts
from einturnip.tiling.types import Partitioning

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@given(sizes, sizes)
def test_tiles_that_end_alike_cost_what_each_costs_by_itself(bounds: tuple[int, ...], tiles: tuple[int, ...]) -> None:
    slots = OperandRef(0, F32), OperandRef(1, F32)
    join, accesses = ScalarCall("mul", slots, F32), ((0, 2), (2, 1))
    einsum = Einsum(("i", "k", "j"), bounds, 2, accesses, (F32, F32), join, aggregation("sum", F32))
    part = Partitioning(bounds, tiles)
    together = KernelCosts(Machine())
    keys = list(product(*(range(n) for n in part.counts)))
    found = [together.of_tile(0, einsum, "accumulate", part, key) for key in keys]
    assert found == [KernelCosts(Machine()).of(einsum, "accumulate", part.box(key)) for key in keys]
