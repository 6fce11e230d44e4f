"""Resident memory of this process, and the share of it that belongs to einturnip's own modules."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_loaded = 0
_loading = threading.RLock()  # concurrent loads would each count the memory of all
_thread = threading.local()  # ``read``: how this thread reads resident memory


def resident_nbytes() -> int:
    """Resident memory of this process (Linux: VmRSS; elsewhere the peak), as this thread counts it."""
    return present_nbytes() + getattr(_thread, "reserved", 0)


def present_nbytes() -> int:
    """``resident_nbytes`` without what is only reserved."""
    read: Callable[[], int] = getattr(_thread, "read", _resident)
    return read()


@contextmanager
def exclude_foreign_memory(nbytes: Callable[[], int], fixed_minimum: bool) -> Iterator[None]:
    """Within the context, this thread's resident memory excludes ``nbytes()``, which belongs to others.

    ``fixed_minimum``: the count also never falls below its initial value, because memory that others free is not
    available to this thread.
    """
    minimum = max(0, _resident() - nbytes()) if fixed_minimum else 0
    with _reading(lambda: max(minimum, _resident() - nbytes())):
        yield


@contextmanager
def constant() -> Iterator[None]:
    """Within the context, this thread's count of resident memory stays at its present value."""
    now = _resident()
    with _reading(lambda: now):
        yield


@contextmanager
def reserved(nbytes: int) -> Iterator[None]:
    """Within the context, this thread counts ``nbytes`` as resident that the process will take later."""
    before = getattr(_thread, "reserved", 0)
    _thread.reserved = before + nbytes
    try:
        yield
    finally:
        _thread.reserved = before


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
    """Peak resident memory (Linux: VmHWM)."""
    return _status("VmHWM:") or _highest()


@contextmanager
def loading() -> Iterator[None]:
    """Context for loading modules, which records the memory that they take."""
    global _loaded
    with _loading:
        before = _resident()
        yield
        _loaded += max(0, _resident() - before)


def callers_nbytes() -> int:
    """Resident memory of the caller: everything except the modules that einturnip loaded lazily."""
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


def trim_heap() -> None:
    """Return free heap memory to the system, so that it does not count against the run."""
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
