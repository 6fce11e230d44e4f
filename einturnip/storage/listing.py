"""Lists the arrays in a file, and the metadata in its header."""

from __future__ import annotations

import os
from typing import Any

from einturnip.storage import location


def keys(path: str) -> tuple[str, ...] | None:
    """The names of the arrays in a file or directory; None for a single array without a name.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    ending = location.file_format(path, path)
    if ending == ".npy":
        return None
    if ending in (".safetensors", ".gguf"):
        from einturnip.storage.formats.containers import shards

        return tuple(shards(path).files)
    if ending == ".zarr":
        from einturnip.storage.formats.zarr import zarr_keys

        return zarr_keys(path)
    fd, _ = location.open_file(path)
    try:
        if ending in location.HDF5:
            from einturnip.storage.formats.hdf5 import hdf5_keys, library_errors, open_hdf5

            file, headers = open_hdf5(path, fd)
            with file, library_errors(path):
                return tuple(hdf5_keys(file, headers))
    finally:
        os.close(fd)
    from einturnip.storage.formats.npz import npz_keys

    return npz_keys(path)


def metadata(path: str) -> dict[str, Any]:
    """The metadata in the header of a ``.gguf`` or ``.safetensors`` file; empty for other files.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    if location.file_format(path, path) not in (".safetensors", ".gguf"):
        return {}
    from einturnip.storage.formats import gguf
    from einturnip.storage.formats.containers import read_header, shards

    model = shards(path)
    if not model.files:
        return {}
    file = next(iter(model.files.values()))
    if not file.lower().endswith(".gguf"):
        return dict(read_header(file).metadata)
    fd, size = location.open_file(file)
    try:
        return gguf.read_header(file, fd, size, whole=True).metadata
    finally:
        os.close(fd)
