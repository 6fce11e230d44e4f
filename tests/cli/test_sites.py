"""``plan --sites P``: a plan within the memory of each of P sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.cli.main import cli
from einturnip.core.errors import CapacityError

PRODUCT = "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n"
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
        (("--sites", "0"), "0 is not in the range"),
        (("--sites", "2", "--device", "cpu"), "excludes --device"),
        (("--sites", "2", "--parts", "2"), "--parts"),
    ],
)
def test_bad_input_is_refused(program: str, arguments: tuple[str, ...], message: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", program, *DIMS, *arguments])
    assert refused.exit_code == 2 and message in refused.output


def test_more_sites_than_work_are_named(tmp_path: Path) -> None:
    (tmp_path / "small.ein").write_text("input A : f64[n]\nY[i] = exp(A[i])\noutput Y\n")
    shown = CliRunner().invoke(
        cli, ["plan", str(tmp_path / "small.ein"), "--dim", "n=3", "--arena", "1MiB", "--sites", "8"]
    )
    assert shown.exit_code == 0, shown.output
    assert "line 2: Y has 3 kernel calls, not 8" in " ".join(shown.output.split())


def test_too_little_memory_is_refused_with_the_minimum_of_each_site(program: str) -> None:
    refused = CliRunner().invoke(cli, ["plan", program, *DIMS[:-1], "100", "--sites", "4"])
    assert isinstance(refused.exception, CapacityError) and refused.exception.needed > 100
    assert "an arena of 100 B on each of 4 devices; the minimum is" in str(refused.exception)


def test_a_program_with_too_many_calls_names_no_minimum(program: str) -> None:
    dims = [x for label in "nkm" for x in ("--dim", f"{label}=163840")]
    done = CliRunner().invoke(cli, ["plan", program, *dims, "--arena", "16GiB", "--sites", "1024", "--no-budgets"])
    assert isinstance(done.exception, CapacityError)
    assert "is too large" in str(done.exception) and "minimum" not in str(done.exception)
