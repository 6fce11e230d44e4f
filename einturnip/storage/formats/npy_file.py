"""Files of one array, ``.npy``: elements are read and written in place."""

from __future__ import annotations

import math
import os

from einturnip.core.errors import StoreError
from einturnip.storage.file_format import FileFormat
from einturnip.storage.formats.npy import make_header, npy_layout, read_header
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.location import closed_on_error
from einturnip.storage.outputs.sinks import FileSkeleton, Tensors


class NpyFormat(FileFormat):
    """``.npy``, the format of ``numpy.save``."""

    has_keys = False

    def source(self, path: str, key: str | None, name: str) -> FileSource:
        """Open the array."""
        with closed_on_error(path) as (fd, size):
            try:
                header = read_header(lambda offset, nbytes: os.pread(fd, nbytes, offset), path)
            except OSError as error:
                raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
            layout = npy_layout(header, 0)
            needed = layout.offset + layout.nbytes
            if size < needed:
                raise StoreError(
                    f"{path}: is truncated: {header.dtype.name}{list(header.shape)} needs {needed} bytes, the file has "
                    f"{size}; copy it or save it again"
                )
            return FileSource(path, path, fd, layout, header.dtype, header.swapped)

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """The header, then the elements."""
        ((key, (shape, dtype)),) = tensors.items()
        header = make_header(shape, dtype, path)
        nbytes = len(header) + math.prod(shape) * dtype.itemsize
        return FileSkeleton(((0, header),), {key: len(header)}, nbytes)


NPY = NpyFormat()
