"""Progress as text, and how seldom it is shown."""

import pytest

from einturnip.cli import progress
from einturnip.runtime.scheduler.report import Progress

HALF = Progress(
    done_ops=500,
    total_ops=1000,
    done_flops=5 * 10**9,
    total_flops=10**10,
    done_nbytes=1 << 30,
    total_nbytes=4 << 30,
    elapsed_seconds=2.0,
)


def test_a_line_says_how_far_and_how_fast():
    assert progress.line(HALF) == " 50%  500/1,000 tiles  1.00 GiB of 4.00 GiB  2.5 GFLOP/s  0:02 left"


def test_a_run_without_arithmetic_is_measured_by_its_tiles():
    moves = Progress(1, 4, 0, 0, 0, 0, 0.0)
    assert progress.line(moves) == " 25%  1/4 tiles  0 B of 0 B  0:00 left"
    assert progress.line(Progress(0, 0, 0, 0, 0, 0, 0.0)).startswith("100%")


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (65, "1:05"), (3905, "1:05:05")])
def test_time_left_reads_as_a_clock(seconds, text):
    assert progress.clock(seconds) == text


def test_quiet_shows_nothing():
    with progress.shown(quiet=True) as show:
        assert show is None


def test_a_pipe_gets_a_line_now_and_then(monkeypatch, capsys):
    times = iter((0.0, 1.0, 9.0, 10.0, 12.0, 20.5))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with progress.shown(quiet=False) as show:
        for _ in range(5):
            show(HALF)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.shown(quiet=False) as show:
        show(HALF)
    assert "500/1,000 tiles" in capsys.readouterr().err
