"""HDF5 files and Zarr directories by region, compared with h5py and zarr."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DTYPES, from_numpy
from einturnip.storage import OutputRequest, open_sinks, open_source, planned_offsets
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.chunks.files import MOST_OPEN, ChunkFiles
from einturnip.storage.formats.zarr import zarr_source
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.types import Region, Source, region_shape, slices, whole
from tests.drawn import examples
from tests.storage.simulated_cache import SimulatedCache

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

NAMES = sorted(set(DTYPES) - {"bf16"})


def _read(source: Source, region: Region | None = None) -> np.ndarray:
    region = whole(source.shape) if region is None else region
    out = np.zeros(region_shape(region), source.dtype.numpy)
    source.read(region, out)
    return out


def _array(shape: tuple[int, ...], name: str = "f32") -> np.ndarray:
    rng = np.random.default_rng(len(shape) + len(name))
    return np.asarray(rng.integers(0, 9, shape).astype(DTYPES[name].numpy))


def _hdf5(path: Path) -> dict[str, np.ndarray]:
    x = _array((37, 50))
    with h5py.File(path, "w") as file:
        file["plain"] = x
        file["a/big_endian"] = x.astype(">f4")
        file.create_dataset("a/packed", data=x, chunks=(10, 7), compression="gzip", shuffle=True)
        file.create_dataset("a/chunks", data=x, chunks=(8, 50))
        file["number"] = np.float32(3)
        file.create_dataset("unwritten", (3, 4), "f4", fillvalue=2.0)
    return {
        "plain": x,
        "a/big_endian": x,
        "a/packed": x,
        "a/chunks": x,
        "number": np.float32(3),
        "unwritten": np.full((3, 4), 2, np.float32),
    }


def _zarr(path: Path) -> dict[str, np.ndarray]:
    x = _array((37, 50))
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    group.create_array("plain", data=x, chunks=(10, 7), compressors=None)
    group.create_array("a/packed", data=x, chunks=(10, 50))
    group.create_array("a/sharded", data=x, chunks=(5, 10), shards=(20, 50))
    group.create_array("number", data=np.float32(3))
    group.create_array("unwritten", shape=(3, 4), dtype="f4", fill_value=2.0)
    return {
        "plain": x,
        "a/packed": x,
        "a/sharded": x,
        "number": np.float32(3),
        "unwritten": np.full((3, 4), 2, np.float32),
    }


MADE = {".h5": _hdf5, ".zarr": _zarr}


@pytest.mark.parametrize("ending", MADE)
def test_arrays_are_found_by_their_paths(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    for key, array in MADE[ending](path).items():
        source = open_source(f"{path}::{key}", "x")
        np.testing.assert_array_equal(_read(source), array)
        source.release(whole(source.shape))
        source.close()
        source.close()
    with pytest.raises(BindError, match="did you mean .*a/packed"):
        open_source(f"{path}::packed", "x")
    with pytest.raises(BindError, match="say which"):
        open_source(str(path), "x")
    with pytest.raises(BindError, match=f"did you mean .*x{ending}"):
        open_source(f"{tmp_path}/y{ending}", "x")


def test_what_lies_in_one_piece_is_read_past_the_library(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    _hdf5(path)
    assert isinstance(open_source(f"{path}::a/big_endian", "x"), FileSource)
    assert isinstance(open_source(f"{path}::a/packed", "x"), ChunkedSource)


def test_version_2_and_a_lone_array(tmp_path: Path) -> None:
    x = _array((9, 20), "i16")
    zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(4, 8), zarr_format=2)
    np.testing.assert_array_equal(_read(open_source(f"{tmp_path}/x.zarr", "anything")), x)
    with pytest.raises(BindError, match="is one array"):
        open_source(f"{tmp_path}/x.zarr::y", "x")


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_region(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(sorted(MADE)))
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    if not path.exists():
        MADE[ending](path)
    source = open_source(f"{path}::a/packed", "x")
    region = tuple(tuple(sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in source.shape)
    np.testing.assert_array_equal(_read(source, region), _array((37, 50))[slices(region)])
    source.close()


def _requests(path: Path, arrays: dict[str, np.ndarray]) -> list[OutputRequest]:
    return [
        OutputRequest(f"{path}::{k}", f"n{i}", a.shape, from_numpy(a.dtype)) for i, (k, a) in enumerate(arrays.items())
    ]


def _theirs(path: Path) -> Any:
    return h5py.File(path) if path.suffix != ".zarr" else zarr.open_group(str(path), mode="r")


@pytest.mark.parametrize("ending", MADE)
def test_what_is_written_is_read_by_the_library(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"y{ending}"
    arrays = {f"g/{name}": _array((5, 11), name) for name in NAMES}
    arrays |= {"number": _array(()), "empty": _array((0, 3)), "line": _array((13,), "c64")}
    offsets = planned_offsets(_requests(path, arrays))
    assert not path.exists()
    sinks = open_sinks(_requests(path, arrays))
    assert len({o for o, a in zip(offsets, arrays.values(), strict=True) if a.size}) == len(arrays) - 1
    for sink, array in zip(sinks, arrays.values(), strict=True):
        sink.write(whole(array.shape), np.asfortranarray(array))
        np.testing.assert_array_equal(_read(sink), array)
    for sink in sinks[:-1]:
        sink.commit()
    assert not path.exists(), "whole or not at all"
    sinks[-1].commit()
    theirs = _theirs(path)
    for key, array in arrays.items():
        found = theirs[key][()]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    assert os.listdir(tmp_path) == [path.name]


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_regions_written_in_any_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(sorted(MADE)))
    path = tmp_path_factory.mktemp("w") / f"y{ending}"
    x = _array((23, 17))
    with pytest.MonkeyPatch.context() as small:
        small.setattr("einturnip.storage.formats.zarr_output.CHUNK_NBYTES", 200)
        (sink,) = open_sinks(_requests(path, {"x": x}))
    rows, columns = (sorted({0, n, *data.draw(st.sets(st.integers(1, n - 1), max_size=3))}) for n in x.shape)
    tiles = [(r, c) for r in zip(rows, rows[1:], strict=False) for c in zip(columns, columns[1:], strict=False)]
    for tile in data.draw(st.permutations(tiles)):
        sink.write(tile, x[slices(tile)])
    region = data.draw(st.sampled_from(tiles))
    np.testing.assert_array_equal(_read(sink, region), x[slices(region)])
    sink.commit()
    np.testing.assert_array_equal(_theirs(path)["x"][()], x)


@pytest.mark.parametrize("ending", MADE)
def test_an_abort_leaves_what_was_there(tmp_path: Path, ending: str) -> None:
    path, x = tmp_path / f"y{ending}", _array((4, 4))
    for value in (x, x + 1):
        (sink,) = open_sinks(_requests(path, {"x": value}))
        sink.write(whole(x.shape), value)
        sink.commit()
        with pytest.raises(StoreError, match="committed or aborted"):
            sink.write(whole(x.shape), value)
    (sink,) = open_sinks(_requests(path, {"x": x}))
    sink.write(whole(x.shape), 7 * x)
    sink.close()
    np.testing.assert_array_equal(_theirs(path)["x"][()], x + 1)
    assert os.listdir(tmp_path) == [path.name]


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    code = f"""
import os, numpy as np
from einturnip.ir.dtypes import DTYPES
from einturnip.storage import open_sink
open_sink({str(tmp_path / "y.zarr")!r}, "x", (4,), DTYPES["f32"])
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code])
    assert len(os.listdir(tmp_path)) == 1 and not (tmp_path / "y.zarr").exists()
    open_sinks(_requests(tmp_path / "y.zarr", {"x": _array((3,))}))[0].abort()
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_no_zarr_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.txt").write_text("all of it")
    with pytest.raises(BindError, match="not replaced"):
        open_sinks(_requests(tmp_path / "mine.zarr", {"x": _array((3,))}))
    with pytest.raises(StoreError, match="is no Zarr directory"):
        open_source(f"{tmp_path}/mine.zarr", "x")


@pytest.mark.parametrize("ending", MADE)
def test_what_cannot_be_held_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"y{ending}"
    with pytest.raises(BindError, match="no bf16"):
        open_sinks([OutputRequest(str(path), "x", (3,), DTYPES["bf16"])])
    x = _array((3,))
    with pytest.raises(BindError):
        open_sinks(_requests(path, {"a": x, "a/b": x}))
    assert os.listdir(tmp_path) == []


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    _hdf5(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match="no whole HDF5 file"):
        open_source(f"{path}::plain", "x")
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file["x"] = "words"
    with pytest.raises(StoreError, match="no type for"):
        open_source(f"{tmp_path}/text.h5", "x")
    _zarr(tmp_path / "x.zarr")
    for chunk in (tmp_path / "x.zarr/a/packed/c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="a chunk cannot be read"):
        _read(open_source(f"{tmp_path}/x.zarr::a/packed", "x"))
    (tmp_path / "x.zarr/plain/zarr.json").write_text("{")
    with pytest.raises(StoreError, match="metadata cannot be read"):
        open_source(f"{tmp_path}/x.zarr::plain", "x")


@pytest.mark.parametrize("ending, package, extra", [(".h5", "h5py", "hdf5"), (".zarr", "numcodecs.zstd", "zarr")])
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, package: str, extra: str
) -> None:
    MADE[ending](tmp_path / f"x{ending}")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreError, match=rf"pip install 'einturnip\[{extra}"):
        open_source(f"{tmp_path}/x{ending}::a/packed", "x")


@pytest.mark.parametrize("ending", MADE)
def test_a_program_from_file_to_file(tmp_path: Path, ending: str) -> None:
    x = MADE[ending](tmp_path / f"x{ending}")["a/packed"]
    program = et.compile("input A : f32[n, m]\nG[i, j] = sum[k] A[i, k] * A[j, k]\ns = sum[i] G[i, i]\noutput G, s")
    out = {"G": f"{tmp_path}/y{ending}", "s": f"{tmp_path}/y{ending}::trace"}
    result = program(A=f"{tmp_path}/x{ending}::a/packed", out=out, memory="256MiB")
    np.testing.assert_array_equal(_theirs(tmp_path / f"y{ending}")["G"][()], x @ x.T)
    np.testing.assert_array_equal(np.asarray(result["G"]), x @ x.T)
    assert np.asarray(result["s"]) == np.trace(x @ x.T)


@pytest.mark.parametrize("ending", MADE)
def test_opened_in_python(tmp_path: Path, ending: str) -> None:
    arrays = MADE[ending](tmp_path / f"x{ending}")
    opened = et.open(tmp_path / f"x{ending}")
    assert set(opened) == set(arrays)
    np.testing.assert_array_equal(np.asarray(opened["a/packed"]), arrays["a/packed"])


@pytest.mark.parametrize("version", [2, 3])
def test_plain_chunks_are_read_past_the_library(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _array((37, 50))
    codec = {"compressors": None, "filters": None} if version == 2 else {"compressors": None}
    zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(10, 7), zarr_format=version, **codec)
    monkeypatch.setitem(sys.modules, "zarr", None)
    source = open_source(str(tmp_path / "x.zarr"), "X")
    assert isinstance(source, ChunkFiles)
    for region in [((0, 37), (0, 50)), ((9, 31), (6, 8)), ((36, 37), (49, 50)), ((5, 5), (0, 3))]:
        np.testing.assert_array_equal(_read(source, region), x[slices(region)])
        source.release(region)
    assert source.contiguous_nbytes(((0, 20), (3, 40))) == 16
    source.close()


@pytest.mark.parametrize("tile", [(64, 2304), (768, 96), (500, 700)])
def test_chunks_that_are_released_as_they_are_read_come_from_the_disk_once(
    tmp_path: Path, cache: SimulatedCache, tile: tuple[int, int]
) -> None:
    path, shape = tmp_path / "x.zarr", (2304, 2304)
    array = zarr.create_array(str(path), shape=shape, dtype="f4", chunks=(768, 768), compressors=None)
    array[...] = np.broadcast_to(np.arange(2304, dtype=np.float32), shape)
    files = [f for f in path.rglob("*") if f.stat().st_size == 4 * 768**2]
    source, before, descriptors = open_source(str(path), "X"), cache.disk_nbytes, len(os.listdir("/proc/self/fd"))
    for i in range(0, shape[0], tile[0]):
        for j in range(0, shape[1], tile[1]):
            region = ((i, min(i + tile[0], shape[0])), (j, min(j + tile[1], shape[1])))
            assert (_read(source, region) == np.arange(*region[1])).all()
            source.release(region)
    assert cache.disk_nbytes - before <= 1.02 * 4 * shape[0] * shape[1]
    assert sum(map(cache.cached_nbytes, files)) < 1 << 20
    source.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_chunks_are_not_kept_open_without_end(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "x.zarr"), data=_array((40, 5)), chunks=(1, 5), compressors=None)
    source, before = open_source(str(tmp_path / "x.zarr"), "X"), len(os.listdir("/proc/self/fd"))
    np.testing.assert_array_equal(_read(source), _array((40, 5)))
    assert len(os.listdir("/proc/self/fd")) - before <= 2 * MOST_OPEN
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_plain_chunks_never_written_or_torn(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    array = zarr.create_array(str(path), shape=(6, 6), dtype="i4", chunks=(4, 4), compressors=None, fill_value=7)
    array[:4, :4] = 1
    expected = np.full((6, 6), 7, np.int32)
    expected[:4, :4] = 1
    np.testing.assert_array_equal(_read(open_source(str(path), "X")), expected)
    (chunk,) = [f for f in path.rglob("*") if f.is_file() and f.stat().st_size == 64]
    chunk.write_bytes(bytes(60))
    with pytest.raises(StoreError, match="60 bytes instead of 64"):
        _read(open_source(str(path), "X"))


def test_orders_and_byte_orders_that_the_library_turns(tmp_path: Path) -> None:
    x = _array((6, 5))
    zarr.create_array(str(tmp_path / "f.zarr"), data=x, chunks=(4, 2), zarr_format=2, order="F", compressors=None)
    zarr.create_array(
        str(tmp_path / "b.zarr"),
        data=x,
        chunks=(4, 2),
        compressors=None,
        serializer=zarr.codecs.BytesCodec(endian="big"),
    )
    for name in "fb":
        source = open_source(str(tmp_path / f"{name}.zarr"), "X")
        assert isinstance(source, ChunkedSource)
        np.testing.assert_array_equal(_read(source), x)


_FILLS = {"b": [True, None], "i": [-3, None], "f": [2.5, math.nan, -math.inf, None], "c": [1 - 2j, None]}


@given(data=st.data())
def test_plain_metadata_mean_what_they_mean_to_the_library(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([2, 3]))
    dtype = np.dtype(data.draw(st.sampled_from(["bool", "int8", "int64", "float16", "float64", "complex64"])))
    sides = data.draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=3))
    shape, chunks = zip(*sides, strict=True)
    name, between = data.draw(st.sampled_from(["default", "v2"][2 - version :])), data.draw(st.sampled_from("./"))
    with tempfile.TemporaryDirectory() as folder:
        array = zarr.create_array(
            f"{folder}/x.zarr",
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            zarr_format=version,
            compressors=None,
            filters=None if version == 2 else "auto",
            fill_value=data.draw(st.sampled_from(_FILLS[dtype.kind])),
            chunk_key_encoding={"name": "v2" if version == 2 else name, "separator": between},
        )
        written = (max(1, shape[0] // 2), *shape[1:])
        array[: written[0]] = np.arange(math.prod(written)).reshape(written).astype(dtype)
        source = zarr_source(f"{folder}/x.zarr", None, "X")
        assert isinstance(source, ChunkFiles)
        np.testing.assert_array_equal(_read(source), array[...])
        source.close()
