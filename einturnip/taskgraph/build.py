"""Lowers a Decomposition to a TaskGraph: tile tasks in a serial order that reuses data in memory.

The order is demand-driven: for each stored tile, its operands just before they are needed. The tiles of a node are made
one block at a time (see tiling.io_blocking): the accumulators of the block stay in memory, the aggregated tiles stream
past, and every second pass runs backwards to start with the tiles that the last one left in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, assert_never

from einturnip.cost.machine import Machine
from einturnip.cost.working_set import needs_finalize, splits_aggregation
from einturnip.eingraph.types import ConcatNode, EinsumNode, InputNode, TensorPiece
from einturnip.ir.einsum import Box, Einsum
from einturnip.ir.predicates import conditions
from einturnip.ir.region import Space
from einturnip.kernels.mask import LabelMask
from einturnip.kernels.protocol import Mode
from einturnip.taskgraph.accumulate import Accumulators, max_additions, tiles_of_group
from einturnip.taskgraph.columns import TaskColumns
from einturnip.taskgraph.costs import KernelCosts
from einturnip.taskgraph.one_pass import OnePass
from einturnip.taskgraph.operands import Demand, Key, MissingOperand, OperandValue, SentParts, Slot
from einturnip.taskgraph.order import block_keys, block_starts, idle_tiles, picker, tile_orders
from einturnip.taskgraph.types import UNASSIGNED, TaskGraph, TaskKind, ValueKind
from einturnip.tiling.file_layout import FileLayout, layout_of, overlapping_inputs
from einturnip.tiling.pieces import ConcatPieces, VisiblePart, intersection, points, read_ranges, visible_parts
from einturnip.tiling.types import Decomposition
from einturnip.tuning.search import COPIED_AT_ONCE

if TYPE_CHECKING:
    from einturnip.tiling.sites import Sites

MODES: dict[TaskKind, Mode] = {
    TaskKind.KERNEL: "full",
    TaskKind.ACCUMULATE: "accumulate",
    TaskKind.FINALIZE: "finalize",
    TaskKind.COMBINE: "combine",
}


def build(
    decomposition: Decomposition,
    machine: Machine,
    max_tasks: int = 4_000_000,
    ordered: bool = False,
    layouts: Mapping[int, FileLayout] | None = None,  # by node; default: row-major
    sites: Sites | None = None,
) -> TaskGraph:
    """Lower a decomposition.

    ``ordered``: tiles are accumulated in the order of their keys, for reproducible bits. ``layouts``: how inputs are
    stored in their files. ``sites``: the devices that make the tiles; ``multi_device`` then adds the moves.

    Raises:
        TooLarge: more than ``max_tasks`` tasks.
    """
    columns = TaskColumns(decomposition.graph, machine, max_tasks, layouts or {})
    return _Lowering(decomposition, columns, ordered, sites).run()


class _Lowering:
    """Columns under construction, and the tiles emitted so far."""

    def __init__(self, decomposition: Decomposition, columns: TaskColumns, ordered: bool, sites: Sites | None) -> None:
        self.d, self.graph, self.columns, self.ordered = decomposition, decomposition.graph, columns, ordered
        self.sites, self.site_of = sites, dict[int, Callable[[Key], int]]()
        self.trees = None if sites is None else sites.combining_trees()
        n = len(self.graph.nodes)
        self.tile: list[dict[Key, int]] = [{} for _ in range(n)]
        self.boxes: dict[tuple[int, Box, int], OperandValue] = {}
        self.sent = None if sites is None else SentParts(columns, sites, decomposition)
        self.turned, self.ranges = [False] * n, read_ranges(self.graph)
        self.parts = decomposition.partitionings
        self.outputs = [decomposition.output(i) for i in range(n)]
        self.slots, self.visible = dict[int, list[Slot]](), dict[int, list[VisiblePart]]()
        self.pieces, self.masks = dict[int, ConcatPieces](), dict[int, LabelMask]()
        self.copied = overlapping_inputs(decomposition)
        self.one_pass = OnePass(decomposition, self.slots_of, self, enabled=not ordered and sites is None)
        self.costs, self.stores = KernelCosts(columns.machine), dict[int, list[tuple[int, VisiblePart | None]]]()
        for number, (_, i) in enumerate(self.graph.outputs):
            if isinstance(self.graph.nodes[i], ConcatNode):
                self.visible[number] = visible_parts(self.graph, i, self.pieces)
                for part in self.visible[number]:
                    self.stores.setdefault(part.operand, []).append((number, part))
            else:
                self.stores.setdefault(i, []).append((number, None))

    def run(self) -> TaskGraph:
        for number, (_, node) in enumerate(self.graph.outputs):
            for part in self.visible.get(number, ()):
                self._make_output_part(number, part)
            if number not in self.visible:
                for key in block_starts(self.outputs[node].counts, self.d.blocks[node]):
                    if key not in self.tile[node]:
                        self._make_all(MissingOperand(node, key, None))
        return self.columns.freeze(self.d, self.ordered)

    def _make_all(self, missing: MissingOperand) -> None:
        """Emit the tasks that make ``missing``, operands first: depth first with an explicit stack."""
        stack = [self._make(missing)]
        while stack:
            needed = next(stack[-1], None)
            if needed is None:
                stack.pop()
            else:
                stack.append(self._make(needed))

    def _make(self, missing: MissingOperand) -> Demand:
        """Emit the tasks that make ``missing``; yields the operands that must be made first."""
        i, key, box, site = missing
        node = self.graph.nodes[i]
        match node:
            case InputNode():
                if box is not None and (i in self.copied or points(box) == 0):
                    yield from self._assemble(i, box, self._by_tile(i, box))
                else:
                    self._load(i, key, box)
            case EinsumNode():
                if box is None:
                    yield from self._make_block(i, node, key)
                else:
                    yield from self._assemble(i, box, self._by_tile(i, box), site)
            case ConcatNode():
                assert box is not None
                yield from self._make_part(i, box)
            case _:
                assert_never(node)

    def _load(self, i: int, key: Key, box: Box | None) -> None:
        loaded = self.outputs[i].box(key) if box is None else box
        in_place = layout_of(self.columns.layouts, i, len(loaded)).in_place
        v = self.columns.new_value(ValueKind.TILE, i, loaded, 0) if in_place else self._tile_value(i, loaded)
        if box is None:
            self.tile[i][key] = v
        else:
            self.boxes[i, box, UNASSIGNED] = OperandValue(v, v)
        self.columns.transfer(TaskKind.LOAD, i, key, v, (), ())

    # Einsums: a block of tiles at a time.

    def _make_block(self, i: int, node: EinsumNode, key: Key) -> Demand:
        e, part, block, tiles = node.einsum, self.parts[i], self.d.blocks[i], self.tile[i]
        assert block is not None
        if (yield from self.one_pass.begin(i)):
            return
        out, read = self.outputs[i], self.ranges[i]
        keys: Sequence[Key] = [k for k in block_keys(out.counts, block, key) if k not in tiles]
        keys = [k for k in keys if k == key or intersection(out.box(k), read) is not None]
        steps: list[Key] = list(product(*(range(part.counts[p]) for p in e.aggregated)))
        untiled = (0,) * (len(e.labels) - e.n_out - len(e.aggregated))
        steps = [inner + untiled for inner in steps] if untiled else steps
        self.turned[i] = not self.turned[i]
        if self.turned[i] and not self.ordered:
            steps.reverse()
        if not steps or not splits_aggregation(e, part.tiles):
            # No state between kernels. An aggregated label of size 0 has no tile but still needs one kernel.
            inner = (0,) * (len(e.labels) - e.n_out)
            for k in reversed(keys) if self.turned[i] else keys:
                yield from self.make_tile(i, e, k, inner)
                yield from self.one_pass.follow(i, k + inner)
            return
        accumulators = self.accumulators(i, e)
        idle = self._idle(i, e, keys, steps)
        walks = tile_orders(out.counts, block, key, keys, len(steps))
        for step, (inner, keys) in enumerate(zip(steps, walks, strict=True)):
            for k in keys:
                if k + inner in idle:
                    continue
                tile_of_group = min(step + sum(k) % (accumulators.group or 1), len(steps) - 1)
                yield from self.accumulate(i, e, k, inner, accumulators, self._site(i, k + steps[tile_of_group]))
                yield from self.one_pass.follow(i, k + inner)
        for k in reversed(keys):
            self.finalize(i, e, k, accumulators)

    def make_tile(self, i: int, e: Space, k: Key, inner: Key) -> Demand:
        """Make a tile with one kernel, and store it."""
        values, seen = yield from self._operands(i, e, k + inner)
        self.tile[i][k] = v = self._tile_value(i, self.outputs[i].box(k), self._site(i, k + inner))
        self._kernel(TaskKind.KERNEL, i, e, k + inner, v, values, seen)
        self._store(i, k)

    def accumulate(self, i: int, e: Space, k: Key, inner: Key, accumulators: Accumulators, site: int) -> Demand:
        """Fold a tile into the state of a tile of the output. ``site``: of the state, if it is a new one."""
        values, seen = yield from self._operands(i, e, k + inner)
        self._kernel(TaskKind.ACCUMULATE, i, e, k + inner, accumulators.next_state(k, site), values, seen)

    def finalize(self, i: int, e: Space, k: Key, accumulators: Accumulators) -> None:
        """Make a tile from its state, and store it."""
        state, site = accumulators.finalize(k)
        if not needs_finalize(e):
            self.tile[i][k] = state
        else:
            self.tile[i][k] = v = self._tile_value(i, self.outputs[i].box(k), site)
            self._kernel(TaskKind.FINALIZE, i, e, k + (0,) * (len(e.labels) - e.n_out), v, (state,), (state,))
        self._store(i, k)

    def _site(self, i: int, key: Key) -> int:
        """Return the device of a tile of node ``i``'s label space."""
        if self.sites is None:
            return UNASSIGNED
        if i not in self.site_of:
            self.site_of[i] = self.sites.of_tiles(i, self.parts[i])
        return self.site_of[i](key)

    def accumulators(self, i: int, e: Space) -> Accumulators:
        """Return the states of node ``i``."""
        part, out, trees = self.parts[i], self.outputs[i], self.trees
        first = (0,) * (len(e.labels) - e.n_out)  # the first tile along the aggregated labels

        def new(key: Key, site: int) -> int:
            nbytes = e.state_nbytes([hi - lo for lo, hi in part.box(key + first)])
            return self.columns.new_value(ValueKind.STATE, i, out.box(key), nbytes, site)

        def combine(key: Key, upper: int, lower: int) -> None:
            self._kernel(TaskKind.COMBINE, i, e, key + first, upper, (lower,), (lower,))

        def tree(key: Key, sites: Sequence[int]) -> Sequence[tuple[int, int]]:
            return [] if trees is None else trees.next_tree(i, out.box(key), sites)

        return Accumulators(max_additions(e, part), self.ordered and tiles_of_group(e, part), new, combine, tree)

    def _idle(self, i: int, e: Space, keys: Sequence[Key], steps: Sequence[Key]) -> frozenset[Key]:
        if isinstance(e, Einsum) and not conditions(e.join):
            return frozenset()
        mask = self.masks.get(id(e))
        if mask is None:
            mask = self.masks[id(e)] = LabelMask(e)
        return idle_tiles(mask, self.parts[i], keys, steps)

    def _operands(self, i: int, e: Space, key: Key) -> Generator[MissingOperand, None, tuple[list[int], list[int]]]:
        """Return the operand values of tile ``key`` of the label space, and the values they are seen as."""
        values: list[int] = []
        seen: list[int] = []
        box: Box = ()
        for slot, (operand, tile_of) in enumerate(self.slots_of(i, e)):
            if tile_of is not None:
                k = tile_of(key)
                v = self.tile[operand].get(k)
                if v is None:
                    yield MissingOperand(operand, k, None)
                    v = self.tile[operand][k]
                values.append(v)
                seen.append(v)
                continue
            box = box or self.parts[i].box(key)
            computed = isinstance(self.graph.nodes[operand], EinsumNode)
            read = yield from self._part(
                operand, e.operand_box(slot, box), self._site(i, key) if computed else UNASSIGNED
            )
            values.append(read.value)
            seen.append(read.seen)
        return values, seen

    def slots_of(self, i: int, e: Space) -> list[Slot]:
        """Return for each operand its node and, if it is read in whole tiles, the function for their keys."""
        if (known := self.slots.get(i)) is not None:
            return known
        part, found, node = self.parts[i], [], self.graph.nodes[i]
        assert isinstance(node, EinsumNode)
        for operand, access in zip(node.operands, e.accesses, strict=True):
            there = self.outputs[operand]
            alike = not isinstance(self.graph.nodes[operand], ConcatNode) and all(
                isinstance(p, int) and n and (part.tiles[p] == t or (n <= t and part.counts[p] == 1))
                for p, t, n in zip(access, there.tiles, there.bounds, strict=True)
            )
            found.append((operand, picker(access) if alike else None))  # type: ignore[arg-type]
        self.slots[i] = found
        return found

    def _kernel(
        self, kind: TaskKind, i: int, e: Space, key: Key, value: int, reads: Sequence[int], seen: Sequence[int]
    ) -> None:
        costs = self.costs.of_tile(i, e, MODES[kind], self.parts[i], key)
        self.columns.kernel(kind, i, key, value, reads, seen, costs)

    # Parts of tensors: tiles read in place, boxes loaded or assembled.

    def _part(self, operand: int, need: Box, site: int = UNASSIGNED) -> Generator[MissingOperand, None, OperandValue]:
        """Return the value that holds box ``need`` of a node: a tile, read in place, or that box alone.

        ``site``: the one that reads a computed tensor.
        """
        known = self.boxes.get((operand, need, site))
        if known is not None:
            return known
        there = self.outputs[operand]
        node = self.graph.nodes[operand]
        keys = [] if isinstance(node, ConcatNode) else there.covering(need)
        # A small part of a tile of a stored tensor is loaded separately.
        small = isinstance(node, InputNode) and operand not in self.copied
        if len(keys) == 1 and not (small and 2 * points(need) < points(there.box(keys[0]))):
            if keys[0] not in self.tile[operand]:
                yield MissingOperand(operand, keys[0], None)
            v = self.tile[operand][keys[0]]
            if self.sent is not None and site != UNASSIGNED:
                v = self.sent.received(operand, v, need, site)
            self.boxes[operand, need, site] = OperandValue(v, v)
        else:
            yield MissingOperand(operand, (), need, site)
        return self.boxes[operand, need, site]

    def _make_part(self, i: int, need: Box) -> Demand:
        """Make box ``need`` of a concatenation: a view of one piece, or a copy of several."""
        if i not in self.pieces:
            self.pieces[i] = ConcatPieces(self.graph, self._concat(i))
        parts = self.pieces[i].parts(need)
        if len(parts) == 1 and parts[0].box == need:
            value, seen = yield from self._part(parts[0].operand, parts[0].within)
            self.boxes[i, need, UNASSIGNED] = OperandValue(
                value, self._view(i, parts[0].outside(self.columns.box_of(seen)))
            )
            return
        keys = self.outputs[i].covering(need)
        tile = self.outputs[i].box(keys[0]) if len(keys) == 1 else need
        if tile != need and 2 * points(need) >= points(tile):
            self.boxes[i, need, UNASSIGNED] = yield from self._part(i, tile)
        else:
            yield from self._assemble(i, need, parts)

    def _by_tile(self, i: int, box: Box) -> list[VisiblePart]:
        """Return the parts of a box by the tiles of node ``i``."""
        here = TensorPiece(i, tuple(range(len(box))), (0,) * len(box))
        tiles = map(self.outputs[i].box, self.outputs[i].covering(box))
        return [VisiblePart(here, common) for t in tiles if (common := intersection(t, box)) is not None]

    def _assemble(self, i: int, need: Box, parts: Sequence[VisiblePart], site: int = UNASSIGNED) -> Demand:
        """Copy parts into a new value that holds box ``need``; one task copies as many small parts as fit."""
        made = self._tile_value(i, need, site)
        nbytes = self.columns.value_nbytes
        spare = 0 if self.sent is None else self.sent.copied_nbytes - nbytes[made]
        held, limit = 0, max(nbytes[made] * COPIED_AT_ONCE, spare)
        reads: list[int] = []
        seen: list[int] = []
        key: list[int] = []
        for part in parts:
            value, layout = yield from self._part(part.operand, part.within, site)
            if part.operand != i:
                layout = self._view(i, part.outside(self.columns.box_of(layout)))
            if reads and held + nbytes[value] > limit:
                self.columns.transfer(TaskKind.MOVE, i, key, made, reads, seen)
                reads, seen, key, held = [], [], [], 0
            reads.append(value)
            seen.append(layout)
            key += [x for bounds in part.box for x in bounds]
            held += nbytes[value]
        if reads or not parts:
            self.columns.transfer(TaskKind.MOVE, i, key, made, reads, seen)
        self.boxes[i, need, site] = OperandValue(made, made)

    # Outputs.

    def _store(self, i: int, key: Key) -> None:
        """Store tile ``key`` of node ``i`` in every output that contains it."""
        v = self.tile[i][key]
        for number, part in self.stores.get(i, ()):
            if part is None:
                self.columns.transfer(TaskKind.STORE, number, key, v, (v,), (v,))
            else:
                self._store_part(number, part, v)

    def _store_part(self, number: int, part: VisiblePart, v: int) -> None:
        """Store the part of value ``v`` that an output contains."""
        layout = part.outside(self.columns.box_of(v))
        visible = intersection(layout, part.box)
        if visible is not None:
            node = self.graph.outputs[number][1]
            seen = self._view(node, layout)
            region = seen if visible == layout else self._view(node, visible)
            self.columns.transfer(TaskKind.STORE, number, (), region, (v,), (seen,))

    def _make_output_part(self, number: int, part: VisiblePart) -> None:
        """Make and store the part of an output that one piece provides."""
        i, there = part.operand, self.outputs[part.operand]
        for key in there.covering(part.within):
            if isinstance(self.graph.nodes[i], InputNode):
                box = intersection(there.box(key), part.within)
                assert box is not None
                if (i, box, UNASSIGNED) not in self.boxes:
                    self._make_all(MissingOperand(i, (), box))
                self._store_part(number, part, self.boxes[i, box, UNASSIGNED].value)
            elif key not in self.tile[i]:
                self._make_all(MissingOperand(i, key, None))

    def _concat(self, i: int) -> ConcatNode:
        node = self.graph.nodes[i]
        assert isinstance(node, ConcatNode)
        return node

    # Values.

    def _tile_value(self, i: int, box: Box, site: int = UNASSIGNED) -> int:
        return self.columns.new_value(ValueKind.TILE, i, box, points(box) * self.graph.nodes[i].dtype.itemsize, site)

    def _view(self, i: int, box: Box) -> int:
        return self.columns.new_value(ValueKind.VIEW, i, box, points(box) * self.graph.nodes[i].dtype.itemsize)
