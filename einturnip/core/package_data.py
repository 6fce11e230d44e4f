"""Locates the project's data folders, ``grammar`` and ``kernels``."""

from __future__ import annotations

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
