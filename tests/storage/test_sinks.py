"""Outputs hold the written values, and appear whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import BF16, DTYPES, F32, F64, I64, DType
from einturnip.storage import OutputRequest, Sink, open_sink, open_sinks, open_source, planned_offsets
from einturnip.storage.io import page_eviction, pages, unpublished_file
from einturnip.storage.types import Region, whole
from tests.drawn import examples
from tests.storage.page_cache import cached_nbytes
from tests.storage.simulated_cache import SimulatedCache

quick = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tiles(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Region]:
    """A grid over the shape in a drawn order."""
    regions: list[Region] = [()]
    for n in shape:
        step = draw(st.integers(1, max(n, 1)))
        cuts = [(at, min(n, at + step)) for at in range(0, n, step)]
        regions = [(*region, cut) for region in regions for cut in cuts]
    return draw(st.permutations(regions))


def fill(sink: Sink, array: np.ndarray[Any, Any]) -> None:
    sink.write(whole(array.shape), array)


@quick
@given(data=st.data(), dtype=st.sampled_from([d for d in DTYPES.values() if d.name not in ("bf16", "c128")]),
       ending=st.sampled_from([".npy", ".npz", ".safetensors"]), strided=st.booleans())  # fmt: skip
def test_tiles_in_any_order_make_the_array(data: Any, dtype: DType, ending: str, strided: bool) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 8), max_size=3)))
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype.numpy)
    with tempfile.TemporaryDirectory() as folder:
        sink = open_sink(f"{folder}/y{ending}", "Y", shape, dtype)
        for region in data.draw(st.composite(tiles)(shape)):
            tile = array[(*(slice(a, b) for a, b in region), ...)]
            sink.write(region, np.asfortranarray(tile) if strided else np.ascontiguousarray(tile).reshape(tile.shape))
            back = np.zeros(tile.shape, dtype.numpy)
            sink.read(region, back)
            np.testing.assert_array_equal(back, tile)
        assert os.listdir(folder) == []
        sink.commit()
        assert os.listdir(folder) == [f"y{ending}"]
        source = open_source(f"{folder}/y{ending}", "Y")
        found = np.zeros(shape, dtype.numpy)
        source.read(whole(shape), found)
        source.close()
        np.testing.assert_array_equal(found, array)


def test_an_archive_of_several_outputs_is_read_by_others(tmp_path: Path) -> None:
    big = np.arange(600_000, dtype=np.float64).reshape(600, 1000)
    requests = [
        OutputRequest(f"{tmp_path}/y.npz::grüße", "A", (600, 1000), F64),
        OutputRequest(f"{tmp_path}/y.npz", "B", (3,), I64),
        OutputRequest(f"{tmp_path}/w.safetensors::layer.0", "C", (3, 5), BF16),
        OutputRequest(f"{tmp_path}/w.safetensors::layer.1", "D", (600, 1000), F64),
    ]
    sinks = open_sinks(requests)
    assert planned_offsets(requests) == tuple(sink.extent(((0, 1), (0, 1))[: len(sink.shape)])[0] for sink in sinks)
    fill(sinks[0], big)
    fill(sinks[1], np.array([1, 2, 3]))
    fill(sinks[2], np.ones((3, 5), BF16.numpy))
    fill(sinks[3], big)
    for sink in sinks[:-1]:
        sink.commit()
    assert os.listdir(tmp_path) == ["y.npz"]
    sinks[3].commit()
    with np.load(tmp_path / "y.npz") as archive:
        np.testing.assert_array_equal(archive["grüße"], big)
        np.testing.assert_array_equal(archive["B"], [1, 2, 3])
    assert zipfile.ZipFile(tmp_path / "y.npz").testzip() is None
    with safe_open(tmp_path / "w.safetensors", "np") as file:
        assert file.get_slice("layer.0").get_dtype() == "BF16"
        np.testing.assert_array_equal(file.get_tensor("layer.1"), big)


def test_large_data_begin_on_a_page(tmp_path: Path) -> None:
    for ending in (".npy", ".npz", ".safetensors"):
        sink = open_sink(tmp_path / f"y{ending}", "Y", (512, 1024), F32)
        offset, nbytes, repeats = sink.extent(whole(sink.shape))
        assert (offset % 4096, nbytes, repeats) == (0, 512 * 4096, ())
        sink.close()
    assert os.listdir(tmp_path) == []


def test_an_output_over_an_inputs_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6.0))
    path.chmod(0o640)
    (tmp_path / "link.npy").symlink_to(path)
    source, sink = open_source(path, "X"), open_sink(tmp_path / "link.npy", "Y", (6,), F64)
    fill(sink, np.zeros(6))
    sink.commit()
    held = np.zeros(6)
    source.read(((0, 6),), held)
    np.testing.assert_array_equal(held, np.arange(6.0))
    np.testing.assert_array_equal(np.load(path), np.zeros(6))
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.npy").is_symlink()


def test_an_array_of_the_caller(tmp_path: Path) -> None:
    out = np.zeros((8, 6), ">f4")[::2, ::-1]
    sink = open_sink(out, "Y", (4, 6), F32)
    sink.write(((1, 3), (2, 5)), np.full((2, 3), 7, np.float32))
    assert out.sum() == 42
    assert (out[1:3, 2:5] == 7).all()
    scalar = np.zeros((), np.float32)
    fill(open_sink(scalar, "y", (), F32), np.array(5, np.float32))
    assert scalar == 5


@pytest.fixture(params=["nameless", "named"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With O_TMPFILE, and as on a file system that has none."""
    if request.param == "named":
        monkeypatch.setattr(unpublished_file, "_open_nameless", lambda *args: None)
    return str(request.param)


def test_an_abort_leaves_the_older_file(tmp_path: Path, either_way: str) -> None:
    np.save(tmp_path / "y.npy", np.arange(3))
    sink = open_sink(tmp_path / "y.npy", "Y", (4,), F64)
    fill(sink, np.ones(4))
    assert len(os.listdir(tmp_path)) == (1 if either_way == "nameless" else 2)
    sink.abort()
    sink.abort()
    sink.close()
    assert os.listdir(tmp_path) == ["y.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(3))
    with pytest.raises(StoreError, match="aborted"):
        fill(sink, np.ones(4))
    again = open_sink(tmp_path / "y.npy", "Y", (4,), F64)
    fill(again, np.ones(4))
    again.commit()
    again.close()
    assert os.listdir(tmp_path) == ["y.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.ones(4))


_WRITER = """
import sys
import numpy as np
from einturnip.ir.dtypes import F64
from einturnip.storage import open_sink; from einturnip.storage.io import unpublished_file as temporary
if sys.argv[2] == "named":
    temporary._open_nameless = lambda *args: None
sink = open_sink(sys.argv[1] + "/y.npy", "Y", (1000,), F64)
sink.write(((0, 500),), np.ones(500))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path, either_way: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path), either_way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()


def test_a_killed_run_leaves_nothing(tmp_path: Path, either_way: str, writer: subprocess.Popen[str]) -> None:
    np.save(tmp_path / "mine.npy", np.arange(3))
    (tmp_path / ".notes.einturnip-1-xyz.tmp").touch()
    living = sorted(os.listdir(tmp_path))
    open_sink(tmp_path / "z.npy", "Z", (3,), F64).abort()
    assert sorted(os.listdir(tmp_path)) == living, "a living writer's file was cleared"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    if either_way == "named":
        open_sink(tmp_path / "z.npy", "Z", (3,), F64).abort()
    assert sorted(os.listdir(tmp_path)) == [".notes.einturnip-1-xyz.tmp", "mine.npy"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four MiB of tmpfs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here; the limit on file sizes is tested apart")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # whoever still has a file open there


def test_a_full_disk_is_met_before_any_work(small_disk: Path, either_way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [OutputRequest(small_disk / f"{n}.npy", n, (300, 1024), F64) for n in "ab"]
    with pytest.raises(StoreError, match=r"b\.npy: needs 2\.3 MiB, but .* has 1\.\d MiB free"):
        open_sinks(requests)
    assert os.listdir(small_disk) == []
    np.savez_compressed(small_disk / "z.npz", big=np.zeros(1 << 20))
    monkeypatch.setattr("einturnip.storage.formats.npz.default_directory", lambda: str(small_disk))
    source = open_source(small_disk / "z.npz", "X")
    with pytest.raises(StoreError, match=r"unpacking .*z\.npz::big: needs 8\.0 MiB"):
        source.read(((0, 1),), np.zeros(1))
    source.close()


def test_a_limit_on_file_sizes() -> None:
    text = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "from einturnip.ir.dtypes import F64; from einturnip.storage import open_sink\n"
        "import sys; open_sink(sys.argv[1] + '/y.npy', 'Y', (1 << 18,), F64)"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", text, folder], capture_output=True, text=True)
        assert "y.npy: needs a file of 2.0 MiB, more than the limit on file sizes" in done.stderr
        assert os.listdir(folder) == []


def test_a_disk_that_fails_in_the_background_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    sink = open_sink(tmp_path / "y.npy", "Y", (64,), F64)
    monkeypatch.setattr(pages, "SCATTERED_NBYTES", 256)
    monkeypatch.setattr(pages, "write_back", failing)
    with pytest.raises(StoreError, match=r"y\.npy: writing in .* failed: Input/output error"):
        fill(sink, np.ones(64))
    sink.abort()
    assert os.listdir(tmp_path) == []


def test_written_pages_leave_the_cache(on_disk: Path) -> None:
    path = on_disk / "x.npy"
    sink = open_sink(path, "X", (1024, 2048), F32)
    for at in range(0, 1024, 256):
        sink.write(((at, at + 256), (0, 2048)), np.ones((256, 2048), np.float32))
    sink.commit()
    assert cached_nbytes(path) < 1 << 20


@pytest.mark.parametrize("columns", [False, True])
def test_pages_leave_the_cache_once_released(
    tmp_path: Path, cache: SimulatedCache, monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    monkeypatch.setattr(page_eviction, "PENDING_NBYTES", 1 << 21)
    monkeypatch.setattr(page_eviction, "waiting_nbytes", lambda: 1 << 21)
    path = tmp_path / "x.npy"
    np.save(path, np.ones((1024, 2048), np.float32))
    source = open_source(path, "X")
    cuts = [((i, i + 256), (j, j + 512)) for i in range(0, 1024, 256) for j in range(0, 2048, 512)]
    for region in sorted(cuts, key=lambda r: r[1]) if columns else cuts:
        source.read(region, np.empty((256, 512), np.float32))
        source.release(region)
        assert cache.cached_nbytes(path) <= (4 << 20)
    assert cache.cached_nbytes(path) < 1 << 20
    source.read(cuts[3], np.empty((256, 512), np.float32))
    assert cache.cached_nbytes(path) >= 256 * 512 * 4
    source.release(cuts[3])
    source.close()
    assert cache.cached_nbytes(path) < 1 << 18


@pytest.mark.parametrize("rows", [100, 700])
def test_a_file_that_is_released_as_it_is_read_comes_from_the_disk_once(
    tmp_path: Path, cache: SimulatedCache, rows: int
) -> None:
    path, shape = tmp_path / "x.npy", (6000, 2000)
    np.save(path, np.ones(shape, np.float32))
    source, before = open_source(path, "X"), cache.disk_nbytes
    for at in range(0, shape[0], rows):
        region = ((at, min(at + rows, shape[0])), (0, shape[1]))
        source.read(region, np.empty((region[0][1] - at, shape[1]), np.float32))
        source.release(region)
    assert cache.disk_nbytes - before <= 1.02 * path.stat().st_size
    assert cache.cached_nbytes(path) < 1 << 20
    source.close()


def test_an_input_that_is_not_released_stays_in_the_cache(tmp_path: Path, cache: SimulatedCache) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1 << 18))
    source = open_source(path, "X")
    source.read(((0, 1 << 18),), np.empty(1 << 18))
    source.close()
    assert cache.cached_nbytes(path) >= 1 << 21
