"""Runs the iterations of a loop with the plan of its body."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import numpy as np

from einturnip.api.inline_iterations import InlineIterations, index_of
from einturnip.api.step_plan import StepPlan, StepRun
from einturnip.core.errors import Interrupted
from einturnip.eingraph.build.stage_types import Iterations
from einturnip.eingraph.types import InputNode
from einturnip.storage.arrays import ArraySource
from einturnip.storage.outputs.state_storage import StateStorage, copy_tensor
from einturnip.storage.slice import slice_sink, slice_source
from einturnip.storage.types import Sink, Source


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
        counter = self._fixed.get(iterations.variable or "")
        self._counter = counter.array if isinstance(counter, ArraySource) else None

    def run(self, values: range, stop: threading.Event | None, each: bool = False) -> Iterator[tuple[int, StepRun]]:
        """Run the iterations of these values of the loop's variable in order.

        Yields the last value with each run of the plan, which may have run several iterations unless ``each``. In a
        ``while`` the values count from 0.
        """
        iterations = self._iterations
        if not values or not self.holds():
            return
        self._plan.forget_packed()
        inline, number, segment = self._inline() if self._plan.runs_inline else None, 0, iterations.segment
        while True:
            at_once = values[number:]
            if iterations.saved:
                at_once = at_once[: segment - number % segment]
                if number % segment == 0:
                    self._save(values[number])
            run = self._on_threads(values[number], stop) if inline is None else inline.run(at_once, each)
            number += run.count
            for name in iterations.states if run.count % 2 else ():
                self._values[name].swap()
            self.continues = number < len(values) and self.holds()
            yield values[number - 1], run
            if not self.continues:
                return
            if stop is not None and stop.is_set():
                raise Interrupted(f"stopped in the iteration {values[number - 1]} of a loop")

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
        if self._counter is not None:
            self._counter[...] = value
        sources = {name: self._source(name, value) for name in self._inputs if name}
        sinks = {name: self._sink(name, value) for name in self._outputs}
        return self._plan.run(sources, sinks, None, None if self._plan.runs_inline else stop)

    def _sink(self, name: str, value: int) -> Sink:
        written = self._iterations.writes.get(name)
        if written is None:
            return self._values[name].write
        whole = self._values[written.value]
        return slice_sink(whole.read, index_of(written, whole.shape, value))

    def _inline(self) -> InlineIterations | None:
        """The iterations on arrays; None if a tensor is in a file."""
        first = self._iterations.values[0]
        sources = [self._source(name, first) if name else None for name in self._inputs]
        sinks = [self._sink(name, first) for name in self._outputs]
        stores = [*sources, *self._sliced.values(), *sinks]
        if not all(isinstance(store, ArraySource) for store in stores if store is not None):
            return None
        names, counter = (self._inputs, self._outputs), self._counter
        return InlineIterations(
            self._iterations, self._plan, sources, sinks, names, self._sliced, self._values, counter
        )

    def _source(self, name: str, value: int) -> Source:
        if name in self._reads:
            sliced = self._sliced[name]
            return slice_source(sliced, index_of(self._reads[name], sliced.shape, value))
        return self._values[name].read if name in self._values else self._fixed[name]
