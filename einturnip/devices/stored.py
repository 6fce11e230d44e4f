"""The measured machine, kept in the user's cache; whatever is not of this machine, or damaged, is left alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.core.limits import total_memory, usable_cores
from einturnip.core.machine import Machine

SCHEMA = "einturnip.machine/2"
SWITCH = "EINTURNIP_CALIBRATION"
"""Environment variable: ``off`` plans with the built-in rates; a path is the file to use instead of the cache's."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the file says. ``machine`` is None where there is none to be used; ``word`` says why."""

    path: Path
    machine: Machine | None
    word: str
    measured: str = ""
    folder: str = ""


def stored_path() -> Path | None:
    """The file of the measured machine; None where the environment says that none is to be used."""
    chosen = os.environ.get(SWITCH, "")
    if chosen in ("off", "0", "no"):
        return None
    if chosen not in ("", "on", "1", "yes"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "einturnip" / "machine.json"


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


def read_stored() -> Stored:
    """What is stored, for this machine."""
    path = stored_path()
    if path is None:
        return Stored(Path(), None, f"not used: {SWITCH} says so")
    try:
        status = path.stat()
    except OSError:
        return Stored(path, None, "none yet")
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, nbytes: int) -> Stored:
    try:
        found: Any = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            return Stored(path, None, "ignored: it is of another version")
        if found["identity"] != identity():
            return Stored(path, None, "ignored: it was measured on another machine, or with other libraries")
        return Stored(path, Machine.from_json(found), "", str(found["measured"]), str(found["folder"]))
    except OSError as error:
        return Stored(path, None, f"ignored: it cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Stored(path, None, "ignored: it is damaged")


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
        raise OSError(f"{SWITCH} says that no measured machine is to be used")
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"schema": SCHEMA, "identity": identity(), "measured": measured, "folder": folder}
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".machine-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(told | machine.to_json(), file, indent=1)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return path
