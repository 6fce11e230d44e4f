"""Graphs on several devices: values on one device each, right results in any order, races found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError, InternalError
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.types import COMPUTE
from einturnip.taskgraph.build import build as build_taskgraph
from einturnip.taskgraph.check import check as check_taskgraph
from einturnip.taskgraph.multi_device import on_devices
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.sites import Sites
from tests.drawn import examples
from tests.reference.memgraph import evaluate

from .cases import MACHINE, PROGRAMS, arrays, decomposed, graph_of
from .test_build import drawn_order


def tasks_of(name: str, tile: int, devices: int = 1) -> TaskGraph:
    graph = graph_of(name)
    sites = Sites(graph, devices) if devices > 1 else None
    tasks = build_taskgraph(decomposed(graph, [[tile] * 9] * len(graph.nodes), 1 << 14), MACHINE, sites=sites)
    return on_devices(tasks, devices, MACHINE)


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("tile", [2, 3, 4, 100])
@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_in_any_memory(name: str, tile: int, devices: int) -> None:
    alone, inputs = tasks_of(name, tile), arrays(name)
    expected = evaluate(build(alone, 1 << 20, MACHINE), inputs)
    tasks = tasks_of(name, tile, devices)
    check_taskgraph(tasks)
    stored = frozenset(range(len(tasks.decomposition.graph.outputs)))
    for capacity in (1 << 20, 4096, 1024, 768, 512, 384, 320, 256):
        try:
            graph = build(tasks, capacity, MACHINE, stored)
        except CapacityError:
            with pytest.raises(CapacityError):
                build(alone, capacity, MACHINE, stored)
            continue
        check(graph)
        found = evaluate(graph, inputs)
        for k in expected:  # partial sums on several devices round differently
            np.testing.assert_allclose(found[k], expected[k], rtol=1e-12)
        within = graph.read[graph.read[:, 0] == COMPUTE, 1] % graph.device_nbytes
        assert graph.peak_nbytes <= graph.device_nbytes <= capacity and within.max() < capacity
        assert 8 * graph.between_devices().sum() <= 7 * len(graph)


@settings(max_examples=examples(15), deadline=None)
@given(name=st.sampled_from(sorted(PROGRAMS)), tile=st.integers(3, 5), devices=st.integers(2, 4), data=st.data())
def test_any_order_gives_the_answer(name: str, tile: int, devices: int, data: st.DataObject) -> None:
    inputs = arrays(name)
    tasks = tasks_of(name, tile, devices)
    expected = evaluate(build(tasks, 1 << 20, MACHINE), inputs)
    graph = build(tasks, 4096, MACHINE)
    found = evaluate(graph, inputs, drawn_order(graph, data))
    assert all(np.array_equal(found[k], expected[k]) for k in expected)


def test_work_is_shared_out_and_a_tile_is_moved_once() -> None:
    tasks = tasks_of("product", 2, 2)
    kernels = (tasks.kind == TaskKind.ACCUMULATE) | (tasks.kind == TaskKind.KERNEL)
    work = np.bincount(tasks.device[tasks.value[kernels]], tasks.seconds[kernels])
    assert work.max() <= 1.1 * work.min()
    added = tasks.value[tasks.original[tasks.value] != tasks.value]
    where = list(zip(tasks.original[added].tolist(), tasks.device[added].tolist(), strict=True))
    assert len(set(where)) == len(where) > 0
    assert all(tasks.device[v] != k for v, k in where)


def test_a_tile_read_on_another_device_is_found() -> None:
    tasks = tasks_of("product", 2, 2)
    with pytest.raises(InternalError, match="on another device"):
        check_taskgraph(replace(tasks, device=1 - tasks.device[::-1]))
