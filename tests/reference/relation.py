"""Executes the SQL of a plan's relations in SQLite, with functions on tiles in plain NumPy."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import ConcatNode, EinsumNode, InputNode
from einturnip.kernels.mask import LabelMask
from einturnip.report.relation_sql import (
    SqlStatement,
    TileTable,
    aggregate_name,
    identifier,
    key_labels,
    statements,
    tables,
)
from einturnip.tiling.types import Decomposition, index
from tests.reference.region import combine_spaces, evaluate_space, finalize_space

Array = NDArray[Any]


class Database:
    """The tables of one decomposition."""

    def __init__(self, decomposition: Decomposition, inputs: Mapping[str, Array]) -> None:
        self.d, self.tables = decomposition, tables(decomposition)
        self.db = sqlite3.connect(":memory:")
        counts = [n for part in decomposition.partitionings for n in part.counts]
        self.db.execute("CREATE TABLE numbers (n INTEGER)")
        self.db.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(max(counts, default=0) + 1)])
        self.db.create_aggregate("paste", -1, Paste)
        for i, node in enumerate(decomposition.graph.nodes):
            if isinstance(node, InputNode):
                self._fill(i, np.asarray(inputs[node.name]))
        for statement in statements(decomposition):
            self._execute(statement)

    def close(self) -> None:
        self.db.close()

    def rows(self, i: int) -> dict[tuple[int, ...], Array]:
        """The tiles of a node by key."""
        rank = len(self.tables[i].columns)
        rows = self.db.execute(f"SELECT * FROM {identifier(self.tables[i].name)}").fetchall()
        found = {row[:rank]: loaded(row[-1]) for row in rows}
        assert len(found) == len(rows) or self.tables[i].is_union
        return found

    def tensor(self, i: int) -> Array:
        """The whole tensor."""
        node, table = self.d.graph.nodes[i], self.tables[i]
        out = np.empty(node.shape, node.dtype.numpy)
        if isinstance(node, ConcatNode):
            boxes = [x for n in node.shape for x in (0, n)]
            paste = Paste()
            for row in self.db.execute(f"SELECT * FROM {identifier(table.name)}").fetchall():
                paste.step(*boxes, *row)
            return loaded(paste.finalize()).astype(out.dtype) if out.size else out
        for key, tile in self.rows(i).items():
            out[index(table.tiling.box(key))] = tile
        return out

    def _fill(self, i: int, tensor: Array) -> None:
        table = self.tables[i]
        name, columns = identifier(table.name), ", ".join([*map(identifier, table.columns), "tile"])
        self.db.execute(f"CREATE TABLE {name} ({columns})")
        rows = [(*key, stored(tensor[index(table.tiling.box(key))])) for key in table.tiling.each()]
        marks = ", ".join("?" * (len(table.columns) + 1))
        self.db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def _execute(self, statement: SqlStatement) -> None:
        node, table = self.d.graph.nodes[statement.node], self.tables[statement.node]
        if statement.table == table.name and isinstance(node, EinsumNode):
            self._register(statement.node, node, table)
        elif isinstance(node, ConcatNode):
            self._register_pieces(node, table)
        self.db.execute(statement.text)

    def _register_pieces(self, node: ConcatNode, table: TileTable) -> None:
        def piece(number: int, tile: bytes) -> bytes:
            axes = node.pieces[number].axes
            array = loaded(tile)
            shape = [1] * len(node.shape)
            for axis, n in zip(axes, array.shape, strict=True):
                shape[axis] = n
            order = sorted(range(len(axes)), key=lambda k: axes[k])
            return stored(array.transpose(order).reshape(shape))

        self.db.create_function(f"{table.name}_piece", 2, piece)

    def _register(self, i: int, node: EinsumNode, table: TileTable) -> None:
        e, part = node.einsum, self.d.partitionings[i]
        keys = key_labels(e, part)
        steps = list(product(*(range(max(1, part.counts[p])) for p in range(e.n_out, len(e.labels)))))
        mask = LabelMask(e)
        grouped = any(part.counts[p] > 1 for p in e.aggregated)

        def box_of(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
            key = [0] * len(e.labels)
            for p, number in zip(keys, numbers, strict=True):
                key[p] = number
            return part.box(tuple(key))

        def join(*arguments: Any) -> bytes:
            box = list(box_of(arguments[: len(keys)]))
            tiles = [loaded(tile) if tile is not None else None for tile in arguments[len(keys) :]]
            if not keys:  # the values do not depend on positions
                for access, tile in zip(e.accesses, tiles, strict=True):
                    for axis, p in enumerate(access):
                        if isinstance(p, int) and tile is not None:
                            box[p] = (0, tile.shape[axis])
            operands = []
            for slot, tile in enumerate(tiles):
                extents = [hi - lo for lo, hi in e.operand_box(slot, box)]
                operands.append(np.empty(extents, e.dtypes[slot].numpy) if tile is None else tile)
                assert list(operands[-1].shape) == extents
            origins, extents = [lo for lo, _ in box], [hi - lo for lo, hi in box]
            if grouped:
                return pickle.dumps(evaluate_space(e, operands, origins, extents, "state"))
            return stored(evaluate_space(e, operands, origins, extents)[0])

        def keeps(*numbers: int) -> bool:
            box = box_of(numbers)
            if not mask.is_idle(box):
                return True
            key = [lo // max(1, t) for (lo, _), t in zip(box, part.tiles, strict=True)]
            out, inner = tuple(key[: e.n_out]), tuple(key[e.n_out :])
            return inner == steps[0] and all(mask.is_idle(part.box(out + s)) for s in steps)

        class Combine:
            def __init__(self) -> None:
                self.state: Any = None

            def step(self, state: bytes) -> None:
                new = pickle.loads(state)
                self.state = new if self.state is None else combine_spaces(e, self.state, new)

            def finalize(self) -> bytes:
                return stored(finalize_space(e, self.state))

        self.db.create_function(f"{table.name}_join", -1, join)
        self.db.create_function(f"{table.name}_keeps", -1, keeps)
        self.db.create_aggregate(aggregate_name(e), 1, Combine)


class Paste:
    """The aggregate ``paste`` of the SQL."""

    def __init__(self) -> None:
        self.box: list[tuple[int, int]] | None = None
        self.parts: list[tuple[int, tuple[int, ...], Array]] = []

    def step(self, *arguments: Any) -> None:
        rank = (len(arguments) - 2) // 3
        ends = arguments[: 2 * rank]
        self.box = list(zip(ends[::2], ends[1::2], strict=True))
        if arguments[-1] is not None:
            self.parts.append((arguments[-2], arguments[2 * rank : 3 * rank], loaded(arguments[-1])))

    def finalize(self) -> bytes | None:
        if self.box is None or not self.parts:
            return None
        out = np.zeros([hi - lo for lo, hi in self.box], self.parts[0][2].dtype)
        for _, at, tile in sorted(self.parts, key=lambda part: part[0]):
            common = [(max(lo, a), min(hi, a + n)) for (lo, hi), a, n in zip(self.box, at, tile.shape, strict=True)]
            if all(lo < hi for lo, hi in common):
                there = tuple((a, a + n) for a, n in zip(at, tile.shape, strict=True))
                out[index(tuple(common), tuple(self.box))] = tile[index(tuple(common), there)]
        return stored(out)


def stored(array: Array) -> bytes:
    return pickle.dumps(np.asarray(array))


def loaded(tile: bytes) -> Array:
    found: Array = pickle.loads(tile)
    return found
