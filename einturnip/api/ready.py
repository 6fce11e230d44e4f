"""Plans made ready to be run again on arrays: in the caller's thread where that is quicker, else by threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from einturnip.core.errors import EinturnipError
from einturnip.pipeline import report_of
from einturnip.planner.price import slots
from einturnip.runtime.arrays_run import ArraysRun, runs_again, standing
from einturnip.runtime.compiling import compile_ahead
from einturnip.runtime.small import SmallRun, is_small
from einturnip.runtime.trace import Trace
from einturnip.runtime.types import RunReport
from einturnip.stores.types import Array

if TYPE_CHECKING:
    from einturnip.pipeline import Planned

# Bytes from which on an array of a small plan is worked on in place: what is smaller is copied as fast.
LARGE_NBYTES = 1 << 15


class Ready:
    """What runs of one plan leave for the next: threads may share it.

    ``small``: one thread runs it. ``again``: it may run here at all.
    """

    def __init__(self, planned: Planned) -> None:
        graph, here = planned.memgraph, planned.device.kind == "cpu"
        self.small = here and is_small(graph)
        self.again = self.small or (here and runs_again(graph))
        self._planned = planned
        self._waiting: list[SmallRun | ArraysRun] = []
        self._runs = self._codes = 0
        self._spent = 0.0

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Callable[[], RunReport] | None:
        """Run it; what is returned tells of it. None where it has to be run at length: an error wants its place.

        ``inputs``: the array of each input by node; ``outputs``: that of each output, in C's order.
        All arrays of one plan have the same shapes, strides and dtypes.
        """
        if not all(a is None or a.flags.aligned for a in inputs) or not all(a.flags.carray for a in outputs):
            return None
        codes, began = self._compiled(), time.perf_counter()
        try:
            found = self._waiting.pop()
        except IndexError:
            found = self._made(inputs, outputs)
        try:
            tell = self._report(found, inputs, outputs)
        except EinturnipError:
            return None
        self._spent += time.perf_counter() - began
        if codes == self._codes:
            self._waiting.append(found)
        return tell

    def rest(self) -> None:
        """Give back the arenas of runs that wait: their pages are the process's until the system wants them."""
        if not self.small:
            self._waiting.clear()

    def _made(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> SmallRun | ArraysRun:
        planned = self._planned
        if self.small:
            return SmallRun(planned.memgraph, standing(planned.memgraph, inputs, outputs, LARGE_NBYTES))
        return ArraysRun(planned.memgraph, inputs, outputs, slots(planned.machine.workers))

    def _compiled(self) -> int:
        """How many kernels are machine code. Asked after 1, 2, 4, 8 ... runs; more of them make the runs anew."""
        self._runs += 1
        if self._planned.machine.compiled and not self._runs & (self._runs - 1):
            planned, spent, self._spent = self._planned, self._spent, 0.0
            codes = compile_ahead(planned.taskgraph, planned.machine, max(1, self._runs // 2), spent)
            if codes != self._codes:
                self._codes = codes
                self._waiting.clear()
        return self._codes

    def _report(
        self, run: SmallRun | ArraysRun, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Callable[[], RunReport]:
        told: Callable[[], tuple[dict[int, list[int]], Trace]]
        if isinstance(run, SmallRun):
            told = partial(run.told, run.run(inputs, outputs))
        else:
            told = partial(run.told, run.run(inputs, outputs))
        return _Report(self._planned, told)


class _Report:
    """The report of a run, made when it is asked for."""

    __slots__ = ("_made", "_planned", "_told")

    def __init__(self, planned: Planned, told: Callable[[], tuple[dict[int, list[int]], Trace]]) -> None:
        self._planned, self._told = planned, told
        self._made: RunReport | None = None

    def __call__(self) -> RunReport:
        if self._made is None:
            moved = self._planned.memgraph.nbytes_by_link()
            flags, trace = self._told()
            links = {"in": moved["disk->cpu:0"], "out": moved["cpu:0->disk"]}
            self._made = report_of(self._planned, flags, links, trace)
        return self._made
