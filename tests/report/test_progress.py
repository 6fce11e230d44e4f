"""Progress as text, and how seldom it is shown."""

from __future__ import annotations

import errno
import io
import os
import pty
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TextIO

import pytest

import einturnip as et
from einturnip.cli import main
from einturnip.core import phases
from einturnip.core.phases import listening
from einturnip.report import progress
from einturnip.report.progress import StatusLine
from einturnip.runtime.host.event_loop import ProgressReporter
from einturnip.runtime.scheduler.report import Progress
from einturnip.runtime.scheduler.trace import RunTrace

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


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """The two ends of a pseudo-terminal of 60 columns: a stream, and a function that reads what was written to it."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 60))
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    os.set_blocking(master, False)

    def written() -> str:
        try:
            return os.read(master, 1 << 16).decode()
        except BlockingIOError:
            return ""

    with os.fdopen(slave, "w") as stream:
        yield stream, written
    os.close(master)


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_terminal_shows_each_stage_from_half_a_second_on(terminal: tuple[TextIO, Callable[[], str]]) -> None:
    """Each drawing overwrites the last, to its end."""
    stream, written = terminal
    clock = Clock()
    status = StatusLine(stream, clock)
    status.draw()
    clock.seconds = 100.49
    status.draw()
    assert written() == ""
    clock.seconds = 100.5
    status.draw()
    assert written() == "\r0:00  reading"
    with listening(status):
        phases.enter("planning")
        status.draw()
        assert written() == "\r0:00  planning"
        phases.tried(2.5)
        phases.tried(1.25)
        phases.tried(3.0)
        clock.seconds = 107.0
        status.draw()
        compared = "0:07  planning  3 plans compared, best 1.25 s"
        assert written() == f"\r{compared}"
        phases.enter("compiling")
        status.draw()
        assert written() == "\r" + "0:07  compiling".ljust(len(compared))
        phases.clear()
        assert written() == "\r" + " " * len("0:07  compiling") + "\r"
    phases.enter("planning")  # no longer listening
    status.run(HALF)
    status.draw()
    assert written() == "\r" + f"0:07  running {progress.line(HALF)}"[:59]
    status.clear()
    assert written() == "\r" + " " * 59 + "\r"
    status.clear()
    assert written() == ""


def test_a_wide_terminal_shows_the_statement(terminal: tuple[TextIO, Callable[[], str]]) -> None:
    stream, written = terminal
    termios.tcsetwinsize(stream.fileno(), (24, 200))
    clock = Clock()
    status = StatusLine(stream, clock)
    clock.seconds = 165.0
    status.run(replace(HALF, statement="C[i,k] = A[i,j] * B[j,k]"))
    status.draw()
    assert written() == "\r1:05  running " + progress.line(HALF) + "  C[i,k] = A[i,j] * B[j,k]"


def test_a_notebook_shows_eighty_columns() -> None:
    stream, clock = io.StringIO(), Clock()
    status = StatusLine(stream, clock)
    clock.seconds = 165.0
    status.run(HALF)
    status.draw()
    assert stream.getvalue() == "\r" + f"1:05  running {progress.line(HALF)}"[:79]


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    clock = Clock()
    status = StatusLine(Gone(), clock)
    clock.seconds = 200.0
    status.draw()
    status.clear()


def test_progress_names_the_statement_of_the_last_kernel() -> None:
    text = "input A : f64[n, n]\nB[i,k] = A[i,j] * A[j,k]\nC[i,k] = exp(B[i,k]) * B[k,i]\noutput C\n"
    graph = et.compile(text).plan(dims={"n": 64}, arena="16KiB")._job.planned.memgraph
    seen, trace = list[Progress](), RunTrace(len(graph))
    report = ProgressReporter(graph, SimpleNamespace(moved={}), seen.append)  # type: ignore[arg-type]
    report(trace)
    for kernels in ([0], range(1, len(graph))):
        trace.order += kernels
        report(trace)
    last = [op for op in range(len(graph)) if report.flops[op]][-1]
    line = graph.taskgraph.decomposition.graph.nodes[graph.taskgraph.node[graph.task[last]]].line
    assert [p.statement for p in seen] == ["", "", text.splitlines()[line - 1]]
    assert [p.done_ops for p in seen] == [0, 1, len(graph)]


def test_planning_reports_the_plans_that_it_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction of the best one is refined afterwards, for the kernels that there are."""
    monkeypatch.setenv("EINTURNIP_PLANS", "off")

    class Noted:
        def __init__(self) -> None:
            self.phases, self.seconds = list[str](), list[float]()

        def enter(self, phase: str) -> None:
            self.phases.append(phase)

        def tried(self, seconds: float) -> None:
            self.seconds.append(seconds)

        def clear(self) -> None: ...

    noted = Noted()
    with listening(noted):
        plan = et.compile("input A : f32[n, n]\nB[i,k] = A[i,j] * A[j,k]\noutput B\n").plan(
            dims={"n": 2000}, arena="8MiB"
        )
    assert noted.phases == ["planning"]
    assert min(noted.seconds) == pytest.approx(plan.prediction.seconds, rel=0.1)


def test_a_plan_of_other_budgets_shows_that_it_plans(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart follows the plan, and may take seconds of planning."""
    (tmp_path / "p.ein").write_text("input A : f32[n, n]\nB[i,k] = A[i,j] * A[j,k]\noutput B\n")
    entered = list[str]()
    monkeypatch.setattr(StatusLine, "enter", lambda self, phase: entered.append(phase))
    counts = []
    for budgets in ("--no-budgets", "--budgets"):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", Terminal())
            assert main.run(["plan", str(tmp_path / "p.ein"), "--dim", "n=8", "--arena", "64KiB", budgets]) == 0
        counts.append(entered.count("planning"))
        entered.clear()
    assert counts[0] == 1 < counts[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
