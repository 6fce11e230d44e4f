"""``FILE::KEY`` as users write it, and the file behind it."""

from __future__ import annotations

import difflib
import os

from einturnip.core.errors import BindError, StoreError
from einturnip.storage.io.small_files import open_regular

HDF5 = (".h5", ".hdf5")
FORMATS = (".npy", ".npz", ".safetensors", ".gguf", ".zarr", *HDF5)
CONTAINERS = FORMATS[1:]
READ_ONLY = (".gguf",)
INDEX = ".safetensors.index.json"
"""The end of the name of a file that says in which ``.safetensors`` each tensor of a model lies."""


def split(spec: str) -> tuple[str, str | None]:
    """The file and the key of ``FILE::KEY``; a name that exists as it stands is a file, whatever it contains."""
    path, separator, key = spec.partition("::")
    if not separator or os.path.exists(spec):
        return spec, None
    return path.strip(), key.strip()


def ending(path: str) -> str:
    """What names the format of a file or a directory: the end of its name, in small letters."""
    return os.path.splitext(path.rstrip("/"))[1].lower()


def written(spec: str, name: str) -> str:
    """How to read again what output ``name`` wrote to ``spec``: in a container without a key its name is the key."""
    path, key = split(spec)
    return f"{path}::{name}" if key is None and ending(path) in CONTAINERS else spec


def file_format(path: str, role: str, writing: bool = False) -> str:
    """The format that the file's ending names; a model's directory or index is of the format of its files.

    Raises:
        BindError: no format has this ending, or it is not written.
    """
    found = ending(path)
    if writing and found in READ_ONLY:
        raise BindError(f"{role}: {path}: a {found} is read, not written; name a .safetensors file instead")
    if not writing and (path.endswith(INDEX) or found not in FORMATS and os.path.isdir(path)):
        return ".safetensors"
    if found in FORMATS:
        return found
    raise BindError(f"{role}: {path}: the ending {found!r} names no format that einturnip knows: {', '.join(FORMATS)}")


def open_file(path: str) -> tuple[int, int]:
    """A descriptor to read from and the file's size in bytes.

    Raises:
        BindError: there is no such file.
        StoreError: it cannot be read, or it is no regular file.
    """
    try:
        fd, status = open_regular(path)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error.strerror}; check the path and its permissions") from error
    # even the header's read would otherwise plant the kernel's read-ahead, which then runs along every later read
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd, status.st_size


def no_such_file(path: str) -> BindError:
    """What to tell of a name that nothing has."""
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
    stored = sorted(name for name in names if name.lower().endswith(FORMATS))
    listed = ", ".join(stored[:6]) + (", ..." if len(stored) > 6 else "")
    return f"; {folder or 'the current directory'} holds {listed}" if stored else ""


def pick_key(path: str, key: str | None, keys: list[str], name: str) -> str:
    """The key asked for, else the only one, else the one called like the input.

    Raises:
        BindError: the file holds no such array, or several and the choice is open.
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
