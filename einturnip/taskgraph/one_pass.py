"""Einsums that are computed in one pass over a stored tensor, of which they read each tile once."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

from einturnip.cost.working_set import splits_aggregation
from einturnip.eingraph.types import EinsumNode, InputNode, Node
from einturnip.ir.region import Space
from einturnip.kernels.mask import LabelMask
from einturnip.taskgraph.accumulate import Accumulators
from einturnip.taskgraph.operands import Demand, Key, MissingOperand, Slot
from einturnip.taskgraph.types import UNASSIGNED
from einturnip.tiling.pieces import intersection, read_ranges
from einturnip.tiling.types import Decomposition
from einturnip.tuning.memory import MAX_PASS_TILES


class TileMaker(Protocol):
    """Emits the tasks of tiles: ``k`` is the key of the output's tile, ``inner`` of its aggregated labels."""

    def make_tile(self, i: int, e: Space, k: Key, inner: Key) -> Demand:
        """Make a tile with one kernel, and store it."""

    def accumulate(self, i: int, e: Space, k: Key, inner: Key, accumulators: Accumulators, site: int) -> Demand:
        """Fold a tile into a state."""

    def finalize(self, i: int, e: Space, k: Key, accumulators: Accumulators) -> None:
        """Make a tile from its state, and store it."""

    def accumulators(self, i: int, e: Space) -> Accumulators:
        """Return the states of a node."""


@dataclass
class _Follower:
    """An einsum whose tiles are made when another einsum, the leader, reads the same tiles of an input.

    ``remaining``: by tile of that input, the keys of the einsum's tile that reads it: of its output, and of its
    aggregated labels. ``accumulators``: its states; None if each tile of its output is made by one kernel. ``keys``:
    the tiles of its output that have a state.
    """

    node: int
    einsum: Space
    remaining: dict[Key, tuple[Key, Key]]
    accumulators: Accumulators | None
    keys: list[Key] = field(default_factory=list)


class OnePass:
    """Lets einsums follow another one.

    A follower reads inputs only, each tile of one of them once, as its leader does. All its states, or all that it
    makes for other nodes, are no larger than such a tile: they are in memory together with those of the leader.
    """

    def __init__(
        self,
        decomposition: Decomposition,
        slots: Callable[[int, Space], Sequence[Slot]],
        maker: TileMaker,
        enabled: bool,
    ) -> None:
        """``slots``: the operands of a node.

        ``enabled``: False for reproducible sums, whose bits depend on their own order, and for several devices.
        """
        self._d, self._slots, self._maker = decomposition, slots, maker
        nodes = decomposition.graph.nodes
        self._waiting = [i for i, node in enumerate(nodes) if enabled and self._reads_inputs(node)]
        self._consumed = {operand for node in nodes for operand in getattr(node, "operands", ())}
        self._known = dict[int, dict[int, dict[Key, tuple[Key, Key]]]]()
        self._needed = read_ranges(decomposition.graph)
        self._following, self._followers = dict[int, _Follower](), dict[int, list[_Follower]]()

    def begin(self, i: int) -> Generator[MissingOperand, None, bool]:
        """Complete an einsum that follows another one; let others follow one that does not.

        Returns whether the einsum is complete.
        """
        follower = self._following.get(i)
        if follower is not None:
            for tile in list(follower.remaining):
                yield from self._follow_tile(follower, tile)
            return True
        for through, follower in self._found(i):
            self._following[follower.node] = follower
            self._followers.setdefault(through, []).append(follower)
        return False

    def follow(self, i: int, key: Key) -> Demand:
        """Make the tiles of followers that read what tile ``key`` of node ``i`` has just read."""
        if not self._following:
            return
        for operand, tile_of in self._inputs(i):
            for follower in self._followers.get(operand, ()) if tile_of is not None else ():
                assert tile_of is not None
                yield from self._follow_tile(follower, tile_of(key))

    def _follow_tile(self, follower: _Follower, tile: Key) -> Demand:
        """Make a follower's tile that reads a tile of its input, if it is not made yet."""
        if (needed := follower.remaining.pop(tile, None)) is None:
            return
        i, e, (k, inner), accumulators = follower.node, follower.einsum, needed, follower.accumulators
        if intersection(self._d.output(i).box(k), self._needed[i]) is not None:
            if accumulators is None:
                yield from self._maker.make_tile(i, e, k, inner)
            else:
                yield from self._maker.accumulate(i, e, k, inner, accumulators, UNASSIGNED)
                follower.keys.append(k)
        if not follower.remaining:
            del self._following[i]
            if accumulators is not None:
                for k in dict.fromkeys(follower.keys):
                    self._maker.finalize(i, e, k, accumulators)

    def _reads_inputs(self, node: Node) -> bool:
        nodes = self._d.graph.nodes
        if not isinstance(node, EinsumNode):
            return False
        return bool(node.operands) and all(isinstance(nodes[k], InputNode) for k in node.operands)

    def _found(self, leader: int) -> list[tuple[int, _Follower]]:
        """Return the einsums that follow this one, whose tiles are about to be made, and the input of each."""
        if leader not in self._waiting:
            return []
        self._waiting.remove(leader)
        inputs, found = {node for node, pick in self._inputs(leader) if pick is not None}, list[tuple[int, _Follower]]()
        for i in [i for i in self._waiting if not inputs.isdisjoint(self._operands(i))]:
            mine, its = self._passes(leader), self._passes(i)
            common = [t for t in mine if t in its and mine[t].keys() == its[t].keys()]
            if (
                common
                and not LabelMask(self._einsum(i)).conditions
                and self._fits(i, through := max(common, key=self._tile_nbytes))
            ):
                e = self._einsum(i)
                splits = splits_aggregation(e, self._d.partitionings[i].tiles)
                accumulators = self._maker.accumulators(i, e) if splits else None
                found.append((through, _Follower(i, e, dict(its[through]), accumulators)))
                self._waiting.remove(i)
        return found

    def _operands(self, i: int) -> Sequence[int]:
        node = self._d.graph.nodes[i]
        return node.operands if isinstance(node, EinsumNode) else ()

    def _inputs(self, i: int) -> Sequence[Slot]:
        return self._slots(i, self._einsum(i))

    def _einsum(self, i: int) -> Space:
        node = self._d.graph.nodes[i]
        assert isinstance(node, EinsumNode)
        return node.einsum

    def _passes(self, i: int) -> dict[int, dict[Key, tuple[Key, Key]]]:
        """Return the inputs of which each tile is read by one tile of an einsum: by input, that tile's key."""
        if i in self._known:
            return self._known[i]
        node, part, found = self._d.graph.nodes[i], self._d.partitionings[i], dict[int, dict[Key, tuple[Key, Key]]]()
        assert isinstance(node, EinsumNode)
        e, out = node.einsum, self._d.output(i)
        n = math.prod(out.counts) * math.prod(part.counts[p] for p in e.aggregated)
        operands = [(k, pick) for k, pick in self._inputs(i) if math.prod(self._d.output(k).counts) == n]
        if not 1 < n <= MAX_PASS_TILES:
            operands = []
        untiled = (0,) * (len(e.labels) - e.n_out - len(e.aggregated))
        ranges = [range(part.counts[p]) for p in e.aggregated] if operands else []
        steps = [inner + untiled for inner in product(*ranges)]
        for operand, pick in operands:
            if pick is not None:
                read = {pick(k + inner): (k, inner) for k in out.each() for inner in steps}
                if len(read) == n:
                    found[operand] = read
        self._known[i] = found
        return found

    def _tile_nbytes(self, i: int) -> int:
        return math.prod(self._d.output(i).tiles) * self._d.graph.nodes[i].dtype.itemsize

    def _fits(self, i: int, through: int) -> bool:
        """Whether what an einsum keeps in memory during the pass takes no more than a tile of the input."""
        node, part = self._d.graph.nodes[i], self._d.partitionings[i]
        assert isinstance(node, EinsumNode)
        if splits_aggregation(node.einsum, part.tiles):
            extents = (*self._d.output(i).bounds, *part.tiles[node.einsum.n_out :])
            return node.einsum.state_nbytes(extents) <= self._tile_nbytes(through)
        nbytes = math.prod(node.shape) * node.dtype.itemsize
        return i not in self._consumed or nbytes <= self._tile_nbytes(through)
