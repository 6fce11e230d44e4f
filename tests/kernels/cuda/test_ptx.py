"""The translation of PTX: what it counts, what it reports, and the compiler's slow paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda.generate import generate

from .emulation import Emulator, no_nvrtc, why_not
from .ptx import translated
from .ptx_arithmetic import UntranslatedError

pytestmark = pytest.mark.skipif(bool(why_not() or no_nvrtc()), reason=why_not() or no_nvrtc())
SUM = ScalarCall("add", (OperandRef(0, F32), OperandRef(1, F32)), F32)


def _sum(n: int) -> Einsum:
    return Einsum(("i",), (n,), 1, ((0,), (0,)), (F32, F32), SUM, None)


def test_bytes_and_instructions_of_a_sum(tmp_path: Path) -> None:
    n = 1000
    kernel = generate(_sum(n), "full")
    emulator = Emulator([kernel], tmp_path, "traffic")
    a, b, out = np.arange(n, dtype="f"), np.full(n, 2, "f"), np.zeros(n, "f")
    emulator.call(kernel, (n,), [out], [a, b], [0])
    np.testing.assert_array_equal(out, a + b)
    found = emulator.counts()
    assert (found["read"], found["written"], found["shared_read"]) == (8 * n, 4 * n, 0)
    assert found["float"] == n  # one addition for each element
    assert 3 * n // 8 <= found["sectors"] <= 3 * (n // 8 + 32)
    assert found["requests"] == 3 * -(-n // 32)
    assert not any(emulator.counts().values())  # each is reported once


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("h.status[0] = *(const unsigned*)((const char*)h.status + 2);", "not aligned"),
        ("volatile __shared__ int x[4]; x[threadIdx.x] = 1;", "outside of the block's shared memory"),
        ("if (threadIdx.x < 7) __syncthreads();", "a barrier that others never reach"),
        ('asm volatile("trap;");', "a trap"),
    ],
)
def test_a_fault_is_reported(statement: str, message: str, tmp_path: Path) -> None:
    kernel = generate(_sum(64), "full")
    begin = "  Watch f = {0};\n"
    assert begin in kernel.source
    kernel = replace(kernel, source=kernel.source.replace(begin, begin + statement + "\n"))
    out = np.zeros(64, "f")
    with pytest.raises(AssertionError, match=message):
        Emulator([kernel], tmp_path, "ptx").call(kernel, (64,), [out], [out, out], [0])


def test_a_function_that_the_compiler_calls(tmp_path: Path) -> None:
    """The sine of large numbers takes a function with multiplications whose carries are added."""
    x = np.array([1e22, -3e15, 1.5e300, 0.5])
    e = Einsum(("i",), (4,), 1, ((0,),), (F64,), ScalarCall("sin", (OperandRef(0, F64),), F64), None)
    kernel, out = generate(e, "full"), np.zeros(4)
    emulator = Emulator([kernel], tmp_path, "ptx")
    emulator.call(kernel, (4,), [out], [x], [0])
    np.testing.assert_allclose(out, np.sin(x), rtol=1e-14)


def test_an_unknown_instruction_is_named() -> None:
    with pytest.raises(UntranslatedError, match=r"mma\.sync"):
        translated(".visible .entry f(\n.param .b64 p\n)\n{\nmma.sync.m8n8k4 %r1, %r2;\n}\n")
