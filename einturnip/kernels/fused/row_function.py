"""Fused row functions: consecutive steps of a block in one call of machine code; NumPy as fallback."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import first_offset, label_strides
from einturnip.kernels.fused.program import Action, BlockContext, StepRead
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.row_spec import FusedRowSpec, RowMember, RowSpec, RowTensor, fuse_rows
from einturnip.kernels.protocol import KernelCall, address_of


@dataclass(frozen=True, slots=True)
class CarriedState:
    """The first component of a carried step's state, as a tensor of a row function."""

    step: int

    def __call__(self, context: BlockContext) -> Array:
        """Return the block's part."""
        return context.states[self.step][0]


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """Where a step's value goes: over the value of step ``over``, into the workspace, or into the result."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    over: int | None
    result: bool

    def __call__(self, context: BlockContext) -> Array:
        """Return the array that receives the value."""
        if self.result:
            found = context.out
        elif self.over is not None:
            found = context.values[self.over]
        else:
            found = context.place(self.offset, self.shape, self.dtype)
        return found


Place: TypeAlias = StepRead | CarriedState | ValuePlace


@dataclass(frozen=True, slots=True)
class RowFunctionCall:
    """A call of a fused row function over a block.

    ``fallback``: NumPy's actions, for when there is no function or the strides do not fit it. ``places``: by tensor.
    ``values``: (step, tensor) of values that the call makes. ``state_steps``: steps whose state is their value.
    ``templates``: by the tensors' strides, the argument without addresses and first points; None where they do not fit.
    """

    row_spec: FusedRowSpec
    function: Function | None
    fallback: tuple[Action, ...]
    places: tuple[Place, ...]
    values: tuple[tuple[int, int], ...]
    state_steps: tuple[int, ...]
    extents: tuple[int, ...]
    templates: dict[tuple[tuple[int, ...], ...], tuple[array[int], tuple[int, ...]] | None] = field(
        default_factory=dict
    )

    def __call__(self, context: BlockContext) -> int:
        """Run it on the current block and return the raised floating-point flags."""
        call = self.prepare(context)
        return self._run_fallback(context) if call is None else call.run()

    def prepare(self, context: BlockContext) -> KernelCall | None:
        """Prepare the call of the function for a block; None if there is none for these strides.

        The values that the call makes are published in the context.
        """
        if self.function is None:
            return None
        arrays = [place(context) for place in self.places]
        key = tuple([a.strides for a in arrays])
        if key not in self.templates:
            self.templates[key] = self._template(key)
        found = self.templates[key]
        if found is None:
            return None
        argument, offsets = found[0][:], found[1]
        n = len(self.extents)
        for p, (lo, _) in enumerate(context.box):
            argument[n + p] = lo
        for k, tensor in enumerate(arrays):
            argument[2 * n + k * (n + 1)] = address_of(tensor) + offsets[k]
        for step, k in self.values:
            context.values[step] = arrays[k]
        for step in self.state_steps:
            context.values[step] = context.states[step][0]
        call = KernelCall(self.function, argument, range(2 * n, len(argument), n + 1))
        call.points = range(n, 2 * n)
        return call

    def _run_fallback(self, context: BlockContext) -> int:
        bits = 0
        for action in self.fallback:
            bits |= action(context)
        return bits

    def _template(self, strides: Sequence[tuple[int, ...]]) -> tuple[array[int], tuple[int, ...]] | None:
        extents, spec = self.extents, self.row_spec.spec
        argument = array("q", (*extents, *(0 for _ in extents)))
        offsets = []
        vectors = {k: set[int]() for k in range(len(spec.tensors))}
        for k, labels in self.row_spec.vectors:
            vectors[k] |= labels
        for k, (tensor, steps) in enumerate(zip(spec.tensors, strides, strict=True)):
            by_label = label_strides(tensor.access, steps)
            size = tensor.dtype.itemsize
            if any(by_label.get(p, size) != size and extents[p] > 1 for p in vectors[k]):
                return None
            offsets.append(first_offset(tensor.access, steps, extents))
            argument.append(0)
            argument.extend([by_label.get(p, 0) for p in range(len(extents))])
        return argument, tuple(offsets)


@dataclass(slots=True)
class OpenRowFunction:
    """A fused row function under construction.

    ``steps``: of the region; ``reads``: the operands of each; ``fallback``: NumPy's actions for the same steps.
    """

    region: Region
    steps: list[int] = field(default_factory=list)
    einsums: list[Einsum] = field(default_factory=list)
    reads: list[tuple[StepRead, ...]] = field(default_factory=list)
    fallback: list[Action] = field(default_factory=list)
    tensors: list[Place] = field(default_factory=list)

    def add(self, k: int, einsum: Einsum, reads: tuple[StepRead, ...], fallback: Sequence[Action]) -> None:
        """Add a step."""
        self.steps.append(k)
        self.einsums.append(replace(einsum, labels=("",) * len(einsum.labels)))
        self.reads.append(reads)
        self.fallback += fallback

    def close(
        self, outside: frozenset[int], made: dict[int, ValuePlace], own_state: bool
    ) -> tuple[FusedRowSpec, tuple[Place, ...], tuple[tuple[int, int], ...], tuple[int, ...]] | None:
        """Return the function's spec, its tensors' places, (step, tensor) of values, and state-valued steps.

        ``outside``: steps whose values other actions read. ``made``: where values go. ``own_state``: folds keep a
        state. None if the steps cannot be one function.
        """
        tensors: dict[tuple[Place, RowTensor], int] = {}

        def number(place: Place, tensor: RowTensor) -> int:
            return tensors.setdefault((place, tensor), len(tensors))

        region, index = self.region, {k: i for i, k in enumerate(self.steps)}
        members, values, state_steps = [], list[tuple[int, int]](), list[int]()
        moving = {r.of for r in region.rescales}
        for k, e, reads in zip(self.steps, self.einsums, self.reads, strict=True):
            labels = region.steps[k].labels
            own = labels[: e.n_out]
            sources = []
            for read, dtype in zip(reads, e.dtypes, strict=True):
                j = ~read.source
                inside = read.source < 0 and j in index
                sources.append(~index[j] if inside else number(read, RowTensor(dtype, read.access)))
            folds = own_state and e.aggregation is not None
            moves = folds and k in moving
            state = number(CarriedState(k), RowTensor(e.dtype, own)) if folds else -1
            out = -1
            if k in outside and (moves or not folds):
                out = number(made[k], RowTensor(e.dtype, own))
                values.append((k, out))
            elif k in outside:
                state_steps.append(k)
            rescales = []
            for r in region.rescales if moves else ():
                if r.of == k:
                    other = region.steps[r.step]
                    target = RowTensor(other.einsum.dtype, other.labels[: other.einsum.n_out])
                    there = index.get(r.step, -1)
                    rescales.append((there, -1 if there >= 0 else number(CarriedState(r.step), target), r.coefficient))
            members.append(RowMember(e, labels, tuple(sources), out, state, moves, tuple(rescales)))
        self.tensors = [p for p, _ in tensors]
        result = next((n for (p, _), n in tensors.items() if isinstance(p, ValuePlace) and p.result), -1)
        found = fuse_rows(RowSpec(region.bounds, tuple(t for _, t in tensors), tuple(members), result))
        return None if found is None else (found, tuple(p for p, _ in tensors), tuple(values), tuple(state_steps))


def last_read(found: FusedRowSpec, tensor: int) -> int:
    """Return the last stage that reads a tensor, or -1."""
    return max((i for i, read in enumerate(found.reads) if tensor in read), default=-1)


def stored_at(found: FusedRowSpec, tensor: int) -> int:
    """Return the stage that stores a tensor, or -1."""
    members = found.spec.members
    stages = (i for i, s in enumerate(found.stages) if any(members[k].out == tensor for k in s.stores))
    return next(stages, -1)
