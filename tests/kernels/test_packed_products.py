"""Contractions by machine code: every layout of operands and results."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core import process_resources
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, F64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarConst
from einturnip.kernels import select
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.llvm import code_cache, contraction
from einturnip.kernels.llvm.contraction import PackedContraction
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.kernels.llvm.pack_loops import WORDS, PackedBlocks
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.register_tile import STREAMS
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.parallel_parts import FINER
from einturnip.kernels.protocol import CallArguments
from einturnip.kernels.select import compile_kernel
from einturnip.kernels.thread_scratch import thread_scratch
from tests.drawn import examples
from tests.kernels.test_contraction import compile_contraction

pytestmark = pytest.mark.machine_code
CODES = [PackedSpec.product(F32), PackedSpec.product(F64)]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    assert select.prepare_code(CODES) == 2
    yield


def product(equation: str, sizes: dict[str, int], dtype: DType, factor: float = 1.0) -> Einsum:
    """An einsum of two operands."""
    read, out = equation.split("->")
    terms = read.split(",")
    labels = out + "".join(sorted({*read} - {*out, ","}))
    join: Scalar = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
    if factor != 1:
        join = ScalarCall("mul", (ScalarConst(factor, dtype), join), dtype)
    accesses = tuple(tuple(labels.index(x) for x in t) for t in terms)
    bounds = tuple(sizes[x] for x in labels)
    return Einsum(tuple(labels), bounds, len(out), accesses, (dtype, dtype), join, aggregation("sum", dtype))


def numbers(shape: tuple[int, ...], dtype: DType, order: list[int], spread: int, seed: int) -> np.ndarray:
    """Whole numbers, stored in another order of axes, with gaps."""
    whole = np.random.default_rng(seed).integers(-3, 4, [spread * shape[a] for a in order]).astype(dtype.numpy)
    return whole[tuple(slice(None, None, spread) for _ in order)].transpose(np.argsort(order))


def check(kernel: PackedContraction, equation: str, operands: list[np.ndarray], out: np.ndarray, factor: float) -> None:
    """The first accumulation puts the product, the next one adds to it, and nothing is met on the way."""
    expected = factor * np.einsum(equation, *operands)
    workspace = np.zeros(kernel.workspace_nbytes, np.uint8)
    origins = (0,) * len(kernel.roles.extents)
    for times, first in ((1, True), (2, False)):
        assert kernel((out,), tuple(operands), origins, first, workspace) == 0
        np.testing.assert_array_equal(out, times * expected)


def compiled_accumulate(e: Einsum) -> PackedContraction:
    slow = compile_contraction(e, e.bounds, False)
    assert slow is not None
    code = PackedSpec.product(slow.dtype)
    function = code_cache.find(code)
    assert function is not None
    return PackedContraction.of_product(slow, code, function)


PATTERNS = ("ik,kj->ij", "bik,bkj->bij", "imjn,lnkm->ijkl", "efbad,cf->abcde", "aebf,fdec->abcd", "xik,xkj->ijx")


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_strides_and_extents(data: st.DataObject) -> None:
    equation = data.draw(st.sampled_from(PATTERNS))
    read, out = equation.split("->")
    dtype = data.draw(st.sampled_from([F32, F64]))
    most = 40 if len({*read}) < 6 else 18
    sizes = {x: data.draw(st.sampled_from([2, 3, 8, 12, 16, 17, 33, most]), x) for x in sorted({*read} - {","})}
    while math.prod(sizes.values()) > 3_000_000:
        sizes[max(sizes, key=lambda x: sizes[x])] = 2
    e = product(equation, sizes, dtype, factor := data.draw(st.sampled_from([1.0, -2.0])))
    slow = compile_contraction(e, e.bounds, False)
    if slow is None or slow.is_vector:
        return
    arrays = []
    for k, t in enumerate((*read.split(","), out)):
        shape = tuple(sizes[x] for x in t)
        order = data.draw(st.permutations(range(len(t))))
        arrays.append(numbers(shape, dtype, list(order), data.draw(st.sampled_from([1, 1, 2])), k))
    kernel = compiled_accumulate(e)
    check(kernel, equation, arrays[:2], arrays[2].copy(order="K"), factor)
    out = arrays[2].copy(order="K")
    with mock.patch.multiple(contraction, _MIN_ROWS=1, _MIN_TILES=1):
        run_in_parts(kernel, out, arrays[:2], data.draw(st.integers(1, 9)))
    np.testing.assert_array_equal(out, factor * np.einsum(equation, *arrays[:2]))


def run_in_parts(kernel: PackedContraction, out: np.ndarray, operands: list[np.ndarray], most: int) -> np.ndarray:
    """Every part of a call, the last ones first; gives their words."""
    origins = (0,) * len(kernel.roles.extents)
    call = kernel.prepare(CallArguments((out,), (operands[0], operands[1]), origins, True, np.empty(0, np.uint8)))
    assert call.divide is not None and call.function is not None
    parts = call.divide(most)
    assert 0 < len(parts) <= FINER * most
    begin = thread_scratch(call.scratch_nbytes)
    ctypes.memset(begin, 0, 8)  # as before a thread's first part of a run
    for words in parts[::-1]:
        words[call.scratch] = begin
        call.function(words.ctypes.data)
    return parts


@pytest.mark.parametrize(
    ("m", "n", "changes", "parts"),
    [
        (4000, 64, "rows", 21),  # the right stays packed: rows cost nothing
        (300, 2000, "columns", 8),
        (1000, 1500, "columns", 6),
        (1500, 400, "rows", 8),
        (9000, 400, "rows", 24),
        (312, 240, "rows", 2),
    ],
)
def test_parts_are_cut_where_the_least_is_packed_again(m: int, n: int, changes: str, parts: int) -> None:
    """Not turned: the result has its columns side by side, the left its rows in whole register tiles."""
    e = product("ik,kj->ij", dict(i=m, j=n, k=20), F32)
    A, B = numbers((m, 20), F32, [0, 1], 1, 0), numbers((20, n), F32, [0, 1], 1, 1)
    out = np.zeros((m, n), np.float32)
    words = run_in_parts(compiled_accumulate(e), out, [A, B], 8)
    np.testing.assert_array_equal(out, A @ B)
    counts = {text: words[:, WORDS.index(text)] for text in ("rows", "columns")}
    assert len(words) == parts and counts[changes].sum() == {"rows": m, "columns": n}[changes]
    (other,) = counts.keys() - {changes}
    assert (counts[other] == {"rows": m, "columns": n}[other]).all()


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        (
            "efbad,cf->abcde",
            dict(a=6, b=2, c=13, d=32, e=48, f=9),
        ),  # long runs on the right, whole vectors in the result
        ("efbad,cf->abcde", dict(a=2, b=2, c=20, d=24, e=36, f=30)),  # vectors that go on in the next panel
        ("aebf,fdec->abcd", dict(a=3, b=3, c=72, d=36, e=7, f=12)),
        ("imjn,lnkm->ijkl", dict(i=2, j=7, k=3, l=40, m=32, n=48)),  # squares of terms
        ("imjn,lnkm->ijkl", dict(i=2, j=7, k=3, l=20, m=12, n=40)),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_what_lies_apart_in_the_panel_is_packed_in_squares(equation: str, sizes: dict[str, int], dtype: DType) -> None:
    read, out = equation.split("->")
    shapes = [tuple(sizes[x] for x in t) for t in (*read.split(","), out)]
    a, b, c = (numbers(shape, dtype, list(range(len(shape))), 1, k) for k, shape in enumerate(shapes))
    kernel = compiled_accumulate(product(equation, sizes, dtype))
    check(kernel, equation, [a, b], c, 1.0)
    ((_, words, _),) = kernel._layouts.values()
    assert words[WORDS.index("column_step")] + words[WORDS.index("term_step")] > 0


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("equation", ["ik,kj->ij", "ik,jk->ij", "ik,kj->ji"])
@pytest.mark.parametrize(
    ("i", "j", "k"), [(29, 16, 1000), (64, 31, 57), (26, 12, 4500), (1600, 20, 130), (13, 100, 300), (21, 64, 5)]
)
def test_rows_are_read_as_they_lie_where_columns_are_few(equation: str, i: int, j: int, k: int, dtype: DType) -> None:
    read, out = equation.split("->")
    sizes = dict(i=i, j=j, k=k)
    a, b, c = (numbers(tuple(sizes[x] for x in t), dtype, [0, 1], 1, n) for n, t in enumerate((*read.split(","), out)))
    check(compiled_accumulate(product(equation, sizes, dtype)), equation, [a, b], c, 1.0)


def test_blocks_of_squares_take_no_more_room() -> None:
    for equation in ("efbad,cf->abcde", "imjn,lnkm->ijkl"):
        for sizes in itertools.product((8, 16, 72), repeat=3):
            each = dict(zip("fmn" if "m" in equation else "fde", sizes, strict=True))
            e = product(equation, {x: each.get(x, 24) for x in equation}, F32)
            strides = [tuple(np.empty(e.operand_extents(k, e.bounds), "f4").strides) for k in (0, 1)]
            kernel = compiled_accumulate(e)
            assert kernel._layout((strides[0], strides[1], np.empty(e.shape, "f4").strides))[2] < 1 << 20


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("offset", [0, 4])
def test_large_results_are_put_past_the_caches_and_added_to_after(dtype: DType, offset: int) -> None:
    sizes = dict(i=13, x=2, k=31, j=64 * 700)
    size, shape = dtype.itemsize, (2, 13, 64 * 700)
    memory = np.zeros(math.prod(shape) + 64, dtype.numpy)
    begin = -memory.__array_interface__["data"][0] % 64 // size + offset  # vectors are whole lines, or never
    out = memory[begin : begin + math.prod(shape)].reshape(shape)
    a, b = numbers((13, 31), dtype, [0, 1], 1, 1), numbers((2, 31, 64 * 700), dtype, [0, 1, 2], 1, 2)
    kernel = compiled_accumulate(product("ik,xkj->xij", sizes, dtype))
    check(kernel, "ik,xkj->xij", [a, b], out, 1.0)
    ((_, words, _),) = kernel._layouts.values()
    assert words[0] == STREAMS and not memory[:begin].any() and not memory[begin + out.size :].any()


@pytest.mark.parametrize("layout", list(itertools.product((0, 1), repeat=3)))
def test_sums_of_several_blocks(layout: tuple[int, int, int]) -> None:
    sizes = dict(i=150, k=1100, j=600)
    shapes = (150, 1100), (1100, 600), (150, 600)
    orders = [[0, 1] if way == 0 else [1, 0] for way in layout]
    a, b, c = (numbers(shape, F32, order, 1, 0) for shape, order in zip(shapes, orders, strict=True))
    e = product("ik,kj->ij", sizes, F32)
    check(compiled_accumulate(e), "ik,kj->ij", [a, b], c, 1.0)


def test_blocks_take_less_than_what_a_worker_is_reckoned_at() -> None:
    for sides in itertools.product((1, 12, 700, 5000), repeat=3):
        for code in CODES:
            assert PackedBlocks.of(code, sides[0], sides[1], sides[2]).places["end"] < 1 << 20


def test_what_is_not_a_number_is_told_and_only_that() -> None:
    e = product("ik,kj->ij", dict(i=13, k=40, j=33), F32)
    kernel, workspace = compiled_accumulate(e), np.zeros(1 << 20, np.uint8)
    a, b, c = np.ones((13, 40), "f4"), np.ones((40, 33), "f4"), np.zeros((13, 33), "f4")
    a[12, 39] = np.inf
    assert kernel((c,), (a, b), (0, 0, 0), True, workspace) == 0 and np.isinf(c[12]).all()
    b[39, 32] = 0
    assert kernel((c,), (a, b), (0, 0, 0), True, workspace) == INVALID and np.isnan(c[12, 32])


def test_products_that_must_not_hang_on_machine_code_are_by_blas() -> None:
    e = product("ik,kj->ij", dict(i=64, k=64, j=64), F32)
    assert isinstance(compile_kernel(e, e.bounds, "full"), PackedContraction)
    assert isinstance(compile_kernel(e, e.bounds, "full", by_blas=True), ContractionKernel)


def test_a_matrix_times_a_vector_reads_the_matrix_once() -> None:
    e = product("ik,k->i", dict(i=70, k=3000), F32)
    code = kernel_spec(e, "full")
    assert code is not None and select.prepare_code([code]) == 1
    kernel = compile_kernel(e, e.bounds, "full")
    a, x = numbers((70, 3000), F32, [0, 1], 1, 1), numbers((3000,), F32, [0], 1, 2)
    out = np.zeros(70, "f4")
    assert kernel((out,), (a, x), (0, 0), True, np.zeros(kernel.workspace_nbytes, np.uint8)) == 0
    np.testing.assert_array_equal(out, a @ x)
    assert not isinstance(kernel, ContractionKernel)


def test_code_that_is_loaded_again_stays_where_others_call_it() -> None:
    before = code_cache.find(CODES[0])
    assert code_cache._load_from_disk(code_cache._key(CODES[0]))  # as in a second thread
    assert before is not None and code_cache.find(CODES[0]) is before
    code_cache.forget()
    slow = compile_contraction(product("ik,kj->ij", dict(i=20, k=30, j=40), F32), (20, 40, 30), False)
    assert slow is not None
    a, b = np.ones((20, 30), "f4"), np.ones((30, 40), "f4")
    check(PackedContraction.of_product(slow, CODES[0], before), "ik,kj->ij", [a, b], np.zeros((20, 40), "f4"), 1.0)
    assert code_cache.load_compiled(CODES) == 2


def interleaved() -> Einsum:
    """Labels of three points, those of the sides in turns: NumPy meets runs of one element."""
    return product("aebfgx,acbdhx->aebcfdgh", dict.fromkeys("abcdefghx", 3), F64)


def test_many_small_products_are_one_call_where_that_is_quicker() -> None:
    e = interleaved()
    assert select.prepare_kernels([(e, "full")]) == 1
    general = compile_kernel(e, e.bounds, "full", by_blas=True)
    assert not isinstance(general, ContractionKernel), "BLAS would be called for each point of a and b, over copies"
    kernel = compile_kernel(e, e.bounds, "full")
    assert isinstance(kernel, MachineCodeKernel)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, [3] * len(access)).astype("f8") for access in e.accesses)
    out, expected = (np.empty([3] * e.n_out) for _ in range(2))
    workspace = np.zeros(max(kernel.workspace_nbytes, general.workspace_nbytes), np.uint8)
    for made, run in ((out, kernel), (expected, general)):
        assert run((made,), (a, b), (0,) * len(e.bounds), True, workspace) == 0
    np.testing.assert_array_equal(out, expected)


def test_few_points_each_side_by_side_stay_with_numpy() -> None:
    """A product of four numbers takes less time than its call, so neighbours are multiplied in the same call."""
    e = product("ikb,kjb->ijb", dict(i=2, k=2, j=2, b=5000), F64)
    assert not isinstance(compile_kernel(e, e.bounds, "full"), PackedContraction)


def test_a_plan_sets_aside_the_same_workspace_whatever_is_compiled() -> None:
    for e in (interleaved(), product("ik,kj->ij", dict(i=64, k=64, j=64), F64)):
        found = select.planned_workspace_nbytes(e, e.bounds, "full", True)
        with mock.patch.object(code_cache, "find", lambda code: None):
            select.forget()
            assert select.planned_workspace_nbytes(e, e.bounds, "full", True) == found
            kernel = compile_kernel(e, e.bounds, "full")
            lean = kernel.within(found) if isinstance(kernel, BlockedKernel) and kernel.within else kernel
            assert lean.workspace_nbytes <= found
        select.forget()


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("ik,kj->ij", dict(i=29, j=45, k=600)),
        ("ik,kj->ij", dict(i=50, j=300, k=40)),
        ("ki,jk->ji", dict(i=31, j=7, k=300)),
        ("bik,bkj->bij", dict(b=5, i=8, j=8, k=8)),
        ("efbad,cf->abcde", dict(a=6, b=2, c=13, d=32, e=48, f=9)),
        ("imjn,lnkm->ijkl", dict(i=2, j=7, k=3, l=20, m=12, n=40)),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_with_few_registers(
    equation: str, sizes: dict[str, int], dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiles of processors without AVX-512."""
    monkeypatch.setattr(process_resources, "processor_features", frozenset)
    code = PackedSpec.product(dtype)
    assert code.shape == (6, 1) and select.prepare_code([code]) == 1
    read, out = equation.split("->")
    a, b, c = (
        numbers(tuple(sizes[x] for x in t), dtype, list(range(len(t))), 1, n)
        for n, t in enumerate((*read.split(","), out))
    )
    check(compiled_accumulate(product(equation, sizes, dtype)), equation, [a, b], c, 1.0)
