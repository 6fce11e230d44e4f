"""Workers that are lost between runs, or do not answer when one begins: an error that names them, and no waiting."""

from __future__ import annotations

import os
import signal
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster.dask import DaskCluster
from einturnip.core.errors import DeviceError, RunError, WorkerLost

da = pytest.importorskip("dask.array")
futures_of = pytest.importorskip("distributed").futures_of

pytestmark = pytest.mark.timeout(120)
PRODUCT = "input A : f64[n,n]\nC[i,j] = A[i,k] * A[k,j]\noutput C\n"


STEPS = (
    "input b : f64[n,n]\nstate x : f64[n,n] = 0\nx[i,j] <- x[i,j] / 2 + sum[k] b[i,k] * b[k,j]\n"
    "norm = sum[i,j] x[i,j]^2\noutput norm\n"
)


@pytest.mark.slow
def test_the_steps_after_a_worker_is_lost(own: Any, tmp_path: Path) -> None:
    b = np.random.default_rng(0).integers(-2, 3, (90, 90)).astype(float)
    x = b @ b
    with et.compile(STEPS).session(b=b, client=own, retries=1) as session:
        session.step()
        session.save(tmp_path)
        session.step()  # nobody has read these values, so that there is one copy of each
        before = session.source("x").array  # type: ignore[attr-defined]
        held = {worker for workers in own.who_has(futures_of(before)).values() for worker in workers}
        victim = sorted(held)[1]
        os.kill(own.run(os.getpid)[victim], signal.SIGKILL)
        with pytest.raises(RunError, match=f"x: .*{victim}"):  # it may not be known yet that the worker is gone
            session.step()
        for _ in range(2):
            with pytest.raises(RunError, match=f"x: a run has computed it.* lost with worker {victim}.*checkpoint"):
                session.step()
        with pytest.raises(RunError, match=f"x: a run has computed it.* lost with worker {victim}.*checkpoint"):
            session.state("x")
        with pytest.raises(RunError, match=f"lost with worker {victim}"):
            et.einsum("ij->i", before, client=own)
        with pytest.raises(CancelledError):  # Dask alone does not wait either for a worker that does not come back
            own.compute(before).result(timeout=20)
        assert session.load(tmp_path)
        np.testing.assert_allclose(session.step()["norm"], (x**2).sum())
        np.testing.assert_allclose(session.state("x"), x / 2 + x)


@pytest.mark.slow
def test_arrays_that_dask_can_compute_again_survive_a_worker(own: Any) -> None:
    a = np.random.default_rng(0).integers(-3, 4, (120, 120)).astype(float)
    array = da.from_array(a, chunks=30).persist()
    own.gather(futures_of(array))
    os.kill(min(own.run(os.getpid).values()), signal.SIGKILL)
    result = et.compile(PRODUCT)(A=array, client=own, retries=1)
    np.testing.assert_array_equal(result["C"], a @ a)


@pytest.mark.parametrize("before", [pytest.param("planning", marks=pytest.mark.slow), "beginning"])
def test_a_worker_that_is_stopped_before_the_run_is_named(own: Any, before: str, tmp_path: Path) -> None:
    victim, pid = sorted(own.run(os.getpid).items())[1]
    a = np.ones((30, 30))
    begin = DaskCluster.begin

    def stopped(cluster: Any, *arguments: Any) -> Any:
        os.kill(pid, signal.SIGSTOP)
        return begin(cluster, *arguments)

    try:
        if before == "planning":
            os.kill(pid, signal.SIGSTOP)
        with (
            mock.patch.object(DaskCluster, "begin", stopped),
            pytest.raises(WorkerLost, match=rf"worker {victim} does not answer: it is stopped.*kill -CONT"),
        ):
            et.compile(PRODUCT)(A=a, client=own, out={"C": str(tmp_path / "C.npy")})
    finally:
        os.kill(pid, signal.SIGCONT)
    assert os.listdir(tmp_path) == []
    np.testing.assert_array_equal(et.compile(PRODUCT)(A=a, client=own)["C"], a @ a)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_worker_lost_while_blocks_are_kept_is_named(own: Any, how: signal.Signals) -> None:
    """A run that may be repeated goes on without a worker that has ended; a stopped one has to be continued."""
    from einturnip.sites.wires.dask_blocks import KeptBlocks

    (victim, pid), array, a = sorted(own.run(os.getpid).items())[1], KeptBlocks.array, np.ones((300, 300))
    acted = list[int]()

    def losing(blocks: Any, *arguments: Any) -> Any:
        if not acted:
            acted.append(pid)
            os.kill(pid, how)
        return array(blocks, *arguments)

    retries = int(how == signal.SIGKILL)
    try:
        with mock.patch.object(KeptBlocks, "array", losing):
            if retries:
                found = et.compile(PRODUCT)(A=a, client=own, arena="1MiB", out={"C": "dask"}, retries=1)
                (reason,) = found.report.retries
                np.testing.assert_array_equal(found["C"].compute(), a @ a)
            else:
                with pytest.raises(WorkerLost) as error:
                    et.compile(PRODUCT)(A=a, client=own, arena="1MiB", out={"C": "dask"})
                reason = str(error.value)
    finally:
        if how == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
    assert reason.startswith(f"worker {victim}")


@pytest.mark.slow
def test_a_run_that_loses_a_worker_each_time_says_how_often(own: Any, tmp_path: Path) -> None:
    a, killed = np.ones((30, 30)), set[str]()
    begin = DaskCluster.begin

    def killing(cluster: Any, sites: Any, *arguments: Any) -> Any:
        pids = own.run(os.getpid)
        victim = next(site for site in sites if site in pids)
        killed.add(victim)
        os.kill(pids[victim], signal.SIGKILL)
        return begin(cluster, sites, *arguments)

    with (
        mock.patch.object(DaskCluster, "begin", killing),
        pytest.raises(WorkerLost, match=r"Each of 2 attempts \(--retries 1\) has lost a worker. Nothing was written"),
    ):
        et.compile(PRODUCT)(A=a, client=own, retries=1, out={"C": str(tmp_path / "C.npy")})
    assert len(killed) == 2
    assert os.listdir(tmp_path) == []


def test_a_late_answer_of_a_rank_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi_states = pytest.importorskip("einturnip.cluster.mpi_states", exc_type=ImportError)
    monkeypatch.setattr(mpi_states, "JOIN_SECONDS", 0.1)
    data: dict[Any, Any] = {}
    late = np.array([1.0])

    def say(rank: int, message: dict[str, Any]) -> None:
        if rank == 2:  # rank 1 answers the first question while the second one is asked
            for source, answer in ((1, late), (2, np.array([2.0]))):
                data[mpi_states.Tag.PIECE](source)(answer)

    reader = mpi_states.BlockReader(mock.Mock(say=say, port=mock.Mock(data=data)))
    for _ in range(2):
        with pytest.raises(DeviceError, match="rank 1 does not answer"):
            reader.read(1, ("x", 0), ((0, 1),))
        np.testing.assert_array_equal(reader.read(2, ("x", 1), ((0, 1),)), [2.0])
