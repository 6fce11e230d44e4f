"""Inputs and outputs of a run on workers: shared files, and arrays in the coordinator's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, InternalError
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import DType
from einturnip.memgraph.types import FILES, Lane, MemGraph, Op, OpKind
from einturnip.planner.request import file_layout
from einturnip.sites.part import SitePart
from einturnip.storage.arrays import ArraySource
from einturnip.storage.formats.remote_files import remote_version
from einturnip.storage.generated import RandomSource, SummarySink, _GeneratedTensor
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.location import is_url
from einturnip.storage.open import open_source
from einturnip.storage.placed_chunks import PlacedSource
from einturnip.storage.shared_outputs import attach, share
from einturnip.storage.slice import SliceSource
from einturnip.storage.types import Array, Region, Sink, Source, expanded_to
from einturnip.tiling.file_layout import FileLayout

Place = tuple[Any, ...]
"""Where a worker finds a tensor: plain values, the first of which names the kind."""

AT_COORDINATOR: Place = ("coordinator",)
"""In the coordinator's memory: workers fetch and offer its tiles."""


class CoordinatorTensor(_GeneratedTensor):
    """A tensor in the coordinator's memory, as the planner and the workers see it.

    ``fetch``: returns the bytes of a tile, by the number of an op of the whole plan that moves it. ``numbers``: this
    number by region.
    """

    fetch: Callable[[int], Any] | None = None
    numbers: Mapping[Region, int] = {}

    def connected(self, fetch: Callable[[int], Any], numbers: Mapping[Region, int]) -> CoordinatorTensor:
        """Set how tiles are fetched, and return the tensor."""
        object.__setattr__(self, "fetch", fetch)
        object.__setattr__(self, "numbers", numbers)
        return self

    def read(self, region: Region, out: Array) -> int:
        """Fetch a tile."""
        if self.fetch is None:
            raise InternalError(f"{self.name} is not connected")
        data = np.frombuffer(self.fetch(self.numbers[region]), np.uint8)
        copy_blocked(out, data.view(out.dtype).reshape(out.shape))
        return int(data.nbytes)


class CoordinatorSink(CoordinatorTensor):
    """An output in the coordinator's memory. ``offered``: by number, the tiles that it may fetch now."""

    offered: dict[int, Array]
    offer: Callable[[int], None]

    def write(self, region: Region, array: Array) -> int:
        """Let the coordinator fetch a tile."""
        number = self.numbers[region]
        self.offered[number] = array
        try:
            self.offer(number)
        finally:
            del self.offered[number]
        return array.nbytes

    def commit(self) -> None:
        """Do nothing: the coordinator commits."""

    abort = commit


class _SliceOfFile(SliceSource):
    """A slice of a file that was opened for it; closing the slice closes the file."""

    def close(self) -> None:
        """Close the file."""
        self.of.close()


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """The facts about an input that planning depends on.

    ``path``: of its file, for the libraries that read it. ``is_at_coordinator``: it is in the memory of this process.
    ``in_pieces``: workers read parts of its chunks from each other.
    """

    path: str
    shape: tuple[int, ...]
    dtype: DType
    layout: FileLayout
    is_at_coordinator: bool = False
    in_pieces: bool = False


def planned_inputs(sources: Mapping[str, Source]) -> dict[str, PlannedInput]:
    """Return the facts about each input that planning depends on."""
    return {name: _planned_input(name, source) for name, source in sources.items()}


def _planned_input(name: str, source: Source) -> PlannedInput:
    shape, dtype = source.shape, source.dtype
    if _is_at_coordinator(source):  # not in the memory of a worker, so the array's own layout is not read there
        layout = file_layout(CoordinatorTensor(name, shape, dtype))
        return PlannedInput(name, shape, dtype, replace(layout, shared=False), is_at_coordinator=True)
    layout = replace(file_layout(source), shared=_is_read_by_all(source))
    in_pieces = isinstance(source, PlacedSource) and not source.whole_chunks
    return PlannedInput(source.name, shape, dtype, layout, in_pieces=in_pieces)


def _is_at_coordinator(source: Source) -> bool:
    if isinstance(source, RandomSource):
        return False
    if isinstance(source, PlacedSource):
        return source.place is None
    if isinstance(source, SliceSource):
        return _is_at_coordinator(source.of)
    path = source.name.partition("::")[0]
    return isinstance(source, ArraySource) or not (is_url(path) or os.path.exists(path))


def _is_read_by_all(source: Source) -> bool:
    """Return whether an input is in a file that each worker opens itself."""
    if isinstance(source, SliceSource):
        return _is_read_by_all(source.of)
    return not isinstance(source, RandomSource | PlacedSource)


def input_places(graph: EinGraph, sources: Mapping[str, Source]) -> dict[str, Place]:
    """Return the place of each input, but not of those in chunks that workers hold or compute."""
    found = dict[str, Place]()
    for node in graph.nodes:
        if isinstance(node, InputNode):
            source = sources[node.name]
            if _is_at_coordinator(source):
                found[node.name] = AT_COORDINATOR
            elif not isinstance(source, PlacedSource):  # see chunk_places
                found[node.name] = _place(source, node.name)
    return found


def _place(source: Source, name: str) -> Place:
    """Return the place of an input that workers open themselves."""
    if isinstance(source, RandomSource):
        return ("random", source.seed)
    if isinstance(source, SliceSource):
        return ("slice", tuple(source.at.items()), source.of.shape, _place(source.of, name))
    path, separator, key = source.name.partition("::")
    path = path if is_url(path) else os.path.abspath(path)
    return ("file", path + separator + key, *_version(path, name))


def _version(path: str, name: str) -> tuple[int, int]:
    """Return size and modification time of a file; of a folder, those of the file that describes it.

    Raises:
        OSError: there is no such file. StoreError: a remote store does not answer.
    """
    if is_url(path):
        return remote_version(path, f"input {name}")
    if os.path.isdir(path):
        marks = [os.path.join(path, name) for name in ("zarr.json", ".zarray", ".zgroup", "config.json")]
        path = next((mark for mark in marks if os.path.exists(mark)), path)
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def open_place(place: Place, name: str, shape: tuple[int, ...], dtype: DType) -> Source:
    """Open an input in a worker.

    Raises:
        BindError: the worker does not see the file that the coordinator has read.
    """
    match place:
        case ("random", seed):
            return RandomSource(name, shape, dtype, seed)
        case ("slice", at, whole, of):
            return _SliceOfFile(open_place(of, name, whole, dtype), dict(at))
        case ("file", spec, *version):
            path = spec.partition("::")[0]
            help_text = "help: put it where all workers can read it, under the same path"
            try:
                found = _version(path, name)
            except OSError as error:
                raise BindError(f"input {name}: it cannot read {path}: {error.strerror}. {help_text}") from None
            if found != tuple(version):
                raise BindError(f"input {name}: its {path} is another file than here. {help_text}")
            source = expanded_to(open_source(spec, name), dtype)
            if (source.shape, source.dtype) != (shape, dtype):
                raise BindError(f"input {name}: its {path} has another shape or dtype than here. {help_text}")
            return source
    return CoordinatorTensor(name, shape, dtype)


def output_places(sinks: Mapping[str, Sink], written: Container[str]) -> dict[str, Place]:
    """Return the place of each output; of a file, the one that this process will publish.

    ``written``: the outputs whose files workers may write. Other files have chunks that two workers would write to, so
    the coordinator alone writes them.
    """
    found: dict[str, Place] = {}
    for name, sink in sinks.items():
        shared = share(sink)
        if shared is not None and name in written:
            found[name] = ("file", *shared)
        else:
            found[name] = ("summary",) if isinstance(sink, SummarySink) else AT_COORDINATOR
    return found


def open_sink_place(place: Place, name: str, shape: tuple[int, ...], dtype: DType) -> Sink:
    """Open an output in a worker."""
    match place:
        case ("file", path, hidden, key, begin, chunks):
            return attach((path, hidden, key, begin, chunks), name, shape, dtype)
        case ("summary",):
            return SummarySink(name, shape, dtype)
    return CoordinatorSink(name, shape, dtype)


def tile_numbers(part: SitePart) -> dict[int, dict[Region, int]]:
    """Return by tier and region the number of an op that moves this tile from or to a file or array."""
    graph, found = part.graph, dict[int, dict[Region, int]]()
    for i in np.flatnonzero(np.isin(graph.kind, (OpKind.LOAD, OpKind.RELOAD, OpKind.STORE))).tolist():
        tier, region = tile_of(graph, graph[i])
        if tier >= FILES:
            found.setdefault(tier, {})[region] = int(part.number[i])
    return found


def tile_of(graph: MemGraph, op: Op) -> tuple[int, Region]:
    """Return the tier outside the arena that a transfer reads or writes, and the region there."""
    far = op.writes[0] if op.kind.lane == Lane.OUT else op.reads[0]
    return far.tier, graph.taskgraph.get_value(graph.unversioned(far.value)).box
