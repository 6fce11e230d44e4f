"""The host's arena and limits, and that its measurements mean something."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

from einturnip.core import process_resources
from einturnip.core.process_resources import available_memory, total_memory, usable_cores
from einturnip.devices.host import HostArena, blas_threads, host_info
from einturnip.devices.measure import measure_copy, measure_disk, measure_gemm
from einturnip.devices.peaks import measure_peak
from einturnip.ir.dtypes import F32, F64, DType
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.peak import OPERATIONS, Operations, PeakLoop
from tests.devices.blas import blas_thread_count
from tests.runtime.interrupting import calls_made


def test_arena_arrays_share_its_bytes() -> None:
    arena = HostArena(1 << 16)
    a = arena.array(4096, (4, 8), np.dtype(np.float32))
    a[...] = 7
    assert arena.view(4096, 128).view(np.float32).tolist() == [7.0] * 32
    column = arena.array(4096, (4,), np.float32, strides=(32,))
    column[...] = 1
    assert a.sum() == 7 * 28 + 4
    assert a.__array_interface__["data"][0] % 4096 == 0
    assert arena.view(0, 4096).max() == 0
    arena.close()
    assert a[0, 0] == 1  # still there: closing waits for the arrays


def test_arena_refuses_what_does_not_fit() -> None:
    arena = HostArena(1000)
    assert arena.view(0, 1000).size == 1000
    assert arena.array(1000, (0,), np.uint8).size == 0
    for offset, nbytes in ((0, 1001), (999, 2), (1001, 0)):
        with pytest.raises((TypeError, ValueError)):
            arena.view(offset, nbytes)
    with pytest.raises(ValueError, match="at least one byte"):
        HostArena(0)
    arena.close()


def test_arena_is_resident_only_where_it_was_used() -> None:
    page = resource.getpagesize()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before = resident()
    arena = HostArena(256 << 20)
    assert resident() - before < 16 << 20
    arena.view(0, 32 << 20).fill(1)
    assert 24 << 20 < resident() - before < 128 << 20
    arena.close()
    assert resident() - before < 16 << 20


def test_blas_threads_are_limited_and_restored() -> None:
    def limited() -> None:
        with blas_threads(1):
            found.append(blas_thread_count())

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        found = list[int]()
        for _ in range(2):  # whichever thread was first to limit them
            for work in (limited, partial(_in_a_thread, limited)):
                work()
                assert blas_thread_count() == 2
    assert found == [1] * 4


@pytest.mark.parametrize("step", [37, pytest.param(3, marks=pytest.mark.slow)])
def test_no_interrupt_leaves_a_limit_that_outlasts_the_next(step: int) -> None:
    def limited() -> None:
        with blas_threads(1):
            found.append(blas_thread_count())

    found, kept, interrupted = list[int](), list[bool](), 0
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        limited()
        for at in range(1, calls_made(limited) + 1, step):
            try:
                calls_made(limited, at)
            except KeyboardInterrupt:
                interrupted += 1
            kept.append(blas_thread_count() != 2)
            limited()
            assert blas_thread_count() == 2, at
    # Where __exit__ is interrupted at its first instruction, nothing can be done before the next limit.
    assert sum(kept) <= 1
    assert interrupted > 20 and set(found) == {1}


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_host_info_is_about_this_process() -> None:
    info = host_info()
    assert 1 <= info.cores <= (os.cpu_count() or 1)
    assert 0 < info.available_nbytes <= info.memory_nbytes
    assert sum(b.called for b in info.blas) == 1


def test_measurements_are_positive() -> None:
    assert measure_gemm(n=64) > 0
    assert measure_gemm(np.float64, n=64) > 0
    assert measure_copy(1 << 20) > 0


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("operations", OPERATIONS)
def test_peaks_are_counted_as_they_are_computed(operations: Operations, dtype: DType) -> None:
    """After n turns the least value is that of the first, and sums and products have grown n times."""
    peak = PeakLoop(operations, dtype)
    if not code_cache.available():
        assert measure_peak(operations, dtype, 1) == 0
        return
    assert measure_peak(operations, dtype, 2) > 0
    function = code_cache.find(peak)
    assert function is not None
    vector, n, chains = np.ones(peak.width, dtype.numpy), 10, peak.flops // peak.width
    function(np.array([n, vector.ctypes.data], np.int64).ctypes.data)
    if operations == "FMA":
        chains //= 2
        assert vector.tolist() == [chains * (chains + 1) / 2 + chains * n] * peak.width
    else:
        half = chains // 2
        sums, least = [k + 1 + n for k in range(half)], [min(k + 2, half + k + 1) for k in range(half)]
        assert vector.tolist() == [sum(sums) + sum(least)] * peak.width


def test_disk_is_measured_and_left_clean(tmp_path: Path) -> None:
    rates = measure_disk(tmp_path, 4 << 20)
    assert rates.read > 0 and rates.write > 0
    assert not list(tmp_path.iterdir())


def groups(root: Path, monkeypatch: pytest.MonkeyPatch, membership: str, files: dict[str, str]) -> None:
    """Make ``process_resources`` see control groups under ``root``."""
    (root / "own").write_text(membership)
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(process_resources, "_OWN", root / "own")
    monkeypatch.setattr(process_resources, "_CGROUPS", root / "cgroup")


def test_limits_of_version_2_hold_at_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = "anon 5\ninactive_file 1048576\n"
    files = {
        "a/b/memory.max": "max\n",
        "a/b/memory.current": "1",
        "a/memory.max": str(64 << 20),
        "a/memory.current": str(16 << 20),
        "a/memory.stat": stat,
        "a/b/cpu.max": "max 100000\n",
        "a/cpu.max": "100000 100000\n",
    }
    groups(tmp_path, monkeypatch, "0::/a/b\n", files)
    assert total_memory() == 64 << 20
    assert available_memory() == (64 - 16 + 1) << 20
    assert usable_cores() == 1


def test_limits_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "memory/box/memory.limit_in_bytes": str(32 << 20),
        "memory/box/memory.usage_in_bytes": str(40 << 20),
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    groups(tmp_path, monkeypatch, "4:memory:/box\n3:cpu,cpuacct:/\n", files)
    assert total_memory() == 32 << 20
    assert available_memory() == 0
    assert usable_cores() == len(os.sched_getaffinity(0))


def test_no_control_groups_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_resources, "_OWN", tmp_path / "absent")
    assert 0 < available_memory() <= total_memory()
