"""A run that is told to stop, or killed, leaves nothing half-written."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.robustness.programs import GEMM, command, finished, opened, wait_for

BIG = ("--random", "--dim", "n=9000", "--dim", "k=9000", "--dim", "m=9000", "--arena", "64MiB", "-o", "C=c.npy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gemm.ein").write_text(GEMM)
    (tmp_path / "c.npy").write_text("the older result")
    return tmp_path


def computing(folder: Path):
    """A run that has opened its output and done some of its work."""
    process = command("run", "gemm.ein", *BIG, cwd=folder)

    def holds_output() -> bool:
        assert process.poll() is None, process.stderr.read()
        return any(name.startswith(str(folder)) for name in opened(process.pid))

    wait_for(holds_output)
    time.sleep(0.5)
    assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_run_ends_it_within_two_seconds(folder, number):
    process = computing(folder)
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begin < 2.0 + 2.0 * (os.getloadavg()[0] > os.cpu_count())
    assert (process.returncode, err) == (128 + number, "interrupted\n")
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]
    assert (folder / "c.npy").read_text() == "the older result"


def test_a_run_under_nohup_outlives_its_terminal(folder):
    process = command(
        *("run", "gemm.ein", "--random", "--dim", "n=2000", "--dim", "k=2000", "--dim", "m=2000", "-o", "C=c.npy"),
        cwd=folder,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert process.communicate(timeout=30)[1] == "" and process.returncode == 0
    assert np.load(folder / "c.npy").shape == (2000, 2000)


def test_signals_that_repeat_leave_nothing_either(folder):
    process = computing(folder)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]


@pytest.mark.parametrize("delay", [0.15, 0.3, 0.6])
def test_a_signal_before_the_run_ends_the_command(folder, delay):
    process = command("run", "gemm.ein", *BIG, cwd=folder)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    # Python itself takes a signal that comes before our first line, and dies of it as it should.
    assert process.returncode in (130, -signal.SIGINT), err
    assert (folder / "c.npy").read_text() == "the older result"
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]


def test_a_killed_run_leaves_nothing(folder):
    process = computing(folder)
    process.kill()
    process.communicate(timeout=30)
    assert (folder / "c.npy").read_text() == "the older result"
    code, _, err = finished(
        "run", "gemm.ein", "--random", "--dim", "n=8", "--dim", "k=8", "--dim", "m=8", "-o", "C=d.npy", cwd=folder
    )
    assert code == 0, err
    assert sorted(os.listdir(folder)) == ["c.npy", "d.npy", "gemm.ein"]
    assert np.load(folder / "d.npy").shape == (8, 8)
