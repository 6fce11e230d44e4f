"""Reads program files and normalizes their line ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from einturnip.core.diagnostics import did_you_mean
from einturnip.core.errors import BindError
from einturnip.core.program_limits import MAX_FILE_NBYTES
from einturnip.core.regular_files import read_regular

STANDARD_INPUT = Path("-")
"""As a program's path: the program is read from standard input."""


def normalize_newlines(text: str) -> str:
    """A text without byte order mark, its lines ended by newlines alone."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def read_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a program file, with line ends normalized to newlines.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large. UnicodeDecodeError: it is no text in UTF-8.
    """
    return universal(read_regular(path).decode("utf-8"))


def universal(text: str) -> str:
    """Normalize line ends to newlines, as Python does for text files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def program_name(path: Path) -> str:
    """The name of the program at a path, for messages and reports."""
    return "<stdin>" if path == STANDARD_INPUT else str(path)


def program_text(path: Path) -> str:
    """Read a program's text unchanged, including line ends.

    Raises:
        BindError: there is no such file, it is no regular file or too large, or it is no text in UTF-8.
    """
    name = program_name(path)
    try:
        content = _standard_input() if path == STANDARD_INPUT else read_regular(path)
        return content.decode("utf-8")
    except FileNotFoundError:
        folder = path.parent
        known = [str(p) for p in folder.glob("*.ein")] if folder.is_dir() else []
        hint = did_you_mean(str(path), known)
        raise BindError(f"there is no program {path}" + (f"; {hint}" if hint else "")) from None
    except UnicodeDecodeError as error:
        raise BindError(f"{name} is not a program: byte {error.start} is not UTF-8 text") from None
    except OSError as error:
        help_text = "" if error.errno != errno.EINVAL else ". help: '-' reads a program from standard input"
        raise BindError(f"the program {name} cannot be read: {error.strerror}{help_text}") from None


def _standard_input() -> bytes:
    content = sys.stdin.buffer.read(MAX_FILE_NBYTES + 1)
    if len(content) > MAX_FILE_NBYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_NBYTES >> 20} MiB")
    return content
