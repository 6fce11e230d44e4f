"""Tiles on devices: nothing read from elsewhere, bytes as predicted, work in balance over the whole graph."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.compiler import bind
from einturnip.cost.machine import Machine
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang import compile_text
from einturnip.taskgraph.multi_device_tasks import DeviceTask, placed_tasks
from einturnip.tiling.device_assignment import DeviceAssignment, assign_calls, assign_calls_by_node, matching
from einturnip.tiling.eindecomp import eindecomp

PROGRAMS = {
    "product": "input A : f32[n,n], B : f32[n,n]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n",
    "chain": "input A : f32[n,n], B : f32[n,n]\nC[i,k] = A[i,j] * B[j,k]\nD[i,l] = C[i,k] * A[k,l]\n"
    "m[i] = max[l] D[i,l]\nE[i,l] = D[i,l] - m[i]\noutput E, C\n",
    "pieces": "input A : f32[n,n], B : f32[n,n]\nC[i,k] = A[i,j] * B[j,k]\nD[i | j, l] = C[i,l] | A[j,l]\n"
    "E[l] = mean[i] D[i,l]\noutput D, E\n",
    "causal": "input A : f32[n,n], B : f32[n,n]\nS[s,t] = A[s,d] * B[t,d]\n"
    "y[s,e] = sum[t] where(t <= s, S[s,t], 0) * B[t,e]\noutput y\n",
    "stencil": "input A : f32[n,n]\nB[i,j] = 2 * A[i,j]\nC[i: n-1, j: n-1] = B[i+1,j] + B[i,j+1]\noutput C\n",
    "best": "input A : f32[n,n], B : f32[n,n]\nC[i,k] = A[i,j] * B[j,k]\nr[i] = argmax[k] C[i,k]\noutput r\n",
}


def graph_of(text: str, n: int) -> EinGraph:
    return rewrite(bind(compile_text(text, "p.ein"), {}, {"n": n}), None)


def checked(placement: DeviceAssignment) -> list[DeviceTask]:
    """The tasks of a placement, of which each reads its own device alone and each call has what it needs."""
    tasks = placed_tasks(placement, Machine())
    have: dict[int, int] = {}
    for task in tasks:
        at = task.source if task.kind == "move" else task.device
        assert all(read < task.id and tasks[read].device == at for read in task.inputs)
        have[task.id] = task.nbytes
    nodes = placement.flow.decomposition.graph.nodes
    for task in tasks:
        if task.kind == "kernel":
            sources = {tasks[read].node for read in task.inputs}
            assert sources == {o for o, _ in _reads(placement, task)}
            if all(isinstance(nodes[o], InputNode) for o in sources):
                assert all(tasks[read].kind == "load" for read in task.inputs)
    assert sum(t.nbytes for t in tasks if t.kind == "move") == placement.moved_nbytes
    for number, (_, i) in enumerate(placement.flow.decomposition.graph.outputs):
        stored = [t for t in tasks if t.kind == "store" and t.node == i]
        size = int(np.prod(nodes[i].shape)) * nodes[i].dtype.itemsize
        assert sum(t.nbytes for t in stored) == size, number
    return tasks


def _reads(placement: DeviceAssignment, task: DeviceTask) -> list[tuple[int, object]]:
    calls = placement.flow.calls[task.node]
    return [(o, b) for o, b in calls.reads[calls.keys.index(task.key)] if all(hi > lo for lo, hi in b)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("devices", [1, 3, 4, 7])
def test_tasks_read_their_own_device_and_moves_are_as_predicted(name: str, devices: int) -> None:
    graph = graph_of(PROGRAMS[name], 24)
    whole = assign_calls(eindecomp(graph, devices), devices)
    tasks = checked(whole)
    checked(assign_calls_by_node(whole.flow.decomposition, devices))
    if devices == 1:
        assert whole.moved_nbytes == 0
    kernels = [t for t in tasks if t.kind == "kernel"]
    assert sum(whole.flops) == sum(t.flops for t in kernels)


def test_small_branches_go_to_different_devices() -> None:
    """Eight products of one call each: node by node all of them would go to one device."""
    lines = ["input A : f32[8,n,n]"]
    lines += [f"@tile(i = 1 parts, k = 1 parts, j = 1 parts)\nC{m}[i,k] = A[{m},i,j] * A[{m},j,k]" for m in range(8)]
    lines += ["output " + ", ".join(f"C{m}" for m in range(8))]
    d = eindecomp(graph_of("\n".join(lines) + "\n", 16), 1)
    whole, single = assign_calls(d, 4), assign_calls_by_node(d, 4)
    assert max(whole.flops) == sum(whole.flops) / 4
    assert max(single.flops) == sum(single.flops)
    checked(whole)


def test_no_device_runs_ahead_in_a_chain() -> None:
    """A chain of products on as many devices: every product is on all of them, though one each would move less."""
    text = "input A : f32[n,n]\nB0[i,k] = A[i,j] * A[j,k]\n"
    text += "".join(f"B{m}[i,k] = B{m - 1}[i,j] * A[j,k]\n" for m in range(1, 4)) + "output B3\n"
    placement = assign_calls(eindecomp(graph_of(text, 32), 4), 4)
    assert all(sorted(of.tolist()) == [0, 1, 2, 3] for of in placement.of.values())


def test_balance_over_the_whole_graph_costs_hardly_any_bytes() -> None:
    for name, text in PROGRAMS.items():
        for devices in (4, 6, 8):
            d = eindecomp(graph_of(text, 48), devices)
            whole, single = assign_calls(d, devices), assign_calls_by_node(d, devices)
            assert max(whole.flops) <= max(single.flops) * 1.0001, name
            assert whole.moved_nbytes <= 1.1 * single.moved_nbytes, (name, devices)


def test_equal_devices_are_matched_without_search() -> None:
    assert matching(np.zeros((300, 400))).tolist() == list(range(300))


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=n, max_size=n)
    )
)
def test_matching_is_the_least_of_all(costs: list[list[int]]) -> None:
    found = matching(np.array(costs, float))
    ways = permutations(range(4), len(costs))
    assert sum(costs[i][int(j)] for i, j in enumerate(found)) == min(
        sum(row[j] for row, j in zip(costs, way, strict=True)) for way in ways
    )
    assert len(set(found.tolist())) == len(costs)
