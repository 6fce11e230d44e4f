"""The candidates of the planner: tilings that fit a memory, plans for less of it, and their predicted costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.core import process_resources
from einturnip.cost.machine import Machine
from einturnip.planner import lower
from einturnip.planner.candidates import LazyTilings, TilingCandidates
from einturnip.planner.compare import smaller_capacities
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.io_blocking import BlockTable, choose_block
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.price import TilingPrices
from einturnip.tiling.refine import blocked_classes, even_extent, fit_capacity, improved
from einturnip.tiling.search import chunk_divisor, halve_extent
from einturnip.tiling.types import Partitioning
from einturnip.tuning.search import CLOSE

PRODUCT = "input A : f32[m,p]\ninput B : f32[p,n]\nC[i,k] = sum[j] A[i,j] * B[j,k]\noutput C\n"
MAP = "input A : f32[m,n]\ninput B : f32[n,m]\nC[i,j] = exp(A[i,j]) * B[j,i]\noutput C\n"
FOLD = "input A : f32[m,n]\nC[i] = max[j] A[i,j]\noutput C\n"
HEAT = """dim steps
input U : f64[y, x]
for step in 0 .. steps {
  U[y,x] = U[y,x] + 0.2 * (U[y-1 ? 0, x] + U[y+1 ? 0, x] + U[y, x-1 ? 0] + U[y, x+1 ? 0] - 4 * U[y,x])
}
output U
"""
PLANES = "input A : f32[c,a,d]\ninput B : f32[d,c,b]\nR[a,b] = sum[c,d] A[c,a,d] * B[d,c,b]\noutput R\n"
POWER = """dim steps
input A : f32[n, n]
input x : f32[n]
for step in 0 .. steps {
  y[i] = sum[j] A[i,j] * x[j]
  x[i] = y[i] / sqrt(sum[i] y[i]^2)
}
output x
"""
MIB = 1 << 20


def planned(text: str, arena: int, **dims: int):  # type: ignore[no-untyped-def]
    return et.compile(text).plan(arena=arena, dims=dims, workers=2)._job.planned


@pytest.fixture(scope="module")
def product() -> EquivalenceClasses:
    graph = planned(PRODUCT, 900 * MIB, m=8192, n=8192, p=8192).graph
    return equivalence_classes(graph, label_classes(graph))


@given(st.integers(1, 100_000), st.integers(1, 5000), st.sampled_from([1, 4, 16]))
def test_even_tiles_are_as_many_as_asked_for_or_fewer(bound: int, count: int, step: int) -> None:
    tile = even_extent(bound, count, step)
    assert 1 <= tile <= bound
    assert -(-bound // tile) <= count


@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([1, 2, 5]))
def test_a_part_of_a_chunk_is_the_nearest_that_divides_it(chunk: int, extent: int, step: int) -> None:
    parts = [n for n in range(step, chunk, step) if chunk % n == 0 and extent <= CLOSE * n and n <= CLOSE * extent]
    nearest = min((abs(n - extent) for n in parts), default=None) if extent < chunk else None
    found = chunk_divisor(chunk, extent, step)
    assert (None if found is None else abs(found - extent)) == nearest
    assert found is None or found in parts


def test_tiles_of_what_is_stored_in_chunks_are_chunks_and_parts_of_them() -> None:
    assert [even_extent(10_000, n, 1, 2500) for n in (1, 3, 4, 8, 16, 40)] == [10_000, 5000, 2500, 1250, 625, 250]
    assert [even_extent(10_000, n, 1, 1009) for n in (5, 16)] == [2018, even_extent(10_000, 16)]  # a prime has no parts
    extents = [10_000]
    while extents[-1] > 100:
        extents.append(halve_extent(extents[-1], 1, 2500))
    assert extents == [10_000, 5000, 2500, 1250, 625, 250, 125, 50]
    assert halve_extent(1250, 4, 2500) % 4 == 0  # what an index takes in steps goes before


@given(st.integers(1, 1 << 40))
def test_the_ladder_goes_down_below_the_memory_and_is_the_same_for_all(capacity: int) -> None:
    found = list(smaller_capacities(capacity))
    assert all(a > b for a, b in pairwise([capacity, *found]))
    assert found == [rung for rung in smaller_capacities(4 * capacity) if rung < capacity]


def test_where_all_fits_every_accumulator_may_stand_beside_the_others(product: EquivalenceClasses) -> None:
    group = product.groups[0]
    blocks = BlockTable(group, Partitioning(group.einsum.bounds, (1024, 2048, 512)))
    assert blocks.concurrent_tiles(1 << 34) == 32
    tight = 8 * 4 * 1024 * 2048
    assert math.prod(blocks.best(tight)[0].tiles) <= blocks.concurrent_tiles(tight) < 8


@given(st.integers(120, 400))
def test_either_operand_may_stay_while_the_other_passes(product: EquivalenceClasses, mib: int) -> None:
    """A product read the other way round: the same blocks, walked along the other side, for as many bytes."""
    group = product.groups[0]
    for tiles in ((1024, 512, 512), (2048, 256, 1024)):
        own, other = (
            BlockTable(group, Partitioning(group.einsum.bounds, t)) for t in (tiles, (tiles[1], tiles[0], tiles[2]))
        )
        assert own.read_nbytes(mib * MIB) == pytest.approx(other.read_nbytes(mib * MIB), rel=0.02)
        assert sum(own.reads_of_each(mib * MIB)) == pytest.approx(own.read_nbytes(mib * MIB), rel=0.02)


def test_a_small_result_of_many_terms_is_best_made_by_both_workers() -> None:
    graph = planned(PLANES, 900 * MIB, a=312, b=312, c=296, d=312).graph
    machine = replace(Machine(), workers=2, read_bandwidth=1e13)
    prices = TilingPrices(equivalence_classes(graph, label_classes(graph)), machine, {}, True)
    one, two = (prices.of((40, rows, 312, 312), 900 * MIB) for rows in (312, 156))
    assert two < 0.6 * one


@pytest.mark.parametrize("share", [4, 16, 64])
def test_a_product_has_a_cut_made_to_measure_that_nears_the_bound(product: EquivalenceClasses, share: int) -> None:
    capacity = 3 * 4 * 8192**2 // share
    prices = TilingPrices(product, Machine(), {}, True)
    group = product.groups[0]
    reads = []
    for tiles in fit_capacity(product, product.classes.coarsest, capacity):
        cut = prices.tiling(tiles)
        assert all(1 <= t <= b for t, b in zip(tiles, product.classes.bounds, strict=True))
        if cut.working_set * 3 <= capacity:
            reads.append(
                choose_block(group, Partitioning(group.einsum.bounds, product.tiles(group, tiles)), capacity)[1]
            )
    bound = max(2 * 8192**3 / (capacity / 4) ** 0.5, 2 * 8192**2) * 4 + 4 * 8192**2
    assert min(reads) + 4 * 8192**2 <= 1.15 * bound


def test_cuts_that_move_little_do_so_in_the_room_that_their_own_plans_leave(product: EquivalenceClasses) -> None:
    """Of many small tiles a plan takes the room in which by formula they would move fewer bytes."""
    prices, most = TilingPrices(product, Machine(), {}, True), 2300.0 * MIB
    like = prices.tiling((1024, 1024, 1024))
    candidates = TilingCandidates(
        product, LazyTilings(iter([like])), prices, lambda cut: 24 * MIB - 2048 * cut.kernel_calls
    )
    found = candidates.with_fewer_reads(most, like)
    assert found and all(prices.read_nbytes(c.tiles, candidates.available(c)) <= 1.01 * most for c in found)


def test_steps_lead_to_lower_prices_and_leave_the_bounds_alone(product: EquivalenceClasses) -> None:
    prices = TilingPrices(product, Machine(), {}, True)
    start = (512, 512, 512)

    def price(tiles: Sequence[int]) -> float:
        return prices.of(tiles, 4 * MIB)

    found = improved(product, start, price, blocked_classes(product), 30)
    assert price(found) <= price(start)
    assert improved(product, start, price, blocked_classes(product), 0) == start


def test_more_memory_reads_no_more_by_formula(product: EquivalenceClasses) -> None:
    group = product.groups[0]
    part = Partitioning(group.einsum.bounds, (512, 512, 512))
    reads = [choose_block(group, part, mib * MIB)[1] for mib in range(5, 200)]
    assert all(b <= a for a, b in pairwise(reads))


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        (MAP, {"m": 2048, "n": 2048}),
        (FOLD, {"m": 4096, "n": 2048}),
        (HEAT, {"y": 2048, "x": 2048, "steps": 2}),
    ],
)
def test_a_plan_with_more_memory_is_predicted_to_take_hardly_longer(text: str, dims: dict[str, int]) -> None:
    """In an arena that is larger than what is of use, kernels of all steps come before the first store."""
    seconds = [planned(text, arena * MIB, **dims).prediction.seconds for arena in (4, 7, 12, 29, 64, 200, 350, 500)]
    assert all(b <= 1.005 * min(seconds[: n + 1]) for n, b in enumerate(seconds[1:]))


def test_a_plan_for_less_memory_keeps_its_own_bounds() -> None:
    made = planned(MAP, 800 * MIB, m=2048, n=2048)
    assert made.memgraph.peak_nbytes <= made.memgraph.capacity <= 800 * MIB


@pytest.mark.parametrize("share", [16, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8, 32, 64))])
def test_products_move_nearly_as_little_as_any_schedule(share: int) -> None:
    """At most 1.1 times: what that takes longer is held to be worth it."""
    size, arena = 8192, 3 * 4 * 8192**2 // share
    made = planned(PRODUCT, arena, m=size, n=size, p=size)
    moved = sum(made.memgraph.nbytes_by_link().values())
    bound = max(2 * size**3 / (arena / 4) ** 0.5, 2 * size**2) * 4 + 4 * size**2
    assert moved <= 1.1 * bound


def test_a_cut_that_leaves_room_is_tried_where_the_best_by_formula_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(POWER, 12 * MIB, n=4096, steps=8)
    monkeypatch.setattr(TilingCandidates, "roomy_alternatives", lambda self: [])
    without = planned(POWER, 12 * MIB, n=4096, steps=8)
    assert made.prediction.seconds <= 0.9 * without.prediction.seconds


GATHER = "input T : f32[v,d]\ninput ids : i32[n]\nY[n,d] = T[ids[n], d] * 0.5\noutput Y\n"


def test_tables_are_cut_between_rows_too() -> None:
    """Strips of all rows would be written a few bytes at a time."""
    made = planned(GATHER, 48 * MIB, v=200_000, d=256, n=400_000)
    rows, width = made.decomposition.partitionings[0].tiles
    assert rows < 200_000
    assert width >= 32


def test_what_a_search_leaves_behind_is_not_given_to_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of a product in short memory makes plans of thousands of ops, not all of which Python gives back."""

    def arena() -> int:
        plan = et.compile(PRODUCT).plan(
            memory=200 * MIB, dims=dict.fromkeys("mnp", 8192), workers=2, out={"C": "C.npy"}
        )
        made = plan._job.planned
        assert made.memgraph.peak_nbytes <= made.budget.arena
        return int(made.budget.arena)

    before, found, search_ended = arena(), process_resources._resident, lower.PlanLowering._search_ended

    def ended(lowering: lower.PlanLowering) -> None:
        search_ended(lowering)
        monkeypatch.setattr(process_resources, "_resident", lambda: found() + 40 * MIB)

    monkeypatch.setattr(lower.PlanLowering, "_search_ended", ended)
    assert before - 50 * MIB < arena() < before - 20 * MIB
