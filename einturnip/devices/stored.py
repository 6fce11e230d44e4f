"""The measured machine, kept in the user's cache; what is not of this machine, or damaged, is ignored."""

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
from einturnip.core.process_limits import total_memory, usable_cores
from einturnip.cost.machine import Machine

SCHEMA = "einturnip.machine/2"
SWITCH = CALIBRATION.switch
"""Environment variable: ``off`` plans with the built-in rates; a path is the file to use instead of the cache's."""


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """What the file says. ``machine`` is None where there is none to be used; ``word`` says why."""

    path: Path
    machine: Machine | None
    word: str
    measured: str = ""
    folder: str = ""


def stored_path() -> Path | None:
    """The file of the measured machine; None where none is to be used."""
    path = CALIBRATION.path()
    return None if path is None else Path(path)


@lru_cache(maxsize=1)
def identity() -> str:
    """What rates hold for: processor, cores, memory, NumPy and the kernels that its BLAS is told to use."""
    cpu = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        kept = ("model name", "CPU part", "flags", "Features", "cache size")
        cpu = "".join(sorted({line for line in lines if line.startswith(kept)}))
    told = os.environ.get("OPENBLAS_CORETYPE", "")
    known = (cpu, usable_cores(), total_memory() >> 28, np.__version__, told)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def machine_here(workers: int) -> Machine:
    """The measured machine with so many workers, or the built-in one where none was measured here."""
    found = read_stored().machine or Machine()
    return found if found.workers == workers else replace(found, workers=workers)


def read_stored() -> StoredCalibration:
    """What is stored, for this machine."""
    path = stored_path()
    if path is None:
        return StoredCalibration(Path(), None, f"not used: {unused()}")
    try:
        status = os.lstat(path)
    except OSError:
        return StoredCalibration(path, None, "none yet")
    return _read(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


def unused() -> str:
    """Why no measured machine is used, where there is no place for one."""
    return f"{SWITCH} says so" if cache_folder() is not None else "the cache folder belongs to another user"


@lru_cache(maxsize=4)
def _read(path: Path, *status: int) -> StoredCalibration:
    try:
        found: Any = json.loads(bytes(CALIBRATION.read()))
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            return StoredCalibration(path, None, "ignored: it is of another version")
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
    """Plan with the built-in rates meanwhile."""
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
    """Keep the machine; the file is there whole or not at all.

    Raises:
        OSError: the cache cannot be written.
    """
    path = stored_path()
    if path is None:
        raise OSError(f"no measured machine is to be used: {unused()}")
    told = {"schema": SCHEMA, "identity": identity(), "measured": measured, "folder": folder}
    CALIBRATION.write({"": [json.dumps(told | machine.to_json(), indent=1).encode()]})
    return path
