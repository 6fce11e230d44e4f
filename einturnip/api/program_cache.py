"""Program cache on disk: a file is parsed and resolved once, and then read by every process.

The key is the digest of the text, its file's name and einturnip's own source. An entry contains the lines of imported
files, which are compared when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

from einturnip.caches import PROGRAMS, DamagedEntry
from einturnip.core import diagnostics, package_data
from einturnip.core.errors import InternalError, NeedsMore
from einturnip.lang import compile_text, expressions, program
from einturnip.lang.program import TypedProgram
from einturnip.lang.source_text import normalize_newlines, read_text
from einturnip.planner.codec import NotEncodable, PlanCodec

SUFFIX = ".program"
# The packages of einturnip on which a compiled program depends.
_PACKAGES = ("core", "ir", "lang")


def compile_cached(text: str, file: str) -> TypedProgram:
    """The program of a file's text from the cache, or compiled now and cached.

    Raises:
        SourceError: as ``compile_text``.
    """
    entry = _entry(text, file)
    if entry is None:
        return compile_text(text, file)
    with contextlib.suppress(OSError, DamagedEntry, NeedsMore):
        program = codec().from_bytes(PROGRAMS.read(entry))
        if isinstance(program, TypedProgram) and _unchanged(program.files, program.file):
            PROGRAMS.touch(entry)
            return program
    program = compile_text(text, file)
    with contextlib.suppress(OSError, NotEncodable, RecursionError):
        PROGRAMS.write({entry: codec().to_bytes(program)})
    return program


@lru_cache(maxsize=1)
def codec() -> PlanCodec:
    """The codec of a program's classes: every dataclass and named tuple of three modules."""
    return PlanCodec(
        found
        for module in (program, expressions, diagnostics)
        for found in vars(module).values()
        if isinstance(found, type) and found.__module__ == module.__name__ and _is_plain(found)
    )


def _is_plain(found: Any) -> bool:
    return is_dataclass(found) or (issubclass(found, tuple) and hasattr(found, "_fields"))


def _entry(text: str, file: str) -> str | None:
    if PROGRAMS.path() is None:
        return None
    try:
        digest_of_sources = package_data.source_version(_PACKAGES, package_data.folder("grammar"))
    except (OSError, InternalError):
        return None
    return hashlib.sha256(repr((digest_of_sources, file, text)).encode()).hexdigest()[:40] + SUFFIX


def _unchanged(files: Mapping[str, tuple[str, ...]], main: str) -> bool:
    """True if imported files are unchanged; the standard library is part of einturnip."""
    for name, lines in files.items():
        if name != main and not name.startswith("std."):
            try:
                if tuple(normalize_newlines(read_text(name)).split("\n")) != lines:
                    return False
            except (OSError, UnicodeDecodeError):
                return False
    return True
