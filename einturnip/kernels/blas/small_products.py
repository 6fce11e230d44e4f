"""What products of many small matrices take: by the general kernels, and by one call of machine code."""

from __future__ import annotations

from collections.abc import Sequence

_POINT_NS = 1.2  # of the general kernels, for four bytes
# Of machine code, one thread of an AVX-512 core: a product whatever its sides, an element that is packed or put, four
# rows of a vector multiplied.
_PRODUCT_NS, _ELEMENT_NS, _ROWS_NS, _ROWS, _VECTOR_NBYTES = 150.0, 0.6, 0.2, 4, 64


def general_ns(points: int, itemsize: int) -> float:
    """Nanoseconds that NumPy takes, operation by operation."""
    return points * _POINT_NS * itemsize / 4


def multiplied_ns(sides: Sequence[int], itemsize: int) -> float:
    """Nanoseconds of one product among many, packed and put where it belongs."""
    (m, n, k), width = sides, _VECTOR_NBYTES // itemsize
    rows, vectors = -(-m // _ROWS), -(-n // width)
    return _PRODUCT_NS + _ELEMENT_NS * (m * n + (m + n) * k) + _ROWS_NS * rows * vectors * k
