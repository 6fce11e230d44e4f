"""The parts of the proof, each against its definition: orders, ranges of bytes, boxes of strided files."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.verify import boxes as grid
from einturnip.verify import ranges, reach
from einturnip.verify.boxes import boxes, common_strides, miscovered_cells, nested, overlaps_itself, run_starts
from einturnip.verify.order import serial_order
from einturnip.verify.ranges import TierRanges, TrackedRange
from einturnip.verify.reach import OrderQueries, answer_queries
from einturnip.verify.read import in_order, read
from einturnip.verify.types import Faults, JudgedPlan, Rule
from tests.verify.large import pieces
from tests.verify.plans import op, plan_of, rules, verdict_of

Edges = list[tuple[int, int]]


def ordered_plan(n: int, edges: Edges) -> JudgedPlan:
    ops = [op(x, "kernel", after=[p for p, y in edges if y == x]) for x in range(n)]
    return read(io.BytesIO(json.dumps(plan_of(ops)).encode()), "plan.json")


def reachable(n: int, edges: Edges) -> Any:
    """[p, x]: whether x comes after p; by multiplying matrices."""
    one = np.zeros((n, n), bool)
    for p, x in edges:
        one[p, x] = True
    found = one
    for _ in range(n):
        found = found | (found @ one)
    return found


@st.composite
def forward_edges(draw: Any, most: int = 24) -> tuple[int, Edges]:
    n = draw(st.integers(1, most))
    pairs = [(p, x) for x in range(n) for p in range(x)]
    return n, sorted(draw(st.sets(st.sampled_from(pairs), max_size=3 * n))) if pairs else []


@given(forward_edges(), st.booleans(), st.booleans())
def test_which_pairs_are_ordered_and_which_dependencies_implied(
    graph: tuple[int, Edges], no_room: bool, clear_often: bool
) -> None:
    n, edges = graph
    plan = ordered_plan(n, edges)
    after = reachable(n, edges)
    pairs = [(u, x) for x in range(n) for u in range(x)]
    with pytest.MonkeyPatch.context() as patch:
        if no_room:  # every bit but one waits for another walk
            patch.setattr(reach, "SETS_NBYTES", -1 if n > 100 else 0)
        if clear_often:
            patch.setattr(reach, "MIN_CLEARED", 1)
        questions = OrderQueries(plan)
        questions.add(np.array([x for _, x in pairs], np.int64), np.array([u for u, _ in pairs], np.int64))
        x, u = questions.pairs()
        found, implied = answer_queries(plan, x, u)
    left = {(int(b), int(a)) for a, b in zip(x, u, strict=True)}
    assert left == set(pairs) - set(edges)
    for a, b, ordered in zip(x, u, found, strict=True):
        assert ordered == after[b, a]
    expected = sum(any(after[p, m] for m, y in edges if y == x and m != p) for p, x in edges)
    assert implied == expected


@given(forward_edges(12), st.randoms(use_true_random=False))
def test_any_list_of_ops_is_brought_into_an_order(graph: tuple[int, Edges], rng: Any) -> None:
    n, edges = graph
    place = list(range(n))
    rng.shuffle(place)
    plan = ordered_plan(n, [(place[p], place[x]) for p, x in edges])
    order = serial_order(plan, Faults(1))
    assert order is not None
    straight = in_order(plan, order)
    assert (straight.after < np.repeat(np.arange(n), np.diff(straight.after_ptr))).all()
    mine = {(int(straight.ids[p]), int(straight.ids[x])) for x in range(n) for p in deps(straight, x)}
    assert mine == {(place[p], place[x]) for p, x in edges}


def deps(plan: JudgedPlan, x: int) -> list[int]:
    found: list[int] = plan.after[plan.after_ptr[x] : plan.after_ptr[x + 1]].tolist()
    return found


@given(st.integers(1, 12), st.data())
def test_cycles_are_found_one_for_each_knot(n: int, data: st.DataObject) -> None:
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = sorted(data.draw(st.sets(pairs, max_size=2 * n)))
    after = reachable(n, edges)
    knots = {frozenset(y for y in range(n) if after[x, y] and after[y, x]) for x in range(n) if after[x, x]}
    faults = Faults(100)
    order = serial_order(ordered_plan(n, edges), faults)
    assert (order is None) == bool(knots)
    assert faults.counts[Rule.CYCLE] == len(knots)
    for fault in faults.reported:
        cycle = fault.ops
        assert all((a, b) in edges for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        assert any(set(cycle) <= knot for knot in knots)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=40), st.integers(1, 3))
def test_ranges_know_whose_each_byte_is(writes: list[tuple[int, int]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "BLOCK", block)
        memory, owner = TierRanges(), dict[int, int]()
        for x, (start, nbytes) in enumerate(writes):
            stop = start + nbytes
            found = memory.overlapping(start, stop)
            assert [h.start for h in found] == sorted(h.start for h in found)
            held = {b: h.writers[0] for h in found for b in range(max(start, h.start), min(stop, h.stop))}
            assert held == {b: owner[b] for b in range(start, stop) if b in owner}
            memory.put(TrackedRange(start, stop, x, x), found)
            owner.update(dict.fromkeys(range(start, stop), x))
            for h in memory.at.values():
                assert h.whole == (writes[h.value] == (h.start, h.stop - h.start))


# --- strided files ---

axes_of = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48])), max_size=3)
one_range = st.tuples(
    st.integers(0, 60), st.integers(1, 30), axes_of.map(lambda axes: tuple(a for a in axes if a[0] > 1))
)


def bytes_of(start: int, nbytes: int, axes: Any) -> list[int]:
    return [int(s) + i for s in run_starts(start, axes) for i in range(nbytes)]


@given(one_range)
def test_whether_a_range_overlaps_itself(found: Any) -> None:
    start, nbytes, axes = found
    mine = bytes_of(start, nbytes, axes)
    assert overlaps_itself(axes, nbytes) == (len(set(mine)) < len(mine))


@given(st.lists(one_range, min_size=1, max_size=5), st.integers(1, 50))
def test_what_is_covered_not_once(found: Any, at_once: int) -> None:
    kept = [(s, n, a) for s, n, a in found if nested(a, n)]
    strides = common_strides({a for _, _, a in kept})
    if not kept or strides is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "CELLS_AT_ONCE", at_once)
        laid = boxes(kept, strides)
        counts = dict[int, int]()
        for low, high, more in miscovered_cells(laid):
            cells = np.array(np.meshgrid(*(np.arange(a, b) for a, b in zip(low, high, strict=True)), indexing="ij"))
            for digits in cells.reshape(len(low), -1).T.tolist():
                counts[grid.address(laid, tuple(digits))] = more
                covering_ranges = grid.covering_ranges(laid, tuple(digits))
                address = grid.address(laid, tuple(digits))
                assert covering_ranges == [i for i, r in enumerate(kept) if address in bytes_of(*r)]
    times = dict[int, int]()
    for r in kept:
        for b in bytes_of(*r):
            times[b] = times.get(b, 0) + 1
    wanted = {b: times.get(b, 0) - 1 for b in range(min(times), max(times) + 1) if times.get(b, 0) != 1}
    assert counts == wanted


@given(st.lists(one_range, min_size=1, max_size=4))
def test_outputs_are_held_against_their_bytes(found: Any) -> None:
    """Strides that make no grid, and ranges that overlap themselves, too."""
    ops, times = [], dict[int, int]()
    for i, (start, nbytes, axes) in enumerate(found):
        mine = bytes_of(start, nbytes, axes)
        ops.append(op(i, "store", [("cpu:0", 0, 1, 0)], [("Y", start, nbytes, 10 + i, list(axes))]))
        for b in mine:
            times[b] = times.get(b, 0) + 1
    broken = rules(plan_of(ops)) & {Rule.STORED_TWICE, Rule.NOT_STORED}
    expected = {Rule.STORED_TWICE} if max(times.values()) > 1 else set()
    if len(times) <= max(times) - min(times):
        expected.add(Rule.NOT_STORED)
    assert broken == expected


def test_arrays_of_one_file_may_lie_apart() -> None:
    tiers = [{"id": "cpu:0", "kind": "compute", "capacity": 8}, {"id": "out.npz", "kind": "output", "capacity": None}]
    ops = [op(i, "store", [("cpu:0", 0, 8, 1)], [("out.npz", 200 * i, 8, 1)]) for i in range(2)]
    assert Rule.NOT_STORED not in rules(plan_of(ops, tiers))
    tiers[1]["id"] = "out.npy"
    for o in ops:
        o["writes"][0][0] = "out.npy"
    assert Rule.NOT_STORED in rules(plan_of(ops, tiers))


@pytest.mark.parametrize("tiles_held", [60, 100_000])
def test_a_plan_of_thousands_of_ops(tiles_held: int) -> None:
    """In memory for some tiles, and for all of them: then all loads may come first."""
    verdict = verdict_of("".join(pieces(16, tiles_held)))
    assert verdict.valid and verdict.implied == 0 and verdict.n_ops > 4000
