"""Locates the data folders ``grammar`` and ``kernels``, and tells versions of the sources apart."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from einturnip.core.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent.parent
# Folders of the checkout that have another place in the wheel.
INSTALLED = {"kernels": "kernels/cuda/headers"}


@cache
def folder(name: str) -> Path:
    """The data folder ``name``: inside the installed package, else in the checkout that holds this file.

    Raises:
        InternalError: the folder is in neither place.
    """
    installed = _PACKAGE / INSTALLED.get(name, name)
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise InternalError(f"the folder {name!r} is missing beside {_PACKAGE}")


def text(name: str, file: str) -> str:
    """The text of ``file`` in data folder ``name``."""
    return (folder(name) / file).read_text(encoding="utf-8")


@cache
def source_version(packages: tuple[str, ...], *more: Path) -> tuple[object, ...]:
    """Sizes and modification times of the source files that a cached value depends on.

    ``packages``: subpackages of einturnip; ``more``: other folders.
    """
    files, folders = [], [os.fspath(path) for path in (*(_PACKAGE / package for package in packages), *more)]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.name.endswith((".py", ".ein", ".lark", ".tables.json")):
                status = entry.stat()
                files.append((entry.path.removeprefix(f"{_PACKAGE}"), status.st_size, status.st_mtime_ns))
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    return sys.version_info[:2], *sorted(files)
