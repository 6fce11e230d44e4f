"""Decides which kernels of a plan to compile to machine code, and compiles or loads them.

Compiled code stays on disk for later processes. Loading is cheap; compiling pays once the seconds that the code would
have saved, in this run and in earlier ones of this process, exceed the seconds that compiling takes.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from einturnip.core.errors import CapacityError, RunError
from einturnip.core.process_resources import resident_nbytes
from einturnip.core.units import MIB, format_minimum, format_size
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Region, Space
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import uses_blas
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.code_cache import Code
from einturnip.kernels.llvm.parallel_for import ParallelForCode
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import (
    compile_kernel,
    load_code,
    machine_code,
    prepare_code,
    prepare_kernels,
    product_code,
    product_spec,
    row_code,
)
from einturnip.runtime.host.command_lists import EXECUTOR
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import (
    BLAS_SAVED_SHARE,
    CALL_SECONDS,
    COMPILE_SECONDS,
    EXECUTOR_USES,
    LOAD_SECONDS,
    MIN_SAVED_SHARE,
    PARALLEL_SAVED_SHARE,
    START_SECONDS,
    WORTH_LOADING,
)

_MODES: dict[TaskKind, Mode] = {
    TaskKind.KERNEL: "full",
    TaskKind.ACCUMULATE: "accumulate",
    TaskKind.FINALIZE: "finalize",
}


def available() -> bool:
    """Return whether kernels can be compiled on this machine."""
    return code_cache.available()


def has_room(memory: int | None, resident: int) -> bool:
    """Return whether the compiler's process fits in memory next to this process.

    The arena must still be untouched.

    ``memory``: the limit in bytes; None for no limit. ``resident``: bytes that this process uses.
    """
    return code_cache.available() and (memory is None or memory - resident >= code_cache.COMPILER_NBYTES)


def may_be_used(memory: int | None, resident: int) -> bool:
    """Return whether a plan may count on machine code: the compiler fits in memory, or code is on disk.

    Loading code takes some KiB, whatever the memory. Arguments as of ``has_room``.
    """
    return has_room(memory, resident) or (code_cache.available() and code_cache.is_on_disk())


@dataclass(frozen=True, slots=True)
class _KernelCalls:
    """The calls of one kernel of a plan that can be machine code, and their seconds in machine code."""

    kind: TaskKind
    node: int
    space: Space
    tile: tuple[int, ...]
    mode: Mode
    calls: int
    seconds: float


@dataclass(eq=False)
class _CompilationGain:
    """Machine code of a plan, and the calls that use it.

    ``by_blas``: without machine code, the kernel is a matrix product done by BLAS. ``more``: seconds that the code
    saves per run of the plan besides those of its calls.
    """

    codes: tuple[Code, ...]
    machine: Machine
    by_blas: bool
    kernels: list[_KernelCalls] = field(default_factory=list)
    more: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of the calls per run, in machine code."""
        return sum(kernel.seconds for kernel in self.kernels)

    @cached_property
    def saved(self) -> float:
        """The seconds that the code saves per run, found on request: pricing NumPy's kernels takes long."""
        return self.more + sum(map(self._saved, self.kernels))

    def _saved(self, kernel: _KernelCalls) -> float:
        from einturnip.cost.kernel_time import numpy_seconds

        if self.by_blas:
            return BLAS_SAVED_SHARE * kernel.seconds
        # The parts of a region that are not products take at least twice as long in NumPy.
        by_numpy = kernel.calls * numpy_seconds(kernel.space, kernel.tile, self.machine, kernel.mode)
        least = (1.0 if isinstance(kernel.space, Region) else MIN_SAVED_SHARE) * kernel.seconds
        return max(by_numpy - kernel.seconds, least)


_gains: dict[int, tuple[weakref.ref[TaskGraph], tuple[_CompilationGain, ...]]] = {}
"""Compilation gains by the id of a task graph, as long as the graph exists."""
_missed: defaultdict[tuple[Code, ...], float] = defaultdict(float)
"""Seconds that code which does not exist yet would have saved so far in this process."""


def compile_ahead(
    tasks: TaskGraph,
    machine: Machine,
    memory: int | None,
    runs: int = 1,
    spent: float = 0.0,
    planned_runs: int = 1,
) -> int:
    """Load or compile the plan's kernels before the run; return the number of available functions.

    Code on disk is loaded unless the plan is tiny. Other code is compiled if the compiler fits in ``memory`` bytes,
    once this run and earlier runs of this process would have saved more time than compiling takes.

    ``runs``: number of runs since the previous call. ``spent``: measured seconds of these runs, or 0; time beyond the
    prediction is attributed to the kernels without machine code. ``planned_runs``: how many runs are known to come.
    """
    gains = _gains_of(tasks, machine) if _is_worth_loading(tasks, planned_runs) else ()
    if planned_runs * sum(gain.seconds for gain in gains) < WORTH_LOADING:
        return 0
    load_code([code for gain in gains for code in gain.codes])
    missing = [gain for gain in gains if any(map(code_cache.is_missing, gain.codes))]
    excess = max(0.0, spent - runs * float(tasks.seconds.sum()) / machine.workers)
    share = excess / (sum(gain.seconds for gain in missing if not gain.by_blas) or 1.0)
    for gain in missing:
        _missed[gain.codes] += max(gain.saved * runs, 0.0 if gain.by_blas else gain.seconds * share)
    worth = _worth({gain.codes: _missed[gain.codes] for gain in missing})
    if worth and has_room(memory, resident_nbytes()):
        prepare_code([code for codes in worth for code in codes])
        for codes in worth:
            _missed.pop(codes, None)  # another thread may have removed it
    return sum(code_cache.find(code) is not None for code in {code for gain in gains for code in gain.codes})


def prepare_command_lists(calls: int, memory: int | None, runs: int = 1) -> int:
    """Load or compile the executor of command lists if it pays; return 1 if it is available, else 0.

    ``calls``: kernel calls of a run that a command list could make. ``memory``: see ``compile_ahead``. ``runs``: number
    of runs since the previous call.
    """
    if not calls:
        return 0
    if code_cache.find(EXECUTOR) is None:
        _missed[EXECUTOR,] += runs * calls * CALL_SECONDS
        if _missed[EXECUTOR,] > LOAD_SECONDS:
            load_code([EXECUTOR])
        worth = EXECUTOR_USES * _missed[EXECUTOR,] > START_SECONDS + COMPILE_SECONDS
        if code_cache.find(EXECUTOR) is None and worth and has_room(memory, resident_nbytes()):
            prepare_code([EXECUTOR])
            _missed.pop((EXECUTOR,), None)
    return int(code_cache.find(EXECUTOR) is not None)


def _worth(saved: Mapping[tuple[Code, ...], float]) -> list[tuple[Code, ...]]:
    """Return the code that saves more seconds than compiling it takes."""
    worth = [codes for codes, seconds in saved.items() if 2 * seconds > COMPILE_SECONDS]
    return worth if 2 * sum(saved[codes] for codes in worth) > START_SECONDS + COMPILE_SECONDS * len(worth) else []


def left_to_numpy(tasks: TaskGraph, machine: Machine, memory: int | None, runs: int = 1) -> list[tuple[TaskKind, int]]:
    """Return the kernels (kind, node) that ``compile_ahead`` would leave to NumPy if it were called now.

    ``memory``: see ``compile_ahead``. ``runs``: how many are known to come.
    """
    missing, worth = _missing(tasks, machine, runs)
    if not has_room(memory, resident_nbytes()):
        worth = set()
    left = (kernel for gain in missing if gain.codes not in worth for kernel in gain.kernels)
    return sorted((kernel.kind, kernel.node) for kernel in left)


def lacks_code(tasks: TaskGraph, machine: Machine, runs: int = 1) -> bool:
    """Return whether code that is not on disk would save more than the code that is.

    Arguments as of ``left_to_numpy``.
    """
    missing, worth = _missing(tasks, machine, runs)
    lost = [gain for gain in missing if gain.kernels and gain.codes in worth]
    if not lost:
        return False
    kept = [gain for gain in _gains_of(tasks, machine) if gain.kernels and gain not in missing]
    return sum(gain.saved for gain in lost) > sum(gain.saved for gain in kept)


def _missing(tasks: TaskGraph, machine: Machine, runs: int) -> tuple[list[_CompilationGain], set[tuple[Code, ...]]]:
    """Load code from disk; return the gains without it, and which of their code pays to compile."""
    gains = _gains_of(tasks, machine) if _is_worth_loading(tasks, runs) else ()
    if runs * sum(gain.seconds for gain in gains) < WORTH_LOADING:
        return [], set()
    load_code([code for gain in gains for code in gain.codes])
    missing = [gain for gain in gains if any(map(code_cache.is_missing, gain.codes))]
    return missing, set(_worth({gain.codes: _missed.get(gain.codes, 0.0) + runs * gain.saved for gain in missing}))


def _is_worth_loading(tasks: TaskGraph, runs: int = 1) -> bool:
    """Return whether the kernels take long enough in total for loading code to pay."""
    return runs * float(tasks.seconds.sum()) >= WORTH_LOADING


def _gains_of(tasks: TaskGraph, machine: Machine) -> tuple[_CompilationGain, ...]:
    """The plan's kernels that may be machine code; found once a plan."""
    known = _gains.get(id(tasks))
    if known is not None and known[0]() is tasks:
        return known[1]
    parts, nodes = tasks.decomposition.partitionings, tasks.decomposition.graph.nodes
    found: dict[tuple[Code, ...], _CompilationGain] = {}
    for kind, mode in _MODES.items():
        mine = tasks.kind == kind
        counts = np.bincount(tasks.node[mine], minlength=len(nodes))
        seconds = np.bincount(tasks.node[mine], weights=tasks.seconds[mine], minlength=len(nodes))
        for i in np.flatnonzero(counts).tolist():
            node, tile = nodes[i], parts[i].tiles
            codes = _codes(node.einsum, tile, mode) if isinstance(node, EinsumNode) else ()
            if isinstance(node, EinsumNode) and codes:
                if codes not in found:
                    found[codes] = _CompilationGain(codes, machine, _is_by_blas(node.einsum, tile, mode))
                calls = _KernelCalls(kind, i, node.einsum, tile, mode, int(counts[i]), float(seconds[i]))
                found[codes].kernels.append(calls)
    if found and machine.workers > 1:
        more = PARALLEL_SAVED_SHARE * sum(gain.seconds for gain in found.values())
        found[ParallelForCode(),] = _CompilationGain((ParallelForCode(),), machine, False, more=more)
    gains, number = tuple(found.values()), id(tasks)
    _gains[number] = weakref.ref(tasks, lambda _: _gains.pop(number, None)), gains
    return gains


def _is_by_blas(space: Space, tile: tuple[int, ...], mode: Mode) -> bool:
    """Return whether the kernel, without machine code, is a single call of BLAS per matrix."""
    if not isinstance(space, Einsum) or contraction(space) is None:
        return False
    spec = product_spec(space, tile, mode) if 0 not in tile else None
    return spec is not None and uses_blas(spec)


def _codes(space: Space, tile: tuple[int, ...], mode: Mode) -> tuple[Code, ...]:
    """Return the machine code of a kernel for full tiles; empty if it cannot be machine code."""
    if isinstance(space, Einsum) and contraction(space) is not None:
        code = product_code(space, tile, mode) if 0 not in tile else None
        return () if code is None else (code,)
    return machine_code(space, mode) or (row_code(space, tile, mode) if isinstance(space, Einsum) else ())


def compile_all(tasks: TaskGraph) -> int:
    """Compile every kernel that can be machine code; return their number.

    The choice depends on the program alone, not on times or on existing code, so that all runs use the same kernels.

    Raises:
        RunError: a kernel could not be compiled; NumPy's result would differ in the last bits.
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
    """Check that the compiler fits in memory, for a reproducible plan whose code is not on disk.

    Raises:
        CapacityError: it does not fit; with NumPy instead, the result would depend on the memory limit.
    """
    if not machine.compiled or has_room(memory, resident):
        return
    codes = [code for space, mode in _compilable(tasks) for code in machine_code(space, mode)]
    load_code(codes)
    if any(map(code_cache.is_missing, codes)):
        needed = -(-(resident + code_cache.COMPILER_NBYTES) // MIB) * MIB
        raise CapacityError(
            f"the program does not fit in {format_size(memory or 0)}; the minimum is {format_minimum(needed)} "
            "(a reproducible run compiles its kernels, whatever the memory)",
            needed,
        )


def _compilable(tasks: TaskGraph) -> list[tuple[Space, Mode]]:
    """Return the plan's kernels that can be machine code, without those that BLAS computes."""
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
