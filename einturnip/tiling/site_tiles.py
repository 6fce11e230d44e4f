"""Label classes whose tiles divide the calls of sites, so that few tiles cross between sites.

EinDecomp may divide the same axis differently in each statement. One tile size that divides all of these calls needs no
copies, but may be so small that there are many times as many kernels as calls. Then labels that are divided differently
get tile sizes of their own, and a site receives the parts of tiles that its calls read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.tiling.label_classes import LabelClasses
from einturnip.tiling.sites import Sites
from einturnip.tiling.types import Partitioning
from einturnip.tuning.sites import FEW_ALIGNED_CALLS, MAX_ALIGNED_TIMES, MAX_MISMATCH, MAX_PARTS, MAX_WAIT


def align(classes: LabelClasses, sites: Sites) -> LabelClasses:
    """Return the classes with the largest tiles that divide the calls of all statements.

    Classes whose labels are divided differently become several if one tile size would make too many kernel calls.
    """
    common = _aligned(classes, sites)
    calls = _kernel_calls(common, sites.graph)
    if calls <= FEW_ALIGNED_CALLS:
        return common
    several = _aligned(_divided(classes, sites), sites)
    return common if calls <= MAX_ALIGNED_TIMES * _kernel_calls(several, sites.graph) else several


def _kernel_calls(classes: LabelClasses, graph: EinGraph) -> int:
    """Return the number of kernel calls with the coarsest tiles."""
    calls = 0
    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            bounds = node.einsum.bounds
            calls += math.prod(Partitioning(bounds, classes.tiles(i, bounds, classes.coarsest)).counts)
    return calls


def _aligned(classes: LabelClasses, sites: Sites) -> LabelClasses:
    """Return the classes with tiles that divide the calls of all nodes."""
    extents: dict[int, set[Fraction]] = {}
    for of, own in zip(classes.of, _extents_of_calls(classes, sites), strict=True):
        for c, extent in zip(of, own, strict=True):
            if extent is not None:
                extents.setdefault(c, set()).add(extent)
    coarsest, calls = list(classes.coarsest), dict[int, int]()
    for c, found in extents.items():
        if c not in classes.fixed and c not in classes.whole:
            calls[c] = _common_tile(found, classes.steps[c])
            coarsest[c] = min(coarsest[c], calls[c])
    notes = classes.notes + sites.decomposition.notes
    return replace(classes, coarsest=tuple(coarsest), calls=calls, notes=notes)


def _extents_of_calls(classes: LabelClasses, sites: Sites) -> list[list[Fraction | None]]:
    """Return by node and label the extent of a call in points of the class; None if not divided."""
    found: list[list[Fraction | None]] = []
    for i, node in enumerate(sites.graph.nodes):
        own: list[Fraction | None] = [None] * len(classes.of[i])
        if isinstance(node, EinsumNode | ConcatNode):
            calls, ratios = sites.calls[i], classes.ratios.get(i)
            for p, (tile, bound) in enumerate(zip(_shared_extents(node, calls), calls.bounds, strict=True)):
                if tile < bound:
                    own[p] = Fraction(tile) / (1 if ratios is None else ratios[p])
        found.append(own)
    return found


def _divided(classes: LabelClasses, sites: Sites) -> LabelClasses:
    """Return a class for each way in which the labels of a class are divided; inputs follow a reader."""
    nodes, numbers, before = sites.graph.nodes, dict[object, int](), list[int]()
    of: list[list[int]] = [[-1] * len(own) for own in classes.of]

    def number(c: int, extent: Fraction | None) -> int:
        key = (c, None if c in classes.fixed or c in classes.whole else extent)
        if key not in numbers:
            numbers[key] = len(before)
            before.append(c)
        return numbers[key]

    separate = set(classes.separate)
    for i, (node, extents) in enumerate(zip(nodes, _extents_of_calls(classes, sites), strict=True)):
        if isinstance(node, InputNode):
            continue
        of[i] = [number(c, extent) for c, extent in zip(classes.of[i], extents, strict=True)]
        for operand, access in (
            zip(node.operands, node.einsum.accesses, strict=True) if isinstance(node, EinsumNode) else ()
        ):
            for axis, p in enumerate(access):
                if not isinstance(p, int) or classes.of[operand][axis] != classes.of[i][p]:
                    continue
                if not isinstance(nodes[operand], InputNode):
                    separate |= {i} if of[operand][axis] != of[i][p] else set()
                elif of[operand][axis] < 0:
                    of[operand][axis] = of[i][p]
    rows = [
        tuple(number(c, None) if k < 0 else k for c, k in zip(old, own, strict=True))
        for old, own in zip(classes.of, of, strict=True)
    ]

    def of_each(column: Sequence[int]) -> tuple[int, ...]:
        return tuple(column[c] for c in before)

    def kept(some: frozenset[int]) -> frozenset[int]:
        return frozenset(k for k, c in enumerate(before) if c in some)

    return replace(
        classes,
        of=tuple(rows),
        bounds=of_each(classes.bounds),
        coarsest=of_each(classes.coarsest),
        steps=of_each(classes.steps),
        chunks=of_each(classes.chunks),
        fixed=kept(classes.fixed),
        tiled_last=kept(classes.tiled_last),
        whole=kept(classes.whole),
        separate=frozenset(separate),
    )


def _shared_extents(node: EinsumNode | ConcatNode, cut: Partitioning) -> list[int]:
    """Return the extents of a call, with the output divided so that several trees work at the same time.

    A site receives the states of two others in each tree, so the last tile waits for two states at each level.
    """
    extents = list(cut.tiles)
    if isinstance(node, EinsumNode):
        e, group = node.einsum, math.prod(cut.counts[p] for p in node.einsum.aggregated)
        read = sum(math.prod(e.operand_extents(s, cut.tiles)) * d.itemsize for s, d in enumerate(e.dtypes))
        state = e.state_nbytes(cut.tiles)
        waited = 2 * (group - 1).bit_length() * state
        parts = min(group, 2 * math.ceil(waited / 2 / max(1.0, MAX_WAIT * (read + state))))
        for p in sorted(range(e.n_out), key=lambda p: -extents[p]):
            count = min(max(1, parts), extents[p])
            extents[p], parts = -(-extents[p] // count), -(-parts // count)
    return extents


def _common_tile(extents: set[Fraction], step: int) -> int:
    """Return the largest multiple of ``step`` that divides all extents, or comes closest to that."""

    def error(tile: int) -> Fraction:
        return max(abs(e - max(1, round(e / tile)) * tile) / e for e in extents)

    tiles = [max(1, math.ceil(min(extents) / n / step)) * step for n in range(1, MAX_PARTS + 1)]
    return next((tile for tile in tiles if error(tile) <= MAX_MISMATCH), min(tiles, key=error))
