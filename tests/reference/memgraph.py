"""Defines the meaning of a MemGraph: runs its ops over one array of bytes, in any allowed order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, MemGraph, Op, OpKind
from einturnip.memgraph.views import KernelOperands, OpViews
from einturnip.tiling.types import index
from tests.reference.region import combine_spaces, evaluate_space, finalize_space

Array = NDArray[Any]


class _Bytes:
    def __init__(self, nbytes: int) -> None:
        # Filled with ones, so that a byte read before it is written gives a nan or a huge number, never a plausible 0.
        self.data = np.full(nbytes, 0xFF, np.uint8)

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.ndarray(shape, dtype, self.data, offset) if np.prod(shape, dtype=int) else np.empty(shape, dtype)


def evaluate(graph: MemGraph, inputs: Mapping[str, Array], order: Iterable[int] | None = None) -> dict[str, Array]:
    """Return every output by name. ``order``: op ids that respect the dependencies; default: serial order."""
    eingraph = graph.taskgraph.decomposition.graph
    outputs = {n: np.empty(eingraph.nodes[i].shape, eingraph.nodes[i].dtype.numpy) for n, i in eingraph.outputs}
    files = [inputs[n.name] if isinstance(n, InputNode) else None for n in eingraph.nodes]
    files += list(outputs.values())
    views = OpViews(graph, _Bytes(graph.capacity))
    spill = {t: np.full(n, 0xFF, np.uint8) for t, n in ((DISK, graph.spill_nbytes), (HOST, graph.host_nbytes))}
    begun: set[int] = set()
    for i in range(len(graph)) if order is None else order:
        op = graph[i]
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                _kernel(views, op, views.call(i), begun)
            case OpKind.MOVE:
                views.move(op)
            case OpKind.LOAD | OpKind.RELOAD | OpKind.OFFLOAD | OpKind.STORE:
                _transfer(views, op, files, spill)
    return outputs


def _kernel(views: OpViews, op: Op, call: KernelOperands, begun: set[int]) -> None:
    tile, (outs, operands, origins, _, workspace) = call
    e, extents, mode = tile.einsum, tile.extents, tile.mode
    made: tuple[Array, ...]
    if mode == "finalize":
        made = (finalize_space(e, operands),)
    elif mode == "full":
        made = evaluate_space(e, operands, origins, extents)
    else:
        combines = mode == "combine"
        made = operands if combines else evaluate_space(e, operands, origins, extents, "state")
        if op.unit in begun or views.continues(op.unit):
            made = combine_spaces(e, tuple(a.copy() for a in outs), made)
        begun.add(op.unit)
    # Overwrite the workspace, so that a value that overlaps it by mistake is detected.
    workspace[...] = 0xFF
    for out, array in zip(outs, made, strict=True):
        out[...] = array


def _transfer(views: OpViews, op: Op, files: list[Array | None], spill: Mapping[int, Array]) -> None:
    held = op.writes[0] if op.kind in (OpKind.LOAD, OpKind.RELOAD) else op.reads[0]
    far = op.reads[0] if held is op.writes[0] else op.writes[0]
    assert held.tier == COMPUTE
    if far.tier in spill:
        here, there = views.bytes(held.offset, held.nbytes), spill[far.tier][far.offset : far.offset + far.nbytes]
    else:
        region, here = views.transferred(op)
        file = files[far.tier - FILES]
        assert file is not None
        there = file[index(region)]
    if op.kind in (OpKind.LOAD, OpKind.RELOAD):
        here[...] = there
    else:
        there[...] = here
