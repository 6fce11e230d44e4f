"""What kernel tasks cost: one price for all tiles that end alike."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import F32
from einturnip.core.einsum import Einsum
from einturnip.core.machine import Machine
from einturnip.core.scalar import Call, Operand
from einturnip.decomp.types import Partitioning
from einturnip.taskgraph.costs import KernelCosts

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@given(sizes, sizes)
def test_tiles_that_end_alike_cost_what_each_costs_by_itself(bounds: tuple[int, ...], tiles: tuple[int, ...]) -> None:
    slots = Operand(0, F32), Operand(1, F32)
    join, accesses = Call("mul", slots, F32), ((0, 2), (2, 1))
    einsum = Einsum(("i", "k", "j"), bounds, 2, accesses, (F32, F32), join, aggregation("sum", F32))
    part = Partitioning(bounds, tiles)
    together = KernelCosts(Machine())
    keys = list(product(*(range(n) for n in part.counts)))
    found = [together.of_tile(0, einsum, "touch", part, key) for key in keys]
    assert found == [KernelCosts(Machine()).of(einsum, "touch", part.box(key)) for key in keys]
