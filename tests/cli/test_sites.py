"""``plan --sites P``: a plan within the memory of each of P sites."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import einturnip as et
from einturnip.cli.main import cli
from einturnip.core.errors import BindError, CapacityError
from einturnip.core.package_data import folder
from einturnip.cost.described_machines import described
from einturnip.memgraph.types import OpKind
from einturnip.runtime.simulate.machine_prices import priced

PRODUCT = "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n"
MTTKRP = """
input X : f64[i, j, k], B : f64[j, r], C : f64[k, r]
M[p,q] = sum[s,t] X[p,s,t] * B[s,q] * C[t,q]
output M
"""
DIMS = ("--dim", "n=512", "--dim", "k=512", "--dim", "m=512", "--arena", "1MiB")


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "p.ein").write_text(PRODUCT)
    return str(tmp_path / "p.ein")


def test_bytes_between_sites_are_shown(program: str) -> None:
    text = CliRunner().invoke(cli, ["plan", program, *DIMS, "--sites", "4"])
    assert text.exit_code == 0, text.output
    assert "between 4 sites" in " ".join(text.output.split())
    shown = CliRunner().invoke(cli, ["plan", program, *DIMS, "--sites", "4", "--format", "json"])
    plan = json.loads(shown.stdout)
    sites, links = plan["sites"], plan["site_links"]
    assert [site["id"] for site in sites] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    assert sum(links.values()) == sum(site["bytes_out"] for site in sites)
    arriving = sum(site["bytes_in"] + site["first_read_bytes"] for site in sites)
    assert arriving <= 1.05 * plan["eindecomp_bytes"]


def test_one_site_is_the_plan_without_sites(program: str) -> None:
    alone, one = (
        json.loads(CliRunner().invoke(cli, ["plan", program, *DIMS, *more, "--format", "json"]).stdout)
        for more in (("--device", "cpu"), ("--sites", "1"))
    )
    assert "sites" not in one and alone["statements"] == one["statements"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sites", "0"), "'0' is not a whole number from 1 to 1024"),
        (("--sites", "2.5"), "'2.5' is not a whole number from 1 to 1024"),
        (("--sites", "2", "--device", "cpu"), "excludes --device"),
        (("--sites", "2", "--parts", "2"), "--parts"),
        (("--sites", "2", "--link", "nonsense"), "'nonsense' is not a link. help: write its rate and its latency"),
        (("--sites", "2", "--link", "1GB/s"), "such as 1.25GB/s,50us"),
        (("--sites", "2", "--link", "0GB/s,1us"), "more than 0 bytes"),
    ],
)
def test_bad_input_is_refused(program: str, arguments: tuple[str, ...], message: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", program, *DIMS, *arguments])
    assert refused.exit_code == 2 and message in refused.output


def test_a_link_of_one_site_is_refused(program: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", program, *DIMS, "--sites", "1", "--link", "1GB/s,1us"])
    assert isinstance(refused.exception, BindError) and "the plan is for one" in str(refused.exception)


def test_sites_without_work_are_refused_and_such_devices_warned_of(tmp_path: Path) -> None:
    (tmp_path / "small.ein").write_text("input A : f64[n]\nY[i] = exp(A[i])\noutput Y\n")
    arguments = [str(tmp_path / "small.ein"), "--dim", "n=3", "--arena", "1MiB"]
    expected = "5 of 8 sites (such as cpu:3) compute nothing: Y (line 2) has the most kernel calls, 3"
    for more in (["--no-budgets"], ["--format", "json"], ["--emit", "sites"]):
        refused = CliRunner().invoke(cli, ["plan", *arguments, *more, "--sites", "8"])
        assert isinstance(refused.exception, BindError)
        assert str(refused.exception) == f"{expected}. help: --sites 3"
    devices = ["--device", f"sim:{','.join(map(str, range(8)))}"]
    for command in (["run", *arguments, "--random", "-q", *devices], ["plan", *arguments, "--no-budgets", *devices]):
        found = CliRunner().invoke(cli, command, catch_exceptions=False)
        assert found.exit_code == 0 and " ".join(found.output.split()).count(f"warning: {expected}") == 1, command
    assert "warning" not in CliRunner().invoke(cli, ["plan", *arguments, "--no-budgets", "--sites", "3"]).output


@pytest.mark.parametrize("sites", [7, 60, 100])
def test_the_named_number_of_sites_is_planned(program: str, sites: int) -> None:
    dims = [x for label in "nkm" for x in ("--dim", f"{label}=4")]
    arguments = ["plan", program, *dims, "--arena", "1MiB", "--no-budgets", "--sites"]
    refused = CliRunner().invoke(cli, [*arguments, str(sites)])
    assert isinstance(refused.exception, BindError) and "C (line 2)" in str(refused.exception)
    number = str(refused.exception).rpartition("--sites ")[2]
    assert CliRunner().invoke(cli, [*arguments, number]).exit_code == 0


def test_the_plan_of_each_site_is_shown_under_its_number(program: str) -> None:
    arguments = ["plan", program, *DIMS, "--sites", "2", "--emit", "sites"]
    lines = CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout.splitlines()
    ops = json.loads(CliRunner().invoke(cli, [*arguments, "--format", "json"], catch_exceptions=False).stdout)["ops"]
    assert [line for line in lines if line.startswith("site")] == ["site 0:", "site 1:"]
    assert len(lines) == len(ops) + 2
    send = next(op for op in ops if op["kind"] == "send")
    (_, _, _, value), number = send["reads"][0], send["transfer"]
    text = next(line for line in lines if line.startswith(f"{send['id']}: "))
    assert text.startswith(f"{send['id']}: send value {value} at cpu:{send['site']}[")
    assert f"] to site {send['peer']} (transfer {number})" in text
    assert any(f": notice from site {send['site']} (transfer {number})" in line for line in lines)


def test_what_a_site_spills_is_counted_for_each_site(tmp_path: Path) -> None:
    (tmp_path / "m.ein").write_text(MTTKRP)
    dims = [x for size in ("i=20", "j=15", "k=12", "r=4") for x in ("--dim", size)]
    arguments = ["plan", str(tmp_path / "m.ein"), *dims, "--sites", "2", "--arena", "4KiB", "--format", "json"]
    whole = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout)
    plan = json.loads(CliRunner().invoke(cli, [*arguments, "--emit", "sites"], catch_exceptions=False).stdout)
    hosts = {tier["id"]: tier["capacity"] for tier in plan["tiers"] if tier["kind"] == "host"}
    assert len(hosts) == 2 and whole["spill_bytes"] == 0
    used = {
        name: {p[1] + p[2] for op in plan["ops"] for p in (*op["reads"], *op["writes"]) if p[0] == name}
        for name in hosts
    }
    assert {name: max(ends) for name, ends in used.items()} == hosts
    assert all(nbytes < whole["host_spill_bytes"] for nbytes in hosts.values())
    assert set(whole["predicted"]["peak_bytes"]) == {"cpu:0", "cpu:1"}
    proof = CliRunner().invoke(cli, ["verify", "-"], input=json.dumps(plan))
    assert proof.exit_code == 0, proof.output


@pytest.mark.parametrize("memory", ["256KiB,64KiB", "64KiB"])
def test_a_run_on_devices_compares_with_the_plan_under_the_same_names(tmp_path: Path, memory: str) -> None:
    (tmp_path / "p.ein").write_text(PRODUCT)
    for name in "AB":
        np.save(tmp_path / f"{name}.npy", np.ones((96, 96)))
    files = [x for name in "AB" for x in ("-i", f"{name}={tmp_path / name}.npy")]
    report = tmp_path / "report.json"
    arguments = ["run", str(tmp_path / "p.ein"), *files, "--device", "sim:1,2", "--arena", memory, "--analyze"]
    ran = CliRunner().invoke(cli, [*arguments, "--report", str(report)], catch_exceptions=False)
    found = json.loads(report.read_text())
    run = found.get("run", found)
    read = "disk->sim:0,1"
    assert 0 < run["link_bytes_lower_bound"][read] <= run["link_bytes"][read]
    assert run["predicted"]["link_bytes"] == run["link_bytes"] | {
        "sim:0,1->disk": run["predicted"]["link_bytes"]["sim:0,1->disk"]
    }
    assert run["arena_peak_nbytes"] <= run["arena_nbytes"]
    assert "the lower bound of" in ran.output and "bytes sim:0,1->sim:0,1" in ran.output


def test_too_little_memory_is_refused_with_the_minimum_of_each_site(program: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", program, *DIMS[:-1], "100", "--sites", "4"])
    assert isinstance(refused.exception, CapacityError) and refused.exception.needed > 100
    assert "an arena of 100 B on each of 4 devices; the minimum is" in str(refused.exception)
    assert str(refused.exception).endswith(", for the tiles of C (line 2) on sites 0, 1, 2, 3")
    arguments = ["plan", program, *(x for label in "nkm" for x in ("--dim", f"{label}=8")), "--sites", "4", "--arena"]
    small = CliRunner().invoke(cli, [*arguments, "100"])
    assert isinstance(small.exception, CapacityError)
    assert CliRunner().invoke(cli, [*arguments, str(small.exception.needed)]).exit_code == 0


def test_the_link_sets_the_seconds_of_transfers(program: str) -> None:
    arguments = ["plan", program, *DIMS, "--sites", "2", "--no-budgets", "--format", "json"]
    default, linked = (
        json.loads(CliRunner().invoke(cli, [*arguments, *link]).stdout) for link in ((), ("--link", "1MB/s,2ms"))
    )
    emitted = json.loads(
        CliRunner().invoke(cli, [*arguments, "--link", "1MB/s,2ms", "--emit", "sites"], catch_exceptions=False).stdout
    )
    assert emitted["link"] == {"bandwidth": 1e6, "latency": 2e-3}
    for k, site in enumerate(linked["sites"]):
        received = [op for op in emitted["ops"] if op["kind"] == "receive" and op["site"] == k]
        assert sum(op["writes"][0][2] for op in received) == site["bytes_in"]
        expected = site["bytes_in"] / 1e6 + 2e-3 * len(received)
        assert site["receive_seconds"] == pytest.approx(expected)
        assert sum(op["seconds"] for op in received) == pytest.approx(expected)
        assert linked["predicted"]["seconds"] >= expected
    assert default["predicted"]["seconds"] < min(site["receive_seconds"] for site in linked["sites"])


def test_the_link_replaces_that_of_a_described_machine(program: str) -> None:
    arguments = ["plan", program, *DIMS, "--sites", "2", "--format", "json", "--simulate", "ethernet10", "--link"]
    slow, same = (
        json.loads(CliRunner().invoke(cli, [*arguments, link]).stdout)["dispatch"]["free"]["links"]["device->device"]
        for link in ("1MB/s,2ms", "1.2GB/s,50us")
    )
    usual = json.loads(CliRunner().invoke(cli, arguments[:-1]).stdout)["dispatch"]["free"]["links"]["device->device"]
    assert same == usual and slow["bytes"] == same["bytes"] and slow["seconds"] > slow["bytes"] / 2 / 1e6


def test_a_simulation_takes_the_rates_of_sites(program: str) -> None:
    arguments = ["plan", program, *DIMS, "--sites", "2", "--rates", "4,1", "--format", "json"]
    shown = CliRunner().invoke(cli, [*arguments, "--simulate", "ethernet10"], catch_exceptions=False)
    plan = et.compile(PRODUCT).plan(dims=dict(n=512, k=512, m=512), arena="1MiB", sites=2, rates=[4, 1])
    graph = priced(plan._job.planned.memgraph, described("ethernet10"))  # as if both were equally fast
    kernels = np.flatnonzero(graph.kind == OpKind.KERNEL)
    one, other = np.bincount(graph.op_devices()[kernels], graph.seconds[kernels])
    assert json.loads(shown.stdout)["dispatch"]["free"]["computing"] == pytest.approx(one + 4 * other)


def test_devices_of_a_described_machine_may_be_unlike(program: str, tmp_path: Path) -> None:
    text = (folder("cost") / "machines" / "nvlink8.toml").read_text()
    one = text.replace("devices = 8", "devices = 2")
    two = one.replace("devices = 2", "devices = 2\nrates = [2, 1]")
    small = one.replace("device = 85_899_345_920", "device = [85_899_345_920, 4096]")
    found = []
    for name, written in (("one", one), ("two", two), ("small", small)):
        (tmp_path / f"{name}.toml").write_text(written)
        arguments = ["plan", program, *DIMS, "--sites", "2", "--simulate", str(tmp_path / f"{name}.toml")]
        found.append(CliRunner().invoke(cli, [*arguments, "--format", "json"]))
    computing = [json.loads(done.stdout)["dispatch"]["free"]["computing"] for done in found[:2]]
    assert computing[1] == pytest.approx(1.5 * computing[0], rel=0.02)
    assert found[2].exit_code != 0
    assert "device 1 of small has 4.00 KiB" in str(found[2].exception) and "--arena" in str(found[2].exception)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rates = [1, 2]", "rates states 2 values for 8 devices"),
        ("rates = [1, 2, 3, 4, 5, 6, 7, 0]", "are not rates of sites"),
        ("rates = 2\nlinks = 3", "does not describe a machine"),
    ],
)
def test_a_wrong_description_of_unlike_devices_is_refused(line: str, message: str, tmp_path: Path) -> None:
    text = (folder("cost") / "machines" / "nvlink8.toml").read_text()
    (tmp_path / "wrong.toml").write_text(text.replace("devices = 8", f"devices = 8\n{line}"))
    with pytest.raises(BindError, match=f"wrong.toml does not describe a machine.*{message}|{message}"):
        described(str(tmp_path / "wrong.toml"))


def test_a_run_on_simulated_devices_takes_a_link(program: str, tmp_path: Path) -> None:
    arguments = ["run", program, *DIMS, "--random", "--device", "sim:0,1", "--report", str(tmp_path / "r.json")]
    done, predicted = [], []
    for link in ((), ("--link", "1MB/s,2ms")):
        done.append(CliRunner().invoke(cli, [*arguments, *link]).exit_code)
        predicted.append(json.loads((tmp_path / "r.json").read_text())["predicted"]["seconds"])
    assert done == [0, 0] and predicted[0] < 0.1 < 1 < predicted[1]


def test_a_program_with_too_many_calls_names_no_minimum(program: str) -> None:
    dims = [x for label in "nkm" for x in ("--dim", f"{label}=163840")]
    done = CliRunner().invoke(cli, ["plan", program, *dims, "--arena", "16GiB", "--sites", "1024", "--no-budgets"])
    assert isinstance(done.exception, CapacityError)
    assert "is too large" in str(done.exception) and "minimum" not in str(done.exception)


def test_the_memory_of_sites_does_not_bound_the_process_that_plans(program: str) -> None:
    arguments = ["plan", program, *(x for label in "nkm" for x in ("--dim", f"{label}=80")), "--no-budgets"]
    arguments += ["--memory", "20KiB", "--sites", "3"]
    done = subprocess.run([sys.executable, "-m", "einturnip", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
