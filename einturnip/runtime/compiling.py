"""Which of a plan's kernels are worth machine code."""

from __future__ import annotations

import numpy as np

from einturnip.codegen.kernels import Mode, prepare_kernels
from einturnip.codegen.native import library
from einturnip.core.contraction import contraction
from einturnip.core.einsum import Einsum
from einturnip.eingraph.types import EinsumNode
from einturnip.taskgraph.types import TaskGraph, TaskKind

# Seconds in machine code, by the plan: of all that could be compiled, and of one kernel. NumPy would take some ten
# times as long; compiling takes about 0.4 s and 0.03 s a kernel, once on a machine.
WORTH_STARTING, WORTH_COMPILING = 0.05, 0.005
_MODES: dict[TaskKind, Mode] = {TaskKind.KERNEL: "whole", TaskKind.TOUCH: "touch", TaskKind.FINISH: "finish"}


def has_room(memory: int | None, resident: int) -> bool:
    """Whether the compiler's process fits beside this one, before the arena is touched. ``memory``: None is any."""
    return library.available() and (memory is None or memory - resident >= library.COMPILER_NBYTES)


def compile_ahead(tasks: TaskGraph) -> int:
    """Bring the plan's long kernels as machine code, before anything runs; gives how many there are.

    What is compiled hangs on the plan alone, not on what happens to be on disk.
    """
    nodes = tasks.decomposition.graph.nodes
    wanted: dict[tuple[int, Mode], tuple[Einsum, float]] = {}
    for kind, mode in _MODES.items():
        mine = tasks.kind == kind
        seconds = np.bincount(tasks.node[mine], weights=tasks.seconds[mine], minlength=len(nodes))
        for i in np.flatnonzero(seconds).tolist():
            node = nodes[i]
            if isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum) and contraction(node.einsum) is None:
                known = wanted.get((id(node.einsum), mode), (node.einsum, 0.0))
                wanted[id(node.einsum), mode] = node.einsum, known[1] + float(seconds[i])
    long = [(einsum, mode) for (_, mode), (einsum, s) in wanted.items() if s >= WORTH_COMPILING]
    if sum(s for _, s in wanted.values()) < WORTH_STARTING:
        return 0
    return prepare_kernels(long)
