"""Which of a plan's kernels are worth machine code."""

from __future__ import annotations

import numpy as np

from einturnip.codegen.contraction import ContractionKernel
from einturnip.codegen.kernels import Mode, compile_kernel, machine_code, prepare_kernels
from einturnip.codegen.native import library
from einturnip.core.contraction import contraction
from einturnip.core.errors import CapacityError, RunError
from einturnip.core.machine import Machine
from einturnip.core.region import Region, Space
from einturnip.core.settings import format_size
from einturnip.eingraph.types import EinsumNode
from einturnip.taskgraph.types import TaskGraph, TaskKind

# Seconds in machine code, by the plan: of all that could be compiled, and of one kernel. NumPy would take some ten
# times as long; compiling takes about 0.4 s and 0.03 s a kernel, once on a machine.
WORTH_STARTING, WORTH_COMPILING = 0.05, 0.005
_MODES: dict[TaskKind, Mode] = {TaskKind.KERNEL: "whole", TaskKind.TOUCH: "touch", TaskKind.FINISH: "finish"}
MIB = 1 << 20


def available() -> bool:
    """Whether kernels can be compiled on this machine."""
    return library.available()


def has_room(memory: int | None, resident: int) -> bool:
    """Whether the compiler's process fits beside this one, before the arena is touched. ``memory``: None is any."""
    return library.available() and (memory is None or memory - resident >= library.COMPILER_NBYTES)


def compile_ahead(tasks: TaskGraph) -> int:
    """Bring the plan's long kernels as machine code, before anything runs; gives how many there are.

    What is compiled hangs on the plan alone, not on what happens to be on disk.
    """
    nodes = tasks.decomposition.graph.nodes
    wanted: dict[tuple[int, Mode], tuple[Space, float]] = {}
    for kind, mode in _MODES.items():
        mine = tasks.kind == kind
        seconds = np.bincount(tasks.node[mine], weights=tasks.seconds[mine], minlength=len(nodes))
        for i in np.flatnonzero(seconds).tolist():
            node = nodes[i]
            if isinstance(node, EinsumNode) and (isinstance(node.einsum, Region) or contraction(node.einsum) is None):
                known = wanted.get((id(node.einsum), mode), (node.einsum, 0.0))
                wanted[id(node.einsum), mode] = node.einsum, known[1] + float(seconds[i])
    long = [(einsum, mode) for (_, mode), (einsum, s) in wanted.items() if s >= WORTH_COMPILING]
    if sum(s for _, s in wanted.values()) < WORTH_STARTING:
        return 0
    return prepare_kernels(long)


def compile_all(tasks: TaskGraph) -> int:
    """Bring every kernel that can be machine code, long or short; gives how many there are.

    Which those are hangs on the program alone: not on seconds, nor on what was compiled before.

    Raises:
        RunError: one could not be compiled; NumPy in its place would give other bits.
    """
    wanted = _compilable(tasks)
    ready = prepare_kernels(wanted)
    for space, mode in wanted:
        if any(library.find(code) is None for code in machine_code(space, mode)):
            raise RunError(
                "a kernel could not be compiled, and NumPy in its place would give other bits. help: run "
                "'einturnip doctor', or leave out --reproducible"
            )
    return ready


def require_room(tasks: TaskGraph, machine: Machine, memory: int | None, resident: int) -> None:
    """See to it that the memory has room for the compiler where a reproducible plan needs it.

    Raises:
        CapacityError: it has not; NumPy instead would give other bits than in more memory.
    """
    if machine.compiled and not has_room(memory, resident) and _compilable(tasks):
        needed = -(-(resident + library.COMPILER_NBYTES) // MIB) * MIB
        raise CapacityError(
            f"the program does not fit in {format_size(memory or 0)}; the least that would do is {format_size(needed)} "
            "(a reproducible run compiles its kernels, in any memory alike)",
            needed,
        )


def _compilable(tasks: TaskGraph) -> list[tuple[Space, Mode]]:
    """The plan's kernels that can be machine code."""
    parts, nodes = tasks.decomposition.partitionings, tasks.decomposition.graph.nodes
    found: dict[tuple[int, Mode], Space] = {}
    for kind, mode in _MODES.items():
        for i in np.unique(tasks.node[tasks.kind == kind]).tolist():
            node = nodes[i]
            if not isinstance(node, EinsumNode):
                continue
            if (id(node.einsum), mode) not in found and machine_code(node.einsum, mode):
                kernel = compile_kernel(node.einsum, parts[i].tiles, mode)
                if not isinstance(kernel, ContractionKernel):
                    found[id(node.einsum), mode] = node.einsum
    return [(einsum, mode) for (_, mode), einsum in found.items()]
