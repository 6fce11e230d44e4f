"""The interface of a file format, and the table of formats by filename suffix.

Each format is one subclass, with one object per suffix. An installed package adds a format with an entry point of the
group ``einturnip.formats``, whose name is the suffix without its dot and whose value is a ``FileFormat`` object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from einturnip.core.entry_points import load, names
from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.outputs.sinks import Container, FileSkeleton, OutputContainer, Tensors
from einturnip.storage.types import Source

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


class FileFormat(ABC):
    """Reads one file format and, if ``writable``, writes it.

    ``has_keys``: a file holds several arrays with names, as in ``FILE::KEY``.
    """

    has_keys = True
    writable = True

    @abstractmethod
    def source(self, path: str, key: str | None, name: str) -> Source:
        """Open one array of a file for the input ``name``.

        Raises:
            StoreError: the file is damaged, truncated or of an element type that the language lacks.
            BindError: there is no such file, or no such array in it.
        """

    def keys(self, path: str) -> tuple[str, ...] | None:
        """The names of the arrays in a file; None for a single array without a name.

        Raises:
            BindError: there is no such file. StoreError: it cannot be read.
        """
        return None

    def metadata(self, path: str) -> dict[str, Any]:
        """The metadata in the file's header.

        Raises:
            BindError: there is no such file. StoreError: it cannot be read.
        """
        return {}

    def package_nbytes(self, path: str) -> int:
        """Resident bytes that loading the format's package will take; 0 if it is loaded, or there is none.

        Raises:
            StoreError: the package is missing; the message names it.
        """
        return 0

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """Place the arrays in a file, without touching the disk.

        Raises:
            BindError: an element type or a key that the format lacks.
        """
        raise BindError(f"{path}: this format is read, not written")

    def container(self, path: str, tensors: Tensors, chunks: Mapping[str, tuple[int, ...]]) -> Container:
        """Create the file, with all its disk space, under a temporary name.

        ``chunks``: by key, the chunk shape of an array; by default that of ``output_chunks``.

        Raises:
            StoreError: the disk is full or the directory fails; nothing remains. BindError: as ``lay_out``.
        """
        return OutputContainer(path, self.lay_out(path, tensors), tensors)

    def output_chunks(self, shape: tuple[int, ...], dtype: DType, periods: Sequence[int] = ()) -> tuple[int, ...]:
        """The chunk shape of a written array; () for a contiguous one.

        ``periods``: by axis, a distance that the extent of chunks must divide; 0 for any.
        """
        return ()


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
