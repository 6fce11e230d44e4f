"""Clusters and workers that cannot take part, each with the line that fixes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster import cluster_run, dask, planning, tensors, workers
from einturnip.cluster.dask import DaskCluster
from einturnip.compiler import bind
from einturnip.core.errors import BindError, CapacityError, DeviceError, RunError
from einturnip.eingraph.types import InputNode
from einturnip.planner.request import Options
from einturnip.sites.wires import dask_cluster
from einturnip.sites.wires.dask_calls import run_on_workers
from einturnip.sites.wires.dask_cluster import cluster_at
from einturnip.storage.generated import RandomSource
from tests.tiling.test_sites import PROGRAMS

pytestmark = pytest.mark.timeout(120)
TEXT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
REPORT = {"host": "h", "threads": 1, "limit": 0, "pid": 1, "resident": 1, "available": 1}


def report(**changes: Any) -> dict[str, dict[str, Any]]:
    return {"tcp://10.0.0.7:40001": REPORT | {"versions": workers.versions()} | changes}


def test_workers_that_cannot_take_part_are_named_with_the_fix() -> None:
    assert [w.name for w in workers.accepted(report())] == ["worker tcp://10.0.0.7:40001 on h"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"threads": 4}, r"worker tcp://10.0.0.7:40001 on h has 4 threads.*--nthreads 1"),
        ({"limit": 1 << 30}, r"worker tcp://10.0.0.7:40001 on h has a memory limit.*--memory-limit 0"),
        ({"versions": workers.versions() | {"Python": "3.9.1"}}, r"on h has Python 3.9.1, and this process has 3\."),
        ({"versions": workers.versions() | {"einturnip": "0.0"}}, r"on h has einturnip 0.0.*install the same version"),
    ]
    for changes, message in cases:
        with pytest.raises(DeviceError, match=message):
            workers.accepted(report(**changes))
    with pytest.raises(DeviceError, match="the cluster has no workers. help: .*dask worker"):
        workers.accepted({})


def test_workers_that_start_late_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    late = mock.Mock(wait_for_workers=mock.Mock(side_effect=TimeoutError("0.5: 2")))
    late.sync.return_value = {"tcp://10.0.0.7:40001": 1}
    monkeypatch.setattr(dask_cluster, "LocalCluster", mock.MagicMock())
    client = mock.MagicMock()
    client.return_value.__enter__.return_value = late
    monkeypatch.setattr(dask_cluster, "Client", client)
    with (
        pytest.raises(DeviceError, match=r"only 1 of 2 workers have started within 60 s"),
        cluster_at("local:2", False),
    ):
        pass


@pytest.mark.parametrize(
    ("at", "error", "message"),
    [
        ("local:0", BindError, "name 1 to 64 workers"),
        ("local:many", BindError, "name 1 to 64 workers"),
        ("somewhere", BindError, "name local:4, mpi, or a Dask scheduler"),
        ("tpc://127.0.0.1:8786", BindError, "name local:4, mpi, or a Dask scheduler"),
        ("tcp://127.0.0.1:port", BindError, "its port is no number. help: name host and port, as in tcp://host:8786"),
        ("tcp://127.0.0.1:99999", BindError, "there is no port 99999. help: name host and port"),
        ("tcp://127.0.0.1", BindError, "missing port number.*help: name host and port, as in tcp://host:8786"),
        ("tcp://no-such-host.invalid:8786", DeviceError, "the host no-such-host.invalid is not known"),
        ("tcp://192.0.2.1:8786", DeviceError, "plain tcp carries. help: use tls://.*--insecure"),
    ],
)
def test_clusters_that_cannot_be_used(at: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message), cluster_at(at, False):
        pass


def test_a_scheduler_that_does_not_answer() -> None:
    absent = mock.patch.object(dask_cluster, "Client", side_effect=OSError("timed out"))
    refused = pytest.raises(DeviceError, match="no Dask scheduler answers")
    with absent, refused, cluster_at("tcp://127.0.0.1:1", False):
        pass


def test_a_worker_in_the_place_of_the_scheduler(client: Any) -> None:
    address = DaskCluster(client).workers()[0].address
    if address.startswith("tcp:"):
        with pytest.raises(DeviceError, match="no Dask scheduler. help: give the address"), cluster_at(address, False):
            pass


def test_without_dask_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    (tmp_path / "distributed.py").write_text("raise ImportError('No module named distributed')\n")
    done = subprocess.run(
        [sys.executable, "-m", "einturnip", "run", "p.ein", "--at", "local:2", "--dim", "n=4"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: --at needs Dask" in done.stderr and "pip install 'einturnip[dask]'" in done.stderr


def test_dask_is_imported_for_clusters_only() -> None:
    code = (
        "import sys, numpy as np, einturnip as et\n"
        f"et.compile({TEXT!r})(A=np.ones((2, 2)), B=np.ones((2, 2)))\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('dask', 'distributed', 'tornado')"
        " or m.startswith('einturnip.cluster')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--at", "mpi", "--retries", "2"],
        ["--record", "r"],
        ["--replay", "r"],
        ["--device", "sim"],
        ["q.ein"],
        ["--workers", "2"],
    ],
)
def test_options_that_a_cluster_lacks(tmp_path: Path, options: list[str]) -> None:
    from click.testing import CliRunner

    from einturnip.cli.main import cli

    done = CliRunner().invoke(cli, ["run", "p.ein", "--at", "local:2", *options])
    assert done.exit_code == 2 and "--at" in str(done.output or done.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retries", "2"], "--retries is for the workers of a cluster"),
        (["--at", "mpi", "--retries", "2"], "--retries cannot be combined with --at mpi"),
        (["--at", "local:2", "--retries", "-1"], "'-1' is not a whole number of at least 0"),
    ],
)
def test_retries_that_the_command_refuses(options: list[str], message: str) -> None:
    from click.testing import CliRunner

    from einturnip.cli.main import cli

    done = CliRunner().invoke(cli, ["run", "p.ein", *options])
    assert done.exit_code == 2 and message in done.output


def test_retries_that_a_call_refuses() -> None:
    a, program = np.ones((2, 2)), et.compile(TEXT)
    for call in (
        lambda: program(A=a, B=a, retries=1),
        lambda: program.session(A=a, B=a, retries=1),
        lambda: et.einsum("ij,jk->ik", a, a, retries=1),
    ):
        with pytest.raises(BindError, match="retries= is for runs on workers.*client="):
            call()
    for wrong in (-1, "many"):
        with pytest.raises(BindError, match=r"retries=.* is no number of times"):
            program(A=a, B=a, retries=wrong, client=mock.MagicMock())


def test_the_file_that_a_worker_does_not_see(client: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.ones((40, 40)))
    program, spec = et.compile(TEXT), str(tmp_path / "A.npy")
    data = {"A": spec, "B": np.ones((40, 40))}
    places = tensors.input_places

    def changed(change: Any) -> Any:
        def found(*arguments: Any) -> dict[str, tuple[Any, ...]]:
            return {name: change(place) if place[0] == "file" else place for name, place in places(*arguments).items()}

        return mock.patch.object(cluster_run, "input_places", found)

    absent = ("file", "/nowhere/A.npy", 1, 2)
    with (
        changed(lambda place: absent),
        pytest.raises(BindError, match=r"worker t(cp|ls).* cannot read /nowhere/A.npy: No such"),
    ):
        program(data=data, client=client)
    for other in (lambda p: (*p[:2], p[2] + 1, p[3]), lambda p: (*p[:3], p[3] - 1)):
        with (
            changed(other),
            pytest.raises(BindError, match=r"worker t(cp|ls).*A.npy is another file than here. help: put it"),
        ):
            program(data=data, client=client)
    np.testing.assert_array_equal(program(data=data, client=client)["C"], np.full((40, 40), 40.0))


def test_too_little_memory_is_refused_with_statement_site_and_the_minimum(client: Any, tmp_path: Path) -> None:
    a = np.ones((1200, 1200))
    program = et.compile(TEXT)
    with pytest.raises(CapacityError, match=r"does not fit in 60.0 MiB of site [0-3] \(worker t(cp|ls)://") as refused:
        program(A=a, B=a, client=client, memory="60MiB", out={"C": str(tmp_path / "C.npy")})
    assert re.search(r"for the tiles of C \(line 2\); the minimum is \d+(\.\d+)? MiB \(of which", str(refused.value))
    assert os.listdir(tmp_path) == []
    needed = refused.value.needed
    result = program(A=a, B=a, client=client, memory=needed, out={"C": str(tmp_path / "C.npy")})
    assert max(site.peak_resident_nbytes for site in result.report.sites) <= needed
    np.testing.assert_array_equal(np.load(tmp_path / "C.npy"), a @ a)


@pytest.mark.parametrize(
    ("name", "sites"),
    [
        pytest.param(name, sites, marks=() if (name, sites) == ("attention", 2) else pytest.mark.slow)
        for name in ("product", "long sum", "attention")
        for sites in (2, 3)
    ],
)
def test_the_named_minimum_is_planned_and_little_less_is_not(name: str, sites: int) -> None:
    text, dims = PROGRAMS[name]
    graph = bind(et.compile(text)._program, {}, dims)
    sources = {n.name: RandomSource(n.name, n.shape, n.dtype, 0) for n in graph.nodes if isinstance(n, InputNode)}
    inputs = tensors.planned_inputs(sources)
    found = [workers.Worker(f"tcp://10.0.0.7:{k}", "h", k, (58 + k) << 20, 8 << 30) for k in range(sites)]

    def planned_in(memory: int) -> planning.SitesPlan:
        return planning.plan_on(planning.WorkersRequest(tuple(found), graph, inputs, {}, Options(memory=memory)))

    with pytest.raises(CapacityError, match=rf"site {sites - 1} \(worker tcp://10.0.0.7:{sites - 1} on h\)") as refused:
        planned_in(64 << 20)
    assert re.search(r"for the tiles of \w \(line \d\)", str(refused.value))
    needed = refused.value.needed
    plan = planned_in(needed)
    assert (
        max(planning.required_nbytes(w.resident, p, inputs) for w, p in zip(found, plan.parts, strict=True)) <= needed
    )
    with pytest.raises(CapacityError):
        planned_in(needed - (5 << 20))  # 2 MiB of which are for what varies from run to run, 1 for rounding


def test_a_worker_checks_its_memory_before_the_first_byte(client: Any, tmp_path: Path) -> None:
    a = np.ones((400, 400))
    describe = workers.accepted

    def lighter(reports: Any) -> tuple[workers.Worker, ...]:
        return describe({address: r | {"resident": 1 << 20} for address, r in reports.items()})

    with (
        mock.patch.object(dask, "accepted", lighter),
        pytest.raises(CapacityError, match="its part does not fit in 60"),
    ):
        et.compile(TEXT)(A=a, B=a, client=client, memory="60MiB", out={"C": str(tmp_path / "C.zarr")})
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_another_disk_on_a_worker(client: Any, tmp_path: Path) -> None:
    a, places = np.ones((40, 40)), tensors.output_places
    for target in ("C.npy", "C.zarr"):

        def elsewhere(sinks: Any, written: Any) -> dict[str, tuple[Any, ...]]:
            every = places(sinks, written).items()
            return {name: (*p[:2], p[2].replace("/tmp", "/nowhere"), *p[3:]) for name, p in every}

        moved, refused = (
            mock.patch.object(cluster_run, "output_places", elsewhere),
            r"worker t(cp|ls).*not the same disk here",
        )
        with moved, pytest.raises(et.EinturnipError, match=refused):
            et.compile(TEXT)(A=a, B=a, client=client, out={"C": str(tmp_path / target)})
    assert os.listdir(tmp_path) == []


def test_a_worker_without_einturnip(client: Any) -> None:
    address = DaskCluster(client).workers()[0].address

    def absent() -> None:
        raise Exception("ModuleNotFoundError(\"No module named 'einturnip'\")")  # as Dask reports it

    with pytest.raises(
        DeviceError, match=rf"worker {address} lacks a package: .*help: pip install 'einturnip\[dask\]'"
    ):
        run_on_workers(client, [address], absent)


def test_messages_without_the_token_are_refused(client: Any) -> None:
    address = DaskCluster(client).workers()[0].address

    async def ask(message: str) -> Any:
        return await getattr(client.rpc(address), message)(run="r", token="guess", value=0)

    run_on_workers(client, [address], dask_cluster.open_inbox, "r", "secret")
    try:
        for message in ("einturnip_get", "einturnip_notify", "einturnip_acknowledge"):
            with pytest.raises(RunError, match="no such run"):
                client.sync(ask, message)
    finally:
        run_on_workers(client, [address], dask_cluster.close_inbox, "r")


def test_an_asynchronous_client_is_refused(client: Any) -> None:
    from unittest.mock import MagicMock

    with pytest.raises(DeviceError, match="client= is str. help: give a distributed.Client"):
        dask_cluster.require_processes("tcp://127.0.0.1:8786")
    other = MagicMock(dask_cluster.Client, asynchronous=True)
    with pytest.raises(DeviceError, match="asynchronous"):
        dask_cluster.require_processes(other)
    other = MagicMock(dask_cluster.Client, asynchronous=False, scheduler=MagicMock())
    other.scheduler.address = "inproc://1"
    with pytest.raises(DeviceError, match="no worker processes"):
        dask_cluster.require_processes(other)
