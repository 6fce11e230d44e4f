"""Refuses programs whose operations no machine would finish, before anything is planned for them."""

from __future__ import annotations

import math
from decimal import Decimal

from einturnip.core.errors import CapacityError
from einturnip.core.units import format_size
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode, Node

YEAR = 365 * 86400
MAX_SECONDS = YEAR
"""A program that takes longer with every worker at its fastest is refused."""
CORE_RATE, DEVICE_RATE = 10**11, 10**15
"""Operations a second that no kernel exceeds: on one core, and on an accelerator."""


def operations(graph: EinGraph) -> int:
    """Points of all einsums, each counted once. Exact: they may be more than a float can hold."""
    return sum(math.prod(node.einsum.bounds) for node in graph.nodes if isinstance(node, EinsumNode))


def is_feasible(graph: EinGraph, machine: Machine) -> bool:
    """True where the operations take at most MAX_SECONDS at the machine's best rate."""
    return operations(graph) <= MAX_SECONDS * _rate(machine)


def require_feasible(graph: EinGraph, machine: Machine) -> None:
    """Refuse a program with too many operations.

    Raises:
        CapacityError: names the operations, the time and the largest tensor; no memory would do.
    """
    if is_feasible(graph, machine):
        return
    points = operations(graph)
    made = [node for node in graph.nodes if not isinstance(node, InputNode)]
    largest = max(made, key=_nbytes)
    years = points // (_rate(machine) * YEAR)
    size = format_size(_nbytes(largest))
    raise CapacityError(
        f"the program takes {Decimal(points):.3g} operations in the best order found, "
        f"at least {Decimal(years):.3g} years on this machine, and its largest intermediate has {size}. "
        "help: no memory makes this feasible; make sizes smaller, or sum parts of the network separately"
    )


def _rate(machine: Machine) -> int:
    """Operations a second that the whole machine does not exceed."""
    return machine.workers * CORE_RATE if machine.compute.startswith("cpu") else DEVICE_RATE


def _nbytes(node: Node) -> int:
    return math.prod(node.shape) * node.dtype.itemsize
