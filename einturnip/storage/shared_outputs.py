"""Outputs that several processes write: one creates and publishes the file, the others attach to it."""

from __future__ import annotations

import os

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.formats.zarr_output import ZarrContainer, ZarrSink
from einturnip.storage.io.pages import DirtyPages
from einturnip.storage.io.unpublished_file import UnpublishedFile
from einturnip.storage.outputs.sinks import FileSink, FileSkeleton, OutputContainer
from einturnip.storage.types import Sink

Place = tuple[str, str, str, int, tuple[int, ...]]
"""The file as the user wrote it, its hidden name, the key, the first element's offset, the chunks.

The offset of an array in chunks, which are files of their own, is -1; chunks of a contiguous one are ().
"""


def share(sink: Sink) -> Place | None:
    """Return where other processes find an unfinished output; None for one that is not in a file."""
    if isinstance(sink, FileSink):
        container, key = sink.container, sink.key
        return container.path, os.path.abspath(container.file.share()), key, container.plan.begins[key], ()
    if isinstance(sink, ZarrSink):
        return sink.container.path, os.path.abspath(sink.container.root), sink.key, -1, sink.chunks
    return None


def chunks_of(sink: Sink) -> tuple[int, ...]:
    """Return the chunk shape of an unfinished output; () if it is contiguous."""
    return sink.chunks if isinstance(sink, ZarrSink) else ()


def attach(place: Place, name: str, shape: tuple[int, ...], dtype: DType) -> Sink:
    """Open an output that another process has shared. Its ``commit`` makes what was written here durable.

    Raises:
        StoreError: this process does not see the file.
    """
    path, hidden, key, begin, chunks = place
    if begin < 0:
        return ZarrSink(name, _AttachedFolder(path, hidden, {key: tuple(chunks)}), key, shape, dtype)
    return FileSink(name, _AttachedFile(path, hidden, {key: begin}), key, shape, dtype)


class _AttachedFile(OutputContainer):
    def __init__(self, path: str, hidden: str, begins: dict[str, int]) -> None:
        self.path, self.plan = path, FileSkeleton((), begins, 0)
        self.file = UnpublishedFile.attached(path, hidden)
        self.pages = DirtyPages(self.file.fd)

    def commit(self, key: str) -> None:
        try:
            os.fsync(self.file.fd)
        except OSError as error:
            raise self.file.explain(error) from error
        self.file.abort()


class _AttachedFolder(ZarrContainer):
    def __init__(self, path: str, hidden: str, chunks: dict[str, tuple[int, ...]]) -> None:
        self.chunks = chunks
        self.path, self.root, self.directory = path, hidden, os.path.dirname(hidden)
        try:
            self.fd = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(
                f"{path}: its folder {self.directory} is not the same disk here: {error.strerror}"
            ) from error

    def commit(self, key: str) -> None:
        try:
            self.sync()
        except OSError as error:
            raise self.explain(error) from error
        self.abort()

    def abort(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
