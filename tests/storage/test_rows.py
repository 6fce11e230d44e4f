"""A run of a file to and from separate rows, however little the system transfers at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DTYPES
from einturnip.storage import OutputRequest, open_sinks, open_source
from einturnip.storage.io import vectored_rows
from einturnip.storage.types import whole


def _window(data: st.DataObject, array: np.ndarray) -> np.ndarray:
    """Part of an array: its axes stay in order, none of its strides is turned."""
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in array.shape]
    return array[tuple(slice(*b) for b in bounds)]


def _little(call: Callable[..., int], data: st.DataObject) -> Callable[..., int]:
    """A system call that is content with less than it is asked for."""

    def little(fd: int, buffers: list[Any], offset: int) -> int:
        wanted = sum(memoryview(b).nbytes for b in buffers)
        most = data.draw(st.integers(1, max(1, wanted)))
        kept = []
        for b in buffers:
            kept.append(memoryview(b).cast("B")[:most])
            most -= kept[-1].nbytes
        return call(fd, kept, offset)

    return little


@given(data=st.data())
def test_rows_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    base = np.random.default_rng(0).integers(0, 99, shape).astype("f4")
    part, path = _window(data, base), tmp_path_factory.mktemp("rows") / "x"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectored_rows, "LEAST_NBYTES", data.draw(st.sampled_from([1, 8, 16])))
        patch.setattr(vectored_rows, "_AT_ONCE", data.draw(st.integers(1, 5)))
        patch.setattr(os, "preadv", _little(os.preadv, data))
        patch.setattr(os, "pwritev", _little(os.pwritev, data))
        found = vectored_rows.rows_of(part)
        if found:
            assert b"".join(found) == part.tobytes()
            assert len({row.nbytes for row in found}) == 1 and found[0].nbytes >= vectored_rows.LEAST_NBYTES
            vectored_rows.write_rows(fd, found, 5, lambda error: StoreError(str(error)))
            beside, back = np.full_like(base, -1), np.full_like(base, -1)
            window = _like(part, base, back)
            vectored_rows.read_rows(fd, vectored_rows.rows_of(window), 5, "x")
            np.testing.assert_array_equal(window, part)
            window[...] = -1
            np.testing.assert_array_equal(back, beside)  # nothing but the window was written
            with pytest.raises(StoreError, match="became shorter"):
                vectored_rows.read_rows(fd, vectored_rows.rows_of(window), 6, "x")
    os.close(fd)


def _like(part: np.ndarray, base: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The part of another array that lies there as ``part`` does in ``base``."""
    offset = part.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(part.shape, part.dtype, other.data, offset, part.strides)


def test_axes_that_are_turned_have_no_rows() -> None:
    array = np.zeros((64, 8192), np.float32)
    assert (
        vectored_rows.rows_of(array.T) == []
        and vectored_rows.rows_of(array[:, ::2]) == []
        and vectored_rows.rows_of(array[::-1]) != []
    )
    assert [row.nbytes for row in vectored_rows.rows_of(array[:, :4096])] == 64 * [16384]


@pytest.mark.parametrize("ending", [".npy", ".zarr"])
def test_tiles_of_whole_rows_through_files(tmp_path: Path, ending: str) -> None:
    """Rows of several chunks, from and to files, as parts of larger arrays."""
    x = np.random.default_rng(1).standard_normal((96, 40_000)).astype(np.float32)
    spec = f"{tmp_path}/x{ending}"
    (sink,) = open_sinks([OutputRequest(spec, "X", x.shape, DTYPES["f32"])])
    for at in range(0, 96, 32):
        sink.write(((at, at + 32), (0, 40_000)), x[at : at + 32])
    sink.commit()
    source = open_source(spec if ending == ".npy" else f"{spec}::X", "X")
    wide = np.zeros((96, 50_000), np.float32)
    source.read(whole(x.shape), wide[:, 7:40_007])
    np.testing.assert_array_equal(wide[:, 7:40_007], x)
    assert not wide[:, :7].any() and not wide[:, 40_007:].any()
    source.close()
