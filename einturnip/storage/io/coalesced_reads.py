"""Reading short runs that are not in the page cache by whole stretches of the file, for the tiles that lie beside.

Each page that is asked for by itself costs the processor some 15 µs. Read in sequence the pages come by hundreds, a
tenth of the cost, and wait in the page cache for the tiles that hold the rest of them. That serves only where these
are read as well, and where the page cache has room for what waits: so it is done for tensors that are said to be read
whole, and no more of a file waits than a bound. Where pages leave the cache before they are used, what waits is never
found, stays counted, and stretches end there.
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
"""Bytes of a file that are read in sequence at once; rows longer than that are not read for their runs."""

_PIPE_NBYTES = 1 << 20


class BufferedReads:
    """Bytes of one tensor, in however many files it lies, that were read for tiles to come."""

    def __init__(self) -> None:
        self.nbytes, self._most = 0, waiting_nbytes()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """Count so many more, unless that is too much."""
        with self._lock:
            room = self.nbytes + nbytes <= self._most
            self.nbytes += nbytes if room else 0
            return room

    def found(self, nbytes: int) -> None:
        """Runs of so many bytes were in the page cache."""
        with self._lock:
            self.nbytes = max(0, self.nbytes - nbytes)


class CoalescedReads:
    """Of one file, what was read for tiles to come. ``fd``: a descriptor that the system reads ahead by."""

    def __init__(self, fd: int, layout: StridedLayout, waiting: BufferedReads) -> None:
        self._fd, self.waiting = fd, waiting
        self._begin, self._end = extent_span(layout.extent(whole(layout.shape)))
        # Held by who looks for a stretch and fetches it: two who read one file in sequence, at two places, are taken
        # for one who reads at random.
        self._turn = threading.Lock()

    def bring(self, fd: int, extent: Extent) -> None:
        """Bring what an extent reads into the page cache: whole stretches that are cold at either end, or parts alone.

        A part is a run, or runs that are read with what lies between. ``fd``: who reads them.
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
                    except OSError:  # no RWF_NOWAIT here
                        return
                    if cached:
                        self.waiting.found(n * part)
                    elif not self._fetch(begin, n, stride, n * part) and inner:
                        for place in range(begin, begin + n * stride, stride):
                            os.posix_fadvise(fd, place, span, os.POSIX_FADV_WILLNEED)

    def _fetch(self, offset: int, count: int, stride: int, nbytes: int) -> bool:
        """Bring all that lies beside ``count`` runs, of so many bytes in all, into the page cache; False if too much.

        What goes wrong here is told by who reads the runs.
        """
        first = self._begin + (offset - self._begin) // stride * stride
        last = min(self._end, first + count * stride)
        if not self.waiting.take(last - first - nbytes):
            return False
        return _brought(self._fd, first - first % PAGESIZE, last)


def _brought(fd: int, first: int, last: int) -> bool:
    """Have bytes of a file come into the page cache, and no further; False where they do not.

    They pass through a pipe that leads nowhere: nothing is copied, and the system reads ahead as for any reader (on the
    machine of the figures 2.2 GB/s for a tenth of a core at most, where a byte of each page took half of one for 1.4).
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
    """Both ends of a pipe, and what takes whatever comes out of it."""
    with ExitStack() as opened:
        begin, end = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, begin)
        opened.callback(os.close, end)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        opened.callback(os.close, nowhere)
        with suppress(OSError):  # more than the system allows; a smaller one does too
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_NBYTES)
        yield begin, end, nowhere
