"""What it takes to move a box between a file and memory, in seconds: its bytes, its runs, the pages that hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.cost.machine import Machine
from einturnip.ir.einsum import Box

PAGE = 4096
READERS = 2  # whose rates those of reading are, together
# Outputs smaller than this stay in the page cache until they are whole: no page of theirs is read to be written again.
KEPT_NBYTES = 64 << 20


def runs(shape: Sequence[int], box: Box, itemsize: int) -> tuple[int, int, int]:
    """How many runs of bytes a box of a tensor in C order is made of, the bytes of one, how far apart they begin."""
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
    """Reading a box whose pages are not in the page cache; runs that lie close are read with what lies between.

    Runs shorter than a page pay for a part of it: the rest is there for the boxes beside this one, which come soon.
    """
    count, nbytes, stride = runs(shape, box, itemsize)
    if count == 1 or stride <= PAGE:
        return machine.op_latency + (count - 1) * stride / machine.read_bandwidth + nbytes / machine.read_bandwidth
    fetched = -(-nbytes // PAGE) * PAGE if nbytes > PAGE else nbytes
    return machine.op_latency + count * (run_seconds(nbytes, machine) + fetched / machine.read_bandwidth)


def run_seconds(nbytes: int, machine: Machine) -> float:
    """What one more run of so many bytes takes beside its bytes, where its pages are not in the page cache."""
    return machine.run_latency + min(1.0, nbytes / PAGE) * machine.cold_run_latency


def store_seconds(shape: Sequence[int], box: Box, itemsize: int, machine: Machine) -> float:
    """Writing a box; runs much shorter than a page, of a large output, are written into pages read first.

    One thread writes: a run takes it what it takes one of the readers.
    """
    count, nbytes, _ = runs(shape, box, itemsize)
    whole = math.prod(shape) * itemsize
    torn = count > 1 and 4 * nbytes <= PAGE and whole > KEPT_NBYTES
    each = READERS * machine.run_latency if count > 1 else 0.0
    torn_page = machine.page_latency if torn else 0.0
    return machine.op_latency + count * (each + torn_page + nbytes / machine.write_bandwidth)


def reload_seconds(nbytes: int, spilled: bool, first: float | None, machine: Machine) -> float:
    """Reading again: from the spill file, or from a file whose pages stayed in the cache since its ``first`` load."""
    if spilled:
        return machine.op_latency + nbytes / machine.spill_read
    if first is None:
        return machine.op_latency + nbytes / machine.cached_bandwidth
    moved = max(0.0, first - machine.op_latency)
    return machine.op_latency + moved * min(1.0, machine.read_bandwidth / machine.cached_bandwidth)


def offload_seconds(nbytes: int, machine: Machine) -> float:
    """Writing to the spill file."""
    return machine.op_latency + nbytes / machine.spill_write
