"""Nodes that may be cut alike, as one: those that are of one kind, read the same tensors and are read alike.

Two tables of angles, say, or two projections whose product is all that is read. Each costs the same by the same choices
of all others, so what is best for the one is best for the other: together they are one variable that counts twice.
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
    """For each variable the number of the one that stands for it, and the kinds and edges of those that are left.

    Kinds of variables that stand for several are added to ``every``.
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
    """The first of the variables that are cut alike with each.

    What a variable reads and is read by is told by a sum of numbers drawn at random.
    """
    n, most = len(kinds), int(edges.slot.max(initial=0)) + 1
    slots = np.tile(np.arange(most), (len(every), 1))
    for kind, own in enumerate(every):
        slots[kind, : len(own.reads)] = own.alike_slots
    alike = slots[kinds[edges.reader], edges.slot]
    drawn = np.random.default_rng(0).integers(1 << 62, size=(2, n + 1 + most)) | 1
    nodes, places = drawn[:, : n + 1], drawn[:, n + 1 :]
    told = kinds * drawn[0, -1]
    np.add.at(told, edges.reader, nodes[0, np.maximum(edges.made, -1)] * places[0, edges.slot])
    real = edges.made >= 0
    np.add.at(told, edges.made[real], nodes[1, edges.reader[real]] * places[1, alike[real]])
    _, first, of = np.unique(told, return_index=True, return_inverse=True)
    return np.asarray(first[of])
