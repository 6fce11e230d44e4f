"""Matrix products on raw memory: the CBLAS that NumPy itself has loaded, else np.matmul."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import unit
from einturnip.kernels.protocol import KernelCall, PythonCall

_ROW_MAJOR, _AS_IS, _TRANSPOSED = 101, 111, 112
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_PREFIXES, _SUFFIXES = ("scipy_cblas_", "cblas_"), ("64_", "_64", "")


_Stored: TypeAlias = tuple[int, bool, int]
# Words that hold addresses: of left side, right side and result in ?gemm, of matrix, vector and result in ?gemv.
_GEMM_ADDRESSES, _GEMV_ADDRESSES = (7, 9, 12), (5, 7, 10)


class MatrixOperand(NamedTuple):
    """A matrix in memory: the address of its first element, its strides in elements."""

    address: int
    row_stride: int
    column_stride: int


def orientation(rows: int, columns: int, row_stride: int, column_stride: int) -> tuple[bool, int] | None:
    """Return (transposed, leading dimension) under which BLAS reads the matrix in place; else None."""
    if (columns == 1 or column_stride == 1) and (rows == 1 or row_stride >= columns):
        return False, max(columns, row_stride if rows > 1 else 1)
    if (rows == 1 or row_stride == 1) and (columns == 1 or column_stride >= rows):
        return True, max(rows, column_stride if columns > 1 else 1)
    return None


class MatrixProduct:
    """C = alpha A B + beta C in one element type, for matrices that BLAS can read in place.

    ``scratch``: whether beta = 1 needs scratch for m * n elements, whose address is the last argument.
    """

    scratch = False

    def __init__(self, dtype: np.dtype[Any], alpha: complex) -> None:
        self.dtype, self.alpha = dtype, alpha

    def prepare(
        self, m: int, n: int, k: int, a: MatrixOperand, b: MatrixOperand, beta: int, c: MatrixOperand, scratch: int = 0
    ) -> KernelCall:
        """Prepare the product of (m, k) by (k, n); ``beta`` is 0 or 1. Its tiles are a, b and c."""
        raise NotImplementedError


class CblasProduct(MatrixProduct):
    """?gemm and ?gemv of a loaded library; calls release the interpreter lock."""

    def __init__(self, dtype: np.dtype[Any], alpha: complex, gemm: Any, gemv: Any) -> None:
        super().__init__(dtype, alpha)
        self._gemm, self._gemv = gemm, gemv
        self._scalars = tuple(map(self._scalar, (0, 1, alpha)))

    def _scalar(self, value: complex) -> Any:
        """Convert a scalar: real types are passed by value, complex ones by address."""
        if self.dtype.kind != "c":
            return float(value.real)
        real = ctypes.c_float if self.dtype.itemsize == 8 else ctypes.c_double
        return (real * 2)(value.real, value.imag)

    def prepare(
        self, m: int, n: int, k: int, a: MatrixOperand, b: MatrixOperand, beta: int, c: MatrixOperand, scratch: int = 0
    ) -> KernelCall:
        """See MatrixProduct."""
        flip_a, lda = _oriented(m, k, a)
        flip_b, ldb = _oriented(k, n, b)
        left, right = (a.address, flip_a, lda), (b.address, flip_b, ldb)
        matrix, x, y = _GEMV_ADDRESSES
        if n == 1 and beta:  # with beta = 0 some gemv read the values that they should overwrite
            words = self._vector(m, k, left, b.address, b.row_stride, c.address, c.row_stride)
            return KernelCall(self._gemv, words, (matrix, x, y))
        if m == 1 and beta:
            right = b.address, not flip_b, ldb
            words = self._vector(n, k, right, a.address, a.column_stride, c.address, c.column_stride)
            return KernelCall(self._gemv, words, (x, matrix, y))
        return self._matrix(m, n, k, left, right, beta, c)

    def _matrix(self, m: int, n: int, k: int, a: _Stored, b: _Stored, beta: int, c: MatrixOperand) -> KernelCall:
        flip, ldc = _oriented(m, n, c)
        left, right, out = _GEMM_ADDRESSES
        if flip:  # C^T = B^T A^T
            m, n, a, b, left, right = n, m, b, a, right, left
        zero_one, alpha = self._scalars[beta], self._scalars[2]
        ops = [_TRANSPOSED if x[1] != flip else _AS_IS for x in (a, b)]
        words = [_ROW_MAJOR, *ops, m, n, k, alpha, a[0], a[2], b[0], b[2], zero_one, c.address, ldc]
        return KernelCall(self._gemm, words, (left, right, out))

    def _vector(self, m: int, k: int, a: _Stored, x: int, step_x: int, y: int, step_y: int) -> list[Any]:
        """Return the words of y += alpha A x for an (m, k) matrix, stored as (k, m) if flipped."""
        address, flip, lda = a
        rows, columns = (k, m) if flip else (m, k)
        op = _TRANSPOSED if flip else _AS_IS
        step_x, step_y = step_x if k > 1 else 1, step_y if m > 1 else 1
        _, one, alpha = self._scalars
        return [_ROW_MAJOR, op, rows, columns, alpha, address, lda, x, step_x, one, y, step_y]


class NumpyProduct(MatrixProduct):
    """np.matmul on views of the memory, for installations whose BLAS cannot be called."""

    scratch = True

    def prepare(
        self, m: int, n: int, k: int, a: MatrixOperand, b: MatrixOperand, beta: int, c: MatrixOperand, scratch: int = 0
    ) -> KernelCall:
        """See MatrixProduct."""
        target, out = self._view(m, n, c), self._view(m, n, MatrixOperand(scratch, n, 1))
        left, right, flags = self._view(m, k, a), self._view(k, n, b), unit()

        def run() -> int:
            flags.clear()
            self._multiply(left, right, beta, target, out)
            return flags.read()

        return PythonCall(run)

    def _multiply(self, a: Array, b: Array, beta: int, target: Array, out: Array) -> None:
        np.matmul(a, b, out=out)
        if self.alpha != 1:
            np.multiply(out, self.alpha, out=out)
        if beta:
            np.add(target, out, out=target)
        else:
            np.copyto(target, out)

    def _view(self, rows: int, columns: int, x: MatrixOperand) -> Array:
        size = self.dtype.itemsize
        extent = ((rows - 1) * x.row_stride + (columns - 1) * x.column_stride + 1) * size
        memory: Any = (ctypes.c_char * extent).from_address(x.address)
        strides = (x.row_stride * size, x.column_stride * size)
        return np.ndarray((rows, columns), self.dtype, memory, strides=strides)


def _oriented(rows: int, columns: int, x: MatrixOperand) -> tuple[bool, int]:
    found = orientation(rows, columns, x.row_stride, x.column_stride)
    assert found is not None
    return found


def product(dtype: np.dtype[Any], alpha: complex) -> MatrixProduct:
    """Return the fastest product of this process for f32, f64, c64 or c128."""
    functions = _functions(dtype.name)
    return NumpyProduct(dtype, alpha) if functions is None else CblasProduct(dtype, alpha, *functions)


def needs_scratch(dtype: np.dtype[Any]) -> bool:
    """Return whether adding a product to a matrix needs scratch, because no CBLAS is loaded."""
    return _functions(dtype.name) is None


@cache
def _functions(dtype: str) -> tuple[Any, Any] | None:
    """Return ?gemm and ?gemv with their argument types set."""
    found = _library()
    if found is None:
        return None
    library, prefix, suffix, _ = found
    letter, integer, flag, address = _LETTERS[dtype], _integer(suffix), ctypes.c_int, ctypes.c_void_p
    scalar = {"s": ctypes.c_float, "d": ctypes.c_double}.get(letter, address)
    # Indexing a library returns a new function object; ctypes stores argtypes on the object.
    gemm, gemv = (library[f"{prefix}{letter}{name}{suffix}"] for name in ("gemm", "gemv"))
    gemm.argtypes = [flag] * 3 + [integer] * 3 + [scalar, *[address, integer] * 2, scalar, address, integer]
    gemv.argtypes = [flag] * 2 + [integer] * 2 + [scalar, *[address, integer] * 2, scalar, address, integer]
    gemm.restype = gemv.restype = None
    return gemm, gemv


def _integer(suffix: str) -> Any:
    """Return the type of sizes: 64 bits in libraries whose names say so."""
    return ctypes.c_int64 if "64" in suffix else ctypes.c_int32


@cache
def _library() -> tuple[ctypes.CDLL, str, str, str] | None:
    """Return the loaded CBLAS, its name prefix and suffix, and its path; NumPy's own is preferred."""
    import threadpoolctl

    paths = [str(i["filepath"]) for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"]
    for path in sorted(paths, key=lambda p: "numpy" not in p):
        library = ctypes.CDLL(path)
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                if hasattr(library, f"{prefix}sgemm{suffix}"):
                    return library, prefix, suffix, path
    return None


def cblas_name() -> str | None:
    """Return the path of the library that kernels call; None if they use np.matmul."""
    found = _library()
    return None if found is None else found[3]
