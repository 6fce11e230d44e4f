"""Opens sources and sinks from user specifications: a file, a key in it, an array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import BindError, StoreError
from einturnip.core.program_limits import is_addressable
from einturnip.ir.dtypes import DType
from einturnip.storage import file_format, location
from einturnip.storage.array_objects import object_source
from einturnip.storage.arrays import array_sink
from einturnip.storage.device_arrays import DeviceArray, gpu_of
from einturnip.storage.file_format import FileFormat
from einturnip.storage.outputs.sinks import Container, Tensors
from einturnip.storage.types import Sink, Source


def open_source(spec: Any, name: str) -> Source:
    """Open the stored tensor ``spec`` for the input ``name``.

    ``spec``: ``"x.npy"``, ``"x.npz::key"``, an array, or an object of another library (see ``array_objects``).

    Raises:
        StoreError: the file is damaged, truncated or of an element type that the language lacks.
        BindError: the spec names nothing that can be read.
    """
    if isinstance(spec, bytes) or not isinstance(spec, (str, os.PathLike)):
        number = gpu_of(spec)
        return object_source(spec, name) if number is None else DeviceArray(name, spec, number)
    source = _stored_source(spec, name)
    if not is_addressable(source.shape, source.dtype.itemsize):
        source.close()
        raise StoreError(
            f"{source.name}: says that its shape is {list(source.shape)}, which is larger than any file: it is damaged"
        )
    return source


def _stored_source(spec: str | os.PathLike[str], name: str) -> Source:
    path, key = location.split(os.fspath(spec))
    found = location.file_format(path, f"input {name}")
    if key is not None:
        location.require_keys(found, path, f"input {name}", os.fspath(spec))
    return found.source(path, key, name)


def keys(path: str) -> tuple[str, ...] | None:
    """The names of the arrays in a file or directory; None for a single array without a name.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    return location.file_format(path, path).keys(path)


def metadata(path: str) -> dict[str, Any]:
    """The metadata in the header of a file; empty for formats without any.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    return location.file_format(path, path).metadata(path)


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """An output and its target: a file (``FILE`` or ``FILE::KEY``.

    The default key is the name) or an array. ``chunks``: the chunk shape of a file in chunks, if it is not for the
    format to choose.
    """

    spec: Any
    name: str
    shape: tuple[int, ...]
    dtype: DType
    chunks: tuple[int, ...] = ()


def open_sinks(requests: Sequence[OutputRequest]) -> tuple[Sink, ...]:
    """Open sinks for all outputs of a run, in order.

    Outputs to one file share it. Allocates all disk space.

    Raises:
        StoreError: a disk is full or a directory fails; nothing remains.
        BindError: two outputs have the same target, a directory is missing, or a file format lacks an element type.
    """
    opened: dict[str, Container] = {}
    try:
        for target, (path, found, tensors) in _by_file(requests).items():
            chunks = {p[3]: r.chunks for r in requests if (p := _place(r)) and p[0] == target and r.chunks}
            opened[target] = found.container(path, tensors, chunks)
        return tuple(_sink(request, opened) for request in requests)
    except BaseException:
        for container in opened.values():
            container.abort()
        raise


def packages_nbytes(specs: Iterable[Any]) -> int:
    """Resident bytes that the packages for these files will take, without those that are loaded.

    Raises:
        StoreError: a package is missing; the message names it.
    """
    nbytes: dict[FileFormat, int] = {}
    for spec in specs:
        if isinstance(spec, (str, os.PathLike)):
            path = os.fspath(spec).partition("::")[0]
            found = file_format.find(location.ending(path))
            if found is not None and found not in nbytes:
                nbytes[found] = found.package_nbytes(path)
    return sum(nbytes.values())


def open_sink(spec: Any, name: str, shape: tuple[int, ...], dtype: DType) -> Sink:
    """Open the sink of a run's only output. Several arrays of one file need ``open_sinks``."""
    return open_sinks([OutputRequest(spec, name, shape, dtype)])[0]


def planned_offsets(requests: Sequence[OutputRequest]) -> tuple[int | None, ...]:
    """The offset of each output's first element in its file, without touching the disk; None for an array.

    Raises:
        BindError: as ``open_sinks``.
    """
    plans = {target: found.lay_out(path, tensors) for target, (path, found, tensors) in _by_file(requests).items()}
    offsets = list[int | None]()
    for request in requests:
        place = _place(request)
        offsets.append(None if place is None else plans[place[0]].begins[place[3]])
    return tuple(offsets)


def _sink(request: OutputRequest, opened: Mapping[str, Container]) -> Sink:
    place = _place(request)
    if place is None:
        return array_sink(request.spec, request.name, request.shape, request.dtype)
    target, _, _, key = place
    return opened[target].sink(os.fspath(request.spec), key, request.shape, request.dtype)


def _place(request: OutputRequest) -> tuple[str, str, FileFormat, str] | None:
    """(file, file as written, its format, key) of an output; None for an array."""
    spec = request.spec
    if isinstance(spec, bytes) or not isinstance(spec, (str, os.PathLike)):
        return None
    path, separator, key = os.fspath(spec).partition("::")
    found = location.file_format(path, f"output {request.name}", writing=True)
    if separator:
        location.require_keys(found, path, f"output {request.name}", os.fspath(spec))
    if separator and not key.strip():
        raise BindError(f"output {request.name}: {spec}: has no key after '::'")
    return os.path.realpath(path), path, found, key.strip() or request.name


def _by_file(requests: Sequence[OutputRequest]) -> dict[str, tuple[str, FileFormat, Tensors]]:
    files: dict[str, tuple[str, FileFormat, Tensors]] = {}
    writers: dict[tuple[str, str], str] = {}
    for request in requests:
        place = _place(request)
        if place is None:
            continue
        target, path, found, key = place
        _, _, tensors = files.setdefault(target, (path, found, {}))
        rival = writers.setdefault((target, key if found.has_keys else ""), request.name)
        if rival != request.name or key in tensors:
            raise BindError(
                f"outputs {rival} and {request.name} are both to be written to {request.spec}; name two places"
            )
        tensors[key] = (request.shape, request.dtype)
    return files
