"""Kernels for generalized matrix products, tiled in shared memory and registers.

Any join and aggregation can take the place of multiplication and addition.

Examples: min-plus, max-times, squared distances, logsumexp of sums. The operands fall into a left side, which has the
row labels, and a right side, which has the column labels; both can have folded labels. A block of 256 threads computes
64 x 64 outputs, 4 x 4 per thread, from panels of 16 folded points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.einsum import Einsum, labels_read
from einturnip.ir.scalar import labels_of, slots_of
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, decode, indented, kernel, product
from einturnip.kernels.cuda.elementwise import local
from einturnip.kernels.cuda.folding import flat_index, folds, separable, store_state_code
from einturnip.kernels.cuda.folding import grids as fold_grids
from einturnip.kernels.cuda.folding import workspace as fold_workspace
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype
from einturnip.kernels.cuda.types import ANY, CudaKernel, LaunchGrid
from einturnip.kernels.protocol import Mode

TILE, DEPTH, SIDE = 64, 16, 4
THREADS = (TILE // SIDE) ** 2
_MIN_SIDE = 32  # rows and columns below which too many threads would be idle
_MAX_SLOTS = 4
_TERMS = 128  # terms of a partial sum, if each addition rounds
_PANELS_NBYTES = 40 << 10  # of shared memory, at most


@dataclass(frozen=True, slots=True)
class ProductSides:
    """The roles of an einsum's labels, and the operands of the left and right side.

    Labels are of rows, columns, batch, or folded.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...]
    folded: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]


def sides(einsum: Einsum) -> ProductSides | None:
    """Divide the operands into two sides; None if that is not possible.

    Among several divisions, chooses the one whose smaller side has the most points.
    """
    slots = sorted(slots_of(einsum.join))
    if einsum.aggregation is None or einsum.keys or not separable(einsum) or labels_of(einsum.join):
        return None
    if not 2 <= len(slots) <= _MAX_SLOTS or not einsum.aggregated:
        return None
    if sum(einsum.dtypes[s].itemsize for s in slots) * DEPTH * (TILE + 4) > _PANELS_NBYTES:
        return None
    best: tuple[int, ProductSides] | None = None
    for n in range(1, len(slots)):
        for left in itertools.combinations(slots, n):
            found = _split(einsum, left, tuple(s for s in slots if s not in left))
            if found is not None:
                smaller = min(math.prod(einsum.bounds[p] for p in side) for side in (found.rows, found.columns))
                best = (smaller, found) if best is None or smaller > best[0] else best
    return best[1] if best is not None else None


def _split(einsum: Einsum, left: tuple[int, ...], right: tuple[int, ...]) -> ProductSides | None:
    of_left, of_right = (
        frozenset[int]().union(*(labels_read(einsum.accesses[s]) for s in side)) for side in (left, right)
    )
    out = range(einsum.n_out)
    rows, columns = (
        tuple(p for p in out if p in a and p not in b) for a, b in ((of_left, of_right), (of_right, of_left))
    )
    batch = tuple(p for p in out if p not in rows and p not in columns)
    if not rows or not columns or rows[0] > columns[0]:  # the mirrored division is also tried
        return None
    return ProductSides(rows, columns, batch, tuple(einsum.aggregated), left, right)


def semiring(einsum: Einsum, mode: Mode, found: ProductSides) -> CudaKernel:
    """Return the kernel. Large tiles use the product entry, small tiles the general fold."""
    made, parts = folds(einsum, mode)
    parts.append(("product", made.entry("product", _Product(made, einsum, found).text(), "__launch_bounds__(256, 2)")))

    def grids(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        if not large(found, extents):
            return fold_grids(einsum, extents)
        tiles = [-(-math.prod(extents[p] for p in side) // TILE) for side in (found.rows, found.columns)]
        blocks = math.prod(tiles) * math.prod(extents[p] for p in found.batch)
        return (LaunchGrid("product", (blocks, 1, 1), (THREADS, 1, 1)),) if blocks else ()

    def workspace(extents: tuple[int, ...]) -> int:
        return 0 if large(found, extents) else fold_workspace(einsum, extents)

    return kernel(made, ANY, parts, grids, workspace, '#include "region.cuh"\n')


def large(found: ProductSides, extents: Sequence[int]) -> bool:
    """Return whether both sides of a tile are large enough for the product entry."""
    return 0 not in extents and all(
        math.prod(extents[p] for p in side) >= _MIN_SIDE for side in (found.rows, found.columns)
    )


@dataclass(frozen=True)
class _Product:
    made: KernelArguments
    einsum: Einsum
    sides: ProductSides

    @property
    def slots(self) -> list[tuple[int, tuple[int, ...]]]:
        """The operands, each with the labels of its side."""
        s = self.sides
        return [*((slot, s.rows) for slot in s.left), *((slot, s.columns) for slot in s.right)]

    def text(self) -> str:
        """Return the kernel's body.

        It computes the byte offsets of its rows and columns once; then for each panel of folded points it loads the
        operands to shared memory and folds them into the thread's 4 x 4 states; finally it stores the states.
        """
        s, aggregation = self.sides, self.einsum.aggregation
        assert aggregation is not None
        lines = [*self._shared(), "unsigned read = 0;", "Quiet q;", "if (threadIdx.x == 0) seen = 0;"]
        lines += [
            f"const i64 {x} = {product(labels)};"
            for x, labels in zip("MNK", (s.rows, s.columns, s.folded), strict=True)
        ]
        lines += [
            f"const i64 across = (N + {TILE - 1}) / {TILE}, down = (M + {TILE - 1}) / {TILE};",
            "i64 rest = blockIdx.x;",
        ]
        lines += [f"const i64 column0 = rest % across * {TILE}; rest /= across;"]
        lines += [f"const i64 row0 = rest % down * {TILE}; rest /= down;", *decode("rest", s.batch)]
        for slot, _ in self.slots:
            t = self.made.operands[slot]
            at = " + ".join((t.start(self.made.origin), t.offset(local, s.batch)))
            lines.append(f"const char* const base{slot} = {t.base} + ({at});")
        lines += self._table("row0", "M", TILE, s.rows, s.left, "side")
        lines += self._table("column0", "N", TILE, s.columns, s.right, "side")
        lines += [f"const int ty = threadIdx.x / {TILE // SIDE}, tx = threadIdx.x % {TILE // SIDE};"]
        state, partial = states.state_type(aggregation), self._in_blocks
        lines += [f"{state} t[{SIDE}][{SIDE}];", *_square(["t[i][j].clear();"])]
        lines += [f"{state} sums[{SIDE}][{SIDE}];", *_square(["sums[i][j].clear();"])] if partial else []
        lines += [f"for (i64 k0 = 0; k0 < K; k0 += {DEPTH}) {{"]
        flat = [f"flat[n] = {flat_index(self.einsum)};"] if self._argued else []
        lines += ["  " + x for x in self._table("k0", "K", DEPTH, s.folded, [*s.left, *s.right], "fold", flat)]
        lines += ["  __syncthreads();", *["  " + x for x in self._panels()], "  __syncthreads();"]
        lines += [
            f"  const int depth = K - k0 < {DEPTH} ? (int)(K - k0) : {DEPTH};",
            *["  " + x for x in self._inner()],
        ]
        if partial:
            full = f"if (k0 % {_TERMS} == {_TERMS - DEPTH} || k0 + {DEPTH} >= K) {{"
            joined = _square(["sums[i][j].combine(q, t[i][j]);", "t[i][j].clear();"])
            lines += ["  " + x for x in (full, *["  " + x for x in joined], "}")]
        # The next panel is written only after the barrier that follows its offsets; `flat` is written before it.
        lines += ["  __syncthreads();"] if self._argued else []
        lines += ["}", "if (read) atomicOr(&seen, read);", "__syncthreads();", "read = seen;"]
        return indented([*lines, *self._results()])

    @property
    def _in_blocks(self) -> bool:
        """Whether to add partial sums of _TERMS terms: for long folds in which each addition rounds."""
        e = self.einsum
        assert e.aggregation is not None
        return e.aggregation.rounds and math.prod(e.bounds[p] for p in self.sides.folded) > 2 * _TERMS

    @property
    def _argued(self) -> bool:
        assert self.einsum.aggregation is not None
        return self.einsum.aggregation.indexed

    def _shared(self) -> list[str]:
        lines = ["__shared__ unsigned seen;"]
        for slot, _ in self.slots:
            kind = ctype(self.made.operands[slot].dtype)
            bytes_ = f"{DEPTH} * {TILE + 4} * sizeof({kind})"
            lines.append(f"__shared__ __align__(16) unsigned char raw{slot}[{bytes_}];")
            lines.append(f"{kind} (*const panel{slot})[{TILE + 4}] = ({kind} (*)[{TILE + 4}])raw{slot};")
            lines.append(f"__shared__ i64 side{slot}[{TILE}], fold{slot}[{DEPTH}];")
        return [*lines, f"__shared__ i64 flat[{DEPTH}];"] if self._argued else lines

    def _table(
        self, begin: str, end: str, count: int, labels: Sequence[int], slots: Sequence[int], name: str,
        more: Sequence[str] = (),
    ) -> list[str]:  # fmt: skip
        """Return a loop that stores the byte offsets of ``count`` points of some labels for each operand.

        Positions beyond the end repeat the last point, so that loads need no condition.
        """
        lines = [f"for (int n = threadIdx.x; n < {count}; n += {THREADS}) {{"]
        lines.append(f"  i64 rest = {begin} + n < {end} ? {begin} + n : {end} - 1;")
        lines += ["  " + x for x in decode("rest", labels)]
        for slot in slots:
            lines.append(f"  {name}{slot}[n] = {self.made.operands[slot].offset(local, labels)};")
        return [*lines, *["  " + x for x in more], "}"]

    def _panels(self) -> list[str]:
        """Return loops that load the panels; consecutive threads load consecutive elements where possible."""
        lines = []
        for slot, labels in self.slots:
            t = self.made.operands[slot]
            last = t.access[-1] if t.access else -1
            label = last if isinstance(last, int) else last.terms[-1][0] if last.terms else -1
            i, k = (f"e % {TILE}", f"e / {TILE}") if label in labels else (f"e / {DEPTH}", f"e % {DEPTH}")
            lines.append(f"for (int e = threadIdx.x; e < {TILE * DEPTH}; e += {THREADS}) {{")
            lines.append(f"  const int i = {i}, k = {k};")
            load = f"load<{ctype(t.dtype)}>(base{slot}, side{slot}[i] + fold{slot}[k])"
            lines += [f"  panel{slot}[k][i] = record_special(read, {load});", "}"]
        return lines

    def _inner(self) -> list[str]:
        aggregation = self.einsum.aggregation
        assert aggregation is not None
        lines = ["for (int k = 0; k < depth; k++) {"]
        for slot, labels in self.slots:
            thread = "ty" if labels == self.sides.rows else "tx"
            lines.append(f"  {ctype(self.made.operands[slot].dtype)} x{slot}[{SIDE}];")
            lines += ["  #pragma unroll"]
            lines.append(f"  for (int n = 0; n < {SIDE}; n++) x{slot}[n] = panel{slot}[k][{thread} * {SIDE} + n];")
        of = {slot: "i" if labels == self.sides.rows else "j" for slot, labels in self.slots}
        writer = ScalarWriter(lambda slot: f"x{slot}[{of[slot]}]", lambda p: "0", flags="q")
        value = writer.value(self.einsum.join, states.value_type(aggregation))
        at = "flat[k]" if self._argued else "0"
        lines += ["  " + x for x in _square([*writer.lines, f"t[i][j].fold(q, {value}, {at});"])]
        return [*lines, "}"]

    def _results(self) -> list[str]:
        s, aggregation = self.sides, self.einsum.aggregation
        assert aggregation is not None
        body = [
            f"i64 row = row0 + ty * {SIDE} + i, column = column0 + tx * {SIDE} + j;",
            "if (row < M && column < N) {",
        ]
        body += ["  " + x for x in (*decode("row", s.rows), *decode("column", s.columns))]
        body += [
            f"  {states.state_type(aggregation)} s = {'sums' if self._in_blocks else 't'}[i][j];",
            "  report_special(f, s.a, read);",
        ]
        return _square([*body, *["  " + x for x in store_state_code(self.made, self.einsum, aggregation)], "}"])


def _square(body: Sequence[str]) -> list[str]:
    """Return loops over a thread's outputs."""
    loops = ["#pragma unroll", f"for (int i = 0; i < {SIDE}; i++) {{", "  #pragma unroll"]
    return [*loops, f"  for (int j = 0; j < {SIDE}; j++) {{", *["    " + x for x in body], "  }", "}"]
