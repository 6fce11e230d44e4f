"""From a region to the programs of its blocks: what is computed where, and what may be written over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from einturnip.codegen.fold import FOLDS
from einturnip.codegen.mask import Variant
from einturnip.codegen.primitives import Array
from einturnip.codegen.protocol import HostKernel, Mode
from einturnip.codegen.region_program import (
    Action,
    Average,
    Chain,
    Compute,
    Finish,
    Fold,
    FoldMatrix,
    Gain,
    Link,
    Move,
    Program,
    Read,
    Recall,
    Take,
    Track,
    Veil,
)
from einturnip.codegen.region_space import Layout, folds_rows, out_shape
from einturnip.core.dtypes import BF16, BOOL, F16, F32, F64, DType
from einturnip.core.einsum import Access, Einsum
from einturnip.core.errors import InternalError
from einturnip.core.reference import identity
from einturnip.core.region import Region, Step
from einturnip.core.scalar import Call, Const, Label, Operand, Scalar, labels_of, rewrite, slots_of, walk

# Joins whose last operation may write where its argument lies, as a ufunc of f32 and f64.
_IN_PLACE: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.absolute,
    "min": np.minimum,
    "max": np.maximum,
}

_LOG2_E = np.array(math.log2(math.e), np.float32)

Compile = Callable[[Einsum, tuple[int, ...], Mode], HostKernel]


@lru_cache(maxsize=64)
def _ones(n: int, dtype: DType) -> Array:
    return np.ones(n, dtype.numpy)


def needed(region: Region, roots: Sequence[int]) -> frozenset[int]:
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
class Builder:
    """Builds the programs of a region for blocks of one size. Lives while a program is built."""

    region: Region
    layout: Layout
    extents: tuple[int, ...]
    compile: Compile
    actions: list[Action] = field(default_factory=list)
    aliases: dict[int, Read] = field(default_factory=dict)
    scratch: int = 0

    def block(self, variant: Variant) -> Program:
        """A block is folded into the states."""
        region = self.region
        active = [k for k in region.carried if k not in variant.idle]
        wanted = needed(region, active)
        tracked, means = {r.of for r in region.rescales}, {shift.of for shift in region.shifts}
        for k, step in enumerate(region.steps):
            if k in region.carried:
                if k in means:
                    self._average(k, step, variant)
                elif k in tracked and (k in wanted or k in active):
                    self._track(k, step, variant, k in active)
                elif k in active:
                    self._fold(k, step, variant)
                if k in wanted and k not in tracked | means:
                    self.actions.append(Take(k))
            elif k in wanted and k not in variant.numbers:
                self._value(k, step, variant)
                if k in variant.veiled:
                    self._veil(k, step, *variant.veiled[k])
        return Program(tuple(self.actions), self.scratch)

    def finish(self, variant: Variant) -> Program:
        """The states become the result."""
        region, last = self.region, len(self.region.steps) - 1
        wanted = needed(region, [last]) if last not in region.carried else {last}
        for k, step in enumerate(region.steps):
            if k not in wanted:
                continue
            aggregation = step.einsum.aggregation
            if k not in region.carried:
                self._value(k, step, variant, k == last)
            elif aggregation is not None and aggregation.finish_is_identity and k != last:
                self.actions.append(Take(k))
            else:
                own = tuple([self.extents[p] for p in step.labels])
                kernel = self._kernel(step.einsum, own, "finish")
                shape, dtype = out_shape(step, self.extents), step.einsum.dtype.numpy
                self.actions.append(Finish(k, kernel, shape, dtype, self.layout.values[k], k == last))
        return Program(tuple(self.actions), self.scratch)

    def _kernel(self, einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
        kernel = self.compile(einsum, extents, mode)
        self.scratch = max(self.scratch, kernel.workspace_nbytes)
        return kernel

    def _einsum(self, k: int, step: Step, variant: Variant) -> tuple[Einsum, tuple[Read, ...]]:
        """The step with the join that is left, and what that reads."""
        e, join = step.einsum, variant.joins[k]
        if join is e.join:
            slots: Sequence[int] = range(len(e.accesses))
        else:
            slots = sorted(slots_of(join).union(*(slots_of(key.value) for key in e.keys)))
            e = _pruned(e, join, tuple(slots))
        return e, tuple(self._read(step, s) for s in slots)

    def _read(self, step: Step, slot: int) -> Read:
        source, e = step.operands[slot], step.einsum
        if source < 0 and ~source in self.aliases:
            return self.aliases[~source]
        access: Access = tuple(_placed(p, step.labels) for p in e.accesses[slot])
        plain = all(isinstance(p, int) for p in access)
        if source < 0 and access != self.region.steps[~source].labels[: self.region.steps[~source].einsum.n_out]:
            raise InternalError(f"a step of a region reads another along {access}")
        return Read(source, access, e.shapes[slot] if e.shapes else (), plain)

    def _value(self, k: int, step: Step, variant: Variant, result: bool = False) -> None:
        region = self.region
        join, last = variant.joins[k], len(region.steps) - 1
        same = isinstance(join, Operand) and step.einsum.aggregation is None and not result and k not in variant.veiled
        if same and isinstance(join, Operand) and step.einsum.accesses[join.slot] == tuple(range(step.einsum.n_out)):
            self.aliases[k] = self._read(step, join.slot)
            return
        einsum, reads = self._einsum(k, step, variant)
        extents = tuple([self.extents[p] for p in step.labels])
        over = None if result else self._replaced(k, step, einsum, reads)
        once = k not in region.tiled and k != last and not result
        again = len([e for e in walk(einsum.join) if isinstance(e, Operand)]) > len(reads)
        chain = None if once or (again and over is not None) else _chain(einsum, reads)
        if chain is not None:
            shape, dtype = out_shape(step, self.extents), einsum.dtype.numpy
            self.actions.append(Chain(k, *chain, shape, dtype, self.layout.values[k], over, result))
            return
        self.actions.append(
            Compute(
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

    def _veil(self, k: int, step: Step, condition: Scalar, number: Const) -> None:
        """Write the number over a step's value where the condition fails."""
        own = step.labels[: step.einsum.n_out]
        labels = tuple(p for p in own if p in labels_of(condition))
        einsum = _fails(condition, labels, tuple(self.region.bounds[p] for p in labels))
        shape = tuple([self.extents[p] for p in labels])
        axes = tuple(slice(None) if p in labels else None for p in own)
        value = np.asarray(number.value, step.einsum.dtype.numpy)
        kernel = self._kernel(einsum, shape, "whole")
        self.actions.append(Veil(k, kernel, labels, shape, axes, value, self.layout.masks[k]))

    def _replaced(self, k: int, step: Step, einsum: Einsum, reads: tuple[Read, ...]) -> int | None:
        """The tiled value that nobody reads after step ``k``, of its type and labels, where it may be overwritten."""
        join = einsum.join
        if einsum.aggregation is not None or einsum.keys or not isinstance(join, Call) or join.op not in _IN_PLACE:
            return None
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

    def _average(self, k: int, step: Step, variant: Variant) -> None:
        """A mean that others see on its way, counting its values."""
        region, dtype = self.region, step.einsum.dtype.numpy
        offsets, shape = self.layout.moved[k], out_shape(step, self.extents)
        points = math.prod(self.extents[step.labels[p]] for p in step.einsum.aggregated)
        self.actions.append(Recall(k, shape, dtype, offsets))
        self._fold(k, step, variant)
        self.actions.append(Average(k, shape, dtype, offsets, np.asarray(points, np.int64)))
        for shift in region.shifts:
            if shift.of == k:
                axes = _spread(region.steps[shift.step], step)
                self.actions.append(Gain(shift.step, shape, dtype, offsets, shift.coefficient, axes))

    def _fold(self, k: int, step: Step, variant: Variant) -> None:
        einsum, reads = self._einsum(k, step, variant)
        einsum = _uncounted(einsum)
        extents = tuple([self.extents[p] for p in step.labels])
        axis = _folded_axis(einsum, extents) if isinstance(einsum.join, Operand) and folds_rows(step) else None
        if axis is not None and reads[0].source < 0 and 0 not in extents and einsum.aggregation is not None:
            m, n = math.prod(extents[: einsum.n_out]), math.prod(extents[einsum.n_out :])
            ufunc = FOLDS[einsum.aggregation.op]
            ones = _ones(n, einsum.dtype) if ufunc is np.add else None
            shape = (m, n) if axis else (n, m)
            self.actions.append(FoldMatrix(k, reads[0], shape, axis, ufunc, ones, self.layout.sums[k]))
        else:
            kernel = self._kernel(einsum, extents, "touch")
            self.actions.append(Fold(k, kernel, reads, step.labels, len(einsum.state_dtypes)))

    def _track(self, k: int, step: Step, variant: Variant, active: bool) -> None:
        region, aggregation = self.region, step.einsum.aggregation
        assert aggregation is not None
        shape, dtype = out_shape(step, self.extents), aggregation.state[0]
        offsets, wide = self.layout.moved[k], dtype.accumulator.numpy
        if active:
            self.actions.append(Track(k, shape, wide, offsets[0]))
            self._fold(k, step, variant)
        nothing = np.asarray(identity(aggregation)[0]).astype(wide)
        sums = tuple((r.step, r.coefficient, _spread(region.steps[r.step], step)) for r in region.rescales if r.of == k)
        self.actions.append(Move(k, shape, dtype.numpy, wide, offsets, nothing, sums, active))


@lru_cache(maxsize=256)
def _uncounted(einsum: Einsum) -> Einsum:
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


def _chain(einsum: Einsum, reads: Sequence[Read]) -> tuple[Read, tuple[Link, ...]] | None:
    """A map in f32 or f64 as operations one after the other, if it begins with one operand over all its labels."""
    if einsum.aggregation is not None or einsum.keys or einsum.dtype not in (F32, F64):
        return None
    whole = tuple(range(einsum.n_out))
    links: list[Link] = []
    expr = einsum.join
    while isinstance(expr, Call) and expr.op in _IN_PLACE and expr.dtype == einsum.dtype:
        inner: list[Scalar] = [a for a in expr.arguments if isinstance(a, Call)]
        inner = inner or [a for a in expr.arguments if isinstance(a, Operand) and einsum.accesses[a.slot] == whole]
        arguments = [None if a is inner[0] else _argument(einsum, reads, a) for a in expr.arguments if inner]
        if not inner or any(a is None and b is not inner[0] for a, b in zip(arguments, expr.arguments, strict=True)):
            return None
        links += _exponential() if _computed_exponential(expr) else [Link(_IN_PLACE[expr.op], tuple(arguments))]
        expr = inner[0]
    if not isinstance(expr, Operand) or expr.dtype != einsum.dtype or not links:
        return None
    return reads[expr.slot], tuple(reversed(links))


def _computed_exponential(expr: Call) -> bool:
    """True for exp in f32 of what was computed, and so was rounded."""
    return expr.op == "exp" and expr.dtype == F32 and isinstance(expr.arguments[0], Call)


@cache
def _exponential() -> list[Link]:
    """exp as 2^(x log2 e), the last operation first, where NumPy has 2^x in vector instructions: twice as fast.

    The product's rounding counts as much as one in computing x: both add |x| 2^-24 to the relative error.
    """
    from numpy.lib import introspect

    found = introspect.opt_func_info(func_name="^exp2$").get("exp2", {}).get("ff", {})
    if "baseline" in str(found.get("current", "baseline")):
        return [Link(np.exp, (None,))]
    return [Link(np.exp2, (None,)), Link(np.multiply, (None, _LOG2_E))]


def _argument(einsum: Einsum, reads: Sequence[Read], expr: Scalar) -> Any:
    """A number, or an operand and how it is spread over the output; None for anything else."""
    if isinstance(expr, Const):
        return np.asarray(expr.value, expr.dtype.numpy)
    if not isinstance(expr, Operand) or expr.dtype != einsum.dtype or not reads[expr.slot].plain:
        return None
    access = einsum.accesses[expr.slot]
    if len(set(access)) != len(access):
        return None
    order = tuple(access.index(p) for p in range(einsum.n_out) if p in access)
    return reads[expr.slot], (order, (*(slice(None) if p in access else None for p in range(einsum.n_out)), ...))


@lru_cache(maxsize=256)
def _fails(condition: Scalar, labels: tuple[int, ...], bounds: tuple[int, ...]) -> Einsum:
    """Where a condition on labels fails."""

    def placed(expr: Scalar) -> Scalar:
        return Label(labels.index(expr.position), expr.dtype) if isinstance(expr, Label) else expr

    join = Call("not", (rewrite(condition, placed),), BOOL)
    return Einsum(("",) * len(labels), bounds, len(labels), (), (), join, None)


def _spread(wider: Step, step: Step) -> tuple[Any, ...]:
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
        return rewrite(expr, lambda x: Operand(number[x.slot], x.dtype) if isinstance(x, Operand) else x)

    return replace(
        e,
        accesses=tuple(e.accesses[s] for s in slots),
        dtypes=tuple(e.dtypes[s] for s in slots),
        shapes=tuple(e.shapes[s] for s in slots) if e.shapes else (),
        join=renumbered(join),
        keys=tuple(replace(key, value=renumbered(key.value)) for key in e.keys),
    )
