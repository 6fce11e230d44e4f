"""Contractions by generated code: one call computes a tile of any strides without transposed copies."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.blas.contraction_spec import StrideKey
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.kernel_spec import STREAMED_NBYTES
from einturnip.kernels.llvm.loop_order import LEFT, OUT, Strides, by_strides, merged_labels, squares
from einturnip.kernels.llvm.pack_loops import LISTS, PLACES, WORDS, PackedBlocks, max_transposed_columns
from einturnip.kernels.llvm.pack_routines import CHUNK, ROWS, ProductSpec
from einturnip.kernels.llvm.register_tile import ADDS, PUTS, STREAMS
from einturnip.kernels.parallel_parts import FINER, divided, spans
from einturnip.kernels.protocol import CallArguments, KernelCall, MachineCode, address_of

SCRATCH, _KEEPS, _BATCHES = (WORDS.index(text) for text in ("scratch", "keeps", "batches"))
ADDRESSES = tuple(WORDS.index(text) for text in ("left", "right", "out"))
_BLOCKS, _COLUMN_STEP = WORDS.index("row_block"), WORDS.index("column_step")
MAX_SCRATCH_NBYTES = 768 << 10  # maximum scratch of a function, for any tile
# Minimum size of a part: rows, since each part packs the right operand again; register tiles across, since each packs
# the left operand again.
_MIN_ROWS, _MIN_TILES = 16 * ROWS, 8
_FEW = 4  # less packing is never preferred to this many parts
_PUT_SINGLY = 2.0  # cost of storing one element of a scattered result, in rows of a register tile


class _ProductParts(NamedTuple):
    """A division of a product into parts.

    ``points``: the word of the number of points that is divided. ``label``: the word of its outermost label's extent;
    ``inner``: points of one step of that label; ``spans``: of the steps. ``repeated_packing``: rows or columns.
    """

    points: int
    label: int
    inner: int
    spans: list[tuple[int, int]]
    repeated_packing: int


@dataclass(frozen=True)
class PackedContraction(MachineCode):
    """A contraction of tiles of fixed extents; ``fallback``: its BLAS kernel, which has the labels."""

    fallback: ContractionKernel
    code: ProductSpec
    function: Function
    _layouts: dict[StrideKey, tuple[bool, array[int], int]] = field(default_factory=dict, init=False, compare=False)

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        outs, operands, _, first, _ = arguments
        fallback = self.fallback
        left, right = (fallback.view(side, operands[fallback.slots[side]]) for side in (0, 1))
        key = left.strides, right.strides, outs[0].strides
        if key not in self._layouts:
            self._layouts[key] = self._layout(key)
        swapped, template, needed = self._layouts[key]
        words = template[:]
        words[0] = words[0] if first or fallback.whole else ADDS
        first_word, second_word, out_word = ADDRESSES
        left_word, right_word = (second_word, first_word) if swapped else (first_word, second_word)
        words[left_word], words[right_word], words[out_word] = map(address_of, (left, right, outs[0]))
        relocations = (right_word, left_word, out_word) if fallback.slots[0] else (left_word, right_word, out_word)
        call = KernelCall(self.function, words, relocations)
        call.scratch, call.scratch_nbytes, call.divide = SCRATCH, needed, partial(self._divided, words, swapped)
        return call

    def _divided(self, words: array[int], swapped: bool, max_parts: int) -> NDArray[np.int64]:
        """Divide batches, else rows or columns, whichever repeats less packing.

        A right operand that is one block stays packed from part to part, because scratch is cleared once per run.
        """
        found = words[:]
        keep_packed_right(found)
        found[_KEEPS] *= 1 + swapped  # one matrix may be the right operand of some tiles, the left one of others
        divisions = [self._divide(found, _BATCHES, 1, 1, max_parts)]
        if found[_BATCHES] == 1:
            finer = FINER if found[_KEEPS] else 1
            divisions = [self._divide(found, _BATCHES + 1, ROWS, _MIN_ROWS, finer * max_parts)]
            if not found[_COLUMN_STEP]:
                divisions.append(
                    self._divide(found, _BATCHES + 2, self.code.columns, _MIN_TILES * self.code.columns, max_parts)
                )
        largest = max(len(division.spans) for division in divisions)
        enough = max(largest / 2, min(largest, _FEW))
        division = min(
            (division for division in divisions if len(division.spans) >= enough),
            key=lambda division: division.repeated_packing,
        )
        label = division.label
        moved = {at: found[label + step] for step, at in enumerate(ADDRESSES, 1)}
        return divided(found, division.spans, {label: 1, division.points: division.inner}, moved)

    def _divide(self, words: array[int], points: int, unit: int, min_points: int, max_parts: int) -> _ProductParts:
        """Divide a list of labels into parts of whole units; each but the last has at least ``min_points``."""
        label = words[len(WORDS) + points - _BATCHES] // 8 + 1  # the outermost label: extent, three strides
        extent = words[label]
        inner = words[points] // extent
        whole = unit // math.gcd(inner, unit)
        parts = spans(extent, whole * -(-min_points // (inner * whole)), max_parts)
        _, rows, columns = words[_BATCHES : _BATCHES + 3]
        packings = 1  # of the other side in the undivided product: the left side once for each block of columns
        if points == _BATCHES + 2:
            packings = -(-columns // words[_BLOCKS + 1])
        elif words[_KEEPS]:
            packings = len(parts)
        other = {_BATCHES: 0, _BATCHES + 1: columns, _BATCHES + 2: rows}[points]
        return _ProductParts(points, label, inner, parts, max(0, len(parts) - packings) * other)

    def _layout(self, key: StrideKey) -> tuple[bool, array[int], int]:
        """Return, for these strides, whether to swap sides, the argument without addresses, and scratch bytes."""
        fallback, size = self.fallback, self.code.size
        strides: list[Strides] = [
            dict(zip(labels, s, strict=True)) for labels, s in zip(fallback.labels, key, strict=True)
        ]
        m, n, k = fallback.groups
        swapped = _is_swapped(m, n, k, fallback.long, strides[2], self.code)
        if swapped:
            m, n = n, m
            strides[:2] = strides[1::-1]
        max_columns, line = max_transposed_columns(self.code, math.prod(fallback.long[p] for p in k)), 64 // size
        columns = squares(n, fallback.long, strides, OUT, (2 * line, line), max_columns)
        terms = squares(k, fallback.long, strides, LEFT, (line,), line * line)
        walks = by_strides(fallback.batch, strides[OUT]), by_strides(m, strides[LEFT]), columns.labels, terms.labels
        lists = [merged_labels(labels, fallback.long, strides) for labels in walks]
        points = [math.prod(label[0] for label in labels) for labels in lists]
        packed = columns.step * columns.part, max(1, terms.step * terms.part)
        blocks = PackedBlocks.of(self.code, points[1], points[2], points[3], packed)
        alpha = int(np.float64(fallback.alpha.real).view(np.int64))
        # A large result that is written once in whole cache lines bypasses the caches.
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
        return swapped, array("q", [*words, *begins, *(places[name] for name in PLACES), *made]), places["end"]


def keep_packed_right(words: MutableSequence[int]) -> None:
    """Change the argument so that the right operand stays packed for the next call of its kind.

    It is unchanged if the operand is packed in several blocks. The caller must not change the operand until the
    first words of the scratch are set to 0.
    """
    batches, _, columns, terms = words[_BATCHES : _BATCHES + 4]
    _, column_block, term_block = words[_BLOCKS : _BLOCKS + 3]
    words[_KEEPS] = int(batches == 1 and columns <= column_block and terms <= term_block)


def _is_swapped(
    m: Sequence[int], n: Sequence[int], k: Sequence[int], extents: Mapping[int, int], out: Strides, code: ProductSpec
) -> bool:
    """Return whether the right operand's labels become the rows because that is cheaper."""
    terms = math.prod(extents[p] for p in k)
    return _vector_cost(n, m, terms, extents, out, code) < _vector_cost(m, n, terms, extents, out, code)


def _vector_cost(
    m: Sequence[int], n: Sequence[int], terms: int, extents: Mapping[int, int], out: Strides, code: ProductSpec
) -> float:
    """Return a product's vector multiplications, including those past its edges, plus its storing cost."""
    rows, columns = (math.prod(extents[p] for p in group) for group in (m, n))
    high = rows if rows % ROWS == 0 else -(-rows // 4) * 4
    wide = -(-columns // code.width) * code.width
    smooth = any(abs(out[p]) == code.dtype.itemsize for p in n)
    put = rows * columns * -(-terms // 256) * (1 / code.width if smooth else _PUT_SINGLY)
    return high * wide // code.width * terms + put
