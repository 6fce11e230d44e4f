"""Resident memory of this process, and what of it is einturnip's own modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_loaded = 0
_loading = threading.RLock()  # threads that load together would each count what all of them load
_thread = threading.local()  # ``read``: how this thread reads resident memory


def resident_nbytes() -> int:
    """Resident memory of this process now (Linux: VmRSS; elsewhere the highest so far), as this thread counts it."""
    read: Callable[[], int] = getattr(_thread, "read", _resident)
    return read()


@contextmanager
def exclude_foreign_memory(nbytes: Callable[[], int], least: bool) -> Iterator[None]:
    """Within, this thread leaves out what ``nbytes`` counts, which belongs to others.

    ``least``: nor does it count less than at first, for what others give back is not for this thread to take.
    """
    floor = max(0, _resident() - nbytes()) if least else 0
    with _reading(lambda: max(floor, _resident() - nbytes())):
        yield


@contextmanager
def constant() -> Iterator[None]:
    """Within, resident memory stays what it is now, as if nothing else took any."""
    now = _resident()
    with _reading(lambda: now):
        yield


@contextmanager
def _reading(read: Callable[[], int]) -> Iterator[None]:
    before = getattr(_thread, "read", _resident)
    _thread.read = read
    try:
        yield
    finally:
        _thread.read = before


def _resident() -> int:
    return _status("VmRSS:") or _highest()


def peak_resident_nbytes() -> int:
    """The most that was ever resident (Linux: VmHWM)."""
    return _status("VmHWM:") or _highest()


@contextmanager
def loading() -> Iterator[None]:
    """Around the loading of modules: what they take is counted."""
    global _loaded
    with _loading:
        before = _resident()
        yield
        _loaded += max(0, _resident() - before)


def callers_nbytes() -> int:
    """What is resident now and is the caller's: all but the modules that ``import einturnip`` left for later."""
    return resident_nbytes() - _loaded


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", "rb") as f:
            for line in f:
                if line.startswith(field.encode()):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _highest() -> int:
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
