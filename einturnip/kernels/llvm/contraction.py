"""Kernels for contractions by machine code of our own: one call for a tile of any strides, nothing transposed apart."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.kernels.blas.contraction import ContractionKernel, StrideKey, compile_contraction
from einturnip.kernels.blas.small_products import general_ns, multiplied_ns
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import unit
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.loop_order import LEFT, OUT, Strides, by_strides, merged_labels, squares
from einturnip.kernels.llvm.memory import STREAMED_NBYTES
from einturnip.kernels.llvm.pack_loops import LISTS, PLACES, WORDS, PackedBlocks, max_transposed_columns
from einturnip.kernels.llvm.pack_routines import CHUNK, ROWS, ProductSpec
from einturnip.kernels.llvm.processor import scales_in_vectors
from einturnip.kernels.llvm.register_tile import ADDS, PUTS, STREAMS
from einturnip.kernels.llvm.thread_scratch import thread_scratch
from einturnip.kernels.parallel_parts import FINER, KernelParts, repeated, spans
from einturnip.kernels.protocol import Bound, Mode, PreparableKernel

ROOM, _KEEPS, _BATCHES = (WORDS.index(text) for text in ("room", "keeps", "batches"))
ADDRESSES = tuple(WORDS.index(text) for text in ("left", "right", "out"))
_BLOCKS, _COLUMN_STEP = WORDS.index("row_block"), WORDS.index("column_step")
MOST_ROOM_NBYTES = 768 << 10  # that a function takes, whatever the tiles
# Of a part: rows, for which the right operand is packed anew; register tiles across, for which the left one is.
_LEAST_ROWS, _LEAST_TILES = 16 * ROWS, 8
_FEW = 4  # parts, of which none is given up for less packing
_PUT_SINGLY = 2.0  # register tiles' rows that putting one of its elements takes, where they do not lie side by side


class _ProductParts(NamedTuple):
    """Parts of a product: the word of the points that they divide, and that of their outermost label; the points of a
    step of it, its spans; rows or columns that are packed more often than for the whole.
    """

    points: int
    label: int
    inner: int
    spans: list[tuple[int, int]]
    again: int


@dataclass(frozen=True)
class PackedContraction(PreparableKernel):
    """A contraction of tiles of fixed extents; ``slow`` is the same by BLAS, and knows what its labels are."""

    slow: ContractionKernel
    code: ProductSpec
    function: Function
    _layouts: dict[StrideKey, tuple[bool, array[int], int]] = field(default_factory=dict, init=False, compare=False)

    @property
    def flops(self) -> int:
        """Two a point."""
        return self.slow.flops

    @property
    def workspace_nbytes(self) -> int:
        """What BLAS would be given; blocks are packed in the thread's own room, as BLAS has it too."""
        return self.slow.workspace_nbytes

    def bound(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> Bound:
        """See Bindable."""
        words, needed, _ = self.words(outs, operands, first or self.slow.whole)
        address, function, flags = words.buffer_info()[0], self.function, unit()

        def run() -> int:
            words[ROOM] = thread_scratch(needed)
            flags.clear()
            function(address)
            return flags.read()

        return run

    def words(self, outs: tuple[Array, ...], operands: tuple[Array, ...], fresh: bool) -> tuple[array[int], int, bool]:
        """The argument of the function but for the room, the bytes of that, and whether sides have changed places."""
        slow = self.slow
        left, right = (slow.view(side, operands[slow.slots[side]]) for side in (0, 1))
        key = left.strides, right.strides, outs[0].strides
        if key not in self._layouts:
            self._layouts[key] = self._layout(key)
        turned, template, needed = self._layouts[key]
        words = template[:]
        words[0] = words[0] if fresh else ADDS
        operands = (right, left) if turned else (left, right)
        words[2:5] = array("q", map(_address, (*operands, outs[0])))
        return words, needed, turned

    def parts(
        self, outs: tuple[Array, ...], operands: tuple[Array, ...], origins: tuple[int, ...], most: int
    ) -> KernelParts | None:
        """See Divisible. Along batches, else rows or columns: what the others packed is packed again for each part.

        A right operand that is one block stays packed from part to part: a thread's room is cleared once a run.
        """
        found, needed, turned = self.words(outs, operands, True)
        found = self.kept(found)
        found[_KEEPS] *= 1 + turned  # one matrix may be the right operand of some tiles, the left one of others
        ways = [self._cut(found, _BATCHES, 1, 1, most)]
        if found[_BATCHES] == 1:
            finer = FINER if found[_KEEPS] else 1
            ways = [self._cut(found, _BATCHES + 1, ROWS, _LEAST_ROWS, finer * most)]
            if not found[_COLUMN_STEP]:
                ways.append(self._cut(found, _BATCHES + 2, self.code.columns, _LEAST_TILES * self.code.columns, most))
        most = max(len(way.spans) for way in ways)
        enough = max(most / 2, min(most, _FEW))
        way = min((way for way in ways if len(way.spans) >= enough), key=lambda way: way.again)
        points, first, inner, cut = way.points, way.label, way.inner, way.spans
        words, starts = repeated(found, len(cut)), np.array([begin for begin, _ in cut])
        words[:, first] = [end - begin for begin, end in cut]
        words[:, points] = words[:, first] * inner
        for step, at in enumerate(ADDRESSES, 1):
            words[:, at] += starts * found[first + step]
        left, right, out = ADDRESSES
        sides = (right, left) if turned else (left, right)
        arrays = [0] * len(operands)
        for side, at in enumerate(sides):
            arrays[self.slow.slots[side]] = at
        return KernelParts(self.function, words, [*arrays, out], ROOM, needed, False)

    def _cut(self, words: array[int], points: int, unit: int, least: int, most: int) -> _ProductParts:
        """The parts along a list of labels, whole units and at least so many points each but for the last."""
        label = words[len(WORDS) + points - _BATCHES] // 8 + 1  # the outermost: its extent, and three steps
        extent = words[label]
        inner = words[points] // extent
        whole = unit // math.gcd(inner, unit)
        cut = spans(extent, whole * -(-least // (inner * whole)), most)
        _, rows, columns = words[_BATCHES : _BATCHES + 3]
        there = 1  # how often the other side is packed as it is: the left for each block of columns
        if points == _BATCHES + 2:
            there = -(-columns // words[_BLOCKS + 1])
        elif words[_KEEPS]:
            there = len(cut)
        other = {_BATCHES: 0, _BATCHES + 1: columns, _BATCHES + 2: rows}[points]
        return _ProductParts(points, label, inner, cut, max(0, len(cut) - there) * other)

    def kept(self, words: array[int]) -> array[int]:
        """The same argument, by which the right operand stays packed in the room for the next call of its kind.

        As it is where that is packed in several blocks. Who calls sees to it that the operand does not change until
        the room's first words are set to 0.
        """
        batches, _, columns, terms = words[_BATCHES : _BATCHES + 4]
        _, column_block, term_block = words[_BLOCKS : _BLOCKS + 3]
        found = words[:]
        found[_KEEPS] = int(batches == 1 and columns <= column_block and terms <= term_block)
        return found

    def _layout(self, key: StrideKey) -> tuple[bool, array[int], int]:
        """For tiles of these strides: whether left and right change places, the argument but for its addresses, the
        bytes of its room.
        """
        slow, size = self.slow, self.code.size
        strides: list[Strides] = [dict(zip(labels, s, strict=True)) for labels, s in zip(slow.labels, key, strict=True)]
        m, n, k = slow.groups
        turned = _is_turned(m, n, k, slow.long, strides[2], self.code)
        if turned:
            m, n = n, m
            strides[:2] = strides[1::-1]
        most, line = max_transposed_columns(self.code, math.prod(slow.long[p] for p in k)), 64 // size
        columns = squares(n, slow.long, strides, OUT, (2 * line, line), most)
        terms = squares(k, slow.long, strides, LEFT, (line,), line * line)
        walks = by_strides(slow.batch, strides[OUT]), by_strides(m, strides[LEFT]), columns.labels, terms.labels
        lists = [merged_labels(labels, slow.long, strides) for labels in walks]
        points = [math.prod(label[0] for label in labels) for labels in lists]
        packed = columns.step * columns.part, max(1, terms.step * terms.part)
        blocks = PackedBlocks.of(self.code, points[1], points[2], points[3], packed)
        alpha = int(np.float64(slow.product.alpha.real).view(np.int64))
        # Put once, in whole lines, and large: past the caches, where nobody would find it.
        even = not any(step % 64 for walk in lists[:2] for *_, step in walk)
        large = points[3] <= min(CHUNK, blocks.terms) and math.prod(points[:3]) * size >= STREAMED_NBYTES
        words = [
            STREAMS if even and large else PUTS,
            alpha,
            0,
            0,
            0,
            0,
            *points,
            blocks.rows,
            blocks.columns,
            blocks.terms,
        ]
        words += [columns.step, columns.part, terms.step, terms.part, 0]
        behind, begins, made = len(WORDS) + len(LISTS) + len(PLACES), [], list[int]()
        for labels in lists:
            begins.append(8 * (behind + len(made)))
            made += [len(labels), *(x for label in labels for x in label)]
        places = blocks.places
        return turned, array("q", [*words, *begins, *(places[name] for name in PLACES), *made]), places["end"]


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def _is_turned(
    m: Sequence[int], n: Sequence[int], k: Sequence[int], extents: Mapping[int, int], out: Strides, code: ProductSpec
) -> bool:
    """Whether the right operand's labels become the rows: the cheaper way, in rows of register tiles."""
    terms = math.prod(extents[p] for p in k)
    return _turns(n, m, terms, extents, out, code) < _turns(m, n, terms, extents, out, code)


def _turns(
    m: Sequence[int], n: Sequence[int], terms: int, extents: Mapping[int, int], out: Strides, code: ProductSpec
) -> float:
    """Multiplications of vectors that a product takes, what lies beside its edges too, and putting its elements."""
    rows, columns = (math.prod(extents[p] for p in group) for group in (m, n))
    high = rows if rows % ROWS == 0 else -(-rows // 4) * 4
    wide = -(-columns // code.width) * code.width
    smooth = any(abs(out[p]) == code.dtype.itemsize for p in n)
    put = rows * columns * -(-terms // 256) * (1 / code.width if smooth else _PUT_SINGLY)
    return high * wide // code.width * terms + put


def is_fast(slow: ContractionKernel) -> bool:
    """Whether code multiplies as fast as BLAS, or faster than the general kernels where BLAS does not."""
    if not slow.dear:
        return True
    size, batch = slow.dtype.itemsize, math.prod(slow.long[p] for p in slow.batch)
    return batch * multiplied_ns(slow.sides, size) <= general_ns(math.prod(slow.extents), size)


def multiplication(slow: ContractionKernel) -> ProductSpec | None:
    """The code that does a contraction: of matrices of f32 or f64, as they are stored."""
    stored = slow.dtype in (F32, F64) and not any(slow.converts)
    return ProductSpec(slow.dtype) if stored and not slow.is_vector else None


def region_product(kernel: object) -> ProductSpec | None:
    """The code of a product within a region's block, where that is quicker than BLAS: by vectors of AVX-512."""
    if not isinstance(kernel, ContractionKernel) or not scales_in_vectors("float", 16):
        return None
    return multiplication(kernel)


def recorded_product(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> ContractionKernel | None:
    """A product within a region's block that BLAS would be called too often for, and that is quick by code; or None."""
    product = compile_contraction(einsum, extents, mode == "whole") if mode != "finish" and 0 not in extents else None
    return product if product is not None and region_product(product) and is_fast(product) else None
