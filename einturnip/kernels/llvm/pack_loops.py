"""Packed contractions as machine code: blocks packed from any strides, combined in registers.

One function serves every contraction of a join: matrix products of a type, distances, (min, +). Each label has a stride
of its own in each tensor, so rows, columns and terms run over several labels; their offsets are tabulated a block at a
time. Results are stored with the strides of the output. Source: Goto and van de Geijn (2008), the blocks; Matthews
(2018), tables of offsets instead of strides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from einturnip.core.units import whole_lines
from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.pack_routines import packs, place, table
from einturnip.kernels.llvm.packed_spec import CHUNK, PackedSpec
from einturnip.kernels.llvm.register_tile import LEAVES, PUTS, STREAMS, TileUpdate, strip_tile, tile
from einturnip.kernels.llvm.routine import ONE, Routine, module, number
from einturnip.kernels.llvm.transposed_packing import RUN, ColumnBlock, TermBlock

# The argument is an array of i64: WORDS, then the byte offsets of the LISTS of labels in it, the byte offsets of
# buffers in the workspace, and the addresses of the operands and of the result. A list: the number of labels; of each,
# outermost first, its extent and its strides in the operands and in the result, in bytes.
WORDS = (
    *("adds", "alpha", "scratch", "batches", "rows", "columns", "terms"),
    *("row_block", "column_block", "term_block"),
    # Columns, else terms, that are adjacent in the first right operand: distance in the list, and number; 0: none.
    *("column_step", "column_part", "term_step", "term_part"),
    # Not 0: the packed right operands are kept for the next call, which packs again only if their addresses, extents or
    # this word differ.
    "keeps",
)
LISTS = ("batch_list", "row_list", "column_list", "term_list")
_FEW = 4  # up to this many panels of columns, a left operand with contiguous terms is read without packing it
_AHEAD = 4  # panels of the right that are prefetched
# Columns that are packed at once, and elements of that block, which is to stay in the second-level cache (bytes both).
_MAX_COLUMNS, _MAX_PACKED = 2048, 512 << 10
_MAX_ROWS = 768  # rows of a block


@dataclass(frozen=True)
class PackedBlocks:
    """Rows, columns and terms of a block, and the byte offsets of its buffers in the workspace."""

    rows: int
    columns: int
    terms: int
    code: PackedSpec

    @classmethod
    def of(cls, code: PackedSpec, m: int, n: int, k: int, squares: tuple[int, int] = (0, 1)) -> PackedBlocks:
        """Return blocks for the caches of a core; ``squares``: columns and terms of a square, if any."""
        columns = _even(n, max(max_packed_columns(code), squares[0]), squares[0] or code.columns)
        points = _MAX_PACKED // (code.right_panels * code.size)
        terms = min(points // -(-columns // code.columns) // code.columns, 16 * CHUNK)
        terms = max(1, terms // CHUNK) * CHUNK  # results are loaded and stored once a chunk, however short it is
        return cls(_even(m, _MAX_ROWS, code.rows), columns, _even(k, terms, squares[1]), code)

    @property
    def places(self) -> dict[str, int]:
        """Byte offsets in the workspace; ``end`` is its size."""
        columns = -(-self.columns // self.code.columns) * self.code.columns
        counts = {"r": self.rows, "c": columns, "t": self.terms}
        sizes = {
            "kept": 8 * (1 + self.code.right),
            "tile": self.code.rows * self.code.columns * self.code.size,
            "near": (RUN + self.code.width) * self.code.width * self.code.size,
            "left_panel": self.code.left_panels * self.code.left_nbytes,
            "right_panel": columns // self.code.columns * (self.terms + 1) * self.code.term_nbytes,
            **{name: 16 * counts[name[0]] for name in _tables(self.code)},  # of places, then of runs
        }
        found, at = {}, 0
        for name, nbytes in sizes.items():
            found[name] = at
            at += whole_lines(nbytes)
        return {**found, "end": at}


def _tables(code: PackedSpec) -> list[str]:
    """Return the names of tables of offsets: a group of labels and a tensor."""
    left, right = code.sides
    of_left = [f"{group}_{k}" for k in left for group in ("row", "term")]
    of_right = [f"{group}_{k}" for k in right for group in ("column", "term")]
    return ["row_out", "column_out", *of_left, *of_right]


def place_names(code: PackedSpec) -> tuple[str, ...]:
    """Return the buffers in the workspace, in the order of the argument."""
    return ("kept", "tile", "near", "left_panel", "right_panel", *_tables(code))


def address_words(code: PackedSpec) -> range:
    """Return the words of the argument that hold the addresses of the operands and of the result."""
    begin = len(WORDS) + len(LISTS) + len(place_names(code))
    return range(begin, begin + len(code.tensors))


def max_packed_columns(code: PackedSpec) -> int:
    """Return the maximum columns that are packed at once."""
    return _MAX_COLUMNS // (code.right_panels * code.size)


def max_transposed_columns(code: PackedSpec, terms: int) -> int:
    """Return the maximum columns that are packed at once in squares: more, the fewer terms there are."""
    return max(2 * _MAX_COLUMNS, min(8 * _MAX_COLUMNS, _MAX_PACKED // terms)) // code.size


def _even(n: int, max_size: int, unit: int = 1) -> int:
    """Return the size of nearly equal blocks, at most ``max_size``, in multiples of ``unit``."""
    count = -(-n // (max(1, max_size // unit) * unit))
    each = -(-n // count)
    return -(-each // unit) * unit


def packed_function(what: PackedSpec, name: str) -> str:
    """Return the LLVM IR."""
    parts = [place(what), table(what), *packs(what), TileUpdate(what)]
    parts += [ColumnBlock(what), TermBlock(what)] if what.is_product else []
    widths = range(1, what.vectors + 1)
    for kind, heights in what.heights.items():
        make = {"tile": tile, "strip": strip_tile}[kind]
        parts += [make(what, height, vectors) for height in heights for vectors in widths]
    return module([*parts, _BlockedLoops(what, name)])


class _BlockedLoops(Routine):
    """The loops: batches, columns, terms, rows; then strips of rows, chunks of terms, and register tiles."""

    def __init__(self, what: PackedSpec, name: str) -> None:
        super().__init__(name, "words", "", linkage="")
        self.what, base = what, self["words"]
        self.word_of = {text: self.word(base, k) for k, text in enumerate(WORDS)}
        self.scratch = self.as_pointer(self.word_of["scratch"])
        self.lists = {text: self.at(base, self.word(base, len(WORDS) + k)) for k, text in enumerate(LISTS)}
        behind = len(WORDS) + len(LISTS)
        names = place_names(what)
        self.places = {text: self.at(self.scratch, self.word(base, behind + k)) for k, text in enumerate(names)}
        self.left, self.right = ([str(k) for k in side] for side in what.sides)
        self.factor = self.words(base, WORDS.index("alpha"))
        self.runs: dict[str, IrValue] = {}
        self.each(self.word_of["batches"], 1, self._batch)
        self.run_intrinsic("x86.sse.sfence")

    def _table(self, text: str, begin: IrValue, count: IrValue, unit: int = 1) -> None:
        """Fill a table of offsets, and after it the lengths of contiguous runs."""
        group, tensor = text.split("_")
        padded = self.rounded(count, unit) if unit > 1 else count
        self.runs[text] = self.words(self.places[text], padded)
        pointers = self.places[text], self.runs[text], self.lists[f"{group}_list"]
        self.run("table", *pointers, begin, count, padded, number(1 + self.what.tensors.index(tensor)))

    def _batch(self, batch: IrValue) -> None:
        self.tensors = {}
        for k, (tensor, word) in enumerate(zip(self.what.tensors, address_words(self.what), strict=True)):
            arguments = f"{self.lists['batch_list']}, {batch}, i64 {k + 1}"
            moved = self.make(f"call i64 @place({arguments})", "i64", 0)
            self.tensors[tensor] = self.at(self.pointer_in(self["words"], word), moved)
        self.blocks(self.word_of["columns"], self.word_of["column_block"], self._columns)

    def _columns(self, begin: IrValue) -> None:
        self.first_column = begin
        self.breadth = self.minimum(self.minus(self.word_of["columns"], begin), self.word_of["column_block"])
        self._table("column_out", begin, self.breadth, self.what.columns)
        self.blocks(self.word_of["terms"], self.word_of["term_block"], self._terms)

    def _terms(self, begin: IrValue) -> None:
        self.depth = self.minimum(self.minus(self.word_of["terms"], begin), self.word_of["term_block"])
        for left in self.left:
            self._table(f"term_{left}", begin, self.depth)
        self.adds = self.select(self.whether("sgt", begin, 0), ONE, self.word_of["adds"])
        self.panel_nbytes = self.times(self.plus(self.depth, 1), self.what.term_nbytes)
        self._keep_or_pack(begin)
        self.blocks(self.word_of["rows"], self.word_of["row_block"], self._rows)

    def _panel(self, column: IrValue) -> IrValue:
        """Return the address of a column's right panel."""
        return self.at(self.places["right_panel"], self.times(self.over(column, self.what.columns), self.panel_nbytes))

    def _keep_or_pack(self, term: IrValue) -> None:
        """Pack the right blocks from a term on, unless they are already packed."""
        kept = self.places["kept"]
        kind = self.plus(self.times(self.word_of["keeps"], 1 << 24), self.breadth)
        extents = self.plus(self.times(kind, 1 << 32), self.depth)
        block = extents, *(self.address(self.tensors[right]) for right in self.right)
        there = self.whether("ne", self.word_of["keeps"], 0)
        for k, value in enumerate(block):
            there = self.both(there, self.whether("eq", self.word(kept, k), value))

        def pack() -> None:
            self._pack(term)
            for k, value in enumerate(block):
                self.store(value, self.words(kept, k))

        self.either(there, lambda: None, pack)

    def _pack(self, term: IrValue) -> None:
        """Pack the right blocks, the first by the routine that touches each cache line once."""
        columns, width, each = self.what.columns, self.what.width, self.each
        for k, right in enumerate(self.right):
            self._table(f"column_{right}", self.first_column, self.breadth, columns)
            self._table(f"term_{right}", term, self.depth)
            plain = partial(each, self.breadth, columns, partial(self._pack_right, k))
            if not self.what.is_product:
                plain()
                continue
            along, aside = (self.whether("sgt", self.word_of[f"{text}_step"], 0) for text in ("column", "term"))
            of_terms = partial(each, self.breadth, width, self._pack_terms)
            self.either(along, self._pack_columns, partial(self.either, aside, of_terms, plain))
        if not self.what.graph.is_packed(1):
            each(self.breadth, width, lambda column: self.run("map_right", self._vector(column), self.depth))

    def _vector(self, column: IrValue) -> IrValue:
        """Return the address of a vector of columns in the right panel."""
        return self.at(self._panel(column), self.times(self.integer("urem", column, self.what.columns), self.what.size))

    def _pack_columns(self) -> None:
        """Pack in squares of columns, after the columns of a partial last panel."""
        whole = self.times(self.over(self.breadth, self.what.columns), self.what.columns)
        self.when(self.whether("sgt", self.breadth, whole), lambda: self._pack_right(0, whole))
        step, part = (self.word_of[f"column_{text}"] for text in ("step", "part"))
        places, right = self.places, self.right[0]

        def one(first: IrValue) -> None:
            tables = places[f"column_{right}"], places[f"term_{right}"], places["near"]
            numbers = first, step, part, self.panel_nbytes, self.depth
            self.run("pack_columns", places["right_panel"], self.tensors[right], *tables, *numbers)

        self.blocks(self.breadth, self.times(step, part), one)

    def _pack_terms(self, column: IrValue) -> None:
        """Pack a vector of columns in squares of terms."""
        places, right = self.places, self.right[0]
        tables = self.words(places[f"column_{right}"], column), places[f"term_{right}"], places["near"]
        step, part = (self.word_of[f"term_{text}"] for text in ("step", "part"))
        self.run("pack_terms", self._vector(column), self.tensors[right], *tables, step, part, self.depth)

    def _pack_right(self, k: int, column: IrValue) -> None:
        """Pack a panel of the right operand ``k``."""
        columns, right = self.what.columns, self.right[k]
        of_columns, of_terms = self.places[f"column_{right}"], self.places[f"term_{right}"]
        last = self.minus(self.rounded(self.breadth, columns), columns)
        following = self.minimum(self.plus(column, _AHEAD * columns), last)
        self.run(
            "pack_right",
            *(self.at(self._panel(column), k * columns * self.what.size), self.tensors[right]),
            *(self.words(of_columns, column), self.words(self.runs[f"column_{right}"], column)),
            *(of_terms, self.runs[f"term_{right}"], self.words(of_columns, following)),
            self.depth,
        )

    def _rows(self, begin: IrValue) -> None:
        self.height = self.minimum(self.minus(self.word_of["rows"], begin), self.word_of["row_block"])
        for tensor in (*self.left, "out"):
            self._table(f"row_{tensor}", begin, self.height, self.what.rows)

        def strips(high: int, body: Callable[[IrValue, IrValue], None]) -> None:
            def strip(row: IrValue) -> None:
                following = self.plus(row, high)
                body(row, self.select(self.whether("slt", following, self.height), following, row))

            self.each(self.height, high, strip)

        packing = partial(strips, self.what.rows, self._chunks)
        if not self.what.is_product:
            packing()
            return
        straight = self.whether("sge", self.word(self.runs[f"term_{self.left[0]}"], 0), self.depth)
        narrow = self.whether("sle", self.breadth, _FEW * self.what.columns)
        passing = partial(strips, self.what.heights["strip"][-1], self._passing)
        self.either(self.both(straight, narrow), passing, packing)

    def _passing(self, row: IrValue, following: IrValue) -> None:
        """Compute tiles of rows with contiguous terms, for few columns."""
        left = self.left[0]
        rows, first = self.places[f"row_{left}"], self.word(self.places[f"term_{left}"], 0)

        def one(column: IrValue) -> None:
            again = self.whether("slt", self.plus(column, self.what.columns), self.breadth)
            ahead = self.words(rows, self.select(again, row, following))
            pointers = self._panel(column), self.tensors[left], self.words(rows, row), ahead
            self._tile("strip", row, column, self.adds, pointers, (first, self.depth))

        self.each(self.breadth, self.what.columns, one)

    def _chunks(self, row: IrValue, following: IrValue) -> None:
        self.each(self.depth, CHUNK, lambda term: self._chunk(row, following, term))

    def _put(self, row: IrValue, column: IrValue, max_rows: int, how: IrValue) -> None:
        """Store a tile of at most ``max_rows`` rows to the result."""
        places, runs = self.places, self.runs
        self.run(
            "update",
            *(places["tile"], self.tensors["out"], self.words(places["row_out"], row)),
            *(self.words(places["column_out"], column), self.words(runs["column_out"], column), self.factor),
            *(self.minimum(self.minus(self.height, row), max_rows), self.minus(self.breadth, column), how),
        )

    def _chunk(self, row: IrValue, following: IrValue, term: IrValue) -> None:
        """Pack left panels and compute their tiles, prefetching the next chunk or the next strip's first."""
        places, runs, what, after = self.places, self.runs, self.what, self.plus(term, CHUNK)
        more = self.whether("slt", after, self.depth)
        count = self.minimum(self.minus(self.depth, term), CHUNK)
        adds = self.select(self.whether("sgt", term, 0), ONE, self.adds)
        panel, sources = places["left_panel"], []
        for k, left in enumerate(self.left):
            of_rows, of_terms = places[f"row_{left}"], places[f"term_{left}"]
            ahead = self.words(of_rows, self.select(more, row, following))
            terms = self.words(of_terms, self.select(more, after, number(0)))
            sources.append((self.tensors[left], ahead, terms))
            pointers = self.words(of_rows, row), self.words(runs[f"row_{left}"], row)
            along = self.words(of_terms, term), self.words(runs[f"term_{left}"], term)
            target = self.at(panel, k * what.left_nbytes)
            self.run("pack_left", target, self.tensors[left], *pointers, *along, ahead, count)
        if not what.graph.is_packed(0):
            self.run("map_left", panel, count)

        def one(column: IrValue) -> None:
            right = self.at(self._panel(column), self.times(term, what.term_nbytes))
            self._tile("tile", row, column, adds, (panel, right, *sources[0]), (count,))

        self.each(self.breadth, what.columns, one)

    def _tile(
        self,
        kind: str,
        row: IrValue,
        column: IrValue,
        how: IrValue,
        places: tuple[IrValue, ...],
        numbers: tuple[IrValue, ...],
    ) -> None:
        """Call the smallest routine that covers the remaining rows and columns."""
        heights = self.what.heights[kind]
        lines, across = self.minus(self.height, row), self.minus(self.breadth, column)
        wide = self.whether("sgt", across, self.what.width)
        out = self.at(self.tensors["out"], self.word(self.places["column_out"], column))
        result = self.places["tile"], out, self.words(self.places["row_out"], row), self.factor
        run = self.word(self.runs["column_out"], column)

        even = self.whether("eq", self.integer("and", self.address(out), 63), 0)
        streams = self.whether("eq", how, STREAMS)

        def of(height: int, vectors: int) -> None:
            columns = self.minimum(across, vectors * self.what.width)
            whole = self.both(self.whether("sge", run, columns), self.whether("sge", lines, height))
            full = self.both(self.whether("eq", columns, vectors * self.what.width), even)
            direct = self.select(self.both(streams, self.make(f"xor {full}, true", "i1", 0)), number(PUTS), how)
            here = self.select(whole, direct, number(LEAVES))
            self.run(f"{kind}{height}x{vectors}", *result, *places, here, across, *numbers)
            self.when(self.whether("eq", here, LEAVES), lambda: self._put(row, column, heights[-1], how))

        def tile_of(height: int) -> None:
            if self.what.vectors == 1:
                of(height, 1)
            else:
                self.either(wide, lambda: of(height, 2), lambda: of(height, 1))

        def lowest(height: int, *higher: int) -> None:
            if not higher:
                tile_of(height)
            else:
                self.either(self.whether("sgt", lines, height), lambda: lowest(*higher), lambda: tile_of(height))

        lowest(*heights)
