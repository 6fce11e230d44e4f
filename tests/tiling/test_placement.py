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
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.lang import compile_text
from einturnip.taskgraph.multi_device import moved_nbytes, moves_between, tasks_of_calls
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling.device_assignment import assign_calls, assign_calls_by_node
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.matching import matching
from einturnip.tiling.movement import moved
from einturnip.tiling.sites import Sites

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


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("devices", [1, 3, 4, 7])
def test_tasks_read_their_own_device_and_no_more_moves_than_was_counted(name: str, devices: int) -> None:
    graph = graph_of(PROGRAMS[name], 24)
    sites = Sites(graph, devices)
    tasks, nodes = tasks_of_calls(sites, Machine()), graph.nodes
    device = tasks.device if devices > 1 else np.zeros(tasks.n_values, int)
    between, made = moves_between(tasks), set[int]()
    stored, loaded = dict[int, int](), 0
    for task in tasks:
        here = device[task.reads[0] if task.kind == TaskKind.STORE else task.value]
        assert all(read in made for read in task.reads)
        assert all((device[read] == here) != between[task.id] for read in task.reads)
        made.add(task.value)
        loaded += int(tasks.value_nbytes[task.value]) if task.kind == TaskKind.LOAD else 0
        if task.kind == TaskKind.STORE:
            stored[task.node] = stored.get(task.node, 0) + int(tasks.value_nbytes[task.value])
    for number, (_, i) in enumerate(graph.outputs):
        assert stored[number] == int(np.prod(nodes[i].shape)) * nodes[i].dtype.itemsize
    moves = moved_nbytes(tasks)
    assert moves.sum() == tasks.value_nbytes[tasks.value[between]].sum()
    if devices == 1:
        assert not between.any()
    else:
        assert loaded + moves.sum() <= moved(sites.decomposition).total
    calls = np.isin(tasks.kind, (TaskKind.KERNEL, TaskKind.ACCUMULATE))
    of = assign_calls(sites.decomposition, devices).of
    assigned = np.concatenate([of[i] for i, node in enumerate(nodes) if isinstance(node, EinsumNode)])
    made_on = np.bincount(device[tasks.value[calls]], minlength=devices)
    assert made_on.tolist() == np.bincount(assigned, minlength=devices).tolist()


def test_small_branches_go_to_different_devices() -> None:
    """Eight products of one call each: node by node all of them would go to one device."""
    lines = ["input A : f32[8,n,n]"]
    lines += [f"@tile(i = 1 parts, k = 1 parts, j = 1 parts)\nC{m}[i,k] = A[{m},i,j] * A[{m},j,k]" for m in range(8)]
    lines += ["output " + ", ".join(f"C{m}" for m in range(8))]
    d = eindecomp(graph_of("\n".join(lines) + "\n", 16), 1)
    whole, single = assign_calls(d, 4), assign_calls_by_node(d, 4)
    assert max(whole.flops) == sum(whole.flops) / 4
    assert max(single.flops) == sum(single.flops)


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
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 9), min_size=6, max_size=6), min_size=n, max_size=n)
    )
)
def test_matching_is_the_least_of_all(costs: list[list[int]]) -> None:
    found = matching(np.array(costs, float))
    ways = permutations(range(6), len(costs))
    assert sum(costs[i][int(j)] for i, j in enumerate(found)) == min(
        sum(row[j] for row, j in zip(costs, way, strict=True)) for way in ways
    )
    assert len(set(found.tolist())) == len(costs)
