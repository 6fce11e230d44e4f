"""Programs kept on disk beside the plans: a file is parsed and resolved once, and then by every process just read.

What is kept lies under the digest of the text, its file's name and einturnip itself; it holds the lines of what was
imported, which are looked at again. Reading it makes nothing but the dataclasses of a program: it is no door for code.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from einturnip.core import resources
from einturnip.core.dtypes import DTYPES, DType
from einturnip.core.errors import InternalError
from einturnip.lang import compile_text
from einturnip.lang.text import unified
from einturnip.lang.types import Program
from einturnip.planner import kept

SUFFIX = ".program"
# What a program is made of, and what of einturnip it depends on.
_MODULES = frozenset({"einturnip.lang.types", "einturnip.lang.expressions", "einturnip.core.diagnostics"})
_FLOORS = ("core", "lang")
# What reading bytes that are no program may end in.
_DAMAGED = (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, MemoryError, RecursionError)


def compile_kept(text: str, file: str) -> Program:
    """The program that a file's text means: as it was kept, or compiled now and kept.

    Raises:
        SourceError: as ``compile_text``.
    """
    path = _place(text, file)
    if path is None:
        return compile_text(text, file)
    with contextlib.suppress(*_DAMAGED, pickle.PickleError):
        program = _Reader(io.BytesIO(kept.read(path))).load()
        if isinstance(program, tuple) and _unchanged(program[3], program[1]):
            os.utime(path)
            return Program(*program)
    program = compile_text(text, file)
    _keep(path, program)
    return program


def _place(text: str, file: str) -> Path | None:
    folder = kept.folder()
    if folder is None:
        return None
    try:
        version = kept.version(_FLOORS, resources.folder("grammar"))
    except (OSError, InternalError):
        return None
    key = hashlib.sha256(repr((version, file, text)).encode()).hexdigest()[:40]
    return folder / "programs" / (key + SUFFIX)


def _unchanged(files: dict[str, tuple[str, ...]], main: str) -> bool:
    """Whether what was imported reads as it did; the standard library is part of einturnip."""
    for name, lines in files.items():
        if name != main and not name.startswith("std."):
            try:
                if tuple(unified(Path(name).read_text("utf-8")).split("\n")) != lines:
                    return False
            except (OSError, UnicodeDecodeError):
                return False
    return True


def _keep(path: Path, program: Program) -> None:
    held = io.BytesIO()
    told = (program.statements, program.file, program.source, dict(program.files), program.warnings)
    with contextlib.suppress(OSError, RecursionError, pickle.PickleError, TypeError, AttributeError):
        _Writer(held, protocol=5).dump(told)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept.write(path, [held.getvalue()], len(held.getvalue()))
        kept.prune(path.parent.parent)


class _Writer(pickle.Pickler):
    """Element types go by their names: there is one of each."""

    def persistent_id(self, value: Any) -> Any:
        return value.name if type(value) is DType else None


class _Reader(pickle.Unpickler):
    def persistent_load(self, name: Any) -> Any:
        return DTYPES[name]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "complex"):
            return complex
        found = getattr(import_module(module), name, None) if module in _MODULES else None
        plain = isinstance(found, type) and (is_dataclass(found) or hasattr(found, "_fields"))
        if plain and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a program")
