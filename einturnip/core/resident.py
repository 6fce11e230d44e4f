"""Resident memory of this process, and what of it is einturnip's own modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_loaded = 0


def resident_nbytes() -> int:
    """Resident memory of this process now (Linux: VmRSS; elsewhere the highest so far)."""
    return _status("VmRSS:") or _highest()


def peak_resident_nbytes() -> int:
    """The most that was ever resident (Linux: VmHWM)."""
    return _status("VmHWM:") or _highest()


@contextmanager
def loading() -> Iterator[None]:
    """Around the loading of modules: what they take is counted."""
    global _loaded
    before = resident_nbytes()
    yield
    _loaded += max(0, resident_nbytes() - before)


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
