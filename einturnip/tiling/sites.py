"""Divides the work of a graph among sites by EinDecomp; a site is a device with its own memory.

In: an EinGraph and the number of sites. Out: for every tile of every node, the site that computes it.

EinDecomp divides each node into one call per site (if sites are unlike, per share of the work, of which faster sites
have several), and ``device_assignment`` assigns the calls to sites so that few bytes move. The tiles of a plan are
smaller than the calls, because they fit a memory: a tile belongs to the call that contains its centre. A sum that is
divided among sites has a partial state on each. The sites of such a group combine each output tile by a tree; the trees
alternate so that all receive equally many bytes (a reduce-scatter), and their roots are readers of the total if
possible.

Sources: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682); Thakur, Rabenseifner, Gropp, Optimization of Collective
Communication Operations in MPICH (2005), for the reduce-scatter; Sanders, Speck, Traeff, Two-tree algorithms for full
bandwidth broadcast, reduction and scan (2009), for the trees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import take_rows
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.einsum import Box
from einturnip.kernels.mask import LabelMask
from einturnip.tiling.device_assignment import AtomDevices, DeviceAssignment, assign_calls, readers_of_atoms
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.site_shares import numbers_of_shares, sites_of_shares
from einturnip.tiling.types import Partitioning
from einturnip.tuning.sites import (
    CALLS_OF_SHARE,
    MAX_CALLS_BALANCED,
    MOSTLY_READ,
    WORK_UNEVEN,
)

Key = tuple[int, ...]
Ints = NDArray[np.int64]


class Sites:
    """The division of a graph's calls among sites, and with it the site of each tile.

    ``rates``: of the sites' kernels, by default equal. ``calls``: by node, the division of its labels by EinDecomp.
    ``counted_nbytes``: what the sites receive from each other and read of inputs for these calls.

    Raises:
        BindError: a site is too slow for a share of the work.
    """

    def __init__(self, graph: EinGraph, count: int, rates: Sequence[float] = ()) -> None:
        self.graph, self.count = graph, count
        assignment = self._assigned(rates or [1.0] * count)
        self.counted_nbytes = assignment.moved_nbytes + assignment.input_nbytes
        self.decomposition = assignment.flow.decomposition
        self.calls = self.decomposition.partitionings
        self._site: dict[int, Ints] = {}
        self._readers: dict[int, tuple[list[Ints], AtomDevices]] = {}
        self._reading_most: dict[tuple[int, Box], frozenset[int]] = {}
        for i, calls in assignment.flow.calls.items():
            site = np.zeros(math.prod(max(1, n) for n in self.calls[i].counts), np.int64)
            keys = np.array(calls.keys, np.int64).reshape(len(calls.keys), len(self.calls[i].counts))
            site[keys @ _strides(self.calls[i])] = assignment.of[i]
            self._site[i] = site
            self._readers[i] = assignment.flow.tensors[i].ends, readers_of_atoms(assignment, i)

    def _assigned(self, rates: Sequence[float]) -> DeviceAssignment:
        """Return the assignment with even work that moves and reads the fewest bytes.

        More calls than shares are tried if a mask leaves calls unlike work.
        """
        found: list[tuple[float, int, int, DeviceAssignment]] = []
        statements = [node.einsum for node in self.graph.nodes if isinstance(node, EinsumNode)]
        factors = CALLS_OF_SHARE if any(LabelMask(e).conditions for e in statements) else (1,)
        for factor in factors:
            for numbers in numbers_of_shares(rates):
                if factor > 1 and factor * len(statements) * sum(numbers[0]) > MAX_CALLS_BALANCED:
                    break
                for counts in numbers:
                    calls = eindecomp(self.graph, factor * sum(counts))
                    if factor > 1:
                        calls = replace(calls, notes=())  # a statement may have fewer calls than were tried
                    assignment = assign_calls(calls, self.count, sites_of_shares(counts))
                    found.append((*_cost(assignment, rates), len(found), assignment))
                if min(found)[0] <= WORK_UNEVEN:
                    return min(found)[-1]
        return min(found)[-1]

    def of_tiles(self, node: int, part: Partitioning) -> Callable[[Key], int]:
        """Return a function that maps the key of a tile of ``part`` to its site."""
        calls = self.calls[node]
        steps = [
            (_containing(calls, part, p) * stride).tolist() for p, stride in enumerate(_strides(calls).tolist())
        ]  # by label and tile along it
        site = self._site[node].tolist()
        return lambda key: int(site[sum([step[k] for step, k in zip(steps, key, strict=True)])])

    def reads_most(self, node: int, box: Box, site: int) -> bool:
        """Return whether calls on a site read most elements of a box of a computed tensor."""
        found = self._reading_most.get((node, box))
        if found is None:
            found = self._reading_most[node, box] = self._sites_reading_most(node, box)
        return site in found

    def _sites_reading_most(self, node: int, box: Box) -> frozenset[int]:
        points, readers = self._readers[node]
        shape, inside, elements = tuple(len(ends) - 1 for ends in points), [], np.ones(())
        for (lo, hi), ends in zip(box, points, strict=True):
            first, last = np.searchsorted(ends, lo, side="right") - 1, np.searchsorted(ends, hi, side="left")
            inside.append(np.arange(first, last))
            elements = np.multiply.outer(elements, np.diff(np.clip(ends[first : last + 1], lo, hi)))
        rows = np.ravel_multi_index(np.ix_(*inside), shape) if inside else np.zeros((), np.int64)
        ptr, at = take_rows(readers.ptr, rows.reshape(-1))
        read = np.bincount(readers.device[at], np.repeat(elements.reshape(-1), np.diff(ptr)), self.count)
        return frozenset(np.flatnonzero(read >= MOSTLY_READ * elements.sum()).tolist())

    def of_node(self, node: int) -> tuple[int, ...]:
        """Return the sites that compute calls of a node, in order."""
        return tuple(np.unique(self._site[node]).tolist())

    def combining_trees(self) -> CombiningTrees:
        """Return the trees of one plan; each plan begins with the same choice of roots."""
        return CombiningTrees(self)

    def combining(self, node: int, box: Sequence[tuple[int, int]], group: Sequence[int]) -> tuple[int, ...]:
        """Return the sites of ``group`` that may hold the total of an output tile: its readers, else all."""
        boundaries, readers = self._readers[node]
        row = 0
        for (lo, hi), ends in zip(box, boundaries, strict=True):
            row = row * (len(ends) - 1) + int(np.searchsorted(ends, (lo + hi) // 2, side="right")) - 1
        reading = set(readers.device[readers.ptr[row] : readers.ptr[row + 1]].tolist())
        return tuple([s for s in group if s in reading] or group)


class CombiningTrees:
    """The trees by which the sites of one plan combine partial states, a binary one for each output tile.

    The roots alternate, half of the group apart. So a site that combines in one tree is a leaf in the next, and all
    sites of a group receive equally many bytes.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._tiles: Counter[tuple[int, ...]] = Counter()  # by possible roots, combined so far

    def next_tree(self, node: int, box: Sequence[tuple[int, int]], group: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs (site, site that combines its state) for the next output tile, leaves first."""
        roots = self.sites.combining(node, box, group)
        root = group.index(roots[alternating(len(roots))[self._tiles[roots] % len(roots)]])
        self._tiles[roots] += 1
        order = [*group[root:], *group[:root]]
        return [(order[k], order[(k - 1) // 2]) for k in range(len(order) - 1, 0, -1)]


def _cost(assignment: DeviceAssignment, rates: Sequence[float]) -> tuple[float, int]:
    """Return how uneven the work is (at least WORK_UNEVEN), and the bytes that sites receive."""
    seconds = np.array(assignment.flops) / np.array(rates)
    uneven = float(seconds.max() / (seconds.mean() or 1.0))
    return max(WORK_UNEVEN, round(uneven, 2)), assignment.moved_nbytes + assignment.input_nbytes


@cache
def alternating(n: int) -> tuple[int, ...]:
    """Return the numbers below n in van der Corput's order: numbers that are close in it are far apart."""
    size = 1 << (n - 1).bit_length()
    bits = size.bit_length() - 1
    reversed_bits = (int(format(k, f"0{bits}b")[::-1], 2) if bits else 0 for k in range(size))
    return tuple(dict.fromkeys(n * k // size for k in reversed_bits))


def _strides(calls: Partitioning) -> Ints:
    """Return the strides of the calls' keys in row-major order."""
    counts = [max(1, n) for n in calls.counts]
    return np.array([math.prod(counts[p + 1 :]) for p in range(len(counts))], np.int64)


def _containing(calls: Partitioning, part: Partitioning, label: int) -> Ints:
    """Return for each tile of ``part`` along a label the call that contains its centre."""
    n, bound = max(1, part.counts[label]), part.bounds[label]
    starts = np.arange(n, dtype=np.int64) * part.tiles[label]
    centres = (starts + np.minimum(starts + part.tiles[label], max(bound, 1))) // 2
    found: Ints = np.minimum(centres // calls.tiles[label], max(1, calls.counts[label]) - 1)
    return found
