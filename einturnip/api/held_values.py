"""Tensors that outlive a run of a plan: states of a session, values that stages pass to each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from einturnip.compiler import Options, make_plan
from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import available_memory, reserved, resident_nbytes
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import DType
from einturnip.memgraph.in_place_states import write_in_place
from einturnip.planner.planner import PlannedProgram
from einturnip.storage.arrays import ArraySink
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.types import Sink, Source

# Share of the memory for values; further values are kept in files.
VALUES_SHARE = 0.5
# Minimum size of a large value, for which copying takes longer than checking whether it can be used in place.
LARGE_NBYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Where a value is kept. ``second``: whether its second copy is in memory; None if it has only one."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    in_memory: bool
    second: bool | None


class HeldValues:
    """Values in memory as far as they fit, the others in nameless files; plans that read and write them.

    ``changes``: number of changes of storage, after each of which earlier plans must be made again. ``lazy``: values
    take memory when they are first written, which is after planning.
    """

    def __init__(self, spill: str | None, lazy: bool = False) -> None:
        self.storages: dict[str, StateStorage] = {}
        self.changes = 0
        self._spill, self._lazy = spill, lazy
        self._second_copies: list[str] = []  # values with a second copy that no plan needs

    def allocate(
        self, values: Iterable[tuple[str, tuple[int, ...], DType]], options: Options, replaced: Collection[str]
    ) -> Iterator[StateStorage]:
        """Allocate the values, the smallest ones in memory; yields each value, for the caller to fill.

        As far as memory suffices, large values in ``replaced`` get a second buffer: a step then reads one buffer and
        writes the other, without a copy.
        """
        available = spare = self.available_nbytes(options)
        for name, shape, dtype in sorted(values, key=lambda value: math.prod(value[1]) * value[2].itemsize):
            available -= math.prod(shape) * dtype.itemsize
            self.storages[name] = storage = StateStorage(name, shape, dtype, available >= 0, self._spill, self._lazy)
            yield storage
            spare = spare if available < 0 else available
        spare -= self.available_nbytes(options) // 2  # more arena is worth more than avoided copies
        for storage in self.storages.values():
            if storage.name in replaced and storage.array is not None and LARGE_NBYTES <= storage.nbytes <= spare:
                storage.double(in_memory=True)
                self._second_copies.append(storage.name)
                spare -= storage.nbytes

    @property
    def places(self) -> tuple[HeldPlace, ...]:
        """Where each value is kept."""
        return tuple(
            HeldPlace(s.name, s.shape, s.dtype, s.array is not None, _in_memory(s.write) if s.is_double else None)
            for s in self.storages.values()
        )

    def place(self, places: Iterable[HeldPlace]) -> None:
        """Allocate values where those of an earlier run were."""
        for p in places:
            storage = StateStorage(p.name, p.shape, p.dtype, p.in_memory, self._spill, self._lazy)
            self.storages[p.name] = storage
            if p.second is not None:
                storage.double(p.second)

    def double(self, options: Options) -> None:
        """Give every value a second copy, in memory while there is room."""
        nbytes = sum(s.nbytes * (1 + s.is_double) for s in self.storages.values())
        for storage in self.storages.values():
            if not storage.is_double:
                nbytes += storage.nbytes
                storage.double(storage.array is not None and nbytes <= self.available_nbytes(options))

    def plan(
        self,
        graph: EinGraph,
        sources: Mapping[str, Source],
        options: Options,
        targets: Mapping[str, str] = MappingProxyType({}),
        results: int = 0,
    ) -> tuple[PlannedProgram, Options]:
        """Plan a graph; an input or output with the name of a value reads or writes that value.

        Moves values to files if the plan does not fit otherwise.

        ``sources``: sources of the other inputs. ``targets``: targets of the other outputs. ``results``: bytes of the
        outputs that are arrays.

        Raises:
            CapacityError: it does not fit with all values in files.
        """
        while True:
            try:
                planned, limited = self._planned(graph, sources, options, targets, results)
            except CapacityError as error:
                if not self.make_room(error, options):
                    raise
                continue
            memgraph, separate = write_in_place(planned.memgraph, self._replaced(planned.graph))
            two_buffers = [self.storages[planned.graph.nodes[node].name] for node in sorted(separate)]
            missing = [storage for storage in two_buffers if not storage.is_double]
            if not missing:
                return replace(planned, memgraph=memgraph, sources={}, targets={}), limited
            nbytes = sum(s.nbytes * (1 + s.is_double) for s in self.storages.values())
            for storage in missing:
                nbytes += storage.nbytes
                storage.double(nbytes <= self.available_nbytes(options))
            self.changes += 1

    def _replaced(self, graph: EinGraph) -> dict[int, int]:
        """By the node of an input that is a value, the number of the output that replaces the value."""
        outputs = {name: number for number, (name, _) in enumerate(graph.outputs)}
        nodes = enumerate(graph.nodes)
        return {
            i: outputs[n.name]
            for i, n in nodes
            if isinstance(n, InputNode) and n.name in outputs and n.name in self.storages
        }

    def _planned(
        self, graph: EinGraph, sources: Mapping[str, Source], options: Options, targets: Mapping[str, str], results: int
    ) -> tuple[PlannedProgram, Options]:
        if options.memory is not None:
            if results >= options.memory:
                raise CapacityError(f"a step's results take {format_size(results)}, which is the whole limit", results)
            options = replace(options, memory=options.memory - results, base_nbytes=options.base_nbytes + results)
        values = {name: storage.read for name, storage in self.storages.items()}
        outputs = dict(graph.outputs)
        with reserved(self.nbytes() if self._lazy else 0):  # values that are not lazy are resident already
            planned = make_plan(
                graph, {**sources, **values}, {**targets, **{n: n for n in values if n in outputs}}, options
            )
        return planned, options

    def make_room(self, error: CapacityError, options: Options) -> bool:
        """Drop the second copies that no plan needs, else move values to files.

        Returns False if no memory is left to free.
        """
        if not self._second_copies and not self._moved_to_files(error, options):
            return False
        while self._second_copies:
            storage = self.storages[self._second_copies.pop()]
            storage.write = storage.read
        self.changes += 1
        return True

    def _moved_to_files(self, error: CapacityError, options: Options) -> bool:
        """Move values to files, the largest first, until a plan may fit; False if none is left in memory."""
        in_memory = [storage for storage in self.storages.values() if storage.array is not None and storage.nbytes]
        if options.memory is None or not in_memory:
            return False
        missing_nbytes = error.needed - (options.memory + options.base_nbytes)
        for storage in sorted(in_memory, key=lambda storage: -storage.nbytes):
            storage.move_out()
            missing_nbytes -= storage.nbytes
            if missing_nbytes <= 0:
                break
        return True

    def available_nbytes(self, options: Options) -> int:
        """Bytes of memory that values may take."""
        if options.memory is None:
            return available_memory() // 4 if options.arena is None else options.arena
        taken = resident_nbytes() - (0 if self._lazy else self.nbytes())
        return int(VALUES_SHARE * max(0, options.memory - taken))

    def nbytes(self) -> int:
        """Bytes of memory that the values take, also those that are allocated but not written yet."""
        return sum(_array_nbytes(storage.read, storage.write) for storage in self.storages.values())

    def close(self) -> None:
        """Free the values."""
        for storage in self.storages.values():
            storage.close()
        self.storages = {}


def _array_nbytes(*sinks: Sink) -> int:
    return sum(sink.array.nbytes for sink in {id(s): s for s in sinks}.values() if isinstance(sink, ArraySink))


def _in_memory(sink: Sink) -> bool:
    return isinstance(sink, ArraySink)
