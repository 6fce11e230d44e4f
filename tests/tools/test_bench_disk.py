"""``einturnip bench disk`` on tiny files: contenders agree, peaks are seen, its page is written."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.api.program import Program
from einturnip.cli.main import LazyGroup
from einturnip.core import process_resources
from harness import disk
from harness.disk import DiskResult, DiskRun, DiskTrial, run_once
from harness.disk_cases import on_disk, prepare
from harness.disk_goals import goals, lines
from harness.disk_page import page
from harness.disk_peers import OURS, work
from harness.host import machine


@pytest.mark.parametrize("case", on_disk(small=True), ids=lambda case: case.name)
def test_a_case_gives_what_memory_maps_give(case: disk.DiskCase, tmp_path: Path) -> None:
    inputs, expected = prepare(case, "npy", tmp_path), []
    for way in (DiskRun("memmap", "npy", 0), DiskRun(OURS, "npy", 4), DiskRun(OURS, "npy", 0, cold=False)):
        run = disk.measure(DiskTrial(case, way, inputs, tmp_path, True, expected), way.memory(case))
        assert run is not None and run.agrees and not run.error and run.seconds > 0
        assert 0 < run.anonymous <= run.resident and run.resident <= (run.memory or run.resident)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in inputs.values())


def test_a_call_is_given_all_of_the_memory_that_is_not_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Einturnip's modules are loaded by then; they are part of what a call may add."""
    case, mib, given = on_disk(small=True)[0], 1 << 20, list[int]()
    inputs, taken = prepare(case, "npy", tmp_path), process_resources.callers_nbytes()
    monkeypatch.setattr(process_resources, "_loaded", process_resources._loaded + 16 * mib)
    monkeypatch.setattr(Program, "__call__", lambda program, **how: given.append(how["memory"]))
    run = work(OURS, case, inputs, tmp_path / "z.npy", 1024 * mib)
    assert run is not None
    run()
    assert abs(given[0] - (1024 * mib - taken + 16 * mib)) < 8 * mib


def test_a_quarter_of_a_peers_peak_is_measured_where_the_peer_got_there(tmp_path: Path) -> None:
    case, mib = on_disk(small=True)[0], 1 << 20
    sparing, peer = DiskRun(OURS, "npy", 4, of="memmap"), DiskRun("memmap", "npy", 0)
    record = disk.DiskRecord(case)
    assert not record.wants(sparing, 1)
    record.runs.append(DiskResult(peer, error="it died"))
    assert not record.wants(sparing, 1)
    record.runs += [DiskResult(peer, resident=1200 * mib), DiskResult(peer, resident=800 * mib)]
    assert record.wants(sparing, 1) and record.memory(sparing) == 200 * mib
    run = disk.measure(DiskTrial(case, sparing, prepare(case, "npy", tmp_path), tmp_path, small=True), 200 * mib)
    assert run is not None and not run.error and not run.raised
    assert run.memory == 200 * mib and run.resident <= 200 * mib


@pytest.mark.parametrize("of", ["dask", ""])
def test_less_than_einturnip_runs_in_is_raised_to_the_least(tmp_path: Path, of: str) -> None:
    case = on_disk(small=True)[0]
    given, way = 8 << 20, DiskRun(OURS, "npy", 4, of=of)
    trial = DiskTrial(case, way, prepare(case, "npy", tmp_path), tmp_path, small=True)
    run = disk.measure(trial, given)
    assert run is not None and not run.error and run.raised
    assert run.memory is not None and given < run.resident <= run.memory
    whose = " of dask's peak" if of else ""
    assert f"| 1/4{whose} (" in page({case.name: disk.DiskRecord(case, [run])}, machine() | {"disk": ""}, "")


def test_ways_in_a_quarter_of_a_peak_follow_the_peers_that_hold_to_a_limit() -> None:
    chosen = disk.ways(["dask", "memmap"], [4], ["npy", "zarr"])
    for form in ("npy", "zarr"):
        sparing = DiskRun(OURS, form, 4, of="dask")
        assert chosen[chosen.index(DiskRun("dask", form, 0)) + 1] == sparing
        assert sparing.is_one_of(["1/4-of-dask"]) and sparing.is_one_of([f"einturnip {form}"])
        assert not sparing.is_one_of(["dask", "einturnip 1/4"])
    assert not [way for way in chosen if way.of == "memmap"]


def test_what_ends_a_contender_is_its_result(tmp_path: Path) -> None:
    case = on_disk(small=True)[0]
    inputs = prepare(case, "npy", tmp_path)
    inputs["A"].write_bytes(b"no array")
    run = run_once(DiskTrial(case, DiskRun("memmap", "npy", 0), inputs, tmp_path, small=True), None)
    assert isinstance(run, DiskResult) and run.error


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["einturnip", "bench", "disk", "elementwise"])
    monkeypatch.setattr(disk, "present", lambda: ["memmap"])
    command = LazyGroup().get_command(None, "bench")  # type: ignore[arg-type]
    words = ["elementwise", "--small", "--rounds", "1", "--share", "4", "--folder", str(tmp_path / "data")]
    ran = CliRunner().invoke(command, ["disk", *words, "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    (case,) = json.loads((tmp_path / "disk.json").read_text())["cases"]
    assert case["name"] == "elementwise" and all(r["agrees"] for r in case["runs"])
    page = (tmp_path / "disk.md").read_text()
    assert "| memmap" in page and "of the disk's rate" in page and "every memory kept" in page


def test_only_what_is_asked_for_runs_and_the_rest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["einturnip", "bench", "disk"])
    command = LazyGroup().get_command(None, "bench")  # type: ignore[arg-type]
    words = ["matmul", "--small", "--rounds", "1", "--share", "4", "--only", "npy einturnip cold", "--only", "no such"]
    ran = CliRunner().invoke(command, ["disk", *words, "--folder", str(tmp_path / "data"), "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    (case,) = json.loads((tmp_path / "disk.json").read_text())["cases"]
    assert [(r["way"]["contender"], r["way"]["form"], r["way"]["share"]) for r in case["runs"]] == [
        (OURS, "npy", 0),
        (OURS, "npy", 4),
    ]
    page = (tmp_path / "disk.md").read_text()
    assert "Not measured: einturnip npy cold 1/2," in page and "dask npy cold all" in page


def _ran(name: str, share: int, seconds: float, resident: int, error: str = "") -> DiskResult:
    return DiskResult(DiskRun(name, "zarr", share), "1", seconds, resident, resident, agrees=True, error=error)


def _met(case: disk.DiskCase, *runs: DiskResult, **about: float) -> list[bool | None]:
    given = [replace(run, memory=run.memory or run.way.memory(case)) for run in runs]
    return [goal.met for goal in goals(case, given, about)]


def test_goals_are_met_or_not() -> None:
    product, *_, pipeline = on_disk()
    quarter = product.data_nbytes // 4
    ours = [_ran(OURS, 0, 10, quarter), _ran(OURS, 4, 10.9, quarter)]
    dask = [_ran("dask", 0, 11, 4 * quarter), _ran("dask", 4, 0, 0, "ended by the watcher")]
    assert product.compute_bound and _met(product, *ours, *dask) == [True, True, None, True, True]
    slow = [_ran(OURS, 0, 10, quarter), _ran(OURS, 4, 11.1, quarter + 1)]
    dask = [_ran("dask", 0, 11, 2 * quarter), _ran("dask", 4, 20, quarter)]
    assert _met(product, *slow, *dask) == [False, False, None, False, False]
    for seconds, peak, met in ((10.5, quarter // 2, True), (10.5, quarter, False), (11.5, quarter // 2, False)):
        sparing = DiskResult(DiskRun(OURS, "zarr", 4, of="dask"), "1", seconds, peak, peak, agrees=True, memory=quarter)
        assert _met(product, *slow, sparing, *dask) == [False, False, met, False, False]
    assert _met(product, sparing, dask[0]) == [None, None, False, None, True]  # nothing in a quarter of the data
    assert _met(product, ours[1]) == [None, True]
    assert not pipeline.compute_bound
    inputs, rates = 2 << 30, {"disk_read": float(1 << 30), "disk_write": float(1 << 29)}  # 2 s and 2 s
    assert pipeline.data_nbytes - pipeline.result_nbytes == inputs
    for seconds, met in ((4.4, True), (4.5, False)):
        assert _met(pipeline, _ran(OURS, 4, seconds, 1), **rates) == [met, True]
    assert _met(pipeline, _ran(OURS, 4, 4.4, 1)) == [None, True]
    assert lines(goals(pipeline, [_ran(OURS, 4, 4.5, 1)], rates))[2].endswith("| 0.89 | **no** |")


def test_nothing_is_made_when_the_time_is_over(tmp_path: Path) -> None:
    assert not list(disk.bench([], tmp_path / "data", 1, [4], True, {}, until=0.0))
    assert not (tmp_path / "data").exists()
