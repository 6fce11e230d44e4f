"""Files of one array, ``.npy``: a header, then elements that are read and written in place.

Source: NumPy Enhancement Proposal 1 and ``numpy.lib.format`` (versions 1.0, 2.0 and 3.0).
"""

from __future__ import annotations

import ast
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import BF16, DType, from_numpy
from einturnip.storage.file_format import FileFormat
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.layout import StridedLayout, c_layout, f_layout
from einturnip.storage.location import closed_on_error
from einturnip.storage.outputs.sinks import FileSkeleton, Tensors

MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 64 << 10  # numpy.load reads 10,000 bytes unless allow_pickle is set
_MAX_RANK = 64
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The content of a header; ``nbytes`` is the header's length, and the data follow directly."""

    shape: tuple[int, ...]
    dtype: DType
    fortran_order: bool
    swapped: bool
    nbytes: int


def read_header(read: Callable[[int, int], bytes], name: str) -> NpyHeader:
    """Parse the header; ``read(offset, nbytes)`` returns the available bytes of that range.

    Raises:
        StoreError: not a ``.npy``, damaged, or of an element type that the language lacks.
    """
    start = read(0, 12)
    if not start:
        raise StoreError(f"{name}: is empty, it has 0 bytes: copy or save it again")
    if start[:6] != MAGIC:
        raise StoreError(
            f"{name}: is no .npy array: it begins with {start[:6]!r}, not with {MAGIC!r}{_looks_like(start)}"
        )
    if len(start) < 12:
        raise StoreError(f"{name}: ends inside its header, after {len(start)} bytes: copy or save it again")
    version = start[6]
    if version not in (1, 2, 3):
        raise StoreError(f"{name}: is of .npy format version {version}; versions 1, 2 and 3 are known. Save it again")
    prefix, length = (10, struct.unpack_from("<H", start, 8)[0]) if version == 1 else (12, _u32(start, 8))
    if length > _HEADER_LIMIT:
        raise StoreError(
            f"{name}: says its header takes {length:,} bytes; einturnip reads at most {_HEADER_LIMIT:,}: "
            "the file is damaged"
        )
    raw = read(prefix, length)
    if len(raw) < length:
        raise StoreError(f"{name}: ends inside its header: needs {prefix + length} bytes, has {prefix + len(raw)}")
    try:
        header = ast.literal_eval(raw.decode("utf-8" if version == 3 else "latin-1").strip())
        shape, order, descr = tuple(header["shape"]), header["fortran_order"], header["descr"]
        if len(shape) > _MAX_RANK:
            raise ValueError(f"{len(shape):,} axes")
        if not all(type(n) is int and n >= 0 for n in shape) or not isinstance(order, bool):
            raise ValueError(f"shape {shape}, fortran_order {order}")
        stored = np.lib.format.descr_to_dtype(descr)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise StoreError(f"{name}: its .npy header cannot be read ({error}): the file is damaged") from error
    swapped = stored.byteorder == (">" if np.little_endian else "<")
    return NpyHeader(shape, element_type(stored, name), order, swapped, prefix + length)


def npy_layout(header: NpyHeader, offset: int) -> StridedLayout:
    """The layout of a ``.npy`` whose first byte is at ``offset``."""
    make = f_layout if header.fortran_order else c_layout
    return make(header.shape, header.dtype.itemsize, offset + header.nbytes)


def element_type(stored: np.dtype[Any], name: str) -> DType:
    """The language's element type for a stored dtype.

    Raises:
        StoreError: the language has none; the message suggests a remedy.
    """
    if stored.hasobject:
        raise StoreError(
            f"{name}: holds Python objects (pickled, dtype {stored}), and unpickling runs code from the file, so it is "
            "refused: save plain numbers instead, as in np.save(file, np.array(x, dtype=np.float64))"
        )
    try:
        return from_numpy(stored)
    except KeyError:
        pass
    if stored == np.dtype("V2"):
        help_text = "bf16 saved as .npy loses its type: save it as .safetensors, or as f32"
    elif stored.names:
        help_text = f"save its fields ({', '.join(stored.names)}) as arrays of their own"
    else:
        help_text = "convert it with .astype, for instance to np.float64, and save it again"
    raise StoreError(f"{name}: holds elements of dtype {stored}, which einturnip has no type for: {help_text}")


def make_header(shape: tuple[int, ...], dtype: DType, name: str) -> bytes:
    """Create a version 1.0 header for C order.

    Data of a MiB or more begin on a page, so that tiles of round sizes share no page with their neighbours.

    Raises:
        BindError: bf16, which NumPy's format cannot name.
    """
    if dtype == BF16:
        raise BindError(
            f"{name}: a .npy cannot say bf16: write the output to a .safetensors file, or cast it in the program, "
            "as in f32(x)"
        )
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype.numpy), "fortran_order": False, "shape": shape})
    nbytes = dtype.itemsize * math.prod(shape)
    align = _PAGE if nbytes >= 1 << 20 else 64
    padding = -(len(MAGIC) + 4 + len(text) + 1) % align
    body = text.encode("latin-1") + b" " * padding + b"\n"
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(body)) + body


def _u32(raw: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", raw, at)[0]
    return value


def _looks_like(start: bytes) -> str:
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "; it looks like an .npz (a zip): give it that ending"
    if start[:4] == b"\x89HDF":
        return "; it looks like HDF5"
    if start[:1] == b"\x80":
        return "; it looks like a pickle, which is refused: load it and np.save the array"
    return ""


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
