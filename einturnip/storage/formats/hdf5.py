"""Datasets of HDF5 files; contiguous ones, as einturnip writes them, are accessed directly.

Source: the HDF5 file format specification; h5py reports the offset of a dataset's data.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from einturnip.core.errors import BindError, EinturnipError, StoreError
from einturnip.core.program_limits import require_room
from einturnip.ir.dtypes import from_numpy
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.file_format import FileFormat
from einturnip.storage.formats.hdf5_chunks import Hdf5Chunks
from einturnip.storage.formats.hdf5_external import require_allowed
from einturnip.storage.formats.hdf5_headers import Hdf5Headers
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.layout import c_layout
from einturnip.storage.location import closed_on_error, open_file, pick_key
from einturnip.storage.outputs.sinks import FileSkeleton, Tensors
from einturnip.storage.types import Array, Region, Source, slices

_PAGE = 4096
_LARGE_NBYTES = 1 << 20
_CACHE_NBYTES = 1 << 20
_LIBRARY_COPIES = 3
_LIBRARY_NBYTES = 15 << 20  # h5py 3.16 takes 14.4 MiB
_MAX_LINKS = 32
MAX_OBJECTS = 50_000


def _library(path: str) -> Any:
    if "h5py" not in sys.modules:
        require_room(_LIBRARY_NBYTES, "the package h5py")
    try:
        return import_module("h5py")
    except ImportError:
        raise _missing(path) from None


def _missing(path: str) -> StoreError:
    return StoreError(
        f"{path}: HDF5 files need the package h5py, which is not installed: pip install 'einturnip[hdf5]'"
    )


def hdf5_source(path: str, key: str | None, name: str, fd: int, size: int, links: int = 0) -> Source:
    """Open the dataset ``key`` (its path in the file) of an open file; takes over ``fd``.

    ``links``: number of external links followed so far.

    Raises:
        StoreError: damaged, truncated, of an element type that the language lacks, or h5py is missing.
        BindError: no such dataset.
    """
    file, headers = open_hdf5(path, fd)
    try:
        with library_errors(path):
            asked = None if key is None else key.strip("/")
            linked = None if asked is None else _elsewhere(file, path, asked, headers)
            if linked is not None:
                source = _linked(*linked, name, links + 1)
            elif asked is not None and isinstance(file.get(asked), _library(path).Dataset):
                source = _dataset_source(file, path, asked, fd, size)  # without listing all datasets
            else:
                source = _dataset_source(file, path, pick_key(path, asked, hdf5_keys(file, headers), name), fd, size)
    except BaseException:
        file.close()
        raise
    if linked is not None:
        os.close(fd)
    if linked is not None or isinstance(source, FileSource):
        file.close()
    return source


@contextmanager
def library_errors(path: str) -> Iterator[None]:
    """Context that reports the library's errors about a file's content as a damaged file.

    Raises:
        StoreError: h5py could not read the file.
    """
    try:
        yield
    except EinturnipError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        said = error.args[0] if error.args else error
        raise StoreError(f"{path}: the HDF5 library cannot read it ({said}): the file is damaged") from error


def _linked(path: str, key: str, name: str, links: int) -> Source:
    """Open the dataset in another file to which an external link points."""
    if links > _MAX_LINKS:
        raise StoreError(f"{path}::{key}: leads through more than {_MAX_LINKS} links: the file is damaged")
    with closed_on_error(path) as (fd, size):
        return hdf5_source(path, key, name, fd, size, links)


def open_hdf5(path: str, fd: int) -> tuple[Any, Hdf5Headers]:
    """Open a file in h5py, with the check of its headers; it is also open as ``fd``.

    Raises:
        StoreError: it is damaged, h5py is missing, or the root's header is too large.
    """
    h5py, headers = _library(path), Hdf5Headers(path, fd)
    headers.require_root()
    try:
        return h5py.File(path, "r", rdcc_nbytes=_CACHE_NBYTES), headers
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{path}: is no whole HDF5 file ({error}); copy or save it again") from error


def hdf5_keys(file: Any, headers: Hdf5Headers) -> list[str]:
    """The paths of all datasets without duplicates.

    Raises:
        StoreError: the file has too many objects, or a header is too large.
    """
    h5py = import_module("h5py")
    found, seen, groups = list[bytes](), set[int](), [b""]
    while groups:
        group = groups.pop()
        here = list[tuple[bytes, int]]()

        def listed(name: bytes, link: Any, here: list[tuple[bytes, int]] = here) -> bool | None:
            if link.type == h5py.h5l.TYPE_HARD:
                here.append((name, link.u))
            return True if len(seen) + len(here) > MAX_OBJECTS else None

        opened = h5py.h5g.open(file.id, group) if group else file.id
        opened.links.iterate(listed, info=True)
        if len(seen) + len(here) > MAX_OBJECTS:
            raise StoreError(
                f"{file.filename}: holds more than {MAX_OBJECTS:,} objects: name a dataset, as in FILE::KEY"
            )
        for name, address in here:
            if address in seen:
                continue
            seen.add(address)
            headers.require(address, alone=True)
            key = group + b"/" + name if group else name
            kind = h5py.h5o.get_info(file.id, key).type
            if kind == h5py.h5o.TYPE_DATASET:
                found.append(key)
            elif kind == h5py.h5o.TYPE_GROUP:
                groups.append(key)
    return [key.decode("utf-8", "surrogateescape") for key in sorted(found, key=lambda key: key.split(b"/"))]


def _elsewhere(file: Any, path: str, key: str, headers: Hdf5Headers) -> tuple[str, str] | None:
    """The file and key of an external link on the path ``key``; None if there is none.

    Raises:
        StoreError: there is one, and other files are not allowed; or a header on the path is too large.
    """
    h5py = _library(path)
    at, left, links = "/", [part for part in key.split("/") if part not in ("", ".")], 0
    while left:
        at = f"{at.rstrip('/')}/{left.pop(0)}"
        link = file.get(at, getlink=True)
        if isinstance(link, h5py.HardLink):
            headers.require(file.id.links.get_info(os.fsencode(at)).u)
        if isinstance(link, h5py.ExternalLink):
            folder = os.path.dirname(path)
            require_allowed(f"{path}::{key}", "an external link", [link.filename], folder)
            beside = os.path.join(folder, link.filename)
            return beside if os.path.exists(beside) else link.filename, "/".join([link.path.strip("/"), *left])
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > _MAX_LINKS:
                raise StoreError(f"{path}::{key}: leads through more than {_MAX_LINKS} links: the file is damaged")
            base = "/" if link.path.startswith("/") else at.rpartition("/")[0]
            at, left = base or "/", [part for part in link.path.split("/") if part not in ("", ".")] + left
    return None


def _require_own_data(dataset: Any, shown: str, path: str) -> None:
    """Refuse a dataset whose elements are in other files, before the library opens those.

    Raises:
        StoreError: they are, and other files are not allowed.
    """
    plist = dataset.id.get_create_plist()
    if plist.get_layout() == _library(path).h5d.VIRTUAL:
        named = [plist.get_virtual_filename(i) for i in range(plist.get_virtual_count())]
        require_allowed(shown, "a virtual dataset", (n for n in named if n != "."), os.path.dirname(path))
    elif count := plist.get_external_count():
        named = [os.fsdecode(plist.get_external(i)[0]) for i in range(count)]
        require_allowed(shown, "a dataset with external storage", named, os.path.dirname(path))


def _dataset_source(file: Any, path: str, key: str, fd: int, size: int) -> Source:
    dataset, shown = file[key], f"{path}::{key}"
    _require_own_data(dataset, shown, path)
    if dataset.shape is None:
        raise StoreError(f"{shown}: is an empty dataset without a shape")
    try:
        dtype = from_numpy(dataset.dtype)
    except KeyError:
        raise StoreError(
            f"{shown}: holds {dataset.dtype} elements, which einturnip has no type for; convert it, for instance to f32"
        ) from None
    swapped = not dataset.dtype.isnative
    begin = dataset.id.get_offset()
    if begin is not None and dataset.chunks is None and dataset.external is None and not file.userblock_size:
        layout = c_layout(dataset.shape, dtype.itemsize, begin)
        if size < begin + layout.nbytes:
            raise StoreError(f"{path}: is truncated: {key} needs {begin + layout.nbytes} bytes, the file has {size}")
        return FileSource(shown, path, fd, layout, dtype, swapped)

    def read(region: Region, out: Array) -> None:
        try:
            out[...] = dataset[slices(region)]
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{shown}: a part cannot be read ({error}): the file is damaged") from error

    def close() -> None:
        file.close()
        os.close(fd)

    if dataset.chunks is None:
        row = _rows(dataset.shape)
        held = _LIBRARY_COPIES * math.prod(row) * dtype.itemsize
        return ChunkedSource(shown, dataset.shape, dtype, row, read, close, held, fd)
    same = dataset.id.get_type() == _library(path).h5t.py_create(dataset.dtype, logical=True)
    chunks = Hdf5Chunks(dataset, same, shown, fd)

    def close_all() -> None:
        chunks.close()
        close()

    return ChunkedSource(shown, dataset.shape, dtype, dataset.chunks, chunks.read, close_all, chunks.reading_nbytes, fd)


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The chunk shape for reading a dataset in another file or in the header: one row."""
    return (*(1 for _ in shape[:-1]), *shape[-1:])


class _Recorded(io.RawIOBase):
    """A file that keeps only the written pages: HDF5's description of the datasets, without their data."""

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self.size = self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        for page, within, at, n in self._touched(view.nbytes):
            view[at : at + n] = self.pages.get(page, bytes(_PAGE))[within : within + n]
        self._at += view.nbytes
        return view.nbytes

    def write(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        for page, within, at, n in self._touched(view.nbytes):
            self.pages.setdefault(page, bytearray(_PAGE))[within : within + n] = view[at : at + n]
        self._at += view.nbytes
        self.size = max(self.size, self._at)
        return view.nbytes

    def _touched(self, nbytes: int) -> list[tuple[int, int, int, int]]:
        pieces, at = [], 0
        while at < nbytes:
            page, within = divmod(self._at + at, _PAGE)
            n = min(nbytes - at, _PAGE - within)
            pieces.append((page, within, at, n))
            at += n
        return pieces


def lay_out(path: str, tensors: Tensors) -> FileSkeleton:
    """Lay out a file: the bytes around the data, the offset of each dataset, and the file's size.

    Large datasets begin on a page.

    Raises:
        BindError: an element type or a key that the format lacks. StoreError: h5py is missing.
    """
    h5py, recorded = _library(path), _Recorded()
    begins: dict[str, int] = {}
    with h5py.File(recorded, "w", alignment_threshold=_LARGE_NBYTES, alignment_interval=_PAGE) as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_layout(h5py.h5d.CONTIGUOUS)
        made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        linked = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        linked.set_create_intermediate_group(True)
        for key, (shape, dtype) in tensors.items():
            if dtype.name == "bf16":
                raise BindError(f"{path}::{key}: HDF5 has no bf16; write to .safetensors, or f32(x) in the program")
            try:
                kind, space = h5py.h5t.py_create(dtype.numpy, logical=True), h5py.h5s.create_simple(shape)
                dataset = h5py.h5d.create(file.id, key.strip("/").encode(), kind, space, made, linked)
            except (ValueError, RuntimeError, OSError) as error:
                raise BindError(f"{path}::{key}: HDF5 cannot hold an array of this name ({error})") from error
            begins[key] = dataset.get_offset() or 0
    size = max(
        [recorded.size, *(begins[k] + math.prod(shape) * dtype.itemsize for k, (shape, dtype) in tensors.items())]
    )
    pieces = tuple((page * _PAGE, bytes(data[: size - page * _PAGE])) for page, data in sorted(recorded.pages.items()))
    return FileSkeleton(pieces, begins, size)


class Hdf5Format(FileFormat):
    """``.h5`` and ``.hdf5``, with the package h5py."""

    def source(self, path: str, key: str | None, name: str) -> Source:
        """Open the dataset ``key``, its path in the file."""
        with closed_on_error(path) as (fd, size):
            return hdf5_source(path, key, name, fd, size)

    def keys(self, path: str) -> tuple[str, ...]:
        """The paths of all datasets."""
        fd, _ = open_file(path)
        try:
            file, headers = open_hdf5(path, fd)
            with file, library_errors(path):
                return tuple(hdf5_keys(file, headers))
        finally:
            os.close(fd)

    def package_nbytes(self, path: str) -> int:
        """Resident bytes of h5py and of the HDF5 library."""
        if "h5py" in sys.modules:
            return 0
        if find_spec("h5py") is None:
            raise _missing(path)
        return _LIBRARY_NBYTES

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """Contiguous datasets."""
        return lay_out(path, tensors)


HDF5 = Hdf5Format()
