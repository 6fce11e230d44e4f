"""Called functions of CuPy and cuBLAS exist and take that many arguments; cuBLAS gets the right values."""

from __future__ import annotations

import ctypes
import inspect
import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import CapacityError
from einturnip.devices.cuda import calls as calls_module
from einturnip.devices.cuda.calls import CupyCalls
from einturnip.devices.cuda.cublas import FULL_PRECISION_SUMS, SIGNATURES, Cublas, CublasProduct
from einturnip.kernels.cuda.types import CudaKernel

from .conftest import put

# The functions' parameters as CuPy 14.2's modules state them in their docstrings; what they give here.
RUNTIME = {
    "setDevice": ("device", None),
    "getDevice": ("", 0),
    "free": ("ptr", None),
    "malloc": ("size", 4096),
    "hostAlloc": ("size, flags", 8192),
    "freeHost": ("ptr", None),
    "streamCreateWithFlags": ("flags", 7),
    "streamDestroy": ("stream", None),
    "streamSynchronize": ("stream", None),
    "streamWaitEvent": ("stream, event, flags=0", None),
    "eventCreate": ("", 9),
    "eventDestroy": ("event", None),
    "eventRecord": ("event, stream", None),
    "eventQuery": ("event", 600),
    "eventElapsedTime": ("start, end", 1500.0),
    "memcpyAsync": ("dst, src, size, kind, stream", None),
    "deviceCanAccessPeer": ("device, peer", 1),
    "deviceEnablePeerAccess": ("peer", None),
    "check_status": ("status", None),
    "getDeviceProperties": ("device", {"major": 9, "minor": 0, "name": b"GPU"}),
    "getDeviceCount": ("", 1),
    "memGetInfo": ("", (1, 2)),
    "driverGetVersion": ("", 13000),
}
DRIVER = {
    "moduleLoadData": ("image", 11),
    "moduleUnload": ("module", None),
    "moduleGetFunction": ("module, funcname", 13),
    "launchKernel": (
        "f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, stream, "
        "kernel_params, extra",
        None,
    ),
}
CONSTANTS = {"hostAllocPortable": 1, "streamNonBlocking": 1, "memcpyDefault": 4}


def module(name: str, table: dict[str, tuple[str, Any]], called: list[str]) -> types.ModuleType:
    """A module with these functions and no other."""
    made = types.ModuleType(name)
    for function, (parameters, result) in table.items():
        check: Callable[..., None] = eval(f"lambda {parameters}: None")

        def call(*given: Any, check: Any = check, result: Any = result, function: str = function) -> Any:
            check(*given)
            called.append(function)
            return result

        setattr(made, function, call)
    return made


class Library:
    """The functions of libcublas that are used, in C's types, working on host memory."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        for name, parameters in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *parameters)(self._noting(name)))

    def _noting(self, name: str) -> Callable[..., int]:
        def note(*given: Any) -> int:
            self.said.append((name, *given))
            if name == "cublasCreate_v2":
                ctypes.c_void_p.from_address(given[0]).value = 77
            return self._gemm(*given) if name == "cublasGemmStridedBatchedEx" else 0

        return note

    def _gemm(self, handle: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, *rest: Any) -> int:
        a, kind, lda, step_a, b, _, ldb, step_b, beta, c, _, ldc, step_c, batch, _compute, _algo = rest
        dtype = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}[kind]
        z, y = (
            np.ndarray(1, dtype, (ctypes.c_char * np.dtype(dtype).itemsize).from_address(at))[0] for at in (alpha, beta)
        )

        def view(at: int, rows: int, columns: int, leading: int, step: int) -> Any:
            item = np.dtype(dtype).itemsize
            room = (ctypes.c_char * (item * (batch * max(step, 1) + rows + columns * leading))).from_address(at)
            return np.ndarray((batch, rows, columns), dtype, room, 0, (step * item, item, leading * item))

        left = view(a, k, m, lda, step_a).swapaxes(1, 2) if ta else view(a, m, k, lda, step_a)
        right = view(b, n, k, ldb, step_b).swapaxes(1, 2) if tb else view(b, k, n, ldb, step_b)
        out = view(c, m, n, ldc, step_c)
        out[...] = z * (left @ right) + (y * out if y else 0)
        return 0


def test_every_call_of_cupy_has_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    runtime = module("cupy_backends.cuda.api.runtime", RUNTIME, called)
    vars(runtime).update(CONSTANTS)
    for one in (runtime, module("cupy_backends.cuda.api.driver", DRIVER, called)):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    library = Library()
    monkeypatch.setattr(calls_module, "load", lambda: library)
    monkeypatch.setattr(calls_module, "compiled", lambda *of: repr(of).encode())
    c = CupyCalls(0, others=[1])
    stream, event = c.stream(), c.event()
    c.free(c.malloc(8)), c.host_free(c.host_alloc(8))
    c.record(event, stream), c.wait(stream, event), c.synchronize(stream), c.copy(1, 2, 3, stream)
    assert not c.reached(event) and c.seconds_between(event, event) == 1.5
    kernel = types.SimpleNamespace(source="code")
    assert isinstance(kernel, CudaKernel) is False  # only its source is asked for
    c.launch(c.function(c.module(kernel), "f"), (1, 1, 1), (32, 1, 1), 100_000, b"head", b"fixed", stream)  # type: ignore[arg-type]
    c.workspace(stream, 256, 512)
    c.use()
    c.close()
    asked = {"getDeviceCount", "memGetInfo", "check_status"}  # by probe, and where something fails
    assert set(called) | asked == {*RUNTIME, *DRIVER}


def test_the_table_of_calls_is_that_of_the_cupy_here() -> None:
    pytest.importorskip("cupy_backends")
    for name, table in (("runtime", RUNTIME), ("driver", DRIVER)):
        real = import_module(f"cupy_backends.cuda.api.{name}")
        for function, (parameters, _) in table.items():
            stated = getattr(real, function).__doc__.split("\n")[0]
            expected = len(inspect.signature(eval(f"lambda {parameters}: 0")).parameters)
            inside = stated[stated.index("(") + 1 : stated.rindex(")")]
            assert len([x for x in inside.split(",") if x.strip()]) == expected, stated


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product(dtype: str, transposed: bool) -> None:
    kind = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}[dtype]
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, shape).astype(kind) for shape in ((3, 4, 5), (3, 6, 4), (3, 6, 5)))
    if transposed:
        a = np.ascontiguousarray(a.swapaxes(1, 2))
    library = Library()
    blas = Cublas(library, tf32=False)
    blas.workspaces = {5: (1024, 4096), 6: (8192, 4096)}
    before = c.copy()
    # Rows first, this is c += 2 b a: cuBLAS counts columns first, so a comes first.
    left = (a.ctypes.data, transposed, 4 if transposed else 5, 20)
    right = (b.ctypes.data, False, 4, 24)
    product = CublasProduct(5, 6, 4, 3, left, right, (c.ctypes.data, 5, 30), (dtype,) * 3, 2, 1.0)
    for stream in (5, 5, 6):
        blas.multiply(product, stream)
    blas.close()
    blas.close()
    np.testing.assert_array_equal(c, before + 6 * (b @ (a.swapaxes(1, 2) if transposed else a)))
    order = [said[0] for said in library.said]
    given = ["cublasGemmStridedBatchedEx"]
    new = ["cublasSetStream_v2", "cublasSetWorkspace_v2", *given]  # setting the stream takes the workspace away
    assert order == ["cublasCreate_v2", "cublasSetMathMode", *new, *given, *new, "cublasDestroy_v2"]
    assert library.said[1][2] == FULL_PRECISION_SUMS and library.said[3][2:] == (1024, 4096)


@pytest.mark.parametrize(("factors", "tf32", "compute"), [
    ("f32", False, 68), ("f32", True, 77), ("f16", True, 68), ("bf16", False, 68), ("f64", True, 70), ("c64", True, 68),
])  # fmt: skip
def test_sums_are_of_f32_and_factors_rounded_only_where_asked(factors: str, tf32: bool, compute: int) -> None:
    library = Library()
    library._gemm = lambda *given: library.said.append(("sums", given[-2])) or 0  # type: ignore[method-assign]
    blas = Cublas(library, tf32)
    blas.workspaces = {1: (0, 0)}
    sums = factors if factors in ("f64", "c64") else "f32"
    blas.multiply(
        CublasProduct(1, 1, 1, 1, (0, False, 1, 1), (0, False, 1, 1), (0, 1, 1), (factors, sums, sums), 1, 0.0), 1
    )
    assert library.said[-1] == ("sums", compute)


def test_what_cublas_refuses_is_told() -> None:
    library = Library()
    library._gemm = lambda *given: 15  # type: ignore[method-assign]
    blas = Cublas(library, False)
    blas.workspaces = {1: (0, 0)}
    with pytest.raises(RuntimeError, match="GemmStridedBatchedEx failed with status 15"):
        blas.multiply(
            CublasProduct(1, 1, 1, 1, (0, False, 1, 1), (0, False, 1, 1), (0, 1, 1), ("f32", "f32", "f32"), 1, 0.0), 1
        )


def test_the_workspace_of_cublas_is_within_the_memory_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    made = put(monkeypatch, "cuda", [1e-3])
    program = et.compile("input A : f32[i,k], B : f32[k,j]\nC[i,j] = sum[k] A[i,k] * B[k,j]\noutput C\n")
    data = {"A": np.ones((6, 6), np.float32), "B": np.ones((6, 6), np.float32)}
    with pytest.raises(CapacityError) as refused:
        program.plan(memory=1, data=data, device="cuda")
    for memory in (None, 1 << 20, 1 << 18, refused.value.needed):
        result = program.plan(memory=memory, data=data, device="cuda").run()
        np.testing.assert_array_equal(result["C"], np.full((6, 6), 6.0))
        taken = sum(nbytes for _, nbytes in made[-1].room_of.values())
        assert result.report.arena_nbytes + taken <= (memory or 64 << 20)
        assert taken or memory == refused.value.needed
