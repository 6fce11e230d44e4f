"""A damaged task graph is not proven: early reads, tiles made or stored twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from einturnip.core.errors import InternalError
from einturnip.ir.einsum import Index
from einturnip.planner.budget import PlanningMemory
from einturnip.planner.request import GraphRequest
from einturnip.planner.variants import plan
from einturnip.taskgraph.build import build
from einturnip.taskgraph.check import check
from einturnip.taskgraph.multi_device import tasks_of_calls
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.sites import Sites
from tests.memgraph.cases import MACHINE, decomposed, graph_of
from tests.taskgraph.graphs import Maker


@pytest.fixture(scope="module")
def tasks() -> TaskGraph:
    return build(decomposed(graph_of("chain"), [[2, 2, 2]] * 12, 1 << 20), MACHINE)


def of_kind(tasks: TaskGraph, kind: TaskKind) -> NDArray[Any]:
    return np.flatnonzero(tasks.kind == kind)


def changed(tasks: TaskGraph, column: str, at: int, value: int) -> TaskGraph:
    """The tasks with one number of a column changed."""
    numbers = getattr(tasks, column).copy()
    assert numbers[at] != value
    numbers[at] = value
    return replace(tasks, **{column: numbers})


def test_what_is_built_is_proven(tasks: TaskGraph) -> None:
    check(tasks)


def test_no_value_is_read_before_it_is_complete(tasks: TaskGraph) -> None:
    first = int(of_kind(tasks, TaskKind.KERNEL)[0])
    last = int(tasks.value[of_kind(tasks, TaskKind.KERNEL)[-1]])
    with pytest.raises(InternalError, match=rf"task {first} reads value {last} before it is complete"):
        check(changed(tasks, "read", int(tasks.read_ptr[first]), last))


def test_a_tile_is_made_once(tasks: TaskGraph) -> None:
    loads = of_kind(tasks, TaskKind.LOAD)
    with pytest.raises(InternalError, match=r"never made|made twice"):
        check(changed(tasks, "value", int(loads[0]), int(tasks.value[loads[1]])))


def test_a_tile_is_stored_once(tasks: TaskGraph) -> None:
    stores = of_kind(tasks, TaskKind.STORE)
    with pytest.raises(InternalError, match="are not stored once each"):
        check(changed(tasks, "value", int(stores[0]), int(tasks.value[stores[1]])))


def test_moves_copy_each_point_once() -> None:
    """The moves of a chain copy tiles between devices, and parts of tiles into others."""
    sites = Sites(graph_of("chain"), 4)
    tasks = tasks_of_calls(sites, MACHINE)
    check(tasks)
    for move in of_kind(tasks, TaskKind.MOVE).tolist():
        for at in range(int(tasks.key_ptr[move]), int(tasks.key_ptr[move + 1])):
            value = int(tasks.value[move])
            with pytest.raises(InternalError, match=rf"the moves into value {value} do not copy each of its points"):
                check(changed(tasks, "key", at, int(tasks.key[at]) + 1))


def test_tiles_that_nothing_reads_are_proven() -> None:
    """A statement that reads the first and the last row of a product, which is computed in blocks."""
    make = Maker()
    product = make.einsum((200, 200, 200), 2, [(make.input(200, 200), (0, 2)), (make.input(200, 200), (2, 1))], "sum")
    graph = make.graph(make.einsum((200,), 1, [(product, (Index((), row), 0)) for row in (0, 199)]))
    check(plan(GraphRequest(graph, PlanningMemory(None, 64 << 10), MACHINE)).memgraph.taskgraph)
