"""Memory graphs give the result in any allowed order and capacity, and every edge is needed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError, InternalError, TooLarge
from einturnip.core.units import LINE_NBYTES, PAGE_NBYTES
from einturnip.eingraph.build.program import build as build_graph
from einturnip.lang import compile_text
from einturnip.memgraph import arena as memgraph_arena
from einturnip.memgraph import columns, reach
from einturnip.memgraph.arena import min_capacity as exact_least
from einturnip.memgraph.build import build, granule
from einturnip.memgraph.check import check
from einturnip.memgraph.columns import PlanLimits
from einturnip.memgraph.types import DISK, MemGraph, OpKind
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.check import check as check_tasks
from einturnip.taskgraph.types import Task, TaskGraph, TaskKind
from einturnip.tuning.memory import MAX_EDGES_PER_OP
from tests.drawn import examples
from tests.memgraph.cases import MACHINE, PROGRAMS, Arrays, arrays, decomposed, graph_of
from tests.reference.decomposition import evaluate as evaluate_decomposition
from tests.reference.eingraph import evaluate as evaluate_graph
from tests.reference.memgraph import evaluate
from tests.reference.taskgraph import evaluate as evaluate_tasks
from tests.taskgraph.graphs import Maker

names = st.sampled_from(sorted(PROGRAMS))
tile_sizes = st.lists(st.lists(st.integers(1, 6), min_size=3, max_size=3), min_size=12, max_size=12)


def least_capacity(tasks: TaskGraph) -> int:
    """Return the smallest arena that holds every single task."""
    low, high = 0, 1 << 20
    while high - low > 64:
        middle = (low + high) // 2
        try:
            build(tasks, middle, MACHINE)
            high = middle
        except CapacityError:
            low = middle
    return high


def assert_same(actual: Arrays, expected: Arrays) -> None:
    for name in expected:
        if expected[name].dtype.kind == "f" and name in ("Y", "L", "M"):
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-12)
        else:
            np.testing.assert_array_equal(actual[name], expected[name])


@given(names, tile_sizes, st.data())
def test_every_floor_agrees_however_the_nodes_are_cut(name: str, tiles: list[list[int]], data: st.DataObject) -> None:
    graph = graph_of(name)
    tasks = build_tasks(decomposed(graph, tiles, 2000), MACHINE)
    check_tasks(tasks)
    expected = evaluate_graph(graph, arrays(name))
    assert_same(evaluate_decomposition(tasks.decomposition, arrays(name)), expected)
    assert_same(evaluate_tasks(tasks, arrays(name)), expected)
    capacity = least_capacity(tasks) + data.draw(st.integers(0, 40)) * 64
    placed = build(tasks, capacity, MACHINE, frozenset(data.draw(st.sets(st.integers(0, 3)))))
    check(placed)
    assert_same(evaluate(placed, arrays(name), drawn_order(placed, data)), expected)


def drawn_order(graph: MemGraph, data: st.DataObject) -> list[int]:
    """An order that the dependencies allow; a shorter draw is nearer to the serial one."""
    left = np.diff(graph.after_ptr).tolist()
    waiters: list[list[int]] = [[] for _ in left]
    for op in graph:
        for p in op.after:
            waiters[p].append(op.id)
    ready = [i for i, n in enumerate(left) if n == 0]
    order: list[int] = []
    swaps = data.draw(st.lists(st.integers(0, 1 << 16), max_size=len(graph)))
    while ready:
        ready.sort()
        pick = swaps[len(order)] % len(ready) if len(order) < len(swaps) else 0
        op = ready.pop(pick)
        order.append(op)
        for w in waiters[op]:
            left[w] -= 1
            if left[w] == 0:
                ready.append(w)
    assert len(order) == len(graph)
    return order


@lru_cache
def tight(name: str) -> MemGraph:
    tiles = [[3, 2, 2]] * 12
    tasks = build_tasks(decomposed(graph_of(name), tiles, 1500), MACHINE)
    return build(tasks, least_capacity(tasks), MACHINE)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_tight_plans_spill_and_reload(name: str) -> None:
    kinds = {op.kind for op in tight(name)}
    assert OpKind.RELOAD in kinds
    if name != "product":
        assert OpKind.OFFLOAD in kinds and (tight(name).read[:, 0] == DISK).any()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_no_edge_can_be_taken_away(name: str) -> None:
    graph = tight(name)
    for edge in range(len(graph.after)):
        op = int(np.searchsorted(graph.after_ptr, edge, side="right")) - 1
        ptr = graph.after_ptr.copy()
        ptr[op + 1 :] -= 1
        broken = replace(graph, after_ptr=ptr, after=np.delete(graph.after, edge))
        with pytest.raises(InternalError, match=r"race|continues|touches"):
            check(broken)


@given(names, st.integers(0, 10**6), st.integers(1, 64))
def test_a_shifted_extent_is_caught(name: str, which: int, shift: int) -> None:
    graph = tight(name)
    rows = np.flatnonzero((graph.read[:, 0] == 0) & (graph.read[:, 2] > 0))
    read = graph.read.copy()
    read[rows[which % len(rows)], 1] += 64 * shift
    with pytest.raises(InternalError):
        check(replace(graph, read=read))


def test_a_task_larger_than_the_capacity_is_refused_with_its_size() -> None:
    tasks = build_tasks(decomposed(graph_of("product"), [[9, 8, 6]] * 3, 1500), MACHINE)
    with pytest.raises(CapacityError) as refused:
        build(tasks, 300, MACHINE)
    build(tasks, refused.value.needed + 64, MACHINE)


def working_set(tasks: TaskGraph) -> int:
    """Return the largest working set of an op: operands, result, workspace, in whole cache lines."""

    def held(task: Task) -> int:
        values = {*task.reads} if task.kind == TaskKind.STORE else {*task.reads, task.value}
        lines = [-(-n // LINE_NBYTES) for n in tasks.value_nbytes[[*values]].tolist()]
        return LINE_NBYTES * (sum(max(1, n) for n in lines) + -(-task.workspace // LINE_NBYTES))

    return max(held(task) for task in tasks if task.kind != TaskKind.LOAD)


@given(names, tile_sizes)
def test_the_largest_working_set_is_enough(name: str, tiles: list[list[int]]) -> None:
    tasks = build_tasks(decomposed(graph_of(name), tiles, 2000), MACHINE)
    least = working_set(tasks)
    for capacity in (least, least + 64, 2 * least):
        check(build(tasks, capacity, MACHINE))
    with pytest.raises(CapacityError):
        build(tasks, least - LINE_NBYTES, MACHINE)


def test_what_fits_by_lines_fits_where_pages_would_not() -> None:
    """From 4 MiB on values begin at pages, which wastes the rest of the pages of many small values."""
    make = Maker()
    scalars = [make.input() for _ in range(12)]
    graph = make.graph(make.einsum((523_700,), 1, [(s, ()) for s in scalars]))
    tasks = build_tasks(decomposed(graph, [[1]] * 12 + [[523_700]], 4 << 20), MACHINE)
    least = working_set(tasks)
    assert granule(least) == LINE_NBYTES and granule(least + (64 << 10)) == PAGE_NBYTES
    for capacity in range(least, least + (64 << 10), 4096):
        check(build(tasks, capacity, MACHINE))


@settings(max_examples=examples(20))
@given(names, tile_sizes)
def test_more_memory_never_moves_more_than_needed_once_all_fits(name: str, tiles: list[list[int]]) -> None:
    tasks = build_tasks(decomposed(graph_of(name), tiles, 1 << 20), MACHINE)
    graph = build(tasks, 1 << 20, MACHINE)
    check(graph)
    assert graph.spill_nbytes == 0
    assert not (graph.kind == OpKind.RELOAD).any()


def test_dependencies_grow_with_the_ops() -> None:
    """The number of dependencies is not the number of writers of a tile times its readers."""
    text = "input A : f64[i,j]\nD[i] = sum[j] A[i,j]\nE[i,j] = A[i,j] * D[i]\noutput E\n"
    graph = build_graph(compile_text(text, "rows.ein"), {"A": (4, 80)}, {}, {})
    tasks = build_tasks(decomposed(graph, [[2, 2]] * 3, 1 << 20), MACHINE)
    placed = build(tasks, 1 << 20, MACHINE)
    check(placed)
    waits = np.diff(placed.after_ptr)[placed.kind == OpKind.KERNEL]
    assert waits.max() >= 40 and waits.sum() < 4 * len(placed)


@pytest.mark.parametrize("capacities", [1.0, 2.0, 5.0])
def test_windows_change_no_dependency(monkeypatch: pytest.MonkeyPatch, capacities: float) -> None:
    """Possible dependencies are checked, and implied ones dropped, in parts while ops are added."""
    tasks = build_tasks(decomposed(graph_of("product"), [[2, 1, 2]] * 12, 1500), MACHINE)
    capacity = int(capacities * least_capacity(tasks))
    at_once = build(tasks, capacity, MACHINE)
    for name, limit in {
        "PAIRS_AT_ONCE": 2,
        "EDGES_AT_ONCE": 3,
        "MIN_EDGES_TO_REDUCE": 4,
        "MAX_EDGES_PER_OP": 0,
    }.items():
        monkeypatch.setattr(columns, name, limit)
    monkeypatch.setattr(reach, "REDUCED_EDGES_AT_ONCE", 3)
    few = build(tasks, capacity, MACHINE)
    check(few)
    assert len(few) > 30 and few.after.tolist() == at_once.after.tolist()
    assert few.after_ptr.tolist() == at_once.after_ptr.tolist()


def test_many_that_wait_for_many_are_never_all_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a value with 400 readers go to 400 other values: 160,000 waits, nearly all implied."""
    monkeypatch.setattr(columns, "EDGES_AT_ONCE", 1 << 10)
    monkeypatch.setattr(columns, "MIN_EDGES_TO_REDUCE", 1 << 10)
    ops, n, most = columns.OpColumns(), 400, 0
    ops.append(OpKind.KERNEL, 0, -1, 0.0, [], [0, 0, 64 * n, 0], [])
    for k in range(n):  # one after the other, by the bytes that they all write
        ops.append(OpKind.KERNEL, 0, -1, 0.0, [0, 0, 64 * n, 0], [0, 64 * n, 64, 1], [k])
    for k in range(n):
        ops.append(OpKind.KERNEL, 0, -1, 0.0, [], [0, 64 * k, 64, 2 + k], [], range(1, n + 1))
        most = max(most, len(ops.checked) + len(ops.after) + len(ops.possible))
    tasks = build_tasks(decomposed(graph_of("product"), [[2, 1, 2]] * 12, 1500), MACHINE)
    assert ops.freeze(tasks).after.tolist() == [*range(n), *[n] * n]
    assert most < 2 * MAX_EDGES_PER_OP * 2 * n


@given(names, tile_sizes, st.floats(1.0, 3.0))
@settings(max_examples=examples(15), deadline=None)
def test_parts_of_bytes_that_wait_for_one_of_them_have_no_race(name: str, tiles: list[list[int]], more: float) -> None:
    """The first op on bytes with many users waits for them; ops on the other parts wait for that op."""
    tasks = build_tasks(decomposed(graph_of(name), tiles, 1500), MACHINE)
    capacity = int(more * least_capacity(tasks))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memgraph_arena, "MAX_DEPS_PER_SEGMENT", 1)
        check(build(tasks, capacity, MACHINE))


@given(names, tile_sizes, st.floats(1.0, 3.0))
def test_a_plan_that_moves_more_than_is_of_use_is_not_made(name: str, tiles: list[list[int]], more: float) -> None:
    tasks = build_tasks(decomposed(graph_of(name), tiles, 2000), MACHINE)
    capacity = int(exact_least(tasks) * more)
    made = build(tasks, capacity, MACHINE)
    moved = int(made.moved_nbytes().sum())
    same = build(tasks, capacity, MACHINE, limits=PlanLimits(len(made), int(made.read[made.read_ptr[:-1], 2].sum())))
    np.testing.assert_array_equal(same.read, made.read)
    with pytest.raises(TooLarge):
        build(tasks, capacity, MACHINE, limits=PlanLimits(nbytes=moved - 1))
    with pytest.raises(TooLarge):
        build(tasks, capacity, MACHINE, limits=PlanLimits(ops=len(made) - 1))


def test_the_least_capacity_is_what_one_task_holds() -> None:
    tasks = build_tasks(decomposed(graph_of("product"), [[2, 1, 2]] * 12, 1500), MACHINE)
    found = exact_least(tasks)
    build(tasks, found, MACHINE)
    with pytest.raises(CapacityError):
        build(tasks, found - LINE_NBYTES, MACHINE)
