"""All disk caches of einturnip in one table, and the only code that reads and writes their entries.

A cached file may be lost, damaged or planted at any time without an effect on results: an entry that is incomplete, or
that another user could have written, counts as missing and is replaced.

An entry is a file: a line of 96 bytes with a SHA-256 digest, then the data. The digest also covers the cache's name and
the entry's key, so that a renamed or copied file is not mistaken for another entry. The digest detects accidents; to
protect against other users, files and the cache folder must belong to the effective user and be writable by nobody
else.

Entries appear atomically: they are written to a temporary file, synced and renamed, so several processes may write the
same key at once. If the cache folder belongs to another user or cannot be written, einturnip runs without a cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from einturnip.core.regular_files import create_file, is_temporary, remove_abandoned

Piece: TypeAlias = "bytes | memoryview"
MIB = 1 << 20

_MAGIC = b"einturnip cache 1 "
_DIGEST_NBYTES = 64
# A multiple of 16, so that arrays in the data are aligned in memory where they are aligned in the data.
HEADER_NBYTES = 96
# Larger entries are dropped from the page cache, where they would count against the run's memory.
_PAGES_NBYTES = 4 * MIB
# Number of writes between two scans of a cache for entries to evict, because a scan takes longer than a write.
_PRUNED_EVERY = 32

_OFF, _ON = ("off", "0", "no"), ("", "on", "1", "yes")


class DamagedEntry(ValueError):
    """An entry differs from the data written under its key."""


class ForeignEntry(DamagedEntry):
    """An entry is not a regular file, or another user could have written it."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file of a cache: its name within the cache, the time of its last use, and its size in bytes."""

    name: str
    used: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cache:
    """One kind of cached values; a row of ``CACHES``.

    ``key`` describes the inputs of an entry's name, on which its validity depends. ``folder`` is below the cache
    folder. ``switch`` is an environment variable: "off" disables the cache, a path replaces ``folder``. ``inside`` is a
    folder below either. ``file`` is set if the cache has only one entry; ``switch`` then names a file. ``max_files``
    and ``max_nbytes`` bound the cache: the least recently used entries are evicted.
    """

    name: str
    holds: str
    key: str
    max_files: int
    max_nbytes: int
    max_entry_nbytes: int
    folder: str = ""
    inside: str = ""
    file: str = ""
    switch: str = ""
    _writes: Iterator[int] = field(init=False, default_factory=itertools.count, compare=False, repr=False)

    def path(self) -> str | None:
        """Return the folder of the entries, or the path of the only entry; None if the cache is disabled."""
        chosen = os.environ.get(self.switch, "") if self.switch else ""
        if chosen in _OFF:
            return None
        if chosen not in _ON:
            return os.path.join(chosen, self.inside) if self.inside else chosen
        root = cache_folder()
        return None if root is None else os.path.join(root, *filter(None, (self.folder, self.inside, self.file)))

    def read(self, name: str = "") -> memoryview:
        """Return the data of an entry.

        Raises:
            FileNotFoundError: there is none. OSError: it cannot be read. DamagedEntry: it must not be used.
        """
        path = self._path_of(name)
        # Links are not followed, and a pipe in place of the file must not block.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            _require_own(status)
            if not HEADER_NBYTES <= status.st_size <= HEADER_NBYTES + self.max_entry_nbytes:
                raise DamagedEntry(f"it has {status.st_size} bytes")
            content = memoryview(os.read(fd, status.st_size))
            _drop_pages(fd, len(content))
        finally:
            os.close(fd)
        data = content[HEADER_NBYTES:]
        if content[:HEADER_NBYTES] != self._header(name, [data]):
            raise DamagedEntry("its digest differs")
        return data

    def write(self, entries: Mapping[str, Sequence[Piece]]) -> None:
        """Write entries by name, each in pieces; existing ones are replaced.

        Raises:
            OSError: the disk or the folder refuses.
        """
        for name, pieces in entries.items():
            path = self._path_of(name)
            if sum(map(len, pieces)) > self.max_entry_nbytes:
                continue
            _make_folder(os.path.dirname(path))
            fd, temporary = create_file(path, 0o600)
            try:
                with open(fd, "wb", buffering=0, closefd=False) as file:
                    for piece in (self._header(name, pieces), *pieces):
                        _write_full(file.fileno(), piece)
                os.fsync(fd)
                _drop_pages(fd, sum(map(len, pieces)))
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            finally:
                os.close(fd)
        if entries and next(self._writes) % _PRUNED_EVERY == 0:
            self.prune()

    def touch(self, name: str) -> None:
        """Record that an entry was used now."""
        with contextlib.suppress(OSError):
            os.utime(self._path_of(name))

    def is_valid(self, name: str) -> bool:
        """Return whether an entry can be used."""
        try:
            self.read(name)
        except (OSError, DamagedEntry):
            return False
        return True

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether that succeeded."""
        try:
            os.unlink(self._path_of(name))
        except OSError:
            return False
        return True

    def entries(self) -> list[CacheEntry]:
        """Return the entries, least recently used first."""
        top, found = self.path(), []
        for folder, files in self._walk():
            for file in files:
                if not is_temporary(file):
                    path = os.path.join(folder, file)
                    with contextlib.suppress(OSError):  # another process has just removed it
                        status = os.lstat(path)
                        name = "" if self.file else os.path.relpath(path, top)
                        found.append(CacheEntry(name, status.st_mtime, status.st_size))
        return sorted(found, key=lambda entry: (entry.used, entry.name))

    def prune(self) -> None:
        """Evict least recently used entries beyond the bounds; remove unfinished files of killed processes."""
        entries = self.entries()
        files, nbytes = len(entries), sum(entry.nbytes for entry in entries)
        for entry in entries:
            if files <= self.max_files and nbytes <= self.max_nbytes:
                break
            self.remove(entry.name)
            files, nbytes = files - 1, nbytes - entry.nbytes
            if os.sep in entry.name:
                with contextlib.suppress(OSError):  # the folder has other entries
                    os.rmdir(os.path.dirname(self._path_of(entry.name)))
        self.remove_abandoned()

    def remove_abandoned(self) -> list[str]:
        """Remove unfinished files of killed processes; return the removed paths."""
        folders = [folder for folder, files in self._walk() if any(map(is_temporary, files))]
        return [path for folder in folders for path in remove_abandoned(folder)]

    def _walk(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the cache's folders with their files, except those of a cache nested in this one."""
        top = self.path()
        if top is None:
            return
        if self.file:
            folder, name = os.path.split(top)
            with contextlib.suppress(OSError):
                yield folder, [file for file in os.listdir(folder) if file == name or is_temporary(file)]
            return
        others = {cache.path() for cache in CACHES if cache is not self}
        for folder, inner, files in os.walk(top):
            inner[:] = [name for name in inner if os.path.join(folder, name) not in others]
            yield folder, files

    def _path_of(self, name: str) -> str:
        top = self.path()
        if top is None:
            raise FileNotFoundError(errno.ENOENT, "there is no cache", self.name)
        return top if self.file else os.path.join(top, name)

    def _header(self, name: str, pieces: Iterable[Piece]) -> bytes:
        """Return the first line of an entry."""
        digest = hashlib.sha256(f"{self.name}\0{self.file or name}\0".encode())
        for piece in pieces:
            digest.update(piece)
        return (_MAGIC + digest.hexdigest().encode()).ljust(HEADER_NBYTES - 1) + b"\n"


def cache_folder() -> str | None:
    """Return the folder of all caches: ``$XDG_CACHE_HOME/einturnip``, else ``~/.cache/einturnip``.

    None if it belongs to another user (``sudo`` may keep HOME), or if there is no home directory.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
        if not os.path.isabs(base):
            return None
    path = os.path.join(base, "einturnip")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return path
    except OSError:
        return None
    return path if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() else None


def _make_folder(path: str) -> None:
    """Create a folder and its parents for this user alone; restrict permissions inside the cache folder."""
    root = cache_folder()
    inside = root is not None and (path + os.sep).startswith(root + os.sep)
    if inside and path != root:
        _make_folder(os.path.dirname(path))
    try:
        os.makedirs(path, 0o700)
    except FileExistsError:
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise
        if inside and status.st_mode & 0o077:
            os.chmod(path, 0o700)


def _require_own(status: os.stat_result) -> None:
    """Refuse a file that is not regular or that another user could have written.

    Raises:
        ForeignEntry: the reason.
    """
    if not stat.S_ISREG(status.st_mode):
        raise ForeignEntry("it is not a regular file")
    if status.st_uid != os.geteuid():
        raise ForeignEntry("it belongs to another user")
    if status.st_mode & 0o022:
        raise ForeignEntry("other users can write to it")


def _write_full(fd: int, piece: Piece) -> None:
    view = memoryview(piece).cast("B")
    while view.nbytes:
        view = view[os.write(fd, view) :]


def _drop_pages(fd: int, nbytes: int) -> None:
    if nbytes > _PAGES_NBYTES and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


KERNELS = Cache(
    name="kernels",
    holds="machine code for the CPU, as object files",
    key="kernel spec, processor, source files of the code generator",
    folder="kernels",
    max_files=4096,
    max_nbytes=256 * MIB,
    max_entry_nbytes=16 * MIB,
)
CUBINS = Cache(
    name="cuda",
    holds="machine code for GPUs",
    key="CUDA source, headers, options, architecture, NVRTC's version",
    folder="cuda",
    max_files=4096,
    max_nbytes=1024 * MIB,
    max_entry_nbytes=64 * MIB,
)
PLANS = Cache(
    name="plans",
    holds="plans",
    key="graph, machine, layouts, options, source files of einturnip; then the budgets that it serves",
    folder="plans",
    switch="EINTURNIP_PLANS",
    max_files=4096,
    max_nbytes=1024 * MIB,
    max_entry_nbytes=512 * MIB,
)
PROGRAMS = Cache(
    name="programs",
    holds="compiled programs",
    key="text, path, source files of einturnip; imported files are compared when it is read",
    folder="plans",
    inside="programs",
    switch="EINTURNIP_PLANS",
    max_files=4096,
    max_nbytes=256 * MIB,
    max_entry_nbytes=64 * MIB,
)
CALIBRATION = Cache(
    name="calibration",
    holds="measured rates of this machine",
    key="one entry; it names the processor, cores, memory and NumPy that it holds for",
    file="machine.json",
    switch="EINTURNIP_CALIBRATION",
    max_files=1,
    max_nbytes=MIB,
    max_entry_nbytes=MIB,
)
DEVICE_TESTS = Cache(
    name="device-tests",
    holds="GPUs that passed the self-test",
    key="GPU, driver, NVRTC, version of einturnip, headers of kernels",
    folder="device-tests",
    max_files=64,
    max_nbytes=MIB,
    max_entry_nbytes=1024,
)
CACHES = (KERNELS, CUBINS, PLANS, PROGRAMS, CALIBRATION, DEVICE_TESTS)
