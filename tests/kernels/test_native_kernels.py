"""Machine code against NumPy's kernels: every aggregation, ragged tiles, several calls, NaN and flags."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einturnip.core.regular_files import temporary_path
from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.dtypes import DTYPES
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCast
from einturnip.kernels import select
from einturnip.kernels.fp_status import DIVIDE, INVALID
from einturnip.kernels.llvm import code_cache, kernel_spec, loops
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.protocol import HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.lang import compile_text

pytestmark = [pytest.mark.machine_code, pytest.mark.usefixtures("own_cache")]

DECLARED = "input X : {0}[n, m]\ninput Y : {0}[p, m]\ninput A : {0}[n, p]\ninput r : {0}[n]\n"
EQUATIONS = [
    "Z[n,m] = X[n,m] * 2 + r[n]",
    "Z[n,m] = where(m <= n, X[n,m], 1)",
    "Z[n,m] = X[n,m] > r[n] or X[n,m] < 0",
    "Z[i: n-1, m] = X[i+1,m] - X[i,m]",
    "Z[m,n] = X[n,m]",
    "Z[p,n] = A[n,p] * 2 + r[n]",
    "Z[m,n] = X[n,m] * r[n]",
    "Z[n] = sum[m] abs(X[n,m])",
    "Z[m] = sum[n] X[n,m] * r[n] * r[n]",
    "Z[n] = max[m] X[n,m]",
    "Z[m] = min[n] X[n,m]",
    "Z[n] = mean[m] X[n,m]",
    "Z[n,p] = sum[m] (X[n,m] - Y[p,m])^2",
    "Z[n,m] = max[p] (A[n,p] + Y[p,m])",
    "Z[n] = argmax[m] X[n,m]",
    "Z[m] = argmin[n] X[n,m]",
    "Z = argmin[n,m] X[n,m]",
    "Z[n] = any[m] (X[n,m] > 8)",
    "Z[m] = all[n] (X[n,m] < 9)",
    "Z[p] = prod[n, k: 3] sign(A[n,p] + k)",
]
FLOATING = [
    "Z[n,m] = exp(-X[n,m]) + tanh(X[n,m]) * sigmoid(X[n,m])",
    "Z[n,m] = log(1 + abs(X[n,m])) + erf(X[n,m]) / sqrt(1 + r[n]^2)",
    "Z[n,m] = gelu(X[n,m]) + silu(X[n,m]) + softplus(X[n,m])",
    "Z[n] = logsumexp[m] X[n,m]",
    "Z[m] = logsumexp[n] X[n,m]",
]
SIZES = {"n": 13, "m": 37, "p": 11}


def einsum_of(equation: str, dtype: str) -> tuple[Einsum, list[str]]:
    """The one einsum of an equation, and the inputs that it reads."""
    text = f"{DECLARED.format(dtype)}{equation}\noutput Z\n"
    shapes = {"X": (13, 37), "Y": (11, 37), "A": (13, 11), "r": (13,)}
    graph = build(compile_text(text, "k.ein"), shapes, {})
    (node,) = [n for n in graph.nodes if isinstance(n, EinsumNode)]
    assert isinstance(node.einsum, Einsum)
    return node.einsum, [graph.nodes[i].name for i in node.operands]  # type: ignore[union-attr]


def numbers(name: str, dtype: str) -> np.ndarray:
    """Small whole numbers, so that sums are exact in any order."""
    shape = {"X": (13, 37), "Y": (11, 37), "A": (13, 11), "r": (13,)}[name]
    low = 0 if dtype == "u8" else -9
    kinds = {"f16": "f2", "f32": "f4", "f64": "f8", "i32": "i4", "i8": "i1", "u8": "u1", "i64": "i8"}
    return np.random.default_rng(len(name) + ord(name[0])).integers(low, 9, shape).astype(kinds[dtype])


def ran(
    kernel: HostKernel, einsum: Einsum, operands: list[np.ndarray], accumulate: bool
) -> tuple[list[np.ndarray], int]:
    """The result of a kernel; a state is accumulated twice over the same tile."""
    dtypes = einsum.state_dtypes if accumulate else (einsum.dtype,)
    outs = tuple(np.zeros(einsum.shape, d.numpy) for d in dtypes)
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    origins = (0,) * len(einsum.bounds)
    bits = kernel(outs, tuple(operands), origins, True, workspace)
    if accumulate:
        bits |= kernel(outs, tuple(operands), origins, False, workspace)
    return list(outs), bits


def both(einsum: Einsum, mode: select.Mode) -> tuple[HostKernel, MachineCodeKernel]:
    """NumPy's kernel and the machine code."""
    slow = compile_kernel(einsum, einsum.bounds, mode)
    assert select.prepare_kernels([(einsum, mode)]) == 1
    fast = compile_kernel(einsum, einsum.bounds, mode)
    assert isinstance(fast, MachineCodeKernel)
    return slow, fast


CASES = [(e, "f32") for e in EQUATIONS]
CASES += [(e, d) for k, d in enumerate(("f64", "f16", "i32", "i8", "u8", "i64")) for e in EQUATIONS[k % 3 :: 3]]


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All kernels in one call of the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        wanted: list[tuple[Einsum, select.Mode]] = []
        for equation, dtype in (*CASES, *((e, d) for e in FLOATING for d in ("f32", "f64"))):
            einsum = einsum_of(equation, dtype)[0]
            modes: tuple[select.Mode, ...] = ("full",) if einsum.aggregation is None else ("full", "accumulate")
            wanted += [(einsum, mode) for mode in modes]
        select.prepare_kernels(wanted)


@pytest.mark.parametrize(("equation", "dtype"), CASES)
def test_whole_numbers_agree_in_every_bit(equation: str, dtype: str) -> None:
    einsum, names = einsum_of(equation, dtype)
    operands = [numbers(name, dtype) for name in names]
    modes: list[select.Mode] = ["full"] if einsum.aggregation is None else ["full", "accumulate"]
    for mode in modes:
        if select.kernel_spec(einsum, mode) is None:
            assert dtype not in ("f32", "f64") or equation in ("Z = argmin[n,m] X[n,m]",)
            continue
        slow, fast = both(einsum, mode)
        expected, got = (ran(kernel, einsum, operands, mode == "accumulate") for kernel in (slow, fast))
        for a, b in zip(expected[0], got[0], strict=True):
            np.testing.assert_array_equal(b, a)
        assert got[1] == expected[1]


SWEPT = [
    "Z[m] = sum[n] X[n,m] * r[n] * r[n]",
    "Z[m] = min[n] X[n,m]",
    "Z[m] = all[n] (X[n,m] < 9)",
    "Z[m] = sum[n, k: 3] (X[n,m] * k + r[n])",
    "Z[q: 2, m] = max[k: 3, n] (X[n,m] + (q - k))",
]


@pytest.mark.parametrize(("equation", "dtype"), [*((e, "f32") for e in SWEPT), (SWEPT[1], "i32"), (SWEPT[4], "f64")])
def test_rows_swept_a_few_at_a_time(equation: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_spec, "_MIN_SWEPT", 1)
    kernel_spec._kernel_spec.cache_clear()
    einsum, names = einsum_of(equation, dtype)
    made = kernel_spec.kernel_spec(einsum, "full")
    assert made is not None and made.swept == len(einsum.labels) - 1
    test_whole_numbers_agree_in_every_bit(equation, dtype)
    kernel_spec._kernel_spec.cache_clear()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize("equation", ["Z[m,n] = X[n,m] * 3 - r[n]", "Z[q: 2, p, n] = A[n,p] * q + r[n]"])
def test_strips_of_rows_whose_operands_are_turned(equation: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_STRIP", 16)
    made = kernel_spec.kernel_spec(einsum_of(equation, dtype)[0], "full")
    assert made is not None and made.crossed
    test_whole_numbers_agree_in_every_bit(equation, dtype)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("equation", FLOATING)
def test_functions_agree_closely(equation: str, dtype: str) -> None:
    einsum, names = einsum_of(equation, dtype)
    operands = [numbers(name, dtype) for name in names]
    slow, fast = both(einsum, "full")
    expected, got = (ran(kernel, einsum, operands, False) for kernel in (slow, fast))
    tolerance = 32 * np.finfo(einsum.dtype.numpy).eps
    np.testing.assert_allclose(got[0][0], expected[0][0], rtol=tolerance, atol=tolerance)
    assert got[1] == expected[1]


@pytest.mark.parametrize("equation", [*EQUATIONS, *FLOATING])
def test_a_nan_that_was_there_is_no_news(equation: str) -> None:
    einsum, names = einsum_of(equation, "f32")
    operands = [numbers(name, "f32") for name in names]
    operands[0].reshape(-1)[5] = np.nan
    modes: list[select.Mode] = ["full"] if einsum.aggregation is None else ["full", "accumulate"]
    for mode in modes:
        if select.kernel_spec(einsum, mode) is None:
            continue
        slow, fast = both(einsum, mode)
        expected, got = (ran(kernel, einsum, operands, mode == "accumulate") for kernel in (slow, fast))
        for a, b in zip(expected[0], got[0], strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        assert got[1] == expected[1] == 0


def test_what_is_made_is_reported() -> None:
    einsum, names = einsum_of("Z[n,m] = r[n] / X[n,m]", "f32")
    operands = [np.zeros_like(numbers(name, "f32")) for name in names]
    _, fast = both(einsum, "full")
    assert ran(fast, einsum, operands, False)[1] & (INVALID | DIVIDE) == INVALID
    operands[names.index("r")][:] = 1
    assert ran(fast, einsum, operands, False)[1] == DIVIDE


def test_rows_that_lie_apart_are_left_to_numpy() -> None:
    einsum, names = einsum_of("Z[n] = sum[m] abs(X[n,m])", "f32")
    _, fast = both(einsum, "full")
    wide = np.zeros((13, 74), np.float32)
    wide[:, ::2] = numbers("X", "f32")
    np.testing.assert_array_equal(ran(fast, einsum, [wide[:, ::2]], False)[0][0], np.abs(wide).sum(1))


def test_a_damaged_object_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    einsum, _ = einsum_of("Z[n] = max[m] X[n,m]", "f32")
    assert select.prepare_kernels([(einsum, "full")]) == 1
    (kept,) = (tmp_path / "einturnip" / "kernels").glob("*.o")
    for damage in (b"", kept.read_bytes()[:700], b"nonsense" * 99):
        code_cache.forget()
        kept.write_bytes(damage)
        assert select.prepare_kernels([(einsum, "full")]) == 1


def test_without_a_cache_code_is_compiled_for_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "einturnip").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code_cache.forget()
    einsum, names = einsum_of("Z[n] = max[m] X[n,m]", "f32")
    assert select.prepare_kernels([(einsum, "full")]) == 1
    x = numbers("X", "f32")
    assert names == ["X"]
    np.testing.assert_array_equal(
        ran(compile_kernel(einsum, einsum.bounds, "full"), einsum, [x], False)[0][0], x.max(1)
    )
    code_cache.forget()
    assert code_cache.load_compiled(select.machine_code(einsum, "full")) == 0


def test_the_oldest_objects_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(code_cache, "KERNELS", replace(code_cache.KERNELS, max_files=2))
    folder = tmp_path / "einturnip" / "kernels"
    folder.mkdir(parents=True)
    for k in range(3):
        (folder / f"old{k}.o").write_bytes(b"")
        os.utime(folder / f"old{k}.o", (k, k))
    Path(temporary_path(str(folder / "old3.o"))).write_bytes(b"")  # of a process that is gone
    assert select.prepare_kernels([(einsum_of("Z[n] = max[m] X[n,m]", "f32")[0], "full")]) == 1
    assert len(kept := sorted(path.name for path in folder.iterdir())) == 2
    assert "old2.o" in kept


def test_what_is_to_be_machine_code_can_be_compiled() -> None:
    """Conversions between all types: code that calls a function of a library, as from f64 to f16, cannot be loaded."""
    kinds = [dtype for dtype in DTYPES.values() if dtype.kind != "c"]
    codes = []
    for source in kinds:
        for target in kinds:
            cast = ScalarCast(OperandRef(0, source), target)
            codes += select.machine_code(Einsum(("i",), (37,), 1, ((0,),), (source,), cast, None), "full")
    assert len(codes) > 80
    code_cache.prepare(codes)
    assert all(code_cache.find(code) is not None for code in codes)
