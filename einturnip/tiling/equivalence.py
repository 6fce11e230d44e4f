"""Equivalence classes of einsum nodes with equal costs in every tiling, so each is priced once.

Layers and loop steps repeat a few einsums thousands of times. The cost of a search depends on the number of classes,
not on the size of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.cost.working_set import copies_tiles, working_set_nbytes
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import labels_read
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import Scalar, walk
from einturnip.tiling.label_classes import LabelClasses, Ratio, form
from einturnip.tuning.search import COPIED_AT_ONCE


@dataclass(frozen=True, slots=True)
class ShiftedOperand:
    """An operand that is not read in whole tiles.

    ``slots``: all operand slots that read the same tensor. ``classes``, ``ratios``: of its axes, see ``LabelClasses``.
    ``kind``: the class of the node that makes it; boxes of an ``InputNode`` may be loaded alone.
    """

    slot: int
    slots: tuple[int, ...]
    shape: tuple[int, ...]
    classes: tuple[int, ...]
    ratios: tuple[Ratio, ...]
    kind: type


@dataclass(frozen=True)
class EquivalenceClass:
    """Equivalent nodes. ``node`` represents them; ``reads``: the labels that each operand depends on."""

    nodes: tuple[int, ...]
    einsum: Space
    classes: tuple[int, ...]
    reads: tuple[frozenset[int], ...]
    shifted: tuple[ShiftedOperand, ...]
    from_files: bool
    from_kernels: bool
    consumed: bool

    @property
    def node(self) -> int:
        """The representative node."""
        return self.nodes[0]

    @property
    def relevant(self) -> frozenset[int]:
        """The label classes that the working set depends on."""
        return frozenset(self.classes).union(*(s.classes for s in self.shifted if s.kind is not InputNode))


@dataclass(frozen=True)
class EquivalenceClasses:
    """A graph with its label classes and einsums by equivalence class; ``of[node]`` is an einsum's class."""

    graph: EinGraph
    classes: LabelClasses
    groups: tuple[EquivalenceClass, ...]
    of: tuple[int, ...]

    def tiles(self, group: EquivalenceClass, tiles: Sequence[int]) -> tuple[int, ...]:
        """Return the tile extents of the class's einsums for the class tile sizes ``tiles``."""
        return self.classes.tiles(group.node, group.einsum.bounds, tiles)

    def working_set_nbytes(self, group: EquivalenceClass, tiles: Sequence[int]) -> int:
        """Return the bytes needed at once for a kernel and for the copies that assemble its operands."""
        if 0 in self.graph.nodes[group.node].shape:
            return 0  # no kernel runs, so its tiles need not fit
        e, own = group.einsum, self.tiles(group, tiles)
        total = working_set_nbytes(e, own)
        largest = 0
        for s in group.shifted:
            if s.kind is InputNode and not copies_tiles(e, s.slots, own):
                continue
            # A part within one tile is read in place; otherwise it is copied from several tiles.
            tile_extents = (
                max(1, min(tiles[c] * r.numerator // r.denominator, n))
                for c, r, n in zip(s.classes, s.ratios, s.shape, strict=True)
            )
            part, tile = (math.prod(x) for x in (e.operand_extents(s.slot, own), tuple(tile_extents)))
            tile = min(tile, 2 * part) if s.kind is ConcatNode else tile
            itemsize = e.dtypes[s.slot].itemsize
            total += max(0, tile - part) * itemsize
            largest = max(largest, (part + max(tile, int(part * COPIED_AT_ONCE))) * itemsize)
        return max(total, largest)


def equivalence_classes(graph: EinGraph, classes: LabelClasses) -> EquivalenceClasses:
    """Group the graph's einsums by everything that their costs depend on."""
    read = frozenset(o for n in graph.nodes if not isinstance(n, InputNode) for o in n.operands)
    forms: dict[int, int] = {}
    known: dict[object, int] = {}
    numbers: dict[object, int] = {}
    members: list[list[int]] = []
    first: list[EquivalenceClass] = []
    of = []
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, EinsumNode):
            of.append(-1)
            continue
        e = node.einsum
        if id(e) not in forms:
            forms[id(e)] = known.setdefault((form(e), () if isinstance(e, Region) else _kinds(e.join)), len(known))
        operands = [graph.nodes[o] for o in node.operands]
        shifted = () if e.plain and i not in classes.separate else _shifted(graph, classes, i)
        files = any(isinstance(o, InputNode) for o in operands)
        kernels = any(not isinstance(o, InputNode) for o in operands)
        key = forms[id(e)], classes.of[i], classes.ratios.get(i), shifted, files, kernels, i in read
        number = numbers.setdefault(key, len(numbers))
        if number == len(first):
            reads = tuple(map(labels_read, e.accesses))
            first.append(EquivalenceClass((), e, classes.of[i], reads, shifted, files, kernels, i in read))
            members.append([])
        members[number].append(i)
        of.append(number)
    groups = tuple(
        EquivalenceClass(tuple(m), g.einsum, g.classes, g.reads, g.shifted, g.from_files, g.from_kernels, g.consumed)
        for g, m in zip(first, members, strict=True)
    )
    return EquivalenceClasses(graph, classes, groups, tuple(of))


def _kinds(join: Scalar) -> tuple[object, ...]:
    """Return the join's operators, without its constants."""
    return tuple((type(e), e.dtype, getattr(e, "op", None), getattr(e, "slot", None)) for e in walk(join))


def _shifted(graph: EinGraph, classes: LabelClasses, i: int) -> tuple[ShiftedOperand, ...]:
    node, mine, found = graph.nodes[i], classes.of[i], []
    assert isinstance(node, EinsumNode)
    for slot, (operand, access) in enumerate(zip(node.operands, node.einsum.accesses, strict=True)):
        made, of = graph.nodes[operand], classes.of[operand]
        by_label = all(
            isinstance(p, int) and (mine[p] == c or i not in classes.separate) for p, c in zip(access, of, strict=False)
        )
        if not by_label:
            whole: tuple[Ratio, ...] = (1,) * len(of)
            ratios = classes.ratios.get(operand, whole)
            slots = tuple(s for s, o in enumerate(node.operands) if o == operand)
            found.append(
                ShiftedOperand(slot, slots, made.shape, of[: len(made.shape)], ratios[: len(made.shape)], type(made))
            )
    return tuple(found)
