"""Writes the nodes of a decomposition as SQL over tables of tiles.

A table has one row per tile; its keys are the tile's number along each axis.

A node is a join of its operands' tables, grouped by the output's labels if an aggregated label is tiled. Where the
tiles that it reads are not those of the operand's table, a repartition comes first: a join on overlapping intervals,
grouped by the new keys. A concatenation is a union of its pieces.

Functions on tiles that the SQL calls, here for a node named C:

- ``C_join(keys..., tiles...)``: the joined tile, or its partial state if rows are grouped. The keys come first, where
  the values depend on positions.
- ``sum_tiles(tile)`` and the like: aggregates that combine partial states and finalize the total.
- ``C_keeps(keys...)``: false for tiles that a mask on labels empties.
- ``paste(start, stop, ..., position, ..., rank, tile)``: an aggregate that assembles a box, (start, stop) of each axis,
  from tiles at a position; a higher rank overwrites a lower one.
- ``C_piece(n, tile)``: piece n of a concatenation with the axes of the whole.

``numbers`` is a table of the numbers from 0, in column n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from einturnip.eingraph.printer import unique_labels
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Access, Einsum, Index, labels_read
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import LabelValue, walk
from einturnip.kernels.mask import LabelMask
from einturnip.tiling.types import Decomposition, Partitioning

_KEYWORDS = frozenset(
    """add all alter and as by case check create cross delete desc distinct drop else end except exists for from group
    having if in index insert into is isnull join key left like limit match natural no not null numbers of on or order
    outer over primary range references right rows select set table then tile to union unique update using values view
    when where with""".split()  # noqa: SIM905 (a list has 560 columns)
)


def identifier(name: str) -> str:
    """Quote a name where SQL needs it."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.lower() not in _KEYWORDS else f'"{name}"'


class UniqueNames:
    """Hands out names that differ by more than case, since SQL may ignore it."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}

    def unique(self, name: str) -> str:
        """Return ``name``, with a number if it is taken."""
        found, n = name, 1
        while found.lower() in self._taken:
            n += 1
            found = f"{name}_{n}"
        self._taken.add(found.lower())
        return found


@dataclass(frozen=True, slots=True)
class TileTable:
    """A table of tiles. ``columns``: one per axis, the tile's number; of a concatenation, its position."""

    name: str
    columns: tuple[str, ...]
    tiling: Partitioning
    is_union: bool


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One statement: it makes ``table`` for ``node`` from other tables."""

    node: int
    table: str
    reads: tuple[str, ...]
    text: str


@dataclass(slots=True)
class _Joined:
    """A FROM clause under construction.

    ``label``: the expression of each label's tile number. ``where``: conditions.
    """

    text: str = ""
    where: list[str] = field(default_factory=list)
    label: dict[int, str] = field(default_factory=dict)

    def add(self, source: str, on: Sequence[str]) -> None:
        if not self.text:
            self.text = source
            self.where += on
        elif on:
            self.text += f"\n  JOIN {source} ON {' AND '.join(on)}"
        else:
            self.text += f"\n  CROSS JOIN {source}"


def tables(decomposition: Decomposition) -> tuple[TileTable, ...]:
    """Return the table of each node."""
    names, found = UniqueNames(("numbers",)), []
    for i, node in enumerate(decomposition.graph.nodes):
        rank = len(node.shape)
        columns = [f"i{axis}" for axis in range(rank)]
        if isinstance(node, EinsumNode):
            columns = unique_labels(node.einsum)[:rank]
        own = UniqueNames(("tile", "rank"))
        columns = [own.unique(c) for c in columns]
        union = isinstance(node, ConcatNode)
        found.append(TileTable(names.unique(node.name), tuple(columns), decomposition.output(i), union))
    return tuple(found)


def statements(decomposition: Decomposition) -> Iterator[SqlStatement]:
    """Yield the statements that make the table of every node but inputs, operands first."""
    made = tables(decomposition)
    names = UniqueNames([table.name for table in made])
    for i, node in enumerate(decomposition.graph.nodes):
        match node:
            case InputNode():
                pass
            case EinsumNode():
                yield from _NodeSql(decomposition, made, names, i, node).statements()
            case ConcatNode():
                yield _union(decomposition.graph, made, i, node)


def reads_tiles(decomposition: Decomposition, node: EinsumNode, part: Partitioning, slot: int) -> bool:
    """Return True if every tile of the node's label space reads one whole tile of operand ``slot``."""
    operand = node.operands[slot]
    there = decomposition.output(operand)
    return not isinstance(decomposition.graph.nodes[operand], ConcatNode) and all(
        isinstance(p, int) and n > 0 and (part.tiles[p] == t or (n <= t and part.counts[p] == 1))
        for p, t, n in zip(node.einsum.accesses[slot], there.tiles, there.bounds, strict=True)
    )


def key_labels(space: Space, part: Partitioning) -> tuple[int, ...]:
    """Return the labels whose tile numbers a node's functions receive.

    These are the tiled labels, if values depend on positions.
    """
    return tuple(p for p, n in enumerate(part.counts) if n > 1) if _uses_positions(space) else ()


def _uses_positions(space: Space) -> bool:
    if isinstance(space, Region) or not space.plain:
        return True
    read = frozenset[int]().union(*map(labels_read, space.accesses))
    positional = space.aggregation is not None and space.aggregation.indexed
    return positional or len(read) < len(space.labels) or any(isinstance(e, LabelValue) for e in walk(space.join))


def conditions(space: Space) -> LabelMask | None:
    """Return the mask of an einsum or region; None if it has no condition on labels alone."""
    mask = LabelMask(space)
    return mask if mask.conditions else None


def _union(graph: EinGraph, made: Sequence[TileTable], i: int, node: ConcatNode) -> SqlStatement:
    here, selects = made[i], []
    ranks = _rank_stride(graph)
    for number, piece in enumerate(node.pieces):
        source = made[piece.operand]
        starts: list[str] = [str(lo) for lo in piece.offsets]
        for axis, column, tile in zip(piece.axes, source.columns, source.tiling.tiles, strict=True):
            step = f"{identifier(column)}" if source.is_union else f"{identifier(column)}*{tile}"
            starts[axis] = f"{step} + {piece.offsets[axis]}" if piece.offsets[axis] else step
        columns = [f"{start} AS {identifier(c)}" for start, c in zip(starts, here.columns, strict=True)]
        rank = f"{number * ranks[piece.operand]}" + (" + rank" if source.is_union else "")
        whole = piece.axes == tuple(range(len(node.shape)))
        tile_of = "tile" if whole else f"{identifier(f'{here.name}_piece')}({number}, tile) AS tile"
        columns += [f"{rank} AS rank", tile_of]
        selects.append(f"SELECT {', '.join(columns)} FROM {identifier(source.name)}")
    text = f"CREATE TABLE {identifier(here.name)} AS\n" + "\nUNION ALL ".join(selects)
    return SqlStatement(i, here.name, tuple(made[o].name for o in node.operands), text)


def _rank_stride(graph: EinGraph) -> list[int]:
    """Return for each node a number above every rank of its rows."""
    found: list[int] = []
    for node in graph.nodes:
        most = max((found[p.operand] for p in node.pieces), default=1) if isinstance(node, ConcatNode) else 1
        found.append(most * len(node.pieces) if isinstance(node, ConcatNode) else 1)
    return found


class _NodeSql:
    """The statements of one einsum or region."""

    def __init__(
        self, d: Decomposition, made: Sequence[TileTable], names: UniqueNames, i: int, node: EinsumNode
    ) -> None:
        self.d, self.made, self.names, self.i, self.node = d, made, names, i, node
        self.space, self.part, self.here = node.einsum, d.partitionings[i], made[i]
        self.labels = unique_labels(self.space)
        self.copies: dict[tuple[int, Access], str] = {}  # repartitions by operand and access

    def statements(self) -> Iterator[SqlStatement]:
        """Yield repartitions, then the join."""
        sources: list[tuple[str, list[tuple[int, str]]]] = []  # table, and label and column of its keys
        for slot, (operand, access) in enumerate(zip(self.node.operands, self.space.accesses, strict=True)):
            table = self.made[operand]
            if reads_tiles(self.d, self.node, self.part, slot):
                keys = [(p, c) for p, c in zip(access, table.columns, strict=True) if isinstance(p, int)]
                sources.append((table.name, keys))
                continue
            labels = self._tiled(access)
            if (operand, access) not in self.copies:
                name = self.names.unique(f"{table.name}_for_{self.here.name}")
                self.copies[operand, access] = name
                yield SqlStatement(self.i, name, (table.name,), self._repartition(name, table, access, labels))
            sources.append((self.copies[operand, access], [(p, self.labels[p]) for p in labels]))
        yield SqlStatement(self.i, self.here.name, tuple(name for name, _ in sources), self._join(sources))

    def _tiled(self, access: Access) -> list[int]:
        return sorted(p for p in labels_read(access) if self.part.counts[p] > 1)

    def _repartition(self, name: str, table: TileTable, access: Access, labels: Sequence[int]) -> str:
        aliases = UniqueNames((table.name,))
        number = {p: identifier(aliases.unique(self.labels[p])) for p in labels}
        source, boxes, on, positions = identifier(table.name), [], [], []
        for axis, index in enumerate(access):
            column = f"{source}.{identifier(table.columns[axis])}"
            tile, size = table.tiling.tiles[axis], table.tiling.bounds[axis]
            start, stop = self._interval(index, size, number)
            boxes += [start, stop]
            at = column if table.is_union else f"{column}*{tile}" if table.tiling.counts[axis] > 1 else "0"
            positions.append(at)
            if at != "0" and not table.is_union:
                on += [f"{column}*{tile} < {stop}", f"({column} + 1)*{tile} > {start}"]
        rank = [f"{source}.rank" if table.is_union else "0"]
        paste = f"paste({', '.join([*boxes, *positions, *rank, f'{source}.tile'])}) AS tile"
        keys = [f"{number[p]}.n AS {identifier(self.labels[p])}" for p in labels]
        text = f"CREATE TABLE {identifier(name)} AS\nSELECT {', '.join([*keys, paste])}\nFROM "
        if not labels:
            return text + source + (f"\nWHERE {' AND '.join(on)}" if on else "")
        text += " CROSS JOIN ".join(f"numbers AS {number[p]}" for p in labels)
        text += f"\n  LEFT JOIN {source} ON {' AND '.join(on) or '1 = 1'}"
        text += f"\nWHERE {' AND '.join(f'{number[p]}.n < {self.part.counts[p]}' for p in labels)}"
        return text + f"\nGROUP BY {', '.join(f'{number[p]}.n' for p in labels)}"

    def _interval(self, index: int | Index, size: int, number: dict[int, str]) -> tuple[str, str]:
        """Return the start and stop of an index over a tile: numbers, or expressions of tile numbers."""
        plain = index if isinstance(index, Index) else Index(((index, 1),))
        read = [p for p, _ in plain.terms]
        if not any(p in number for p in read):
            box = [(0, min(t, b)) for t, b in zip(self.part.tiles, self.part.bounds, strict=True)]
            lo, hi = box[index] if isinstance(index, int) else index.interval(box, size)
            return str(lo), str(hi)
        low, high = self._extremes(plain, number, 1 if plain.affine else 0)
        if plain.affine:
            return low, high
        ends = [(0, max(b, 1)) for b in self.part.bounds]
        raw = Index(plain.terms, plain.offset).interval(ends, size)
        low, high = self._divided(plain, low, high, raw[0] >= 0)
        if plain.clamped:
            low, high = (f"max(min({x}, {size - 1}), 0)" for x in (low, high))
        return low, f"{high} + 1"

    def _extremes(self, index: Index, number: dict[int, str], added: int) -> tuple[str, str]:
        """Return the smallest value of the sum of an index over a tile, and the largest plus ``added``."""
        sums: tuple[list[str], list[str]] = ([], [])
        constants = [index.offset, index.offset + added]
        for p, c in index.terms:
            tile, bound = self.part.tiles[p], self.part.bounds[p]
            first, last = (0, 1) if c > 0 else (1, 0)
            if p not in number:
                constants[last] += c * (min(tile, bound) - 1)
                continue
            sums[first].append(f"{c * tile}*{number[p]}.n")
            if bound % tile:
                scale = "" if c == 1 else f"{c}*"
                sums[last].append(f"{scale}min({tile}*{number[p]}.n + {tile}, {bound})")
                constants[last] -= c
            else:
                sums[last].append(f"{c * tile}*{number[p]}.n")
                constants[last] += c * (tile - 1)
        low, high = (
            " + ".join([*terms, *([str(constant)] if constant else [])]).replace("+ -", "- ")
            for terms, constant in zip(sums, constants, strict=True)
        )
        return low, high

    def _divided(self, index: Index, low: str, high: str, natural: bool) -> tuple[str, str]:
        """Apply divisor and modulus to the ends of an interval; SQL rounds towards zero, the language down."""
        if index.divisor != 1:
            d = index.divisor
            low, high = (f"({x})/{d}" if natural else f"(({x}) - ((({x}) % {d}) + {d}) % {d})/{d}" for x in (low, high))
        if index.modulus:
            m, same = index.modulus, ""
            turns = [f"({x})/{m}" if natural else f"(({x}) - ((({x}) % {m}) + {m}) % {m})/{m}" for x in (low, high)]
            same = f"CASE WHEN {turns[0]} = {turns[1]} THEN"
            low = f"{same} ((({low}) % {m}) + {m}) % {m} ELSE 0 END"
            high = f"({same} ((({high}) % {m}) + {m}) % {m} ELSE {m - 1} END)"
        return low, high

    def _join(self, sources: Sequence[tuple[str, Sequence[tuple[int, str]]]]) -> str:
        aliases, joined, tiles = UniqueNames(), _Joined(), []
        for name, keys in sources:
            alias = aliases.unique(name)
            shown = identifier(alias)
            on = []
            for p, column in keys:
                place = f"{shown}.{identifier(column)}"
                if p in joined.label:
                    on.append(f"{place} = {joined.label[p]}")
                else:
                    joined.label[p] = place
            joined.add(shown if alias == name else f"{identifier(name)} AS {shown}", on)
            tiles.append(f"{shown}.tile")
        for p, count in enumerate(self.part.counts):
            if p not in joined.label and count != 1 and p < self.space.n_out + len(self.space.aggregated):
                if count == 0 and p >= self.space.n_out:
                    continue  # an empty aggregation still has one row
                alias = identifier(aliases.unique(self.labels[p]))
                joined.add(f"numbers AS {alias}", [])
                joined.where.append(f"{alias}.n < {count}")
                joined.label[p] = f"{alias}.n"
        return self._select(joined, tiles)

    def _select(self, joined: _Joined, tiles: Sequence[str]) -> str:
        space, name = self.space, self.here.name
        numbers = [joined.label[p] for p in key_labels(space, self.part) if p in joined.label]
        tile = f"{identifier(f'{name}_join')}({', '.join([*numbers, *tiles])})"
        grouped = any(self.part.counts[p] > 1 for p in space.aggregated)
        if grouped:
            tile = f"{aggregate_name(space)}({tile})"
            if conditions(space) is not None:
                joined.where.append(f"{identifier(f'{name}_keeps')}({', '.join(numbers)})")
        places = [joined.label.get(p, "0") for p in range(space.n_out)]
        columns = [f"{place} AS {identifier(c)}" for place, c in zip(places, self.here.columns, strict=True)]
        text = f"CREATE TABLE {identifier(name)} AS\nSELECT {', '.join([*columns, f'{tile} AS tile'])}"
        text += f"\nFROM {joined.text}" if joined.text else ""
        text += f"\nWHERE {' AND '.join(joined.where)}" if joined.where else ""
        if grouped and (by := [place for place in places if place != "0"]):
            text += f"\nGROUP BY {', '.join(by)}"
        return text


def aggregate_name(space: Space) -> str:
    """Return the name of the aggregate function of a node: ``sum_tiles``."""
    aggregation = space.aggregation if isinstance(space, Einsum) else None
    return f"{aggregation.op}_tiles" if aggregation is not None else "combine_tiles"
