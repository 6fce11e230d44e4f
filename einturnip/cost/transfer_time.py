"""Seconds of moving a box between a file and memory: its bytes, its contiguous runs, its pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.core.units import PAGE_NBYTES
from einturnip.cost.machine import Machine
from einturnip.ir.einsum import Box
from einturnip.tuning.search import CACHED_OUTPUT_NBYTES

READERS = 2  # number of threads that the read rates were measured with


def runs(shape: Sequence[int], box: Box, itemsize: int) -> tuple[int, int, int]:
    """Return the number of contiguous runs of a box in C order, the bytes of one, and their distance."""
    nbytes = stride = itemsize
    for axis in range(len(shape) - 1, -1, -1):
        lo, hi = box[axis]
        nbytes, stride = nbytes * (hi - lo), stride * shape[axis]
        if hi - lo < shape[axis]:
            break
    else:
        return 1, nbytes, nbytes
    count = math.prod(b - a for a, b in box[:axis])
    while axis > 0 and box[axis - 1][1] - box[axis - 1][0] == 1:
        axis -= 1
        stride *= shape[axis]
    return max(1, count), nbytes, stride


def load_seconds(shape: Sequence[int], box: Box, itemsize: int, machine: Machine) -> float:
    """Return the seconds of reading a box that is not in the page cache.

    Runs that are close together are read with the bytes between them. A run shorter than a page pays only for its share
    of the page, because neighbouring boxes, which follow soon, read the rest from the page cache.
    """
    count, nbytes, stride = runs(shape, box, itemsize)
    if count == 1 or stride <= PAGE_NBYTES:
        return machine.op_latency + (count - 1) * stride / machine.read_bandwidth + nbytes / machine.read_bandwidth
    fetched = -(-nbytes // PAGE_NBYTES) * PAGE_NBYTES if nbytes > PAGE_NBYTES else nbytes
    return machine.op_latency + count * (run_seconds(nbytes, machine) + fetched / machine.read_bandwidth)


def run_seconds(nbytes: int, machine: Machine) -> float:
    """Return the fixed cost of one more run of ``nbytes`` that is not in the page cache."""
    return machine.run_latency + min(1.0, nbytes / PAGE_NBYTES) * machine.cold_run_latency


def store_seconds(shape: Sequence[int], box: Box, itemsize: int, machine: Machine) -> float:
    """Return the seconds of writing a box.

    Runs much shorter than a page, in a large output, are written into pages that must be read first. One thread writes,
    so a run costs READERS times the measured latency.
    """
    count, nbytes, _ = runs(shape, box, itemsize)
    whole = math.prod(shape) * itemsize
    torn = count > 1 and 4 * nbytes <= PAGE_NBYTES and whole > CACHED_OUTPUT_NBYTES
    each = READERS * machine.run_latency if count > 1 else 0.0
    torn_page = machine.page_latency if torn else 0.0
    return machine.op_latency + count * (each + torn_page + nbytes / machine.write_bandwidth)


def reload_seconds(nbytes: int, spilled: bool, first: float | None, machine: Machine) -> float:
    """Return the seconds of reading again: from the spill file, or from a file in the page cache.

    ``first``: seconds of the first load of the file.
    """
    if spilled:
        return machine.op_latency + nbytes / machine.spill_read
    if first is None:
        return machine.op_latency + nbytes / machine.cached_bandwidth
    moved = max(0.0, first - machine.op_latency)
    return machine.op_latency + moved * min(1.0, machine.read_bandwidth / machine.cached_bandwidth)


def offload_seconds(nbytes: int, machine: Machine) -> float:
    """Return the seconds of writing to the spill file."""
    return machine.op_latency + nbytes / machine.spill_write
