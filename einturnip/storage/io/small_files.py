"""Opens regular files only, and reads small JSON files."""

from __future__ import annotations

import json
import os
from typing import Any

from einturnip.core import regular_files
from einturnip.core.errors import StoreError

MAX_JSON_NBYTES = 4 << 20
MAX_JSON_VALUES = 100_000
"""Of one metadata file; a value takes up to 250 bytes after parsing."""


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; returns its descriptor and status.

    Raises:
        OSError: it cannot be opened. StoreError: it is not a regular file.
    """
    try:
        return regular_files.open_regular(path)
    except (IsADirectoryError, regular_files.NotRegular) as error:
        is_folder = isinstance(error, IsADirectoryError)
        kind = "a directory" if is_folder else "not a regular file (a pipe or a device)"
        raise StoreError(f"{path}: is {kind}; einturnip reads regions of regular files, so name one") from None


def read_json(path: str, max_nbytes: int = MAX_JSON_NBYTES, max_values: int = MAX_JSON_VALUES) -> Any:
    """Read the value in a JSON file.

    Raises:
        OSError: it cannot be opened. StoreError: it is not a regular file, or larger than metadata may be.
        ValueError: it is not JSON.
    """
    fd, status = open_regular(path)
    with os.fdopen(fd, "rb") as file:
        if status.st_size > max_nbytes:
            raise StoreError(
                f"{path}: has {status.st_size:,} bytes; einturnip reads at most {max_nbytes:,} of metadata"
            )
        text = file.read(max_nbytes)
    values = sum(map(text.count, (b",", b"[", b"{")))
    if values > max_values:
        raise StoreError(f"{path}: its metadata hold {values:,} values; einturnip reads at most {max_values:,}")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
