"""Refuses programs that take too long, or that this machine cannot store, before planning.

Nothing here depends on the memory limit: more of it would not help.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from decimal import Decimal

from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import total_memory
from einturnip.core.units import format_seconds, format_size
from einturnip.cost.machine import Machine
from einturnip.devices.kind import kind_of
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode, Node
from einturnip.planner.predict import min_seconds
from einturnip.planner.request import Options
from einturnip.storage.io.unpublished_file import default_directory, free_nbytes
from einturnip.tuning.search import MAX_CORE_RATE, MAX_DEVICE_RATE, MAX_RUN_SECONDS, MAX_TILED_NBYTES, SLOWEST_POINT

MAX_OPERATIONS = 2**62
"""Plans count operations in 64 bits: programs with more are refused even with --force."""
MAX_SHOWN = 72
"""Characters of a statement that a message repeats."""


def operations(graph: EinGraph) -> int:
    """Return the points of all einsums, each counted once; exact, since it may exceed the range of floats."""
    return sum(map(_points, graph.nodes))


def is_feasible(graph: EinGraph, machine: Machine) -> bool:
    """Return whether the operations take at most MAX_RUN_SECONDS at the machine's best rate."""
    return operations(graph) <= MAX_RUN_SECONDS * _rate(machine)


def require_in_time(graph: EinGraph, machine: Machine, options: Options) -> None:
    """Refuse a rewritten program whose kernels would take more than MAX_RUN_SECONDS.

    Raises:
        CapacityError: names the operations, the time, the largest tensor and the statement; no memory would do.
    """
    points = operations(graph)
    if options.force and points <= MAX_OPERATIONS:
        return
    if not is_feasible(graph, machine):
        raise _refusal(graph, at_least=points // _rate(machine))
    if points * SLOWEST_POINT > MAX_RUN_SECONDS and kind_of(machine.compute).on_host:
        seconds = min_seconds(graph, machine)
        if seconds > MAX_RUN_SECONDS:
            raise _refusal(graph, at_least=seconds)


def require_planned_in_time(graph: EinGraph, seconds: float, options: Options) -> None:
    """Refuse a plan that is predicted to take more than MAX_RUN_SECONDS, its transfers included.

    Raises:
        CapacityError: as ``require_in_time``.
    """
    if seconds > MAX_RUN_SECONDS and not options.force:
        raise _refusal(graph, about=seconds)


def require_iterations_in_time(statement: str, line: int, iterations: int, seconds: float, options: Options) -> None:
    """Refuse a loop whose iterations take too long by their plan. ``seconds``: of one iteration.

    Raises:
        CapacityError: names the loop, its iterations and their time.
    """
    if iterations * seconds > MAX_RUN_SECONDS and not options.force:
        raise CapacityError(
            f"the loop on line {line}, {statement!r}, takes about {format_seconds(iterations * seconds)} on this "
            f"machine: {iterations:,} iterations of {format_seconds(seconds)}. help: no memory makes this feasible; "
            "iterate less often, or make sizes smaller; --force (force=True) runs it all the same"
        )


def require_storable(graph: EinGraph, machine: Machine, options: Options) -> None:
    """Refuse a program with an intermediate too large for memory and disk.

    ``graph`` is rewritten and fused. An intermediate with one reader can be made and read tile by tile, as long as a
    plan can count its tiles.

    Raises:
        CapacityError: names the operations, the time, the tensor and the statement that makes it.
    """
    if options.force:
        return
    memory, outputs = total_memory(), {node for _, node in graph.outputs}
    readers = Counter(o for node in graph.nodes if not isinstance(node, InputNode) for o in set(node.operands))
    for i, node in enumerate(graph.nodes):
        nbytes = _nbytes(node)
        if nbytes <= memory or isinstance(node, InputNode) or i in outputs:
            continue
        available = memory + free_nbytes(_spill_folder(options))
        if nbytes > available and (readers[i] > 1 or nbytes > MAX_TILED_NBYTES):
            where = f"memory and disk of this machine have {format_size(available)}; "
            raise _refusal(graph, about=min_seconds(graph, machine), where=where, at=node)


def _refusal(
    graph: EinGraph,
    about: float | None = None,
    at_least: float = 0,
    where: str = "",
    at: Node | None = None,
) -> CapacityError:
    points = operations(graph)
    node = at or max(graph.nodes, key=_points)
    largest = max((n for n in graph.nodes if not isinstance(n, InputNode)), key=_nbytes)
    time = f"at least {format_seconds(at_least)}" if about is None else f"about {format_seconds(about)}"
    statement = graph.statement(node.line)
    shown = statement if len(statement) <= MAX_SHOWN else statement[: MAX_SHOWN - 3] + "..."
    force = "; --force (force=True) runs it all the same" if points <= MAX_OPERATIONS else ""
    return CapacityError(
        f"the program takes {_count(points)} operations in the best order found, {time} on this machine, and its "
        f"largest intermediate has {format_size(_nbytes(largest))}; {where}"
        f"{'most of them are at' if at is None else 'it is made at'} {graph.place(node.line)}, {shown!r}. "
        f"help: no memory makes this feasible; make sizes smaller, or sum parts of the program separately{force}"
    )


def _count(points: int) -> str:
    return f"{points:,}" if points < 10**6 else f"{Decimal(points):.3g}"


def _spill_folder(options: Options) -> str:
    """Return the folder for spilled intermediates; a missing folder is reported when it is opened."""
    return options.spill if options.spill is not None and os.path.isdir(options.spill) else default_directory()


def _rate(machine: Machine) -> int:
    """Return the operations per second that the whole machine cannot exceed."""
    return machine.workers * MAX_CORE_RATE if kind_of(machine.compute).on_host else MAX_DEVICE_RATE


def _points(node: Node) -> int:
    return math.prod(node.einsum.bounds) if isinstance(node, EinsumNode) else 0


def _nbytes(node: Node) -> int:
    return math.prod(node.shape) * node.dtype.itemsize
