"""One cluster of four worker processes for the tests of a module, over plain TCP and over TLS."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# The extra ``dev`` installs it.
collect_ignore_glob = [] if find_spec("distributed") else ["test_*.py"]


def tls_files(folder: Path) -> dict[str, str]:
    """Make a key and a certificate for this machine; return what Dask's configuration and Security call them."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
        timeout=60,
    )
    roles = {f"tls_{role}_{kind}": p for role in ("client", "scheduler", "worker") for kind, p in
             (("key", key), ("cert", certificate))}  # fmt: skip
    return {"tls_ca_file": certificate, **roles}


@contextmanager
def tls_client(files: dict[str, str], workers: int) -> Iterator[Any]:
    """Context with a client of a cluster whose processes talk over TLS only."""
    from distributed import Client, LocalCluster
    from distributed.security import Security

    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit=0,
        host="127.0.0.1",
        protocol="tls://",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        security=Security(require_encryption=True, **files),
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(workers, timeout=60)
        yield client


class WorkersToLose:
    """A cluster of two workers that tests may end: Dask starts others in their place, or it is replaced."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self.client: Any = None

    def whole(self) -> Any:
        """Return a client of both workers. Dask does not replace a worker that ends while it is being started."""
        from einturnip.sites.wires.dask_chunks import known_workers
        from einturnip.sites.wires.dask_cluster import cluster_at

        until = time.monotonic() + 20
        while self.client is None or len(known_workers(self.client)) != 2:
            if self.client is None or time.monotonic() > until:
                self.close()
                self.client = self._opened.enter_context(cluster_at("local:2", False))
            time.sleep(0.1)
        return self.client

    def close(self) -> None:
        """End the cluster."""
        self._opened.close()


@pytest.fixture(scope="module")
def workers_to_lose() -> Iterator[WorkersToLose]:
    found = WorkersToLose()
    yield found
    found.close()


@pytest.fixture
def own(workers_to_lose: WorkersToLose) -> Any:
    """Return a client of two workers that the test may end."""
    return workers_to_lose.whole()


# Its threads allocate, which other tests count, so it ends with its module.
@pytest.fixture(scope="module", params=["tcp", pytest.param("tls", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from einturnip.sites.wires.dask_cluster import cluster_at

    if request.param == "tls":
        with tls_client(tls_files(tmp_path_factory.mktemp("tls")), 4) as found:
            assert found.scheduler.address.startswith("tls://")
            yield found
    else:
        with cluster_at("local:4", False) as found:
            yield found
