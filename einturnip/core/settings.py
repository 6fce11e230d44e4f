"""Sizes as people write them, and how much memory a run may take when nobody says."""

from __future__ import annotations

import os
import re
from pathlib import Path

from einturnip.core.errors import BindError

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


def parse_size(text: str | int) -> int:
    """Bytes from ``512MB``, ``1.5GiB``, ``4096B`` or a number of bytes.

    Raises:
        BindError: not a size; ``2G`` is refused because it may mean GB or GiB.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        nbytes = text
    else:
        match = _SIZE.fullmatch(str(text))
        if match is None:
            raise BindError(f"'{text}' is not a size. help: write one such as 512MB or 2GiB")
        number, unit = match.groups()
        if unit.lower() in ("k", "m", "g", "t"):
            letter = unit.upper()
            raise BindError(
                f"the size '{text}' may mean two things. help: write {number}{letter}iB or {number}{letter}B"
            )
        factor = _UNITS.get(unit.lower()) if unit else 1
        if factor is None:
            raise BindError(
                f"'{unit}' in '{text}' is no unit of size. help: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            )
        nbytes = int(number) * factor if number.isdigit() else int(float(number) * factor)
    if nbytes <= 0:
        raise BindError(f"the size '{text}' must be more than 0 bytes")
    return nbytes


def format_size(nbytes: float) -> str:
    """Bytes for a reader, in binary units and at most four digits: ``1.50 GiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            break
        size /= 1024
    else:
        unit = "TiB"
    if unit == "B" or abs(size) >= 100:
        return f"{size:.0f} {unit}"
    return f"{size:.1f} {unit}" if abs(size) >= 10 else f"{size:.2f} {unit}"


def available_nbytes(root: Path = Path("/")) -> int:
    """Memory that this machine, or the control group around this process, has free.

    ``root`` stands for the file system's root, for tests.
    """
    free = [_meminfo(root / "proc/meminfo"), *_control_groups(root)]
    known = [f for f in free if f is not None]
    if known:
        return max(min(known), 0)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _meminfo(path: Path) -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _control_groups(root: Path) -> list[int | None]:
    """What each control group from this process's own up to the root still has, of version 2 and version 1."""
    try:
        entries = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left: list[int | None] = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers == "":
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in [group, *group.parents]:
            left.append(_left(folder, limit, used))
            if folder == base:
                break
    return left


def _left(folder: Path, limit: str, used: str) -> int | None:
    """What one group has left. Its file cache can be dropped, so it counts as free."""
    try:
        bound = (folder / limit).read_text().strip()
        if bound == "max":
            return None
        taken = int((folder / used).read_text())
        cache = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return int(bound) - taken + (int(cache[1]) if cache else 0)
