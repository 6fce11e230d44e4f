"""Inputs in a real S3-compatible server, read by processes of the command line within their memory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (find_spec("moto") and find_spec("s3fs")), reason="needs moto and s3fs, of the extra dev"),
]
PRODUCT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    """The environment of processes that use the server, which has a bucket ``box``."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    yield os.environ | found | {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    server.stop()


def store(s3: dict[str, str]) -> Any:
    import s3fs

    found = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=s3["AWS_ENDPOINT_URL"], skip_instance_cache=True)
    found.makedirs("box", exist_ok=True)
    return found


def run(folder: Path, s3: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "einturnip", "run", "p.ein", *arguments],
        cwd=folder,
        env=s3,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_product_of_objects_in_s3(s3: dict[str, str], tmp_path: Path) -> None:
    import zarr

    files = store(s3)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (2400, 2400)).astype(float) for _ in "ab")
    content = io.BytesIO()
    np.save(content, a)
    files.pipe_file("box/A.npy", content.getvalue())
    array = zarr.create_array(tmp_path / "B.zarr", shape=b.shape, chunks=(600, 600), dtype="f8")
    array[...] = b
    files.put(str(tmp_path / "B.zarr"), "box/B.zarr", recursive=True)
    (tmp_path / "p.ein").write_text(PRODUCT)
    inputs = ("-i", "A=s3://box/A.npy", "-i", "B=s3://box/B.zarr")
    done = run(tmp_path, s3, *inputs, "--memory", "200MiB", "-o", "C=C.npy", "--report", "r.json")
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "C.npy"), a @ b)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["peak_resident_nbytes"] <= 200 << 20
    done = run(tmp_path, s3, *inputs, "--memory", "250MiB", "--at", "local:2", "-o", "C=D.npy")
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "D.npy"), a @ b)


def test_objects_that_are_not_there(s3: dict[str, str], tmp_path: Path) -> None:
    store(s3)
    (tmp_path / "p.ein").write_text(PRODUCT)
    for url in ("s3://box/no.npy", "s3://no-such-bucket/A.npy"):
        done = run(tmp_path, s3, "-i", f"A={url}", "-i", "B=B.npy")
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: input A: {url}: there is no such object. help: check the name")
    wrong = s3 | {"AWS_ENDPOINT_URL": "http://no-such-host.invalid:1", "AWS_MAX_ATTEMPTS": "1"}
    done = run(tmp_path, wrong, "-i", "A=s3://box/A.npy", "-i", "B=B.npy")
    assert done.returncode == 2
    assert (
        "input A: s3://box/A.npy: cannot be read: " in done.stderr and "help: check the name of the host" in done.stderr
    )
