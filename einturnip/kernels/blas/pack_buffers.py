"""Memory of a product outside the workspace: blocks that BLAS or generated code packs on each thread."""

from __future__ import annotations

import math

from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region

# Measured with OpenBLAS 0.3 for f32, f64, c64, c128. It packs _TERMS terms at a time (half as many complex ones) of all
# rows and of up to _COLUMNS columns, or of _THIN rows if there are only that many columns.
_TERMS, _COLUMNS, _THIN, _BUFFER_NBYTES = 384, 512, 128, 32 << 20
# Maximum of generated code, also in regions, and minimum of BLAS.
_MIN_NBYTES = 5 << 18


def packed_nbytes(einsum: Einsum | Region, extents: tuple[int, ...]) -> int:
    """Return the maximum bytes that a thread packs for a tile of these extents; 0 without a product."""
    if isinstance(einsum, Region):  # its blocks fit the caches
        return 2 * _MIN_NBYTES
    parts = contraction(einsum)
    if parts is None:
        return 0
    m, n, k = (math.prod(extents[p] for p in labels) for labels in (parts.m, parts.n, parts.k))
    terms = min(k, _TERMS // 2 if parts.product.kind == "c" else _TERMS)
    last = einsum.n_out - 1  # the result's rows lie along it
    rows, columns = (m, n) if last in parts.n else (n, m) if last in parts.m else (max(m, n), min(m, n))
    rows = rows if columns > _THIN else min(rows, _THIN)
    return max(_MIN_NBYTES, min(_BUFFER_NBYTES, (rows + min(columns, _COLUMNS)) * terms * parts.product.itemsize))
