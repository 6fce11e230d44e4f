"""Code of a region's products, computed from panels in shared memory.

256 threads compute 32 rows by 64 points across, 4 x 2 per thread, from panels of 16 folded points. The panels of
all products use the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from einturnip.ir.region import RegionStep
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, decode
from einturnip.kernels.cuda.region_parts import (
    DEPTH,
    PITCHES,
    THREAD_ACROSS,
    THREAD_ROWS,
    THREADS,
    TILE_ACROSS,
    TILE_ROWS,
    RegionLabels,
    column_labels,
    extent_product,
    panel_type,
    panels_nbytes,
    row_labels,
)
from einturnip.kernels.cuda.region_products import RegionProduct
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype, literal


def panel_memory(parts: RegionLabels) -> list[str]:
    """Return the declaration of the memory that the panels of all products use."""
    nbytes = panels_nbytes(parts)
    return [f"__shared__ __align__(16) unsigned char panels[{nbytes}];"] if nbytes else []


@dataclass(frozen=True)
class ProductCode:
    """Writes the fold of a product.

    ``operand``: returns C++ for an operand of the step at the row r, the column c and the labels.
    """

    made: KernelArguments
    parts: RegionLabels
    product: RegionProduct
    operand: Callable[[int], str]

    @property
    def _step(self) -> RegionStep:
        return self.parts.region.steps[self.product.step]

    @property
    def _sides(self) -> list[tuple[int, bool]]:
        """The operands, each with True for the left side."""
        return [*((s, True) for s in self.product.left), *((s, False) for s in self.product.right)]

    def lines(self, results: Sequence[str]) -> list[str]:
        """Return loops over all points.

        ``results``: statements at one point that use its state ``t[i][j]``.
        """
        p, aggregation = self.product, self._step.einsum.aggregation
        assert aggregation is not None
        lines = ["const int M = (int)here, ty = threadIdx.x / 32, tx = threadIdx.x % 32;"]
        lines += [f"const int N = (int)({self._count(p.across)});", f"const i64 K = {self._count(p.folded)};"]
        lines += [*self._panels(), *self._bases()]
        lines += [f"for (int n0 = 0; n0 < N; n0 += {TILE_ACROSS})", f"for (int m0 = 0; m0 < M; m0 += {TILE_ROWS}) {{"]
        body = [*self._side(True), *self._side(False)]
        body += [f"{states.state_type(aggregation)} t[{THREAD_ROWS}][{THREAD_ACROSS}];", *_square(["t[i][j].clear();"])]
        body += [f"for (i64 k0 = 0; k0 < K; k0 += {DEPTH}) {{"]
        body += [f"  const int depth = K - k0 < {DEPTH} ? (int)(K - k0) : {DEPTH};"]
        body += ["  " + x for x in (*self._fold_table(), "__syncthreads();", *self._staged(), "__syncthreads();")]
        body += ["  " + x for x in self._inner()]
        body += ["}"]
        at = [f"const ind r = m0 + ty * {THREAD_ROWS} + i;", f"const int q = n0 + tx * {THREAD_ACROSS} + j;"]
        point = [*row_labels(self.parts), *self._decoded(p.across, "q")]
        body += _square([*at, "if (r < M && q < N) {", *["  " + x for x in (*point, *results)], "}"])
        return ["{", *["  " + x for x in (*lines, *["  " + x for x in body], "}")], "}", "__syncthreads();"]

    def _is_of_columns(self, labels: tuple[int, ...]) -> bool:
        return labels == self.parts.columns

    def _count(self, labels: tuple[int, ...]) -> str:
        return "wide" if self._is_of_columns(labels) else extent_product(labels)

    def _decoded(self, labels: tuple[int, ...], number: str) -> list[str]:
        """Return declarations of labels, and of the column c, at a point across or along the fold."""
        if self._is_of_columns(labels):
            return [f"const ind c = (ind){number};", *column_labels(self.parts)]
        return [f"i64 rest = {number};", *decode("rest", labels, in_range=True)]

    def _is_read(self, slot: int) -> bool:
        """True for an operand in the device's memory, False for a value of a step."""
        return self._step.operands[slot] >= 0

    def _panels(self) -> list[str]:
        """Return pointers to the panels and to the tables of their offsets."""
        lines, used = list[str](), 0
        for slot, is_left in self._sides:
            dtype, pitch = panel_type(self.product, self.parts.region, slot), PITCHES[not is_left]
            kind = ctype(dtype)
            lines.append(f"{kind} (*const panel{slot})[{pitch}] = ({kind} (*)[{pitch}])(panels + {used});")
            used += DEPTH * pitch * dtype.itemsize
        for slot, is_left in self._sides:
            if self._is_read(slot):
                side = TILE_ROWS if is_left else TILE_ACROSS
                lines.append(
                    f"i64* const side{slot} = (i64*)(panels + {used}), *const fold{slot} = side{slot} + {side};"
                )
                used += 8 * (side + DEPTH)
        return lines

    def _bases(self) -> list[str]:
        """Return the operands' addresses, and whether four elements can be read at once."""
        lines = []
        for slot, is_left in self._sides:
            if not self._is_read(slot):
                continue
            t = self.made.operands[self._step.operands[slot]]
            at = " + ".join((t.start(self.made.origin), t.offset(_at, self.parts.batch)))
            lines.append(f"const char* const base{slot} = {t.base} + ({at});")
            labels = self.product.folded if self._along_fold(slot, is_left) else self.product.across
            last, size = t.access[-1:], t.dtype.itemsize
            if is_left and not self._along_fold(slot, is_left) or last != labels[-1:] or last[0] in t.access[:-1]:
                lines.append(f"const bool quads{slot} = false;")
                continue
            strides = [f"g.stride[{t.stride + axis}]" for axis in range(len(t.access) - 1)]
            where = f"(({' | '.join((f'(i64)base{slot}', *strides))}) & {min(16, 4 * size) - 1}) == 0"
            tests = [f"g.stride[{t.stride + len(t.access) - 1}] == {size}", f"g.extent[{last[0]}] % 4 == 0", where]
            tests += ["cols % 4 == 0"] if self._is_of_columns(labels) else []
            lines.append(f"const bool quads{slot} = {' && '.join(tests)};")
        return lines

    def _along_fold(self, slot: int, is_left: bool) -> bool:
        """Return whether a panel is read along the folded points, rather than along its side."""
        access = self.made.operands[self._step.operands[slot]].access
        last = access[-1] if access else -1
        label = last if isinstance(last, int) else last.terms[-1][0] if last.terms else -1
        return label in self.product.folded or (is_left and label not in self.parts.rows)

    def _side(self, is_left: bool) -> list[str]:
        """Return a loop that stores the byte offsets of a side's points; those beyond the end repeat others."""
        slots = [s for s in (self.product.left if is_left else self.product.right) if self._is_read(s)]
        if not slots:
            return []
        size, begin, end = (TILE_ROWS, "m0", "M") if is_left else (TILE_ACROSS, "n0", "N")
        lines = [f"for (int n = threadIdx.x; n < {size}; n += {THREADS}) {{"]
        lines.append(f"  const int q = {begin} + n < {end} ? {begin} + n : ({begin} + n) % {end};")
        labels = self.parts.rows if is_left else self.product.across
        inside = ["const ind r = q;", *row_labels(self.parts)] if is_left else self._decoded(labels, "q")
        lines += ["  " + x for x in inside]
        for slot in slots:
            t = self.made.operands[self._step.operands[slot]]
            lines.append(f"  side{slot}[n] = {t.offset(_at, labels)};")
        return [*lines, "}"]

    def _fold_table(self) -> list[str]:
        """Return a loop that stores the byte offsets of a panel's folded points."""
        slots = [slot for slot, _ in self._sides if self._is_read(slot)]
        if not slots:
            return []
        lines = ["for (int n = threadIdx.x; n < depth; n += 256) {"]
        lines += ["  " + x for x in self._decoded(self.product.folded, "k0 + n")]
        for slot in slots:
            t = self.made.operands[self._step.operands[slot]]
            lines.append(f"  fold{slot}[n] = {t.offset(_at, self.product.folded)};")
        return [*lines, "}"]

    def _staged(self) -> list[str]:
        """Return statements that fill the panels."""
        lines = []
        for slot, is_left in self._sides:
            size = TILE_ROWS if is_left else TILE_ACROSS
            if self._is_read(slot):
                kind = ctype(self.made.operands[self._step.operands[slot]].dtype)
                along = str(self._along_fold(slot, is_left)).lower()
                given = f"panel{slot}, base{slot}, side{slot}, fold{slot}, depth, quads{slot}, read"
                lines.append(f"stage<{kind}, {size}, {DEPTH}, {along}>({given});")
                continue
            of = self.parts.region.steps[~self._step.operands[slot]]
            labels = of.labels[: of.einsum.n_out]
            is_state = ~self._step.operands[slot] in self.parts.region.carried
            if not is_state and self.parts.has_columns(labels) and not self.parts.other(labels):
                values = f"x{~self._step.operands[slot]} + m0 * pitch + (int)k0"
                given = f"panel{slot}, {values}, pitch, M - m0, depth"
                lines.append(f"stage_values<{size}, {DEPTH}>({given});")
                continue
            kind = ctype(panel_type(self.product, self.parts.region, slot))
            lines.append(f"for (int e = threadIdx.x; e < {size * DEPTH}; e += {THREADS}) {{")
            lines.append(f"  const int i = e / {DEPTH}, k = e % {DEPTH};")
            lines.append("  if (m0 + i >= M || k >= depth) {")
            lines += [f"    panel{slot}[k][i] = {kind}();", "    continue;", "  }", "  const ind r = m0 + i;"]
            lines += ["  " + x for x in (*row_labels(self.parts), *self._decoded(self.product.folded, "k0 + k"))]
            lines += [f"  panel{slot}[k][i] = to<{kind}>(f, {self.operand(slot)});", "}"]
        return lines

    def _inner(self) -> list[str]:
        """Return the loop that folds a panel. A sum of products adds zeros beyond the panel's end."""
        aggregation = self._step.einsum.aggregation
        assert aggregation is not None
        count = str(DEPTH) if self.product.is_contraction else "depth"
        lines = [f"if (m0 + ty * {THREAD_ROWS} < M) {{", "  #pragma unroll", f"  for (int k = 0; k < {count}; k++) {{"]
        for slot, is_left in self._sides:
            kind = ctype(panel_type(self.product, self.parts.region, slot))
            n, thread = (THREAD_ROWS, "ty") if is_left else (THREAD_ACROSS, "tx")
            pack = f"Pack<{kind}, {n}>"
            lines.append(f"    const {pack} x{slot}_ = *(const {pack}*)&panel{slot}[k][{thread} * {n}];")
        of = {slot: "i" if is_left else "j" for slot, is_left in self._sides}
        if self.product.is_contraction:
            (a,), (b,) = self.product.left, self.product.right
            body = [f"t[i][j].fold(f, mul(f, x{a}_.at[i], x{b}_.at[j]), 0);"]
        else:
            writer = ScalarWriter(lambda slot: f"x{slot}_.at[{of[slot]}]", lambda p: "0")
            value = writer.value(self._step.einsum.join, states.value_type(aggregation))
            body = [*writer.lines, f"t[i][j].fold(f, {value}, 0);"]
        return [*lines, *["    " + x for x in _square(body)], "  }", "}"]

    def scaled(self, state: str) -> list[str]:
        """Return a statement that multiplies a finished sum by the constant factor of its terms."""
        if self.product.alpha is None:
            return []
        aggregation = self._step.einsum.aggregation
        assert aggregation is not None
        factor = literal(self.product.alpha.value, states.value_type(aggregation))
        return [f"{state}.a = mul(f, {state}.a, {factor});"]


def _square(body: Sequence[str]) -> list[str]:
    """Return loops over the points of a thread."""
    loops = ["#pragma unroll", f"for (int i = 0; i < {THREAD_ROWS}; i++) {{", "  #pragma unroll"]
    return [*loops, f"  for (int j = 0; j < {THREAD_ACROSS}; j++) {{", *["    " + x for x in body], "  }", "}"]


def _at(p: int) -> str:
    return f"l{p}"
