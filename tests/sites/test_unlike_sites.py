"""Sites of unlike rates and memories: even times, the answers of one site, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import einturnip as et
from einturnip.cli.main import cli
from einturnip.core.errors import InternalError
from einturnip.memgraph.check import check as check_memory
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.report.sites import site_traffic, sites_json
from einturnip.runtime.scheduler.policies import policy
from einturnip.sites.part import part_of
from einturnip.sites.split import split
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.devices.test_language import plans
from tests.drawn import examples
from tests.tiling.test_sites import PROGRAMS

MEMORIES = (1, 3, 2, 1, 5)
RATES = [(2.0, 1.0), (1.0, 0.5, 1.0), (3.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 2.0, 4.0)]


@pytest.mark.parametrize("rates", RATES[:3], ids=str)
@pytest.mark.parametrize("name", ["product", "long sum", "chain", "ladder", "mttkrp"])
def test_sites_end_at_the_same_time_whatever_their_rates(name: str, rates: tuple[float, ...]) -> None:
    text, dims = PROGRAMS[name]
    plan = et.compile(text, dims=dims).plan(sites=len(rates), rates=rates, arena="4MiB", workers=len(rates))
    seconds = site_traffic(plan._job.planned.memgraph).kernel_seconds
    assert seconds.max() <= 1.05 * seconds.mean()


def test_a_site_of_half_the_rate_computes_half_as_many_points() -> None:
    text, dims = PROGRAMS["product"]
    program = et.compile(text, dims=dims)
    tasks = program.plan(sites=2, rates=[2, 1], arena="4MiB", workers=2)._job.planned.taskgraph
    points = np.bincount(tasks.device[tasks.value[tasks.flops > 0]], tasks.flops[tasks.flops > 0])
    assert points[0] == pytest.approx(2 * points[1], rel=0.02)


@pytest.mark.parametrize("name", ["product", "chain"])
def test_bytes_are_compared_with_those_of_the_same_shares(name: str) -> None:
    text, dims = PROGRAMS[name]
    plan = et.compile(text, dims=dims).plan(sites=3, rates=[4, 1, 1], arena="4MiB", workers=3)._job.planned
    shown, traffic = sites_json(plan.memgraph, plan.machine.rates), site_traffic(plan.memgraph)
    assert traffic.arriving.sum() <= 1.05 * shown["eindecomp_bytes"]
    assert shown["eindecomp_bytes"] != sites_json(plan.memgraph)["eindecomp_bytes"]
    assert shown["exchanged_bytes"] >= (shown["site_lower_bound_bytes"] if name == "product" else 0)


def test_equal_rates_are_the_plan_without_rates() -> None:
    text, dims = PROGRAMS["chain"]
    program = et.compile(text, dims=dims)
    one, other = (program.plan(sites=3, rates=rates, arena="1MiB") for rates in (None, "5,5,5"))
    assert one.prediction == other.prediction


@settings(max_examples=examples(10), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_drawn_programs_agree_with_one_site(data: st.DataObject) -> None:
    rates = data.draw(st.sampled_from(RATES))
    times = data.draw(st.permutations(MEMORIES[: len(rates)]))
    case = data.draw(programs(features=FEATURES))
    device = "sim:" + ",".join(map(str, range(1, len(rates) + 1)))
    program = et.compile(case.text, dims=case.dims)

    def planned(arena: int | None) -> et.Plan:
        arenas = None if arena is None else [arena * n for n in times]
        return program.plan(arena=arenas, workers=1, data=case.inputs, device=device, rates=rates)

    expected = evaluate(case.program, case.inputs, case.dims)
    for plan in plans(planned):
        result = plan.run()
        for name, answer in expected.items():
            assert_agrees(result[name], answer)


def product_of(arena: str, sites: int, side: int = 1200) -> MemGraph:
    program = et.compile(PROGRAMS["product"][0], dims=dict(n=side, k=side, m=side))
    plan = program.plan(sites=sites, arena=arena, workers=sites)
    found: MemGraph = plan._job.planned.memgraph
    return found


def test_each_site_is_planned_within_its_own_memory() -> None:
    graph = product_of("2MiB,512KiB,1MiB", 3)
    assert graph.arenas_nbytes == (2 << 20, 512 << 10, 1 << 20)
    for part, nbytes in zip(map(part_of, split(graph), [policy("fixed")(graph)] * 3), graph.arenas_nbytes, strict=True):
        assert part.graph.peak_nbytes <= part.graph.capacity == nbytes
        assert part.graph.peak_nbytes > 0.75 * nbytes
    check_memory(graph)
    small = replace(graph, arenas=(2 << 20, 256 << 10, 1 << 20))
    with pytest.raises(InternalError, match="leaves the 262144 bytes of device 1"):
        check_memory(small)


def test_the_overview_states_the_memory_of_the_sites_and_where_values_are_spilled() -> None:
    text, dims = PROGRAMS["chain"]
    text = et.compile(text, dims=dims).plan(sites=2, arena="4MiB,1MiB").explain()
    words = " ".join(text.split())
    assert "memory 1.00 MiB to 4.00 MiB for the tiles of each site, at most" in words
    assert ("offload" in words) == ("in host memory" in words) == ("to host memory and" in words)
    assert "offload" in words and "spill nothing" not in words and "to disk" not in words


def test_a_site_with_more_memory_reads_less() -> None:
    one, more = (site_traffic_of_files(product_of(arena, 2)) for arena in ("512KiB", "512KiB,4MiB"))
    assert more[1] < 0.7 * one[1] and more[0] <= 1.05 * one[0]


def site_traffic_of_files(graph: MemGraph) -> NDArray[np.float64]:
    loads = np.flatnonzero(np.isin(graph.kind, (OpKind.LOAD, OpKind.RELOAD)))
    found = np.bincount(graph.op_devices()[loads], graph.read[graph.read_ptr[loads], 2], graph.devices)
    return found.astype(np.float64)


def test_the_judge_knows_the_memory_of_each_site(tmp_path: Path) -> None:
    text, dims = PROGRAMS["product"]
    (tmp_path / "p.ein").write_text(text)
    sizes = [word for name, n in dims.items() for word in ("--dim", f"{name}={n}")]
    arguments = ["plan", str(tmp_path / "p.ein"), *sizes, "--sites", "2", "--arena", "2MiB,512KiB"]
    for level in ("memgraph", "sites"):
        shown = CliRunner().invoke(cli, [*arguments, "--emit", level, "--format", "json"])
        assert shown.exit_code == 0, shown.output
        (tmp_path / "plan.json").write_text(shown.stdout)
        assert CliRunner().invoke(cli, ["verify", str(tmp_path / "plan.json")]).exit_code == 0
        plan = json.loads(shown.stdout)
        (tier,) = (tier for tier in plan["tiers"] if tier["id"] == "cpu:1")
        assert tier["capacity"] == 512 << 10
        tier["capacity"] = 256 << 10
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        judged = CliRunner().invoke(cli, ["verify", str(tmp_path / "plan.json")])
        assert judged.exit_code == 1 and "past its capacity of 262144" in judged.output


def test_a_site_that_is_too_small_is_named_with_the_least_memory() -> None:
    message = r"does not fit an arena of 256 B on site 2; the minimum is (\d+) bytes .* of C \(line 2\) on site 2"
    with pytest.raises(et.CapacityError, match=message) as refused:
        product_of("1MiB,2MiB,256B,1MiB", 4, 24)
    least = refused.value.needed
    assert product_of(f"1MiB,2MiB,{least}B,1MiB", 4, 24).arenas_nbytes[2] <= least
    with pytest.raises(et.CapacityError):
        product_of(f"1MiB,2MiB,{least - 64}B,1MiB", 4, 24)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sites", "3", "--rates", "2,1"), "--rates states 2 rates, and the plan is for 3 sites"),
        (("--device", "sim:1,2", "--rates", "1"), "--rates states 1 rates, and the plan is for 2 sites"),
        (
            ("--sites", "1", "--rates", "2,1"),
            "--rates states 2 rates, and the plan is for 1 site. help: name 2 devices, as in --device sim:0,1, or plan "
            "--sites 2",
        ),
        (("--sites", "3", "--arena", "4MiB,2MiB"), "the memory is stated for 2 sites, and the plan is for 3 sites"),
        (("--device", "cpu", "--arena", "4MiB,2MiB"), "the memory is stated for 2 sites, and the plan is for 1 site"),
        (("--device", "sim:2", "--arena", "4MiB,2MiB"), "or one for each; name 2 devices, as in --device sim:0,1"),
        (("--link", "1GB/s,5us"), "--link joins devices, and the plan is for one. help: name 2 devices"),
        (("--sites", "2", "--arena", "4MiB,2G"), "the size '2G' may mean two things"),
        (("--sites", "2", "--arena", "4MiB,"), "'' is not a size"),
        (("--sites", "2", "--rates", "1,0.001"), "site 1 has 0.001 of the rate of the 2 sites together"),
        (("--sites", "2", "--rates", "fast,slow"), "'fast,slow' are not rates of sites"),
    ],
)
def test_wrong_rates_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    text, dims = PROGRAMS["product"]
    (tmp_path / "p.ein").write_text(text)
    sizes = [word for name, n in dims.items() for word in ("--dim", f"{name}={n}")]
    refused = CliRunner().invoke(cli, ["plan", str(tmp_path / "p.ein"), *sizes, "--arena", "4MiB", *arguments])
    assert refused.exit_code and message in refused.output + str(refused.exception)
