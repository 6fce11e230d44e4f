"""From a region to the programs of its blocks: what is computed where, and what may be written over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.contraction import contraction
from einturnip.ir.dtypes import BF16, BOOL, F16, DType
from einturnip.ir.einsum import Access, Einsum
from einturnip.ir.reference import identity
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import (
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarConst,
    labels_of,
    rewrite,
    slots_of,
    walk,
)
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.operation_chain import IN_PLACE, chain_of
from einturnip.kernels.fused.program import (
    Action,
    BlockProgram,
    ComputeStep,
    CorrectSquares,
    FinalizeStep,
    FoldMatrix,
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
from einturnip.kernels.fused.space import WorkspaceLayout, folds_rows, out_shape
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.contraction import recorded_product
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import MaskVariant
from einturnip.kernels.protocol import HostKernel, Mode

Compile = Callable[[Einsum, tuple[int, ...], Mode], HostKernel]


@lru_cache(maxsize=64)
def _ones(n: int, dtype: DType) -> Array:
    return np.ones(n, dtype.numpy)


def required_steps(region: Region, roots: Sequence[int]) -> frozenset[int]:
    """Steps whose values the roots hang on, the roots too; of carried ones it is their states that are there."""
    found, work = set(roots), list(roots)
    while work:
        for o in region.steps[work.pop()].operands:
            if o < 0 and ~o not in found:
                found.add(~o)
                if ~o not in region.carried:
                    work.append(~o)
    return frozenset(found)


@dataclass
class BlockProgramBuilder:
    """Builds a region's programs for blocks of one size. ``apart``: steps so far whose values have their own places."""

    region: Region
    layout: WorkspaceLayout
    extents: tuple[int, ...]
    compile: Compile
    actions: list[Action] = field(default_factory=list)
    aliases: dict[int, StepRead] = field(default_factory=dict)
    scratch: int = 0
    native: bool = False
    bands: list[FusedRowSpec] = field(default_factory=list)
    apart: set[int] = field(default_factory=set)
    _open: OpenRowFunction | None = None

    def block(self, variant: MaskVariant) -> BlockProgram:
        """A block is folded into the states."""
        region, active = self.region, [k for k in self.region.carried if k not in variant.idle]
        wanted, means = required_steps(region, active), {shift.of for shift in region.shifts}
        for k, step in enumerate(region.steps):
            if k in region.carried and (k in active or k in wanted or k in means):
                joins = self.native and k in active and self._may_join(k, step)
                self._put(k, step, variant, joins, wanted, partial(self._carry, k, step, variant, wanted))
            elif k not in region.carried and k in wanted and k not in variant.numbers:
                joins = self.native and k in region.tiled and k not in variant.veiled and self._may_join(k, step)
                self._put(k, step, variant, joins, wanted, partial(self._tile, k, step, variant))
        self._close(wanted, True)
        return BlockProgram(tuple(self.actions), self.scratch)

    def _carry(self, k: int, step: RegionStep, variant: MaskVariant, wanted: frozenset[int]) -> None:
        """A fold takes the block in."""
        region, active = self.region, k not in variant.idle
        tracked, means = {r.of for r in region.rescales}, {shift.of for shift in region.shifts}
        if k in means:
            self._average(k, step, variant)
        elif k in tracked:
            self._track(k, step, variant, active)
        elif active:
            self._fold(k, step, variant)
        if k in wanted and k not in tracked | means:
            self.actions.append(TakeState(k))

    def _tile(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        self._value(k, step, variant)
        if k in variant.veiled:
            self._veil(k, step, *variant.veiled[k])

    # --- bands --------------------------------------------------------------------------------------------------------

    def _may_join(self, k: int, step: RegionStep) -> bool:
        """Whether a step may be part of a band."""
        moved = {k for shift in self.region.shifts for k in (shift.step, shift.of)}
        apart = step.einsum.aggregation is not None and k in self.region.tiled
        return k not in moved and not apart and contraction(step.einsum) is None

    def _put(
        self,
        k: int,
        step: RegionStep,
        variant: MaskVariant,
        joins: bool,
        wanted: frozenset[int],
        act: Callable[[], None],
    ) -> None:
        """A step's actions where they belong: in the open band, or before it unless they read of it."""
        einsum, reads = self.einsum_of(k, step, variant)
        if self._open is not None and not joins:
            held = {r.of for r in self.region.rescales if r.step == k}
            if not {*self._open.steps}.isdisjoint({~r.source for r in reads if r.source < 0} | held):
                self._close(wanted, True)
        mark = len(self.actions)
        act()
        if not joins or k in self.aliases:
            return
        if self._open is None:
            self._open = OpenRowFunction(self.region)
        slow = self.actions[mark:]
        del self.actions[mark:]
        self._open.add(k, sum_of_mean(einsum), reads, slow)

    def _close(self, wanted: frozenset[int], states: bool) -> None:
        """The open band becomes an action."""
        opened, self._open = self._open, None
        if opened is None:
            return
        region, own = self.region, set(opened.steps)
        outside = {~o for k, s in enumerate(region.steps) if k in wanted and k not in own for o in s.operands if o < 0}
        outside |= {~r.source for k, r in self.aliases.items() if k in outside and r.source < 0}
        made = {k: self.made(k, region.steps[k], states) for k in own}
        outside |= set() if states else {len(region.steps) - 1}
        found = opened.close(frozenset(outside & own), made, states)
        if found is None:
            self.actions += opened.slow
            return
        band, places, values, taken = found
        places = tuple(self._placed_over(p, band, n, opened) for n, p in enumerate(places))
        self.apart |= {p.step for p in places if isinstance(p, ValuePlace) and p.over is None}
        self.bands.append(band)
        slow, function = tuple(opened.slow), code_cache.find(band)
        self.actions.append(RowFunctionCall(band, function, slow, places, values, taken, tuple(self.extents)))

    def made(self, k: int, step: RegionStep, states: bool) -> ValuePlace:
        """Where a band puts a value."""
        tracked = states and k in self.region.carried
        offset = self.layout.moved[k][2] if tracked and self.layout.moved[k] else self.layout.values[k]
        result = not states and k == len(self.region.steps) - 1
        return ValuePlace(k, out_shape(step, self.extents), step.einsum.dtype.numpy, offset, None, result)

    def _placed_over(self, place: Place, band: FusedRowSpec, number: int, opened: OpenRowFunction) -> Place:
        """A value over one that nobody reads once it is stored, so that less lies in the cache."""
        if not isinstance(place, ValuePlace) or place.result or place.step in self.region.carried:
            return place
        k = opened.steps.index(place.step)
        over = self._replaced(place.step, self.region.steps[place.step], opened.einsums[k], opened.reads[k])
        if over is None or over in opened.steps:
            return place
        stage = stored_at(band, number)
        reads = [n for n, t in enumerate(opened.tensors) if isinstance(t, StepRead) and t.source == ~over]
        return replace(place, over=over) if all(last_read(band, n) <= stage for n in reads) else place

    # --- steps --------------------------------------------------------------------------------------------------------

    def finish(self, variant: MaskVariant) -> BlockProgram:
        """The states become the result."""
        region, last = self.region, len(self.region.steps) - 1
        wanted = required_steps(region, [last]) if last not in region.carried else frozenset({last})
        for k, step in enumerate(region.steps):
            if k not in wanted:
                continue
            aggregation = step.einsum.aggregation
            if k not in region.carried:
                joins = self.native and self._may_join(k, step)
                self._put(k, step, variant, joins, wanted, partial(self._value, k, step, variant, k == last))
            elif aggregation is not None and aggregation.finish_is_identity and k != last:
                self.actions.append(TakeState(k))
            else:
                own = tuple([self.extents[p] for p in step.labels])
                kernel = self._kernel(step.einsum, own, "finish")
                shape, dtype = out_shape(step, self.extents), step.einsum.dtype.numpy
                self.apart.add(k)
                self.actions.append(FinalizeStep(k, kernel, shape, dtype, self.layout.values[k], k == last))
        self._close(wanted, False)
        return BlockProgram(tuple(self.actions), self.scratch)

    def _kernel(self, einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
        kernel = self.compile(einsum, extents, mode)
        if self.native and not isinstance(kernel, ContractionKernel):
            kernel = recorded_product(einsum, extents, mode) or kernel
        self.scratch = max(self.scratch, kernel.workspace_nbytes)
        return kernel

    def einsum_of(self, k: int, step: RegionStep, variant: MaskVariant) -> tuple[Einsum, tuple[StepRead, ...]]:
        """The step with the join that is left, and what that reads."""
        e, join = step.einsum, variant.joins[k]
        if join is e.join:
            slots: Sequence[int] = range(len(e.accesses))
        else:
            slots = sorted(slots_of(join).union(*(slots_of(key.value) for key in e.keys)))
            e = _pruned(e, join, tuple(slots))
        return e, tuple(self._read(step, s) for s in slots)

    def _read(self, step: RegionStep, slot: int) -> StepRead:
        source, e = step.operands[slot], step.einsum
        if source < 0 and ~source in self.aliases:
            return self.aliases[~source]
        access: Access = tuple(_placed(p, step.labels) for p in e.accesses[slot])
        plain = all(isinstance(p, int) for p in access)
        if source < 0 and access != self.region.steps[~source].labels[: self.region.steps[~source].einsum.n_out]:
            raise InternalError(f"a step of a region reads another along {access}")
        return StepRead(source, access, e.shapes[slot] if e.shapes else (), plain)

    def _value(self, k: int, step: RegionStep, variant: MaskVariant, result: bool = False) -> None:
        region = self.region
        join, last = variant.joins[k], len(region.steps) - 1
        same = (
            isinstance(join, OperandRef) and step.einsum.aggregation is None and not result and k not in variant.veiled
        )
        if same and isinstance(join, OperandRef) and step.einsum.accesses[join.slot] == tuple(range(step.einsum.n_out)):
            self.aliases[k] = self._read(step, join.slot)
            return
        einsum, reads = self.einsum_of(k, step, variant)
        extents = tuple([self.extents[p] for p in step.labels])
        over = None if result else self._replaced(k, step, einsum, reads)
        once = k not in region.tiled and k != last and not result
        again = len([e for e in walk(einsum.join) if isinstance(e, OperandRef)]) > len(reads)
        self.apart |= {k} if over is None and not result else set()
        chain = None if once or (again and over is not None) else chain_of(einsum, reads)
        if chain is not None:
            shape, dtype = out_shape(step, self.extents), einsum.dtype.numpy
            self.actions.append(OperationChain(k, *chain, shape, dtype, self.layout.values[k], over, result))
            return
        self.actions.append(
            ComputeStep(
                k,
                self._kernel(einsum, extents, "whole"),
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

    def _veil(self, k: int, step: RegionStep, condition: Scalar, number: ScalarConst) -> None:
        """Write the number over a step's value where the condition fails."""
        own = step.labels[: step.einsum.n_out]
        labels = tuple(p for p in own if p in labels_of(condition))
        einsum = _fails(condition, labels, tuple(self.region.bounds[p] for p in labels))
        shape = tuple([self.extents[p] for p in labels])
        axes = tuple(slice(None) if p in labels else None for p in own)
        value = np.asarray(number.value, step.einsum.dtype.numpy)
        kernel = self._kernel(einsum, shape, "whole")
        self.actions.append(MaskedFill(k, kernel, labels, shape, axes, value, self.layout.masks[k]))

    def _replaced(self, k: int, step: RegionStep, einsum: Einsum, reads: tuple[StepRead, ...]) -> int | None:
        """The tiled value that nobody reads after step ``k``, of its type and labels, where it may be overwritten."""
        join = einsum.join
        if einsum.aggregation is not None or einsum.keys or not isinstance(join, ScalarCall) or join.op not in IN_PLACE:
            return None
        if self._open is not None and k not in self._open.steps and not self._may_join(k, step):
            return None  # what is in the open band runs later, and may read it
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

    def _average(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        """A mean that others see on its way, counting its values."""
        region, dtype = self.region, step.einsum.dtype.numpy
        offsets, shape = self.layout.moved[k], out_shape(step, self.extents)
        points = math.prod(self.extents[step.labels[p]] for p in step.einsum.aggregated)
        self.actions.append(ReloadMean(k, shape, dtype, offsets))
        self._fold(k, step, variant)
        self.actions.append(UpdateMean(k, shape, dtype, offsets, np.asarray(points, np.int64)))
        for shift in region.shifts:
            if shift.of == k:
                axes = _spread(region.steps[shift.step], step)
                self.actions.append(CorrectSquares(shift.step, shape, dtype, offsets, shift.coefficient, axes))

    def _fold(self, k: int, step: RegionStep, variant: MaskVariant) -> None:
        einsum, reads = self.einsum_of(k, step, variant)
        einsum = sum_of_mean(einsum)
        extents = tuple([self.extents[p] for p in step.labels])
        axis = _folded_axis(einsum, extents) if isinstance(einsum.join, OperandRef) and folds_rows(step) else None
        if axis is not None and reads[0].source < 0 and 0 not in extents and einsum.aggregation is not None:
            m, n = math.prod(extents[: einsum.n_out]), math.prod(extents[einsum.n_out :])
            ufunc = FOLDS[einsum.aggregation.op]
            ones = _ones(n, einsum.dtype) if ufunc is np.add else None
            shape = (m, n) if axis else (n, m)
            self.actions.append(FoldMatrix(k, reads[0], shape, axis, ufunc, ones, self.layout.sums[k]))
        else:
            kernel = self._kernel(einsum, extents, "touch")
            self.actions.append(FoldStep(k, kernel, reads, step.labels, len(einsum.state_dtypes)))

    def _track(self, k: int, step: RegionStep, variant: MaskVariant, active: bool) -> None:
        region, aggregation = self.region, step.einsum.aggregation
        assert aggregation is not None
        shape, dtype = out_shape(step, self.extents), aggregation.state[0]
        offsets, wide = self.layout.moved[k], dtype.accumulator.numpy
        if active:
            self.actions.append(TrackExtremum(k, shape, wide, offsets[0]))
            self._fold(k, step, variant)
        nothing = np.asarray(identity(aggregation)[0]).astype(wide)
        sums = tuple((r.step, r.coefficient, _spread(region.steps[r.step], step)) for r in region.rescales if r.of == k)
        self.actions.append(RescaleSums(k, shape, dtype.numpy, wide, offsets, nothing, sums, active))


@lru_cache(maxsize=256)
def sum_of_mean(einsum: Einsum) -> Einsum:
    """A mean whose values another action counts: its sum alone."""
    aggregation = einsum.aggregation
    if aggregation is None or aggregation.op != "mean" or einsum.keys:
        return einsum
    return replace(einsum, aggregation=replace(aggregation, state=aggregation.state[:1]))


def _folded_axis(einsum: Einsum, extents: Sequence[int]) -> int | None:
    """Where one operand with all labels is a matrix of what stays and what is folded: the axis that is folded."""
    if len(einsum.accesses) != 1 or not all(isinstance(p, int) for p in einsum.accesses[0]):
        return None
    access = [p for p in einsum.accesses[0] if isinstance(p, int)]
    kept, folded = ([p for p in access if (p < einsum.n_out) == side and extents[p] > 1] for side in (True, False))
    if sorted(access) != list(range(len(einsum.labels))) or kept != sorted(kept):
        return None
    long = [p for p in access if extents[p] > 1]
    return 1 if long == kept + folded else 0 if long == folded + kept else None


@lru_cache(maxsize=256)
def _fails(condition: Scalar, labels: tuple[int, ...], bounds: tuple[int, ...]) -> Einsum:
    """Where a condition on labels fails."""

    def placed(expr: Scalar) -> Scalar:
        return LabelValue(labels.index(expr.position), expr.dtype) if isinstance(expr, LabelValue) else expr

    join = ScalarCall("not", (rewrite(condition, placed),), BOOL)
    return Einsum(("",) * len(labels), bounds, len(labels), (), (), join, None)


def _spread(wider: RegionStep, step: RegionStep) -> tuple[Any, ...]:
    """How a step's output is transposed and indexed to go with that of one with more labels."""
    mine, other = step.labels[: step.einsum.n_out], wider.labels[: wider.einsum.n_out]
    order = tuple(mine.index(p) for p in other if p in mine)
    return order, (*(slice(None) if p in mine else None for p in other), ...)


def _placed(axis: Any, labels: Sequence[int]) -> Any:
    """An axis' index over the region's labels."""
    if isinstance(axis, int):
        return labels[axis]
    return replace(axis, terms=tuple(sorted((labels[p], c) for p, c in axis.terms)))


@lru_cache(maxsize=1024)
def _pruned(e: Einsum, join: Scalar, slots: tuple[int, ...]) -> Einsum:
    """The einsum with another join, without the operands that it does not read."""
    number = {s: n for n, s in enumerate(slots)}

    def renumbered(expr: Scalar) -> Scalar:
        return rewrite(expr, lambda x: OperandRef(number[x.slot], x.dtype) if isinstance(x, OperandRef) else x)

    return replace(
        e,
        accesses=tuple(e.accesses[s] for s in slots),
        dtypes=tuple(e.dtypes[s] for s in slots),
        shapes=tuple(e.shapes[s] for s in slots) if e.shapes else (),
        join=renumbered(join),
        keys=tuple(replace(key, value=renumbered(key.value)) for key in e.keys),
    )
