"""Loops along short labels, and over elements at a stride, against the reference: drawn tiles, layouts, dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.cost.machine import Machine
from einturnip.cost.machine_code_work import native_work
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.kernels.numpy.elementwise import compile_elementwise
from einturnip.kernels.numpy.reduce import compile_reduce
from tests.drawn import examples
from tests.kernels.test_packed_joins import einsum_of
from tests.reference.einsum import evaluate_einsum

pytestmark = pytest.mark.machine_code

# Operands by the labels of their axes, the output's labels, and what is computed.
EQUATIONS = [
    ("ik mkj", "mij", "sum[k] X[{0}] * Y[{1}]"),
    ("mik jk", "mij", "sum[k] X[{0}] * Y[{1}]"),
    ("mki mkj", "mij", "sum[k] X[{0}] * Y[{1}]"),
    ("mik mk", "mi", "sum[k] X[{0}] * Y[{1}]"),
    ("imk mk", "im", "max[k] (X[{0}] - Y[{1}])"),
    ("mij ji", "mij", "X[{0}] - Y[{1}] * X[{0}]"),
    ("mij mij", "jmi", "X[{0}] + 2 * Y[{1}]"),
    ("mij m", "mij", "where(i == j, X[m, 1-i, 1-j], -X[{0}]) * Y[{1}] + m"),
    ("mij m", "m", "X[m,0,0] * X[m,1,1] - X[m,0,1] * X[m,1,0] + Y[{1}]"),
    ("mij", "ji", "sum[m] abs(X[{0}])"),
    ("mij", "mi", "argmax[j] X[{0}]"),
    ("mij mij", "m", "any[i,j] (X[{0}] > Y[{1}])"),
    ("mik mjk", "mij", "mean[k] (X[{0}] - Y[{1}])^2"),
    ("mij ij", "mij", "X[m, i, 1-j] + Y[{1}]"),
    ("q q", "", "2 * X[0] - Y[0]"),
    ("qj j", "qj", "X[{0}] * Y[{1}]"),
]
SIZES: list[dict[str, int]] = [
    {"m": 37, "i": 4, "j": 4, "k": 4, "q": 1},
    {"m": 37, "i": 2, "j": 2, "k": 7, "q": 1},
    {"m": 5, "i": 2, "j": 2, "k": 3, "q": 1},
]
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "f16": np.float16}
ONLY_TWO = ("1-", "[m,0,1]")  # indices that fit axes of two
Case = tuple[Einsum, select.Mode]


def cases() -> dict[tuple[int, int, str], Einsum]:
    """The einsums by equation, sizes and dtype."""
    found = {}
    for e, (read, out, right) in enumerate(EQUATIONS):
        for s, sizes in enumerate(SIZES):
            if any(part in right for part in ONLY_TWO) and sizes["i"] != 2:
                continue
            for dtype in ("f32", "f64") if s == 0 or "1-" in right else ("f32", "i32", "f64", "f16")[e % 4 : e % 4 + 1]:
                found[e, s, dtype] = einsum_of(read, out, right, dtype, sizes)
    return found


CASES = cases()


def modes(einsum: Einsum) -> list[select.Mode]:
    return ["full"] if einsum.aggregation is None else ["full", "accumulate"]


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All kernels in one call of the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        specs = [kernel_spec(einsum, mode) for einsum in CASES.values() for mode in modes(einsum)]
        code_cache.prepare([spec for spec in specs if spec is not None])


def machine_code(einsum: Einsum, extents: tuple[int, ...], mode: select.Mode) -> MachineCodeKernel:
    spec = kernel_spec(einsum, mode)
    assert spec is not None and spec.packing is None
    function = code_cache.find(spec)
    assert function is not None
    numpy = compile_elementwise if einsum.aggregation is None else None
    fallback = numpy(einsum, extents) if numpy else compile_reduce(einsum, extents, mode == "full")
    return MachineCodeKernel(spec, extents, function, fallback)


def laid_out(array: np.ndarray, layout: int) -> np.ndarray:
    """The same numbers in C order, in Fortran order, or as every other element of a larger array, turned around."""
    if layout == 0 or not array.ndim:
        return array
    if layout == 1:
        return np.asfortranarray(array)
    larger = np.zeros([2 * n for n in array.shape], array.dtype)
    view = larger[(*[slice(None, None, -2)] * array.ndim,)]
    view[...] = array
    return view


@given(st.data())
@settings(max_examples=examples(250))
def test_as_the_reference(data: st.DataObject) -> None:
    number, _, dtype = key = data.draw(st.sampled_from(sorted(CASES)))
    einsum = CASES[key]
    shifted = any(part in EQUATIONS[number][2] for part in ONLY_TWO)
    extents = tuple(n if shifted and n <= 7 else data.draw(st.integers(1, n)) for n in einsum.bounds)
    origins = tuple(data.draw(st.integers(0, b - n)) for b, n in zip(einsum.bounds, extents, strict=True))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    operands = tuple(
        laid_out(
            rng.integers(-5, 5, einsum.operand_extents(slot, extents)).astype(DTYPES[dtype]),
            data.draw(st.integers(0, 2)),
        )
        for slot in range(len(einsum.dtypes))
    )
    mode = data.draw(st.sampled_from(modes(einsum)))
    kernel = machine_code(einsum, extents, mode)
    dtypes = einsum.state_dtypes if mode == "accumulate" else (einsum.dtype,)
    layout = data.draw(st.integers(0, 2))
    outs = tuple(laid_out(np.full(extents[: einsum.n_out], 3, d.numpy), layout) for d in dtypes)
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    kernel(outs, operands, origins, True, workspace)
    expected = evaluate_einsum(einsum, operands, origins, extents, "state" if mode == "accumulate" else "result")
    for made, right in zip(outs, expected, strict=True):
        np.testing.assert_allclose(made, right, rtol=1e-6 if dtype != "f16" else 1e-3)


@pytest.mark.parametrize("equation", EQUATIONS[:4])
def test_the_matrices_of_a_batch_have_machine_code(equation: tuple[str, str, str]) -> None:
    einsum = einsum_of(*equation, "f64", {**SIZES[0], "m": 500})
    assert select.product_code(einsum, einsum.bounds, "full") is kernel_spec(einsum, "full")


def test_a_price_grows_with_the_elements_that_are_moved_one_by_one() -> None:
    machine = Machine()
    prices = []
    for read in ("mij mij", "jmi jmi"):
        einsum = einsum_of(read, "mij", "X[{0}] + Y[{1}]", "f32", {"m": 3000, "i": 4, "j": 4})
        spec = kernel_spec(einsum, "full")
        assert spec is not None and spec.is_short
        work = native_work(spec, einsum.bounds)
        prices.append(sum(p.points * machine.point_seconds(p.name) for p in work.passes))
    assert prices[0] < prices[1]


def test_an_empty_label_has_a_spec_and_a_price() -> None:
    einsum = einsum_of("mij ji", "mij", "X[{0}] + Y[{1}]", "f32", {"m": 0, "i": 1, "j": 2})
    spec = kernel_spec(einsum, "full")
    assert spec is not None and spec.nanoseconds(einsum.bounds, 1.0) > 0
