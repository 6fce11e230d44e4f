"""Plans for several devices: a tier for each, and kernels that work within one."""

from __future__ import annotations

import json

import pytest

from einturnip.memgraph.build import build
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.multi_device import on_devices
from einturnip.tiling.sites import Sites
from einturnip.verify.types import Rule
from tests.memgraph.cases import MACHINE, PROGRAMS, decomposed, graph_of

from .plans import Json, rules, text_of, verdict_of


def plan_over(name: str, devices: int, capacity: int) -> Json:
    graph = graph_of(name)
    tasks = build_tasks(decomposed(graph, [[3, 2, 3]] * 12, 1500), MACHINE, sites=Sites(graph, devices))
    found: Json = json.loads(text_of(build(on_devices(tasks, devices, MACHINE), capacity, MACHINE, frozenset((0, 1)))))
    return found


@pytest.mark.parametrize("capacity", [1 << 20, 4096])
@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_are_valid(name: str, capacity: int) -> None:
    plan = plan_over(name, 3, capacity)
    verdict = verdict_of(plan)
    assert verdict.valid
    used = {use.tier.name: use.nbytes for use in verdict.uses if use.tier.kind == "compute"}
    assert list(used) == ["cpu:0", "cpu:1", "cpu:2"] and all(used.values())


def test_a_kernel_that_reads_another_device_is_found() -> None:
    plan = plan_over("product", 2, 4096)
    kernel = next(op for op in plan["ops"] if op["kind"] == "kernel" and len(op["reads"]) > 1)
    where = kernel["reads"][0]
    where[0] = "cpu:1" if where[0] == "cpu:0" else "cpu:0"
    assert Rule.DEVICE in rules(plan)
