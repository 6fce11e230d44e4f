"""Which of a plan's kernels are worth machine code."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from einturnip.core.errors import CapacityError, RunError
from einturnip.core.units import format_size
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region, Space
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.parallel_for import ParallelForCode
from einturnip.kernels.select import (
    Code,
    Mode,
    compile_kernel,
    load_code,
    machine_code,
    prepare_code,
    prepare_kernels,
    product_code,
    product_kernel,
    row_code,
)
from einturnip.runtime.host.command_lists import PLAYER
from einturnip.taskgraph.types import TaskGraph, TaskKind

# Seconds of kernels, as machine code by the plan, from which on code that is on disk is loaded: 0.1 ms a kernel.
WORTH_LOADING = 0.001
# Seconds that compiling takes: the compiler's process, and a kernel. Once on a machine, so that what a run saves is
# counted twice: as if it came once more.
STARTING, COMPILING = 0.4, 0.03
# Of a product's seconds, what BLAS takes longer: nothing for large squares, half and more for thin and turned ones.
BEYOND_BLAS = 0.2
# What NumPy takes longer at least, of its seconds: it goes to memory more often than it is priced for (sums of columns
# of 4096 by 4096: 4.2 ms beside 1.6).
LEAST_SAVED = 0.5
# Seconds that Python takes for a kernel's call; that loading code takes. What makes one call of many is compiled once
# on a machine for all programs: what it saves is counted so many times.
CALLED, LOADING, SERVES = 3e-6, 2e-4, 20
# Of kernels' seconds, what threads that share them save where they else wait for each other.
SHARED_SAVED = 0.1
_MODES: dict[TaskKind, Mode] = {
    TaskKind.KERNEL: "full",
    TaskKind.ACCUMULATE: "accumulate",
    TaskKind.FINALIZE: "finalize",
}
MIB = 1 << 20


def available() -> bool:
    """Whether kernels can be compiled on this machine."""
    return code_cache.available()


def has_room(memory: int | None, resident: int) -> bool:
    """Whether the compiler's process fits beside this one, before the arena is touched. ``memory``: None is any."""
    return code_cache.available() and (memory is None or memory - resident >= code_cache.COMPILER_NBYTES)


@dataclass(frozen=True, slots=True)
class _CompilationGain:
    """A plan's kernel that may be machine code: seconds as that, and what it saves beside NumPy in a run.

    ``by_blas``: that is a product, which NumPy has machine code for.
    """

    codes: tuple[Code, ...]
    seconds: float
    saved: float
    by_blas: bool


_gains: dict[int, tuple[weakref.ref[TaskGraph], tuple[_CompilationGain, ...]]] = {}
# What machine code that there is none of would have saved so far in this process.
_missed: defaultdict[tuple[Code, ...], float] = defaultdict(float)


def compile_ahead(tasks: TaskGraph, machine: Machine, runs: int = 1, spent: float = 0.0) -> int:
    """Bring the plan's kernels as machine code, before anything runs; gives how many functions of it are there.

    What is on disk is loaded where the plan is not tiny. What is not is compiled as soon as this run, and those before
    it in this process, would have saved what compiling takes. ``runs``: how many have come since this was last asked;
    ``spent``: the seconds that they took, if known, as long as there is no machine code.
    """
    gains = _gains_of(tasks, machine) if _is_worth_loading(tasks) else ()
    if sum(gain.seconds for gain in gains) < WORTH_LOADING:
        return 0
    load_code([code for gain in gains for code in gain.codes])
    missing = [gain for gain in gains if any(map(code_cache.is_missing, gain.codes))]
    beyond = max(0.0, spent - runs * float(tasks.seconds.sum()) / machine.workers)
    share = beyond / (sum(gain.seconds for gain in missing if not gain.by_blas) or 1.0)
    for gain in missing:
        _missed[gain.codes] += max(gain.saved * runs, 0.0 if gain.by_blas else gain.seconds * share)
    worth = _worth({gain.codes: _missed[gain.codes] for gain in missing})
    if worth:
        prepare_code([code for codes in worth for code in codes])
        for codes in worth:
            _missed.pop(codes, None)  # another thread may have
    return sum(code_cache.find(code) is not None for code in {code for gain in gains for code in gain.codes})


def prepare_command_lists(calls: int, runs: int = 1) -> int:
    """Bring what makes so many calls of a run, now by Python, by one of its own; gives how many functions that is.

    ``runs``: how many have come since this was last asked.
    """
    if not calls:
        return 0
    if code_cache.find(PLAYER) is None:
        _missed[PLAYER,] += runs * calls * CALLED
        if _missed[PLAYER,] > LOADING:
            load_code([PLAYER])
        if code_cache.find(PLAYER) is None and SERVES * _missed[PLAYER,] > STARTING + COMPILING:
            prepare_code([PLAYER])
            _missed.pop((PLAYER,), None)
    return int(code_cache.find(PLAYER) is not None)


def _worth(saved: Mapping[tuple[Code, ...], float]) -> list[tuple[Code, ...]]:
    """The code that saves more seconds than compiling it takes."""
    worth = [codes for codes, seconds in saved.items() if 2 * seconds > COMPILING]
    return worth if 2 * sum(saved[codes] for codes in worth) > STARTING + COMPILING * len(worth) else []


def left_to_numpy(tasks: TaskGraph, machine: Machine) -> list[tuple[TaskKind, int]]:
    """The kernels, by kind and node, that ``compile_ahead`` would not bring as machine code if it were asked now."""
    gains = _gains_of(tasks, machine) if _is_worth_loading(tasks) else ()
    if sum(gain.seconds for gain in gains) < WORTH_LOADING:
        return []
    load_code([code for gain in gains for code in gain.codes])
    saved = {g.codes: _missed.get(g.codes, 0.0) + g.saved for g in gains if any(map(code_cache.is_missing, g.codes))}
    left = saved.keys() - _worth(saved)
    parts, nodes, found = tasks.decomposition.partitionings, tasks.decomposition.graph.nodes, []
    for kind, mode in _MODES.items() if left else ():
        for i in np.flatnonzero(np.bincount(tasks.node[tasks.kind == kind])).tolist():
            node = nodes[i]
            if isinstance(node, EinsumNode) and _codes(node.einsum, parts[i].tiles, mode) in left:
                found.append((kind, i))
    return found


def _is_worth_loading(tasks: TaskGraph) -> bool:
    """Whether kernels may take long enough, whichever of them are machine code."""
    return float(tasks.seconds.sum()) >= WORTH_LOADING


def _gains_of(tasks: TaskGraph, machine: Machine) -> tuple[_CompilationGain, ...]:
    """The plan's kernels that may be machine code; found once a plan."""
    known = _gains.get(id(tasks))
    if known is not None and known[0]() is tasks:
        return known[1]
    from einturnip.cost.kernel_time import numpy_seconds

    parts, nodes = tasks.decomposition.partitionings, tasks.decomposition.graph.nodes
    found: dict[tuple[Code, ...], _CompilationGain] = {}
    for kind, mode in _MODES.items():
        mine = tasks.kind == kind
        counts = np.bincount(tasks.node[mine], minlength=len(nodes))
        seconds = np.bincount(tasks.node[mine], weights=tasks.seconds[mine], minlength=len(nodes))
        for i in np.flatnonzero(counts).tolist():
            node = nodes[i]
            codes = _codes(node.einsum, parts[i].tiles, mode) if isinstance(node, EinsumNode) else ()
            if not isinstance(node, EinsumNode) or not codes:
                continue
            by_blas = _is_by_blas(node.einsum, parts[i].tiles, mode)
            if by_blas:
                saved = BEYOND_BLAS * float(seconds[i])
            else:  # what is not products of a region takes twice as long in NumPy at least
                saved = float(counts[i]) * numpy_seconds(node.einsum, parts[i].tiles, machine, mode) - float(seconds[i])
                saved = max(saved, (1.0 if isinstance(node.einsum, Region) else LEAST_SAVED) * float(seconds[i]))
            before = found.get(codes, _CompilationGain(codes, 0.0, 0.0, by_blas))
            found[codes] = _CompilationGain(codes, before.seconds + float(seconds[i]), before.saved + saved, by_blas)
    if found and machine.workers > 1:
        saved = SHARED_SAVED * sum(gain.seconds for gain in found.values())
        found[ParallelForCode(),] = _CompilationGain((ParallelForCode(),), 0.0, saved, False)
    gains, number = tuple(found.values()), id(tasks)
    _gains[number] = weakref.ref(tasks, lambda _: _gains.pop(number, None)), gains
    return gains


def _is_by_blas(space: Space, tile: tuple[int, ...], mode: Mode) -> bool:
    """Whether a kernel without machine code calls BLAS."""
    if not isinstance(space, Einsum) or contraction(space) is None:
        return False
    kernel = product_kernel(space, tile, mode) if 0 not in tile else None
    return kernel is not None and not kernel.rounds


def _codes(space: Space, tile: tuple[int, ...], mode: Mode) -> tuple[Code, ...]:
    """The machine code of a kernel over whole tiles."""
    if isinstance(space, Einsum) and contraction(space) is not None:
        code = product_code(space, tile, mode) if 0 not in tile else None
        return () if code is None else (code,)
    return machine_code(space, mode) or (row_code(space, tile, mode) if isinstance(space, Einsum) else ())


def compile_all(tasks: TaskGraph) -> int:
    """Bring every kernel that can be machine code, long or short; gives how many there are.

    Which those are hangs on the program alone: not on seconds, nor on what was compiled before.

    Raises:
        RunError: one could not be compiled; NumPy in its place would give other bits.
    """
    wanted = _compilable(tasks)
    ready = prepare_kernels(wanted)
    for space, mode in wanted:
        if any(code_cache.find(code) is None for code in machine_code(space, mode)):
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
        needed = -(-(resident + code_cache.COMPILER_NBYTES) // MIB) * MIB
        raise CapacityError(
            f"the program does not fit in {format_size(memory or 0)}; the minimum is {format_size(needed)} "
            "(a reproducible run compiles its kernels, in any memory alike)",
            needed,
        )


def _compilable(tasks: TaskGraph) -> list[tuple[Space, Mode]]:
    """The plan's kernels that can be machine code."""
    parts, nodes = tasks.decomposition.partitionings, tasks.decomposition.graph.nodes
    found: dict[tuple[int, Mode], Space] = {}
    for kind, mode in _MODES.items():
        for i in np.flatnonzero(np.bincount(tasks.node[tasks.kind == kind])).tolist():
            node = nodes[i]
            if not isinstance(node, EinsumNode):
                continue
            if (id(node.einsum), mode) not in found and machine_code(node.einsum, mode):
                kernel = compile_kernel(node.einsum, parts[i].tiles, mode, by_blas=True)
                if not isinstance(kernel, ContractionKernel):
                    found[id(node.einsum), mode] = node.einsum
    return [(einsum, mode) for (_, mode), einsum in found.items()]
