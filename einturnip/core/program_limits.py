"""Limits on the size of a program, and on the memory of reading and planning it.

A program beyond a limit of size is refused before memory is allocated: files by their size, loops and calls by counting
the equations of their expansion (``lang/elaborate/syntax_analysis.py``, ``eingraph/build/program.py``).

Reading and planning stop near the memory limit and refuse the program: ``planning_limit`` states the limit of a thread;
loops that allocate call ``checkpoint``.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from einturnip.core.errors import NeedsMore
from einturnip.core.process_resources import present_nbytes, trim_heap
from einturnip.core.units import MIB, format_minimum, format_size

MAX_FILE_NBYTES = 16 << 20
"""Bytes of a program, an imported file or a small configuration file."""
MAX_TOKENS = 1_000_000
"""Words and symbols of one program file. A token takes some 250 bytes until the file is parsed."""
MAX_TERMS = 300_000
"""Names, numbers and operators of a program, those of a function for each call; each takes 1 to 2 KB."""
MAX_STATEMENTS = 100_000
"""Equations of a program, those of a loop for each iteration; each takes 0.5 ms and 4 KB to plan."""

MAX_NODES = 300_000
"""Operations on tensors in the graph of equations and gradients, before simplification."""

MAX_TENSOR_NBYTES = (1 << 63) - 1
"""Bytes of a tensor, not counting empty axes, that 64-bit offsets can address, as in NumPy."""

MARGIN_NBYTES, MARGIN_DIVISOR = MIB, 8
"""Planning stops this many bytes, and this part of what it has taken, below the limit: between two readings a loop
allocates less, also where a table doubles."""
INTERVAL_SECONDS = 0.004
"""Minimum time between two readings of the resident memory, each of which takes about 30 µs."""

_thread = threading.local()


def is_addressable(shape: Iterable[int], itemsize: int) -> bool:
    """True if offsets into a tensor of this shape, not counting empty axes, fit in 64 bits."""
    return math.prod(n for n in shape if n) * itemsize <= MAX_TENSOR_NBYTES


@dataclass(slots=True)
class _Limit:
    """The limit of one thread. Units: bytes.

    ``nbytes``: limit of the process. ``base``: added to it in messages. ``run_nbytes``: what any run adds to it.
    ``before``: resident at the first reading.
    """

    nbytes: int
    base: int
    run_nbytes: int
    before: int = 0
    next_reading: float = 0.0

    def excess(self, present: int) -> int:
        """Return by how many bytes planning comes too near to the limit; at most 0 if it can go on."""
        self.before = self.before or present
        return present + max(0, present - self.before) // MARGIN_DIVISOR + MARGIN_NBYTES - self.nbytes

    def refusal(self, needed: int, reason: str) -> NeedsMore:
        """Return the error that names a lower bound of the memory."""
        needed = -(-(needed + self.base) // MIB) * MIB
        return NeedsMore(
            f"the program needs at least {format_minimum(needed)}, and {format_size(self.nbytes + self.base)} are "
            f"allowed: {reason}. help: allow more; if that is too little, the error names the minimum",
            needed,
        )


@contextmanager
def planning_limit(nbytes: int | None, run_nbytes: int, base: int = 0) -> Iterator[None]:
    """Context in which this thread reads and plans while the process has at most ``nbytes``.

    None keeps the present limit. ``run_nbytes``: bytes that any run adds to the process. ``base``: added to sizes in
    messages.
    """
    before: _Limit | None = getattr(_thread, "limit", None)
    if _IMPORTS not in sys.meta_path:
        sys.meta_path.insert(0, _IMPORTS)
    if nbytes is not None:
        _thread.limit = _Limit(nbytes, base, run_nbytes, before.before if before else 0)
    try:
        yield
    finally:
        _thread.limit = before


def require_room(nbytes: int = 0, package: str = "") -> None:
    """Refuse the program if, after a package of ``nbytes`` is loaded, not even a run without tensors fits.

    Raises:
        NeedsMore: before anything is loaded.
    """
    limit: _Limit | None = getattr(_thread, "limit", None)
    if limit is not None and (needed := present_nbytes() + nbytes + limit.run_nbytes) > limit.nbytes:
        libraries = "einturnip's modules" if limit.base else "Python and its libraries"
        reason = (
            f"{package}, which its files need, takes {format_size(nbytes)}" if nbytes else f"{libraries} come first"
        )
        raise limit.refusal(needed, reason)


def checkpoint() -> None:
    """Stop if the process has nearly reached the limit of this thread.

    Raises:
        NeedsMore: trimming the heap did not help.
    """
    limit: _Limit | None = getattr(_thread, "limit", None)
    if limit is not None and (now := time.monotonic()) >= limit.next_reading:
        limit.next_reading = now + INTERVAL_SECONDS
        require_free(0)


class _ImportCheckpoint:
    """Finder that finds no module, but stops the import of einturnip's own ones at the memory limit.

    Reading and planning import modules when they need them, some MiB in all. Packages of others are not stopped half
    imported, since some cannot be imported again: ``require_room`` counts the large ones first.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Call ``checkpoint``."""
        if name.startswith("einturnip."):
            checkpoint()


_IMPORTS = _ImportCheckpoint()


def require_free(nbytes: int) -> None:
    """Stop if planning cannot take ``nbytes`` more.

    Raises:
        NeedsMore: trimming the heap did not help.
    """
    limit: _Limit | None = getattr(_thread, "limit", None)
    if limit is None or limit.excess(present_nbytes() + nbytes) <= 0:
        return
    trim_heap()
    if limit.excess((present := present_nbytes() + nbytes) + MARGIN_NBYTES) > 0:
        raise limit.refusal(max(present + limit.run_nbytes, limit.nbytes), "planning takes all of it")
