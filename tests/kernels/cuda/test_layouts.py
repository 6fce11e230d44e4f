"""Kernels that read tiles in the order of memory, in all forms of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einturnip.ir.dtypes import BOOL, C64, C128, F16, F32, F64, I8, DType
from einturnip.ir.einsum import Access, Einsum, Index
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda.generate import generate, layout
from einturnip.kernels.cuda.types import CudaKernel
from tests.reference.einsum import evaluate_einsum

from .drawn import close, parts
from .emulation import Emulator, Form, no_nvrtc, view, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Small integers, the same ones each time."""
    return np.random.default_rng(3).integers(-9, 9, shape).astype(dtype.numpy)


def run_all(cases: list[tuple[Einsum, tuple[np.ndarray, ...]]], form: Form, scratch: Path) -> list[CudaKernel]:
    """Compare each einsum with the reference, by 32-bit and 64-bit numbers; return the former kernels."""
    if form == "ptx" and no_nvrtc():
        pytest.skip(no_nvrtc())
    kernels, read = [], []
    for e, operands in cases:
        read.append(parts(e, operands, tuple((0, n) for n in e.bounds)))
        out = np.zeros(e.shape, e.dtype.numpy)
        chosen = layout(e, "full", e.bounds, [view(x) for x in read[-1]], [view(out)])
        assert chosen.narrow
        kernels.append((generate(e, "full", chosen), generate(e, "full", replace(chosen, narrow=False))))
    emulator = Emulator([k for pair in kernels for k in pair], scratch, form)
    for (e, operands), tiles, pair in zip(cases, read, kernels, strict=True):
        expected = evaluate_einsum(e, operands)[0]
        found = []
        for n, kernel in enumerate(pair):
            out = np.full(e.shape, 7).astype(e.dtype.numpy)
            emulator.call(kernel, e.bounds, [out], tiles, [0] * len(e.bounds), falling=n == 0)
            close(out, expected)
            found.append(out)
        assert found[0].tobytes() == found[1].tobytes()
    return [narrow for narrow, _ in kernels]


def _transposes() -> Iterator[tuple[Einsum, tuple[np.ndarray, ...]]]:
    """Permutations and joins of operands of unlike order, with sizes that tiles divide and do not."""

    def case(
        bounds: tuple[int, ...], accesses: tuple[Access, ...], dtype: DType, shapes: tuple[tuple[int, ...], ...] = ()
    ) -> tuple[Einsum, tuple[np.ndarray, ...]]:
        join = OperandRef(0, dtype)
        for slot in range(1, len(accesses)):
            join = ScalarCall("max" if dtype.kind == "b" else "add", (join, OperandRef(slot, dtype)), dtype)
        labels, dtypes = tuple("ijkl"[: len(bounds)]), (dtype,) * len(accesses)
        e = Einsum(labels, bounds, len(bounds), accesses, dtypes, join, None, shapes)
        return e, tuple(values(dtype, e.operand_shape(s)) for s in range(len(accesses)))

    for dtype in (BOOL, I8, F16, F32, F64, C64, C128):
        yield case((37, 50), ((1, 0),), dtype)
    yield case((64, 32), ((1, 0), (0, 1), (1,), (0,)), F32)
    yield case((33, 3, 40), ((2, 1, 0),), F32)
    yield case((3, 33, 40), ((0, 2, 1), (2, 0, 1), (1, 2, 0)), F64)
    yield case((17, 18, 2, 19), ((3, 2, 1, 0), (2, 3, 0, 1)), F16)
    shifted = Index(((0, 1),), 2)
    yield case((34, 35), ((1, shifted), (shifted, 1)), F32, ((35, 36), (36, 35)))


@pytest.mark.parametrize("form", ["source", "checked", "ptx"])
def test_transposes(form: Form, tmp_path: Path) -> None:
    kernels = run_all(list(_transposes()), form, tmp_path)
    assert all(kernel.layout.transposed for kernel in kernels)
