"""Limits the page cache used by a file with few system calls: drops pages, writes back stretches."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial

import numpy as np

from einturnip.core.process_resources import available_memory
from einturnip.storage.layout import starts
from einturnip.storage.types import Extent

PENDING_NBYTES = 32 << 20
"""Released bytes at which pages are dropped even though their slabs are incomplete."""

STRETCH_NBYTES = 8 << 20
SCATTERED_NBYTES = 256 << 20
"""Dirty bytes in incomplete stretches at which they are written back as they are."""

MAX_WAITING_NBYTES = 1 << 30
_WAITING_NBYTES, _WAITING_SHARE = 256 << 20, 8

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_RANGES = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
Opened = Callable[[str], AbstractContextManager[int]]
"""Opens a file by its name."""

_Stretch = tuple[str, int]  # a file, and the number of a stretch in it
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


def in_memory(fd: int) -> bool:
    """True if a file is in memory: its pages cannot be dropped or written back."""
    return _is_memory(os.fstat(fd).st_dev)


def cached_only_flag(fd: int) -> int:
    """The read flag that returns only cached pages; 0 for files in memory, which lack it."""
    return 0 if in_memory(fd) else getattr(os, "RWF_NOWAIT", 0)


@lru_cache(maxsize=64)
def _is_memory(device: int) -> bool:
    try:
        with open("/proc/self/mountinfo") as mounts:
            lines = [line.split(" ") for line in mounts]
    except OSError:
        return False
    own = f"{os.major(device)}:{os.minor(device)}"
    kinds = {line[line.index("-") + 1] for line in lines if line[2] == own}
    return bool(kinds) and kinds <= _IN_MEMORY


def waiting_nbytes() -> int:
    """Bytes of a file that may wait in the page cache: an eighth of the available memory.

    At least 256 MiB, of which the kernel reclaims what it needs, and at most ``MAX_WAITING_NBYTES``, because the
    counts take 1/512 of it. If there is less memory, some pages are read twice.
    """
    return min(max(_WAITING_NBYTES, available_memory() // _WAITING_SHARE), MAX_WAITING_NBYTES)


def drop(fd: int, start: int, stop: int) -> None:
    """Drop the clean pages of a byte range, including shared pages at its ends."""
    start -= start % _PAGE
    os.posix_fadvise(fd, start, -(-stop // _PAGE) * _PAGE - start, os.POSIX_FADV_DONTNEED)


def page_dropper(fd: int) -> Callable[[int, int], None] | None:
    """A function that drops the clean pages of a byte range; None where pages cannot be dropped."""
    return None if in_memory(fd) else partial(drop, fd)


class DirtyPages:
    """Limits dirty pages: a completely written stretch of the file is written back and dropped.

    Tiles of a row-major matrix share pages at their edges. A half-written page would have to be read again after it was
    dropped, and single pages cost a disk operation each. Both are therefore postponed until ``SCATTERED_NBYTES``.
    """

    def __init__(self, fd: int, opened: Opened | None = None, nbytes: int = sys.maxsize) -> None:
        """``fd``: the file, of ``nbytes``; or the folder of such files, if ``opened`` opens them by name."""
        self._opened = opened or (lambda _: nullcontext(fd))
        self._nbytes, self._stay = nbytes, in_memory(fd)
        self._lock = threading.Lock()
        self._written: dict[_Stretch, int] = {}
        self._scattered_nbytes = 0
        self._leaving: deque[_Stretch] = deque()

    def wrote(self, extent: Extent, file: str = "") -> None:
        """Count the extent's bytes as dirty.

        Raises:
            OSError: writing back earlier bytes failed.
        """
        if self._stay:
            return
        full, gone = list[_Stretch](), list[_Stretch]()
        with self._lock:
            for number, nbytes in _by_stretch(extent):
                stretch = (file, number)
                total = self._written.pop(stretch, 0) + nbytes
                self._scattered_nbytes += nbytes
                if total < min(STRETCH_NBYTES, self._nbytes - number * STRETCH_NBYTES):
                    self._written[stretch] = total
                else:
                    self._scattered_nbytes -= total
                    full.append(stretch)
            if self._scattered_nbytes >= SCATTERED_NBYTES:
                full.extend(sorted(self._written))
                self._written.clear()
                self._scattered_nbytes = 0
            # Earlier stretches, except a few, have had the time to be written back.
            while full and len(self._leaving) * STRETCH_NBYTES > PENDING_NBYTES:
                gone.append(self._leaving.popleft())
            self._leaving.extend(full)
        for stretch in full:
            self._send(stretch, wait=False)
        for stretch in gone:
            self._send(stretch, wait=True)

    def _send(self, stretch: _Stretch, wait: bool) -> None:
        """Start writing back a stretch; with ``wait``, wait for it and drop its pages."""
        file, number = stretch
        begin, end = number * STRETCH_NBYTES, (number + 1) * STRETCH_NBYTES
        with self._opened(file) as fd:
            write_back(fd, begin, end, wait)
            if wait:
                drop(fd, begin, end)


def _by_stretch(extent: Extent) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file that an extent touches, with its bytes in each; with duplicates."""
    offset, nbytes, repeats = extent
    if not repeats:
        for stretch in range(offset // STRETCH_NBYTES, -(-(offset + nbytes) // STRETCH_NBYTES)):
            begin = stretch * STRETCH_NBYTES
            yield stretch, min(offset + nbytes, begin + STRETCH_NBYTES) - max(offset, begin)
        return
    for begins in starts(extent):
        ends = begins + nbytes
        first, last = begins // STRETCH_NBYTES, (ends - 1) // STRETCH_NBYTES
        for stretch in range(int(first.min()), int(last.max()) + 1):
            begin = stretch * STRETCH_NBYTES
            inside = np.minimum(ends, begin + STRETCH_NBYTES) - np.maximum(begins, begin)
            if (found := int(inside[inside > 0].sum())) > 0:
                yield stretch, found


_libc = ctypes.CDLL(None, use_errno=True)


def write_back(fd: int, start: int, stop: int, wait: bool) -> None:
    """Write back the dirty pages of a range (``sync_file_range``, or ``fdatasync`` where that is missing).

    Raises:
        OSError: the disk failed. The kernel reports that only once, so it must not be ignored.
    """
    call = getattr(_libc, "sync_file_range", None)
    flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER if wait else _WRITE
    if call is not None and call(fd, ctypes.c_int64(start), ctypes.c_int64(stop - start), flags) == 0:
        return
    if call is not None and (code := ctypes.get_errno()) not in _NO_RANGES:
        raise OSError(code, os.strerror(code))
    os.fdatasync(fd)
