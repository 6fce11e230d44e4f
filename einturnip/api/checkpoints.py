"""Checkpoints: a folder for each, put in its place whole; the two latest are kept."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from einturnip.core.errors import BindError, StoreError
from einturnip.lang.types import Input
from einturnip.stores.home import copy
from einturnip.stores.open import OutputRequest, open_sinks
from einturnip.stores.types import Source

KEPT = 2
_NAME = re.compile(r"step-(\d{9,})")
_TORN = re.compile(r"\.step-.*\.tmp")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk, after ``steps`` steps; ``states`` are dtype and shape by name."""

    path: Path
    steps: int
    states: Mapping[str, tuple[str, tuple[int, ...]]]


def save(folder: Path, steps: int, states: Mapping[str, Source]) -> Path:
    """Write the states' checkpoint after ``steps`` steps: readers see all of it or nothing.

    Raises:
        StoreError: the disk refuses; older checkpoints are untouched.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torn = folder / f".step-{steps:09d}-{secrets.token_hex(4)}.tmp"
        torn.mkdir()
    except OSError as error:
        raise StoreError(f"{folder}: a checkpoint cannot be written: {error.strerror}") from error
    try:
        _write(torn, steps, states)
        path = folder / f"step-{steps:09d}"
        if path.exists():  # the same steps again, as after a resumption: the later one counts
            old = folder / f".step-{steps:09d}-{secrets.token_hex(4)}.tmp"
            path.rename(old)
        torn.rename(path)
        _sync(folder)
    except OSError as error:
        raise StoreError(f"{folder}: a checkpoint cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(torn, ignore_errors=True)
    _clear(folder)
    return path


def _write(torn: Path, steps: int, states: Mapping[str, Source]) -> None:
    for name, source in states.items():
        (sink,) = open_sinks([OutputRequest(os.fspath(torn / f"{name}.npy"), name, source.shape, source.dtype)])
        copy(source, sink)
        sink.commit()
    told = {"steps": steps, "states": {n: [str(s.dtype), list(s.shape)] for n, s in states.items()}}
    with open(torn / "checkpoint.json", "w", encoding="utf-8") as file:
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(torn)


def latest(folder: Path) -> Checkpoint | None:
    """The checkpoint with the most steps; what was never finished has no name that counts."""
    found = max(_finished(folder), default=None)
    if found is None:
        return None
    steps, path = found
    told = json.loads((path / "checkpoint.json").read_text("utf-8"))
    return Checkpoint(path, steps, {n: (dtype, tuple(shape)) for n, (dtype, shape) in told["states"].items()})


def check(found: Checkpoint, states: Iterable[Input]) -> None:
    """Refuse a checkpoint of a program with other states."""
    declared = {state.name: str(state.dtype) for state in states}
    stored = {name: dtype for name, (dtype, _) in found.states.items()}
    if declared != stored:
        one, other = (", ".join(f"{n} : {d}" for n, d in sorted(side.items())) for side in (declared, stored))
        raise BindError(f"{found.path} is a checkpoint of other states: the program has {one}; it holds {other}")


def _finished(folder: Path) -> list[tuple[int, Path]]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    named = [(m, path) for path in entries if (m := _NAME.fullmatch(path.name))]
    return [(int(m[1]), path) for m, path in named if (path / "checkpoint.json").is_file()]


def _clear(folder: Path) -> None:
    """Remove all but the latest, and what was never finished."""
    for _, path in sorted(_finished(folder))[:-KEPT]:
        gone = path.with_name(f".{path.name}.tmp")
        path.rename(gone)
    for path in folder.iterdir():
        if _TORN.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
