"""Bytes of files in the system's page cache."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path


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
