"""Reads cold short runs by large sequential stretches of the file, for neighbouring tiles too.

A single page request costs about 15 us of CPU time. In sequential reads the pages come by hundreds at a tenth of that
cost, and wait in the page cache for the tiles that contain them. This helps only if these tiles are read too, and if
the page cache has room for the waiting pages. Therefore it is done only for tensors that are announced to be read
whole, and the bytes that wait are bounded. If pages leave the cache before they are used, they stay counted, and the
stretches end.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from mmap import PAGESIZE

from einturnip.storage.io.pages import cached_only_flag, waiting_nbytes
from einturnip.storage.layout import LONG_NBYTES, SIEVED_STRIDE, StridedLayout, extent_nbytes, extent_span, rows
from einturnip.storage.types import Extent, whole

STRETCH_NBYTES = 4 << 20
"""Bytes of a file read sequentially at once; longer rows are not read for their runs."""

_PIPE_NBYTES = 1 << 20


class BufferedReads:
    """Counts the bytes of one tensor, in all its files, that were read for later tiles."""

    def __init__(self) -> None:
        self.nbytes, self._most = 0, waiting_nbytes()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """Count more bytes; False, without counting, if that exceeds the limit."""
        with self._lock:
            room = self.nbytes + nbytes <= self._most
            self.nbytes += nbytes if room else 0
            return room

    def found(self, nbytes: int) -> None:
        """Record that runs with this number of bytes were found in the page cache."""
        with self._lock:
            self.nbytes = max(0, self.nbytes - nbytes)


class CoalescedReads:
    """Stretches of one file that were read for later tiles. ``fd``: a descriptor with read-ahead."""

    def __init__(self, fd: int, layout: StridedLayout, waiting: BufferedReads) -> None:
        self._fd, self.waiting = fd, waiting
        self._begin, self._end = extent_span(layout.extent(whole(layout.shape)))
        # Held while a stretch is located and fetched: the kernel takes two sequential readers of one file for random
        # access.
        self._turn = threading.Lock()

    def bring(self, fd: int, extent: Extent) -> None:
        """Load an extent into the page cache: whole stretches if cold at either end, or parts of them.

        A part is a run, or several runs read together with the bytes between them. ``fd``: the reader's descriptor.
        """
        offset, run, repeats = extent
        flags = cached_only_flag(fd)
        level = max((n for n, (_, stride) in enumerate(repeats) if stride > SIEVED_STRIDE), default=-1) + 1
        inner, probe = repeats[level:], [memoryview(bytearray(1))]
        part, span = extent_nbytes((0, run, inner)), extent_span((0, run, inner))[1]
        for first, count, stride in rows(offset, repeats[:level]) if flags and run < LONG_NBYTES else ():
            each = STRETCH_NBYTES // stride if count > 1 else 0
            for at in range(0, count, each) if each > 1 else ():
                n, begin = min(each, count - at), first + at * stride
                with self._turn:
                    try:
                        cached = all(os.preadv(fd, probe, place, flags) for place in (begin, begin + (n - 1) * stride))
                    except BlockingIOError:
                        cached = False
                    except OSError:  # RWF_NOWAIT is not supported here
                        return
                    if cached:
                        self.waiting.found(n * part)
                    elif not self._fetch(begin, n, stride, n * part) and inner:
                        for place in range(begin, begin + n * stride, stride):
                            os.posix_fadvise(fd, place, span, os.POSIX_FADV_WILLNEED)

    def _fetch(self, offset: int, count: int, stride: int, nbytes: int) -> bool:
        """Load everything near ``count`` runs of ``nbytes`` bytes in total into the page cache.

        Returns False if it is too much.

        Errors are reported by the reads of the runs.
        """
        first = self._begin + (offset - self._begin) // stride * stride
        last = min(self._end, first + count * stride)
        if not self.waiting.take(last - first - nbytes):
            return False
        return _brought(self._fd, first - first % PAGESIZE, last)


def _brought(fd: int, first: int, last: int) -> bool:
    """Load bytes of a file into the page cache only; False where that fails.

    They are spliced through a pipe that is discarded: nothing is copied, and the kernel reads ahead as for any reader
    (measured: 2.2 GB/s for a tenth of a core; reading a byte of each page took half a core for 1.4 GB/s).
    """
    try:
        with _drain() as (begin, end, nowhere):
            while first < last and (some := os.splice(fd, end, last - first, offset_src=first)):
                first += some
                while some:
                    some -= os.splice(begin, nowhere, some)
    except OSError:
        return False
    return first >= last


@contextmanager
def _drain() -> Iterator[tuple[int, int, int]]:
    """Both ends of a pipe, and a sink that discards its output."""
    with ExitStack() as opened:
        begin, end = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, begin)
        opened.callback(os.close, end)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        opened.callback(os.close, nowhere)
        with suppress(OSError):  # more than the system allows; a smaller pipe works too
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_NBYTES)
        yield begin, end, nowhere
