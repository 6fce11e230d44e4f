"""``einturnip bench host`` on tiny sizes: contenders agree, and its page, figures and drawing are written."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.cli import bench
from einturnip.cli.main import LazyGroup, run
from einturnip.kernels.llvm import code_cache
from harness import worker
from harness.cases import BenchCase, in_memory
from harness.contest import Contender, ContenderFigure, _agree, contest, start, turns
from harness.draw import ratios_svg
from harness.host import HostOutcome, write
from harness.peers import work
from harness.worker import _warm, inputs, sample


@pytest.mark.parametrize("case", in_memory(small=True), ids=lambda case: case.name)
def test_every_case_computes_what_numpy_does(case: BenchCase) -> None:
    arrays = inputs(case)
    ours, numpys = (work(name, case, arrays) for name in ("einturnip", "numpy"))
    assert ours is not None and numpys is not None
    a, b = sample(ours()), sample(numpys())
    scale = max(map(abs, b))
    assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b, strict=True)) <= case.tolerance * scale


def test_contenders_take_turns() -> None:
    ours, numpys = contest("matmul", ["einturnip", "numpy"], 3, True, 1e-4)
    assert ours.agrees and numpys.agrees and numpys.peak_nbytes > 0 and numpys.seconds > 0


@pytest.mark.parametrize(("seconds", "made"), [(0.0, 3), (7.0, 7), (1000.0, 30)])
def test_short_calls_are_made_in_more_turns(monkeypatch: pytest.MonkeyPatch, seconds: float, made: int) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    count = 0
    for k in turns(3, seconds):
        assert k == count
        count, now = count + 1, now + 1.0
    assert count == made


@pytest.mark.parametrize(("last", "agrees"), [([1.0, 2.0], True), ([1.0, 2.5], False), ([], False)])
def test_a_later_call_has_to_agree_too(last: list[float], agrees: bool) -> None:
    a, b = (Contender(name, None, {"sample": [1.0, 2.0]}) for name in "ab")  # type: ignore[arg-type]
    b.last = last
    assert _agree(a, b, 1e-3) == agrees


def test_the_last_timed_call_is_looked_at() -> None:
    contender = start("matmul", "numpy", True)
    try:
        contender.call()
        assert contender.last == pytest.approx(contender.about["sample"])
    finally:
        contender.end()


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["einturnip", "bench", "host", "--rounds", "2", "max-plus"])
    command = LazyGroup().get_command(None, "bench")  # type: ignore[arg-type]
    ran = CliRunner().invoke(command, ["host", "max-plus", "--small", "--rounds", "2", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    found = json.loads((tmp_path / "host.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["max-plus"]
    assert {"einturnip", "numpy"} <= {c["name"] for c in found["cases"][0]["contenders"]}
    page = (tmp_path / "host.md").read_text()
    assert "`einturnip bench host --rounds 2 max-plus`" in page and (" of min/add |" in page) == code_cache.available()
    assert (found["cases"][0]["peak"] > 0) == code_cache.available()


def test_how_often_a_call_is_repeated_hangs_on_no_single_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of twenty that the machine held up, the last, changes nothing."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def call() -> None:
        clock[0] += 5.0 if clock[0] >= 1.85 else 0.1

    assert _warm(call, 2.0) == pytest.approx(0.1)


def test_a_contender_is_warm_before_it_may_be_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is stopped once it has said what it is: time that it stood still would count as time that it was called."""
    said_before = []

    def warm(call: Callable[[], object], seconds: float) -> float:
        said_before.append(capsys.readouterr().out)
        return 1.0

    monkeypatch.setattr(worker, "_warm", warm)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    worker.main("matmul", "numpy", "1")
    assert said_before == [""] and "version" in json.loads(capsys.readouterr().out)


def test_a_case_that_is_not_there() -> None:
    command = LazyGroup().get_command(None, "bench")  # type: ignore[arg-type]
    ran = CliRunner().invoke(command, ["host", "no such"])
    assert ran.exit_code == 2 and "no case's name holds 'no such'" in ran.output


def test_a_checkout_has_benchmarks_wherever_the_command_is_run(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(bench.FOLDER.parents[1])}
    words = [sys.executable, "-m", "einturnip", "bench", "host", "no such"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 2 and "no case's name holds 'no such'" in ran.stderr


@pytest.mark.parametrize("words", [[], ["host", "--small"], ["gpu", "--out", "there"]])
def test_an_installed_package_says_where_the_benchmarks_are(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "command", bench.benchmarks(tmp_path))
    assert run(["bench", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err == f"error: {bench.ABSENT}\n"


def test_bars_stand_about_one() -> None:
    drawn = ratios_svg([("fast", 2.0, 1.9, 2.1), ("slow", 0.5, 0.4, 0.6)], "ratios")
    assert drawn.count("<rect") == 3 and "#2a7f62" in drawn and "#b5542f" in drawn


def test_cases_measured_the_same_day_stay_on_the_page(tmp_path: Path) -> None:
    about = {"date": "2026-01-01", "processor": "p", "cores": 1, "python": "3", "numpy": "2", "blas": []}
    one, two = (
        HostOutcome(c, (ContenderFigure("einturnip", "0", 1.0, 3, 0, 1.0, 1.0, 1.0, True),))
        for c in in_memory(True)[:2]
    )
    write([two], tmp_path, about, "bench")
    write([one], tmp_path, about, "bench")
    names = [c["name"] for c in json.loads((tmp_path / "host.json").read_text())["cases"]]
    assert names == [one.case.name, two.case.name]
    write([one], tmp_path, about | {"date": "2026-01-02"}, "bench")
    assert len(json.loads((tmp_path / "host.json").read_text())["cases"]) == 1
