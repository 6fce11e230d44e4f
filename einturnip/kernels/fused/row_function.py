"""Steps of a region's block that are one function of machine code, with what NumPy does in its place."""

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
from einturnip.kernels.fp_status import unit
from einturnip.kernels.fused.program import Action, BlockContext, StepRead
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.row_spec import FusedRowSpec, RowMember, RowSpec, RowTensor, band


@dataclass(frozen=True, slots=True)
class CarriedState:
    """The first component of a carried step's state."""

    step: int

    def __call__(self, frame: BlockContext) -> Array:
        """Of the block."""
        return frame.states[self.step][0]


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """The place of a step's value: over the value of step ``over``, in the workspace, or the result itself."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    over: int | None
    result: bool

    def __call__(self, frame: BlockContext) -> Array:
        """It is the step's value from here on."""
        if self.result:
            found = frame.out
        elif self.over is not None:
            found = frame.values[self.over]
        else:
            found = frame.place(self.offset, self.shape, self.dtype)
        return found


Place: TypeAlias = StepRead | CarriedState | ValuePlace


@dataclass(frozen=True, slots=True)
class RowFunctionCall:
    """One call of a band's function over a block; ``slow`` where there is none, or tensors lie otherwise.

    ``places``: by tensor; ``values``: steps whose value is then what lies in a place; ``taken``: whose value is their
    state. ``known``: the argument by the strides of the tensors, addresses and first points aside; None: not so.
    """

    band: FusedRowSpec
    function: Function | None
    slow: tuple[Action, ...]
    places: tuple[Place, ...]
    values: tuple[tuple[int, int], ...]
    taken: tuple[int, ...]
    extents: tuple[int, ...]
    known: dict[tuple[tuple[int, ...], ...], tuple[array[int], tuple[int, ...]] | None] = field(default_factory=dict)

    def __call__(self, frame: BlockContext) -> int:
        """Do it."""
        bits = self.fast(frame)
        return self._slowly(frame) if bits is None else bits

    def fast(self, frame: BlockContext) -> int | None:
        """Do it by machine code; None where that cannot be."""
        found = None if self.function is None else self.argument(frame)
        if found is None or self.function is None:
            return None
        status = unit()
        status.clear()
        self.function(found.buffer_info()[0])
        return status.read()

    def argument(self, frame: BlockContext) -> array[int] | None:
        """The function's argument over a block, whose values then lie in their places; None: not over such strides."""
        arrays = [place(frame) for place in self.places]
        key = tuple([a.strides for a in arrays])
        if key not in self.known:
            self.known[key] = self._template(key)
        found = self.known[key]
        if found is None:
            return None
        argument, offsets = found[0][:], found[1]
        n = len(self.extents)
        for p, (lo, _) in enumerate(frame.box):
            argument[n + p] = lo
        for k, tensor in enumerate(arrays):
            argument[2 * n + k * (n + 1)] = tensor.__array_interface__["data"][0] + offsets[k]
        for step, k in self.values:
            frame.values[step] = arrays[k]
        for step in self.taken:
            frame.values[step] = frame.states[step][0]
        return argument

    def _slowly(self, frame: BlockContext) -> int:
        bits = 0
        for action in self.slow:
            bits |= action(frame)
        return bits

    def _template(self, strides: Sequence[tuple[int, ...]]) -> tuple[array[int], tuple[int, ...]] | None:
        extents, spec = self.extents, self.band.spec
        argument = array("q", (*extents, *(0 for _ in extents)))
        offsets = []
        vectors = {k: set[int]() for k in range(len(spec.tensors))}
        for k, labels in self.band.vectors:
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
    """A band in the making. ``steps``: of the region; ``reads``: what each reads; ``slow``: what NumPy would do."""

    region: Region
    steps: list[int] = field(default_factory=list)
    einsums: list[Einsum] = field(default_factory=list)
    reads: list[tuple[StepRead, ...]] = field(default_factory=list)
    slow: list[Action] = field(default_factory=list)
    tensors: list[Place] = field(default_factory=list)

    def add(self, k: int, einsum: Einsum, reads: tuple[StepRead, ...], slow: Sequence[Action]) -> None:
        """One step more."""
        self.steps.append(k)
        self.einsums.append(replace(einsum, labels=("",) * len(einsum.labels)))
        self.reads.append(reads)
        self.slow += slow

    def close(
        self, outside: frozenset[int], made: dict[int, ValuePlace], own_state: bool
    ) -> tuple[FusedRowSpec, tuple[Place, ...], tuple[tuple[int, int], ...], tuple[int, ...]] | None:
        """The band, the places of its tensors, whose value lies in which, and whose is the state.

        ``outside``: steps whose values others read; ``made``: places for values. ``own_state``: folds have states.
        """
        tensors: dict[tuple[Place, RowTensor], int] = {}

        def number(place: Place, tensor: RowTensor) -> int:
            return tensors.setdefault((place, tensor), len(tensors))

        region, index = self.region, {k: i for i, k in enumerate(self.steps)}
        members, values, taken = [], list[tuple[int, int]](), list[int]()
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
                taken.append(k)
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
        found = band(RowSpec(region.bounds, tuple(t for _, t in tensors), tuple(members), result))
        return None if found is None else (found, tuple(p for p, _ in tensors), tuple(values), tuple(taken))


def last_read(found: FusedRowSpec, tensor: int) -> int:
    """The last stage that reads a tensor."""
    return max((i for i, read in enumerate(found.reads) if tensor in read), default=-1)


def stored_at(found: FusedRowSpec, tensor: int) -> int:
    """The stage that stores a tensor."""
    members = found.spec.members
    stages = (i for i, s in enumerate(found.stages) if any(members[k].out == tensor for k in s.stores))
    return next(stages, -1)
