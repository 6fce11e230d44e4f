"""Inputs in remote stores: by region, within the memory of a run, with errors that name operand, URL and fix."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError, StoreError
from einturnip.storage import remote
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.open import open_source
from tests.storage.web_server import Server, serving

pytestmark = pytest.mark.skipif(
    not (find_spec("fsspec") and find_spec("aiohttp")), reason="needs fsspec and aiohttp, of the extra dev"
)
DOUBLE = "input A : f64[n,m]\nC[i,j] = 2 * A[i,j]\noutput C\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def memory() -> Iterator[Any]:
    import fsspec

    found = fsspec.filesystem("memory")
    yield found
    found.store.clear()
    found.pseudo_dirs[:] = [""]


def saved(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8"])
@pytest.mark.parametrize("shape", [(31, 7, 5), (0, 3), (), (6,)])
def test_regions_of_an_array_in_one_piece(memory: Any, order: Any, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype, order=order)
    memory.pipe_file("/A.npy", saved(array))
    with mock.patch.object(remote, "SLAB_NBYTES", 96):
        source = open_source("memory://A.npy", "A")
        assert isinstance(source, ChunkedSource) and np.prod(source.chunks, dtype=int) <= 12
        rng = np.random.default_rng(2)
        for _ in range(6):
            region = tuple(tuple(sorted(int(k) for k in rng.integers(0, n + 1, 2))) for n in shape)
            out = np.full([b - a for a, b in region], np.nan)
            source.read(region, out)  # type: ignore[arg-type]
            np.testing.assert_array_equal(out, array[tuple(slice(a, b) for a, b in region)])
        source.close()


@pytest.mark.parametrize("codec", ["plain", "encoded"])
def test_zarr_directories(memory: Any, tmp_path: Path, codec: str) -> None:
    import zarr

    a = np.arange(63.0 * 45).reshape(63, 45)
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    options: dict[str, Any] = {"compressors": None} if codec == "plain" else {}
    array = group.create_array("A", shape=a.shape, chunks=(20, 16), dtype="f8", fill_value=-1.0, **options)
    array[:40] = a[:40]  # the chunks after are absent
    memory.put(str(tmp_path / "g.zarr"), "/g.zarr", recursive=True)
    expected = np.r_[a[:40], np.full((23, 45), -1.0)]
    program = et.compile(DOUBLE)
    memory.put(str(tmp_path / "g.zarr/A"), "/A.zarr", recursive=True)
    for url in ("memory://g.zarr", "memory://g.zarr::A", "memory://A.zarr"):
        np.testing.assert_array_equal(program(A=url, arena="16KiB")["C"], 2 * expected)
    with pytest.raises(BindError, match=r"input A: memory://g.zarr: it has no array 'Q'. help: name one"):
        program(A="memory://g.zarr::Q")
    sharded = group.create_array("S", shape=a.shape, chunks=(10, 8), shards=(20, 16), dtype="f8")
    sharded[...] = a
    memory.put(str(tmp_path / "g.zarr"), "/s.zarr", recursive=True)
    with pytest.raises(BindError, match="it has shards, which are read from files only. help: copy it here"):
        program(A="memory://s.zarr::S")


def test_a_web_server_is_asked_for_parts_of_bounded_size(server: Server) -> None:
    a = np.random.default_rng(1).standard_normal((500, 400))
    server.objects["/A.npy"] = saved(a)
    with mock.patch.object(remote, "SLAB_NBYTES", 1 << 18):
        result = et.compile(DOUBLE)(A=f"{server.url}/A.npy", memory="250MiB")
    np.testing.assert_array_equal(result["C"], 2 * a)
    sizes = [int(end) - int(begin) + 1 for begin, _, end in (r.partition("-") for r in server.asked)]
    assert max(sizes) <= 1 << 18
    large = [n for n in sizes if n > 4096]
    assert sum(large) == a.nbytes  # each slab once


def test_an_object_that_changes_during_the_run(server: Server) -> None:
    a = np.ones((500, 400))
    server.objects["/A.npy"] = saved(a)
    server.after["/A.npy"] = saved(2 * a)
    with (
        mock.patch.object(remote, "SLAB_NBYTES", 1 << 18),
        pytest.raises(StoreError, match=r"input A: http://.*/A.npy: was overwritten while it was.*help: run"),
    ):
        et.compile(DOUBLE)(A=f"{server.url}/A.npy", memory="250MiB")


def test_a_server_without_ranges_is_refused_before_it_sends_the_file(server: Server) -> None:
    server.ranges = False
    server.objects["/A.npy"] = saved(np.ones((100, 100)))
    with pytest.raises(StoreError, match=r"input A: http.*A.npy: its server does not serve parts of files. help: copy"):
        open_source(f"{server.url}/A.npy", "A")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://no.npy", r"input A: memory://no.npy: there is no such object. help: check the name"),
        ("memory://no.zarr", r"input A: memory://no.zarr/zarr.json: there is no such object. help: check"),
        (
            "http://no-such-host.invalid/A.npy",
            r"input A: http://no-such.*cannot be read: .*help: check the name",
        ),
        ("http://127.0.0.1:1/A.zarr", r"input A: http://127.0.0.1:1/A.zarr/zarr.json: cannot be read: .*help: check"),
        ("memory://A.h5", r"of remote stores, .npy and .zarr are read, and the ending is '.h5'. help: copy it here"),
        ("no-such-scheme://A.npy", r"input A: no-such-scheme://A.npy: .*help: name a scheme that fsspec knows"),
    ],
)
def test_errors_name_operand_url_and_fix(memory: Any, url: str, message: str) -> None:
    with pytest.raises(et.EinturnipError, match=message) as raised:
        et.compile(DOUBLE)(A=url)
    assert raised.value.exit_code == 2 or isinstance(raised.value, StoreError)


def test_a_failing_network_is_not_a_missing_chunk(server: Server, tmp_path: Path) -> None:
    import zarr

    a = np.ones((40, 40))
    array = zarr.create_array(tmp_path / "A.zarr", shape=a.shape, chunks=(20, 20), dtype="f8")
    array[...] = a
    for file in (tmp_path / "A.zarr").rglob("*"):
        if file.is_file():
            server.objects[f"/A.zarr/{file.relative_to(tmp_path / 'A.zarr')}"] = file.read_bytes()
    source = open_source(f"{server.url}/A.zarr", "A")
    server.shutdown()
    server.socket.close()
    with pytest.raises(StoreError, match="cannot be read: "):
        source.read(((0, 40), (0, 40)), np.empty((40, 40)))
    source.close()


def test_outputs_are_not_written_to_stores() -> None:
    with pytest.raises(BindError, match=r"output C: s3://b/C.zarr: outputs are written to files.*help: name a file"):
        et.compile(DOUBLE)(A=np.ones((2, 2)), out={"C": "s3://b/C.zarr"})


def test_without_fsspec_the_error_says_what_to_install() -> None:
    with (
        mock.patch.object(remote, "find_spec", lambda name: None),
        mock.patch.dict("sys.modules"),
        pytest.raises(BindError, match=r"input A: memory://A.npy: .*pip install 'einturnip\[remote\]'"),
    ):
        import sys

        sys.modules.pop("fsspec", None)
        open_source("memory://A.npy", "A")


def test_a_program_names_an_object(memory: Any) -> None:
    memory.pipe_file("/A.npy", saved(np.eye(3)))
    text = 'input A : f64[n,m] = "memory://A.npy"\nC[i,j] = 2 * A[i,j]\noutput C\n'
    np.testing.assert_array_equal(et.compile(text)()["C"], 2 * np.eye(3))
