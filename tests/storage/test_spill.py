"""The spill file: any offset, any thread, a limit, and no file left behind."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from einturnip.core.errors import StoreError
from einturnip.storage.io import spill_file, unpublished_file
from einturnip.storage.io.spill_file import ALIGNMENT, SpillFile


def pages(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(mmap.mmap(-1, count * ALIGNMENT), np.uint8)


@pytest.mark.parametrize("direct", [True, False])
def test_what_was_written_is_read_from_any_thread(monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    if not direct:
        monkeypatch.setattr(spill_file, "_open_direct", lambda fd: None)
    file = SpillFile()
    file.reserve(64 * ALIGNMENT)

    def round_trip(k: int) -> bool:
        there, back = pages(2), pages(2)
        there[:] = k + 1
        assert file.write(2 * k * ALIGNMENT, there) == file.read(2 * k * ALIGNMENT, back) == there.nbytes
        return bool((back == k + 1).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, range(32)))
    for k in range(32):
        back = pages(2)
        file.read(2 * k * ALIGNMENT, memoryview(back))
        assert (back == k + 1).all()
    file.close()
    file.close()


def test_transfers_that_are_not_aligned(tmp_path: Path) -> None:
    file = SpillFile(str(tmp_path))
    file.reserve(3 * ALIGNMENT)
    source, back = pages(3)[100:9000], pages(3)[1:8901]
    source[:] = np.arange(8900) % 251
    file.write(5, source)
    file.read(5, back)
    np.testing.assert_array_equal(source, back)
    aligned = pages(1)
    file.read(4096, aligned)
    np.testing.assert_array_equal(aligned, source[4091:8187])
    assert os.listdir(tmp_path) == []
    file.close()


def test_the_limit_and_a_directory_that_is_not_there(tmp_path: Path) -> None:
    file = SpillFile(str(tmp_path), limit=1 << 20)
    with pytest.raises(StoreError, match=r"needs 2\.0 MiB in .* the limit is 1\.0 MiB.*--spill-limit"):
        file.reserve(2 << 20)
    file.reserve(1 << 20)
    with pytest.raises(StoreError, match="limit"):
        file.write(1 << 20, b"more")
    file.close()
    with pytest.raises(StoreError, match="nowhere"):
        SpillFile(str(tmp_path / "nowhere"))


def test_a_full_disk(tmp_path: Path) -> None:
    text = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "import sys; from einturnip.storage.io.spill_file import SpillFile; SpillFile(sys.argv[1]).reserve(1 << 21)"
    )
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True)
    assert "StoreError: spill file: needs a file of 2.0 MiB" in done.stderr
    file = SpillFile(str(tmp_path))
    with pytest.raises(StoreError, match=r"spill file: needs .* GiB"):
        file.reserve(1 << 60)
    file.close()


def test_the_default_directory_is_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpublished_file.tempfile, "gettempdir", lambda: "/dev/shm")
    if unpublished_file._is_memory("/var/tmp") or not unpublished_file._is_memory("/dev/shm"):
        pytest.skip("this system has no tmpfs at /dev/shm, or nothing else")
    assert unpublished_file.default_directory() == "/var/tmp"
