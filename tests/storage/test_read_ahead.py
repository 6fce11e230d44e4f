"""Short cold runs are read with their surroundings if the tensor is read whole and memory allows."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.ir.dtypes import F32
from einturnip.storage.chunks import files
from einturnip.storage.chunks.files import ChunkFiles
from einturnip.storage.io import coalesced_reads, page_eviction, transfer
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.open import open_source
from einturnip.storage.types import Region
from tests.drawn import examples
from tests.storage.simulated_cache import SimulatedCache

ROWS, COLUMNS = 512, 4096
ROW_NBYTES = 4 * COLUMNS
WHOLE = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
WIDE = WHOLE.reshape(128, 16_384)
CHUNK = 32, 8192


@pytest.fixture
def cold(tmp_path: Path, cache: SimulatedCache) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, WHOLE)
    return path


@pytest.fixture
def cold_chunks(cold: Path) -> ChunkFiles:
    """The same bytes as fewer, wider rows, in a file for each chunk."""
    (high, wide), folder = CHUNK, cold.parent
    for i, j in np.ndindex(WIDE.shape[0] // high, WIDE.shape[1] // wide):
        path = folder / f"{i}.{j}"
        path.write_bytes(WIDE[i * high : (i + 1) * high, j * wide : (j + 1) * wide].tobytes())
    return ChunkFiles("x", WIDE.shape, F32, CHUNK, lambda at: str(folder / f"{at[0]}.{at[1]}"), 0)


def opened(path: Path) -> FileSource:
    source = open_source(str(path), "x")
    assert isinstance(source, FileSource)
    return source


def read(source: FileSource | ChunkFiles, region: Region) -> None:
    (top, bottom), (left, right) = region
    out = np.empty((bottom - top, right - left), np.float32)
    source.read(region, out)
    assert np.array_equal(out, WHOLE.reshape(source.shape)[top:bottom, left:right])


@pytest.mark.parametrize("said", [False, True])
def test_what_lies_beside_comes_with_a_tile_of_a_tensor_that_is_read_whole(
    cold: Path, said: bool, cache: SimulatedCache
) -> None:
    source = opened(cold)
    if said:
        source.read_whole()
    read(source, ((0, ROWS), (64, 128)))
    beside = cache.cached_nbytes(cold)
    source.close()
    assert beside >= WHOLE.nbytes if said else beside <= 2 * 4096 * ROWS


def test_what_is_fetched_for_others_is_not_handed_over(
    cold: Path, monkeypatch: pytest.MonkeyPatch, cache: SimulatedCache
) -> None:
    monkeypatch.setattr(transfer, "thread_batched_io", lambda: None)  # whose reads are in no count
    source = opened(cold)
    source.read_whole()
    before = cache.copied_nbytes
    read(source, ((0, ROWS), (64, 128)))
    handed = cache.copied_nbytes - before
    assert cache.cached_nbytes(cold) >= WHOLE.nbytes
    source.close()
    assert handed <= 2 * 4 * 64 * ROWS


def test_tiles_come_where_the_file_system_knows_no_pipes(
    cold: Path, monkeypatch: pytest.MonkeyPatch, cache: SimulatedCache
) -> None:
    def refuses(*_: object, **__: object) -> int:
        raise OSError(errno.EINVAL, "no splice here")

    monkeypatch.setattr(os, "splice", refuses)
    descriptors = len(os.listdir("/proc/self/fd"))
    source = opened(cold)
    source.read_whole()
    read(source, ((0, ROWS), (64, 128)))
    source.close()
    assert cache.cached_nbytes(cold) <= 2 * 4096 * ROWS
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_no_more_waits_than_the_bound(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesced_reads, "STRETCH_NBYTES", 8 * ROW_NBYTES)
    monkeypatch.setattr(coalesced_reads, "waiting_nbytes", lambda: 32 * ROW_NBYTES)
    source = opened(cold)
    source.read_whole()
    assert source._stretches is not None
    for left in range(0, COLUMNS, 256):
        read(source, ((0, ROWS), (left, left + 256)))
        assert source._stretches.waiting.nbytes <= 32 * ROW_NBYTES
    assert source._stretches.waiting.nbytes < 8 * ROW_NBYTES  # the last tile found nearly all that was left
    source.close()


@pytest.mark.parametrize("room", [True, False])
def test_runs_near_each_other_come_with_their_rows(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool, cache: SimulatedCache
) -> None:
    path, cube = tmp_path / "cube.npy", WHOLE.reshape(ROWS, 64, 64)
    np.save(path, cube)
    monkeypatch.setattr(coalesced_reads, "waiting_nbytes", lambda: 2 * WHOLE.nbytes if room else 0)
    source, out = opened(path), np.empty((ROWS, 4, 16), np.float32)
    source.read_whole()
    source.read(((0, ROWS), (8, 12), (16, 32)), out)  # four runs of 64 bytes, 16 KiB on to the next four
    assert np.array_equal(out, cube[:, 8:12, 16:32])
    assert (cache.cached_nbytes(path) >= cube.nbytes) == room
    source.close()


@pytest.mark.parametrize(("said", "room"), [(False, True), (True, True), (True, False)])
def test_what_lies_beside_in_its_chunk_comes_with_a_tile(
    cold_chunks: ChunkFiles, cold: Path, monkeypatch: pytest.MonkeyPatch, said: bool, room: bool, cache: SimulatedCache
) -> None:
    """Of chunks together no more waits than the bound."""
    chunk = 4 * CHUNK[0] * CHUNK[1]
    monkeypatch.setattr(coalesced_reads, "waiting_nbytes", lambda: 2 * chunk if room else chunk)
    if said:
        cold_chunks.read_whole()
    read(cold_chunks, ((0, 64), (64, 128)))
    beside = [cache.cached_nbytes(cold.parent / f"{i}.0") for i in range(2)]
    cold_chunks.close()
    whole = sum(nbytes == chunk for nbytes in beside)
    assert whole == (0 if not said else 2 if room else 1)


@pytest.mark.parametrize("said", [False, True])
def test_what_comes_after_a_short_run_comes_with_it_of_a_tensor_that_is_read_whole(
    cold: Path, said: bool, cache: SimulatedCache
) -> None:
    source = opened(cold)
    if said:
        source.read_whole()
    read(source, ((0, 2), (0, COLUMNS)))
    read(source, ((2, 4), (0, COLUMNS)))
    ahead = cache.cached_nbytes(cold)
    source.close()
    assert (ahead > 6 * ROW_NBYTES) == said


def test_chunks_read_by_columns_are_read_from_the_disk_once(
    cold_chunks: ChunkFiles, monkeypatch: pytest.MonkeyPatch, cache: SimulatedCache
) -> None:
    """Though other chunks' files were opened in between, and theirs are closed."""
    monkeypatch.setattr(files, "MOST_OPEN", 2)
    cold_chunks.read_whole()
    before = cache.disk_nbytes
    for left in range(0, WIDE.shape[1], 1024):
        read(cold_chunks, ((0, WIDE.shape[0]), (left, left + 1024)))
    assert cache.disk_nbytes - before <= 1.05 * WHOLE.nbytes
    cold_chunks.close()


def test_a_file_read_by_columns_is_read_from_the_disk_once(cold: Path, cache: SimulatedCache) -> None:
    source = opened(cold)
    source.read_whole()
    before = cache.disk_nbytes
    for left in range(0, COLUMNS, 256):
        read(source, ((0, ROWS), (left, left + 256)))
    assert cache.disk_nbytes - before <= 1.05 * cold.stat().st_size
    source.close()


@pytest.mark.parametrize("room", [True, False])
def test_halves_of_pages_wait_for_the_other_halves(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool, cache: SimulatedCache
) -> None:
    """Tiles of a few runs here and there: one half of each run first, of all of the tensor, then the other."""
    path, six = tmp_path / "four.npy", WHOLE.reshape(16, 16, 64, 128)
    np.save(path, six)
    monkeypatch.setattr(page_eviction, "PENDING_NBYTES", 1 << 20)
    for module in (page_eviction, coalesced_reads):
        monkeypatch.setattr(module, "waiting_nbytes", lambda: 2 * six.nbytes if room else 1 << 20)
    source, out = opened(path), np.empty((16, 16, 8, 64), np.float32)
    source.read_whole()
    before = cache.disk_nbytes
    for left in (0, 64):
        for top in range(0, 64, 8):
            region = ((0, 16), (0, 16), (top, top + 8), (left, left + 64))
            source.read(region, out)
            assert np.array_equal(out, six[:, :, top : top + 8, left : left + 64])
            source.release(region)
    assert (cache.disk_nbytes - before <= 1.05 * six.nbytes) == room
    source.close()
    assert cache.cached_nbytes(path) < 1 << 18


@given(st.lists(st.integers(1, 40), min_size=4, max_size=4), st.data())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_groups_of_runs_are_what_is_stored(tmp_path: Path, shape: list[int], data: st.DataObject) -> None:
    """Tiles of which the last axes are cut: runs near each other, in groups further apart."""
    whole = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    path = tmp_path / "groups.npy"
    np.save(path, whole)
    source = opened(path)
    for _ in range(3):
        ends = [sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n)))) for n in shape]
        region = tuple((a, max(b, a + 1)) for a, b in ends)
        out = np.empty([b - a for a, b in region], np.float32)
        source.read(region, out)
        assert np.array_equal(out, whole[tuple(slice(a, b) for a, b in region)])
    source.close()


@given(
    st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1), st.integers(1, 300), st.integers(1, 99))),
    st.integers(0, 40),
    st.booleans(),
)
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tiles_in_any_order_are_what_is_stored(
    cache: SimulatedCache, cold: Path, tiles: list, waiting: int, mirrored: bool
) -> None:
    cache.evict(cold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalesced_reads, "STRETCH_NBYTES", 8 * ROW_NBYTES)
        patch.setattr(coalesced_reads, "waiting_nbytes", lambda: waiting * ROW_NBYTES)
        source = opened(cold)
        source.read_whole()
        for top, left, height, width in tiles:
            region = ((top, min(ROWS, top + height)), (left, min(COLUMNS, left + width)))
            if mirrored:
                out = np.empty(tuple(b - a for a, b in region)[::-1], np.float32).T
                source.read(region, out)
                assert np.array_equal(out, WHOLE[region[0][0] : region[0][1], region[1][0] : region[1][1]])
            else:
                read(source, region)
        source.close()


@pytest.mark.parametrize(("text", "all_of_it"), [("X[i,j]", True), ("X[i,1024+j]", False)])
def test_a_run_tells_of_tensors_that_it_reads_whole(
    cold: Path, monkeypatch: pytest.MonkeyPatch, text: str, all_of_it: bool
) -> None:
    told: list[str] = []
    monkeypatch.setattr(FileSource, "read_whole", lambda source: told.append(source.name))
    columns = COLUMNS if all_of_it else 1024
    program = f"dim j = {columns}\ninput X: f32[{ROWS}, {COLUMNS}]\nY[i,j] = {text} + 1\noutput Y"
    result = et.compile(program)(arena="4MiB", X=str(cold))
    assert np.array_equal(result["Y"], (WHOLE if all_of_it else WHOLE[:, 1024:2048]) + 1)
    assert bool(told) == all_of_it
