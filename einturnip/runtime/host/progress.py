"""Reports the progress of a run to the user's callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from einturnip.memgraph.types import MemGraph
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.scheduler.report import Progress
from einturnip.runtime.scheduler.trace import RunTrace


class ProgressReporter:
    """Converts a run's trace to Progress and passes it to the callback."""

    def __init__(self, graph: MemGraph, executor: TransferEnds, progress: Callable[[Progress], None]) -> None:
        self.graph = graph
        self.executor = executor
        self.progress = progress
        tasks = graph.taskgraph
        self.flops = np.where(graph.task >= 0, tasks.flops[graph.task], 0)
        self.total_flops = int(self.flops.sum())
        self.total_nbytes = sum(graph.nbytes_by_link().values())
        self.done_flops = 0
        self.seen = 0
        self.statement = ""

    def __call__(self, trace: RunTrace) -> None:
        """Count the ops that ended since the last call, and report them."""
        fresh = trace.order[self.seen :]
        self.seen += len(fresh)
        self.done_flops += int(self.flops[fresh].sum())
        moved = sum(self.executor.moved.values())
        self.progress(
            Progress(
                self.seen,
                len(self.graph),
                self.done_flops,
                self.total_flops,
                moved,
                self.total_nbytes,
                trace.seconds,
                self._latest_statement(fresh),
            )
        )

    def _latest_statement(self, ops: Sequence[int]) -> str:
        """Return the statement of the last kernel among ``ops``, else of the last call."""
        computing = [op for op in ops if self.flops[op]]
        if computing:
            tasks = self.graph.taskgraph
            graph = tasks.decomposition.graph
            self.statement = graph.statement(graph.nodes[tasks.node[self.graph.task[computing[-1]]]].line)
        return self.statement
