"""Decides what computes a contraction on the CPU: BLAS, generated code, or NumPy.

Bounds the memory that it packs, too.

docs/products.md shows the decisions in a table, which a test holds against this module.
"""

from __future__ import annotations

import math

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import ContractionKernel, contraction_kernel
from einturnip.kernels.blas.contraction_spec import ContractionSpec, contraction_spec
from einturnip.kernels.blas.matrices import general_ns, multiplied_ns
from einturnip.kernels.llvm.functions import scales_in_vectors
from einturnip.kernels.llvm.kernel_spec import KernelSpec, kernel_spec
from einturnip.kernels.llvm.pack_plan import packed
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.protocol import Mode

# Small matrices: points of each in a batch, and a side of a single product. Measured up to batches of 32 x 32.
_SMALL_POINTS, _SMALL_SIDE = 1 << 15, 8
_FUSED = 2.0  # operations of a multiplication and an addition of vectors, with the loads of their loop


def uses_blas(product: ContractionSpec) -> bool:
    """Return whether BLAS computes a contraction without generated code; else NumPy's general kernels do."""
    return not product.rounds and not product.expensive


def contraction_code(product: ContractionSpec, einsum: Einsum, mode: Mode) -> KernelSpec | PackedSpec | None:
    """Return a contraction's generated code, which is preferred to BLAS and NumPy, if there is any."""
    if product.rounds:
        return kernel_spec(einsum, mode)
    if _is_small(product) and (made := _loops(product, einsum, mode)) is not None:
        return made
    if not product.is_vector:
        return packed_product(product) if _is_fast(product) else None
    made = kernel_spec(einsum, mode)
    return made if made is not None and made.vector >= einsum.n_out and not product.expensive else None


def _is_small(product: ContractionSpec) -> bool:
    """Return whether packing, or a call of BLAS, may take longer than multiplying the matrices."""
    if math.prod(product.sides) <= _SMALL_POINTS:
        return bool(product.batch) or product.expensive or min(product.sides) < _SMALL_SIDE
    return not product.batch and min(product.sides) < _SMALL_SIDE


def _loops(product: ContractionSpec, einsum: Einsum, mode: Mode) -> KernelSpec | None:
    """Return the loop nest of small matrices if it is the fastest code."""
    made = kernel_spec(einsum, mode)
    if made is None or made.packing is not None or not (made.is_short or product.batch or product.expensive):
        return None
    others = [product.contiguous_plan.cost_ns]
    if product.expensive:
        others = [general_ns(math.prod(product.extents), product.dtype.itemsize)]
    if packed_product(product) is not None:
        others.append(_multiplied_ns(product))
    return made if made.nanoseconds(product.extents, _FUSED) < min(others) else None


def packed_product(product: ContractionSpec) -> PackedSpec | None:
    """Return the packed loop nest of f32 or f64 matrices without conversion; else None."""
    stored = product.dtype in (F32, F64) and not any(product.converts)
    return PackedSpec.product(product.dtype) if stored and not product.is_vector else None


def _is_fast(product: ContractionSpec) -> bool:
    """Return whether the packed nest is as fast as BLAS, or as NumPy's general loops if BLAS is slower."""
    if not product.expensive:
        return True
    return _multiplied_ns(product) <= general_ns(math.prod(product.extents), product.dtype.itemsize)


def _multiplied_ns(product: ContractionSpec) -> float:
    """Return the nanoseconds of the packed nest."""
    batch = math.prod(product.long[p] for p in product.batch)
    return batch * multiplied_ns(product.sides, product.dtype.itemsize)


def region_product(kernel: object) -> PackedSpec | None:
    """Return the packed nest of a product in a region's block if AVX-512 makes it faster than BLAS."""
    if not isinstance(kernel, ContractionSpec) or not scales_in_vectors("float", 16):
        return None
    return packed_product(kernel)


def recorded_product(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> ContractionKernel | None:
    """Return a product within a region's block that is better recorded than passed to BLAS; else None."""
    product = contraction_spec(einsum, extents, mode == "full") if mode != "finalize" and 0 not in extents else None
    recorded = product is not None and region_product(product) and _is_fast(product)
    return contraction_kernel(product) if product is not None and recorded else None


# Measured with OpenBLAS 0.3 for f32, f64, c64, c128. It packs _TERMS terms at a time (half as many complex ones) of all
# rows and of up to _COLUMNS columns, or of _THIN rows if there are only that many columns.
_TERMS, _COLUMNS, _THIN, _BUFFER_NBYTES = 384, 512, 128, 32 << 20
# Maximum of generated code, also in regions, and minimum of BLAS; maximum of joins that are no products.
_MIN_NBYTES, _JOIN_NBYTES = 5 << 18, 3 << 18


def packed_nbytes(einsum: Einsum | Region, extents: tuple[int, ...]) -> int:
    """Return the maximum bytes that a thread packs for a tile of these extents; 0 if nothing is packed."""
    if isinstance(einsum, Region):  # its blocks fit the caches
        return 2 * _MIN_NBYTES
    parts = contraction(einsum)
    if parts is None:
        return 0 if packed(einsum) is None else _JOIN_NBYTES
    m, n, k = (math.prod(extents[p] for p in labels) for labels in (parts.m, parts.n, parts.k))
    terms = min(k, _TERMS // 2 if parts.product.kind == "c" else _TERMS)
    last = einsum.n_out - 1  # the result's rows lie along it
    rows, columns = (m, n) if last in parts.n else (n, m) if last in parts.m else (max(m, n), min(m, n))
    rows = rows if columns > _THIN else min(rows, _THIN)
    return max(_MIN_NBYTES, min(_BUFFER_NBYTES, (rows + min(columns, _COLUMNS)) * terms * parts.product.itemsize))
