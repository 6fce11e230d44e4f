"""Versions of input files, to detect that a file was overwritten while a run read it.

A version consists of a file's size, modification time and inode. For an open file it is read from the descriptor: if
another file has taken its name, the opened file is still read completely.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.storage.types import Array, Region

Version = tuple[int, int, int]
_NO_FILE = 1
"""Digest of a chunk without a file."""


def version(file: int | str) -> Version:
    """The version of an open or named file."""
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns, status.st_ino


def overwritten(name: str) -> StoreError:
    """The error for an input that was overwritten while it was read."""
    return StoreError(
        f"{name}: was overwritten while it was being read, so the result would mix its old and its new content. "
        "help: run again when nothing writes to it, or replace the whole file by one that is written and then renamed"
    )


def require_unchanged(source: object) -> None:
    """Require that a source's files have not changed since they were opened; a caller's array has none.

    Raises:
        StoreError: one was overwritten.
    """
    check: Callable[[], None] | None = getattr(source, "require_unchanged", None)
    if check is not None:
        check()


def require_unchanged_inputs(sources: Iterable[object], outputs: Iterable[object]) -> None:
    """``require_unchanged`` for all inputs of a run, except files that both inputs and outputs map.

    Raises:
        StoreError: an input was overwritten by another process.
    """
    ours = {_inode(file) for output in outputs if (file := mapped_file(getattr(output, "array", output)))}
    for source in sources:
        mapped: MappedFile | None = getattr(source, "mapped", None)
        if mapped is None or _inode(mapped.file) not in ours:
            require_unchanged(source)


class ChunkVersions:
    """Versions of an array's chunk files, each recorded at its first read: 8 bytes per file."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        path: Callable[[tuple[int, ...]], str],
        version_of: Callable[[str], Version] = version,
    ) -> None:
        """Record nothing yet.

        ``chunks``: elements of one file along each axis; ``path``: the file at a position of the grid; ``version_of``:
        returns the version of a file, or raises OSError if there is none.
        """
        self._version_of = version_of
        self._name, self._chunks, self._path = name, chunks, path
        self._grid = grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        self._digests = np.zeros(max(1, math.prod(grid)), np.int64)

    def place(self, region: Region) -> tuple[int, ...]:
        """Grid position of the file that holds a region of one chunk."""
        return tuple(start // chunk for (start, _), chunk in zip(region, self._chunks, strict=True))

    def require(self, chunk: tuple[int, ...]) -> None:
        """Record the version of a chunk's file before its first read, or check it against the record.

        Raises:
            StoreError: it was overwritten or replaced.
        """
        place, found = self._place(chunk), self._digest(chunk)
        noted = int(self._digests[place])
        if noted not in (0, found):
            raise overwritten(self._name)
        self._digests[place] = found

    def require_all(self) -> None:
        """Check all files that were read.

        Raises:
            StoreError: one was overwritten or replaced.
        """
        for place in np.flatnonzero(self._digests).tolist():
            chunk = tuple(int(i) for i in np.unravel_index(place, self._grid)) if self._grid else ()
            if self._digest(chunk) != self._digests[place]:
                raise overwritten(self._name)

    def _place(self, chunk: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(chunk, self._grid)) if self._grid else 0

    def _digest(self, chunk: tuple[int, ...]) -> int:
        try:
            return hash(self._version_of(self._path(chunk))) or -1
        except OSError:
            return _NO_FILE


class MappedFile:
    """The file behind an array that maps it (``np.memmap``)."""

    def __init__(self, name: str, file: str) -> None:
        self.file = file
        self._name, self._version = name, version(file)

    @classmethod
    def of(cls, name: str, array: Array) -> MappedFile | None:
        """The file that an array is a view of; None for an array in memory."""
        file = mapped_file(array)
        try:
            return None if file is None else cls(name, file)
        except OSError:  # the file has been unlinked
            return None

    def require_unchanged(self) -> None:
        """Check that the file has not changed.

        Raises:
            StoreError: it was overwritten.
        """
        try:
            found = version(self.file)
        except OSError:
            return
        if found[2] == self._version[2] and found != self._version:  # another inode: the mapped one was unlinked
            raise overwritten(self._name)


def mapped_file(array: object) -> str | None:
    """The name of the file that an array is a view of, if any."""
    seen = array
    while isinstance(seen, np.ndarray):
        if isinstance(seen, np.memmap) and seen.filename is not None:
            return os.fspath(seen.filename)
        seen = seen.base
    return None


def _inode(file: str) -> int | None:
    try:
        return os.stat(file).st_ino
    except OSError:
        return None
