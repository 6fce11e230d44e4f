"""The table of file formats, by filename suffix.

An installed package adds a format with an entry point of the group ``einturnip.formats``, whose name is the suffix
without its dot and whose value is a ``FileFormat`` object.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from einturnip.core.entry_points import load, names
from einturnip.core.errors import StoreError

if TYPE_CHECKING:
    from einturnip.storage.file_format import FileFormat

GROUP = "einturnip.formats"

# suffix: (module under storage.formats, its FileFormat object)
_BUILT_IN = {
    ".npy": ("npy", "NPY"),
    ".npz": ("npz", "NPZ"),
    ".safetensors": ("model_files", "SAFETENSORS"),
    ".gguf": ("model_files", "GGUF"),
    ".zarr": ("zarr", "ZARR"),
    ".h5": ("hdf5", "HDF5"),
    ".hdf5": ("hdf5", "HDF5"),
}

# the same, for objects in remote stores
_REMOTE = {".npy": ("remote_files", "REMOTE_NPY"), ".zarr": ("remote_files", "REMOTE_ZARR")}


@cache
def find_remote(suffix: str) -> FileFormat | None:
    """The format of objects in remote stores with this suffix; None if there is none."""
    if suffix not in _REMOTE:
        return None
    module, attribute = _REMOTE[suffix]
    found: FileFormat = getattr(import_module(f"einturnip.storage.formats.{module}"), attribute)
    return found


@cache
def find(suffix: str) -> FileFormat | None:
    """The format of files with this suffix (lower case, with its dot); None if there is none.

    Raises:
        StoreError: an installed package registers the format, but its module fails.
    """
    if not suffix:
        return None
    if suffix in _BUILT_IN:
        module, attribute = _BUILT_IN[suffix]
        found: FileFormat = getattr(import_module(f"einturnip.storage.formats.{module}"), attribute)
        return found
    registered: FileFormat | None = load(GROUP, suffix.removeprefix("."), f"{suffix} files", StoreError)
    return registered


def remote_suffixes() -> tuple[str, ...]:
    """The suffixes of objects that are read from remote stores."""
    return tuple(_REMOTE)


def suffixes() -> tuple[str, ...]:
    """All known suffixes, those of einturnip first."""
    return (*_BUILT_IN, *(f".{name}" for name in names(GROUP) if f".{name}" not in _BUILT_IN))
