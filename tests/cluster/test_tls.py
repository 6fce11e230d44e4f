"""Runs over TLS with Dask's own Security, and the networks over which plain TCP is refused.

A sample: the tests of the other modules run over TLS too, by ``make cluster``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from distributed import Client

import einturnip as et
from einturnip.core.errors import DeviceError
from einturnip.sites.wires import dask_cluster
from einturnip.sites.wires.dask_cluster import WorkerConnections, cluster_at
from tests.cluster.conftest import tls_client, tls_files

pytestmark = pytest.mark.timeout(120)
TEXT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(files: dict[str, str]) -> Iterator[Any]:
    with tls_client(files, 2) as client:
        yield client


def test_every_connection_of_a_run_is_encrypted(secure: Any) -> None:
    addresses, listen = list[str](), WorkerConnections._listen

    async def recorded(connections: WorkerConnections) -> str:
        addresses.append(await listen(connections))
        return addresses[-1]

    a = np.random.default_rng(0).integers(-4, 5, (300, 300)).astype(float)
    with mock.patch.object(WorkerConnections, "_listen", recorded):
        result = et.compile(TEXT)(A=a, B=a, client=secure, arena="512KiB", out={"C": "dask"})
    np.testing.assert_array_equal(result["C"].compute(), a @ a)
    assert sum(sum(site.received_nbytes.values()) for site in result.report.sites) > 0
    found = [*addresses, *(site.worker for site in result.report.sites)]
    assert len(addresses) == 1 and all(address.startswith("tls://") for address in found)
    np.testing.assert_array_equal(et.einsum("ij->i", result["C"], client=secure), (a @ a).sum(1))


@pytest.mark.slow
def test_the_command_takes_the_certificates_from_the_configuration(
    secure: Any, files: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    command = [sys.executable, "-m", "einturnip", "run", "p.ein", "--at", secure.scheduler.address, "--random"]
    command += [word for dim in "nkm" for word in ("--dim", f"{dim}=40")]
    names = {f"tls_{role}_{kind}": f"{role}__{kind}" for role in ("client", "scheduler", "worker")
             for kind in ("key", "cert")} | {"tls_ca_file": "ca_file"}  # fmt: skip
    settings = {f"DASK_DISTRIBUTED__COMM__TLS__{names[name].upper()}": path for name, path in files.items()}

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=60
        )

    done = run(settings)
    assert done.returncode == 0 and "site 1   tls://" in done.stdout, done.stderr
    refused = run({})
    assert refused.returncode == 1 and refused.stdout == ""
    assert "error: --at tls://" in refused.stderr and "names no certificates. help: distributed.comm" in refused.stderr
    absent = run({name: path + ".old" for name, path in settings.items()})
    assert absent.returncode == 1 and "the certificates that Dask's configuration names: " in absent.stderr


def test_plain_tcp_beyond_this_machine_is_the_users_choice() -> None:
    address = "tcp://192.0.2.1:8786"
    with mock.patch.object(dask_cluster, "Client") as client:
        with (
            pytest.raises(DeviceError, match="plain tcp carries. help: use tls://.*--insecure"),
            cluster_at(address, False),
        ):
            pass
        assert not client.called
        for at, insecure in ((address, True), ("tls://192.0.2.1:8786", False), ("tcp://127.0.0.1:8786", False)):
            with mock.patch.object(dask_cluster, "_require_certificates"), cluster_at(at, insecure):
                pass
        assert client.call_count == 3
    # A client that the caller has connected is used as it is.
    own = mock.MagicMock(spec=Client, asynchronous=False)
    own.scheduler = mock.MagicMock(address=address)
    dask_cluster.require_processes(own)
