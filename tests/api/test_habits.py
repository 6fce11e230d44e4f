"""Pickles, progress, logging, and errors in words for wrong arguments."""

from __future__ import annotations

import io
import json
import logging
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import einturnip as et
from einturnip.cli.json_log import json_lines
from einturnip.cli.main import run
from einturnip.report import progress

TEXT = "dim n = 4\ninput A : f64[n, k]\ninput B : f64[k, n]\nC[i, j] = A[i, l] * B[l, j]\noutput C\n"
A = np.arange(12.0).reshape(4, 3)
LOOP = "input x : f64\ny = x\nfor t in 0 .. 500 {\n  y = cos(y)\n}\noutput y\n"


def test_a_program_survives_a_pickle():
    program = pickle.loads(pickle.dumps(et.compile(TEXT)))
    assert repr(program) == "Program(inputs: A, B, outputs: C)"
    assert (program(A=A, B=A.T)["C"] == A @ A.T).all()


def test_sizes_survive_a_pickle():
    program = et.compile("input x : f64[n]\ny[i: n] = n\noutput y\n", dims={"n": 3})
    assert (pickle.loads(pickle.dumps(program))(x=np.zeros(3))["y"] == 3).all()


@pytest.mark.parametrize("text", [TEXT, LOOP])
def test_progress_true_shows_a_status_line(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    monkeypatch.setattr(progress, "_REFRESH", 0.001)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    given = {"A": A, "B": A.T} if text is TEXT else {"x": 1.0}
    program = et.compile(text)
    program(**given, progress=True)
    assert "planning" in capsys.readouterr().err
    program(**given, progress=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p(A, A.T), r"given by their names. help: program\(A=..., B=...\)"),
        (lambda p: p(A=A, B=A.T, progress="yes"), "progress='yes' is neither True nor a function"),
        (lambda p: p(A=A, B=A.T, memory=3.5), "'3.5' has no unit"),
        (lambda p: p(A=A, B=A.T, memory=object()), "is not a size"),
        (lambda p: et.compile(5), "5 is neither a text nor a path"),
        (lambda p: et.compile(None), "None is neither a text nor a path"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call: Callable[[et.Program], object], message: str) -> None:
    with pytest.raises(et.BindError, match=message):
        call(et.compile(TEXT))


def test_runs_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "einturnip"):
        et.compile(TEXT).plan(A=A, B=A.T, out={"C": np.empty((4, 4))}).run(progress=lambda _: None)
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert events[-1] == "ran" and "planned" in events and "phase" in events
    assert caplog.records[-1].fields["peak_bytes"] > 0  # type: ignore[attr-defined]


def test_lines_of_json_leave_the_logger_as_it_was() -> None:
    logger, stream = logging.getLogger("einturnip"), io.StringIO()
    before = logger.level, logger.propagate, list(logger.handlers)
    with json_lines(stream):
        et.compile(LOOP)(x=1.0)
    assert (logger.level, logger.propagate, logger.handlers) == before
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(set(event) >= {"time", "level", "event", "message"} for event in events)


def test_a_logged_run_on_the_command_line(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert run(["run", "p.ein", "--dim", "k=3", "--random", "--json-log"]) == 0
    printed = capsys.readouterr()
    events = [json.loads(line) for line in printed.err.splitlines()]
    assert [event["event"] for event in events][-1] == "ran"
    assert "C" in printed.out
    assert run(["run", "p.ein", "--dim", "k=3", "--json-log"]) == 2
    (failed,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (failed["event"], failed["level"], failed["exit_code"]) == ("failed", "ERROR", 2)
    assert "input A (line 2) has no file" in failed["message"]


def test_warnings_are_logged_too(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "p.ein").write_text("y = log(-1.0)\noutput y\n")
    monkeypatch.chdir(tmp_path)
    assert run(["run", "p.ein", "--json-log"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["event"] for event in events if event["level"] == "WARNING"] == ["warning"]
