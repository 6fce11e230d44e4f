"""Decides which einsums become machine code, and chooses the vector label and the register tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from einturnip.ir.dtypes import F32, I64, DType
from einturnip.ir.einsum import Access, Einsum, IdentityCache, Index, labels_read
from einturnip.ir.scalar import Scalar
from einturnip.kernels.expr.fold import finalized, value_type
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.guard import guarded
from einturnip.kernels.expr.lower import lower
from einturnip.kernels.expr.window import is_affine, terms
from einturnip.kernels.llvm.block_sizes import block_sizes
from einturnip.kernels.llvm.pack_plan import is_smooth, packed
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.primitives import COMPARING, is_known
from einturnip.kernels.llvm.short_vectors import OPERATION_NS, LoopWork, short_vectors
from einturnip.kernels.protocol import Mode

STREAMED_NBYTES = 4 << 20  # of a tile's result, from which on its stores bypass the caches, which could not keep it
# Aggregations of ``llvm/folds.py``; NumPy computes the others.
_COMBINES = frozenset({"add", "mul", "max", "min", "or", "and", "first_max", "first_min", "log_add"})
_MAX_NODES = 160  # of a join's graph; NumPy computes larger joins
_MIN_VECTOR = 8  # minimum points along the vector label
_SWEPT = 8  # rows folded at once in a sweep: reads 37 GB/s, folding by columns 14
_MIN_SWEPT = 256  # minimum outputs in a row for a sweep
_MIN_LINE = 32  # minimum bytes of a vector for non-temporal stores
_CACHED_SPECS = 1024
_TILE_SIDE = 4  # points of a label along which a register tile reuses what it loads


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """All that a kernel's code depends on: no extents, and no strides but those of one element.

    ``vector``: the label along which vectors are; -1 for a scalar computed from scalars. ``tile``: (label, count) of
    the register tile, the vector label last; its count is in vectors. ``crossed``: operands that are contiguous along
    the first label of the tile instead, which are transposed in registers. ``strided``: tensors (operands, then
    outputs) whose vectors are elements at a stride, moved one by one. ``swept``: the label that is folded a few points
    at a time over all outputs, -1 where each output is folded at once. ``repeatable``: a call may start again from the
    beginning. ``compares``: INVALID may come from a comparison with NaN. ``packing``: the code to compile instead,
    where each operand serves a whole register tile. ``blocks``: by aggregated label, outermost first, the sizes of
    blocks of partial sums in steps. ``streams``: the result is so large that it bypasses the cache.
    """

    einsum: Einsum
    mode: Mode
    graph: PrimitiveGraph
    root: int
    vector: int
    width: int
    tile: tuple[tuple[int, int], ...]
    crossed: frozenset[int]
    strided: frozenset[int]
    repeatable: bool
    compares: bool
    swept: int = -1
    packing: PackedSpec | None = None
    blocks: tuple[tuple[int, ...], ...] = ()
    streams: bool = False

    @property
    def is_short(self) -> bool:
        """Whether vectors are short or strided: loads and starts of loops take most of the time."""
        return bool(self.strided) or self.width < full_width(self.graph)

    @property
    def n_labels(self) -> int:
        """Labels of the iteration space."""
        return self.einsum.n_out if self.mode == "finalize" else len(self.einsum.labels)

    @property
    def operand_dtypes(self) -> tuple[DType, ...]:
        """Types of the tensors that are read."""
        return self.einsum.state_dtypes if self.mode == "finalize" else self.einsum.dtypes

    @property
    def out_dtypes(self) -> tuple[DType, ...]:
        """Types of the tensors that are written."""
        return self.einsum.state_dtypes if self.mode == "accumulate" else (self.einsum.dtype,)

    @cached_property
    def guards(self) -> tuple[tuple[int, int, Index], ...]:
        """The guarded axes of operands: slot, axis, and the index, which may be outside the axis."""
        read = enumerate(self.einsum.accesses if self.mode != "finalize" else ())
        axes = [(slot, axis, p) for slot, access in read for axis, p in enumerate(access)]
        return tuple([(slot, axis, p) for slot, axis, p in axes if isinstance(p, Index) and p.clamped])

    @property
    def folding(self) -> bool:
        """Whether values are aggregated."""
        return self.einsum.aggregation is not None and self.mode != "finalize"

    @property
    def walked(self) -> tuple[int, ...]:
        """The aggregated labels in loop order, outermost first; the vector label is the innermost."""
        return walked(self.einsum, self.vector)

    def nanoseconds(self, extents: Sequence[int], weight: float) -> float:
        """Return the estimated time of a tile whose data is cached.

        ``weight``: operations of a vector's arithmetic.
        """
        work = _loop_work(self.einsum, self.mode, extents[: self.n_labels], weight)
        return OPERATION_NS * work.operations(self.vector, self.width, dict(self.tile))

    def without_extents(self) -> KernelSpec:
        """Return the spec without the sizes that its code does not depend on."""
        return replace(self, einsum=without_extents(self.einsum))


_by_identity = IdentityCache[KernelSpec | None](_CACHED_SPECS)


def kernel_spec(einsum: Einsum, mode: Mode) -> KernelSpec | None:
    """Return an einsum's kernel spec, the same object each time; None where NumPy computes it."""
    return _by_identity.get(
        einsum, mode, lambda: _kernel_spec(replace(einsum, labels=("",) * len(einsum.labels)), mode)
    )


@lru_cache(maxsize=_CACHED_SPECS)
def _kernel_spec(einsum: Einsum, mode: Mode) -> KernelSpec | None:
    aggregation = einsum.aggregation
    if mode == "combine" or (mode == "finalize" and aggregation is None):
        return None
    if einsum.keys or not all(map(_is_strided_where_inside, einsum.accesses)):
        return None
    if aggregation is not None and aggregation.combine not in _COMBINES:
        return None
    graph, root = _join(einsum, mode)
    if graph is None or len(graph.nodes) > _MAX_NODES or not all(is_known(graph, node) for node in graph.nodes):
        return None
    types = [*einsum.dtypes, einsum.dtype, *einsum.state_dtypes]
    if any(d.kind == "c" or d.name == "bf16" for d in types):
        return None
    n_labels = einsum.n_out if mode == "finalize" else len(einsum.labels)
    packing = packed(einsum) if mode != "finalize" and _is_simple(einsum) else None
    vector, crossed, across = _vector_label(einsum, mode, n_labels), frozenset[int](), -1
    if packing is not None:
        vector = einsum.n_out - 1
    if vector is None and aggregation is None:
        crossed, across = _crossed(einsum, einsum.n_out - 1)
    width = full_width(graph)
    strided = frozenset[int]()
    if vector is None and not crossed:
        work = _loop_work(einsum, mode, einsum.bounds[:n_labels], len(graph.nodes))
        vector, width, strided = short_vectors(work, width)
    vector = einsum.n_out - 1 if vector is None else vector
    compares = any(node.op in COMPARING for node in graph.nodes)
    folding = aggregation is not None and mode != "finalize"
    if folding and aggregation is not None:
        compares = compares or aggregation.idempotent or aggregation.scaled
    repeatable = mode != "accumulate" or aggregation is None or aggregation.idempotent
    is_short = bool(strided) or vector < 0 or einsum.bounds[vector] < _MIN_VECTOR
    tile = ((across, width), (vector, 1)) if crossed else _tile(einsum, mode, vector, is_short)
    swept = _swept(einsum, mode, tile, vector) if packing is None and not is_short else -1
    tile = ((swept, _SWEPT), *tile) if swept >= 0 else tile
    blocks = _blocks_of_sums(einsum, vector, width, tile) if folding else ()
    nbytes = einsum.dtype.itemsize
    streams = not folding and math.prod(einsum.shape) * nbytes >= STREAMED_NBYTES and width * nbytes >= _MIN_LINE
    return KernelSpec(
        einsum,
        mode,
        graph,
        root,
        vector,
        width,
        tile,
        crossed,
        strided,
        repeatable,
        compares,
        swept,
        packing,
        blocks,
        streams and not strided,
    )


def full_width(graph: PrimitiveGraph) -> int:
    """Return the lanes of the widest vectors of a join's values."""
    sizes = [node.dtype.itemsize for node in graph.nodes if node.dtype != I64]
    return 16 if max(sizes, default=I64.itemsize) <= F32.itemsize else 8


def _loop_work(einsum: Einsum, mode: Mode, extents: Sequence[int], weight: float) -> LoopWork:
    out: Access = tuple(range(einsum.n_out))
    states = (out,) * (1 if einsum.aggregation is None else len(einsum.state_dtypes))
    operands = states if mode == "finalize" else tuple(einsum.accesses)
    points = [max(1, n) for n in extents]
    return LoopWork(operands, states if mode == "accumulate" else (out,), points, einsum.n_out, weight)


def without_extents(einsum: Einsum) -> Einsum:
    """Return an einsum of size 0, except along labels whose values the aggregation counts."""
    aggregation = einsum.aggregation
    counts = aggregation is not None and (aggregation.indexed or aggregation.row.finalize_reads_count)
    bounds = tuple(n if counts and p in einsum.aggregated else 0 for p, n in enumerate(einsum.bounds))
    return replace(einsum, labels=("",) * len(einsum.labels), bounds=bounds, shapes=())


def walked(einsum: Einsum, vector: int) -> tuple[int, ...]:
    """Return the aggregated labels in loop order, outermost first; the vector label is the innermost."""
    labels = tuple(p for p in einsum.aggregated if p != vector)
    return (*labels, vector) if vector >= einsum.n_out else labels


def _blocks_of_sums(
    einsum: Einsum, vector: int, width: int, tile: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of blocks of partial sums, in steps, of each aggregated label in loop order."""
    labels = walked(einsum, vector)
    if einsum.aggregation is None or not einsum.aggregation.rounds:
        return ((),) * len(labels)
    lanes = {p: n * (width if p == vector else 1) for p, n in tile}
    return tuple(block_sizes([-(-einsum.bounds[p] // lanes.get(p, 1)) for p in labels]))


def _is_strided_where_inside(access: Access) -> bool:
    """Return whether an access is affine at all points where no index is clamped."""
    return is_affine(tuple([replace(p, clamped=False) if isinstance(p, Index) else p for p in access]))


class _Leaves:
    """Leaves of a join's graph: operands are inputs numbered by slot.

    ``unguarded``: whether a clamped index is read without a guard, so that the end of its axis is repeated.
    """

    def __init__(self, graph: PrimitiveGraph, einsum: Einsum) -> None:
        self.graph, self.einsum, self.unguarded = graph, einsum, False

    def operand(self, slot: int) -> int:
        self.unguarded = self.unguarded or not is_affine(self.einsum.accesses[slot])
        return self.graph.input(slot, self.einsum.dtypes[slot], labels_read(self.einsum.accesses[slot]))

    def label(self, position: int) -> int:
        return self.graph.iota(position)

    def guarded(self, expr: Scalar) -> int | None:
        found = guarded(self.einsum, expr)
        if found is None:
            return None
        slot, fill = found
        node, read = lower(self.graph, fill, self), labels_read(self.einsum.accesses[slot])
        return self.graph.guarded(slot, self.einsum.dtypes[slot], read, node)


def _join(einsum: Einsum, mode: Mode) -> tuple[PrimitiveGraph | None, int]:
    graph = PrimitiveGraph()
    if mode == "finalize":
        out = range(einsum.n_out)
        return graph, finalized(graph, einsum, [graph.input(i, d, out) for i, d in enumerate(einsum.state_dtypes)])
    leaves = _Leaves(graph, einsum)
    root = lower(graph, einsum.join, leaves)
    if leaves.unguarded:
        return None, 0
    return graph, graph.convert(root, value_type(einsum.aggregation)) if einsum.aggregation is not None else root


def _vector_label(einsum: Einsum, mode: Mode, n_labels: int) -> int | None:
    """Return a label along which each tensor is contiguous or constant; None if there is none.

    Long labels are preferred, then the output's last.
    """
    found = []
    last = einsum.n_out - 1
    for p in range(n_labels):
        if p < einsum.n_out and p != last:
            continue  # results would be scattered
        operands = () if mode == "finalize" else einsum.accesses
        if einsum.bounds[p] >= _MIN_VECTOR and all(is_smooth(access, p) for access in operands):
            found.append(p)
    return max(found, key=lambda p: (einsum.bounds[p] >= 64, p == last, einsum.bounds[p]), default=None)


def _crossed(einsum: Einsum, vector: int) -> tuple[frozenset[int], int]:
    """Return the operands that are contiguous along one other output label, and that label; else -1."""
    found = [slot for slot, access in enumerate(einsum.accesses) if not is_smooth(access, vector)]
    inner = {terms(einsum.accesses[slot][-1]) for slot in found}
    ((label, step),) = next(iter(inner)) if len(inner) == 1 and len(next(iter(inner))) == 1 else ((-1, 0),)
    good = step == 1 and label != vector and min(einsum.bounds[label], einsum.bounds[vector]) >= _MIN_VECTOR
    if not good or not all(is_smooth(einsum.accesses[slot], label) for slot in found):
        return frozenset(), -1
    return frozenset(found), label


def _swept(einsum: Einsum, mode: Mode, tile: tuple[tuple[int, int], ...], vector: int) -> int:
    """Return the last folded label if it can be swept, else -1.

    A sweep needs vectors along the output, no value shared by two outputs, and partial results that are the state
    itself.
    """
    if mode == "finalize" or vector >= einsum.n_out or len(tile) > 1 or not _is_simple(einsum):
        return -1
    return len(einsum.labels) - 1 if einsum.bounds[vector] >= _MIN_SWEPT and not einsum.keys else -1


def _is_simple(einsum: Einsum) -> bool:
    """Return whether the partial result of a fold has the result's own type and meaning."""
    aggregation = einsum.aggregation
    if aggregation is None or not aggregation.finalize_is_identity:
        return False
    return aggregation.state[0] == value_type(aggregation) == einsum.dtype


def _tile(einsum: Einsum, mode: Mode, vector: int, is_short: bool) -> tuple[tuple[int, int], ...]:
    """Return the register tile: the vector label, and up to two labels that reuse loaded values."""
    aggregation = einsum.aggregation
    if mode == "finalize" or aggregation is None:
        return ((vector, 1),) if vector >= 0 else ()
    heavy = len(aggregation.state) > 1
    outputs = [p for p in range(einsum.n_out) if p != vector and einsum.bounds[p] >= (2 if is_short else _TILE_SIDE)]
    reused = [p for p in outputs if any(p not in labels_read(a) for a in einsum.accesses if a)]
    reused = sorted(reused, key=lambda p: -einsum.bounds[p])
    if is_short:  # the shortest labels, so that the loops over long ones, which read other memory, are outside
        sides = [(p, min(einsum.bounds[p], _TILE_SIDE)) for p in sorted(reused[::-1][: 1 if heavy else 2])]
        return (*sides, (vector, 1))
    if vector < einsum.n_out:
        return (*((p, 4) for p in reused[:1]), (vector, 1 if heavy else 2 if reused else 4))
    if len(reused) >= 2:
        return (*((p, 2 if heavy else 4) for p in sorted(reused[:2])), (vector, 1))
    return ((vector, 1 if heavy else 4),) if not reused else ((reused[0], 4), (vector, 1))
