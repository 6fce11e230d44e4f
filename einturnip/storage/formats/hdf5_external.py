"""Permission to read other files from which an HDF5 file takes its data.

These are external links, external storage and virtual datasets. Otherwise a file from a stranger could present any file
of its reader as its own data.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from einturnip.core.errors import StoreError

_allowed: ContextVar[bool] = ContextVar("allow_external", default=False)
_MAX_NAMED = 3


def is_allowed() -> bool:
    """True if files named by another file may be read."""
    return _allowed.get()


@contextmanager
def external_files_allowed(allow: bool) -> Iterator[None]:
    """Context in which this thread may open inputs with data in other files, if ``allow``."""
    token = _allowed.set(allow or _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(token)


def require_allowed(shown: str, kind: str, files: Iterable[str], folder: str) -> None:
    """Refuse a dataset with data in other files, unless these are allowed and are regular files.

    Raises:
        StoreError: names the dataset, the files and the option.
    """
    names = list(dict.fromkeys(files))
    if not is_allowed():
        listed = ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if names[_MAX_NAMED:] else "")
        raise StoreError(
            f"{shown}: is {kind}, with data in {listed or 'other files'}; einturnip reads files that a file names only "
            "where you allow it. help: if you trust the file, add --allow-external, in Python allow_external=True"
        )
    for name in names:
        for place in (os.path.join(folder, name), name):
            if os.path.exists(place) and not stat.S_ISREG(os.stat(place).st_mode):
                raise StoreError(f"{shown}: has data in {name}, which is not a regular file")
