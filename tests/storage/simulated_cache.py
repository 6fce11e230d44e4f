"""A page cache that tests control: system calls mark which pages of a file are in it, and only they change that.

The system's own page cache cannot judge a test. It drops pages when it wants to (a proactive reclaimer took 2 MiB of a
64 MiB file in the two seconds after it was read), and its counts of bytes read include every library that is loaded.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from einturnip.storage.io import batched_io, pages
from einturnip.storage.io.batched_io import READ, BatchedIo

READ_AHEAD_NBYTES = 1 << 17
"""Bytes that the system reads after a cold read by a descriptor that is not POSIX_FADV_RANDOM."""

_File = tuple[int, int]


class SimulatedCache:
    """Pages of each file that are cached, bytes read from the disk for them, and bytes copied to the process.

    Files are read as always. A read that must not wait (RWF_NOWAIT) gives only what is cached here.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.disk_nbytes = self.copied_nbytes = 0
        self._cached: dict[_File, NDArray[np.bool_]] = {}
        self._random: set[int] = set()
        self._preadv, self._splice, self._close = os.preadv, os.splice, os.close
        self._transfer = BatchedIo.transfer
        patch.setattr(pages, "_is_memory", lambda device: False)
        patch.setattr(os, "preadv", self.preadv)
        patch.setattr(os, "splice", self.splice)
        patch.setattr(os, "posix_fadvise", self.posix_fadvise)
        patch.setattr(os, "close", self.close)
        patch.setattr(batched_io.BatchedIo, "transfer", lambda *arguments: self.transfer(*arguments))

    def cached_nbytes(self, path: Path) -> int:
        """Bytes of the file that are cached, in whole pages."""
        return int(self._pages(path).sum()) * PAGESIZE

    def evict(self, path: Path) -> None:
        """Drop all pages of a file."""
        self._pages(path)[:] = False

    def preadv(self, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        wanted = min(sum(memoryview(b).nbytes for b in buffers), max(0, os.fstat(fd).st_size - offset))
        if flags & os.RWF_NOWAIT:
            wanted = self._cached_run(fd, offset, wanted)
            if not wanted:
                raise BlockingIOError(errno.EAGAIN, "not in the page cache")
            assert len(buffers) == 1
            buffers = [memoryview(buffers[0])[:wanted]]
        elif self._bring(fd, offset, wanted) and fd not in self._random:
            self._bring(fd, offset + wanted, READ_AHEAD_NBYTES)
        self.copied_nbytes += wanted
        return self._preadv(fd, buffers, offset)

    def transfer(
        self,
        call: BatchedIo,
        what: int,
        fd: int,
        address: int,
        run: int,
        offset: int,
        count: int,
        stride: int,
        flags: int = 0,
    ) -> NDArray[np.int64]:
        found = self._transfer(call, what, fd, address, run, offset, count, stride)
        if what != READ:
            return found
        for k in range(count):
            begin = offset + k * stride
            if flags & os.RWF_NOWAIT:
                found[k] = min(found[k], self._cached_run(fd, begin, run)) or -errno.EAGAIN
            else:
                self._bring(fd, begin, run)
        self.copied_nbytes += int(found[found > 0].sum())
        return found

    def splice(self, source: int, target: int, count: int, offset_src: int | None = None) -> int:
        if offset_src is None:  # from a pipe
            return self._splice(source, target, count)
        moved = self._splice(source, target, count, offset_src=offset_src)
        self._bring(source, offset_src, moved)
        return moved

    def posix_fadvise(self, fd: int, offset: int, nbytes: int, advice: int) -> None:
        end = offset + nbytes if nbytes else os.fstat(fd).st_size
        if advice == os.POSIX_FADV_RANDOM:
            self._random.add(fd)
        elif advice == os.POSIX_FADV_WILLNEED:
            self._bring(fd, offset, end - offset)
        elif advice == os.POSIX_FADV_DONTNEED:  # pages that are in the range in part stay
            cached = self._pages(fd)
            last = len(cached) if end >= os.fstat(fd).st_size else end // PAGESIZE
            cached[-(-offset // PAGESIZE) : last] = False

    def close(self, fd: int) -> None:
        self._random.discard(fd)
        self._close(fd)

    def _pages(self, file: int | Path) -> NDArray[np.bool_]:
        status = os.stat(file)
        key = status.st_dev, status.st_ino
        if key not in self._cached:
            self._cached[key] = np.zeros(-(-status.st_size // PAGESIZE), np.bool_)
        return self._cached[key]

    def _bring(self, fd: int, offset: int, nbytes: int) -> bool:
        """Read the pages of a range that are not cached; whether there were any."""
        inside = self._pages(fd)[offset // PAGESIZE : -(-(offset + nbytes) // PAGESIZE)]
        missing = int(len(inside) - inside.sum())
        self.disk_nbytes += missing * PAGESIZE
        inside[:] = True
        return missing > 0

    def _cached_run(self, fd: int, offset: int, nbytes: int) -> int:
        """Bytes from ``offset`` on before the first page that is not cached, ``nbytes`` at most."""
        first = offset // PAGESIZE
        inside = self._pages(fd)[first : -(-(offset + nbytes) // PAGESIZE)]
        if inside.all():
            return nbytes
        return max(0, (first + int(inside.argmin())) * PAGESIZE - offset)
