"""Stores the calibrated machine in the user's cache.

Files of another machine and damaged files are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.caches import CALIBRATION, ForeignEntry, cache_folder
from einturnip.core.process_resources import total_memory, usable_cores
from einturnip.cost.machine import Machine

SCHEMA = "einturnip.machine/2"
SWITCH = CALIBRATION.switch
"""Environment variable: ``off`` uses the built-in rates; a path is the file to use instead of the cache's."""


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """The contents of the file.

    ``machine``: None if there is none to use; ``word`` then says why. ``measured``: the date. ``folder``: the folder
    whose disk was measured.
    """

    path: Path
    machine: Machine | None
    word: str
    measured: str = ""
    folder: str = ""


def stored_path() -> Path | None:
    """Return the path of the file; None if no measured machine shall be used."""
    path = CALIBRATION.path()
    return None if path is None else Path(path)


@lru_cache(maxsize=1)
def identity() -> str:
    """Return a hash of all that rates depend on: processor, cores, memory, NumPy, and OPENBLAS_CORETYPE."""
    cpu = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        fields = ("model name", "CPU part", "flags", "Features", "cache size")
        cpu = "".join(sorted({line for line in lines if line.startswith(fields)}))
    core_type = os.environ.get("OPENBLAS_CORETYPE", "")
    properties = (cpu, usable_cores(), total_memory() >> 28, np.__version__, core_type)
    return hashlib.sha256(repr(properties).encode()).hexdigest()[:16]


def machine_here(workers: int) -> Machine:
    """Return the calibrated machine, or the built-in one if this machine is not calibrated."""
    found = read_stored().machine or Machine()
    return found if found.workers == workers else replace(found, workers=workers)


def read_stored() -> StoredCalibration:
    """Return the stored calibration of this machine."""
    path = stored_path()
    if path is None:
        return StoredCalibration(Path(), None, f"not used: {unused()}")
    try:
        status = os.lstat(path)
    except OSError:
        return StoredCalibration(path, None, "none yet")
    return _read(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


def unused() -> str:
    """Return why no calibration is used, if there is no path for one."""
    return f"{SWITCH} says so" if cache_folder() is not None else "the cache folder belongs to another user"


@lru_cache(maxsize=4)
def _read(path: Path, *status: int) -> StoredCalibration:
    try:
        found: Any = json.loads(bytes(CALIBRATION.read()))
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            return StoredCalibration(path, None, "ignored: it has another version")
        if found["identity"] != identity():
            return StoredCalibration(path, None, "ignored: it was measured on another machine, or with other libraries")
        return StoredCalibration(path, Machine.from_json(found), "", str(found["measured"]), str(found["folder"]))
    except OSError as error:
        return StoredCalibration(path, None, f"ignored: it cannot be read: {error.strerror}")
    except ForeignEntry as error:
        return StoredCalibration(path, None, f"ignored: {error}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return StoredCalibration(path, None, "ignored: it is damaged")


@contextlib.contextmanager
def built_in() -> Iterator[None]:
    """Use the built-in rates within the context."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def store(machine: Machine, measured: str, folder: str) -> Path:
    """Store the machine; the file is written completely or not at all.

    Raises:
        OSError: the cache cannot be written.
    """
    path = stored_path()
    if path is None:
        raise OSError(f"no measured machine is to be used: {unused()}")
    head = {"schema": SCHEMA, "identity": identity(), "measured": measured, "folder": folder}
    CALIBRATION.write({"": [json.dumps(head | machine.to_json(), indent=1).encode()]})
    return path
