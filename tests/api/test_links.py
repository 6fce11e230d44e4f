"""``link=`` and ``sites=``: what ``--link`` and ``--sites`` do, in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import einturnip as et
from einturnip.cli.main import cli
from einturnip.cost.site_rates import parse_link
from einturnip.devices.kind import of_sites
from einturnip.report.sites import sites_json

PRODUCT = "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n"
SIZES = dict(n=256, k=256, m=256)
X = np.ones((4, 4))


def test_a_plan_for_sites_is_that_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(PRODUCT)
    sizes = [word for name, n in SIZES.items() for word in ("--dim", f"{name}={n}")]
    more = ["--sites", "3", "--link", "1GB/s,20us", "--arena", "512KiB", "--workers", "3", "--format", "json"]
    shown = json.loads(CliRunner().invoke(cli, ["plan", str(tmp_path / "p.ein"), *sizes, *more]).stdout)
    plan = et.compile(PRODUCT, dims=SIZES).plan(sites=3, link="1GB/s,20us", arena="512KiB", workers=3)
    planned = plan._job.planned
    assert planned.machine.link == parse_link("1GB/s,20us")
    assert sites_json(planned.memgraph)["sites"] == shown["sites"]
    assert plan.prediction.seconds == pytest.approx(shown["predicted"]["seconds"])


CALLS: dict[str, Callable[..., Any]] = {
    "call": lambda **more: et.compile(PRODUCT)(A=X, B=X, **more),
    "plan": lambda **more: et.compile(PRODUCT).plan(A=X, B=X, **more),
    "einsum": lambda **more: et.einsum("ij,jk->ik", X, X, **more),
    "contract": lambda **more: et.contract("ij,jk->ik", X, X, **more),
    "session": lambda **more: et.compile(PRODUCT).session(A=X, B=X, **more).step(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_link_names_the_right_form(name: str) -> None:
    message = "'nonsense' is not a link. help: write its rate and its latency, such as 1.25GB/s,50us"
    with pytest.raises(et.BindError, match=message):
        CALLS[name](link="nonsense")


@pytest.mark.parametrize("name", CALLS)
def test_a_link_joins_several_devices(name: str) -> None:
    with pytest.raises(et.BindError, match="the plan is for one"):
        CALLS[name](link="1GB/s,1us")


def test_a_link_between_devices_changes_no_result() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-9, 9, (48, 40)).astype(float), rng.integers(-9, 9, (40, 56)).astype(float)
    result = et.compile(PRODUCT)(A=a, B=b, device="sim:1,2", link="1GB/s,20us", arena="64KiB")
    assert np.array_equal(result["C"], a @ b)


@pytest.mark.parametrize("sites", [0, -1, 1025])
def test_the_number_of_sites_is_bounded(sites: int) -> None:
    with pytest.raises(et.BindError, match=f"sites={sites}: a plan is for 1 to 1024 sites"):
        CALLS["plan"](sites=sites)


def test_sites_exclude_a_device() -> None:
    with pytest.raises(et.BindError, match="leave out device="):
        CALLS["plan"](sites=2, device="sim:1")


def test_more_sites_than_work_are_refused() -> None:
    with pytest.raises(et.BindError, match=r"compute nothing: C \(line 2\).*help: --sites"):
        et.compile(PRODUCT, dims=dict(n=1, k=1, m=3)).plan(sites=8, arena="64KiB")


def test_devices_without_work_are_named_in_the_plan() -> None:
    plan = et.compile(PRODUCT, dims=dict(n=1, k=1, m=3)).plan(device=of_sites(8), arena="64KiB")
    shown = " ".join(plan.explain().split())
    assert "warning: 5 of 8 sites (such as cpu:3) compute nothing: C (line 2) has the most kernel calls, 3" in shown


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (dict(sites=2.5), "sites=2.5 is no number of sites"),
        (dict(sites="2"), "sites='2' is no number of sites"),
        (dict(sites=True), "sites=True is no number of sites"),
        (dict(link=3), "3 is not a link"),
        (dict(link=(1e9, 1e-5)), "is not a link"),
        (dict(link="0GB/s,50us"), "'0GB/s,50us' is not a link: its rate must be more than 0"),
        (dict(rates=3), "3 are not rates of sites"),
        (dict(rates=[1, 0]), r"\[1, 0\] are not rates of sites"),
        (dict(device=["sim:0", "sim:1"]), r"device=\['sim:0', 'sim:1'\] is not a device"),
    ],
)
def test_a_setting_of_another_type_is_refused_by_its_name(setting: dict[str, Any], message: str) -> None:
    program = et.compile(PRODUCT, dims=dict(n=1, k=1, m=3))
    with pytest.raises(et.BindError, match=message):
        program.plan(arena="64KiB", **({"sites": 2} if {"link", "rates"} & setting.keys() else {}), **setting)
    if "sites" not in setting:
        arrays = {"A": np.ones((1, 1)), "B": np.ones((1, 3))}
        with pytest.raises(et.BindError, match=message):
            program(**arrays, arena="64KiB", **setting)
