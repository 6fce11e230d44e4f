"""Gathers: a key's value selects one point of the key's label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from einturnip.ir.dtypes import BOOL
from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler, reachable_nodes
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView
from einturnip.kernels.numpy.blocked import BlockedKernel, BlockedSteps
from einturnip.kernels.numpy.elementwise import store
from einturnip.kernels.numpy.indexed_load import RowLoad
from einturnip.kernels.numpy.join import JoinBuilder, keyed_space

_HITS = 1024  # rows whose hits are computed at once
_BATCH_NBYTES = 8 << 10  # of rows copied at once


@dataclass(frozen=True)
class GatherRows:
    """Copies the rows that the mask selects from a tile to the block; ``first`` clears the others."""

    fetch: RowLoad
    first: bool

    def __call__(self, tile: TileView, *arguments: Any, out: Array) -> None:
        """Gather; arguments: the indices of each axis, the mask, two arrays for positions, one for hits."""
        *indices, mask, at, scratch, hit = arguments
        np.copyto(hit, mask)
        if self.first:
            out.fill(0)
        if not hit.any():
            return
        rows, hits = self.fetch.rows(tile, indices, at, scratch, out), hit.reshape(-1)
        for start in range(0, hits.size, _HITS):
            found = np.flatnonzero(hits[start : start + _HITS])
            found += start
            if not rows.dense or rows.unit > _BATCH_NBYTES:
                rows.copy(found)
                continue
            source, target = rows.runs()
            batch = _BATCH_NBYTES // rows.unit
            for i in range(0, len(found), batch):
                some = found[i : i + batch]
                target[some] = source[rows.at[some]]


def compile_pick(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile a gather, over all values of the keys' labels or over the tile's part of them."""
    out = tuple(range(einsum.n_out))

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        join = JoinBuilder(assembler, einsum, extents)
        hit, value = join.hit(), join.value(einsum.join)
        used = reachable_nodes(join.graph, [value] if hit is None else [value, hit])
        assembler.emit(join.graph, [k for k in (join.key(key.label) for key in einsum.keys) if k not in used])
        if hit is None:
            store(assembler, join.graph, value, out, None)
        else:
            _pick(assembler, join, hit, value, assembler.external("out", 0, einsum.dtype.numpy, out))

    whole = all(extents[k.label] == einsum.bounds[k.label] for k in einsum.keys)
    points = math.prod(extents[: einsum.n_out])
    blocks = partial(keyed_space, einsum)
    return BlockedSteps(blocks, assemble, einsum.accesses, (out,), whole, tile_points=lambda _: points).kernel(extents)


def _pick(assembler: Assembler, join: JoinBuilder, hit: int, value: int, state: int) -> None:
    """Emit the steps for a tile that contains only part of the keys' labels."""
    node, first, later = join.graph[value], assembler.fresh, assembler.fresh + 1
    if isinstance(node.payload, RowLoad) and node.labels == assembler.registers[state].labels:
        *arguments, mask = assembler.emit(join.graph, [*node.arguments, hit])
        scratch = assembler.two_places(node.payload.scratch)
        scratch.append(assembler.slot(BOOL.numpy, node.payload.scratch))
        for section in (first, later):
            run = GatherRows(node.payload, section == first)
            assembler.step(section, run, [*arguments, mask, *scratch], state)
        return
    made, mask = assembler.emit(join.graph, [value, hit])
    for section in (first, later):
        assembler.step(section, copy_hits if section == later else place_hits, (made, mask), state)


def place_hits(value: Array, mask: Array, *, out: Array) -> None:
    """Write the value where the mask is true, zeros elsewhere."""
    out.fill(0)
    copy_hits(value, mask, out=out)


def copy_hits(value: Array, mask: Array, *, out: Array) -> None:
    """Write the value where the mask is true."""
    np.copyto(out, value, where=mask)
