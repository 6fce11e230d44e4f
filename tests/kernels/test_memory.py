"""Kernels allocate next to nothing, and their workspace is small whatever the tile."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, DType
from einturnip.ir.einsum import Access, Einsum, Index
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels.select import compile_kernel

X, Y = OperandRef(0, F32), OperandRef(1, F32)
PRODUCT, GAP = ScalarCall("mul", (X, Y), F32), ScalarCall("sub", (X, Y), F32)
SQUARE = ScalarCall("pow", (GAP, ScalarConst(2, F32)), F32)
MASKED = ScalarCall("where", (ScalarCall("le", (LabelValue(1), LabelValue(0)), BOOL), X, ScalarConst(0, F32)), F32)
CHOSEN = ScalarCall("where", (ScalarCall("gt", (X, Y), BOOL), X, Y), F32)
HALF = ScalarCall("gelu", (ScalarCall("add", (OperandRef(0, F16), OperandRef(1, F16)), F16),), F16)
WIDE = ScalarCall("mul", (OperandRef(0, BF16), OperandRef(1, BF16)), BF16)
JOIN_I8 = ScalarCall("mul", (OperandRef(0, I8), OperandRef(1, I8)), I8)
SILU = ScalarCall("silu", (X,), F32)
SILU64 = ScalarCall("silu", (ScalarCast(GAP, F64),), F64)
IK, JK, KJ, IJ, JI = (0, 2), (1, 2), (2, 1), (0, 1), (1, 0)

CASES: list[tuple[str, Scalar, tuple[tuple[int, ...], ...], DType, str | None, tuple[int, ...]]] = [
    ("elementwise", CHOSEN, (IJ, IJ), F32, None, (900, 1100)),
    ("mask", MASKED, (IJ,), F32, None, (900, 1100)),
    ("transposed", GAP, (IJ, JI), F32, None, (900, 1100)),
    ("f16", HALF, (IJ, IJ), F16, None, (500, 600)),
    ("f64", SILU64, (IJ, JI), F32, None, (500, 600)),
    *[(op, X, (IJ,), F32, op, (900, 1100)) for op in ("max", "logsumexp", "argmax", "mean")],
    ("argmax over two", X, ((1, 0, 2),), F32, "argmax", (20, 90, 300)),
    ("sum of f16", OperandRef(0, F16), (IJ,), F16, "sum", (900, 700)),
    ("max of bf16", OperandRef(0, BF16), (IJ,), BF16, "max", (900, 700)),
    ("any", OperandRef(0, BOOL), (IJ,), BOOL, "any", (900, 700)),
    ("i8", JOIN_I8, (IK, KJ), I8, "sum", (150, 140, 130)),
    ("quadratic", SQUARE, (IK, JK), F32, "sum", (200, 210, 220)),
    ("min-plus", ScalarCall("add", (X, Y), F32), (IK, KJ), F32, "min", (200, 210, 220)),
    ("gemm", PRODUCT, (IK, KJ), F32, "sum", (900, 910, 920)),
    ("gemm bf16", WIDE, (IK, KJ), BF16, "sum", (900, 910, 920)),
    ("batched", PRODUCT, ((0, 3, 1), (3, 0, 2)), F32, "sum", (8, 210, 220, 230)),
]


@pytest.mark.parametrize(
    ("join", "accesses", "dtype", "op", "bounds"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.parametrize("mode", ["full", "accumulate"])
def test_nothing_is_allocated(
    join: Scalar,
    accesses: tuple[tuple[int, ...], ...],
    dtype: DType,
    op: str | None,
    bounds: tuple[int, ...],
    mode: str,
) -> None:
    if mode == "accumulate" and op is None:
        return
    n_out = len(bounds) if op is None else (3 if len(bounds) == 4 else 1 if len(bounds) == 2 or "arg" in op else 2)
    labels = tuple("ijkl"[: len(bounds)])
    aggregated = None if op is None else aggregation(op, join.dtype)
    einsum = Einsum(labels, bounds, n_out, accesses, (dtype,) * len(accesses), join, aggregated)
    kernel = compile_kernel(einsum, bounds, mode)
    assert kernel.workspace_nbytes <= 8 << 20
    operands = tuple(np.ones(einsum.operand_shape(s), dtype.numpy) for s in range(len(accesses)))
    types = (einsum.dtype,) if mode == "full" else einsum.state_dtypes
    outs = tuple(np.zeros(einsum.shape, d.numpy) for d in types)
    workspace = np.empty(kernel.workspace_nbytes, np.uint8)
    origins = (0,) * len(bounds)
    kernel(outs, operands, origins, True, workspace)
    tracemalloc.start()
    kernel(outs, operands, origins, mode == "full", workspace)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 10


U, V = 0, 1
INDEXED: list[tuple[str, Access, tuple[int, ...], tuple[int, ...]]] = [
    ("merged", (Index(((U, 1),), 0, 50), Index(((U, 1),), 0, 1, 50), V), (20, 50, 900), (1000, 900)),
    ("split", (V, Index(((U, 30), (2, 1)))), (300, 1200), (40, 300, 30)),
    ("repeated", (Index(((U, 1),), 0, 2), Index(((V, 1),), 0, 3)), (450, 400), (900, 1200)),
    ("padded", (Index(((U, 1),), -1, clamped=True), Index(((V, 1),), -2, clamped=True)), (900, 900), (902, 904)),
    ("positions", (Index(((U, 1), (V, 2)), 0, 3), Index(((U, 1),), 0, 1, 7)), (900, 7), (900, 900)),
    ("window", (Index(((U, 1), (V, 1))),), (1900,), (900, 1001)),
]


@pytest.mark.parametrize(("access", "shape", "bounds"), [c[1:] for c in INDEXED], ids=[c[0] for c in INDEXED])
@pytest.mark.parametrize("join", [X, SILU], ids=["copy", "silu"])
def test_nothing_is_allocated_for_indices(
    join: Scalar, access: Access, shape: tuple[int, ...], bounds: tuple[int, ...]
) -> None:
    einsum = Einsum(tuple("uvw"[: len(bounds)]), bounds, len(bounds), (access,), (F32,), join, None, (shape,))
    extents, origins = tuple(n - 5 for n in bounds), tuple(3 for _ in bounds)
    kernel = compile_kernel(einsum, extents, "full")
    assert kernel.workspace_nbytes <= 2 << 20
    box = [(a, a + n) for a, n in zip(origins, extents, strict=True)]
    operand = np.ones([hi - lo for lo, hi in einsum.operand_box(0, box)], np.float32)
    out, workspace = np.empty(extents, np.float32), np.empty(kernel.workspace_nbytes, np.uint8)
    kernel((out,), (operand,), origins, True, workspace)
    tracemalloc.start()
    kernel((out,), (operand,), origins, True, workspace)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 10  # tuples and views, which Python keeps for the next ones


@pytest.mark.parametrize("n", [100, 400, 1600])
def test_workspace_does_not_grow_with_the_tile(n: int) -> None:
    einsum = Einsum(("i", "j", "k"), (n, n, n), 2, (IK, JK), (F32, F32), SQUARE, aggregation("sum", F32))
    assert compile_kernel(einsum, (n, n, n), "full").workspace_nbytes <= 1 << 20
    for dtype in (F32, BF16):
        product = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
        einsum = Einsum(("i", "j", "k"), (n, n, n), 2, (IK, JK), (dtype, dtype), product, aggregation("sum", dtype))
        for mode in ("full", "accumulate"):
            assert compile_kernel(einsum, (n, n, n), mode).workspace_nbytes <= 8 << 20


def test_kernels_are_kept_by_value() -> None:
    a = Einsum(("i", "j"), (5, 6), 1, (IJ,), (F32,), X, aggregation("sum", F32))
    b = Einsum(("row", "column"), (5, 6), 1, (IJ,), (F32,), X, aggregation("sum", F32))
    assert compile_kernel(a, (5, 6), "full") is compile_kernel(b, (5, 6), "full")
    assert compile_kernel(a, (5, 6), "full") is not compile_kernel(a, (5, 5), "full")
