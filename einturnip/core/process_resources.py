"""Cores and memory of this process: what the kernel and its control groups allow, and what it uses.

Also the share of its memory that belongs to einturnip's own modules.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number near 2**63
_CGROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_loaded = 0
_loading = threading.RLock()  # concurrent loads would each count the memory of all
_thread = threading.local()  # ``read``: how this thread reads resident memory


@contextmanager
def gc_paused() -> Iterator[None]:
    """Context without cyclic garbage collection, which would visit growing values often and find nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def usable_cores() -> int:
    """Number of cores that this process may use at once: its affinity, limited by control group quotas."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _folders("cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([allowed, *(int(q) for q in quotas)]))


@lru_cache(maxsize=1)
def processor_features() -> frozenset[str]:
    """Return the processor's feature flags; empty if the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def total_memory() -> int:
    """Maximum memory of this process in bytes: the machine's, limited by control groups."""
    limits = [limit for folder in _folders("memory") if (limit := _memory_limit(folder)) is not None]
    return min([_meminfo("MemTotal"), *limits])


def available_memory() -> int:
    """Memory in bytes that this process can allocate now, on the machine and in its control groups."""
    available = [nbytes for folder in _folders("memory") if (nbytes := _available_in_group(folder)) is not None]
    return max(0, min([_meminfo("MemAvailable"), *available]))


def _meminfo(field: str) -> int:
    """A field of /proc/meminfo in bytes; physical memory where that file is missing."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) << 10
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, its own first, for cgroups v1 and v2."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _CGROUPS
        elif controller in controllers.split(","):
            root = _CGROUPS / controllers
            root = root if root.is_dir() else _CGROUPS / controller
        else:
            continue
        folder = root / path.lstrip("/")
        # inside a container the path may be the host's: then only the root is visible
        yield from (f for f in (folder, *folder.parents) if f.is_relative_to(root) and f.is_dir())


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, or it means "no limit"."""
    try:
        text = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return int(text) if text.lstrip("-").isdigit() and 0 <= int(text) < _UNLIMITED else None


def _cpu_quota(folder: Path) -> float | None:
    """The CPU quota of a group, in cores."""
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    if quota is None or period is None:
        quota = _number(folder / "cpu.max")
        try:
            period = int((folder / "cpu.max").read_text().split()[1])
        except (OSError, IndexError):
            return None
    return max(1.0, quota / period) if quota is not None and period else None


def _memory_limit(folder: Path) -> int | None:
    found = _number(folder / "memory.max")
    return _number(folder / "memory.limit_in_bytes") if found is None else found


def _available_in_group(folder: Path) -> int | None:
    """Bytes left under a group's limit; inactive file pages count as available."""
    limit = _memory_limit(folder)
    used = _number(folder / "memory.current")
    used = _number(folder / "memory.usage_in_bytes") if used is None else used
    if limit is None or used is None:
        return None
    return limit - max(0, used - _inactive_files(folder))


def _inactive_files(folder: Path) -> int:
    try:
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def others_seconds() -> float:
    """CPU seconds since boot that other programs or the hypervisor took from the usable processors.

    0 where the system does not report them. Resolution: 10 ms.
    """
    own = sum(os.times()[:4])
    try:
        mine = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        with open("/proc/stat") as lines:
            found = [line.split() for line in lines if line.startswith("cpu")]
        # user, nice, system, then idle and waiting, then irq, softirq, steal
        ticks = sum(int(x) for name, *of in found if name in mine for x in (*of[:3], *of[5:8]))
        return ticks / os.sysconf("SC_CLK_TCK") - own
    except (OSError, ValueError, AttributeError):
        return 0.0


def resident_nbytes() -> int:
    """Resident memory of this process (Linux: VmRSS; elsewhere the peak), as this thread counts it."""
    return present_nbytes() + getattr(_thread, "reserved", 0)


def present_nbytes() -> int:
    """``resident_nbytes`` without what is only reserved."""
    read: Callable[[], int] = getattr(_thread, "read", _resident)
    return read()


@contextmanager
def exclude_foreign_memory(nbytes: Callable[[], int], fixed_minimum: bool) -> Iterator[None]:
    """Within the context, this thread's resident memory excludes ``nbytes()``, which belongs to others.

    ``fixed_minimum``: the count also never falls below its initial value, because memory that others free is not
    available to this thread.
    """
    minimum = max(0, _resident() - nbytes()) if fixed_minimum else 0
    with _reading(lambda: max(minimum, _resident() - nbytes())):
        yield


@contextmanager
def constant() -> Iterator[None]:
    """Within the context, this thread's count of resident memory stays at its present value."""
    now = _resident()
    with _reading(lambda: now):
        yield


@contextmanager
def reserved(nbytes: int) -> Iterator[None]:
    """Within the context, this thread counts ``nbytes`` as resident that the process will take later."""
    before = getattr(_thread, "reserved", 0)
    _thread.reserved = before + nbytes
    try:
        yield
    finally:
        _thread.reserved = before


@contextmanager
def _reading(read: Callable[[], int]) -> Iterator[None]:
    before = getattr(_thread, "read", _resident)
    _thread.read = read
    try:
        yield
    finally:
        _thread.read = before


def _resident() -> int:
    return _status("VmRSS:") or _highest()


def peak_resident_nbytes() -> int:
    """Peak resident memory (Linux: VmHWM)."""
    return _status("VmHWM:") or _highest()


@contextmanager
def loading() -> Iterator[None]:
    """Context for loading modules, which records the memory that they take."""
    global _loaded
    with _loading:
        before = _resident()
        yield
        _loaded += max(0, _resident() - before)


def callers_nbytes() -> int:
    """Resident memory of the caller: everything except the modules that einturnip loaded lazily."""
    return resident_nbytes() - _loaded


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", "rb") as f:
            for line in f:
                if line.startswith(field.encode()):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _highest() -> int:
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def trim_heap() -> None:
    """Return free heap memory to the system, so that it does not count against the run."""
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
