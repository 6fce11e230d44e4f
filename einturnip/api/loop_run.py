"""Runs the iterations of a loop with the plan of its body."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from einturnip.api.step_plan import StepPlan, StepRun
from einturnip.core.errors import Interrupted
from einturnip.eingraph.build.stage_types import Iterations, ValueSlice
from einturnip.eingraph.types import InputNode
from einturnip.storage.arrays import ArraySource
from einturnip.storage.outputs.state_storage import StateStorage, copy_tensor
from einturnip.storage.slice import slice_index, slice_sink, slice_source
from einturnip.storage.types import Array, Sink, Source


def index_of(where: ValueSlice, shape: tuple[int, ...], value: int) -> dict[int, int]:
    """The index of a slice by axis, in the iteration in which the loop's variable is ``value``.

    A guarded index outside its axis is clamped; the body does not use the elements there.
    """
    return {axis: min(max(position.at(value), 0), shape[axis] - 1) for axis, position in where.place}


class LoopRun:
    """One run of a loop.

    ``fixed``: the inputs of the body that are the same in every iteration; the input for the loop's variable is an
    array. ``sliced``: by name, the tensors that the body reads in slices. ``values``: the storage of each value.
    ``continues``: another iteration follows the one that ended last.
    """

    def __init__(
        self,
        iterations: Iterations,
        plan: StepPlan,
        fixed: Mapping[str, Source],
        sliced: Mapping[str, Source],
        values: Mapping[str, StateStorage],
    ) -> None:
        self._iterations, self._plan, self._values = iterations, plan, values
        self.continues = False
        graph = plan.planned.graph
        self._inputs = [node.name if isinstance(node, InputNode) else "" for node in graph.nodes]
        self._outputs = [name for name, _ in graph.outputs]
        self._reads = {name: read for name, read in iterations.reads.items() if name in self._inputs}
        self._sliced = {name: sliced[read.value] for name, read in self._reads.items()}
        self._fixed = {name: source for name, source in fixed.items() if name in self._inputs}

    def run(self, values: range, stop: threading.Event | None) -> Iterator[tuple[int, StepRun]]:
        """Run the iterations of these values of the loop's variable in order; yields the value with each.

        In a ``while`` the values count from 0.
        """
        iterations = self._iterations
        if not values or not self.holds():
            return
        counter = self._fixed.get(iterations.variable or "")
        step = self._inline() if self._plan.runs_inline else None
        for number, value in enumerate(values):
            if iterations.saved and number % iterations.segment == 0:
                self._save(value)
            if isinstance(counter, ArraySource):
                counter.array[...] = value
            run = self._on_threads(value, stop) if step is None else step(value)
            for name in iterations.states:
                self._values[name].swap()
            self.continues = value != values[-1] and self.holds()
            yield value, run
            if not self.continues:
                return
            if stop is not None and stop.is_set():
                raise Interrupted(f"stopped in the iteration {value} of a loop")

    def _save(self, value: int) -> None:
        """Copy the states with which a segment begins."""
        for name, saved in self._iterations.saved.items():
            whole = self._values[saved.value]
            copy_tensor(self._values[name].read, slice_sink(whole.read, index_of(saved, whole.shape, value)))

    def holds(self) -> bool:
        """True if the condition of a ``while`` holds for the present values, and for other loops."""
        name = self._iterations.condition
        if name is None:
            return True
        value = self._values[name].array
        if value is None:
            value = np.empty((), np.bool_)
            self._values[name].read.read((), value)
        return bool(value)

    def _on_threads(self, value: int, stop: threading.Event | None) -> StepRun:
        sources = {name: self._source(name, value) for name in self._inputs if name}
        sinks = {name: self._sink(name, value) for name in self._outputs}
        return self._plan.run(sources, sinks, None, None if self._plan.runs_inline else stop)

    def _sink(self, name: str, value: int) -> Sink:
        written = self._iterations.writes.get(name)
        if written is None:
            return self._values[name].write
        whole = self._values[written.value]
        return slice_sink(whole.read, index_of(written, whole.shape, value))

    def _inline(self) -> Callable[[int], StepRun] | None:
        """The function that runs an iteration on arrays; None if a tensor is in a file."""
        first = self._iterations.values[0]
        sources = [self._source(name, first) if name else None for name in self._inputs]
        sinks = [self._sink(name, first) for name in self._outputs]
        stores = [*sources, *self._sliced.values(), *sinks]
        if not all(isinstance(store, ArraySource) for store in stores if store is not None):
            return None
        inputs = [source.array if isinstance(source, ArraySource) else None for source in sources]
        outputs = [_array(sink) for sink in sinks]
        new_inputs = [(i, found) for i, name in enumerate(self._inputs) if (found := self._input_arrays(name))]
        new_outputs = [(i, found) for i, name in enumerate(self._outputs) if (found := self._output_arrays(name))]

        def step(value: int) -> StepRun:
            for i, array in new_inputs:
                inputs[i] = array(value)
            for i, array in new_outputs:
                outputs[i] = array(value)
            return self._plan.run_inline(sources, sinks, inputs, outputs)

        return step

    def _source(self, name: str, value: int) -> Source:
        if name in self._reads:
            sliced = self._sliced[name]
            return slice_source(sliced, index_of(self._reads[name], sliced.shape, value))
        return self._values[name].read if name in self._values else self._fixed[name]

    def _input_arrays(self, name: str) -> Callable[[int], Array] | None:
        """The function that returns an input's array in an iteration; None if it is always the same."""
        if name in self._reads:
            return _slices(_array(self._sliced[name]), self._reads[name])
        storage = self._values.get(name) if name in self._iterations.states else None
        return None if storage is None else lambda _: _array(storage.read)

    def _output_arrays(self, name: str) -> Callable[[int], Array] | None:
        """The function that returns an output's array in an iteration."""
        written = self._iterations.writes.get(name)
        if written is not None:
            return _slices(_array(self._values[written.value].read), written)
        storage = self._values[name]
        return lambda _: _array(storage.write)


def _slices(array: Array, where: ValueSlice) -> Callable[[int], Array]:
    axes = len(array.shape)
    return lambda value: array[slice_index(axes, index_of(where, array.shape, value))]


def _array(store: Source) -> Array:
    assert isinstance(store, ArraySource)
    return store.array
