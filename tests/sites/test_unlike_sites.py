"""Sites of unlike rates: even times, the answers of one site, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.main import cli
from einturnip.report.sites import site_traffic
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.devices.test_language import plans
from tests.tiling.test_sites import PROGRAMS

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


def test_equal_rates_are_the_plan_without_rates() -> None:
    text, dims = PROGRAMS["chain"]
    program = et.compile(text, dims=dims)
    one, other = (program.plan(sites=3, rates=rates, arena="1MiB") for rates in (None, "5,5,5"))
    assert one.prediction == other.prediction


@settings(max_examples=12, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_drawn_programs_agree_with_one_site(data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    rates = data.draw(st.sampled_from(RATES))
    device = "sim:" + ",".join(map(str, range(1, len(rates) + 1)))
    program = et.compile(case.text, dims=case.dims)
    expected = evaluate(case.program, case.inputs, case.dims)
    for plan in plans(lambda arena: program.plan(arena=arena, workers=1, data=case.inputs, device=device, rates=rates)):
        result = plan.run()
        for name, answer in expected.items():
            assert_agrees(result[name], answer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sites", "3", "--rates", "2,1"), "--rates states 2 rates, and the plan is for 3 sites"),
        (("--device", "sim:1,2", "--rates", "1"), "--rates states 1 rates, and the plan is for 2 sites"),
        (("--sites", "1", "--rates", "2,1"), "--rates states 2 rates, and the plan is for 1 site"),
        (("--sites", "2", "--rates", "1,0.001"), "site 1 has 0.001 of the rate of all 2 sites"),
        (("--sites", "2", "--rates", "fast,slow"), "'fast,slow' are not rates of sites"),
    ],
)
def test_wrong_rates_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    text, dims = PROGRAMS["product"]
    (tmp_path / "p.ein").write_text(text)
    sizes = [word for name, n in dims.items() for word in ("--dim", f"{name}={n}")]
    refused = CliRunner().invoke(cli, ["plan", str(tmp_path / "p.ein"), *sizes, "--arena", "4MiB", *arguments])
    assert refused.exit_code and message in refused.output + str(refused.exception)
