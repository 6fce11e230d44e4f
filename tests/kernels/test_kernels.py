"""Kernels against the reference: any join, aggregation, tiling, order and mode give the result of the whole einsum."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.aggregations import AGGREGATIONS, aggregation
from einturnip.ir.dtypes import BF16, BOOL, C64, C128, F16, F32, F64, I8, I32, I64, U8, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels import select
from einturnip.kernels.numpy import blocked
from tests.drawn import examples
from tests.reference.einsum import evaluate_einsum

DTYPES = (BOOL, I8, U8, I32, I64, F16, BF16, F32, F64, C64, C128)


def tensor(draw: st.DrawFn, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Small integers (so that sums are exact), in any memory order, perhaps a slice of something larger."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = draw(st.tuples(*[st.sampled_from((1, 1, 1, 2)) for _ in shape]))
    order = draw(st.permutations(range(len(shape))))
    stored = tuple(shape[a] * steps[a] + 1 for a in order)
    values = rng.integers(0 if dtype.kind in "ub" else -3, 4, stored)
    base = (values + 1j * rng.integers(-2, 3, stored) if dtype.kind == "c" else values).astype(dtype.numpy)
    base = base.transpose(np.argsort(order)) if shape else base
    return base[(*(slice(0, n * s, s) for n, s in zip(shape, steps, strict=True)), ...)]


def joins(draw: st.DrawFn, dtypes: tuple[DType, ...], n_labels: int, common: DType) -> Scalar:
    """A random join of the operands in one dtype, with labels as numbers and masks in it."""
    terms: list[Scalar] = [
        ScalarCast(OperandRef(s, d), common) if d != common else OperandRef(s, d) for s, d in enumerate(dtypes)
    ]
    expr = terms[0]
    for term in terms[1:]:
        expr = ScalarCall(draw(st.sampled_from(("add", "mul", "max", "min"))), (expr, term), common)
    match draw(st.integers(0, 3)):
        case 1:
            positions = st.integers(0, n_labels - 1)
            mask = ScalarCall("le", (LabelValue(draw(positions)), LabelValue(draw(positions))), BOOL)
            return ScalarCall("where", (mask, expr, ScalarConst(1, common)), common)
        case 2 if common.is_integer or common.is_float:
            return ScalarCall("add", (expr, ScalarCast(LabelValue(draw(st.integers(0, n_labels - 1))), common)), common)
        case 3:
            return ScalarCall(
                "where", (ScalarCall("eq", (expr, terms[0]), BOOL), terms[-1], ScalarConst(2, common)), common
            )
        case _:
            return expr


@st.composite
def einsums(draw: st.DrawFn, ops: tuple[str | None, ...] = (None, *AGGREGATIONS)) -> Einsum:
    """Small einsums of every kind: any labels on any operand, diagonals, broadcasts, empty ranges."""
    n_labels = draw(st.integers(1, 4))
    op = draw(st.sampled_from(ops))
    n_out = n_labels if op is None else draw(st.integers(0, n_labels))
    bounds = draw(st.tuples(*[st.sampled_from((0, 1, 2, 3, 4, 5, 7)) for _ in range(n_labels)]))
    access = st.lists(st.integers(0, n_labels - 1), max_size=4).map(tuple)
    accesses = draw(st.lists(access, min_size=1, max_size=3).map(tuple))
    common = draw(st.sampled_from((F32, F32, F64, I64, I8, F16, BF16) if op != "prod" else (F64, I64)))
    if op in ("any", "all"):
        common = BOOL
    narrower = (BOOL, I8) if common.is_inexact else (common,)
    dtypes = tuple(draw(st.sampled_from((common, common, *narrower))) for _ in accesses)
    join = joins(draw, dtypes, n_labels, common)
    return Einsum(
        tuple("ijkl"[:n_labels]),
        bounds,
        n_out,
        accesses,
        dtypes,
        join,
        None if op is None else aggregation(op, common),
    )


def run(points: int, einsum: Einsum, extents: tuple[int, ...], mode: str, outs, operands, origins, first=True) -> int:
    """Compile for blocks of ``points`` and call, in a workspace of exactly the stated size whose end is watched."""
    with mock.patch.object(blocked, "BLOCK_POINTS", points):
        kernel = select.compile_tile(einsum, extents, mode)
    workspace = np.full(kernel.workspace_nbytes + 64, 0xA5, np.uint8)
    status = kernel(outs, operands, origins, first, workspace[: kernel.workspace_nbytes])
    assert (workspace[kernel.workspace_nbytes :] == 0xA5).all()
    return status


def check_equal(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found.astype(np.complex128), expected.astype(np.complex128), rtol=1e-5, atol=1e-6)


@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_whole(data: st.DataObject) -> None:
    einsum = data.draw(einsums())
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    out = np.empty(einsum.shape, einsum.dtype.numpy)
    points = data.draw(st.sampled_from((2, 5, 16, 60, 32768)))
    run(points, einsum, einsum.bounds, "full", (out,), operands, (0,) * len(einsum.bounds))
    check_equal(out, evaluate_einsum(einsum, operands)[0])


@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_touches_in_any_order_then_finish(data: st.DataObject) -> None:
    einsum = data.draw(einsums(tuple(AGGREGATIONS)))
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    points = data.draw(st.sampled_from((2, 5, 16, 60, 32768)))
    cuts = [sorted({0, n, data.draw(st.integers(0, n))}) for n in einsum.bounds]
    ranges = [list(itertools.pairwise(c)) or [(0, 0)] for c in cuts]
    out = np.empty(einsum.shape, einsum.dtype.numpy)
    for kept in itertools.product(*ranges[: einsum.n_out]):
        shape = tuple(b - a for a, b in kept)
        padding = data.draw(st.integers(0, 2))
        state = tuple(np.empty((*shape, 1 + padding), d.numpy)[..., 0] for d in einsum.state_dtypes)
        tiles = data.draw(st.permutations(list(itertools.product(*ranges[einsum.n_out :]))))
        for n, folded in enumerate(tiles):
            box = (*kept, *folded)
            cut = tuple(x[(*(slice(*box[p]) for p in a), ...)] for x, a in zip(operands, einsum.accesses, strict=True))
            extents = tuple(b - a for a, b in box)
            run(points, einsum, extents, "accumulate", state, cut, tuple(a for a, _ in box), first=n == 0)
        part = out[(*(slice(*r) for r in kept), ...)]
        extents = (*shape, *einsum.bounds[einsum.n_out :])
        run(points, einsum, extents, "finalize", (part,), state, (0,) * len(einsum.bounds))
    check_equal(out, evaluate_einsum(einsum, operands)[0])


def test_a_kernel_begun_before_all_were_forgotten_is_not_kept() -> None:
    """As when a thread loads machine code while another still makes the same kernel in NumPy."""
    largest = Einsum(tuple("ij"), (5, 7), 1, ((0, 1),), (F32,), OperandRef(0, F32), aggregation("max", F32))
    made, compile_reduce = [], select.compile_reduce

    def overtaken(*arguments):
        made.append(compile_reduce(*arguments))
        select.forget()
        return made[-1]

    select.forget()
    with mock.patch.object(select, "compile_reduce", overtaken):
        first = select.compile_kernel(largest, (5, 7), "full")
    later = [select.compile_kernel(largest, (5, 7), "full") for _ in range(2)]
    assert first is made[0] and later[0] is not first and later[1] is later[0]


def test_one_kernel_on_many_threads() -> None:
    square = ScalarCall("mul", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    product = Einsum(tuple("ijk"), (96, 96, 96), 2, ((0, 2), (2, 1)), (F32, F32), square, aggregation("sum", F32))
    best = Einsum(tuple("ijk"), (96, 96, 96), 2, ((0, 2), (2, 1)), (F32, F32), square, aggregation("max", F32))
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, 96, 96)).astype(np.float32)
    for einsum, expected in ((product, a @ b), (best, (a[:, :, None] * b).max(1))):
        kernel = select.compile_kernel(einsum, einsum.bounds, "full")

        def work(_: int, kernel=kernel, expected=expected) -> bool:
            out, workspace = np.empty((96, 96), np.float32), np.empty(kernel.workspace_nbytes, np.uint8)
            return all(
                kernel((out,), (a, b), (0, 0, 0), True, workspace) == 0 and np.array_equal(out, expected)
                for _ in range(10)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
