"""Compiles a region into block programs.

In: a region, the extents of a block, and what is known of the mask there. Out: a ``BlockProgram``, the list of actions
that folds one block into the states, or that turns the states into the result. Consecutive steps without a matrix
product become one call of a fused row function. A value overwrites an operand that no later step reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import BF16, F16, DType
from einturnip.ir.einsum import Access, Einsum, contraction, relabelled
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import (
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarConst,
    labels_of,
    slots_of,
    walk,
)
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import recorded_product
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.block_layout import WorkspaceLayout, folds_rows, out_shape, summed_at_once
from einturnip.kernels.fused.matrix_fold import FoldMatrix
from einturnip.kernels.fused.operation_chain import IN_PLACE, chain_of
from einturnip.kernels.fused.program import (
    Action,
    BlockProgram,
    ComputeStep,
    CorrectSquares,
    FinalizeStep,
    FoldStep,
    MaskedFill,
    OperationChain,
    ReloadMean,
    RescaleSums,
    StepRead,
    TakeState,
    TrackExtremum,
    UpdateMean,
)
from einturnip.kernels.fused.row_function import (
    OpenRowFunction,
    Place,
    RowFunctionCall,
    ValuePlace,
    last_read,
    stored_at,
)
from einturnip.kernels.fused.step_einsum import (
    broadcast_axes,
    folded_axis,
    pruned,
    sum_of_mean,
    where_fails,
)
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import MaskVariant
from einturnip.kernels.protocol import HostKernel, Mode

Compile = Callable[[Einsum, tuple[int, ...], Mode], HostKernel]


@lru_cache(maxsize=64)
def _ones(n: int, dtype: DType) -> Array:
    return np.ones(n, dtype.numpy)


@dataclass
class BlockProgramBuilder:
    """Builds a region's programs for blocks of one size.

    ``row_functions``: the fused row functions called so far. ``stored``: the steps that need bytes of the workspace.
    """

    region: Region
    layout: WorkspaceLayout
    extents: tuple[int, ...]
    compile: Compile
    actions: list[Action] = field(default_factory=list)
    aliases: dict[int, StepRead] = field(default_factory=dict)
    scratch: int = 0
    native: bool = False
    row_functions: list[FusedRowSpec] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    _open: OpenRowFunction | None = None

    def block(self, variant: MaskVariant) -> BlockProgram:
        """Build the program that folds a block into the states."""
        region, active = self.region, [k for k in self.region.carried if k not in variant.idle]
        required, means = region.required(active), {shift.of for shift in region.shifts}
        for k, step in enumerate(region.steps):
            if k in region.carried and (k in active or k in required or k in means):
                fuses = self.native and k in active and self._can_fuse(k, step)
                self._emit(k, step, variant, fuses, required, partial(self._fold_carried, k, step, variant, required))
            elif k not in region.carried and k in required and k not in variant.numbers:
                fuses = self.native and k in region.tiled and k not in variant.masked and self._can_fuse(k, step)
                self._emit(k, step, variant, fuses, required, partial(self._compute_tiled, k, step, variant))
        self._close_row_function(required, True)
        return BlockProgram(tuple(self.actions), self.scratch)

    def _fold_carried(self, k: int, step: RegionStep, variant: MaskVariant, required: frozenset[int]) -> None:
        """Emit the actions that fold the block into a carried step's state."""
        region, active = self.region, k not in variant.idle
        tracked, means = {r.of for r in region.rescales}, {shift.of for shift in region.shifts}
        if k in means:
            self._fold_mean(k, step, variant)
        elif k in tracked:
            self._fold_extremum(k, step, variant, active)
        elif active:
            self._fold(k, step, variant)
        if k in required and k not in tracked | means:
            self.actions.append(TakeState(k))

    def _compute_tiled(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        self._value(k, step, variant)
        if k in variant.masked:
            self._fill_masked(k, step, *variant.masked[k])

    # --- fused row functions ------------------------------------------------------------------------------------------

    def _can_fuse(self, k: int, step: RegionStep) -> bool:
        """Return whether a step may be part of a fused row function."""
        moved = {k for shift in self.region.shifts for k in (shift.step, shift.of)}
        separate = step.einsum.aggregation is not None and k in self.region.tiled
        return k not in moved and not separate and contraction(step.einsum) is None

    def _emit(
        self,
        k: int,
        step: RegionStep,
        variant: MaskVariant,
        fuses: bool,
        required: frozenset[int],
        act: Callable[[], None],
    ) -> None:
        """Emit a step's actions, or add the step to the open row function.

        Actions that do not read a value of the open row function are emitted before its call, so that it can still
        grow.
        """
        einsum, reads = self.einsum_of(k, step, variant)
        if self._open is not None and not fuses:
            rescaled = {r.of for r in self.region.rescales if r.step == k}
            if not {*self._open.steps}.isdisjoint({~r.source for r in reads if r.source < 0} | rescaled):
                self._close_row_function(required, True)
        mark = len(self.actions)
        act()
        if not fuses or k in self.aliases:
            return
        if self._open is None:
            self._open = OpenRowFunction(self.region)
        fallback = self.actions[mark:]
        del self.actions[mark:]
        self._open.add(k, sum_of_mean(einsum), reads, fallback)

    def _close_row_function(self, required: frozenset[int], states: bool) -> None:
        """Emit the call of the open row function; NumPy's actions where no function can be made of its steps."""
        opened, self._open = self._open, None
        if opened is None:
            return
        region, own = self.region, set(opened.steps)
        others = [step for k, step in enumerate(region.steps) if k in required and k not in own]
        outside = {~o for step in others for o in step.operands if o < 0}
        outside |= {~r.source for k, r in self.aliases.items() if k in outside and r.source < 0}
        made = {k: self.value_place(k, region.steps[k], states) for k in own}
        outside |= set() if states else {len(region.steps) - 1}
        found = opened.close(frozenset(outside & own), made, states)
        if found is None:
            self.actions += opened.fallback
            return
        row_spec, places, values, state_steps = found
        places = tuple(self._overwrite(p, row_spec, n, opened) for n, p in enumerate(places))
        self.stored |= {p.step for p in places if isinstance(p, ValuePlace) and p.over is None}
        self.row_functions.append(row_spec)
        fallback, function = tuple(opened.fallback), code_cache.find(row_spec)
        extents = tuple(self.extents)
        self.actions.append(RowFunctionCall(row_spec, function, fallback, places, values, state_steps, extents))

    def value_place(self, k: int, step: RegionStep, states: bool) -> ValuePlace:
        """Return where a row function writes a step's value."""
        running = self.layout.running[k] if states and k in self.region.carried else None
        offset = self.layout.values[k] if running is None else running.published
        result = not states and k == len(self.region.steps) - 1
        return ValuePlace(k, out_shape(step, self.extents), step.einsum.dtype.numpy, offset, None, result)

    def _overwrite(self, place: Place, row_spec: FusedRowSpec, number: int, opened: OpenRowFunction) -> Place:
        """Let a value overwrite one that is not read after it is stored, to use less of the cache."""
        if not isinstance(place, ValuePlace) or place.result or place.step in self.region.carried:
            return place
        k = opened.steps.index(place.step)
        over = self._overwritable(place.step, self.region.steps[place.step], opened.einsums[k], opened.reads[k])
        if over is None or over in opened.steps:
            return place
        stage = stored_at(row_spec, number)
        reads = [n for n, t in enumerate(opened.tensors) if isinstance(t, StepRead) and t.source == ~over]
        return replace(place, over=over) if all(last_read(row_spec, n) <= stage for n in reads) else place

    # --- steps --------------------------------------------------------------------------------------------------------

    def finalize(self, variant: MaskVariant) -> BlockProgram:
        """Build the program that computes the result from the states."""
        region, last = self.region, len(self.region.steps) - 1
        required = region.required([last]) if last not in region.carried else frozenset({last})
        for k, step in enumerate(region.steps):
            if k not in required:
                continue
            aggregation = step.einsum.aggregation
            if k not in region.carried:
                fuses = self.native and self._can_fuse(k, step)
                self._emit(k, step, variant, fuses, required, partial(self._value, k, step, variant, k == last))
            elif aggregation is not None and aggregation.finalize_is_identity and k != last:
                self.actions.append(TakeState(k))
            else:
                own = tuple([self.extents[p] for p in step.labels])
                kernel = self._kernel(step.einsum, own, "finalize")
                shape, dtype = out_shape(step, self.extents), step.einsum.dtype.numpy
                self.stored.add(k)
                self.actions.append(FinalizeStep(k, kernel, shape, dtype, self.layout.values[k], k == last))
        self._close_row_function(required, False)
        return BlockProgram(tuple(self.actions), self.scratch)

    def _kernel(self, einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
        kernel = self.compile(einsum, extents, mode)
        if self.native and not isinstance(kernel, ContractionKernel):
            kernel = recorded_product(einsum, extents, mode) or kernel
        self.scratch = max(self.scratch, kernel.workspace_nbytes)
        return kernel

    def einsum_of(self, k: int, step: RegionStep, variant: MaskVariant) -> tuple[Einsum, tuple[StepRead, ...]]:
        """Return the step's einsum with the join of this mask variant, and the reads of its operands."""
        e, join = step.einsum, variant.joins[k]
        if join is e.join:
            slots: Sequence[int] = range(len(e.accesses))
        else:
            slots = sorted(slots_of(join).union(*(slots_of(key.value) for key in e.keys)))
            e = pruned(e, join, tuple(slots))
        return e, tuple(self._read(step, s) for s in slots)

    def _read(self, step: RegionStep, slot: int) -> StepRead:
        source, e = step.operands[slot], step.einsum
        if source < 0 and ~source in self.aliases:
            return self.aliases[~source]
        access: Access = tuple(relabelled(p, step.labels) for p in e.accesses[slot])
        plain = all(isinstance(p, int) for p in access)
        if source < 0 and access != self.region.steps[~source].labels[: self.region.steps[~source].einsum.n_out]:
            raise InternalError(f"a step of a region reads another along {access}")
        return StepRead(source, access, e.shapes[slot] if e.shapes else (), plain)

    def _value(self, k: int, step: RegionStep, variant: MaskVariant, result: bool = False) -> None:
        region = self.region
        join, last = variant.joins[k], len(region.steps) - 1
        same = (
            isinstance(join, OperandRef) and step.einsum.aggregation is None and not result and k not in variant.masked
        )
        if same and isinstance(join, OperandRef) and step.einsum.accesses[join.slot] == tuple(range(step.einsum.n_out)):
            self.aliases[k] = self._read(step, join.slot)
            return
        einsum, reads = self.einsum_of(k, step, variant)
        extents = tuple([self.extents[p] for p in step.labels])
        over = None if result else self._overwritable(k, step, einsum, reads)
        once = k not in region.tiled and k != last and not result
        again = len([e for e in walk(einsum.join) if isinstance(e, OperandRef)]) > len(reads)
        self.stored |= {k} if over is None and not result else set()
        chain = None if once or (again and over is not None) else chain_of(einsum, reads)
        if chain is not None:
            shape, dtype = out_shape(step, self.extents), einsum.dtype.numpy
            self.actions.append(OperationChain(k, *chain, shape, dtype, self.layout.values[k], over, result))
            return
        self.actions.append(
            ComputeStep(
                k,
                self._kernel(einsum, extents, "full"),
                reads,
                step.labels,
                out_shape(step, self.extents),
                einsum.dtype.numpy,
                self.layout.values[k],
                over,
                once,
                result,
            )
        )

    def _fill_masked(self, k: int, step: RegionStep, condition: Scalar, number: ScalarConst) -> None:
        """Overwrite a step's value with the number where the condition fails."""
        own = step.labels[: step.einsum.n_out]
        labels = tuple(p for p in own if p in labels_of(condition))
        einsum = where_fails(condition, labels, tuple(self.region.bounds[p] for p in labels))
        shape = tuple([self.extents[p] for p in labels])
        axes = tuple(slice(None) if p in labels else None for p in own)
        value = np.asarray(number.value, step.einsum.dtype.numpy)
        kernel = self._kernel(einsum, shape, "full")
        self.actions.append(MaskedFill(k, kernel, labels, shape, axes, value, self.layout.masks[k]))

    def _overwritable(self, k: int, step: RegionStep, einsum: Einsum, reads: tuple[StepRead, ...]) -> int | None:
        """Return a tiled value that step ``k`` may overwrite; None if there is none.

        It has the step's type and labels, and no later step reads it.
        """
        join = einsum.join
        if einsum.aggregation is not None or einsum.keys or not isinstance(join, ScalarCall) or join.op not in IN_PLACE:
            return None
        if self._open is not None and k not in self._open.steps and not self._can_fuse(k, step):
            return None  # the open row function runs later and may read the value
        for slot, read in enumerate(reads):
            j = ~read.source
            if read.source >= 0 or j not in self.region.tiled or einsum.dtype != einsum.dtypes[slot]:
                continue
            if einsum.dtype in (F16, BF16) or einsum.accesses[slot] != tuple(range(einsum.n_out)):
                continue
            family = {j, *(a for a, r in self.aliases.items() if r.source == read.source)}
            later = {~o for s in self.region.steps[k + 1 :] for o in s.operands if o < 0}
            if not family & later and [r.source for r in reads].count(read.source) == 1:
                return j
        return None

    def _fold_mean(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        """Emit a mean whose running value other steps read, with its count."""
        region, dtype = self.region, step.einsum.dtype.numpy
        offsets, shape = self.layout.running[k], out_shape(step, self.extents)
        assert offsets is not None
        points = math.prod(self.extents[step.labels[p]] for p in step.einsum.aggregated)
        self.actions.append(ReloadMean(k, shape, dtype, offsets))
        self._fold(k, step, variant)
        self.actions.append(UpdateMean(k, shape, dtype, offsets, np.asarray(points, np.int64)))
        for shift in region.shifts:
            if shift.of == k:
                axes = broadcast_axes(region.steps[shift.step], step)
                self.actions.append(CorrectSquares(shift.step, shape, dtype, offsets, shift.coefficient, axes))

    def _fold(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        einsum, reads = self.einsum_of(k, step, variant)
        einsum = sum_of_mean(einsum)
        extents = tuple([self.extents[p] for p in step.labels])
        axis = folded_axis(einsum, extents) if isinstance(einsum.join, OperandRef) and folds_rows(step) else None
        if axis is not None and reads[0].source < 0 and 0 not in extents and einsum.aggregation is not None:
            m, n = math.prod(extents[: einsum.n_out]), math.prod(extents[einsum.n_out :])
            ufunc = FOLDS[einsum.aggregation.combine]
            ones = _ones(summed_at_once(n), einsum.dtype) if ufunc is np.add else None
            shape = (m, n) if axis else (n, m)
            self.actions.append(FoldMatrix(k, reads[0], shape, axis, ufunc, ones, self.layout.sums[k]))
        else:
            kernel = self._kernel(einsum, extents, "accumulate")
            self.actions.append(FoldStep(k, kernel, reads, step.labels, len(einsum.state_dtypes)))

    def _fold_extremum(self, k: int, step: RegionStep, variant: MaskVariant, active: bool) -> None:
        region, aggregation = self.region, step.einsum.aggregation
        assert aggregation is not None
        shape, dtype = out_shape(step, self.extents), aggregation.state[0]
        offsets, wide = self.layout.running[k], dtype.accumulator.numpy
        assert offsets is not None
        if active:
            self.actions.append(TrackExtremum(k, shape, wide, offsets.old))
            self._fold(k, step, variant)
        nothing = np.asarray(aggregation.identity[0]).astype(wide)
        sums = tuple(
            (r.step, r.coefficient, broadcast_axes(region.steps[r.step], step)) for r in region.rescales if r.of == k
        )
        self.actions.append(RescaleSums(k, shape, dtype.numpy, wide, offsets, nothing, sums, active))
