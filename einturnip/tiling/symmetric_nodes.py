"""Merges symmetric nodes: nodes of one kind with the same operands and equivalent readers.

Examples are two tables of angles, or two projections of which only the product is read. The optimal tiling of one is
optimal for the other, so both are one variable that counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from einturnip.tiling.node_tilings import NodeTilings
from einturnip.tiling.repeats import ReadEdges

Ints = NDArray[np.int64]


def merge_symmetric(
    kinds: Sequence[int], every: list[NodeTilings], edges: ReadEdges
) -> tuple[Ints, list[int], ReadEdges]:
    """Return the representative of each variable, and the kinds and edges of the representatives.

    Kinds of variables that represent several are added to ``every``.
    """
    first = _first(np.array(kinds, np.int64), every, edges)
    stays = first == np.arange(len(first))
    number = np.cumsum(stays) - 1
    times = np.bincount(first, minlength=len(first))[stays]
    left = [kind for kind, stay in zip(kinds, stays.tolist(), strict=True) if stay]
    several: dict[tuple[int, int], int] = {}
    for v in np.flatnonzero(times > 1).tolist():
        key = left[v], int(times[v])
        if key not in several:
            several[key] = len(every)
            every.append(replace(every[key[0]], times=key[1]))
        left[v] = several[key]
    mine = edges.where(stays[edges.reader])
    made = mine.made.copy()
    made[made >= 0] = number[first[made[made >= 0]]]
    return number[first], left, ReadEdges(made, number[mine.reader], mine.slot)


def _first(kinds: Ints, every: Sequence[NodeTilings], edges: ReadEdges) -> Ints:
    """Return the first variable symmetric to each.

    The operands and readers of a variable are hashed as a sum of random numbers.
    """
    n, n_slots = len(kinds), int(edges.slot.max(initial=0)) + 1
    slots = np.tile(np.arange(n_slots), (len(every), 1))
    for kind, own in enumerate(every):
        slots[kind, : len(own.reads)] = own.equal_slots
    equal_slot = slots[kinds[edges.reader], edges.slot]
    drawn = np.random.default_rng(0).integers(1 << 62, size=(2, n + 1 + n_slots)) | 1
    nodes, places = drawn[:, : n + 1], drawn[:, n + 1 :]
    hashes = kinds * drawn[0, -1]
    np.add.at(hashes, edges.reader, nodes[0, np.maximum(edges.made, -1)] * places[0, edges.slot])
    real = edges.made >= 0
    np.add.at(hashes, edges.made[real], nodes[1, edges.reader[real]] * places[1, equal_slot[real]])
    _, first, of = np.unique(hashes, return_index=True, return_inverse=True)
    return np.asarray(first[of])
