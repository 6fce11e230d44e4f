"""What of files is in the page cache, and what a process had read from disks."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

counted = pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system does not count what is read")


def cached_nbytes(path: Path) -> int:
    """Bytes of the file that are in the page cache."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        size = len(view)
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        resident = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident) == 0
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
        return sum(value & 1 for value in resident) * mmap.PAGESIZE


def read_nbytes(count: str = "read_bytes") -> int:
    """Bytes that this process had read from disks; ``rchar``: that it was handed by read calls."""
    with open("/proc/self/io") as counts:
        return int(dict(line.split(": ") for line in counts.read().splitlines())[count])


def evict(path: Path) -> None:
    """Let a file leave the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
