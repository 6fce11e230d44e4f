"""Plans of sites: every order in which they run is an order of the whole plan, and every run ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError, InternalError
from einturnip.memgraph.build import build
from einturnip.memgraph.spill_placement import keep_on_host
from einturnip.memgraph.types import DISK, HOST, Lane, MemGraph, OpKind
from einturnip.sites.split import split
from einturnip.sites.types import Role, SitePlan
from tests.drawn import examples
from tests.memgraph.cases import MACHINE, PROGRAMS, arrays
from tests.memgraph.test_several_devices import tasks_of
from tests.reference.memgraph import evaluate
from tests.sites.virtual_time import SimulatedRun, simulate

SLOTS = {Lane.COMPUTE: 2, Lane.IN: 1, Lane.OUT: 1}


class DrawnLinks:
    """Delays from a seed, so that messages overtake each other."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def arrival(self, now: float, sender: int, receiver: int, nbytes: int) -> float:
        return now + float(self.rng.exponential()) * (1 + nbytes)


def spilling(name: str, tile: int, devices: int, capacity: int = 512) -> MemGraph:
    """A plan for devices that spill to host memory and to the disk; in more memory, if need be."""
    tasks = tasks_of(name, tile, devices)
    while True:
        try:
            return keep_on_host(build(tasks, capacity, MACHINE), 4096)
        except CapacityError:
            capacity *= 2


def drawn_run(plans: tuple[SitePlan, ...], seed: int, window: int) -> SimulatedRun:
    rng = np.random.default_rng(seed)
    ranks = [rng.random(len(plan)).tolist() for plan in plans]
    return simulate(plans, ranks, SLOTS, window, DrawnLinks(seed), lambda op: float(rng.exponential()))


@settings(max_examples=examples(25), deadline=None)
@given(
    name=st.sampled_from(sorted(PROGRAMS)),
    tile=st.integers(2, 5),
    devices=st.integers(2, 5),
    capacity=st.sampled_from([256, 768, 1 << 14]),
    window=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_every_run_ends_in_an_order_of_the_whole_plan(
    name: str, tile: int, devices: int, capacity: int, window: int, seed: int
) -> None:
    graph = spilling(name, tile, devices, capacity)
    order = drawn_run(split(graph), seed, window).order
    position = np.argsort(np.array(order))
    assert sorted(order) == list(range(len(graph)))
    waiting = np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr))
    assert (position[graph.after] < position[waiting]).all()
    expected = evaluate(graph, arrays(name))
    found = evaluate(graph, arrays(name), order)
    for k in expected:  # sums in another order round differently
        np.testing.assert_allclose(found[k], expected[k], rtol=1e-12)


def test_each_op_is_on_one_site_and_each_move_on_two() -> None:
    graph = spilling("chain", 2, 3)
    plans = split(graph)
    moves = set(np.flatnonzero(graph.between_devices()).tolist())
    assert moves
    ends = {role: [x for p in plans for x in p.op[p.role == role].tolist()] for role in Role}
    assert sorted(ends[Role.LOCAL]) == sorted(set(range(len(graph))) - moves)
    assert [sorted(ends[role]) for role in Role if role != Role.LOCAL] == [sorted(moves)] * 3
    for plan in plans:
        transfers = plan.role != Role.LOCAL
        assert (plan.peer[transfers] != plan.site).all() and (plan.peer[~transfers] == -1).all()
        assert (plan.nbytes[transfers] > 0).all()
        earlier = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr)) > plan.after
        assert earlier[np.isin(plan.role[plan.after], [Role.LOCAL])].all()


def test_devices_do_not_wait_for_each_others_spilled_bytes() -> None:
    graph = spilling("chain", 2, 3)
    device = graph.op_devices()
    for tier in (HOST, DISK):
        spans = []
        for k in range(3):
            rows = [
                table[np.isin(np.repeat(np.arange(len(graph)), np.diff(ptr)), np.flatnonzero(device == k))]
                for ptr, table in ((graph.read_ptr, graph.read), (graph.write_ptr, graph.write))
            ]
            mine = np.concatenate(rows)
            mine = mine[mine[:, 0] == tier]
            if len(mine):
                spans.append((int(mine[:, 1].min()), int((mine[:, 1] + mine[:, 2]).max())))
        assert len(spans) > 1 or tier == DISK
        assert all(a[1] <= b[0] for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False))


def test_a_receive_that_does_not_wait_for_its_notice_can_block_its_window() -> None:
    plans = split(spilling("chain", 2, 3))
    for seed in range(20):
        drawn_run(plans, seed, 1)
    without = tuple(map(_without_notices, plans))
    stuck = 0
    for seed in range(20):
        try:
            drawn_run(without, seed, 1)
        except InternalError as error:
            assert "RECEIVE" in str(error)
            stuck += 1
    assert stuck


def _without_notices(plan: SitePlan) -> SitePlan:
    """The plan with receives that do not wait for their notices."""
    waiting = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr))
    kept = plan.role[plan.after] != Role.NOTICE
    ptr = np.concatenate([[0], np.cumsum(np.bincount(waiting[kept], minlength=len(plan)))])
    return replace(plan, after_ptr=ptr.astype(np.int64), after=plan.after[kept])


def test_a_dependency_that_no_move_carries_is_refused() -> None:
    graph = spilling("product", 2, 2)
    device = graph.op_devices()
    kernels = np.flatnonzero(graph.kind == OpKind.KERNEL)
    x = int(kernels[-1])
    u = int(next(k for k in kernels if device[k] != device[x]))
    at = int(graph.after_ptr[x])
    after = np.insert(graph.after, at, u).astype(np.int32)
    ptr = graph.after_ptr + (np.arange(len(graph) + 1) > x)
    with pytest.raises(InternalError, match=f"op {x} waits for op {u} of another site"):
        split(replace(graph, after=after, after_ptr=ptr))
