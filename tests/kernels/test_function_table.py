"""Each row of the table of scalar functions against extended precision, and its derivative against differences."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from einturnip.core import package_data
from einturnip.cost.machine import Machine
from einturnip.ir.derivatives import adjoint_of
from einturnip.ir.dtypes import C128, F32, F64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import evaluate_scalar
from einturnip.ir.functions import ELEMENTWISE
from einturnip.ir.operators import Array
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels import select
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.expr import lower
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.llvm.primitives import WRITABLE
from einturnip.testing.functions import FOLDS, SMOOTH, STEPS

from .cuda.emulation import Emulator, why_not

REAL = sorted(name for name in ELEMENTWISE if name not in ("conj", "real", "imag"))
TO_REAL = [name for name, row in ELEMENTWISE.items() if row.returns_real]
NARROWED = {C128: F64}
HEADER = package_data.text("kernels", "scalar.cuh")
RATES = dict(Machine().points)
# One of two factors cancels: the error is relative to the argument.
CANCELLING = {"gelu", "silu"}

SPECIAL = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 1e-30, -1e-9, 1e-4, 0.999, 1.001, 30, -30, 88, -100, 1e5, 3e38]
POINTS = np.concatenate([SPECIAL, [np.inf, -np.inf, np.nan], np.linspace(-8, 8, 201)])


def einsum_of(name: str, dtype: DType) -> Einsum:
    join = ScalarCall(name, (OperandRef(0, dtype),), dtype)
    return Einsum(("i",), (len(POINTS),), 1, ((0,),), (dtype,), join, None)


def check_values(name: str, x: Array, found: Array) -> None:
    """``found`` is f(x), computed in extended precision, to some units in the last place."""
    with np.errstate(all="ignore"):
        expected = np.asarray(ELEMENTWISE[name].numpy(x.astype(np.longdouble))).astype(x.dtype)
        allowed = 8 * np.spacing(np.abs(expected)) + 4 * np.finfo(x.dtype).tiny
        if name in CANCELLING:
            allowed = allowed + np.finfo(x.dtype).eps * np.abs(x)
        wrong = ~((found == expected) | (np.isnan(found) & np.isnan(expected)) | (np.abs(found - expected) <= allowed))
    if name in CANCELLING:
        wrong &= np.isfinite(x)
    assert not wrong.any(), f"{name}{x[wrong]} = {found[wrong]}, not {expected[wrong]}"


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_row_is_complete(name: str) -> None:
    """Each assertion says what to add, and where; ``CONTRIBUTING.md`` shows the order of work."""
    row, table = ELEMENTWISE[name], "einturnip/ir/functions.py"
    assert row.name == name and row.doc.endswith("."), f"{table}: the doc of {name} is no sentence"
    assert name in lower._OPERATORS, f"einturnip/kernels/expr/lower.py: add a lowering of {name} to _OPERATORS"
    in_cuda = row.definition or re.search(rf"(T|auto|DEFINE\w*|EIN_\w+)\W+{name}\b", HEADER)
    assert in_cuda, f"kernels/scalar.cuh: add {name} for GPUs"
    tested = name in SMOOTH or name in STEPS or name in FOLDS
    assert tested, f"einturnip/testing/functions.py: add {name} on single numbers to STEPS or FOLDS"
    if not row.is_measured:
        return
    price = ELEMENTWISE[row.priced_as]
    assert f"{price.ufunc}.float32" in RATES, f"{table}: priced_as of {name} names {row.priced_as}, not measured yet"
    written = row.ufunc in WRITABLE
    assert written != row.by_numpy, (
        f"{table}: delete by_numpy=True of {name}, since machine code has it"
        if written
        else f"{name} has no machine code: write MathFunctions.{row.ufunc} in einturnip/kernels/llvm/functions.py, or "
        f"state by_numpy=True in its row in {table}"
    )


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
@pytest.mark.parametrize("name", REAL)
def test_kernels_of_the_host(name: str, dtype: DType) -> None:
    einsum, x = einsum_of(name, dtype), POINTS.astype(dtype.numpy)
    slow = select.compile_tile(einsum, einsum.bounds, "full", native=False)
    select.prepare_kernels([(einsum, "full")])
    fast = select.compile_tile(einsum, einsum.bounds, "full")
    if code_cache.available():
        assert isinstance(fast, MachineCodeKernel) != ELEMENTWISE[name].by_numpy
    for kernel in (slow, fast):
        found = np.empty_like(x)
        kernel((found,), (x,), (0,), True, np.empty(max(1, kernel.workspace_nbytes), np.uint8))
        check_values(name, x, found)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_kernels_of_gpus(tmp_path: Path) -> None:
    cases = [(name, dtype, generate(einsum_of(name, dtype), "full")) for name in REAL for dtype in (F32, F64)]
    emulator = Emulator([kernel for _, _, kernel in cases], tmp_path)
    for name, dtype, kernel in cases:
        x = POINTS.astype(dtype.numpy)
        found = np.empty_like(x)
        emulator.call(kernel, x.shape, [found], [x], [0])
        check_values(name, x, found)


def adjoint(name: str, x: Array, g: Array, dtype: DType) -> Array:
    """The adjoint of x as its row gives it."""
    row = ELEMENTWISE[name]
    result = NARROWED[dtype] if name in TO_REAL and dtype in NARROWED else dtype
    with np.errstate(all="ignore"):
        y = np.asarray(row.numpy(x))
        call = ScalarCall(name, (OperandRef(0, dtype),), result)
        (share,) = adjoint_of(call, OperandRef(1, result), OperandRef(2, result))
        return np.zeros_like(x) if share is None else evaluate_scalar(share, (x, y, g), (0,), x.shape)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_derivative_is_that_of_the_values(name: str) -> None:
    x, step = np.array([-2.3, -0.9, -0.3, 0.2, 0.7, 1.6, 3.1]), np.longdouble(1e-6)
    row = ELEMENTWISE[name]
    with np.errstate(all="ignore"):
        sides = [np.asarray(row.numpy(x + side)).astype(np.float64) for side in (step, -step)]
        slopes = ((sides[0] - sides[1]) / np.float64(2 * step)).astype(np.float64)
    defined = np.isfinite(slopes)
    assert defined.sum() >= 2
    np.testing.assert_allclose(adjoint(name, x, np.ones_like(x), F64)[defined], slopes[defined], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if row.takes_complex])
def test_a_derivative_by_a_complex_number(name: str) -> None:
    """dL/da + i dL/db of L = Re(conj(g) f(a + ib))."""
    x = np.array([0.4 + 0.3j, -1.2 + 0.8j, 0.9 - 1.1j])
    g = np.array([1 + 0.7j, -0.3 + 1j, 2 - 1j])
    g = g.real if name in TO_REAL else g
    found = np.zeros(3, complex)
    for unit in (1, 1j):
        sides = [np.asarray(ELEMENTWISE[name].numpy(x + side * unit)) for side in (1e-6, -1e-6)]
        found += unit * (np.conj(g) * (sides[0] - sides[1])).real / 2e-6
    np.testing.assert_allclose(adjoint(name, x, g, C128), found, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", REAL)
def test_a_derivative_near_one_is_precise_in_single(name: str) -> None:
    """Where 1 - x is small, an f'(x) that contains it must not cancel: x * x is rounded."""
    x = np.array([side * (1 - k * 2.0**-23) for k in (1, 101, 1501, 3001) for side in (1, -1)], np.float32)
    single = adjoint(name, x, np.ones_like(x), F32)
    double = adjoint(name, x.astype(np.float64), np.ones(x.shape), F64)
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-6)
