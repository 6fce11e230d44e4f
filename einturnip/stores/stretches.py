"""Reading short runs that are not in the page cache by whole stretches of the file, for the tiles that lie beside.

Each page that is asked for by itself costs the processor some 15 µs. Read in sequence the pages come by hundreds, a
tenth of the cost, and wait in the page cache for the tiles that hold the rest of them. That serves only where these
are read as well, and where the page cache has room for what waits: so it is done for tensors that are said to be read
whole, and no more of a file waits than a bound. Where pages leave the cache before they are used, what waits is never
found, stays counted, and stretches end there.
"""

from __future__ import annotations

import os
import threading

import numpy as np

from einturnip.stores.layout import Layout, extent_span
from einturnip.stores.types import whole

STRETCH_NBYTES = 4 << 20
"""Bytes of a file that are read in sequence at once; rows longer than that are not read for their runs."""

WAITING_NBYTES = 256 << 20
"""Bytes read of a tensor, for tiles beside, that may wait in the page cache."""

_SCRATCH_NBYTES = 1 << 18
_threads = threading.local()


class Waiting:
    """Bytes of one tensor, in however many files it lies, that were read for tiles to come."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """Count so many more, unless that is too much."""
        with self._lock:
            room = self.nbytes + nbytes <= WAITING_NBYTES
            self.nbytes += nbytes if room else 0
            return room

    def found(self, nbytes: int) -> None:
        """Runs of so many bytes were in the page cache."""
        with self._lock:
            self.nbytes = max(0, self.nbytes - nbytes)


class Stretches:
    """Of one file, what was read for tiles to come. ``fd``: a descriptor that the system reads ahead by.

    ``turn`` is held by who looks for a stretch and fetches it: two who read one file in sequence, at two places, are
    taken for one who reads at random.
    """

    def __init__(self, fd: int, layout: Layout, waiting: Waiting) -> None:
        self._fd, self.waiting = fd, waiting
        self._begin, self._end = extent_span(layout.extent(whole(layout.shape)))
        self.turn = threading.Lock()

    def rows(self, stride: int) -> int:
        """How many runs that lie so far apart a stretch holds; 0 where they are too far apart."""
        return STRETCH_NBYTES // stride

    def fetch(self, offset: int, count: int, stride: int, nbytes: int) -> bool:
        """Bring all that lies beside ``count`` runs, of so many bytes in all, into the page cache; False if too much.

        What goes wrong here is told by who reads the runs.
        """
        first = self._begin + (offset - self._begin) // stride * stride
        last = min(self._end, first + count * stride)
        if not self.waiting.take(last - first - nbytes):
            return False
        scratch = getattr(_threads, "scratch", None)
        if scratch is None:
            scratch = _threads.scratch = np.empty(_SCRATCH_NBYTES, np.uint8).data
        while first < last:
            try:
                got = os.preadv(self._fd, [scratch[: min(_SCRATCH_NBYTES, last - first)]], first)
            except OSError:
                return False
            if not got:
                return False
            first += got
        return True
