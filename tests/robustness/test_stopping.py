"""A run that is stopped or killed leaves nothing half-written."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.robustness.halting import halted
from tests.robustness.programs import GEMM, finished, start

WORKERS = 2
RUN = ("run", "gemm.ein", "--random", "--dim", "n=600", "--dim", "k=600", "--dim", "m=600")
TILED = (*RUN, "--arena", "512KiB", "--workers", str(WORKERS), "-o", "C=c.npy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gemm.ein").write_text(GEMM)
    (tmp_path / "c.npy").write_text("the older result")
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal_only_ops_that_were_handed_out_run(folder, number):
    with halted(*TILED, cwd=folder) as run:
        run.signal(number)
        code, err, kernels = run.ended()
    assert (code, err) == (128 + number, "interrupted\n")
    assert kernels <= WORKERS
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]
    assert (folder / "c.npy").read_text() == "the older result"


def test_a_run_under_nohup_outlives_its_terminal(folder):
    with halted(*TILED, cwd=folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as run:
        for _ in range(3):
            run.process.send_signal(signal.SIGHUP)
        assert run.ended()[:2] == (0, "")
    assert np.load(folder / "c.npy").shape == (600, 600)


def test_signals_that_repeat_leave_nothing_either(folder):
    with halted(*TILED, cwd=folder) as run:
        for _ in range(3):
            run.signal(signal.SIGINT)
        code, err, _ = run.ended()
    assert code == 130 and "Traceback" not in err
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]
    assert (folder / "c.npy").read_text() == "the older result"


# Sends itself a signal where a function of the package is called, then goes on as the console script does.
SIGNALLED = """
import importlib, os, sys
module, name, number = sys.argv[1:4]
del sys.argv[1:4]
owner = importlib.import_module(module)
*owners, name = name.split(".")
for outer in owners:
    owner = getattr(owner, outer)
function = getattr(owner, name)

def signalled(*arguments, **options):
    os.kill(os.getpid(), int(number))
    return function(*arguments, **options)

setattr(owner, name, signalled)
from einturnip.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        ("api.inputs", "compile_path", signal.SIGINT),
        ("compiler", "bind", signal.SIGTERM),
        ("api.jobs", "plan_job", signal.SIGINT),
        ("api.jobs", "open_sinks_of", signal.SIGTERM),
    ],
)
def test_a_signal_before_the_first_op_ends_the_command(folder, module, name, number):
    process = start([sys.executable, "-c", SIGNALLED, f"einturnip.{module}", name, str(int(number)), *TILED], folder)
    _, err = process.communicate()
    assert (process.returncode, err.strip()) == (128 + number, "interrupted")
    assert (folder / "c.npy").read_text() == "the older result"
    assert sorted(os.listdir(folder)) == ["c.npy", "gemm.ein"]


def test_a_killed_run_leaves_nothing(folder):
    with halted(*TILED, cwd=folder) as run:
        run.process.kill()
    assert (folder / "c.npy").read_text() == "the older result"
    code, _, err = finished(
        "run", "gemm.ein", "--random", "--dim", "n=8", "--dim", "k=8", "--dim", "m=8", "-o", "C=d.npy", cwd=folder
    )
    assert code == 0, err
    assert sorted(os.listdir(folder)) == ["c.npy", "d.npy", "gemm.ein"]
    assert np.load(folder / "d.npy").shape == (8, 8)
