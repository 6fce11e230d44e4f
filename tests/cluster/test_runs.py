"""Runs on real worker processes: the numbers of one process, the planned bytes, within the memory of each worker."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cluster.cluster_run import ClusterRun
from einturnip.cluster.dask import DaskCluster
from einturnip.planner import canonical
from einturnip.sites import output_chunks
from einturnip.sites.wires import dask_cluster
from einturnip.storage.generated import SummarySink
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.sites.test_local_run import INPUTS, SUMS
from tests.sites.test_output_chunks import writers
from tests.storage.web_server import serving

pytestmark = pytest.mark.timeout(120)
PRODUCT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
CHAIN = "input A : f64[n,k], B : f64[k,m], E : f64[m,l]\nD[i,j] = A[i,k] * B[k,j]\nC[i,j] = D[i,k] * E[k,j]\noutput C\n"


@contextmanager
def on(sites: int) -> Iterator[None]:
    """Context in which runs use this number of the cluster's workers."""
    every = DaskCluster.workers
    with mock.patch.object(DaskCluster, "workers", lambda cluster: every(cluster)[:sites]):
        yield


def integers(n: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return {name: rng.integers(-4, 5, (n, n)).astype(float) for name in "ABE"}


@pytest.mark.parametrize("sites", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4)), 3])
def test_bytes_between_workers_are_those_of_the_plan(client: Any, sites: int) -> None:
    data = integers(600)
    with on(sites):
        result = et.compile(CHAIN)(data=data, client=client, arena="4MiB")
    np.testing.assert_array_equal(result["C"], data["A"] @ data["B"] @ data["E"])
    found = result.report.sites
    assert len(found) == sites == len({site.worker for site in found})
    for site in found:
        assert site.received_nbytes == site.planned_nbytes
        assert (sum(site.received_nbytes.values()) > 0) == (sites > 1)
        assert site.arena_peak_nbytes <= 4 << 20
    across = sum(sum(site.received_nbytes.values()) for site in found)
    assert sum(n for link, n in result.report.link_bytes.items() if "disk" not in link) == across


def test_files_are_read_again_where_arrays_are_sent(client: Any, tmp_path: Path) -> None:
    program, data = et.compile(PRODUCT, dims=dict.fromkeys("nkm", 500)), integers(500)
    arrays = {name: data[name] for name in "AB"}
    files = {name: str(tmp_path / f"{name}.npy") for name in arrays}
    for name, array in arrays.items():
        np.save(files[name], array)
    across, read = [], []
    for inputs in (arrays, files):
        result = program(data=inputs, client=client, arena="2MiB", link="1GB/s,1ms")
        np.testing.assert_array_equal(result["C"], arrays["A"] @ arrays["B"])
        for site in result.report.sites:
            assert site.received_nbytes == site.planned_nbytes
        across.append(sum(sum(site.received_nbytes.values()) for site in result.report.sites))
        read.append(sum(n for link, n in result.report.link_bytes.items() if link.startswith("disk")))
    assert across[1] < across[0] and read[1] > read[0]
    # A tile that has left an arena is read again.
    assert sum(across) and across[0] + read[0] == pytest.approx(across[1] + read[1], rel=0.05)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_drawn_programs_agree_with_one_process(client: Any, data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    program = et.compile(case.text, dims=case.dims)
    with on(data.draw(st.integers(1, 4))):
        result = program(data=case.inputs, client=client)
    for name, expected in evaluate(case.program, case.inputs, case.dims).items():
        assert_agrees(result[name], expected, case.exact)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "softmax" else pytest.mark.slow) for name in SUMS]
)
def test_reproducible_runs_have_the_bits_of_one_process(client: Any, name: str) -> None:
    text, dims = SUMS[name]
    rng = np.random.default_rng(7)
    inputs = {
        tensor: rng.standard_normal([dims[label] for label in labels]).astype(dtype)
        for tensor, (dtype, labels) in INPUTS[name].items()
    }
    program, digests = et.compile(text, dims=dims), set()
    with mock.patch.multiple(canonical, CANONICAL_MIN_NBYTES=1 << 17, CANONICAL_MAX_NBYTES=1 << 18):
        alone = program(data=inputs, reproducible=True)
        results = [alone]
        for sites in (1, 2, 3, 4):
            with on(sites):
                results.append(program(data=inputs, reproducible=True, client=client))
    for result in results:
        digests.add(sha256(b"".join(np.asarray(result[k]).tobytes() for k in sorted(result))).hexdigest())
    assert len(digests) == 1
    assert any(sum(site.received_nbytes.values()) for site in results[-1].report.sites)


@pytest.mark.parametrize("target", [*(pytest.param(t, marks=pytest.mark.slow) for t in ("C.npy", "C.h5")), "C.zarr"])
def test_all_workers_write_one_file(client: Any, tmp_path: Path, target: str) -> None:
    data = integers(500)
    for name, array in data.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = {name: str(tmp_path / f"{name}.npy") for name in data}
    result = et.compile(CHAIN)(data=files, client=client, arena="3MiB", out={"C": str(tmp_path / target)})
    np.testing.assert_array_equal(np.asarray(result["C"]), data["A"] @ data["B"] @ data["E"])
    assert sorted(os.listdir(tmp_path)) == sorted([*(f"{name}.npy" for name in data), target])


@pytest.mark.skipif(not find_spec("aiohttp"), reason="needs aiohttp, of the extra dev")
def test_workers_read_remote_stores_themselves(client: Any) -> None:
    data = integers(300)
    with serving() as server:
        for name, array in data.items():
            file = io.BytesIO()
            np.save(file, array)
            server.objects[f"/{name}.npy"] = file.getvalue()
        urls = {name: f"{server.url}/{name}.npy" for name in data}
        no_tile = mock.patch.object(ClusterRun, "_tile", side_effect=AssertionError("it is read there"))
        with no_tile:
            result = et.compile(CHAIN)(data=urls, client=client, arena="2MiB")
    np.testing.assert_array_equal(result["C"], data["A"] @ data["B"] @ data["E"])


def test_workers_stay_within_their_memory(client: Any, tmp_path: Path) -> None:
    data = integers(1500)
    for name, array in data.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = {name: str(tmp_path / f"{name}.npy") for name in data}
    result = et.compile(CHAIN)(data=files, client=client, memory="150MiB", out={"C": str(tmp_path / "C.npy")})
    report = result.report
    assert report.memory_nbytes == 150 << 20 and not report.memory_exceeded_nbytes
    assert all(site.peak_resident_nbytes <= 150 << 20 for site in report.sites)
    for worker in DaskCluster(client).workers():
        status = Path(f"/proc/{worker.pid}/status").read_text()
        (seen,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))
        assert seen <= 150 << 20
    np.testing.assert_array_equal(np.asarray(result["C"]), data["A"] @ data["B"] @ data["E"])


def test_numeric_warnings_name_the_element(client: Any) -> None:
    x = np.ones((300, 300))
    x[217, 31] = -1
    result = et.compile("input X : f64[n,m]\nY[i,j] = log(X[i,j])\noutput Y\n")(X=x, client=client, arena="64KiB")
    (warning,) = result.report.warnings
    assert (warning.element, warning.causes) == ("Y[217, 31] = nan", ("X[217, 31] = -1.0",))


def test_summaries_of_workers_add_up() -> None:
    from einturnip.ir.dtypes import DTYPES

    values = np.random.default_rng(1).standard_normal((40, 7))
    values[31, 2] = np.nan
    whole, parts = (
        SummarySink("y", (40, 7), DTYPES["f64"]),
        [SummarySink("y", (40, 7), DTYPES["f64"]) for _ in range(3)],
    )
    whole.write(((0, 40), (0, 7)), values)
    for sink, (a, b) in zip(parts, [(0, 20), (20, 33), (33, 40)], strict=True):
        sink.write(((a, b), (0, 7)), values[a:b])
    for other in parts[1:]:
        parts[0].add(other.parts())
    assert parts[0].parts() == whole.parts()


def test_an_error_of_a_worker_names_its_statement(client: Any) -> None:
    text = "input A : f64[n, m], k : i64[n]\nB[i,j] = exp(A[i,j])\nC[i,j] = B[k[i], j] * 2\noutput C\n"
    data = {"A": np.ones((64, 64)), "k": np.full(64, 64)}
    with pytest.raises(et.RunError, match=r"worker t(cp|ls)://.* on .*line 3.*index 64"):
        et.compile(text)(data=data, client=client, arena="32KiB")
    again = et.compile(text)(data=data | {"k": np.zeros(64, int)}, client=client, arena="32KiB")
    np.testing.assert_allclose(again["C"], 2 * np.e)


@pytest.mark.slow
def test_the_command_runs_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    data = integers(400)
    for name, array in data.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "chain.ein").write_text(CHAIN)
    inputs = [word for name in data for word in ("-i", f"{name}={name}.npy")]
    done = subprocess.run(
        [sys.executable, "-m", "einturnip", "run", "chain.ein", "--at", "local:2", "--memory", "160MiB", *inputs]
        + ["-o", "C=C.npy", "--report", "r.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    np.testing.assert_array_equal(np.load(tmp_path / "C.npy"), data["A"] @ data["B"] @ data["E"])
    report = json.loads((tmp_path / "r.json").read_text())
    assert [site["received_nbytes"] for site in report["sites"]] == [s["planned_nbytes"] for s in report["sites"]]
    assert all(site["peak_resident_nbytes"] <= 160 << 20 for site in report["sites"])


@pytest.mark.parametrize(
    ("sites", "arena", "place"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, "3MiB", "file"), (3, "20MiB", "file"))),
        (3, "3MiB", "file"),
        pytest.param(3, "20MiB", "coordinator", marks=pytest.mark.slow),
    ],
)
def test_one_process_writes_each_chunk_of_a_file(
    client: Any, tmp_path: Path, sites: int, arena: str, place: str
) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-4, 5, (3001, 160)).astype(float), rng.integers(-4, 5, (160, 2777)).astype(float)
    program = et.compile("input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n")
    together, alone = str(tmp_path / "together.zarr"), str(tmp_path / "alone.zarr")
    runs = list[ClusterRun]()
    results = ClusterRun.results

    def noted(run: ClusterRun, *arguments: Any) -> Any:
        runs.append(run)
        return results(run, *arguments)

    # Chunks of one worker that are much smaller than tiles are not used: the coordinator writes the file instead.
    share = mock.patch.object(output_chunks, "MIN_CHUNK_SHARE", 1 / 8 if place == "file" else 64)
    with on(sites), share, mock.patch.object(ClusterRun, "results", noted):
        program(A=a, B=b, client=client, arena=arena, out={"C": together})
    program(A=a, B=b, out={"C": alone})
    found, expected = zarr.open_array(together, path="C", mode="r"), zarr.open_array(alone, path="C", mode="r")
    assert np.asarray(found[...]).tobytes() == np.asarray(expected[...]).tobytes()
    (run,) = runs
    assert run.settings["outputs"]["C"][0] == place
    if place == "file":
        assert all(len(who) == 1 for who in writers(run.plan.planned.memgraph, 0, found.chunks).values())


def test_few_parts_are_encoded_at_a_time(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of workers ask for their parts at once."""
    monkeypatch.setattr(dask_cluster, "SENT_PARTS", 1)
    part, under_way, most = ClusterRun._part, set[int](), [0]

    def counted(run: ClusterRun, site: int) -> Iterator[Any]:
        under_way.add(site)
        most[0] = max(most[0], len(under_way))
        yield from part(run, site)
        under_way.remove(site)

    monkeypatch.setattr(ClusterRun, "_part", counted)
    a = integers(60)["A"]
    np.testing.assert_array_equal(et.einsum("ij,jk->ik", a, a, client=client), a @ a)
    assert (most, under_way) == ([1], set())
