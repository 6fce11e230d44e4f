"""Calls cuBLAS directly.

CuPy's wrappers always use CuPy's current stream and cannot set a workspace.

CuPy's module is still imported: it finds and loads the library, which this module then opens by its name.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from einturnip.core.errors import DeviceError

NAMES = ("libcublas.so.13", "libcublas.so.12")
DATA = {"f32": 0, "f64": 1, "f16": 2, "c64": 4, "c128": 5, "bf16": 14}  # cudaDataType
COMPUTE_TYPES = {"f16": 68, "bf16": 68, "f32": 68, "c64": 68, "f64": 70, "c128": 70}  # CUBLAS_COMPUTE_32F, _64F
TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
FULL_PRECISION_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: no partial sums in f16
_SCALARS = {"f32": "f", "f64": "d", "c64": "ff", "c128": "dd"}

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasDestroy_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasGemmStridedBatchedEx": (
        c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p,
        c_void_p, c_int, c_int, c_longlong, c_void_p, c_int, c_int, c_longlong, c_void_p,
        c_void_p, c_int, c_int, c_longlong, c_int, c_int, c_int,
    ),
}  # fmt: skip
"""Parameter types of the functions used; all of them return a status."""


@dataclass(frozen=True, slots=True)
class CublasProduct:
    """A batch of products ``c[i] = alpha a[i] b[i] + beta c[i]``, column-major as in cuBLAS.

    The sizes are (m, k) by (k, n).

    Units: dimensions and strides in elements.
    """

    m: int
    n: int
    k: int
    batch: int
    a: tuple[int, bool, int, int]  # address, transposed, leading dimension, stride of the batch
    b: tuple[int, bool, int, int]
    c: tuple[int, int, int]  # address, leading dimension, stride of the batch
    dtypes: tuple[str, str, str]  # of a and b, of the sums, of c
    alpha: complex
    beta: float


def load() -> Any:
    """Return the cuBLAS library that CuPy uses.

    Raises:
        ImportError: CuPy does not find it.
        DeviceError: its version is not supported.
    """
    _ = import_module("cupy_backends.cuda.libs").cublas
    for name in NAMES:
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError:
            continue
    raise DeviceError(f"CuPy loads a cuBLAS that is none of {', '.join(NAMES)}. help: pip install 'cupy-cuda13x[ctk]'")


class Cublas:
    """A cuBLAS handle with a separate workspace for each stream.

    ``workspaces[stream]``: (address, bytes).

    ``tf32``: products of f32 can round their factors to 10 bits, which tensor cores multiply faster.
    """

    def __init__(self, library: Any, tf32: bool) -> None:
        self._library, self._tf32 = library, tf32
        for name, parameters in SIGNATURES.items():
            getattr(library, name).argtypes = parameters
        handle = c_void_p()
        self._check(library.cublasCreate_v2(ctypes.addressof(handle)), "cublasCreate")
        self._handle: int | None = handle.value
        self._check(library.cublasSetMathMode(self._handle, FULL_PRECISION_SUMS), "cublasSetMathMode")
        self._stream = 0
        self.workspaces: dict[int, tuple[int, int]] = {}

    def multiply(self, product: CublasProduct, stream: int) -> None:
        """Submit a batch of products to a stream."""
        p, library = product, self._library
        if stream != self._stream:
            self._check(library.cublasSetStream_v2(self._handle, stream), "cublasSetStream")  # resets the workspace
            self._check(library.cublasSetWorkspace_v2(self._handle, *self.workspaces[stream]), "cublasSetWorkspace")
            self._stream = stream
        factors, sums, result = p.dtypes
        alpha, beta = (_scalar(sums, z) for z in (p.alpha, complex(p.beta)))
        compute = TF32 if self._tf32 and factors == "f32" else COMPUTE_TYPES[factors]
        status = library.cublasGemmStridedBatchedEx(
            self._handle, int(p.a[1]), int(p.b[1]), p.m, p.n, p.k, ctypes.addressof(alpha),
            p.a[0], DATA[factors], p.a[2], p.a[3], p.b[0], DATA[factors], p.b[2], p.b[3], ctypes.addressof(beta),
            p.c[0], DATA[result], p.c[1], p.c[2], p.batch, compute, -1,
        )  # fmt: skip
        self._check(status, "cublasGemmStridedBatchedEx")

    def close(self) -> None:
        """Release the handle; may be called again."""
        if self._handle is not None:
            self._library.cublasDestroy_v2(self._handle)
            self._handle = None

    def _check(self, status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"{what} failed with status {status}")


def _scalar(kind: str, value: complex) -> Any:
    """Return a number in host memory in the type of the sums, as the library reads it."""
    layout = _SCALARS[kind]
    number = ctypes.c_float if layout[0] == "f" else ctypes.c_double
    return (number * len(layout))(*[value.real, value.imag][: len(layout)])
