"""Counts NaN, overflows and divisions by zero of a run, and names the first element that shows each.

A kernel reports flags, not elements. So the result of an op that raised one is searched after it, and the inputs that
the element depends on are searched after the run. A run without events does neither.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import element_name
from einturnip.devices.protocol import Device
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.region import Region as FusedRegion
from einturnip.memgraph.types import MemGraph
from einturnip.storage.chunks.chunked_source import parts as within_chunks
from einturnip.storage.layout import blocks
from einturnip.storage.types import Array, Region, Source, region_shape
from einturnip.tiling.pieces import ConcatPieces
from einturnip.tuning.memory import MAX_CAUSES, MAX_SEARCHED_ELEMENTS, SEARCHED_ELEMENTS

KINDS = ("nan", "overflow", "divide")
"""The events, in the order of the bits of the flags."""

Parts: TypeAlias = Callable[[Array], Iterable[Array]]
"""Returns the elements of a result in C order, in blocks."""
ReadInput: TypeAlias = Callable[[int, Region], Iterable[tuple[Region, Array]]]
"""Returns a region of the input with this node number, in parts, in an order that the input is read fast in."""


class NumericEvents:
    """The numeric events of one run. Thread-safe.

    ``counts``: by node, the number of tiles with an invalid operation, an overflow, and a division by zero.
    ``elements``: by node and event, the first element that shows it, and its causes; see ``NumericWarning``. They are
    filled by ``locate``.
    """

    def __init__(self, graph: MemGraph) -> None:
        self.counts: dict[int, list[int]] = {}
        self.elements: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {}
        self._graph, self._lock = graph, threading.Lock()
        self._first: dict[tuple[int, int], int] = {}
        self._places: dict[tuple[int, int], tuple[tuple[int, ...], Any]] = {}

    def record(self, op: int, bits: int, result: Array | None, origins: Sequence[int], parts: Parts) -> None:
        """Count the flags that a kernel raised, and search its result if no earlier op raised the same.

        ``result``: None if it is overwritten. ``origins``: the index of its first element in the whole tensor.
        """
        node = int(self._graph.taskgraph.node[self._graph.task[op]])
        with self._lock:
            counts, events = self.counts.setdefault(node, [0] * len(KINDS)), list[tuple[int, int]]()
            for k in range(len(KINDS)):
                if bits >> k & 1:
                    counts[k] += 1
                    if op < self._first.get((node, k), op + 1):
                        self._first[node, k] = op
                        events.append((node, k))
        known = self._graph.taskgraph.decomposition.graph.nodes[node]
        if result is None or known.dtype.kind not in "fc":
            return
        for event in events:
            found = first_element(parts(result), np.isnan if event[1] == 0 else np.isinf)
            with self._lock:
                if self._first[event] == op:
                    self._places.pop(event, None)
                    if found is not None:
                        place = np.unravel_index(found[0], result.shape)
                        at = tuple(lo + int(k) for lo, k in zip(origins, place, strict=False))
                        self._places[event] = at, found[1]

    def found(self) -> tuple[object, ...]:
        """Return the events as plain values, for ``add`` in another process."""
        places = [
            (
                *event,
                op,
                *((self._places[event][0], _plain(self._places[event][1])) if event in self._places else ((), None)),
            )
            for event, op in self._first.items()
        ]
        return tuple((node, *counts) for node, counts in self.counts.items()), tuple(places)

    def add(self, found: Any, number: NDArray[np.int64]) -> None:
        """Add the events of a part of the graph.

        ``number``: the op of the whole graph for each op of the part.
        """
        counts, places = found
        for node, *more in counts:
            known = self.counts.setdefault(node, [0] * len(KINDS))
            self.counts[node] = [a + b for a, b in zip(known, more, strict=True)]
        for node, kind, op, place, value in places:
            event, at = (node, kind), int(number[op])
            if at < self._first.get(event, at + 1):
                self._first[event] = at
                self._places.pop(event, None)
                if value is not None:
                    self._places[event] = tuple(place), value

    def locate(self, read: ReadInput) -> NumericEvents:
        """Name the elements found, with the elements of inputs that they come from."""
        graph = self._graph.taskgraph.decomposition.graph
        for event, (place, value) in self._places.items():
            name = graph.nodes[event[0]].name
            text = "" if "." in name else element(name, place, value)  # the user does not know such names
            self.elements[event] = text, causes_of(graph, event[0], place, read)
        return self


def _plain(value: Any) -> complex:
    return complex(value) if np.iscomplexobj(value) else float(value)


def element(name: str, place: Sequence[int], value: object) -> str:
    """Return an element with its value, such as ``y[12] = nan``, named as in the program."""
    return f"{element_name(name.partition('#')[0], place)} = {value}"


def host_parts(result: Array) -> Iterable[Array]:
    """Return the elements of an array in C order, in blocks; takes a buffer of fixed size."""
    blocked: Any = np.nditer(
        result, flags=["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=SEARCHED_ELEMENTS
    )
    return blocked  # type: ignore[no-any-return]


def fetched_parts(device: Device, result: Array) -> Iterator[Array]:
    """Return the elements of a tile in a device's arena, in blocks."""
    flat = result.reshape(-1)
    for start in range(0, len(flat), SEARCHED_ELEMENTS):
        yield device.fetched(flat[start : start + SEARCHED_ELEMENTS])


def first_element(parts: Iterable[Array], wrong: Callable[[Array], NDArray[np.bool_]]) -> tuple[int, Any] | None:
    """Return the flat place and the value of the first element that is ``wrong``; None if there is none."""
    passed = 0
    for part in parts:
        found = wrong(part)
        if found.any():
            at = int(np.argmax(found))
            return passed + at, part.reshape(-1)[at]
        passed += part.size
    return None


def causes_of(graph: EinGraph, number: int, place: Sequence[int], read: ReadInput) -> tuple[str, ...]:
    """Return the elements of inputs behind a NaN or an infinity of a node, each with its value.

    These are the first NaN or infinity of each input, among the elements that the place depends on. If there are none,
    they are all elements that it depends on, unless these are many. ``place``: of the element in the node's tensor.
    """
    boxes: dict[int, Region] = {number: tuple((k, k + 1) for k in place)}
    wrong, single = list[str](), list[str]()
    # An input with the name of an output has its new value by now; one with this node's name says nothing more.
    unknown = {name for name, _ in graph.outputs}
    own = graph.nodes[number].name.partition("#")[0]
    unknown |= {node.name for node in graph.nodes if node.name.partition("#")[0] == own}
    for n in range(number, -1, -1):
        box, node = boxes.pop(n, None), graph.nodes[n]
        if box is None:
            continue
        if not isinstance(node, InputNode):
            for operand, need in _boxes_read(graph, node, box):
                known = boxes.get(operand, need)
                boxes[operand] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(need, known, strict=True))
            continue
        size = math.prod(region_shape(box))
        found = None
        if node.dtype.kind in "fc" and 0 < size <= MAX_SEARCHED_ELEMENTS and node.name not in unknown:
            found = _first_in_parts(read(n, box))
        if found is not None:
            wrong.append(element(node.name, *found))
        elif size == 1 and node.name not in unknown:
            single.append(element(node.name, [lo for lo, _ in box], next(iter(read(n, box)))[1].reshape(-1)[0]))
        elif size:
            single += [""] * (MAX_CAUSES + 1)
    return tuple(wrong[::-1][:MAX_CAUSES] or (single[::-1] if len(single) <= MAX_CAUSES else ()))


def _boxes_read(graph: EinGraph, node: EinsumNode | ConcatNode, box: Region) -> Iterable[tuple[int, Region]]:
    """Return the operands that a part of a node's tensor depends on, and the part of each."""
    if isinstance(node, ConcatNode):
        return [(part.operand, part.within) for part in ConcatPieces(graph, node).parts(box)]
    space, points = node.einsum, [*box, *((0, bound) for bound in node.einsum.bounds[len(box) :])]
    if isinstance(space, FusedRegion):
        for p in (p for step in space.steps for p in step.labels[step.einsum.n_out :]):
            points[p] = 0, space.bounds[p]  # a step may aggregate a label of the output
    return [(operand, space.operand_box(slot, points)) for slot, operand in enumerate(node.operands)]


def _first_in_parts(parts: Iterable[tuple[Region, Array]]) -> tuple[tuple[int, ...], Any] | None:
    """Return the place in the whole input, and the value, of the first NaN or infinity."""
    for region, part in parts:
        found = first_element(host_parts(part), lambda x: ~np.isfinite(x))
        if found is not None:
            place = np.unravel_index(found[0], region_shape(region))
            return tuple(lo + int(k) for (lo, _), k in zip(region, place, strict=True)), found[1]
    return None


def from_sources(sources: Sequence[Source | None]) -> ReadInput:
    """Return the function that reads inputs from their sources, by node."""

    def read(number: int, region: Region) -> Iterator[tuple[Region, Array]]:
        source = sources[number]
        assert source is not None
        chunks = getattr(source, "chunks", source.shape)
        for chunk in within_chunks(region, chunks):
            for part in blocks(chunk, 1, SEARCHED_ELEMENTS):
                out = np.empty(region_shape(part), source.dtype.numpy)
                source.read(part, out)
                yield part, out

    return read
