"""Workers and runs that end before their time: an error that names the worker, no output, no litter, no hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import einturnip as et
from einturnip.cluster.dask import run_site
from einturnip.sites.wires import dask_cluster
from einturnip.sites.wires.dask import CONNECT_SECONDS
from einturnip.sites.wires.dask_calls import run_on_workers
from tests.cluster.faults import instants, run_with

pytestmark = pytest.mark.timeout(120)
# Each step needs the one before, so that a run has many transfers.
TEXT = "input A : f64[n,n], B : f64[n,n]\n" + "".join(
    f"{'ABCDEFGHIJ'[k + 2]}[i,j] = {'ABCDEFGHIJ'[k + 1]}[i,k] * A[k,j] / 1000\n" for k in range(7)
) + "output I\n"  # fmt: skip


def start(folder: Path, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a scheduler or a worker as Dask's command does."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("at", instants("scheduler"))
def test_a_lost_scheduler_ends_the_run_at_once(tmp_path: Path, at: float) -> None:
    (tmp_path / "out").mkdir()
    place = str(tmp_path / "scheduler.json")
    processes = [start(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", place)]
    try:
        options = ("--scheduler-file", place, "--nthreads", "1", "--memory-limit", "0", "--no-nanny")
        processes += [start(tmp_path, "worker", *options) for _ in range(2)]
        # A client waits this long for a scheduler that is gone to come back, and the test would end before.
        with Client(scheduler_file=place, timeout=600) as client:
            client.wait_for_workers(2, timeout=60)
            error, _ = run_with(client, processes[0].kill, at, tmp_path / "out")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert str(error).startswith("the scheduler of the cluster is gone. Nothing was written.")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_its_workers(tmp_path: Path) -> None:
    a = np.random.default_rng(0).standard_normal((2500, 2500))
    np.save(tmp_path / "A.npy", a)
    (tmp_path / "p.ein").write_text(TEXT)
    command = [sys.executable, "-m", "einturnip", "run", "p.ein", "--at", "local:2", "--arena", "4MiB"]
    process = subprocess.Popen(
        [*command, "-i", "A=A.npy", "-i", "B=A.npy", "-o", "I=I.npy"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 60
        while not any(name.endswith(".tmp") for name in os.listdir(tmp_path)):
            assert time.monotonic() < until and process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers receive it too
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert sorted(os.listdir(tmp_path)) == ["A.npy", "p.ein"]


def test_a_task_of_a_run_that_is_over_does_not_hold_its_worker(own: Any) -> None:
    address = next(iter(own.run(os.getpid)))
    gone = "tcp://127.0.0.1:9"  # where nothing listens: a worker tries for CONNECT_SECONDS to reach it

    def task(run: str) -> Any:
        return own.submit(run_site, run, "token", gone, 0, workers=[address], pure=False)

    task("never begun").result(timeout=CONNECT_SECONDS / 2)
    run_on_workers(own, [address], dask_cluster.open_inbox, "ended", "token")
    waiting = task("ended")
    while not own.processing([address])[address]:
        assert not waiting.done()
    run_on_workers(own, [address], dask_cluster.close_inbox, "ended")
    waiting.result(timeout=CONNECT_SECONDS / 2)


@pytest.mark.slow
def test_a_run_is_repeated_without_what_is_stored(own: Any, tmp_path: Path) -> None:
    a = np.random.default_rng(0).integers(-3, 4, (1200, 1200)).astype(float)
    every = sorted(own.run(os.getpid).items())
    victim, pid = every[1]
    killed, begun = threading.Event(), list[int]()

    def progress(found: Any) -> None:
        if not begun or begun[-1] != found.total_ops:
            begun.append(found.total_ops)
        if not killed.is_set() and found.done_ops >= 0.6 * found.total_ops:
            killed.set()
            os.kill(pid, signal.SIGKILL)

    program = et.compile("input A : f64[n,n]\nC[i,j] = A[i,k] * A[k,j]\noutput C\n")
    out = {"C": str(tmp_path / "C.zarr")}
    result = program(A=a, client=own, arena="1500KiB", out=out, progress=progress, retries=1)
    assert killed.is_set()
    np.testing.assert_array_equal(np.asarray(result["C"]), a @ a)
    (reason,) = result.report.retries
    assert reason.startswith(f"worker {victim} on ") and "line 2: C[i,j] = A[i,k] * A[k,j]" in reason
    assert victim not in {site.worker for site in result.report.sites}
    # Without the tiles that the other worker had stored, and those tiles are not written again.
    assert begun[-1] < begun[0]
    stored = sum(n for link, n in result.report.link_bytes.items() if link.endswith("->disk"))
    assert 0 < stored < a.nbytes
    assert os.listdir(tmp_path) == ["C.zarr"]
