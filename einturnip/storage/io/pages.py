"""Keeping what a file leaves in the page cache small, with few system calls: dropping pages, writing stretches."""

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

from einturnip.core.process_limits import available_memory
from einturnip.storage.layout import starts
from einturnip.storage.types import Extent

PENDING_NBYTES = 32 << 20
"""Released bytes after which pages are dropped though their neighbours are not yet done with."""

STRETCH_NBYTES = 8 << 20
SCATTERED_NBYTES = 256 << 20
"""Dirty bytes in stretches half written after which they go to the disk as they are."""

MOST_WAITING_NBYTES = 1 << 30
_WAITING_NBYTES, _WAITING_SHARE = 256 << 20, 8

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_RANGES = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
Opened = Callable[[str], AbstractContextManager[int]]
"""Opens a file by its name."""

_Stretch = tuple[str, int]  # a file, and which it is of its stretches
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


def in_memory(fd: int) -> bool:
    """Whether a file lies in memory: its pages cannot leave, and there is no disk to send them to."""
    return _is_memory(os.fstat(fd).st_dev)


def cached_only_flag(fd: int) -> int:
    """The flag by which reads give what is in the page cache alone; 0 where there is none: in files in memory."""
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
    """Bytes of a tensor's file that may wait in the page cache for tiles to come: an eighth of what memory is left.

    Where that is little some are read twice, and it is 256 MiB at least, of which the system takes what it wants. Which
    pages they are is counted in 1/512 of it: so it is ``MOST_WAITING_NBYTES`` at most.
    """
    return min(max(_WAITING_NBYTES, available_memory() // _WAITING_SHARE), MOST_WAITING_NBYTES)


def drop(fd: int, start: int, stop: int) -> None:
    """Let the clean pages that hold the bytes leave the page cache. Shared pages at the ends go too: one re-read."""
    start -= start % _PAGE
    os.posix_fadvise(fd, start, -(-stop // _PAGE) * _PAGE - start, os.POSIX_FADV_DONTNEED)


def page_dropper(fd: int) -> Callable[[int, int], None] | None:
    """What lets the clean pages of a range of bytes leave; None where they cannot."""
    return None if in_memory(fd) else partial(drop, fd)


class DirtyPages:
    """Dirty pages kept few: a stretch of the file goes to the disk when all of it is written, and leaves the cache.

    Tiles of a row-major matrix share pages at their edges. A page that left the cache half written would have to be
    read again, and pages sent one by one cost the disk a turn each: both are put off until ``SCATTERED_NBYTES``.
    """

    def __init__(self, fd: int, opened: Opened | None = None, nbytes: int = sys.maxsize) -> None:
        """``fd``: the file, of ``nbytes``; or, where ``opened`` opens files of that size by name, their folder."""
        self._opened = opened or (lambda _: nullcontext(fd))
        self._nbytes, self._stay = nbytes, in_memory(fd)
        self._lock = threading.Lock()
        self._written: dict[_Stretch, int] = {}
        self._scattered_nbytes = 0
        self._leaving: deque[_Stretch] = deque()

    def wrote(self, extent: Extent, file: str = "") -> None:
        """Count the extent's bytes as dirty.

        Raises:
            OSError: the disk failed to take earlier ones.
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
            # Those of before, but for a few, have had the time to arrive.
            while full and len(self._leaving) * STRETCH_NBYTES > PENDING_NBYTES:
                gone.append(self._leaving.popleft())
            self._leaving.extend(full)
        for stretch in full:
            self._send(stretch, wait=False)
        for stretch in gone:
            self._send(stretch, wait=True)

    def _send(self, stretch: _Stretch, wait: bool) -> None:
        """Have the disk take a stretch; with ``wait`` until it has, and then its pages leave."""
        file, number = stretch
        begin, end = number * STRETCH_NBYTES, (number + 1) * STRETCH_NBYTES
        with self._opened(file) as fd:
            write_back(fd, begin, end, wait)
            if wait:
                drop(fd, begin, end)


def _by_stretch(extent: Extent) -> Iterator[tuple[int, int]]:
    """The stretches of a file that an extent lies in, with bytes of it in each; one may come more than once."""
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
    """Send the dirty pages of a range to the disk (``sync_file_range``, or ``fdatasync`` where there is none).

    Raises:
        OSError: the disk failed. It tells so only once, so this must not be passed over.
    """
    call = getattr(_libc, "sync_file_range", None)
    flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER if wait else _WRITE
    if call is not None and call(fd, ctypes.c_int64(start), ctypes.c_int64(stop - start), flags) == 0:
        return
    if call is not None and (code := ctypes.get_errno()) not in _NO_RANGES:
        raise OSError(code, os.strerror(code))
    os.fdatasync(fd)
