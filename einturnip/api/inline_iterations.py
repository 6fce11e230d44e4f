"""Runs the iterations of a loop on arrays in the caller's thread, many of them with one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from einturnip.api.step_plan import StepPlan, StepRun
from einturnip.eingraph.build.positions import Place, linear_steps
from einturnip.eingraph.build.stage_types import Iterations, ValueSlice
from einturnip.kernels.protocol import address_of
from einturnip.memgraph.types import FILES
from einturnip.runtime.host.prepared_ops import AddressStep
from einturnip.runtime.host.prepared_run import Repetition
from einturnip.storage.arrays import ArraySource
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.slice import slice_index
from einturnip.storage.types import Array, Sink, Source
from einturnip.tuning.memory import REPEATED_SECONDS

MAX_GROWTH = 8
"""Factor by which a call may run more iterations than the call before it."""


def index_of(where: ValueSlice, shape: tuple[int, ...], value: int) -> dict[int, int]:
    """The index of a slice by axis, in the iteration in which the loop's variable is ``value``.

    A guarded index outside its axis is clamped; the body does not use the elements there.
    """
    return {axis: min(max(position.at(value), 0), shape[axis] - 1) for axis, position in where.place}


class _SlicedArray:
    """A slice of an array, which is another one in each iteration."""

    def __init__(self, array: Array, where: ValueSlice) -> None:
        self._array, self._where = array, where

    def at(self, value: int) -> Array:
        """The slice in the iteration in which the loop's variable is ``value``."""
        found: Array = self._array[slice_index(self._array.ndim, index_of(self._where, self._array.shape, value))]
        return found

    def later(self, value: int, _: int) -> Array:
        """The slice in a later iteration."""
        return self.at(value)

    def step(self, values: range) -> tuple[AddressStep, int]:
        """How the address changes, and in how many of these iterations it changes in this way."""
        return _slice_step(self._where.place, self._array, values)


class _Buffers:
    """The buffers of a value. ``writes``: the one that is written, else the one that is read."""

    def __init__(self, storage: StateStorage, writes: bool, swaps: bool) -> None:
        self._storage, self._writes, self._swaps = storage, writes, swaps and storage.is_double

    def at(self, _: int) -> Array:
        """The buffer in the present iteration."""
        return array_of(self._storage.write if self._writes else self._storage.read)

    def later(self, _: int, iterations: int) -> Array:
        """The buffer in the iteration after that many others."""
        swapped = self._swaps and iterations % 2 == 1
        return array_of(self._storage.write if self._writes != swapped else self._storage.read)

    def step(self, values: range) -> tuple[AddressStep, int]:
        """How the address changes, and in how many of these iterations it changes in this way."""
        if not self._swaps:
            return (0, 1), len(values)
        here, there = self._storage.write, self._storage.read
        if not self._writes:
            here, there = there, here
        return (address_of(array_of(there)) - address_of(array_of(here)), -1), len(values)


class InlineIterations:
    """Iterations of a loop whose tensors are all in memory.

    ``sources`` and ``sinks``: of the plan, in the first iteration; None for a node that is no input. ``inputs``,
    ``outputs``: their names. ``sliced``: by name, the tensors that the body reads in slices. ``values``: the storage of
    each value. ``counter``: the array of the loop's variable.
    """

    def __init__(
        self,
        iterations: Iterations,
        plan: StepPlan,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        names: tuple[Sequence[str], Sequence[str]],
        sliced: Mapping[str, Source],
        values: Mapping[str, StateStorage],
        counter: Array | None,
    ) -> None:
        self._plan, self._sources, self._sinks, self._counter = plan, sources, sinks, counter
        self._inputs = [source.array if isinstance(source, ArraySource) else None for source in sources]
        self._outputs = [array_of(sink) for sink in sinks]
        states = set(iterations.states)
        self._new_inputs = dict[int, _SlicedArray | _Buffers]()
        for i, name in enumerate(names[0]):
            if name in iterations.reads:
                self._new_inputs[i] = _SlicedArray(array_of(sliced[name]), iterations.reads[name])
            elif name in states:
                self._new_inputs[i] = _Buffers(values[name], False, True)
        self._new_outputs = dict[int, _SlicedArray | _Buffers]()
        for i, name in enumerate(names[1]):
            written = iterations.writes.get(name)
            if written is not None:
                self._new_outputs[i] = _SlicedArray(array_of(values[written.value].read), written)
            else:
                self._new_outputs[i] = _Buffers(values[name], True, name in states)
        self._condition: _Buffers | None = None
        self._can_repeat = counter is None or counter.dtype == np.int64
        if iterations.condition is not None:
            storage = values[iterations.condition]
            self._condition = _Buffers(storage, iterations.condition in names[1], iterations.condition in states)
            self._can_repeat &= storage.array is not None and storage.dtype.numpy == np.dtype(np.bool_)
        self._n = 1

    def run(self, values: range, once: bool) -> StepRun:
        """Run the first of these iterations, and unless ``once``, as many of the others as one call can."""
        value, began = values[0], time.perf_counter()
        if self._counter is not None:
            self._counter[...] = value
        for i, new in self._new_inputs.items():
            self._inputs[i] = new.at(value)
        for i, new in self._new_outputs.items():
            self._outputs[i] = new.at(value)
        repetition = None
        if not once and self._can_repeat and len(values) > 1 and self._plan.can_repeat(self._changing()):
            repetition = self._repetition(values[: self._n])
        run = self._plan.run_inline(self._sources, self._sinks, self._inputs, self._outputs, repetition)
        fitting = int(REPEATED_SECONDS * run.count / max(time.perf_counter() - began, 1e-9))
        self._n = max(1, min(fitting, MAX_GROWTH * run.count))
        return run

    def _changing(self) -> list[int]:
        """The inputs that are not the same array in each iteration, by node."""
        return [i for i, new in self._new_inputs.items() if isinstance(new, _SlicedArray) or new.step(range(2))[0][0]]

    def _repetition(self, values: range) -> Repetition:
        """The iterations that one call can run."""
        n, steps, nodes = len(values), dict[int, AddressStep](), len(self._inputs)
        for first, arrays in ((FILES, self._new_inputs), (FILES + nodes, self._new_outputs)):
            for i, new in arrays.items():
                step, fitting = new.step(values)
                n = min(n, fitting)
                if step[0]:
                    steps[first + i] = step
        counter, condition = self._counter, None
        changes = [] if counter is None else [(address_of(counter), values.step, 1)]
        if self._condition is not None:
            condition = address_of(self._condition.at(values[0])), self._condition.step(values)[0]
        return Repetition(n, steps, changes, condition, partial(self._later_inputs, values))

    def _later_inputs(self, values: range, iterations: int) -> list[Array | None]:
        inputs = list(self._inputs)
        for i, new in self._new_inputs.items():
            inputs[i] = new.later(values[iterations], iterations)
        return inputs


def _slice_step(place: Place, array: Array, values: range) -> tuple[AddressStep, int]:
    """How the address of a slice changes, and in how many of these iterations it changes in this way."""
    nbytes, n = 0, len(values)
    for axis, position in place:
        step, fitting = linear_steps(position, array.shape[axis], values)
        nbytes, n = nbytes + step * array.strides[axis], min(n, fitting)
    return (nbytes, 1), n


def array_of(store: Source) -> Array:
    """The array of a source or sink in memory."""
    assert isinstance(store, ArraySource)
    return store.array
