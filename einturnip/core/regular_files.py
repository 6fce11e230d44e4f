"""Opens regular files without blocking: a pipe or device in place of a file is refused unread."""

from __future__ import annotations

import errno
import os
import stat

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
