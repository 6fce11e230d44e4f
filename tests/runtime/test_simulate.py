"""The virtual clock: legal runs under every dispatch, lanes that never overlap, stalls that add up, noise by seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.plan import command as plan
from einturnip.core.errors import BindError
from einturnip.cost.described_machines import described, machine_names
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.simulate.dispatch import DISPATCHERS, double_buffered, fixed, free_order, list_scheduled
from einturnip.runtime.simulate.machine_prices import priced
from einturnip.runtime.simulate.simulator import CAUSES, TimingNoise, lanes_of, simulate_on
from tests.drawn import examples
from tests.memgraph.cases import PROGRAMS
from tests.memgraph.test_build import tight

names = st.sampled_from(sorted(PROGRAMS))
machines = st.sampled_from(machine_names())
dispatchers = st.sampled_from(sorted(DISPATCHERS))


def ready(name: str, machine: str = "p100") -> MemGraph:
    return priced(tight(name), described(machine))


@settings(max_examples=examples(40), deadline=None)
@given(names, machines, dispatchers, st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 9))
def test_every_dispatch_runs_all_in_a_legal_order(
    name: str, machine: str, dispatcher: str, jitter: float, seed: int
) -> None:
    graph, target = ready(name, machine), described(machine)
    found = simulate_on(graph, target, DISPATCHERS[dispatcher], TimingNoise(jitter, jitter, seed))
    begin, end = found.ran.begin, found.ran.end
    assert sorted(found.ran.order) == list(range(len(graph)))
    assert all(end[p] <= begin[op.id] for op in graph for p in op.after)
    lanes = lanes_of(graph, target)[1].tolist()
    for lane in set(lanes):
        slots = target.workers if lane == Lane.COMPUTE else 1
        mine = [x for x in range(len(graph)) if lanes[x] == lane]
        assert all(sum(begin[y] <= begin[x] < end[y] for y in mine) <= slots for x in mine)
    units = [(graph.unit[x], begin[x], end[x]) for x in range(len(graph)) if graph.unit[x] >= 0]
    units.sort(key=lambda u: (u[0], u[1], u[2]))
    assert all(a[2] <= b[1] for a, b in zip(units[:-1], units[1:], strict=True) if a[0] == b[0])
    assert set(found.stalls) == set(CAUSES) and min(found.stalls.values()) >= 0
    total = found.busy + sum(found.stalls.values())
    assert total == pytest.approx(found.makespan * target.workers)


def on_devices(devices: int) -> MemGraph:
    text = "input A : f32[n, m]\ninput B : f32[m, p]\nC[i,k] = A[i,j] * B[j,k]\ns[i] = sum[k] C[i,k]\noutput C, s\n"
    device = "sim:" + ",".join(map(str, range(devices)))
    plan = et.compile(text).plan(dims={"n": 256, "m": 256, "p": 256}, arena="128KiB", workers=1, device=device)
    return plan._job.planned.memgraph


@pytest.mark.parametrize("dispatcher", sorted(DISPATCHERS))
@pytest.mark.parametrize("machine", ["nvlink8", "ethernet10"])
def test_each_device_has_its_own_kernels_and_links(machine: str, dispatcher: str) -> None:
    target, graph = described(machine), on_devices(3)
    graph = priced(graph, target)
    found = simulate_on(graph, target, DISPATCHERS[dispatcher])
    begin, end = np.array(found.ran.begin), np.array(found.ran.end)
    assert sorted(found.ran.order) == list(range(len(graph)))
    assert all(end[p] <= begin[op.id] for op in graph for p in op.after)
    links, lanes = lanes_of(graph, target)
    between, device = graph.between_devices(), graph.op_devices()
    assert between.any() and {links[lane] for lane in lanes[between]} == {"device->device"}
    for lane in range(len(links)):
        mine = np.flatnonzero(lanes == lane)[np.argsort(begin[lanes == lane], kind="stable")]
        assert (end[mine[:-1]] <= begin[mine[1:]] + 1e-15).all()
        assert len(set(device[mine].tolist())) == 1
    assert found.links["device->device"][0] == graph.read[graph.read_ptr[:-1][between], 2].sum()
    assert found.busy + sum(found.stalls.values()) == pytest.approx(3 * found.makespan)


def test_equal_work_on_devices_takes_an_equal_share_of_the_time() -> None:
    target = described("nvlink8")
    one, two = (simulate_on(priced(on_devices(n), target), target).busy for n in (2, 4))
    assert two == pytest.approx(one, rel=0.05)


def test_a_machine_with_fewer_devices_is_refused() -> None:
    with pytest.raises(BindError, match="the plan is for 3 devices; p100 has 1"):
        priced(on_devices(3), described("p100"))


@given(names)
def test_in_fixed_order_each_lane_begins_its_ops_as_planned(name: str) -> None:
    graph = ready(name)
    found = simulate_on(graph, described("p100"), fixed, TimingNoise(1.0, 1.0, 3))
    lanes = lanes_of(graph, described("p100"))[1]
    for lane in set(lanes.tolist()):
        begins = np.array(found.ran.begin)[lanes == lane]
        assert (np.diff(begins) >= 0).all()


@given(names)
def test_without_noise_list_scheduling_is_free_order(name: str) -> None:
    graph, machine = ready(name), described("p100")
    free, listed = (simulate_on(graph, machine, d) for d in (free_order, list_scheduled))
    assert listed.makespan == pytest.approx(free.makespan)
    assert simulate_on(graph, machine, double_buffered).makespan >= simulate_on(graph, machine, fixed).makespan - 1e-12


def test_noise_keeps_the_mean_and_is_the_seeds_alone() -> None:
    graph = ready("chain")
    drawn = [TimingNoise(1.0, 0.0, seed).applied(graph) / graph.seconds for seed in range(200)]
    lanes = lanes_of(graph, described("p100"))[1]
    moving = lanes != Lane.COMPUTE
    assert abs(np.mean([d[moving].mean() for d in drawn]) - 1) < 0.05
    assert all((d[~moving] == 1).all() for d in drawn)
    assert (TimingNoise(1.0, 0.0, 7).applied(graph) == TimingNoise(1.0, 0.0, 7).applied(graph)).all()


def test_a_chain_on_one_link_takes_what_its_parts_take() -> None:
    graph, machine = ready("product"), described("p100")
    found = simulate_on(graph, machine, fixed)
    lanes = lanes_of(graph, machine)[1]
    busiest = max(float(graph.seconds[lanes == lane].sum()) for lane in set(lanes.tolist()))
    assert busiest <= found.makespan <= float(graph.seconds.sum())
    carried = graph.read[graph.read_ptr[:-1][lanes != Lane.COMPUTE], 2]
    assert sum(n for n, _ in found.links.values()) == carried.sum()


def test_machines_are_read_and_unknown_ones_refused() -> None:
    single = {"host", "p100", "a100", "h100", "h200", "gh200"}
    names = single | {"nvlink8", "a100x8", "v100x8", "rtx4090x8", "ethernet10", "ethernet100"}
    assert names == set(machine_names())
    for name in machine_names():
        machine = described(name)
        assert machine.link(machine.inputs, "device").bandwidth > 0 and machine.memory["device"] > 0
    with pytest.raises(BindError, match="no machine 'abacus'"):
        described("abacus")


def test_the_command_line_simulates_a_plan(tmp_path: Path) -> None:
    program = tmp_path / "similarity.ein"
    program.write_text("input X : f32[n, d]\nS[i,j] = sum[d] X[i,d] * X[j,d]\noutput S\n")
    command = [str(program), "--dim", "n=600", "--dim", "d=64", "--arena", "200kB", "--simulate", "p100"]
    text = CliRunner().invoke(plan, [*command, "--jitter", "0.3"])
    assert text.exit_code == 0 and text.output.startswith("simulated on one P100, PCIe 3")
    plain = [*command, "--format", "json", "--seed", "1"]
    found = [json.loads(CliRunner().invoke(plan, plain).output) for _ in range(2)]
    assert found[0] == found[1] and set(found[0]["dispatch"]) == set(DISPATCHERS)
    links = found[0]["dispatch"]["free"]["links"]
    assert links["device->host"]["bytes"] >= 600 * 600 * 4
    assert CliRunner().invoke(plan, [*command, "--emit", "memgraph"]).exit_code == 2


def test_the_command_line_simulates_sites_and_the_policy(tmp_path: Path) -> None:
    program = tmp_path / "product.ein"
    program.write_text("input A : f32[n, n]\nC[i,k] = A[i,j] * A[j,k]\noutput C\n")
    command = [str(program), "--dim", "n=512", "--arena", "400kB", "--sites", "4", "--simulate"]
    text = CliRunner().invoke(plan, [*command, "nvlink8", "--policy", "fixed"]).output
    assert text.startswith("simulated on eight H100, NVLink 4 (4 of 8 devices)") and "in fixed order" in text
    found = json.loads(CliRunner().invoke(plan, [*command, "a100x8", "--format", "json"]).output)
    assert found["devices"] == 4 and found["dispatch"]["free"]["links"]["device->device"]["bytes"] > 0
    refused = CliRunner().invoke(plan, [*command, "p100"])
    assert refused.exit_code == 1 and "the plan is for 4 devices; p100 has 1" in str(refused.exception)
