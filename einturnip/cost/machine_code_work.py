"""Work of machine code: per point the operations of vector lanes or the bytes, whichever takes longer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.cost.kernel_work import ArrayPass, KernelWork
from einturnip.ir.einsum import labels_read
from einturnip.ir.functions import PRICED_AS
from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.llvm.kernel_spec import KernelSpec, full_width
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.tuning.search import BYTE_NS, LANE, PACKED_LANE, STRIP_SLOWDOWN

# Equivalent operations of a function per point, fitted on one AVX-512 core (f32, f64); 1 for all others.
_WEIGHTS = {
    "exp": (27, 40),
    "exp_quiet": (33, 46),
    "expm1": (45, 65),
    "log": (38, 54),
    "log1p": (50, 70),
    "tanh": (55, 80),
    "true_divide": (5, 8),
    "reciprocal": (5, 8),
    "sqrt": (5, 12),
    "first_max": (10, 10),
    "first_min": (10, 10),
    "log_add": (64, 80),
}
_FREE = frozenset({"input", "guarded", "number"})


def native_work(spec: KernelSpec, extents: Sequence[int]) -> KernelWork:
    """Return the work of one tile, in points of NumPy's multiplication."""
    e, extents = spec.einsum, tuple(extents)
    wide = full_width(spec.graph) < 16
    weight = float(sum(_weight(n.op, wide) for n in spec.graph.nodes if n.op not in _FREE))
    if e.aggregation is not None and spec.mode != "finalize":
        weight += _weight(e.aggregation.combine, wide) + 1  # 1 for loading its operand
    if spec.packing is not None:
        weight = _packed_weight(spec)
    outer = math.prod(extents[: e.n_out])
    points = math.prod(extents[: spec.n_labels])
    if spec.mode == "finalize":
        read = outer * sum(d.itemsize for d in e.state_dtypes)
    else:
        read = sum(math.prod(e.operand_extents(k, extents)) * d.itemsize for k, d in enumerate(e.dtypes))
    written = outer * sum(d.itemsize for d in spec.out_dtypes)
    if spec.mode == "accumulate":
        read += written
    if spec.folding and spec.vector < e.n_out and spec.swept < 0 and not spec.is_short:
        along = all(spec.vector in labels_read(access) for access in e.accesses if access)
        read = int(STRIP_SLOWDOWN * read) if along else read
    name = "multiply.float64" if wide else "multiply.float32"
    if spec.is_short:
        lanes = spec.nanoseconds(extents, weight) / (BYTE_NS * (8 if wide else 4))
    else:
        padded = points * max(1.0, spec.width / max(1, extents[spec.vector]))
        lanes = padded * max(1.0, weight) * LANE
    return KernelWork([ArrayPass(name, 0, lanes, 0, read, written)], turns={"call": 1})


def _packed_weight(spec: KernelSpec) -> float:
    """Return the weight of a point in a register tile.

    Multiplications overlap with additions, so the larger count decides; a multiplication followed by an addition is
    one.
    """
    assert spec.packing is not None and spec.einsum.aggregation is not None
    graph = spec.packing.graph
    ops = [graph.graph[n].op for n in reversed(graph.joined)]
    products = sum(op in ("multiply", "square") for op in ops)
    fused = bool(ops) and ops[0] in ("multiply", "square") and spec.einsum.aggregation.is_sum
    return PACKED_LANE * max(products, len(ops) - products + (not fused))


def fused_row_work(row_spec: FusedRowSpec, extents: Sequence[int]) -> KernelWork:
    """Return the work of a fused row kernel over one block, whose operands and results are in the cache."""
    wide, lanes = row_spec.width < 16, 0.0
    rows = math.prod(extents[p] for p in row_spec.rows)
    computed: set[int] = set()
    for stage in row_spec.stages:
        roots = [row_spec.roots[k] for k in (*stage.folds, *stage.stores)]
        ops = [row_spec.graph[k].op for k in reachable_nodes(row_spec.graph, roots) if k not in computed]
        weight = sum(_weight(op, wide) for op in ops if op not in _FREE) + 2 * len(stage.folds) + len(stage.stores) + 1
        inner = math.prod(extents[p] for p in stage.inner)
        if row_spec.vector < 0 and stage.inner:
            inner = max(inner, row_spec.width)
        lanes += rows * inner * weight
        computed.update(node for node, _ in stage.keeps)
    name = "multiply.float64" if wide else "multiply.float32"
    return KernelWork([ArrayPass(name, 0, lanes * LANE, 0)], turns={"call": 1})


def _weight(op: str, wide: bool) -> int:
    return _WEIGHTS.get(op, _WEIGHTS.get(PRICED_AS.get(op, ""), (1, 1)))[wide]
