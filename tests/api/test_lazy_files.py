"""Handles of files and of results in files: lazy arrays, of which an index reads what it selects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.storage.io.file_source import FileSource

CUBE = np.arange(7 * 5 * 9).reshape(7, 5, 9)
INDICES = [
    0, -1, slice(None), slice(1, 5), slice(None, None, 2), slice(None, None, -1), slice(5, 0, -3), ..., None, (),
    [0, 3], [3, 0, 3], [], np.array([-1, 2]), np.arange(7) % 2 == 1, np.int64(2),
    (1, 2, 3), (1, ..., 3), (slice(2), None, 1), (slice(None), [4, 1]), (0, slice(None), [1, 2]), ([1, 2], 0, slice(2)),
    (slice(None), 2, [8, 0]), (..., slice(0, 9, 4)), (slice(3, 3), 0), (2, ..., None), (slice(9, 20),),
]  # fmt: skip


@pytest.fixture(params=["npy", "npz", "zarr", "h5", "safetensors"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param in ("zarr", "h5"):
        pytest.importorskip({"zarr": "zarr", "h5": "h5py"}[request.param])
    path = f"{tmp_path}/cube.{request.param}"
    result = et.compile("input X : i64[a,b,c]\nY[i,j,k] = X[i,j,k] + 0\noutput Y")(X=CUBE, out={"Y": path})
    return result["Y"]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_an_index_selects_as_numpy_does(file: Any, index: Any) -> None:
    found = file[index]
    np.testing.assert_array_equal(found, CUBE[index])
    assert np.shape(found) == np.shape(CUBE[index]) and type(found) is type(CUBE[index])


def test_properties(file: Any) -> None:
    assert (file.shape, file.dtype, file.ndim, file.size, file.nbytes) == ((7, 5, 9), CUBE.dtype, 3, 315, 2520)
    assert len(file) == 7 and (file.chunks is None or len(file.chunks) == 3)
    assert [row.sum() for row in file] == [row.sum() for row in CUBE]
    np.testing.assert_array_equal(np.asarray(file, dtype=float), CUBE)
    np.testing.assert_array_equal(np.array(file, copy=True), CUBE)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(file, copy=False)


def test_a_scalar_in_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.float64(1.5))
    scalar = et.open(tmp_path / "s.npy")
    assert scalar[()] == scalar[...] == 1.5 and scalar[None].shape == (1,) and np.asarray(scalar) == 1.5
    with pytest.raises(TypeError, match="scalar"):
        len(scalar)


@pytest.mark.parametrize(
    ("index", "said"),
    [(7, "index 7 is out of bounds for axis 0"), ((0, -6), "axis 1"), ((0,) * 4, "4 axes"), ((..., ...), "one '...'"),
     (([0], [1]), "at most one list"), (1.5, "no index"), ([0.5], "list of integers"), ([True], "its mask 1"),
     ([[0]], "one list")],
)  # fmt: skip
def test_other_indices_are_refused(file: Any, index: Any, said: str) -> None:
    with pytest.raises(IndexError, match=said):
        file[index]


def test_an_index_reads_little_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "big.npy", np.broadcast_to(np.arange(3000.0), (3000, 3000)))  # 69 MiB
    big, read = et.open(tmp_path / "big.npy"), []
    original = FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda self, r, out: read.append(out.nbytes) or original(self, r, out))
    for index in ((17, slice(5)), (slice(None), 4), (slice(None, None, 100), slice(9)), ([0, 2999], 1), (-1,)):
        read.clear()
        np.testing.assert_array_equal(big[index], np.load(tmp_path / "big.npy", mmap_mode="r")[index])
        assert 0 < sum(read) < 1 << 20


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", CUBE)
    handle = et.open(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", CUBE[:2])
    with pytest.raises(et.StoreError, match=r"\[7, 5, 9\] when it was opened and is i64\[2, 5, 9\] now"):
        handle[0]


def test_dask_and_xarray_read_by_chunk(file: Any) -> None:
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(file, chunks=(2, 5, 4))
    np.testing.assert_array_equal(lazy.sum(axis=0).compute(), CUBE.sum(axis=0))
    np.testing.assert_array_equal(lazy[1:6:2, :, [3, 0]].compute(), CUBE[1:6:2][:, :, [3, 0]])
    xr = pytest.importorskip("xarray")
    labelled = xr.DataArray(lazy, dims=("a", "b", "c"))
    np.testing.assert_array_equal(labelled.isel(a=3).values, CUBE[3])
