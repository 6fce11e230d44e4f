"""Contractions as machine code: blocks packed from any strides, multiplied in registers.

One function an element type serves every contraction. Each label has a stride of its own in each tensor, so rows,
columns and terms of the sum run over several labels; their offsets are tabulated a block at a time. Results are stored
with the strides of the output. Source: Goto and van de Geijn (2008), the blocks; Matthews (2018), tables of offsets
instead of strides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from einturnip.kernels.llvm.ir import IrValue
from einturnip.kernels.llvm.pack_routines import CHUNK, ROWS, ProductSpec, packs, place, table
from einturnip.kernels.llvm.register_tile import HEIGHTS, LEAVES, STREAMS, TileUpdate, strip_tile, tile
from einturnip.kernels.llvm.routine import ONE, Routine, module, number
from einturnip.kernels.llvm.transposed_packing import RUN, ColumnBlock, TermBlock

# The argument is an array of i64: WORDS, then the byte offsets of the LISTS of labels in it, then the byte offsets of
# PLACES in the workspace. A list: the number of labels, and four words each, outermost first: extent, and the strides
# of left, right and out in bytes.
WORDS = (
    *("adds", "alpha", "left", "right", "out", "scratch"),
    *("batches", "rows", "columns", "terms"),
    *("row_block", "column_block", "term_block"),
    # Columns, else terms, that are adjacent in the right operand: their distance in the list, and number; 0: none.
    *("column_step", "column_part", "term_step", "term_part"),
    # Not 0: the packed right operand is kept for the next call, which packs again only if its address, extents or this
    # word differ.
    "keeps",
)
LISTS = ("batch_list", "row_list", "column_list", "term_list")
_TABLES = ("row_left", "row_out", "column_right", "column_out", "term_left", "term_right")
PACKED_WORDS = ("address", "extents")  # of the packed operand: words at the beginning of the workspace
PLACES = ("kept", "tile", "near", "left_panel", "right_panel", *_TABLES)
_OF = {"left": 1, "right": 2, "out": 3}  # words of a label
_FEW = 4  # up to this many panels of columns, a left operand with contiguous terms is read without packing it
_AHEAD = 4  # panels of the right that are prefetched
# Columns that are packed at once, and elements of that block, which is to stay in the second-level cache (bytes both).
_MAX_COLUMNS, _MAX_PACKED = 2048, 512 << 10


@dataclass(frozen=True)
class PackedBlocks:
    """Rows, columns and terms of a block, and the byte offsets of its buffers in the workspace."""

    rows: int
    columns: int
    terms: int
    code: ProductSpec

    @classmethod
    def of(cls, code: ProductSpec, m: int, n: int, k: int, squares: tuple[int, int] = (0, 1)) -> PackedBlocks:
        """Return blocks for the caches of a core; ``squares``: columns and terms of a square, if any."""
        columns = _even(n, max(max_packed_columns(code), squares[0]), squares[0] or code.columns)
        terms = min(_MAX_PACKED // code.size // -(-columns // code.columns) // code.columns, 16 * CHUNK)
        terms = max(1, terms // CHUNK) * CHUNK  # results are loaded and stored once a chunk, however short it is
        return cls(_even(m, 64 * ROWS, ROWS), columns, _even(k, terms, squares[1]), code)

    @property
    def places(self) -> dict[str, int]:
        """Byte offsets in the workspace; ``end`` is its size."""
        columns = -(-self.columns // self.code.columns) * self.code.columns
        counts = {"r": self.rows, "c": columns, "t": self.terms}
        sizes = {
            "kept": 8 * len(PACKED_WORDS),
            "tile": ROWS * self.code.columns * self.code.size,
            "near": (RUN + self.code.width) * self.code.width * self.code.size,
            "left_panel": ROWS * self.code.line_nbytes,
            "right_panel": columns * (self.terms + 1) * self.code.size,
            **{name: 16 * counts[name[0]] for name in _TABLES},  # of places, then of runs
        }
        found, at = {}, 0
        for name, nbytes in sizes.items():
            found[name] = at
            at += -(-nbytes // 64) * 64
        return {**found, "end": at}


def max_packed_columns(code: ProductSpec) -> int:
    """Return the maximum columns that are packed at once."""
    return _MAX_COLUMNS // code.size


def max_transposed_columns(code: ProductSpec, terms: int) -> int:
    """Return the maximum columns that are packed at once in squares: more, the fewer terms there are."""
    return max(2 * _MAX_COLUMNS, min(8 * _MAX_COLUMNS, _MAX_PACKED // terms)) // code.size


def _even(n: int, max_size: int, unit: int = 1) -> int:
    """Return the size of nearly equal blocks, at most ``max_size``, in multiples of ``unit``."""
    count = -(-n // (max(1, max_size // unit) * unit))
    each = -(-n // count)
    return -(-each // unit) * unit


def multiply_function(what: ProductSpec, name: str) -> str:
    """Return the LLVM IR."""
    parts = [place(), table(what), *packs(what), ColumnBlock(what), TermBlock(what), TileUpdate(what)]
    for kind, make in (("tile", tile), ("strip", strip_tile)):
        parts += [make(what, height, vectors) for height in HEIGHTS[kind] for vectors in (1, 2)]
    return module([*parts, _BlockedLoops(what, name)])


class _BlockedLoops(Routine):
    """The loops: batches, columns, terms, rows; then strips of rows, chunks of terms, and register tiles."""

    def __init__(self, what: ProductSpec, name: str) -> None:
        super().__init__(name, "words", "", linkage="")
        self.what, base = what, self["words"]
        self.word_of = {text: self.word(base, k) for k, text in enumerate(WORDS)}
        self.scratch = self.as_pointer(self.word_of["scratch"])
        self.lists = {text: self.at(base, self.word(base, len(WORDS) + k)) for k, text in enumerate(LISTS)}
        behind = len(WORDS) + len(LISTS)
        self.places = {text: self.at(self.scratch, self.word(base, behind + k)) for k, text in enumerate(PLACES)}
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
        self.run("table", *pointers, begin, count, padded, number(_OF[tensor]))

    def _batch(self, batch: IrValue) -> None:
        self.tensors = {}
        for tensor, word in _OF.items():
            arguments = f"{self.lists['batch_list']}, {batch}, i64 {word}"
            moved = self.make(f"call i64 @place({arguments})", "i64", 0)
            self.tensors[tensor] = self.at(self.as_pointer(self.word_of[tensor]), moved)
        self.blocks(self.word_of["columns"], self.word_of["column_block"], self._columns)

    def _columns(self, begin: IrValue) -> None:
        self.first_column = begin
        self.breadth = self.minimum(self.minus(self.word_of["columns"], begin), self.word_of["column_block"])
        self._table("column_out", begin, self.breadth, self.what.columns)
        self.blocks(self.word_of["terms"], self.word_of["term_block"], self._terms)

    def _terms(self, begin: IrValue) -> None:
        self.depth = self.minimum(self.minus(self.word_of["terms"], begin), self.word_of["term_block"])
        self._table("term_left", begin, self.depth)
        self.adds = self.select(self.whether("sgt", begin, 0), ONE, self.word_of["adds"])
        self.panel_nbytes = self.times(self.plus(self.depth, 1), self.what.columns * self.what.size)
        self._keep_or_pack(begin)
        self.blocks(self.word_of["rows"], self.word_of["row_block"], self._rows)

    def _panel(self, column: IrValue) -> IrValue:
        """Return the address of a column's right panel."""
        return self.at(self.places["right_panel"], self.times(self.over(column, self.what.columns), self.panel_nbytes))

    def _keep_or_pack(self, term: IrValue) -> None:
        """Pack the right block from a term on, unless it is already packed."""
        kept = self.places["kept"]
        kind = self.plus(self.times(self.word_of["keeps"], 1 << 24), self.breadth)
        extents = self.plus(self.times(kind, 1 << 32), self.depth)
        block = self.address(self.tensors["right"]), extents
        same = [self.whether("eq", self.word(kept, k), value) for k, value in enumerate(block)]
        there = self.both(self.both(*same), self.whether("ne", self.word_of["keeps"], 0))

        def pack() -> None:
            self._pack(term)
            for k, value in enumerate(block):
                self.store(value, self.words(kept, k))

        self.either(there, lambda: None, pack)

    def _pack(self, term: IrValue) -> None:
        """Pack the right block by the routine that touches each cache line once."""
        self._table("column_right", self.first_column, self.breadth, self.what.columns)
        self._table("term_right", term, self.depth)
        columns, each = self.what.columns, self.each
        along, aside = (self.whether("sgt", self.word_of[f"{text}_step"], 0) for text in ("column", "term"))
        plain = lambda: each(self.breadth, columns, self._pack_right)  # noqa: E731
        of_terms = lambda: each(self.breadth, self.what.width, self._pack_terms)  # noqa: E731
        self.either(along, self._pack_columns, lambda: self.either(aside, of_terms, plain))

    def _pack_columns(self) -> None:
        """Pack in squares of columns, after the columns of a partial last panel."""
        whole = self.times(self.over(self.breadth, self.what.columns), self.what.columns)
        self.when(self.whether("sgt", self.breadth, whole), lambda: self._pack_right(whole))
        step, part = (self.word_of[f"column_{text}"] for text in ("step", "part"))
        places = self.places

        def one(first: IrValue) -> None:
            pointers = places["right_panel"], self.tensors["right"], places["column_right"], places["term_right"]
            self.run("pack_columns", *pointers, places["near"], first, step, part, self.panel_nbytes, self.depth)

        self.blocks(self.breadth, self.times(step, part), one)

    def _pack_terms(self, column: IrValue) -> None:
        """Pack a vector of columns in squares of terms."""
        lane = self.integer("urem", column, self.what.columns)
        panel = self.at(self._panel(column), self.times(lane, self.what.size))
        pointers = (
            panel,
            self.tensors["right"],
            self.words(self.places["column_right"], column),
            self.places["term_right"],
        )
        self.run(
            "pack_terms",
            *pointers,
            self.places["near"],
            self.word_of["term_step"],
            self.word_of["term_part"],
            self.depth,
        )

    def _pack_right(self, column: IrValue) -> None:
        columns, places, runs = self.what.columns, self.places, self.runs
        last = self.minus(self.rounded(self.breadth, columns), columns)
        following = self.minimum(self.plus(column, _AHEAD * columns), last)
        self.run(
            "pack_right",
            *(self._panel(column), self.tensors["right"]),
            *(self.words(places["column_right"], column), self.words(runs["column_right"], column)),
            *(places["term_right"], runs["term_right"], self.words(places["column_right"], following)),
            self.depth,
        )

    def _rows(self, begin: IrValue) -> None:
        self.height = self.minimum(self.minus(self.word_of["rows"], begin), self.word_of["row_block"])
        self._table("row_left", begin, self.height, ROWS)
        self._table("row_out", begin, self.height, ROWS)
        straight = self.whether("sge", self.word(self.runs["term_left"], 0), self.depth)
        narrow = self.whether("sle", self.breadth, _FEW * self.what.columns)

        def strips(high: int, body: Callable[[IrValue, IrValue], None]) -> None:
            def strip(row: IrValue) -> None:
                following = self.plus(row, high)
                body(row, self.select(self.whether("slt", following, self.height), following, row))

            self.each(self.height, high, strip)

        self.either(
            self.both(straight, narrow),
            lambda: strips(HEIGHTS["strip"][-1], self._passing),
            lambda: strips(HEIGHTS["tile"][-1], self._chunks),
        )

    def _passing(self, row: IrValue, following: IrValue) -> None:
        """Compute tiles of rows with contiguous terms, for few columns."""
        rows, first = self.places["row_left"], self.word(self.places["term_left"], 0)

        def one(column: IrValue) -> None:
            again = self.whether("slt", self.plus(column, self.what.columns), self.breadth)
            ahead = self.words(rows, self.select(again, row, following))
            pointers = self._panel(column), self.tensors["left"], self.words(rows, row), ahead
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
        """Pack a left panel and compute its tiles, prefetching the next chunk or the next strip's first."""
        places, runs, after = self.places, self.runs, self.plus(term, CHUNK)
        more = self.whether("slt", after, self.depth)
        here = self.words(places["row_left"], row)
        ahead = self.words(places["row_left"], self.select(more, row, following))
        terms = self.words(places["term_left"], self.select(more, after, number(0)))
        count = self.minimum(self.minus(self.depth, term), CHUNK)
        adds = self.select(self.whether("sgt", term, 0), ONE, self.adds)
        left = self.places["left_panel"]
        source = self.tensors["left"]
        pointers = here, self.words(runs["row_left"], row)
        of_terms = self.words(places["term_left"], term), self.words(runs["term_left"], term)
        self.run("pack_left", left, source, *pointers, *of_terms, ahead, count)

        def one(column: IrValue) -> None:
            right = self.at(self._panel(column), self.times(term, self.what.columns * self.what.size))
            self._tile("tile", row, column, adds, (left, right, source, ahead, terms), (count,))

        self.each(self.breadth, self.what.columns, one)

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
        lines, across = self.minus(self.height, row), self.minus(self.breadth, column)
        wide = self.whether("sgt", across, self.what.width)
        out = self.at(self.tensors["out"], self.word(self.places["column_out"], column))
        result = self.places["tile"], out, self.words(self.places["row_out"], row), self.factor
        run = self.word(self.runs["column_out"], column)

        def of(height: int, vectors: int) -> None:
            columns = self.minimum(across, vectors * self.what.width)
            whole = self.both(self.whether("sge", run, columns), self.whether("sge", lines, height))
            whole = self.both(whole, self.whether("ne", how, STREAMS))
            here = self.select(whole, how, number(LEAVES))
            self.run(f"{kind}{height}x{vectors}", *result, *places, here, across, *numbers)
            self.when(self.whether("eq", here, LEAVES), lambda: self._put(row, column, HEIGHTS[kind][-1], how))

        def tile_of(height: int) -> None:
            self.either(wide, lambda: of(height, 2), lambda: of(height, 1))

        def lowest(height: int, *higher: int) -> None:
            if not higher:
                tile_of(height)
            else:
                self.either(self.whether("sgt", lines, height), lambda: lowest(*higher), lambda: tile_of(height))

        lowest(*HEIGHTS[kind])
