"""``einturnip bench disk`` on tiny files: contenders agree, peaks are seen, its page is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.bench import disk
from einturnip.bench.disk import Run, Way, run_once
from einturnip.bench.disk_cases import on_disk, prepare
from einturnip.bench.disk_peers import OURS
from einturnip.cli.main import Verbs


@pytest.mark.parametrize("case", on_disk(small=True), ids=lambda case: case.name)
def test_a_case_gives_what_memory_maps_give(case: disk.DiskCase, tmp_path: Path) -> None:
    inputs, expected = prepare(case, "npy", tmp_path), []
    for way in (Way("memmap", "npy", 0), Way(OURS, "npy", 4), Way(OURS, "npy", 0, cold=False)):
        run = run_once(case, way, inputs, tmp_path, True, expected)
        assert run is not None and run.agrees and not run.error and run.seconds > 0
        assert 0 < run.anonymous <= run.resident and run.resident <= (way.memory(case) or run.resident)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in inputs.values())


def test_what_ends_a_contender_is_its_result(tmp_path: Path) -> None:
    case = on_disk(small=True)[0]
    inputs = prepare(case, "npy", tmp_path)
    inputs["A"].write_bytes(b"no array")
    run = run_once(case, Way("memmap", "npy", 0), inputs, tmp_path, True, [])
    assert isinstance(run, Run) and run.error


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["einturnip", "bench", "disk", "elementwise"])
    monkeypatch.setattr(disk, "present", lambda: ["memmap"])
    command = Verbs().get_command(None, "bench")  # type: ignore[arg-type]
    words = ["elementwise", "--small", "--rounds", "1", "--share", "4", "--folder", str(tmp_path / "data")]
    ran = CliRunner().invoke(command, ["disk", *words, "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    (case,) = json.loads((tmp_path / "disk.json").read_text())["cases"]
    assert case["name"] == "elementwise" and all(r["agrees"] for r in case["runs"])
    assert "| memmap" in (tmp_path / "disk.md").read_text()
