"""Opens regular files, and names files and folders under construction.

Opening never blocks: a pipe or device in place of a file is refused unread.

Most files are written without a name (``O_TMPFILE``) and vanish with their process. Folders, and files on file systems
without nameless files, need a name from the start. It ends in ``.einturnip-PID-RANDOM.tmp``, and the writer holds a
lock (``flock``) on it, which the kernel releases when the process dies. A file with such a name that belongs to this
user and can be locked is therefore abandoned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator

from einturnip.core.program_limits import MAX_FILE_NBYTES

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class NotRegular(OSError):
    """A path names a pipe, a device or a socket."""


def open_regular(path: str | os.PathLike[str]) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; returns its descriptor and status.

    Raises:
        IsADirectoryError, NotRegular: it is no regular file. OSError: it cannot be opened.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, status
    os.close(fd)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = next((name for matches, name in _KINDS if matches(status.st_mode)), "no file")
    raise NotRegular(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def read_regular(path: str | os.PathLike[str], limit: int = MAX_FILE_NBYTES) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open(open_regular(path)[0], "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", os.fspath(path))
    return content


_NAME = re.compile(r"^\..*\.einturnip-\d+-[0-9a-f]{16}\.tmp$", re.DOTALL)
# Bytes of the final name that are kept in the temporary one: file systems allow 255 in all.
_NAME_NBYTES = 180


def temporary_path(target: str) -> str:
    """Return a new path in the folder of ``target``, for a file that will be renamed to ``target``."""
    folder, name = os.path.split(target)
    name = os.fsdecode(os.fsencode(name)[:_NAME_NBYTES])
    return os.path.join(folder, f".{name}.einturnip-{os.getpid()}-{os.urandom(8).hex()}.tmp")


def is_temporary(name: str) -> bool:
    """True if ``temporary_path`` created this name."""
    return _NAME.match(name) is not None


def create_file(target: str, mode: int) -> tuple[int, str]:
    """Create a locked temporary file for ``target``; returns its descriptor and path.

    Raises:
        OSError: the folder refuses.
    """
    while True:
        path = temporary_path(target)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        lock(fd)
        if _is_at(fd, path):  # else another process removed it before it was locked
            return fd, path
        os.close(fd)


def create_folder(target: str) -> tuple[int, str]:
    """Create a locked temporary folder for ``target``.

    Returns a descriptor that holds the lock, and its path.

    Raises:
        OSError: the folder around it refuses.
    """
    while True:
        path = temporary_path(target)
        os.mkdir(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        lock(fd)
        if _is_at(fd, path):
            return fd, path
        os.close(fd)


@contextlib.contextmanager
def temporary_folder(target: str) -> Iterator[str]:
    """Context manager: a new folder next to ``target``, removed at the end; yields its path.

    Raises:
        OSError: the folder around it refuses.
    """
    import shutil

    fd, path = create_folder(target)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def lock(fd: int) -> None:
    """Lock a file or folder while the descriptor is open; does nothing on file systems without locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)


def remove_abandoned(folder: str) -> list[str]:
    """Remove unfinished files of this user's killed processes from a folder; returns the removed paths."""
    try:
        names = [name for name in os.listdir(folder) if is_temporary(name)]
    except OSError:
        return []
    removed = []
    for name in names:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if _remove_unless_held(path):
                removed.append(path)
    return removed


def _remove_unless_held(path: str) -> bool:
    status = os.lstat(path)
    is_folder = stat.S_ISDIR(status.st_mode)
    if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
        return False
    # Locking a file over NFS needs write access; a folder cannot be opened for writing, so it stays there.
    flags = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_NONBLOCK
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(fd, path):
            return False
        if is_folder:
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)
    finally:
        os.close(fd)
    return True


def _is_at(fd: int, path: str) -> bool:
    """True if an open file or folder is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
