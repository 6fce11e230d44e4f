"""Checkpoints: one folder each, written atomically and verified before a session resumes.

The last two are kept.

A folder contains a file for each state, a ``.npy`` or for bf16 a ``.safetensors``, and ``checkpoint.json`` with the
number of steps and the SHA-256 digests of all files, including itself. Digests are computed from the data in memory
while they are written, so that they detect data lost by a disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einturnip.core.errors import BindError, StoreError
from einturnip.core.regular_files import create_folder, open_regular, remove_abandoned, temporary_path
from einturnip.ir.dtypes import BF16
from einturnip.lang.program import InputDef
from einturnip.storage.formats import npy, safetensors
from einturnip.storage.io.file_source import as_bytes
from einturnip.storage.io.pages import drop
from einturnip.storage.open import OutputRequest, open_sinks
from einturnip.storage.outputs.state_storage import copy_tensor
from einturnip.storage.types import Array, Source

KEPT = 2
_NAME = re.compile(r"step-(\d{9,})")
_RECORD = "checkpoint.json"
# The key of the tensor in a state's .safetensors.
_KEY = "state"
# Bytes read at a time for a digest; maximum size of a record.
_PIECE_NBYTES, _RECORD_NBYTES = 1 << 20, 16 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk, after ``steps`` steps; ``states`` are dtype and shape by name."""

    path: Path
    steps: int
    states: Mapping[str, tuple[str, tuple[int, ...]]]

    def location(self, name: str) -> str:
        """The file of a state as an input names it, with its key."""
        return os.fspath(self.path / _location(name, self.states[name][0]))


@dataclass(frozen=True, slots=True)
class DamagedCheckpoint:
    """A checkpoint that differs from what was written, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        """Return what is damaged, and how."""
        return f"{self.path} is damaged ({self.reason})"


def save(folder: Path, steps: int, states: Mapping[str, Source], damaged: Collection[Path] = ()) -> Path:
    """Write the states' checkpoint after ``steps`` steps atomically.

    ``damaged``: unusable checkpoints in the folder, which are removed after this one is complete.

    Raises:
        StoreError: the disk fails; older checkpoints are untouched.
    """
    path = folder / f"step-{steps:09d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, new = create_folder(os.fspath(path))
    except OSError as error:
        raise StoreError(f"{folder}: a checkpoint cannot be written: {error.strerror}") from error
    try:
        _write(Path(new), steps, states)
        if path.exists():  # the same steps again, as after a resumption: the later checkpoint replaces the earlier
            path.rename(temporary_path(os.fspath(path)))
        os.rename(new, path)
        _sync(folder)
    except OSError as error:
        raise StoreError(f"{folder}: a checkpoint cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        os.close(descriptor)
    _clear(folder, [other for other in damaged if other != path])
    return path


def _location(name: str, dtype: str) -> str:
    """The file of a state in its folder, with its key: ``.npy`` lacks bf16."""
    return f"{name}.safetensors::{_KEY}" if dtype == BF16.name else f"{name}.npy"


def _header(source: Source, path: str) -> bytes:
    if source.dtype == BF16:
        return safetensors.make_header(path, {_KEY: (source.shape, source.dtype)})[0]
    return npy.make_header(source.shape, source.dtype, path)


def _write(folder: Path, steps: int, states: Mapping[str, Source]) -> None:
    digests = {}
    for name, source in states.items():
        location = _location(name, source.dtype.name)
        path = os.fspath(folder / location)
        (sink,) = open_sinks([OutputRequest(path, name, source.shape, source.dtype)])
        digest = hashlib.sha256(_header(source, path))

        def add(block: Array, digest: Any = digest) -> None:
            digest.update(as_bytes(block))

        copy_tensor(source, sink, add)
        sink.commit()
        digests[location.partition("::")[0]] = digest.hexdigest()
    record = {
        "steps": steps,
        "states": {n: [str(s.dtype), list(s.shape)] for n, s in states.items()},
        "sha256": digests,
    }
    with open(folder / _RECORD, "w", encoding="utf-8") as file:
        json.dump(record | {"record_sha256": _digest_of_record(record)}, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def newest_intact(folder: Path) -> tuple[Checkpoint | None, list[DamagedCheckpoint]]:
    """The intact checkpoint with the most steps, and damaged ones with more; None if there is none at all.

    Raises:
        StoreError: there are checkpoints, and every one is damaged.
    """
    damaged: list[DamagedCheckpoint] = []
    for _, path in sorted(_finished(folder), reverse=True):
        try:
            return _verified(path), damaged
        except _Damage as error:
            damaged.append(DamagedCheckpoint(path, str(error)))
    if damaged:
        found = "; ".join(f"{damage.path.name}: {damage.reason}" for damage in damaged)
        raise StoreError(
            f"{folder}: every checkpoint is damaged ({found}). help: copy a whole one there, or start again in another "
            "folder"
        )
    return None, []


class _Damage(Exception):
    """Raised for a damaged checkpoint; the message is the reason."""


def _verified(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its files.

    Raises:
        _Damage: they are damaged.
    """
    try:
        record = json.loads(_read_record(path / _RECORD))
        recorded_digest = record.pop("record_sha256")
        if recorded_digest != _digest_of_record(record):
            raise ValueError
        states = {n: (dtype, tuple(shape)) for n, (dtype, shape) in record["states"].items()}
        digests = record["sha256"]
    except OSError as error:
        raise _Damage(f"{_RECORD} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Damage(f"{_RECORD} is not as it was written") from error
    for name, digest in digests.items():
        try:
            found = _digest_of_file(path / name)
        except OSError as error:
            raise _Damage(f"{name} cannot be read: {error.strerror}") from error
        if found != digest:
            raise _Damage(f"{name} is not as it was written")
    return Checkpoint(path, record["steps"], states)


def _digest_of_record(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _read_record(path: Path) -> bytes:
    with io.FileIO(open_regular(path)[0]) as file:
        return file.read(_RECORD_NBYTES)


def _digest_of_file(path: Path) -> str:
    """The digest of a file, read in pieces; its pages are dropped from the page cache."""
    digest, buffer, at = hashlib.sha256(), bytearray(_PIECE_NBYTES), 0
    with io.FileIO(open_regular(path)[0]) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
            drop(file.fileno(), at, at + count)
            at += count
    return digest.hexdigest()


def check(found: Checkpoint, states: Iterable[InputDef]) -> None:
    """Refuse a checkpoint of a program with other states."""
    declared = {state.name: str(state.dtype) for state in states}
    stored = {name: dtype for name, (dtype, _) in found.states.items()}
    if declared != stored:
        in_program, in_checkpoint = (
            ", ".join(f"{n} : {d}" for n, d in sorted(side.items())) for side in (declared, stored)
        )
        raise BindError(
            f"{found.path} is a checkpoint of other states: the program has {in_program}; it holds {in_checkpoint}"
        )


def _finished(folder: Path) -> list[tuple[int, Path]]:
    """The completed checkpoints, intact or not."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: the checkpoints cannot be read: {error.strerror}") from error
    return [(int(m[1]), path) for path in entries if (m := _NAME.fullmatch(path.name))]


def _clear(folder: Path, damaged: Iterable[Path]) -> None:
    """Remove damaged checkpoints, all but the last intact ones, and unfinished files."""
    removed = [path for path in damaged if path.parent == folder]
    removed += [path for _, path in sorted(_finished(folder)) if path not in removed][:-KEPT]
    for path in removed:
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.rename(temporary_path(os.fspath(path)))
    remove_abandoned(os.fspath(folder))


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
