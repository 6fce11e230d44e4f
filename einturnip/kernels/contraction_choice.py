"""Decides what computes a contraction on the CPU: BLAS, generated code, or NumPy.

docs/products.md shows the decisions in a table, which a test holds against this module.
"""

from __future__ import annotations

import math

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.kernels.blas.contraction import ContractionKernel, contraction_kernel
from einturnip.kernels.blas.contraction_spec import ContractionSpec, contraction_spec
from einturnip.kernels.blas.matrices import general_ns, multiplied_ns
from einturnip.kernels.llvm.kernel_spec import KernelSpec, kernel_spec
from einturnip.kernels.llvm.pack_routines import ProductSpec
from einturnip.kernels.llvm.processor import scales_in_vectors
from einturnip.kernels.protocol import Mode


def uses_blas(product: ContractionSpec) -> bool:
    """Return whether BLAS computes a contraction without generated code; else NumPy's general kernels do."""
    return not product.rounds and not product.expensive


def contraction_code(product: ContractionSpec, einsum: Einsum, mode: Mode) -> KernelSpec | ProductSpec | None:
    """Return a contraction's generated code, which is preferred to BLAS and NumPy, if there is any."""
    if product.rounds:
        return kernel_spec(einsum, mode)
    if not product.is_vector:
        return packed_product(product) if _is_fast(product) else None
    made = kernel_spec(einsum, mode)
    return made if made is not None and made.vector >= einsum.n_out and not product.expensive else None


def packed_product(product: ContractionSpec) -> ProductSpec | None:
    """Return the packed loop nest of f32 or f64 matrices without conversion; else None."""
    stored = product.dtype in (F32, F64) and not any(product.converts)
    return ProductSpec(product.dtype) if stored and not product.is_vector else None


def _is_fast(product: ContractionSpec) -> bool:
    """Return whether the packed nest is as fast as BLAS, or as NumPy's general loops if BLAS is slower."""
    if not product.expensive:
        return True
    size, batch = product.dtype.itemsize, math.prod(product.long[p] for p in product.batch)
    return batch * multiplied_ns(product.sides, size) <= general_ns(math.prod(product.extents), size)


def region_product(kernel: object) -> ProductSpec | None:
    """Return the packed nest of a product in a region's block if AVX-512 makes it faster than BLAS."""
    if not isinstance(kernel, ContractionSpec) or not scales_in_vectors("float", 16):
        return None
    return packed_product(kernel)


def recorded_product(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> ContractionKernel | None:
    """Return a product within a region's block that is better recorded than passed to BLAS; else None."""
    product = contraction_spec(einsum, extents, mode == "full") if mode != "finalize" and 0 not in extents else None
    recorded = product is not None and region_product(product) and _is_fast(product)
    return contraction_kernel(product) if product is not None and recorded else None
