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
from einturnip.kernels.llvm.kernel import Function, without_comparisons
from einturnip.kernels.llvm.kernel_spec import STREAMED_NBYTES
from einturnip.kernels.llvm.loop_order import SquareOrder, Strides, by_strides, merged_labels, squares
from einturnip.kernels.llvm.pack_loops import (
    WORDS,
    PackedBlocks,
    address_words,
    max_transposed_columns,
    place_names,
)
from einturnip.kernels.llvm.pack_plan import PackedRoles
from einturnip.kernels.llvm.packed_spec import CHUNK, PackedSpec
from einturnip.kernels.llvm.register_tile import ADDS, PUTS, STREAMS
from einturnip.kernels.parallel_parts import FINER, divided, spans
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall, MachineCode, address_of

SCRATCH, _KEEPS, _BATCHES = (WORDS.index(text) for text in ("scratch", "keeps", "batches"))
_BLOCKS, _COLUMN_STEP = WORDS.index("row_block"), WORDS.index("column_step")
MAX_SCRATCH_NBYTES = 768 << 10  # maximum scratch of a function, for any tile
# Minimum size of a part: rows, since each part packs the right operand again; register tiles across, since each packs
# the left operand again.
_MIN_ROWS, _MIN_TILES = 192, 8
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
    """A contraction of tiles of fixed extents.

    ``roles``: of operands and labels. ``fallback``: the kernel of BLAS or NumPy. ``compares``: INVALID may come from a
    comparison with NaN.
    """

    roles: PackedRoles | ContractionKernel
    code: PackedSpec
    function: Function
    fallback: HostKernel
    compares: bool = False
    _layouts: dict[tuple[tuple[int, ...], ...], tuple[bool, array[int], int]] = field(
        default_factory=dict, init=False, compare=False
    )

    @classmethod
    def of_product(cls, kernel: ContractionKernel, code: PackedSpec, function: Function) -> PackedContraction:
        """Return a matrix product; ``kernel``: the one of BLAS."""
        return cls(kernel, code, function, kernel)

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        outs, operands, _, first, _ = arguments
        roles = self.roles
        tensors = [*(roles.view(k, operands[slot]) for k, slot in enumerate(roles.slots)), outs[0]]
        key = tuple([tensor.strides for tensor in tensors])
        if key not in self._layouts:
            self._layouts[key] = self._layout(key)
        swapped, template, needed = self._layouts[key]
        words = template[:]
        words[0] = words[0] if first or roles.whole else ADDS
        places = list(address_words(self.code))
        if swapped:
            places[:2] = places[1::-1]
        for place, tensor in zip(places, tensors, strict=True):
            words[place] = address_of(tensor)
        by_slot = [place for _, place in sorted(zip(roles.slots, places[:-1], strict=True))]
        call = KernelCall(self.function, words, (*by_slot, places[-1]))
        call.packed = roles.slots[0 if swapped else 1] if len(roles.slots) == 2 else -1
        call.fallback = partial(self._compared, arguments) if self.compares else None
        call.scratch, call.scratch_nbytes, call.divide = SCRATCH, needed, partial(self._divided, words, swapped)
        return call

    def _compared(self, arguments: CallArguments, flags: int) -> int:
        """See ``without_comparisons``."""
        again = arguments.first or self.roles.whole or self.code.aggregation.idempotent
        return without_comparisons(self.fallback, arguments, flags, again)

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
            divisions = [self._divide(found, _BATCHES + 1, self.code.rows, _MIN_ROWS, finer * max_parts)]
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
        moved = {at: found[label + step] for step, at in enumerate(address_words(self.code), 1)}
        return divided(found, division.spans, {label: 1, division.points: division.inner}, moved)

    def _divide(self, words: array[int], points: int, unit: int, min_points: int, max_parts: int) -> _ProductParts:
        """Divide a list of labels into parts of whole units; each but the last has at least ``min_points``."""
        label = words[len(WORDS) + points - _BATCHES] // 8 + 1  # the outermost label: extent, strides
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

    def _layout(self, key: tuple[tuple[int, ...], ...]) -> tuple[bool, array[int], int]:
        """Return, for these strides, whether to swap sides, the argument without addresses, and scratch bytes."""
        roles, code, size = self.roles, self.code, self.code.size
        strides: list[Strides] = [
            dict.fromkeys(roles.long, 0) | dict(zip(labels, s, strict=True))
            for labels, s in zip(roles.labels, key, strict=True)
        ]
        m, n, k = roles.groups
        left, right, out = 0, code.left, len(strides) - 1  # of each side the first tensor
        swapped = code.is_product and _is_swapped(m, n, k, roles.long, strides[out], code)
        if swapped:
            m, n = n, m
            strides[:2] = strides[1::-1]
        max_columns, line = max_transposed_columns(code, math.prod(roles.long[p] for p in k)), 64 // size
        columns, terms = SquareOrder(by_strides(n, strides[out])), SquareOrder(by_strides(k, strides[left]))
        if code.is_product:
            columns = squares(n, roles.long, strides, out, right, (code.vectors * line, line), max_columns)
            terms = squares(k, roles.long, strides, left, right, (line,), line * line)
        walks = by_strides(roles.batch, strides[out]), by_strides(m, strides[left]), columns.labels, terms.labels
        lists = [merged_labels(labels, roles.long, strides) for labels in walks]
        points = [math.prod(label[0] for label in labels) for labels in lists]
        packed = columns.step * columns.part, max(1, terms.step * terms.part)
        blocks = PackedBlocks.of(code, points[1], points[2], points[3], packed)
        alpha = int(np.float64(roles.alpha.real).view(np.int64))
        # A large result that is written once in whole cache lines bypasses the caches.
        even = not any(step % 64 for walk in lists[:2] for *_, step in walk)
        large = points[3] <= min(CHUNK, blocks.terms) and math.prod(points[:3]) * size >= STREAMED_NBYTES
        words = [STREAMS if even and large else PUTS, alpha, 0, *points, blocks.rows, blocks.columns, blocks.terms]
        words += [columns.step, columns.part, terms.step, terms.part, 0]
        places, names = blocks.places, place_names(code)
        behind, begins, made = address_words(code).stop, [], list[int]()
        for labels in lists:
            begins.append(8 * (behind + len(made)))
            made += [len(labels), *(x for label in labels for x in label)]
        words += [*begins, *(places[name] for name in names), *(0 for _ in strides), *made]
        return swapped, array("q", words), places["end"]


def keep_packed_right(words: MutableSequence[int]) -> bool:
    """Change the argument so that the right operand stays packed for the next call of its kind.

    Returns False if the operand is packed in several blocks, and does not stay. The caller must not change the operand
    until the first words of the scratch are set to 0.
    """
    batches, _, columns, terms = words[_BATCHES : _BATCHES + 4]
    _, column_block, term_block = words[_BLOCKS : _BLOCKS + 3]
    keeps = batches == 1 and columns <= column_block and terms <= term_block
    words[_KEEPS] = int(keeps)
    return keeps


def _is_swapped(
    m: Sequence[int], n: Sequence[int], k: Sequence[int], extents: Mapping[int, int], out: Strides, code: PackedSpec
) -> bool:
    """Return whether the right operand's labels become the rows because that is cheaper."""
    terms = math.prod(extents[p] for p in k)
    return _vector_cost(n, m, terms, extents, out, code) < _vector_cost(m, n, terms, extents, out, code)


def _vector_cost(
    m: Sequence[int], n: Sequence[int], terms: int, extents: Mapping[int, int], out: Strides, code: PackedSpec
) -> float:
    """Return a product's vector multiplications, including those past its edges, plus its storing cost."""
    rows, columns = (math.prod(extents[p] for p in group) for group in (m, n))
    low = code.heights["tile"][0]
    high = rows if rows % code.rows == 0 else -(-rows // low) * low
    wide = -(-columns // code.width) * code.width
    smooth = any(abs(out[p]) == code.dtype.itemsize for p in n)
    put = rows * columns * -(-terms // 256) * (1 / code.width if smooth else _PUT_SINGLY)
    return high * wide // code.width * terms + put
