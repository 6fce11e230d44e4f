"""Region kernels: stream over the columns for a few rows, with intermediate values on chip.

Rows are points of the output labels that every streamed step has; columns are points of the streamed labels that can be
divided. Values of tiled steps and carried states are in shared memory or, if that is too small, in a slab of the
workspace. The steps run one after another, each with all threads over its points. FlashAttention (Dao et al., 2022) is
the special case of a softmax between two products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import I64, DType
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import slots_of
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, TileArgument, indented, kernel, kernel_arguments
from einturnip.kernels.cuda.folding import error_point, ordered
from einturnip.kernels.cuda.region_parts import (
    LINE,
    SLABS_NBYTES,
    THREADS,
    RegionLabels,
    column_labels,
    extent_product,
    label_table,
    parts_of,
    rescaling_steps,
    row_labels,
    shape_of,
)
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype, literal
from einturnip.kernels.cuda.types import ANY, CudaKernel, LaunchGrid
from einturnip.kernels.protocol import Mode


def region_kernel(region: Region, mode: Mode) -> CudaKernel:
    """Return the kernel of a region."""
    made, parts = kernel_arguments(region, mode), parts_of(region)
    code = RegionCode(made, region, parts, mode)
    entries = [("region", made.entry("region", code.text()))]
    if mode != "combine" and any(step.einsum.keys for step in region.steps):
        entries.append(("explain", made.entry("explain", code.explain())))

    def grids(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        rows, cols, slab, shared = shape_of(parts, extents, mode)
        total = math.prod(extents[p] for p in parts.rows)
        if not total or (mode != "accumulate" and 0 in extents[: region.n_out]):
            return ()
        blocks = -(-total // rows) if shared else min(-(-total // rows), max(1, SLABS_NBYTES // slab))
        params = (rows, cols, slab, int(shared))
        return (LaunchGrid("region", (blocks, 1, 1), (THREADS, 1, 1), params, slab if shared else 0),)

    def workspace(extents: tuple[int, ...]) -> int:
        rows, _, slab, shared = shape_of(parts, extents, mode)
        total = math.prod(extents[p] for p in parts.rows)
        return 0 if shared or not total else min(-(-total // rows), max(1, SLABS_NBYTES // slab)) * slab

    return kernel(made, ANY, entries, grids, workspace, '#include "region.cuh"\n')


@dataclass(frozen=True)
class RegionCode:
    """Writes the body of a region's kernel."""

    made: KernelArguments
    region: Region
    parts: RegionLabels
    mode: Mode

    def text(self) -> str:
        """Return the body: initialise states, stream over the columns, store states or results."""
        region, parts = self.region, self.parts
        lines = ["EIN_DYNAMIC(dynamic)", "__shared__ unsigned seen;"]
        lines += ["unsigned char* base = g.param[3] ? dynamic : (unsigned char*)h.workspace + blockIdx.x * g.param[2];"]
        lines += ["const i64 rows = g.param[0], cols = g.param[1];", *self._buffers()]
        lines.append(f"const i64 total = {extent_product(parts.rows)}, width = {extent_product(parts.columns)};")
        lines += ["for (i64 row0 = blockIdx.x * rows; row0 < total; row0 += gridDim.x * rows) {"]
        lines += ["  const i64 here = total - row0 < rows ? total - row0 : rows;", "  if (threadIdx.x == 0) seen = 0;"]
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
            lines += ["    const i64 wide = width - col0 < cols ? width - col0 : cols;", "    Quiet f;"]
            lines += ["  " + line for line in label_table("col", "col0", "wide", parts.columns)]
            lines.append("    __syncthreads();")
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

    def _buffers(self) -> list[str]:
        """Return declarations of the pointers to all buffers, in shared memory or in the slab."""
        region, parts = self.region, self.parts
        lines = ["i64 used = 0;"]

        def take(kind: str, name: str, count: str) -> None:
            lines.append(f"{kind}* const {name} = ({kind}*)(base + used);")
            lines.append(f"used += ({count} * (i64)sizeof({kind}) + {LINE - 1}) / {LINE} * {LINE};")

        take("i64", "row", f"rows * {max(1, len(parts.rows))}")
        take("i64", "col", f"cols * {max(1, len(parts.columns))}")
        for k, step in enumerate(region.steps):
            labels = step.labels[: step.einsum.n_out]
            count = "rows" + "".join(f" * g.extent[{p}]" for p in parts.other(labels))
            count += " * cols" if parts.has_columns(labels) else ""
            if k in region.carried:
                assert step.einsum.aggregation is not None
                kind = states.state_type(step.einsum.aggregation)
                take(kind, f"s{k}", count)
                if k in rescaling_steps(region):
                    take(kind, f"old{k}", count)
                if self.mode == "combine":
                    take(kind, f"t{k}", count)
                elif self._is_compensated(k):
                    take(ctype(states.value_type(step.einsum.aggregation)), f"e{k}", count)
            elif self.mode != "combine":
                take(ctype(step.einsum.dtype), f"x{k}", count)
        return lines

    def _each(self, labels: Sequence[int], body: list[str], wide: str = "wide") -> list[str]:
        """Return a loop of all threads over the points of a value; its body can use r, c and the labels."""
        parts = self.parts
        other = parts.other(labels)
        count = "here" + "".join(f" * g.extent[{p}]" for p in other)
        inner = ["i64 rest = n;"]
        if parts.has_columns(labels):
            count += f" * {wide}"
            inner += [f"const i64 c = rest % {wide}; rest /= {wide};", *column_labels(parts)]
        for p in reversed(other):
            inner.append(f"const i64 l{p} = rest % g.extent[{p}]; rest /= g.extent[{p}];")
        inner += ["const i64 r = rest;", *row_labels(parts), *body]
        return [f"for (i64 n = threadIdx.x; n < {count}; n += {THREADS}) {{", *["  " + x for x in inner], "}"]

    def _start(self, k: int) -> list[str]:
        """Return the initialisation of a carried state: empty, or read from memory."""
        step = self.region.steps[k]
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        assert aggregation is not None
        index = self.parts.index(labels)
        at = f"s{k}[{index}]"
        clear = [f"e{k}[{index}] = {{}};"] if self._is_compensated(k) and self.mode in ("full", "accumulate") else []
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

    def _is_compensated(self, k: int) -> bool:
        """True for a sum whose rounding errors are added up separately."""
        aggregation = self.region.steps[k].einsum.aggregation
        return aggregation is not None and aggregation.combine == "add" and aggregation.rounds

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
        compensated = self._is_compensated(k) and self.mode == "accumulate"
        error = [f"add_error({at}.a, e{k}[{index}]);"] if compensated else []
        return self._each(labels, [*error, *states.store_state(aggregation, at, outs, _at)])

    def _tiled(self, k: int) -> list[str]:
        """Return the loop that computes a tiled step's value for the present rows and columns."""
        step = self.region.steps[k]
        labels = step.labels[: step.einsum.n_out]
        lines, value = self._value(step)
        lines.append(f"x{k}[{self.parts.index(labels)}] = {value};")
        return [*self._each(labels, lines), "__syncthreads();"]

    def _value(self, step: RegionStep) -> tuple[list[str], str]:
        """Return statements that compute a step's value at one point, and the name of the value."""
        e = step.einsum
        if e.aggregation is None:
            writer = self._writer(step)
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
        writer = self._writer(step)
        body = ["do {"]
        for key in ordered(e):
            value, p = writer.value(key.value, I64), step.labels[key.label]
            body += ["  " + x for x in writer.lines]
            writer.lines.clear()
            body.append(f"  if (!inside({value}, g.bound[{p}], {self._place(step)}, h.status)) break;")
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
            lines += ["for (i64 c = 0; c < wide; c++) {", *["  " + x for x in column_labels(parts)]]
            depth += 1
        for p in (p for p in bound if p not in parts.columns):
            lines.append("  " * depth + f"for (i64 l{p} = 0; l{p} < g.extent[{p}]; l{p}++) {{")
            depth += 1
        lines += ["  " * depth + x for x in body]
        return [*lines, *("  " * d + "}" for d in reversed(range(depth)))]

    def _place(self, step: RegionStep) -> str:
        """Return C++ for the number of a point and a step, to report a key out of range."""
        k = next(n for n, s in enumerate(self.region.steps) if s is step)
        behind = {step.labels[p] for key in step.einsum.keys for p in step.einsum.labels_of(key.value)}
        behind -= {step.labels[key.label] for key in step.einsum.keys}
        text = f"(i64){k}"
        for p in range(len(self.region.labels)):
            text = f"({text} * g.extent[{p}]" + (f" + l{p})" if p in behind else ")")
        return text

    def _writer(self, step: RegionStep) -> ScalarWriter:
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
        rounds, kind = aggregation.rounds, states.state_type(aggregation)
        error = [f"e{k}[{at}]"] if self._is_compensated(k) else []
        lines = [f"{kind} s = s{k}[{at}];", *([f"{kind} p;", "p.clear();"] if rounds else [])]
        if k in rescaling_steps(region):
            lines.append(f"old{k}[{at}] = s;")
        lines += [line for total in ("s.a", *error) for line in self._rescaled(k, total, "old")]
        lines += self._shifted(k, "p.a", "old")
        lines += self._folded(step, "p" if rounds else "s")
        if error:
            lines += [f"add_exactly(s.a, {error[0]}, p.a);", *(["s.b += p.b;"] if kind.startswith("Counted") else [])]
        elif rounds:
            lines.append("s.combine(f, p);")
        lines.append(f"s{k}[{at}] = s;")
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
            if self.mode == "full" and self._is_compensated(k):
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

    def explain(self) -> str:
        """Return the entry that evaluates a key out of range again, if it depends on operands alone."""
        region = self.region
        lines = [*error_point(), "unsigned read = 0;"]
        lines += [
            f"const i64 l{p} = rest % g.extent[{p}]; rest /= g.extent[{p}];"
            for p in reversed(range(len(region.labels)))
        ]
        number = 0
        for k, step in enumerate(region.steps):
            for key in step.einsum.keys:
                if all(step.operands[s] >= 0 for s in slots_of(key.value)):
                    writer = self._writer(step)
                    value = writer.value(key.value, I64)
                    bound = f"g.bound[{step.labels[key.label]}]"
                    lines += [f"if (rest == {k}) {{", *["  " + x for x in writer.lines]]
                    lines.append(f"  if (h.status[2] >> 62 && ({value} < 0 || {value} >= {bound})) {{")
                    lines += [f"    h.status[2] = {number};", f"    h.status[3] = (u64){value};", "  }", "}"]
                number += 1
        return indented(lines)


def _at(p: int) -> str:
    return f"l{p}"
