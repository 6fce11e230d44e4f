"""The spill file: one nameless file for evicted values, which vanishes with its descriptor."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.storage.io.pages import DirtyPages, drop
from einturnip.storage.io.transfer import read_full, write_full
from einturnip.storage.io.unpublished_file import default_directory, nameless_file, out_of_space, preallocate, readable

ALIGNMENT = 4096


class SpillFile:
    """A preallocated scratch file, read and written at any offset from any thread.

    Transfers that are aligned to 4096 bytes in memory, offset and length bypass the page cache (``O_DIRECT``) where the
    file system can; the others go through it, and their pages are dropped.
    """

    def __init__(self, directory: str | None = None, limit: int | None = None) -> None:
        self.directory = directory or default_directory()
        self.limit = limit
        self.nbytes = 0
        self._lock = threading.Lock()
        self._purpose = "spill file"
        self._fd = nameless_file(self.directory, 0, self._purpose)
        self._direct_fd = _open_direct(self._fd)
        self._pages = DirtyPages(self._fd)

    @property
    def direct(self) -> bool:
        """True if aligned transfers bypass the page cache."""
        return self._direct_fd is not None

    def reserve(self, nbytes: int) -> None:
        """Extend the file to ``nbytes`` bytes in total.

        Raises:
            StoreError: it exceeds the limit or the free disk space.
        """
        with self._lock:
            if nbytes <= self.nbytes:
                return
            if self.limit is not None and nbytes > self.limit:
                raise StoreError(
                    f"{self._purpose}: needs {readable(nbytes)} in {self.directory}, and the limit is "
                    f"{readable(self.limit)}; raise it with --spill-limit, or give more --memory"
                )
            aligned = -(-nbytes // ALIGNMENT) * ALIGNMENT
            preallocate(self._fd, aligned, self._purpose, self.directory)
            self.nbytes = aligned

    def write(self, offset: int, buffer: Any) -> int:
        """Write the bytes of ``buffer`` (contiguous) at ``offset``; returns their number.

        Raises:
            StoreError: beyond the limit, or the write fails.
        """
        view = memoryview(buffer).cast("B")
        if offset + view.nbytes > self.nbytes:
            self.reserve(offset + view.nbytes)
        fd = self._descriptor(view, offset)
        write_full(fd, view, offset, self._explain)
        if fd == self._fd:
            try:
                self._pages.wrote((offset, view.nbytes, ()))
            except OSError as error:
                raise self._explain(error) from error
        return view.nbytes

    def read(self, offset: int, buffer: Any) -> int:
        """Fill ``buffer`` (contiguous, writable) from ``offset``; returns the number of bytes.

        Raises:
            StoreError: the read fails.
        """
        view = memoryview(buffer).cast("B")
        fd = self._descriptor(view, offset)
        read_full(fd, view, offset, self._purpose)
        if fd == self._fd:
            drop(fd, offset, offset + view.nbytes)
        return view.nbytes

    def close(self) -> None:
        """Free the disk space; idempotent."""
        if self._direct_fd is not None:
            os.close(self._direct_fd)
            self._direct_fd = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _descriptor(self, view: memoryview, offset: int) -> int:
        if self._direct_fd is None or not view.nbytes or offset % ALIGNMENT or view.nbytes % ALIGNMENT:
            return self._fd
        return self._fd if _address(view) % ALIGNMENT else self._direct_fd

    def _explain(self, error: OSError) -> StoreError:
        return out_of_space(error, self._purpose, self.directory, self.nbytes)


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _open_direct(fd: int) -> int | None:
    """A second descriptor of the file that bypasses the page cache.

    Returns None where that is unsupported (tmpfs).
    """
    with contextlib.suppress(OSError):
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    return None
