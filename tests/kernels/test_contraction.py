"""Contractions against the reference, for any labels, strides, dtypes and limits, by BLAS and by np.matmul."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BF16, BOOL, C64, C128, F16, F32, F64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels.blas import cblas, matrices
from einturnip.kernels.blas.cblas import NumpyProduct
from einturnip.kernels.blas.contraction import ContractionKernel, contraction_kernel
from einturnip.kernels.blas.contraction_spec import contraction_spec
from einturnip.kernels.protocol import CallArguments
from tests.drawn import examples
from tests.reference.einsum import combine_states, evaluate_einsum

from .test_kernels import check_equal, tensor


def einsum_of(
    accesses: tuple[tuple[int, ...], tuple[int, ...]],
    n_out: int,
    bounds: tuple[int, ...],
    dtypes: tuple[DType, DType],
    product: DType,
    alpha: float | None = None,
    accumulator: DType | None = None,
) -> Einsum:
    factors: list[Scalar] = [
        OperandRef(s, d) if d == product else ScalarCast(OperandRef(s, d), product) for s, d in enumerate(dtypes)
    ]
    join: Scalar = ScalarCall("mul", (factors[0], factors[1]), product)
    if alpha is not None:
        join = ScalarCall("mul", (ScalarConst(alpha, product), join), product)
    return Einsum(
        tuple("abcdefgh"[: len(bounds)]),
        bounds,
        n_out,
        accesses,
        dtypes,
        join,
        aggregation("sum", product, accumulator),
    )


@st.composite
def contractions(draw: st.DrawFn) -> Einsum:
    roles = draw(st.lists(st.sampled_from("bmnk"), min_size=1, max_size=6))
    roles = sorted(roles, key=lambda r: r == "k") + ([] if "k" in roles else ["k"])
    n_out = len(roles) - roles.count("k")
    left = [p for p, r in enumerate(roles) if r in "bmk"]
    right = [p for p, r in enumerate(roles) if r in "bnk"]
    bounds = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 6)) for _ in roles]))
    product = draw(st.sampled_from((F32, F32, F64, C64, C128, F16, BF16)))
    narrower = (BOOL,) if product != BF16 else ()
    dtypes = tuple(draw(st.sampled_from((product, product, *narrower))) for _ in range(2))
    return einsum_of(
        (tuple(draw(st.permutations(left))), tuple(draw(st.permutations(right)))),
        n_out,
        bounds,
        (dtypes[0], dtypes[1]),
        product,
        draw(st.sampled_from((None, 2.0, -0.5))),
        draw(st.sampled_from((None, None, F64))) if product in (F32, F16) else None,
    )


def compile_contraction(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> ContractionKernel | None:
    """A contraction by BLAS; None if BLAS cannot compute it."""
    spec = contraction_spec(einsum, extents, whole)
    return None if spec is None else contraction_kernel(spec)


def forced(einsum: Einsum, extents: tuple[int, ...], whole: bool, panel: int, result: int) -> ContractionKernel:
    """The contraction's kernel, with small panels so that everything is cut."""
    with (
        mock.patch.object(matrices, "_PANEL_NBYTES", panel),
        mock.patch.object(matrices, "_RESULT_NBYTES", result),
    ):
        kernel = compile_contraction(einsum, extents, whole)
    assert kernel is not None
    return kernel


@pytest.mark.parametrize("library", ["cblas", "numpy"])
@given(data=st.data())
@settings(max_examples=examples(300), deadline=None)
def test_any_contraction(library: str, data: st.DataObject) -> None:
    einsum = data.draw(contractions())
    whole = data.draw(st.booleans())
    panel, result = data.draw(st.sampled_from(((1 << 20, 1 << 20), (128, 64), (64, 256))))
    lookup = cblas._functions if library == "cblas" else lambda dtype: None
    with mock.patch.object(cblas, "_functions", lookup):
        kernel = forced(einsum, einsum.bounds, whole, panel, result)
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    out = tensor(data.draw, einsum.shape, einsum.dtype if whole else einsum.state_dtypes[0])
    before = out.copy()
    workspace = np.full(kernel.workspace_nbytes + 64, 0xA5, np.uint8)
    first = data.draw(st.booleans())
    if first or whole:
        out[...] = np.nan
    origins = (0,) * len(einsum.bounds)
    assert kernel((out,), operands, origins, first, workspace[: kernel.workspace_nbytes]) == 0
    assert (workspace[kernel.workspace_nbytes :] == 0xA5).all()
    state = evaluate_einsum(einsum, operands, mode="result" if whole else "state")
    if not (first or whole):
        state = combine_states(einsum, (before,), state)
    check_equal(out, state[0])


SHAPES = [
    ("ik,kj->ij", (300, 70, 200)),
    ("ki,kj->ij", (300, 70, 200)),
    ("ik,jk->ij", (300, 70, 200)),
    ("bik,bkj->bij", (6, 40, 50, 60)),
    ("bik,bkj->ibj", (6, 40, 50, 60)),
    ("abcd,dcef->abef", (12, 14, 16, 18, 10, 9)),
    ("abcd,defc->eafb", (12, 14, 16, 18, 10, 9)),
    ("ik,k->i", (300, 200)),
    ("k,kj->j", (300, 200)),
    ("kib,kjb->bij", (60, 50, 40, 5)),
]


@pytest.mark.parametrize(("subscripts", "sizes"), SHAPES)
@pytest.mark.parametrize("dtype", [F32, F64, C64, F16, BF16])
def test_larger_tiles(subscripts: str, sizes: tuple[int, ...], dtype: DType) -> None:
    left, rest = subscripts.split(",")
    right, out = rest.split("->")
    names = list(dict.fromkeys(left + right))
    extent = dict(zip(names, sizes, strict=True))
    labels = [*out, *(c for c in names if c not in out)]
    access = (tuple(map(labels.index, left)), tuple(map(labels.index, right)))
    bounds = tuple(extent[c] for c in labels)
    einsum = einsum_of(access, len(out), bounds, (dtype, dtype), dtype)
    kernel = forced(einsum, bounds, True, 1 << 14, 1 << 14)
    assert kernel.workspace_nbytes <= 1 << 18
    rng = np.random.default_rng(0)
    operands = tuple(rng.integers(-2, 3, einsum.operand_shape(s)).astype(dtype.numpy) for s in (0, 1))
    result = np.empty(einsum.shape, dtype.numpy)
    kernel((result,), operands, (0,) * len(bounds), True, np.empty(kernel.workspace_nbytes, np.uint8))
    wide = [x.astype(np.complex128) for x in operands]
    expected = np.einsum(subscripts, *wide, optimize=True)
    expected = (expected if dtype.kind == "c" else expected.real).astype(dtype.numpy)
    np.testing.assert_array_equal(result, expected)


def test_contiguous_products_need_no_copies() -> None:
    for transposed_left, transposed_right in itertools.product((False, True), repeat=2):
        access = ((2, 0) if transposed_left else (0, 2), (1, 2) if transposed_right else (2, 1))
        kernel = compile_contraction(einsum_of(access, 2, (512, 512, 512), (F32, F32), F32), (512, 512, 512), False)
        assert kernel is not None
        (bound,) = kernel.plans.values()
        assert bound.single == (512, 512, 512)


@given(st.data())
def test_a_product_follows_its_tiles(data: st.DataObject) -> None:
    """Prepared on some arrays, it multiplies the numbers at the addresses that it is given later."""
    m, n, k = (data.draw(st.integers(2, 20)) for _ in range(3))
    turned, swapped = data.draw(st.booleans()), data.draw(st.booleans())
    accesses = ((2, 0) if turned else (0, 2)), (2, 1)
    einsum = einsum_of(accesses[::-1] if swapped else accesses, 2, (m, n, k), (F32, F32), F32)
    kernel = forced(einsum, (m, n, k), True, 1 << 20, 1 << 20)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    made = [
        [rng.integers(-3, 4, [(m, n, k)[p] for p in axes]).astype(np.float32) for axes in einsum.accesses]
        for _ in range(2)
    ]
    outs = [np.full((m, n), 7, np.float32) for _ in range(2)]
    call = kernel.prepare(CallArguments((outs[0],), (made[0][0], made[0][1]), (0, 0, 0), True, np.empty(0, np.uint8)))
    if not call.relocations:
        assert isinstance(kernel.product, NumpyProduct)
        return
    for word, array in zip(call.relocations, (*made[1], outs[1]), strict=True):
        call.words[word] = array.ctypes.data
    assert call.run() == 0
    left, right = made[1][::-1] if swapped else made[1]
    np.testing.assert_array_equal(outs[1], (left.T if turned else left) @ right)
    assert (outs[0] == 7).all()
