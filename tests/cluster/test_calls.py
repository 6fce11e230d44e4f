"""Calls from Python that run on workers: einsum with NumPy's arguments, and Dask arrays."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster import cluster_run
from einturnip.cluster.dask import DaskCluster
from einturnip.core.errors import BindError, CapacityError, DTypeError
from einturnip.storage.dask_arrays import DaskSource

da = pytest.importorskip("dask.array")
futures_of = pytest.importorskip("distributed").futures_of

pytestmark = pytest.mark.timeout(120)


def drawn(*shape: int, dtype: Any = float) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


def test_einsum_has_the_values_of_numpy(client: Any, tmp_path: Path) -> None:
    a, b = drawn(40, 30), drawn(30, 50)
    np.save(tmp_path / "b.npy", b)
    cases: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("ij,jk->ik", a, b), {"order": "F", "dtype": np.complex64, "casting": "same_kind"}),
        (("ij,ij->", a, a), {}),
        ((a, [0, 1], b, [1, 2], [2, 0]), {}),
    ]
    for operands, options in cases:
        result, expected = et.einsum(*operands, client=client, **options), np.einsum(*operands, **options)
        np.testing.assert_array_equal(result, expected)
        assert (type(result), result.dtype) == (type(expected), expected.dtype)
        assert result.ndim < 2 or result.flags.f_contiguous == (options.get("order") == "F")
    np.testing.assert_array_equal(et.contract("ij,jk->ik", a, str(tmp_path / "b.npy"), client=client), a @ b)


@pytest.mark.slow
def test_einsum_writes_to_arrays_and_files(client: Any, tmp_path: Path) -> None:
    a = drawn(40, 30)
    wide, narrow = np.zeros(40), np.zeros(40, np.float32)
    assert et.einsum("ij->i", a, out=wide, client=client) is wide
    assert et.einsum("ij->i", a, out=narrow, casting="same_kind", client=client) is narrow
    np.testing.assert_array_equal(wide, a.sum(1))
    np.testing.assert_array_equal(narrow, a.sum(1))
    file = et.einsum("ij->i", a, out=tmp_path / "s.npy", client=client)
    np.testing.assert_array_equal(np.asarray(file), a.sum(1))


def test_errors_of_einsum_on_workers(client: Any, tmp_path: Path) -> None:
    a = drawn(40, 30)
    with pytest.raises(BindError, match="40"):
        et.einsum("ij,jk->ik", a, a, client=client)
    with pytest.raises(DTypeError, match="casting"):
        et.einsum("ij->i", a, dtype="f4", client=client)
    with pytest.raises(CapacityError, match=r"of site [0-3] \(worker t(cp|ls)://"):
        et.einsum("ij,jk->ik", a, a.T, memory="1MiB", client=client)
    with pytest.raises(BindError, match=r"no-such\.npy"):
        et.einsum("ij->i", str(tmp_path / "no-such.npy"), client=client)
    assert os.listdir(tmp_path) == []


CHAIN = "input A : f64[n,k], B : f64[k,m], E : f64[m,l]\nD[i,j] = A[i,p] * B[p,j]\nC[i,j] = D[i,q] * E[q,j]\noutput C\n"


def test_chunks_on_the_workers_are_read_there(client: Any) -> None:
    a, b, e = drawn(130, 90), drawn(90, 70), drawn(70, 110)
    arrays = {
        "A": da.from_array(a, chunks=((50, 10, 70), (40, 50))),
        "B": da.from_array(b, chunks=(90, 70)),
        "E": da.from_array(e, chunks=(25, 30)),
    }
    held = {name: array.persist() for name, array in arrays.items()}
    with mock.patch.object(cluster_run.ClusterRun, "_tile", side_effect=AssertionError("the client sends no tile")):
        result = et.compile(CHAIN)(data=held, client=client, arena="60KiB")
    np.testing.assert_array_equal(result["C"], a @ b @ e)
    for site in result.report.sites:
        assert site.received_nbytes == site.planned_nbytes
    np.testing.assert_array_equal(held["A"].compute(), a)


@pytest.mark.slow
def test_lazy_chunks_are_computed_by_the_worker_that_needs_them(client: Any, tmp_path: Path) -> None:
    a, b = drawn(130, 90), drawn(90, 70)
    folder = str(tmp_path / "pids")
    os.mkdir(folder)

    def marked(block: Any) -> Any:
        Path(folder, str(os.getpid())).touch()
        return block + 1

    x = da.ones((130, 90), chunks=(40, 50)).map_blocks(marked, dtype=float, meta=np.empty((0, 0))) + a[0, 0]
    shared = da.from_array(b, chunks=(30, 70)).persist()
    y = shared - shared.mean(axis=0)  # uses chunks on the workers
    with mock.patch.object(cluster_run.ClusterRun, "_tile", side_effect=AssertionError("the client sends no tile")):
        result = et.einsum("ij,jk->ik", x, y, client=client, arena="60KiB")
    np.testing.assert_allclose(result, np.full((130, 90), 2 + a[0, 0]) @ (b - b.mean(axis=0)), atol=1e-9)
    pids = {str(worker.pid) for worker in DaskCluster(client).workers()}
    assert set(os.listdir(folder)) <= pids


@pytest.mark.slow
def test_arrays_of_the_client_travel_by_tile(client: Any) -> None:
    a, b = drawn(700, 400), drawn(400, 70)
    sent: list[int] = []
    tile = cluster_run.ClusterRun._tile

    def counted(run: Any, number: int) -> Any:
        sent.append(number)
        return tile(run, number)

    with mock.patch.object(cluster_run.ClusterRun, "_tile", counted):
        result = et.einsum("ij,jk->ik", da.from_array(a, chunks=(200, 150)), b, client=client)
    np.testing.assert_array_equal(result, a @ b)
    assert sent


@pytest.mark.slow
def test_an_array_larger_than_the_memory_of_client_and_workers(client: Any) -> None:
    x = da.ones((16384, 8192), chunks=(512, 512))  # 1 GiB
    before = peak()
    result = et.einsum("ij->j", x, client=client, memory="150MiB")
    np.testing.assert_array_equal(result, np.full(8192, 16384.0))
    assert peak() - before < 64 << 20


def peak() -> int:
    (found,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) << 10


@pytest.mark.slow
def test_results_stay_on_the_workers(client: Any) -> None:
    a, b, e = drawn(130, 90), drawn(90, 70), drawn(70, 110)
    data = {"A": a, "B": b, "E": e}
    text = CHAIN + "s = sum[i,j] C[i,j]\noutput s\n"
    with mock.patch.object(cluster_run.ClusterRun, "_store", side_effect=AssertionError("the client takes no tile")):
        result = et.compile(text)(data=data, client=client, arena="60KiB", out={"C": "dask", "s": "dask"})
    c = result["C"]
    assert isinstance(c, da.Array) and c.shape == (130, 110) and c.dtype == float and len(c.chunks[0]) > 1
    holders = {worker for workers in client.who_has(futures_of(c)).values() for worker in workers}
    assert len(holders) == 4
    np.testing.assert_array_equal(c.compute(), a @ b @ e)
    assert result["s"].compute() == (a @ b @ e).sum() == c.sum().compute()
    # As an input, it is read where it is.
    again = et.einsum("ij,kj->ik", c, c, client=client, out="dask")
    np.testing.assert_array_equal(again.compute(), (a @ b @ e) @ (a @ b @ e).T)
    futures = [weakref.ref(future) for future in (*futures_of(c), *futures_of(again))]
    del result, c, again
    gc.collect()
    assert [future() for future in futures if future() is not None] == []


def test_dask_arrays_that_workers_cannot_read(client: Any) -> None:
    x = da.ones((60, 40), chunks=(20, 40))

    def fails(block: Any) -> Any:
        raise ValueError("no such day")

    bad = x.map_blocks(fails, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(
        et.StoreError, match=r"worker t(cp|ls)://.* Dask cannot compute its chunk \[\d, 0\]: ValueError: no"
    ):
        et.einsum("ij->j", bad, client=client)
    with pytest.raises(et.RunError, match=r"operand.*: its chunk \[\d, 0\] was not computed: ValueError\('no such day"):
        et.einsum("ij->j", bad.persist(), client=client)
    large = da.ones((1 << 15, 1 << 15), chunks=1 << 13)
    with pytest.raises(CapacityError, match="its chunks depend on each other.*to_zarr"):
        et.einsum("ij->j", large - large.mean(axis=0), client=client, memory="200MiB")
    with pytest.raises(BindError, match="there are none. help: client="):
        et.einsum("ij->j", np.ones((3, 2)), out="dask")
    np.testing.assert_array_equal(et.einsum("ij->j", x, client=client), np.full(40, 60.0))


STEPS = (
    "input A : f64[n,n], b : f64[n]\nstate x : f64[n] = 0, t : i64 = 0\n"
    "r[i] = b[i] - sum[j] A[i,j] * x[j]\nx[i] <- x[i] + r[i] / 8\nt <- t + 1\nnorm = sum[i] r[i]^2\noutput norm\n"
)


def test_states_of_a_session_stay_on_the_workers(client: Any, tmp_path: Path) -> None:
    a, b, x = drawn(60, 60) / 64, drawn(60), np.zeros(60)
    with et.compile(STEPS).session(A=a, b=b, client=client, memory="250MiB") as session:
        for step in range(3):
            r = b - a @ x
            result = session.step()
            np.testing.assert_allclose(result["norm"], r @ r)
            x = x + r / 8
            np.testing.assert_allclose(session.state("x"), x)
            assert (session.state("t"), session.steps, len(result.report.sites)) == (step + 1, step + 1, 4)
        source = session.source("x")
        assert isinstance(source, DaskSource) and sorted(result) == ["norm"]
        saved = session.save(tmp_path)
        futures = [weakref.ref(future) for future in futures_of(source.array)]
        session.set_state("x", np.ones(60))
        np.testing.assert_allclose(session.step()["norm"], ((b - a @ np.ones(60)) ** 2).sum())
        with pytest.raises(BindError, match=r"state x has the shape \[60\], and \[3\] is given"):
            session.set_state("x", np.ones(3))
        gc.collect()  # a wait that has timed out leaves a cycle
        assert [future() for future in futures] == [None] * len(futures)  # the workers have freed it
    assert os.listdir(tmp_path) == [saved.name]
    with et.compile(STEPS).session(A=a, b=b, client=client) as session:
        assert session.load(tmp_path) and session.steps == 3
        np.testing.assert_allclose(session.state("x"), x)
        session.step()
        np.testing.assert_allclose(session.state("x"), x + (b - a @ x) / 8)


def test_a_step_that_fails_leaves_the_states(client: Any) -> None:
    text = "input k : i64[n]\nstate x : f64[n] = 1\ny[i] = x[k[i]] * 2\nx[i] <- y[i]\noutput y\n"
    with et.compile(text).session(client=client) as session:
        session.step(k=np.arange(9))
        with pytest.raises(et.RunError, match="index 9"):
            session.step(k=np.full(9, 9))
        np.testing.assert_array_equal(session.state("x"), np.full(9, 2.0))
        np.testing.assert_array_equal(session.step(k=np.arange(9))["y"], np.full(9, 4.0))


def test_a_session_keeps_the_plans_of_the_last_shapes(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from einturnip.api import plan_cache

    monkeypatch.setattr(plan_cache, "MAX_SESSION_PLANS", 1)
    text = "input X : f64[m,n]\nstate w : f64[n] = 0\nw[j] <- w[j] + sum[i] X[i,j]\n"
    with et.compile(text).session(client=client) as session:
        for m in (2, 3, 2):
            session.step(X=np.ones((m, 4)))
            assert session._on_workers is not None and len(session._on_workers._plans) == 1
        np.testing.assert_array_equal(session.state("w"), np.full(4, 7.0))
