"""Operands of tile tasks: what a task needs next, the value that holds it, and parts that sites send.

A site that reads a small part of a tile of another site receives that part, which the other site copies out first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from einturnip.cost.working_set import working_set_nbytes
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Box
from einturnip.taskgraph.columns import TaskColumns
from einturnip.taskgraph.types import UNASSIGNED, TaskKind, ValueKind
from einturnip.tiling.pieces import points
from einturnip.tiling.types import Decomposition

if TYPE_CHECKING:
    from einturnip.tiling.sites import Sites

Key: TypeAlias = tuple[int, ...]


class MissingOperand(NamedTuple):
    """An operand that a task needs next: tile ``key`` of a node, or its ``box`` if given, on a site."""

    node: int
    key: Key
    box: Box | None
    site: int = UNASSIGNED


class OperandValue(NamedTuple):
    """A value, and the value whose box its bytes are seen as."""

    value: int
    seen: int


Demand: TypeAlias = Generator[MissingOperand, None, None]
# An operand and, if whole tiles of it are read, the function that gives their keys.
Slot = tuple[int, Callable[[Key], Key] | None]


class SentParts:
    """The parts of tiles that sites send to others, each copied once on the site that has the tile.

    ``copied_nbytes``: what a task that copies received parts may hold, which is no more than a kernel does.
    """

    def __init__(self, columns: TaskColumns, sites: Sites, decomposition: Decomposition) -> None:
        self._columns, self._sites = columns, sites
        self.copied_nbytes = _largest_kernel_nbytes(decomposition)
        self._known: dict[tuple[int, Box], int] = {}

    def received(self, i: int, v: int, need: Box, site: int) -> int:
        """Return the value that a site receives to read a box of tile ``v`` of node ``i``.

        It is the tile or a copy of the box. A site that needs most of the tile receives all of it.
        """
        columns = self._columns
        tile, owner = columns.box_of(v), columns.devices_of.get(v, site)
        if owner == site or tile == need or self._sites.reads_most(i, tile, site):
            return v
        if (v, need) not in self._known:
            nbytes = points(need) * columns.graph.nodes[i].dtype.itemsize
            self._known[v, need] = made = columns.new_value(ValueKind.TILE, i, need, nbytes, owner)
            columns.transfer(TaskKind.MOVE, i, [x for bounds in need for x in bounds], made, [v], [v])
        return self._known[v, need]


def _largest_kernel_nbytes(d: Decomposition) -> int:
    """Return the largest number of bytes that a kernel holds at once."""
    einsums = ((n.einsum, p) for n, p in zip(d.graph.nodes, d.partitionings, strict=True) if isinstance(n, EinsumNode))
    return max((working_set_nbytes(e, part.tiles) for e, part in einsums), default=0)
