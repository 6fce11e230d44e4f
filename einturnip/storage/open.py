"""Opens sources and sinks from user specifications: a file, a key in it, an array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from einturnip.core.errors import BindError, StoreError
from einturnip.core.program_limits import is_addressable
from einturnip.ir.dtypes import DType
from einturnip.storage import location
from einturnip.storage.arrays import array_sink, array_source
from einturnip.storage.formats.npy import read_header
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.outputs.sinks import FileSink, OutputContainer, Tensors, plan_file
from einturnip.storage.types import Sink, Source

if TYPE_CHECKING:
    from einturnip.storage.outputs.zarr_container import ZarrContainer


def open_source(spec: Any, name: str, directory: str | None = None) -> Source:
    """Open the stored tensor ``spec`` for the input ``name``: ``"x.npy"``, ``"x.npz::key"`` or an array.

    ``directory`` is for unpacked data; by default the system's temporary directory (never one in memory).

    Raises:
        StoreError: the file is damaged, truncated or of an element type that the language lacks.
        BindError: the spec names nothing that can be read.
    """
    if isinstance(spec, bytes) or not isinstance(spec, (str, os.PathLike)):
        return array_source(spec, name)
    source = _stored_source(spec, name, directory)
    if not is_addressable(source.shape, source.dtype.itemsize):
        source.close()
        raise StoreError(
            f"{source.name}: says that its shape is {list(source.shape)}, which is larger than any file: it is damaged"
        )
    return source


def _stored_source(spec: str | os.PathLike[str], name: str, directory: str | None) -> Source:
    path, key = location.split(os.fspath(spec))
    ending = location.file_format(path, f"input {name}")
    if key is not None and ending not in location.CONTAINERS:
        raise BindError(f"input {name}: {spec}: a {ending} holds one array and has no keys; name {path} alone")
    if ending in (".safetensors", ".gguf"):
        from einturnip.storage.formats.containers import container_source

        return container_source(path, key, name)
    if ending == ".zarr":
        from einturnip.storage.formats.zarr import zarr_source

        return zarr_source(path, key, name)
    fd, size = location.open_file(path)
    try:
        if ending == ".npy":
            return _npy_source(path, fd, size)
        if ending in location.HDF5:
            from einturnip.storage.formats.hdf5 import hdf5_source

            return hdf5_source(path, key, name, fd, size)
        from einturnip.storage.formats.npz import npz_source
        from einturnip.storage.io.unpublished_file import default_directory

        return npz_source(path, key, name, fd, size, directory or default_directory())
    except BaseException:
        os.close(fd)
        raise


def _npy_source(path: str, fd: int, size: int) -> FileSource:
    from einturnip.storage.formats.npz import npy_layout

    try:
        header = read_header(lambda offset, nbytes: os.pread(fd, nbytes, offset), path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    layout = npy_layout(header, 0)
    needed = layout.offset + layout.nbytes
    if size < needed:
        raise StoreError(
            f"{path}: is truncated: {header.dtype.name}{list(header.shape)} needs {needed} bytes, the file has {size}; "
            "copy it or save it again"
        )
    return FileSource(path, path, fd, layout, header.dtype, header.swapped)


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """An output and its target: a file (``FILE`` or ``FILE::KEY``.

    The default key is the name) or an array.
    """

    spec: Any
    name: str
    shape: tuple[int, ...]
    dtype: DType


def open_sinks(requests: Sequence[OutputRequest]) -> tuple[Sink, ...]:
    """Open sinks for all outputs of a run, in order.

    Outputs to one file share it. Allocates all disk space.

    Raises:
        StoreError: a disk is full or a directory fails; nothing remains.
        BindError: two outputs have the same target, a directory is missing, or a file format lacks an element type.
    """
    opened: dict[str, OutputContainer | ZarrContainer] = {}
    try:
        files = _by_file(requests)
        for target, (path, ending, tensors) in files.items():
            opened[target] = _container(path, ending, tensors)
        return tuple(_sink(request, opened) for request in requests)
    except BaseException:
        for container in opened.values():
            container.abort()
        raise


def load_formats(specs: Iterable[Any]) -> None:
    """Load the packages for writing to these files, so that they are resident before a budget is computed.

    Raises:
        StoreError: a package is missing; the message names it.
    """
    for spec in specs:
        if isinstance(spec, (str, os.PathLike)) and os.fspath(spec).partition("::")[0].lower().endswith(location.HDF5):
            from einturnip.storage.formats.hdf5 import lay_out

            lay_out(os.fspath(spec), {})


def open_sink(spec: Any, name: str, shape: tuple[int, ...], dtype: DType) -> Sink:
    """Open the sink of a run's only output. Several arrays of one file need ``open_sinks``."""
    return open_sinks([OutputRequest(spec, name, shape, dtype)])[0]


def planned_offsets(requests: Sequence[OutputRequest]) -> tuple[int | None, ...]:
    """The offset of each output's first element in its file, without touching the disk; None for an array.

    Raises:
        BindError: as ``open_sinks``.
    """
    plans = {target: plan_file(*request) for target, request in _by_file(requests).items()}
    offsets = list[int | None]()
    for request in requests:
        place = _place(request)
        offsets.append(None if place is None else plans[place[0]].begins[place[3]])
    return tuple(offsets)


def _container(path: str, ending: str, tensors: Tensors) -> OutputContainer | ZarrContainer:
    if ending != ".zarr":
        return OutputContainer(path, ending, tensors)
    from einturnip.storage.outputs.zarr_container import ZarrContainer

    return ZarrContainer(path, tensors)


def _sink(request: OutputRequest, opened: Mapping[str, OutputContainer | ZarrContainer]) -> Sink:
    place = _place(request)
    if place is None:
        return array_sink(request.spec, request.name, request.shape, request.dtype)
    target, _, _, key = place
    name, container = os.fspath(request.spec), opened[target]
    if isinstance(container, OutputContainer):
        return FileSink(name, container, key, request.shape, request.dtype)
    from einturnip.storage.outputs.zarr_sink import ZarrSink

    return ZarrSink(name, container, key, request.shape, request.dtype)


def _place(request: OutputRequest) -> tuple[str, str, str, str] | None:
    """(file, file as written, its suffix, key) of an output; None for an array."""
    spec = request.spec
    if isinstance(spec, bytes) or not isinstance(spec, (str, os.PathLike)):
        return None
    path, separator, key = os.fspath(spec).partition("::")
    ending = location.file_format(path, f"output {request.name}", writing=True)
    if separator and ending not in location.CONTAINERS:
        raise BindError(f"output {request.name}: {spec}: a {ending} holds one array and has no keys; name {path} alone")
    if separator and not key.strip():
        raise BindError(f"output {request.name}: {spec}: has no key after '::'")
    return os.path.realpath(path), path, ending, key.strip() or request.name


def _by_file(requests: Sequence[OutputRequest]) -> dict[str, tuple[str, str, Tensors]]:
    files: dict[str, tuple[str, str, Tensors]] = {}
    writers: dict[tuple[str, str], str] = {}
    for request in requests:
        place = _place(request)
        if place is None:
            continue
        target, path, ending, key = place
        _, _, tensors = files.setdefault(target, (path, ending, {}))
        rival = writers.setdefault((target, key if ending in location.CONTAINERS else ""), request.name)
        if rival != request.name or key in tensors:
            raise BindError(
                f"outputs {rival} and {request.name} are both to be written to {request.spec}; name two places"
            )
        tensors[key] = (request.shape, request.dtype)
    return files
