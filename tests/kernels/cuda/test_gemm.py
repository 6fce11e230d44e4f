"""Contractions as calls of a matrix library: what the route says is done in NumPy, and must give the contraction."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BF16, C64, F16, F32, F64, I64
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.scalar import OperandRef, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels.cuda.gemm import Gemm, GemmOperand, gemm
from einturnip.kernels.cuda.types import DeviceTile
from einturnip.kernels.expr.window import window
from tests.drawn import examples
from tests.reference.einsum import evaluate_einsum

from ..test_contraction import contractions
from ..test_indices import indexed
from ..test_kernels import tensor
from .drawn import close, parts


def matrix(
    base: np.ndarray, offset: int, at: GemmOperand, rows: int, columns: int, number: int, itemsize: int
) -> np.ndarray:
    """Matrix ``number`` of a batch, as the library would find it."""
    steps = (1, at.leading) if at.transposed else (at.leading, 1)
    flat = as_strided(base, (1 << 20,), (itemsize,))[offset // itemsize + number * at.batch_stride :]
    return as_strided(flat, (rows, columns), tuple(s * itemsize for s in steps))


def multiply(route: Gemm, einsum: Einsum, operands: list[np.ndarray], out: np.ndarray) -> None:
    """Multiply in NumPy as a device does with a route."""
    c = contraction(einsum)
    assert c is not None
    made, bases = (route.left, route.right, route.out), []
    for n, (slot, at) in enumerate(zip((c.left, c.right), made, strict=False)):
        x = operands[slot]
        if at.packed:
            seen = window(x, einsum.accesses[slot], route.pack[n], einsum.bounds)
            x = np.ascontiguousarray(seen.astype(route.product.numpy)).reshape(-1)
        bases.append(x)
    order = route.pack[2]
    shape = [einsum.bounds[p] for p in order]
    bases.append(np.zeros(shape, route.result.numpy).reshape(-1) if route.out.packed else out)
    sizes = ((route.m, route.k), (route.k, route.n), (route.m, route.n))
    for point in product(*(range(extent) for extent, _ in route.outer)):
        moved = [sum(i * steps[n] for i, (_, steps) in zip(point, route.outer, strict=True)) for n in range(3)]
        for b in range(route.batch):
            a, x, y = (matrix(bases[n], moved[n], made[n], *sizes[n], b, bases[n].itemsize) for n in range(3))
            wide = np.result_type(a.dtype, np.float32) if a.dtype.itemsize == 2 else a.dtype
            y[...] = (a.astype(wide) @ x.astype(wide) * np.asarray(route.alpha).astype(wide)).astype(y.dtype)
    if route.out.packed:
        rest = [p for p in range(einsum.n_out) if p not in order]
        axes = [*rest, *order]
        out.transpose(axes)[...] = bases[2].reshape([1] * len(rest) + shape)
    assert route.workspace_nbytes % 256 == 0


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_any_contraction(data: st.DataObject) -> None:
    einsum = data.draw(contractions() if data.draw(st.booleans()) else indexed(("sum",), affine=True))
    operands = [tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes)]
    box = tuple((0, n) for n in einsum.bounds)
    cut = parts(einsum, operands, box)
    out = np.zeros((*einsum.shape, data.draw(st.integers(1, 2))), einsum.dtype.numpy)[..., 0]
    route = gemm(einsum, einsum.bounds, [DeviceTile(x.strides) for x in cut], DeviceTile(out.strides), wide=False)
    if route is None:
        c = contraction(einsum)
        assert c is None or 0 in einsum.bounds or not c.m + c.n or not c.product.is_inexact
        return
    multiply(route, einsum, cut, out)
    close(out, evaluate_einsum(einsum, operands)[0], 2e-2 if einsum.dtype in (F16, BF16) else 1e-5)


def attention(transposed: bool) -> Gemm | None:
    """b h s d, b h t d -> b h s t, heads inside rows where ``transposed``."""
    join = ScalarCall("mul", (OperandRef(0, F16), OperandRef(1, F16)), F16)
    e = Einsum(
        tuple("bhstd"), (2, 3, 32, 48, 64), 4, ((0, 1, 2, 4), (0, 1, 3, 4)), (F16, F16), join, aggregation("sum", F16)
    )
    q, k = (np.zeros((2, n, 3, 64) if transposed else (2, 3, n, 64), np.float16) for n in (32, 48))
    views = [DeviceTile((x.swapaxes(1, 2) if transposed else x).strides) for x in (q, k)]
    return gemm(e, e.bounds, views, DeviceTile(np.zeros((2, 3, 32, 48), np.float16).strides), wide=False)


def test_what_lies_right_is_taken_where_it_lies() -> None:
    route = attention(transposed=False)
    assert route is not None and (route.m, route.n, route.k, route.batch) == (32, 48, 64, 6)
    assert not route.outer and not route.workspace_nbytes
    assert (route.left.transposed, route.right.transposed, route.compute) == (False, True, F32)
    route = attention(transposed=True)
    assert route is not None and (route.batch, route.outer[0][0], route.workspace_nbytes) == (3, 2, 0)
    assert route.left.leading == 3 * 64


def test_whole_numbers_are_left_to_a_kernel() -> None:
    join = ScalarCall("mul", (OperandRef(0, I64), OperandRef(1, I64)), I64)
    e = Einsum(tuple("ijk"), (4, 4, 4), 2, ((0, 2), (2, 1)), (I64, I64), join, aggregation("sum", I64))
    assert gemm(e, e.bounds, [DeviceTile((32, 8))] * 2, DeviceTile((32, 8)), wide=False) is None


def test_operands_of_another_type_are_packed() -> None:
    join = ScalarCall(
        "mul",
        (ScalarConst(2.0, F64), ScalarCall("mul", (ScalarCast(OperandRef(0, F32), F64), OperandRef(1, F64)), F64)),
        F64,
    )
    e = Einsum(tuple("ijk"), (4, 4, 4), 2, ((0, 2), (2, 1)), (F32, F64), join, aggregation("sum", F64))
    route = gemm(e, e.bounds, [DeviceTile((16, 4)), DeviceTile((32, 8))], DeviceTile((32, 8)), wide=False)
    assert route is not None and route.left.packed and not route.right.packed and route.alpha == 2
    assert route.product == F64 and route.workspace_nbytes == 256 and route.compute != C64
