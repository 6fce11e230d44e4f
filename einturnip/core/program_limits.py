"""Limits on the size of a program: what it is read from, and what it expands to.

A program beyond a limit is refused before the memory is taken: files by their size, loops and calls by counting what
they expand to (``lang/expanded_size.py``, ``eingraph/loop_size.py``).
"""

from __future__ import annotations

import errno
import os
import stat

MAX_FILE_NBYTES = 16 << 20
"""Bytes of a program, an imported file or a small configuration file."""
MAX_TOKENS = 1_000_000
"""Words and symbols of one program file. A token takes some 250 bytes until the file is parsed."""
MAX_TERMS = 300_000
"""Names, numbers and operators of a program, those of a function once a call; each takes 1 to 2 KB."""
MAX_STATEMENTS = 100_000
"""Equations of a program, those of a loop once an iteration; each takes 0.5 ms and 4 KB to plan."""

MAX_NODES = 300_000
"""Operations on tensors that equations and gradients become, before they are made fewer."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read_regular(path: str | os.PathLike[str], limit: int = MAX_FILE_NBYTES) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Opening a pipe waits for a writer and reading a device may never end, so both are refused unread.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            kind = next((name for matches, name in _KINDS if matches(status.st_mode)), "no file")
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", os.fspath(path))
    return content
