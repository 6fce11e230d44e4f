"""Batched reads and writes do what single ones do, whatever the system refuses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import StoreError
from einturnip.storage.io import batched_io as module
from einturnip.storage.io import transfer
from einturnip.storage.io.batched_io import AT_ONCE, FEWEST, READ, BatchedIo, thread_batched_io
from einturnip.storage.io.transfer import read_extent, write_extent
from einturnip.storage.layout import SIEVED_STRIDE

NBYTES = 1 << 20
STRIDE = 2 * SIEVED_STRIDE
SHAPES = st.tuples(
    st.integers(1, 700), st.integers(FEWEST - 2, 2 * AT_ONCE + 3), st.integers(0, 900), st.integers(0, 64)
)


@pytest.fixture(autouse=True)
def _asks_again() -> Iterator[None]:
    yield
    vars(module._threads).pop("found", None)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    path: Path = tmp_path_factory.mktemp("runs") / "bytes"
    held = np.random.default_rng(0).integers(0, 256, NBYTES, np.uint8)
    held.tofile(path)
    fd = os.open(path, os.O_RDWR)
    yield fd, held
    os.close(fd)


def runs(shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Offset, run, count, stride, within the file."""
    run, count, gap, offset = shape
    return offset, run, min(count, (NBYTES - offset - run) // (run + gap) + 1), run + gap


@given(shape=SHAPES, cached=st.booleans(), refuses=st.booleans())
def test_runs_are_what_lies_there(file: Any, shape: Any, cached: bool, refuses: bool) -> None:
    fd, held = file
    offset, run, count, stride = runs(shape)
    if not cached:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    out = np.zeros(count * run, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "SIEVED_STRIDE", 0)
        if refuses:
            patch.setattr(transfer, "thread_batched_io", lambda: None)
        read_extent(fd, out.data, (offset, run, ((count, stride),)), "x")
    expected = [held[offset + k * stride : offset + k * stride + run] for k in range(count)]
    assert (out == np.concatenate(expected)).all()


@given(shape=SHAPES, refuses=st.booleans())
def test_runs_are_written_where_they_belong(tmp_path_factory: Any, shape: Any, refuses: bool) -> None:
    offset, run, count, stride = runs(shape)
    data = np.random.default_rng(1).integers(1, 256, count * run, np.uint8)
    path = tmp_path_factory.getbasetemp() / "written"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if refuses:
                patch.setattr(transfer, "thread_batched_io", lambda: None)
            write_extent(fd, data.data, (offset, run, ((count, stride),)), lambda error: StoreError(str(error)))
    finally:
        os.close(fd)
    expected = np.zeros(offset + (count - 1) * stride + run, np.uint8)
    for k in range(count):
        expected[offset + k * stride : offset + k * stride + run] = data[k * run : (k + 1) * run]
    assert (np.fromfile(path, np.uint8) == expected).all()


def test_a_file_that_became_shorter_is_told(file: Any) -> None:
    fd, _ = file
    out = np.zeros(FEWEST * 100, np.uint8)
    with pytest.raises(StoreError, match="shorter"):
        read_extent(fd, out.data, (NBYTES - 20_000, 100, ((FEWEST, 10_000),)), "x")


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    path = tmp_path / "read only"
    path.write_bytes(bytes(1000))
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(StoreError, match="told: .*descriptor"):
            write_extent(
                fd,
                memoryview(bytes(FEWEST * 4)),
                (0, 4, ((FEWEST, 8),)),
                lambda error: StoreError(f"told: {error.strerror}"),
            )
    finally:
        os.close(fd)


def test_who_is_refused_asks_no_more(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fd, held = file
    if thread_batched_io() is None:
        pytest.skip("no io_submit here")
    asked = []

    def refuse(*arguments: Any) -> Any:
        asked.append(arguments)
        raise OSError(38, "not implemented")

    monkeypatch.setattr(BatchedIo, "transfer", refuse)
    monkeypatch.setattr(transfer, "SIEVED_STRIDE", 0)
    out = np.zeros(3 * AT_ONCE * 10, np.uint8)
    read_extent(fd, out.data, (0, 10, ((3 * AT_ONCE, 1000),)), "x")
    assert (out[:10] == held[:10]).all() and (out[-10:] == held[1000 * (3 * AT_ONCE - 1) :][:10]).all()
    assert thread_batched_io() is None and len(asked) <= 3
    asked.clear()
    read_extent(fd, out.data, (0, 10, ((3 * AT_ONCE, 1000),)), "x")
    assert not asked


def test_results_are_in_order(file: Any) -> None:
    many = thread_batched_io()
    if many is None:
        pytest.skip("no io_submit here")
    fd, _ = file
    out = np.zeros(8 * 100, np.uint8)
    got = many.transfer(READ, fd, out.ctypes.data, 100, NBYTES - 450, 8, 100)
    assert got.tolist() == [100, 100, 100, 100, 50, 0, 0, 0]


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no file system in memory here")
def test_of_files_in_memory_everything_is_cached() -> None:
    data = np.random.default_rng(2).integers(0, 256, 4 * FEWEST * STRIDE, np.uint8)
    with tempfile.TemporaryFile(dir="/dev/shm") as file, pytest.MonkeyPatch.context() as patch:
        file.write(data.tobytes())
        file.flush()
        flags: list[int] = []
        asked = BatchedIo.transfer

        def transferred(self: BatchedIo, *arguments: int) -> Any:
            flags.append(arguments[7])
            return asked(self, *arguments)

        patch.setattr(BatchedIo, "transfer", transferred)
        out = np.zeros(4 * FEWEST * 64, np.uint8)
        read_extent(file.fileno(), out.data, (0, 64, ((4 * FEWEST, STRIDE),)), "x")
        with pytest.MonkeyPatch.context() as singly:
            singly.setattr(transfer, "thread_batched_io", lambda: None)
            again = np.zeros_like(out)
            read_extent(file.fileno(), again.data, (0, 64, ((4 * FEWEST, STRIDE),)), "x")
    assert (out.reshape(-1, 64) == data[: 4 * FEWEST * STRIDE].reshape(-1, STRIDE)[:, :64]).all()
    assert (again == out).all()
    assert flags in ([], [0])  # [] where the system has no such calls; asked once, for nothing refuses
