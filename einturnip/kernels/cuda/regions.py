"""Region kernels: stream over the columns for a few rows, with intermediate values on chip.

Rows are points of the output labels that every streamed step has; columns are points of the streamed labels that can be
divided. Values of tiled steps and carried states are in shared memory or, if that is too small, in a slab of the
workspace. The steps run one after another, each with all threads over its points. FlashAttention (Dao et al., 2022) is
the special case of a softmax between two products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import I64, DType
from einturnip.ir.region import Region, RegionStep
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, TileArgument, decode, indented, kernel, kernel_arguments
from einturnip.kernels.cuda.folding import ordered
from einturnip.kernels.cuda.region_keys import explained, place_number
from einturnip.kernels.cuda.region_mask import condition_bits, is_skipped, required_conditions
from einturnip.kernels.cuda.region_parts import (
    SLABS_NBYTES,
    THREADS,
    RegionLabels,
    RegionShape,
    buffer_lines,
    column_labels,
    extent_product,
    is_compensated,
    label_table,
    parts_of,
    rescaling_steps,
    row_labels,
    shape_of,
)
from einturnip.kernels.cuda.region_tiles import ProductCode, panel_memory
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype, literal
from einturnip.kernels.cuda.types import ANY, CudaKernel, LaunchGrid
from einturnip.kernels.protocol import Mode


def region_kernel(region: Region, mode: Mode) -> CudaKernel:
    """Return the kernel of a region."""
    made, parts = kernel_arguments(region, mode), parts_of(region, mode)
    code = RegionCode(made, region, parts, mode, shared=True)
    entries = [("region", made.entry("region", code.text()))]
    entries.append(("slabs", made.entry("slabs", replace(code, shared=False).text())))
    if mode != "combine" and any(step.einsum.keys for step in region.steps):
        entries.append(("explain", made.entry("explain", explained(region, code.writer))))

    def blocks(extents: tuple[int, ...], shape: RegionShape) -> int:
        if mode != "accumulate" and 0 in extents[: region.n_out]:
            return 0
        count = -(-math.prod(extents[p] for p in parts.rows) // shape.rows)
        count *= math.prod(extents[p] for p in parts.batch)
        return count if shape.shared else min(count, max(1, SLABS_NBYTES // shape.nbytes))

    def grids(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        shape = shape_of(parts, extents, mode)
        count = blocks(extents, shape)
        if not count:
            return ()
        params = (shape.rows, shape.columns, shape.nbytes, shape.pitch, shape.column_bits)
        entry, shared = ("region", shape.nbytes) if shape.shared else ("slabs", 0)
        return (LaunchGrid(entry, (count, 1, 1), (THREADS, 1, 1), params, shared),)

    def workspace(extents: tuple[int, ...]) -> int:
        shape = shape_of(parts, extents, mode)
        return 0 if shape.shared else blocks(extents, shape) * shape.nbytes

    return kernel(made, ANY, entries, grids, workspace, '#include "region.cuh"\n')


@dataclass(frozen=True)
class RegionCode:
    """Writes the body of a region's kernel, with buffers in shared memory or in slabs of the workspace."""

    made: KernelArguments
    region: Region
    parts: RegionLabels
    mode: Mode
    shared: bool

    def text(self) -> str:
        """Return the body: initialise states, stream over the columns, store states or results."""
        region, parts = self.region, self.parts
        required = required_conditions(parts) if self.mode in ("full", "accumulate") else []
        lines = ["__shared__ unsigned seen;", *["__shared__ unsigned alive[2];", "bool turn = false;"] * bool(required)]
        if self.shared:  # so that the compiler sees which memory it is, and 32 bits suffice
            lines += ["typedef int ind;", "EIN_DYNAMIC(base)", *panel_memory(parts)]
        else:
            lines += ["typedef i64 ind;"]
            lines += ["unsigned char* base = (unsigned char*)h.workspace + blockIdx.x * g.param[2];"]
        lines += ["const ind rows = (ind)g.param[0], cols = (ind)g.param[1], pitch = (ind)g.param[3];"]
        lines += ["const int bits = (int)g.param[4];", *buffer_lines(parts, self.mode)]
        lines.append(f"const i64 total = {extent_product(parts.rows)}, width = {extent_product(parts.columns)};")
        lines.append(f"const i64 groups = (total + rows - 1) / rows, count = groups * {extent_product(parts.batch)};")
        lines += ["for (i64 group = blockIdx.x; group < count; group += gridDim.x) {"]
        lines += ["  i64 batch = group;", "  const i64 row0 = batch % groups * rows; batch /= groups;"]
        lines += ["  " + line for line in decode("batch", parts.batch)]
        lines += ["  const ind here = (ind)(total - row0 < rows ? total - row0 : rows);"]
        lines += [f"  if (threadIdx.x == 0) seen = 0{', alive[turn] = 0' if required else ''};"]
        lines += ["  unsigned read = 0;", *label_table("row", "row0", "here", parts.rows), "  __syncthreads();"]
        for k in region.carried:
            lines += ["  " + line for line in self._start(k)]
        lines.append("  __syncthreads();")
        if self.mode == "combine":
            lines.append("  Quiet f;")
            for k in region.carried:
                lines += ["  " + line for line in self._combined(k)]
        elif self.mode != "finalize":
            lines.append("  for (i64 col0 = 0; col0 < width; col0 += cols) {")
            lines += ["    const ind wide = (ind)(width - col0 < cols ? width - col0 : cols);", "    Quiet f;"]
            lines += ["  " + line for line in label_table("col", "col0", "wide", parts.columns)]
            lines.append("    __syncthreads();")
            if required:
                points = self._each((*parts.rows, *parts.columns), condition_bits(required))
                lines += ["    " + line for line in ("unsigned live = 0;", *points, *is_skipped(required))]
            for k in range(len(region.steps)):
                if k in region.tiled:
                    lines += ["    " + line for line in self._tiled(k)]
                elif k in region.carried:
                    lines += ["    " + line for line in self._carried(k)]
            lines.append("  }")
            lines += ["  if (read) atomicOr(&seen, read);", "  __syncthreads();"]
        if self.mode in ("accumulate", "combine"):
            for k in region.carried:
                lines += ["  " + line for line in self._leave(k)]
        else:
            lines += ["  read = seen;", *["  " + line for line in self._finals()]]
        lines += ["  __syncthreads();"] if self.mode in ("accumulate", "combine") else []
        return indented([*lines, "}"])

    def _each(self, labels: Sequence[int], body: list[str]) -> list[str]:
        """Return a loop of all threads over the points of a value; its body can use r, c and the labels."""
        parts = self.parts
        other = parts.other(labels)
        count = "here" + "".join(f" * (ind)g.extent[{p}]" for p in other)
        inner = ["ind rest = n;"]
        if parts.has_columns(labels):  # as many points as a power of two, so that no division is needed
            count = f"({count}) << bits"
            inner = ["ind rest = n >> bits;", "const ind c = n & ((1 << bits) - 1);", "if (c >= wide) continue;"]
            inner += column_labels(parts)
        for p in reversed(other):
            inner.append(f"const ind l{p} = rest % (ind)g.extent[{p}]; rest /= (ind)g.extent[{p}];")
        inner += ["const ind r = rest;", *row_labels(parts), *body]
        return [f"for (ind n = threadIdx.x; n < {count}; n += {THREADS}) {{", *["  " + x for x in inner], "}"]

    def _start(self, k: int) -> list[str]:
        """Return the initialisation of a carried state: empty, or read from memory."""
        step = self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        assert aggregation is not None
        index = self.parts.index(labels)
        at = f"s{k}[{index}]"
        compensated = is_compensated(self.region, k) and self.mode in ("full", "accumulate")
        clear = [f"e{k}[{index}] = {{}};"] if compensated else []
        if self.mode == "full":
            return self._each(labels, [*clear, f"{at}.clear();"])
        source = self.made.operands if self.mode == "finalize" else self.made.outs
        load = [*states.load_state(aggregation, "s", self._components(source, k), _at), f"{at} = s;"]
        if self.mode in ("accumulate", "combine"):
            load = [*clear, f"if (h.first) {at}.clear();", "else {", *["  " + x for x in load], "}"]
        if self.mode == "combine":
            load += states.load_state(aggregation, "t", self._components(self.made.operands, k), _at)
            load.append(f"t{k}[{index}] = t;")
        return self._each(labels, load)

    def _components(self, tensors: Sequence[TileArgument], k: int) -> Sequence[TileArgument]:
        begin = 0
        for other in self.region.carried:
            count = len(self.region.steps[other].einsum.state_dtypes)
            if other == k:
                return tensors[begin : begin + count]
            begin += count
        raise InternalError(f"step {k} is not carried")

    def _leave(self, k: int) -> list[str]:
        """Return the loop that stores a carried state to memory."""
        step = self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        assert aggregation is not None
        index = self.parts.index(labels)
        at, outs = f"s{k}[{index}]", self._components(self.made.outs, k)
        compensated = is_compensated(self.region, k) and self.mode == "accumulate"
        error = [f"add_error({at}.a, e{k}[{index}]);"] if compensated else []
        return self._each(labels, [*error, *states.store_state(aggregation, at, outs, _at)])

    def _tiled(self, k: int) -> list[str]:
        """Return the loop that computes a tiled step's value for the present rows and columns."""
        step = self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        product = self._product(k)
        if product is not None:
            assert aggregation is not None
            aggregated = [step.labels[p] for p in step.einsum.aggregated]
            value = states.finalized(aggregation, "t[i][j]", aggregated, step.einsum.dtype)
            return product.lines([*product.scaled("t[i][j]"), f"x{k}[{self.parts.index(labels)}] = {value};"])
        lines, value = self._value(step)
        lines.append(f"x{k}[{self.parts.index(labels)}] = {value};")
        return [*self._each(labels, lines), "__syncthreads();"]

    def _product(self, k: int) -> ProductCode | None:
        """Return the writer of a step that is computed from panels in shared memory, None for others."""
        found = self.parts.product(k) if self.shared else None
        if found is None:
            return None
        return ProductCode(self.made, self.parts, found, self.writer(self.region.steps[k]).operand)

    def _value(self, step: RegionStep) -> tuple[list[str], str]:
        """Return statements that compute a step's value at one point, and the name of the value."""
        e = step.einsum
        if e.aggregation is None:
            writer = self.writer(step)
            value = writer.value(e.join, e.dtype)
            return writer.lines, value
        lines = [f"{states.state_type(e.aggregation)} s;", "s.clear();", *self._folded(step, "s")]
        aggregated = [step.labels[p] for p in e.aggregated]
        return lines, states.finalized(e.aggregation, "s", aggregated, e.dtype)

    def _folded(self, step: RegionStep, name: str) -> list[str]:
        """Return loops that fold a step's points into the state ``name``."""
        e, parts = step.einsum, self.parts
        assert e.aggregation is not None
        keyed = {key.label for key in e.keys}
        bound = [step.labels[p] for p in e.aggregated if p not in keyed]
        writer = self.writer(step)
        body = ["do {"]
        for key in ordered(e):
            value, p = writer.value(key.value, I64), step.labels[key.label]
            body += ["  " + x for x in writer.lines]
            writer.lines.clear()
            body.append(f"  if (!inside({value}, g.bound[{p}], {place_number(self.region, step)}, h.status)) break;")
            if key.label < e.n_out:
                body.append(f"  if ({value} != h.origin[{p}] + l{p}) break;")
            else:
                body.append(f"  const i64 l{p} = {value} - h.origin[{p}];")
                body.append(f"  if (l{p} < 0 || l{p} >= g.extent[{p}]) break;")
        value = writer.value(e.join, states.value_type(e.aggregation))
        flat = "0"
        if e.aggregation.indexed:
            flat = "(i64)0"
            for p in (step.labels[q] for q in e.aggregated):
                flat = f"({flat} * g.bound[{p}] + h.origin[{p}] + l{p})"
        body += [*["  " + x for x in writer.lines], f"  {name}.fold(f, {value}, {flat});", "} while (0);"]
        lines: list[str] = []
        depth = 0
        if any(p in parts.columns for p in bound):
            lines += ["for (ind c = 0; c < wide; c++) {", *["  " + x for x in column_labels(parts)]]
            depth += 1
        for p in (p for p in bound if p not in parts.columns):
            lines.append("  " * depth + f"for (i64 l{p} = 0; l{p} < g.extent[{p}]; l{p}++) {{")
            depth += 1
        lines += ["  " * depth + x for x in body]
        return [*lines, *("  " * d + "}" for d in reversed(range(depth)))]

    def writer(self, step: RegionStep) -> ScalarWriter:
        """Return the writer of a step's expressions at the row r, the column c and the labels."""

        def operand(slot: int) -> str:
            o = step.operands[slot]
            if o >= 0:
                return f"record_special(read, {self.made.operands[o].load(_at)})"
            of = self.region.steps[~o]
            labels = of.labels[: of.einsum.n_out]
            index = self.parts.index(labels)
            if ~o not in self.region.carried:
                return f"x{~o}[{index}]"
            assert of.einsum.aggregation is not None
            aggregated = [of.labels[p] for p in of.einsum.aggregated]
            return states.finalized(of.einsum.aggregation, f"s{~o}[{index}]", aggregated, of.einsum.dtype)

        return ScalarWriter(operand, lambda p: f"h.origin[{step.labels[p]}] + l{step.labels[p]}")

    def _carried(self, k: int) -> list[str]:
        """Return the loop that folds the present columns into a carried state.

        The state is first rescaled or shifted, since a state that it depends on may have changed (online softmax).
        """
        region, step = self.region, self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        assert aggregation is not None
        at = self.parts.index(labels)
        rounds, kind, product = aggregation.rounds, states.state_type(aggregation), self._product(k)
        error = [f"e{k}[{at}]"] if is_compensated(self.region, k) else []
        lines = [f"{kind} s = s{k}[{at}];"]
        if product is not None:
            lines += [f"{kind} p = t[i][j];", *product.scaled("p")]
        elif rounds:
            lines += [f"{kind} p;", "p.clear();"]
        if k in rescaling_steps(region):
            lines.append(f"old{k}[{at}] = s;")
        lines += [line for total in ("s.a", *error) for line in self._rescaled(k, total, "old")]
        lines += self._shifted(k, "p.a", "old")
        lines += self._folded(step, "p" if rounds else "s") if product is None else []
        if error:
            lines += [f"add_exactly(s.a, {error[0]}, p.a);", *(["s.b += p.b;"] if kind.startswith("Counted") else [])]
        elif rounds or product is not None:
            lines.append("s.combine(f, p);")
        lines.append(f"s{k}[{at}] = s;")
        if product is not None:
            return product.lines(lines)
        return [*self._each(labels, lines), "__syncthreads();"]

    def _combined(self, k: int) -> list[str]:
        """Return the loop that combines two states, after both are rescaled and shifted."""
        region, step = self.region, self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        assert aggregation is not None
        at, kind = self.parts.index(labels), states.state_type(aggregation)
        lines = [f"{kind} s = s{k}[{at}], t = t{k}[{at}];"]
        if k in rescaling_steps(region):
            lines.append(f"old{k}[{at}] = s;")
        for total, before in (("s.a", "old"), ("t.a", "t")):
            lines += [*self._rescaled(k, total, before), *self._shifted(k, total, before)]
        lines += ["s.combine(f, t);", f"s{k}[{at}] = s;"]
        return [*self._each(labels, lines), "__syncthreads();"]

    def _rescaled(self, k: int, total: str, before: str) -> list[str]:
        """Return statements that rescale a sum whose extrema were those of the states ``before``."""
        lines = []
        for rescale in (r for r in self.region.rescales if r.step == k):
            of, there = rescale.of, self._place_of(rescale.of)
            old, new = f"{before}{of}[{there}].a", f"s{of}[{there}].a"
            lines.append(f"rescale({total}, {old}, {new}, {literal(rescale.coefficient, self._wide(k))});")
        return lines

    def _shifted(self, k: int, total: str, before: str) -> list[str]:
        """Return statements that correct a sum of squares whose means were those of the states ``before``."""
        lines = []
        for shift in (s for s in self.region.shifts if s.step == k):
            there, coefficient = self._place_of(shift.of), literal(shift.coefficient, self._wide(k))
            old, new = f"{before}{shift.of}[{there}]", f"s{shift.of}[{there}]"
            lines.append(f"shift({total}, {old}.a, {old}.b, {new}.a, {new}.b, {coefficient});")
        return lines

    def _place_of(self, k: int) -> str:
        step = self.region.steps[k]
        return self.parts.index(step.labels[: step.einsum.n_out])

    def _wide(self, k: int) -> DType:
        aggregation = self.region.steps[k].einsum.aggregation
        assert aggregation is not None
        return states.value_type(aggregation)

    def _finals(self) -> list[str]:
        """Return the steps after the stream: results of the states, and the remaining steps up to the output."""
        region, last, lines = self.region, len(self.region.steps) - 1, list[str]()
        out = self.made.outs[0]
        for k in region.carried:
            if self.mode == "full" and is_compensated(self.region, k):
                here = self._place_of(k)
                labels = region.steps[k].labels[: region.steps[k].einsum.n_out]
                lines += [*self._each(labels, [f"add_error(s{k}[{here}].a, e{k}[{here}]);"]), "__syncthreads();"]
        for k, step in enumerate(region.steps):
            if k in region.tiled or (k in region.carried and k != last):
                continue
            labels, e = step.labels[: step.einsum.n_out], step.einsum
            if k in region.carried:
                assert e.aggregation is not None
                aggregated = [step.labels[p] for p in e.aggregated]
                name = f"s{k}[{self.parts.index(labels)}]"
                body, value = list[str](), states.finalized(e.aggregation, name, aggregated, e.dtype)
            else:
                body, value = self._value(step)
            if k == last:
                reported = ["report_special(f, result, read);"] if self.mode == "full" else []
                at = dict(enumerate(labels))
                own = TileArgument(out.base, tuple(at.values()), out.dtype, out.stride, {}, {})
                body = [*body, f"const {ctype(e.dtype)} result = {value};", *reported, own.store(_at, "result")]
            else:
                body = [*body, f"x{k}[{self.parts.index(labels)}] = {value};"]
            lines += [*self._each(labels, body), "__syncthreads();"]
        return lines


def _at(p: int) -> str:
    return f"l{p}"
