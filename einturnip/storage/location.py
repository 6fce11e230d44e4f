"""Parses ``FILE::KEY`` and URLs as users write them, opens regular files, and reads small JSON files."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from einturnip.core import regular_files
from einturnip.core.errors import BindError, StoreError
from einturnip.storage import file_format as formats

if TYPE_CHECKING:
    from einturnip.storage.file_format import FileFormat

MAX_JSON_NBYTES = 4 << 20
MAX_JSON_VALUES = 100_000
"""Of one metadata file; a value takes up to 250 bytes after parsing."""
INDEX = ".safetensors.index.json"
"""Suffix of a file that states the ``.safetensors`` file of each tensor of a model."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def split(spec: str) -> tuple[str, str | None]:
    """Split ``FILE::KEY``; an existing name is a file even if it contains ``::``."""
    path, separator, key = spec.partition("::")
    if not separator or os.path.exists(spec):
        return spec, None
    return path.strip(), key.strip()


def ending(path: str) -> str:
    """The suffix that names the format of a file or directory, in lower case."""
    return os.path.splitext(path.rstrip("/"))[1].lower()


def written(spec: str, name: str) -> str:
    """The spec that reads output ``name`` back from ``spec``: its name is the default key."""
    path, key = split(spec)
    found = formats.find(ending(path)) if key is None else None
    return f"{path}::{name}" if found is not None and found.has_keys else spec


def file_format(path: str, role: str, writing: bool = False) -> FileFormat:
    """The format of a file by its suffix; a model's directory or index has the format of its files.

    Raises:
        BindError: no format has this suffix, or it is read-only.
    """
    if is_url(path):
        return _remote_format(path, role, writing)
    suffix = ending(path)
    found = formats.find(suffix)
    if writing and found is not None and not found.writable:
        raise BindError(f"{role}: {path}: a {suffix} is read, not written; name a .safetensors file instead")
    if not writing and (path.endswith(INDEX) or found is None and os.path.isdir(path)):
        found = formats.find(".safetensors")
    if found is None:
        known = ", ".join(s for s in formats.suffixes() if not writing or _is_writable(s))
        fault = f"the ending {suffix!r} names no format" if suffix else "it has no ending, which would name its format"
        raise BindError(f"{role}: {path}: {fault}. help: name a file that ends with one of {known}")
    return found


def _is_writable(suffix: str) -> bool:
    found = formats.find(suffix)
    return found is not None and found.writable


def _remote_format(url: str, role: str, writing: bool) -> FileFormat:
    if writing:
        # An object store has no rename, so a run that fails while it publishes would leave a part of a Zarr directory.
        raise BindError(
            f"{role}: {url}: outputs are written to files, which appear complete or not at all; a remote store cannot "
            "promise that. help: name a file and upload it after the run"
        )
    found = formats.find_remote(suffix_of(url))
    if found is None:
        raise BindError(
            f"{role}: {url}: of remote stores, {' and '.join(formats.remote_suffixes())} are read, and the ending is "
            f"{suffix_of(url)!r}. help: copy it here, and name the file"
        )
    return found


def require_keys(found: FileFormat, path: str, role: str, spec: str) -> None:
    """Check that files of this format have keys, since ``spec`` names one.

    Raises:
        BindError: they hold one array each.
    """
    if not found.has_keys:
        raise BindError(f"{role}: {spec}: a {ending(path)} holds one array and has no keys; name {path} alone")


def open_file(path: str) -> tuple[int, int]:
    """Open a file for reading; returns its descriptor and size in bytes.

    Raises:
        BindError: there is no such file.
        StoreError: it cannot be read, or is not a regular file.
    """
    try:
        fd, status = open_regular(path)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error.strerror}; check the path and its permissions") from error
    # even the header's read would otherwise start the kernel's read-ahead, which then continues with later reads
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd, status.st_size


@contextmanager
def closed_on_error(path: str) -> Iterator[tuple[int, int]]:
    """Open a file as ``open_file`` does; close it if the block raises, otherwise leave it to the result."""
    fd, size = open_file(path)
    try:
        yield fd, size
    except BaseException:
        os.close(fd)
        raise


def no_such_file(path: str) -> BindError:
    """The error for a missing file."""
    if os.path.islink(path):
        return BindError(f"{path}: is a link to {os.readlink(path)}, and there is no such file")
    return BindError(f"{path}: there is no such file{_did_you_mean(path.rstrip('/'))}")


def _did_you_mean(path: str) -> str:
    folder, base = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return f"; neither is there a directory {folder!r}" if not os.path.isdir(folder) else ""
    close = difflib.get_close_matches(base, names, n=3, cutoff=0.6)
    if close:
        return "; did you mean " + " or ".join(os.path.join(folder, name) for name in close) + "?"
    stored = sorted(name for name in names if name.lower().endswith(formats.suffixes()))
    listed = ", ".join(stored[:6]) + (", ..." if len(stored) > 6 else "")
    return f"; {folder or 'the current directory'} holds {listed}" if stored else ""


def pick_key(path: str, key: str | None, keys: list[str], name: str) -> str:
    """The requested key, else the only one, else the one named like the input.

    Raises:
        BindError: the file has no such array, or several and the choice is ambiguous.
    """
    listed = ", ".join(keys[:12]) + (f", ... ({len(keys)} in all)" if len(keys) > 12 else "")
    if key is not None:
        if key in keys:
            return key
        close = difflib.get_close_matches(key, keys, n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise BindError(f"{path}::{key}: {path} holds no array {key!r}; {hint}it holds {listed or 'none'}")
    if len(keys) == 1:
        return keys[0]
    if name in keys:
        return name
    example = keys[0] if keys else "KEY"
    raise BindError(
        f"{path}: holds {len(keys)} arrays, and none is called {name!r} like the input: say which, "
        f"as in {path}::{example}. It holds: {listed or 'none'}"
    )


def is_url(path: str) -> bool:
    """Return whether a path names an object in a remote store."""
    return _URL.match(path) is not None


def suffix_of(url: str) -> str:
    """The suffix that names the format of an object, in lower case; a query after it does not count."""
    parts = urlsplit(url)
    return os.path.splitext((parts.netloc + parts.path).rstrip("/"))[1].lower()


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
