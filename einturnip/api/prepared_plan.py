"""Plans made ready to be run again on arrays: in the caller's thread where that is quicker, else by threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from einturnip.compiler import report_of
from einturnip.core.errors import EinturnipError
from einturnip.planner.predict import slots
from einturnip.runtime.host.compilation import compile_ahead, prepare_command_lists
from einturnip.runtime.host.inline_plan import InlinePlan, is_small
from einturnip.runtime.host.threaded_plan import ThreadedPlan, gains_by_preparing, zero_copy_tiles
from einturnip.runtime.scheduler.report import RunReport
from einturnip.storage.types import Array

if TYPE_CHECKING:
    from einturnip.planner.planned_program import PlannedProgram

# Bytes from which on an array of a small plan is worked on in place: what is smaller is copied as fast.
LARGE_NBYTES = 1 << 15


class PreparedPlan:
    """What runs of one plan leave for the next: threads may share it.

    ``small``: one thread runs it. ``again``: it may run here at all. ``outputs``: name, shape and dtype of each.
    """

    def __init__(self, planned: PlannedProgram) -> None:
        graph, here = planned.memgraph, planned.device.kind == "cpu"
        self.small = here and is_small(graph)
        self.again = self.small or (here and gains_by_preparing(graph))
        made = [(name, planned.graph.nodes[number]) for name, number in planned.graph.outputs]
        self.outputs = [(name, node.shape, node.dtype.numpy) for name, node in made]
        self._planned = planned
        self._waiting: list[InlinePlan | ThreadedPlan] = []
        self._runs = self._codes = self._taped = 0
        self._spent = 0.0

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Callable[[], RunReport] | None:
        """Run it; what is returned tells of it. None where it has to be run at length: an error wants its place.

        ``inputs``: the array of each input by node; ``outputs``: that of each output, in C's order.
        All arrays of one plan have the same shapes, strides and dtypes.
        """
        for a in inputs:
            if a is not None and not a.flags.aligned:
                return None
        for a in outputs:
            if not a.flags.carray:
                return None
        codes, began = self._compiled(), time.perf_counter()
        try:
            found = self._waiting.pop()
        except IndexError:
            found = self._made(inputs, outputs)
        try:
            ran = found.run(inputs, outputs)
        except EinturnipError:
            return None
        self._spent += time.perf_counter() - began
        if codes == self._codes:
            self._waiting.append(found)
        return _LazyReport(self._planned, found, ran)

    def rest(self) -> None:
        """Give back the arenas of runs that wait: their pages are the process's until the system wants them."""
        if not self.small:
            self._waiting.clear()

    def _made(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> InlinePlan | ThreadedPlan:
        planned = self._planned
        if self.small:
            run = InlinePlan(planned.memgraph, zero_copy_tiles(planned.memgraph, inputs, outputs, LARGE_NBYTES))
            self._taped = run.taped
            return run
        return ThreadedPlan(planned.memgraph, inputs, outputs, slots(planned.machine.workers))

    def _compiled(self) -> int:
        """How many kernels are machine code. Asked after 1, 2, 4, 8 ... runs; more of them make the runs anew."""
        self._runs += 1
        if self._planned.machine.compiled and not self._runs & (self._runs - 1):
            planned, spent, self._spent = self._planned, self._spent, 0.0
            codes = compile_ahead(planned.taskgraph, planned.machine, max(1, self._runs // 2), spent)
            codes += prepare_command_lists(self._taped, max(1, self._runs // 2))
            if codes != self._codes:
                self._codes = codes
                self._waiting.clear()
        return self._codes


class _LazyReport:
    """The report of a run, made when it is asked for."""

    __slots__ = ("_made", "_planned", "_ran", "_run")

    def __init__(self, planned: PlannedProgram, run: InlinePlan | ThreadedPlan, ran: Any) -> None:
        self._planned, self._run, self._ran = planned, run, ran
        self._made: RunReport | None = None

    def __call__(self) -> RunReport:
        if self._made is None:
            moved = self._planned.memgraph.nbytes_by_link()
            flags, trace = self._run.told(self._ran)
            links = {"in": moved["disk->cpu:0"], "out": moved["cpu:0->disk"]}
            self._made = report_of(self._planned, flags, links, trace)
        return self._made
