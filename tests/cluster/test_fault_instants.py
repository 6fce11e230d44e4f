"""Faults at drawn instants of a run: an error that names the worker, or success; nothing is left, nothing hangs."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import Interrupted, StoreError, WorkerLost
from tests.cluster.faults import BEGUN, N, instants, matrix, require_nothing_left, require_right, result, run_with

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.timeout(120)
LATE = 0.8
"""From this instant on, a worker may have ended its part, since sites report their progress now and then."""


def victim(client: Any, drawn: float) -> tuple[str, int]:
    """Return the address and the process of one of the workers."""
    every = sorted(client.run(os.getpid).items())
    return every[int(drawn * 1000) % len(every)]


def require_named(error: BaseException, worker: str, drawn: float) -> None:
    """Check that an error names a worker and its host, and the statement if it has begun one."""
    assert isinstance(error, WorkerLost), error
    assert re.match(rf"worker {re.escape(worker)} on \S+ is gone: ", str(error)) and "help: " in str(error)
    if drawn > 0.3:
        assert re.search(f"It had last begun {BEGUN}", str(error)), str(error)


@pytest.mark.parametrize("at", instants("killed"))
def test_a_killed_worker(own: Any, tmp_path: Path, at: float) -> None:
    worker, pid = victim(own, at)
    error, found = run_with(own, lambda: os.kill(pid, signal.SIGKILL), at, tmp_path)
    if error is None:  # it had nothing left to do
        assert at > LATE
        require_right(found)
    else:
        require_named(error, worker, at)
    del found
    require_nothing_left(own, tmp_path, *([] if error else ["E.npy"]))


@pytest.mark.parametrize("at", instants("repeated"))
def test_a_killed_worker_and_a_retry(own: Any, tmp_path: Path, at: float) -> None:
    worker, pid = victim(own, at)
    error, found = run_with(own, lambda: os.kill(pid, signal.SIGKILL), at, tmp_path, retries=1)
    assert error is None, error
    require_right(found)
    assert len(found.report.retries) == 1 or (at > LATE and not found.report.retries)
    assert all(reason.startswith(f"worker {worker} on ") for reason in found.report.retries)
    del found
    require_nothing_left(own, tmp_path, "E.npy")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["", "dask"])
@pytest.mark.parametrize("at", [at for at in instants("dask arrays", 6) if at.values[0] <= LATE])
def test_a_killed_worker_that_had_chunks_of_the_input(own: Any, tmp_path: Path, at: float, target: str) -> None:
    """Dask computes the chunks again, from the data that its scheduler has."""
    worker, pid = victim(own, at)
    array = da.from_array(matrix(), chunks=160).persist()
    kill = partial(os.kill, pid, signal.SIGKILL)
    error, found = run_with(own, kill, at, tmp_path, array, target, retries=1)
    assert error is None, error
    assert len(found.report.retries) == 1
    np.testing.assert_array_equal(np.asarray(found["E"]), result())


def from_workers() -> Any:
    """Return an array whose chunks the workers compute, each by itself."""

    def drawn(block: Any, block_info: Any = None) -> Any:
        whole = np.random.default_rng(0).integers(-1, 2, (N, N)).astype(float)
        return whole[tuple(slice(*at) for at in block_info[None]["array-location"])]

    return da.zeros((N, N), chunks=160).map_blocks(drawn, dtype=float, meta=np.empty((0, 0)))


def from_dask() -> Any:
    """Return an array that Dask computes as a whole first, since its chunks have tasks in common."""
    x = from_workers()
    return x + (x.sum() - x.sum())


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [from_workers, from_dask, lambda: da.from_array(matrix(), chunks=160)])
@pytest.mark.parametrize("at", [at for at in instants("lazy arrays", 6) if at.values[0] <= LATE])
def test_a_killed_worker_and_a_lazy_input(own: Any, tmp_path: Path, at: float, lazy: Callable[[], Any]) -> None:
    worker, pid = victim(own, at)
    error, found = run_with(own, partial(os.kill, pid, signal.SIGKILL), at, tmp_path, lazy(), retries=1)
    assert error is None, error
    assert [reason.startswith(f"worker {worker} on ") for reason in found.report.retries] == [True]
    require_right(found)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1, 30])
@pytest.mark.parametrize("at", instants("stopped"))
def test_a_worker_that_is_stopped_for_a_while(own: Any, tmp_path: Path, at: float, seconds: int) -> None:
    _, pid = victim(own, at)
    again = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))

    def stop() -> None:
        os.kill(pid, signal.SIGSTOP)
        again.start()

    error, found = run_with(own, stop, at, tmp_path)
    again.join()
    if error is None:
        require_right(found)
    else:
        assert re.match(r"worker tcp://\S+ on \S+", str(error)), error
    require_nothing_left(own, tmp_path, *([] if error else ["E.npy"]))


@pytest.mark.parametrize("place", [pytest.param("output", marks=pytest.mark.slow), "spill"])
@pytest.mark.parametrize("at", instants("full"))
def test_a_full_disk_at_one_worker(own: Any, tmp_path: Path, at: float, place: str) -> None:
    """A limit on the size of its files makes the writes of one worker fail, as a full disk does."""
    worker, pid = victim(own, at)
    nbytes = 4096 if place == "spill" else int(at * N * N * 8) % (N * N * 4)
    options = {} if place == "spill" else {"spill": None}
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)

    def limit() -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (nbytes, usual[1]))

    try:
        error, found = run_with(own, limit, 0.21 + at / 5, tmp_path, **options)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
    if error is None:
        require_right(found)
    else:
        assert isinstance(error, StoreError), error
        assert re.match(rf"worker {re.escape(worker)} on \S+: ", str(error)) and "limit on file sizes" in str(error)
        assert re.search("a tile of '[B-D]'|storing output 'E'", str(error)), error
    require_nothing_left(own, tmp_path, *([] if error else ["E.npy"]))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("at", instants("added"))
def test_a_worker_that_is_added(own: Any, tmp_path: Path, at: float, kills: bool) -> None:
    worker, pid = victim(own, at)

    def add() -> None:
        own.cluster.scale(3)
        if kills:
            os.kill(pid, signal.SIGKILL)

    try:
        error, found = run_with(own, add, at, tmp_path, retries=int(kills))
        assert error is None, error
        require_right(found)
        del found
        require_nothing_left(own, tmp_path, "E.npy")
    finally:
        own.cluster.scale(2)


@pytest.mark.parametrize("at", instants("interrupted"))
def test_ctrl_c(own: Any, tmp_path: Path, at: float) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    error, _ = run_with(own, interrupt, at, tmp_path)
    assert isinstance(error, KeyboardInterrupt | Interrupted)
    require_nothing_left(own, tmp_path)
    a = np.arange(900.0).reshape(30, 30)
    np.testing.assert_array_equal(et.einsum("ij,jk->ik", a, a, client=own), a @ a)


LOST_CLIENT = """
import os, signal, sys
from pathlib import Path
from distributed import Client
from tests.cluster.faults import run_with
with Client(sys.argv[1]) as client:
    run_with(client, lambda: os.kill(os.getpid(), signal.SIGKILL), float(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", instants("client"))
def test_a_lost_client(own: Any, tmp_path: Path, at: float) -> None:
    command = [sys.executable, "-c", LOST_CLIENT, own.scheduler.address, str(at), str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    hidden = os.listdir(tmp_path)
    assert "E.npy" not in hidden
    require_nothing_left(own, tmp_path, *hidden)
    error, found = run_with(own, lambda: None, at, tmp_path)
    assert error is None
    require_right(found)
    del found
    require_nothing_left(own, tmp_path, "E.npy")  # this run has removed what the other had left
