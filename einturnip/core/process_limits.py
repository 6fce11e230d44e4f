"""What this process may use of the machine: cores and memory, as the kernel and its control groups allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number near 2**63
_CGROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process may use at once: its affinity, within its control groups' quotas."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _folders("cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([allowed, *(int(q) for q in quotas)]))


def total_memory() -> int:
    """Bytes of memory that this process could ever have: the machine's, within its control groups' limits."""
    limits = [limit for folder in _folders("memory") if (limit := _memory_limit(folder)) is not None]
    return min([_meminfo("MemTotal"), *limits])


def available_memory() -> int:
    """Bytes of memory that this process can take now: what is free on the machine and in its control groups."""
    rooms = [room for folder in _folders("memory") if (room := _memory_room(folder)) is not None]
    return max(0, min([_meminfo("MemAvailable"), *rooms]))


def _meminfo(field: str) -> int:
    """A line of /proc/meminfo in bytes; where there is none, physical memory."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) << 10
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _folders(controller: str) -> Iterator[Path]:
    """The folders of the control groups that bind this process, its own first, under either version."""
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
        # inside a container the path may be the host's: then only the root is seen
        yield from (f for f in (folder, *folder.parents) if f.is_relative_to(root) and f.is_dir())


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, or it means no limit."""
    try:
        text = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return int(text) if text.lstrip("-").isdigit() and 0 <= int(text) < _UNLIMITED else None


def _cpu_quota(folder: Path) -> float | None:
    """Cores' worth of time that a group may use."""
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


def _memory_room(folder: Path) -> int | None:
    """Bytes left under a group's limit; pages of files that the kernel would drop first count as left."""
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
    """Seconds of the usable processors, since the machine began, that other programs took or a virtual machine's host.

    0 where the system does not tell. Grows in steps of 10 ms.
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
