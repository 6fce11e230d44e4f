"""Programs kept on disk: a file is parsed and resolved once, and then read by every process.

An entry is found by the digest of the text, its file's name and einturnip's own source; it holds the lines of what was
imported, which are compared when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

from einturnip.caches import PROGRAMS, Damaged
from einturnip.core import diagnostics, resources
from einturnip.core.errors import InternalError
from einturnip.lang import compile_text, expressions, types
from einturnip.lang.text import read_text, unified
from einturnip.lang.types import Program
from einturnip.planner.codec import Codec, Unknown
from einturnip.planner.kept import version

SUFFIX = ".program"
# What of einturnip a program depends on.
_FLOORS = ("core", "lang")


def compile_kept(text: str, file: str) -> Program:
    """The program that a file's text means: as it was kept, or compiled now and kept.

    Raises:
        SourceError: as ``compile_text``.
    """
    entry = _entry(text, file)
    if entry is None:
        return compile_text(text, file)
    with contextlib.suppress(OSError, Damaged):
        program = codec().from_bytes(PROGRAMS.read(entry))
        if isinstance(program, Program) and _unchanged(program.files, program.file):
            PROGRAMS.touch(entry)
            return program
    program = compile_text(text, file)
    with contextlib.suppress(OSError, Unknown, RecursionError):
        PROGRAMS.write({entry: codec().to_bytes(program)})
    return program


@lru_cache(maxsize=1)
def codec() -> Codec:
    """Of the classes that a program is made of: every dataclass and named tuple of three modules."""
    return Codec(
        found
        for module in (types, expressions, diagnostics)
        for found in vars(module).values()
        if isinstance(found, type) and found.__module__ == module.__name__ and _is_plain(found)
    )


def _is_plain(found: Any) -> bool:
    return is_dataclass(found) or (issubclass(found, tuple) and hasattr(found, "_fields"))


def _entry(text: str, file: str) -> str | None:
    if PROGRAMS.path() is None:
        return None
    try:
        known = version(_FLOORS, resources.folder("grammar"))
    except (OSError, InternalError):
        return None
    return hashlib.sha256(repr((known, file, text)).encode()).hexdigest()[:40] + SUFFIX


def _unchanged(files: Mapping[str, tuple[str, ...]], main: str) -> bool:
    """Whether what was imported reads as it did; the standard library is part of einturnip."""
    for name, lines in files.items():
        if name != main and not name.startswith("std."):
            try:
                if tuple(unified(read_text(name)).split("\n")) != lines:
                    return False
            except (OSError, UnicodeDecodeError):
                return False
    return True
