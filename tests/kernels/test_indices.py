"""Indices beyond labels against the reference: affine, divided, wrapped and clamped ones, on any tile of the space."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.aggregations import AGGREGATIONS, aggregation
from einturnip.ir.dtypes import BF16, BOOL, C64, F16, F32, F64, I8, I64, DType
from einturnip.ir.einsum import Access, Einsum, Index
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarConst
from einturnip.kernels import select
from einturnip.kernels.blas import cblas
from einturnip.kernels.blas.contraction import ContractionKernel
from tests.drawn import examples
from tests.reference.einsum import combine_states, evaluate_einsum

from .test_contraction import forced
from .test_kernels import check_equal, joins, run, tensor

LANGUAGE = tuple(op for op in AGGREGATIONS if op != "pick")


@st.composite
def indices(draw: st.DrawFn, bounds: tuple[int, ...], affine: bool) -> tuple[int | Index, int]:
    """An axis of an access and the size of its tensor there."""
    labels = draw(st.lists(st.integers(0, len(bounds) - 1), max_size=2, unique=True).map(sorted))
    if len(labels) == 1 and draw(st.booleans()):
        return labels[0], bounds[labels[0]]
    coefficients = st.sampled_from((1, 1, 1, -1, 2, -3))
    index = Index(tuple((p, draw(coefficients)) for p in labels), draw(st.integers(-3, 3)))
    if not affine:
        divisor, modulus = draw(st.sampled_from((1, 2, 3, 4))), draw(st.sampled_from((0, 0, 1, 2, 3)))
        index = replace(index, divisor=divisor, modulus=modulus, clamped=draw(st.booleans()))
    lo, hi = index.interval([(0, n) for n in bounds], 5)
    if index.clamped:
        return index, 5
    if not index.modulus:
        index = replace(index, offset=index.offset - lo * index.divisor)
        lo, hi = 0, hi - lo
    return index, hi + draw(st.integers(0, 2))


@st.composite
def indexed(draw: st.DrawFn, ops: tuple[str | None, ...], affine: bool = False) -> Einsum:
    """Small einsums whose operands are read through any static index."""
    n_labels = draw(st.integers(1, 4))
    op = draw(st.sampled_from(ops))
    n_out = n_labels if op is None else draw(st.integers(0, n_labels))
    bounds = draw(st.tuples(*[st.sampled_from((0, 1, 2, 3, 4, 5, 7)) for _ in range(n_labels)]))
    axes = st.lists(indices(bounds, affine), max_size=3).map(tuple)
    operands = draw(st.lists(axes, min_size=1, max_size=3).map(tuple))
    common = draw(st.sampled_from((F32, F32, F64, I64, I8, F16, BF16) if op != "prod" else (F64, I64)))
    if op in ("any", "all"):
        common = BOOL
    dtypes = tuple(common for _ in operands)
    return Einsum(
        tuple("ijkl"[:n_labels]),
        bounds,
        n_out,
        tuple(tuple(p for p, _ in axes) for axes in operands),
        dtypes,
        joins(draw, dtypes, n_labels, common),
        None if op is None else aggregation(op, common),
        tuple(tuple(n for _, n in axes) for axes in operands),
    )


def cut(einsum: Einsum, operands: tuple[np.ndarray, ...], box: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, ...]:
    """Each operand's part for a box of the label space."""
    return tuple(x[(*(slice(*r) for r in einsum.operand_box(s, box)), ...)] for s, x in enumerate(operands))


def check_tiles(data: st.DataObject, einsum: Einsum, operands: tuple[np.ndarray, ...]) -> None:
    """Cut every label in two, run each tile's kernel, and compare with what the whole einsum means."""
    points = data.draw(st.sampled_from((2, 5, 16, 60, 32768)))
    cuts = [sorted({0, n, data.draw(st.integers(0, n))}) for n in einsum.bounds]
    ranges = [list(itertools.pairwise(c)) or [(0, 0)] for c in cuts]
    touched = einsum.aggregation is not None and data.draw(st.booleans())
    if einsum.aggregation is not None and not touched:
        ranges[einsum.n_out :] = [[(0, n)] for n in einsum.bounds[einsum.n_out :]]
    out = np.empty(einsum.shape, einsum.dtype.numpy)
    for kept in itertools.product(*ranges[: einsum.n_out]):
        shape = tuple(b - a for a, b in kept)
        part = out[(*(slice(*r) for r in kept), ...)]
        padding = data.draw(st.integers(0, 2))
        state = tuple(np.full((*shape, 1 + padding), 77, d.numpy)[..., 0] for d in einsum.state_dtypes)
        tiles = list(itertools.product(*ranges[einsum.n_out :]))
        for n, folded in enumerate(data.draw(st.permutations(tiles)) if len(tiles) < 9 else tiles):
            box = (*kept, *folded)
            extents, origins = tuple(b - a for a, b in box), tuple(a for a, _ in box)
            mode, outs = ("accumulate", state) if touched else ("full", (part,))
            run(points, einsum, extents, mode, outs, cut(einsum, operands, box), origins, first=n == 0)
        if touched:
            extents = (*shape, *einsum.bounds[einsum.n_out :])
            run(points, einsum, extents, "finalize", (part,), state, (0,) * len(einsum.bounds))
    check_equal(out, evaluate_einsum(einsum, operands)[0])


@pytest.mark.parametrize("affine", [True, False])
@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_any_static_index(affine: bool, data: st.DataObject) -> None:
    einsum = data.draw(indexed((None, None, *LANGUAGE), affine))
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    check_tiles(data, einsum, operands)


def index_value(index: Index) -> Scalar:
    """An index as a number, before it is clamped."""
    total: Scalar = ScalarConst(index.offset, I64)
    for p, c in index.terms:
        total = ScalarCall("add", (total, ScalarCall("mul", (LabelValue(p), ScalarConst(c, I64)), I64)), I64)
    return ScalarCall("floordiv", (total, ScalarConst(index.divisor, I64)), I64) if index.divisor > 1 else total


@st.composite
def padded(draw: st.DrawFn) -> Einsum:
    """Guarded reads, most of them by just the guard that clamping needs."""
    bounds = draw(st.tuples(*[st.sampled_from((1, 3, 6)) for _ in range(draw(st.integers(1, 3)))]))
    access: list[int | Index] = []
    shape = []
    join: Scalar = OperandRef(0, F32)
    for p, bound in enumerate(bounds):
        if draw(st.integers(0, 3)) == 0:
            access.append(p)
            shape.append(bound)
            continue
        size, c = draw(st.integers(1, 5)), draw(st.sampled_from((1, 1, -1, 2)))
        index = Index(((p, c),), draw(st.integers(-3, 6)), draw(st.sampled_from((1, 1, 2))) if abs(c) == 1 else 1)
        low, high = draw(st.sampled_from(((0, 0),) * 3 + ((0, 1), (-1, 0), (1, 0))))
        value = index_value(index)
        above = ScalarCall("ge", (value, ScalarConst(low, I64)), BOOL)
        below = ScalarCall("lt", (value, ScalarConst(size + high, I64)), BOOL)
        join = ScalarCall(
            "where",
            (ScalarCall("and", (above, below), BOOL), join, ScalarConst(draw(st.sampled_from((9, 9, 8))), F32)),
            F32,
        )
        access.append(replace(index, clamped=True))
        shape.append(size)
    order = draw(st.permutations(range(len(bounds))))
    read, stored = tuple(access[p] for p in order), tuple(shape[p] for p in order)
    return Einsum(tuple("ijk"[: len(bounds)]), bounds, len(bounds), (read,), (F32,), join, None, (stored,))


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_padding(data: st.DataObject) -> None:
    einsum = data.draw(padded())
    check_tiles(data, einsum, (tensor(data.draw, einsum.operand_shape(0), F32),))


def test_padding_is_a_copy() -> None:
    einsum = Einsum(
        ("i",), (6,), 1, ((Index(((0, 1),), -1, clamped=True),),), (F32,), OperandRef(0, F32), None, ((4,),)
    )
    value = index_value(Index(((0, 1),), -1))
    inside = ScalarCall(
        "and",
        (ScalarCall("ge", (value, ScalarConst(0, I64)), BOOL), ScalarCall("lt", (value, ScalarConst(4, I64)), BOOL)),
        BOOL,
    )
    einsum = replace(einsum, join=ScalarCall("where", (inside, OperandRef(0, F32), ScalarConst(7.0, F32)), F32))
    kernel = select.compile_kernel(einsum, (6,), "full")
    out = np.empty(6, np.float32)
    assert kernel.workspace_nbytes == 0
    kernel((out,), (np.arange(4, dtype=np.float32),), (0,), True, np.empty(0, np.uint8))
    assert out.tolist() == [7, 0, 1, 2, 3, 7]


@st.composite
def convolutions(draw: st.DrawFn) -> Einsum:
    """Products of two operands summed over what both have, labels joined into affine indices at will."""
    n_labels = draw(st.integers(2, 6))
    bounds = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5)) for _ in range(n_labels)]))
    roles = sorted((draw(st.sampled_from("bmnkk")) for _ in range(n_labels - 1)), key="bmnk".index) + ["k"]
    accesses: list[Access] = []
    shapes = []
    for side in ("bmk", "bnk"):
        labels = draw(st.permutations([p for p, r in enumerate(roles) if r in side]))
        access: list[int | Index] = []
        while labels:
            taken = sorted(labels[: draw(st.sampled_from((1, 1, 2, 3)))])
            labels = labels[len(taken) :]
            terms = tuple((p, draw(st.sampled_from((1, 1, -1, 2)))) for p in taken)
            least = sum(min(0, c * (bounds[p] - 1)) for p, c in terms)
            access.append(taken[0] if terms == ((taken[0], 1),) else Index(terms, -least))
        if draw(st.booleans()):
            access.insert(draw(st.integers(0, len(access))), Index((), 0))
        accesses.append(tuple(access))
        box = [(0, n) for n in bounds]
        shapes.append(tuple(bounds[p] if isinstance(p, int) else p.interval(box, 0)[1] for p in access))
    dtype = draw(st.sampled_from((F32, F64, C64, F16)))
    join = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
    n_out = n_labels - roles.count("k")
    names = tuple("abcdef"[:n_labels])
    added = aggregation("sum", dtype)
    return Einsum(names, bounds, n_out, (accesses[0], accesses[1]), (dtype,) * 2, join, added, tuple(shapes))


@pytest.mark.parametrize("library", ["cblas", "numpy"])
@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_convolutions_by_products(library: str, data: st.DataObject) -> None:
    einsum = data.draw(convolutions())
    panel, result = data.draw(st.sampled_from(((1 << 20, 1 << 20), (128, 64), (64, 256))))
    lookup = cblas._functions if library == "cblas" else lambda dtype: None
    with mock.patch.object(cblas, "_functions", lookup):
        kernel = forced(einsum, einsum.bounds, False, panel, result)
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    out = tensor(data.draw, einsum.shape, einsum.state_dtypes[0])
    expected = combine_states(einsum, (out.copy(),), evaluate_einsum(einsum, operands, mode="state"))
    workspace = np.full(kernel.workspace_nbytes + 64, 0xA5, np.uint8)
    kernel((out,), operands, (0,) * len(einsum.bounds), False, workspace[: kernel.workspace_nbytes])
    assert (workspace[kernel.workspace_nbytes :] == 0xA5).all()
    check_equal(out, expected[0])


def convolution(b: int, c: int, n: int, o: int, w: int, dtype: DType = F32) -> Einsum:
    """Y[b, o, i, j] = sum[c, p, q] X[b, c, i+p, j+q] * W[o, c, p, q]."""
    m = n - w + 1
    image: Access = (0, 4, Index(((2, 1), (5, 1))), Index(((3, 1), (6, 1))))
    join = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
    shapes = (b, c, n, n), (o, c, w, w)
    added = aggregation("sum", dtype)
    return Einsum(tuple("boijcpq"), (b, o, m, m, c, w, w), 4, (image, (1, 4, 5, 6)), (dtype,) * 2, join, added, shapes)


def test_an_image_is_convolved_by_few_products() -> None:
    einsum = convolution(2, 16, 50, 32, 3)
    kernel = select.compile_kernel(einsum, einsum.bounds, "full", by_blas=True)
    assert isinstance(kernel, ContractionKernel) and kernel.workspace_nbytes <= 2 << 20
    (bound,) = kernel.plans.values()
    turns = np.prod([-(-einsum.bounds[p] // bound.plan.blocks[p]) for p in bound.plan.loops])
    assert turns <= 16 and not bound.plan.packed[1] and not bound.plan.packed[2]
    assert kernel.flops == 2 * einsum.points
