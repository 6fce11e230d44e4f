"""Times of products of many small matrices, by NumPy's general kernels and by machine code."""

from __future__ import annotations

from collections.abc import Sequence

_POINT_NS = 1.2  # of the general kernels, for each point of four bytes
# Of machine code, on one thread of an AVX-512 core: fixed cost of a product, packing or storing an element, multiplying
# four rows by a vector.
_PRODUCT_NS, _ELEMENT_NS, _ROWS_NS, _ROWS, _VECTOR_NBYTES = 150.0, 0.6, 0.2, 4, 64


def general_ns(points: int, itemsize: int) -> float:
    """Return the nanoseconds that NumPy takes, operation by operation."""
    return points * _POINT_NS * itemsize / 4


def multiplied_ns(sides: Sequence[int], itemsize: int) -> float:
    """Return the nanoseconds of one product among many, with packing and storing."""
    (m, n, k), width = sides, _VECTOR_NBYTES // itemsize
    rows, vectors = -(-m // _ROWS), -(-n // width)
    return _PRODUCT_NS + _ELEMENT_NS * (m * n + (m + n) * k) + _ROWS_NS * rows * vectors * k
