"""Inputs that several sites need: read by each of them or sent, whichever takes less time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.cost.machine import Machine
from einturnip.cost.site_rates import parse_link
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.report.sites import site_traffic, sites_json, sites_text
from einturnip.sites.input_traffic import input_traffic
from einturnip.taskgraph.build import build
from einturnip.taskgraph.multi_device import moved_nbytes, on_devices
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved
from einturnip.tiling.sites import Sites
from tests.tiling.test_placement import PROGRAMS, graph_of

FAST, SLOW = parse_link("100GB/s,1us"), parse_link("1MB/s,1ms")


def tasks_on(graph: EinGraph, sites: Sites, sent: tuple[int, ...] = (), **rates: Any) -> TaskGraph:
    machine = replace(Machine(), **rates)
    return on_devices(build(sites.decomposition, machine, sites=sites), sites.count, machine, sent)


def loads_of(tasks: TaskGraph, node: int) -> int:
    values = tasks.value[tasks.kind == TaskKind.LOAD]
    return int(tasks.value_nbytes[values[tasks.value_node[values] == node]].sum())


@pytest.mark.parametrize("name", ["product", "chain", "causal"])
def test_a_slow_link_reads_again_and_a_fast_one_sends(name: str) -> None:
    graph = graph_of(PROGRAMS[name], 96)
    sites = Sites(graph, 4)
    fast, slow = (tasks_on(graph, sites, link=link) for link in (FAST, SLOW))
    inputs = [i for i, node in enumerate(graph.nodes) if isinstance(node, InputNode)]
    once = sum(loads_of(fast, i) for i in inputs)
    assert once < sum(loads_of(slow, i) for i in inputs)
    assert moved_nbytes(slow).sum() < moved_nbytes(fast).sum()
    # Bytes that are not sent are read instead.
    total = [moved_nbytes(t).sum() + sum(loads_of(t, i) for i in inputs) for t in (fast, slow)]
    assert total[0] == total[1] <= moved(eindecomp(graph, 4)).total


def test_an_input_that_sites_cannot_read_is_sent_at_any_rate() -> None:
    graph = graph_of(PROGRAMS["product"], 96)
    sites = Sites(graph, 4)
    a, b = (i for i, node in enumerate(graph.nodes) if isinstance(node, InputNode))
    fast, slow = tasks_on(graph, sites, link=FAST), tasks_on(graph, sites, (a, b), link=SLOW)
    assert [loads_of(slow, i) for i in (a, b)] == [loads_of(fast, i) for i in (a, b)]


def test_the_links_of_several_machines_carry_values_together() -> None:
    """A link of half the disk's rate loses against it alone, and wins as one of four."""
    graph = graph_of(PROGRAMS["product"], 96)
    sites, link = Sites(graph, 4), parse_link("0.75GB/s,1us")
    read = 1.5e9
    one, four = (
        moved_nbytes(tasks_on(graph, sites, link=link, hosts=hosts, read_bandwidth=read, op_latency=1e-9)).sum()
        for hosts in ((0, 0, 0, 0), (0, 1, 2, 3))
    )
    assert one < four


def test_a_tile_in_the_page_cache_of_the_machine_is_read_faster() -> None:
    graph = graph_of(PROGRAMS["product"], 96)
    sites = Sites(graph, 4)
    one, four = (tasks_on(graph, sites, link=SLOW, hosts=hosts) for hosts in ((0, 0, 0, 0), (0, 1, 2, 3)))
    assert (one.kind == four.kind).all()
    loads = one.kind == TaskKind.LOAD
    again = one.original[one.value[loads]] != one.value[loads]
    assert (one.seconds[loads][again] < four.seconds[loads][again]).all() and again.any()
    assert (one.seconds[loads][~again] == four.seconds[loads][~again]).all()


def planned(link: str) -> MemGraph:
    program = et.compile(
        "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n", dims=dict.fromkeys("nkm", 400)
    )
    job: Any = program.plan(sites=4, link=link, arena="2MiB", workers=4)._job
    graph: MemGraph = job.planned.memgraph
    return graph


def test_the_plan_says_which_inputs_are_read_again() -> None:
    fast, slow = planned("100GB/s,1us"), planned("1MB/s,1ms")
    assert all(not x.read_again for x in input_traffic(fast)) and any(x.sent for x in input_traffic(fast))
    assert all(not x.sent for x in input_traffic(slow)) and any(x.read_again for x in input_traffic(slow))
    for graph in (fast, slow):
        every, traffic = input_traffic(graph), site_traffic(graph)
        assert [x.read for x in every] == [400 * 400 * 8] * 2
        assert sum(x.read + x.read_again for x in every) == traffic.first_reads.sum()
        shown = sites_json(graph)["site_inputs"]
        assert [(x["name"], x["read_bytes"] + x["read_again_bytes"] + x["sent_bytes"]) for x in shown] == [
            (x.name, x.read + x.read_again + x.sent) for x in every
        ]
    assert re.search(r"; further sites receive (A and )?[AB] \(", sites_text(fast)), sites_text(fast)
    assert re.search(r"; further sites read (A and )?[AB] again \([^)]*\);", sites_text(slow)), sites_text(slow)


def test_sites_load_the_tiles_that_they_send_each_other_in_turn() -> None:
    plan = et.compile(PROGRAMS["product"]).plan(dims={"n": 2048}, sites=8, arena="64MiB", workers=1, link="100GB/s,1us")
    graph = plan._job.planned.memgraph
    loads = graph.kind == OpKind.LOAD
    loaded = np.bincount(graph.op_devices()[loads], graph.moved_nbytes()[loads], graph.devices)
    assert loaded.sum() == 2 * 2048 * 2048 * 4
    assert loaded.max() <= 1.1 * loaded.mean()


@pytest.mark.parametrize("sites", [4, 16, 32])
def test_a_tile_that_many_sites_read_is_sent_along_a_tree(sites: int) -> None:
    text = "input A : f32[n], s : f32\nY[i] = A[i] * s\noutput Y\n"
    plan = et.compile(text).plan(dims={"n": 16 * sites}, sites=sites, arena="1MiB", workers=1, link="1TB/s,1ns")
    between = site_traffic(plan._job.planned.memgraph).between
    assert (between.sum(axis=0) == 0).sum() == 1 and between.sum() == (sites - 1) * 4
    assert between.sum(axis=1).max() <= 4 * 4
