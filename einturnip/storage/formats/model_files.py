"""Files with several named tensors, and model directories that distribute them over several files."""

from __future__ import annotations

import itertools
import math
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import BindError, StoreError
from einturnip.storage.file_format import FileFormat
from einturnip.storage.formats import gguf, safetensors
from einturnip.storage.formats.dequantize import ExpandedSource
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.location import INDEX, closed_on_error, no_such_file, open_file, pick_key, read_json
from einturnip.storage.outputs.sinks import FileSkeleton, Tensors
from einturnip.storage.stacked import StackedSource
from einturnip.storage.types import Source

Header = gguf.GgufHeader | safetensors.SafetensorsHeader

_KEPT = 16
# The largest published models have 92,000 tensors, with an index of 9 MB.
_MAX_INDEX_NBYTES = 16 << 20
_MAX_INDEX_VALUES = 150_000
_kept: dict[tuple[str, int, int, int], Header] = {}


@dataclass(frozen=True, slots=True)
class ModelShards:
    """The file of each tensor of a published model."""

    path: str
    files: dict[str, str]


def read_header(path: str) -> Header:
    """The header of a ``.safetensors`` or ``.gguf`` file, cached for all its tensors.

    Raises:
        BindError: there is no such file. StoreError: it is damaged or truncated.
    """
    fd, size = open_file(path)
    try:
        status = os.fstat(fd)
        known = (path, status.st_ino, size, status.st_mtime_ns)
        header = _kept.get(known)
        if header is None:
            read = gguf.read_header if path.lower().endswith(".gguf") else safetensors.read_header
            header = _kept[known] = read(path, fd, size)
            for oldest in list(_kept)[:-_KEPT]:
                _kept.pop(oldest, None)  # another thread may have removed it
        return header
    finally:
        os.close(fd)


def shards(path: str) -> ModelShards:
    """Find the tensors in ``path``: a file, an index of files, or a directory with either.

    Raises:
        BindError: a directory without a model. StoreError: an index or a header cannot be read.
    """
    if os.path.isdir(path):
        path = _model_in(path)
    if not path.endswith(INDEX):
        return ModelShards(path, dict.fromkeys(_keys(read_header(path)), path))
    if not os.path.exists(path):
        raise no_such_file(path)
    try:
        named = read_json(path, _MAX_INDEX_NBYTES, _MAX_INDEX_VALUES)["weight_map"]
        folder = os.path.dirname(path)
        files = {str(key): sys.intern(os.path.join(folder, shard)) for key, shard in named.items()}
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error.strerror}; check the path and its permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path}: is no index of .safetensors files ({error!r}): it has no 'weight_map' of names and files"
        ) from error
    return ModelShards(path, files)


def stacked(model: ModelShards, shown: str, pattern: str) -> Source:
    """Stack tensors such as ``blk.*.attn_q.weight``: every star is a number and adds an axis in front.

    Raises:
        BindError: no key fits, numbers are missing between others, or the tensors differ in shape.
    """
    fits = re.compile(r"(\d+)".join(re.escape(piece) for piece in pattern.split("*")))
    found = {tuple(map(int, m.groups())): key for key in model.files if (m := fits.fullmatch(key))}
    if not found:
        pick_key(model.path, pattern, list(model.files), "")
    axes = [range(min(at), max(at) + 1) for at in zip(*found, strict=True)]
    for place in itertools.product(*axes):
        if place not in found:
            pieces = pattern.split("*")
            missing = "".join(itertools.chain(*zip(pieces, map(str, place), strict=False), pieces[-1:]))
            raise BindError(f"{shown}: {len(found)} tensors fit, but {missing} is missing between them")
    beside: dict[str, FileSource] = {}
    parts = list[Source]()
    try:
        parts.extend(_open(model, found[place], beside) for place in itertools.product(*axes))
        return StackedSource(shown, tuple(map(len, axes)), parts)
    except BaseException:
        for part in reversed(parts):
            part.close()
        raise


def _open(model: ModelShards, key: str, beside: dict[str, FileSource]) -> Source:
    path = model.files[key]
    try:
        header = read_header(path)
    except BindError as error:
        raise StoreError(f"{model.path}: {key} is in a missing file: {error}") from error
    if key not in _keys(header):
        raise StoreError(f"{model.path}: places {key} in {path}, which lacks it; fetch the files again")
    if path in beside:
        return header.source(key, beside[path].fd, beside[path])
    with closed_on_error(path) as (fd, _):
        source = header.source(key, fd)
    beside[path] = source.stored if isinstance(source, ExpandedSource) else source
    return source


def _keys(header: Header) -> list[str]:
    return list(header.entries)


def _model_in(path: str) -> str:
    """The file that represents a model's directory: its index, else the only file of weights."""
    names = sorted(os.listdir(path))
    for ending in (INDEX, ".safetensors", ".gguf"):
        found = [name for name in names if name.endswith(ending)]
        if len(found) == 1:
            return os.path.join(path, found[0])
        if found:
            raise BindError(f"{path}: holds {len(found)} files of weights: name one of {', '.join(found)}")
    raise BindError(f"{path}: is a directory without a model: it holds no *{INDEX}, no .safetensors and no .gguf file")


class SafetensorsFormat(FileFormat):
    """``.safetensors``: a file, an index of files, or a directory with either."""

    def source(self, path: str, key: str | None, name: str) -> Source:
        """Open the tensor ``key``; with stars in the key, all matching tensors stacked."""
        model = shards(path)
        if key is not None and "*" in key and key not in model.files:
            return stacked(model, f"{path}::{key}", key)
        picked = pick_key(path, key, list(model.files), name)
        return _open(model, picked, {})

    def keys(self, path: str) -> tuple[str, ...]:
        """The names of the tensors."""
        return tuple(shards(path).files)

    def metadata(self, path: str) -> dict[str, Any]:
        """The metadata in the header of the (first) file."""
        model = shards(path)
        if not model.files:
            return {}
        file = next(iter(model.files.values()))
        if not file.lower().endswith(".gguf"):
            return dict(read_header(file).metadata)
        fd, size = open_file(file)
        try:
            return gguf.read_header(file, fd, size, whole=True).metadata
        finally:
            os.close(fd)

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """The header, then the tensors, widest elements first."""
        header, begins = safetensors.make_header(path, tensors)
        nbytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in tensors.values())
        return FileSkeleton(((0, header),), begins, len(header) + nbytes)


class GgufFormat(SafetensorsFormat):
    """``.gguf``, which is only read."""

    writable = False


SAFETENSORS = SafetensorsFormat()
GGUF = GgufFormat()
