"""Sparse arrays of SciPy and pydata/sparse: kept as coordinates, from which each tile is filled."""

from __future__ import annotations

from typing import Any

import numpy as np

from einturnip.core.errors import DTypeError
from einturnip.ir.dtypes import from_numpy
from einturnip.storage.sliced import SlicedSource, kind_of, sliced_source
from einturnip.storage.types import Array, Region, region_shape


class Coordinates:
    """The stored elements of a sparse array, in C order: ``axes`` has the indices along each axis."""

    def __init__(self, axes: list[Array], values: Array, fill: Any) -> None:
        order = np.lexsort(axes[::-1]) if axes else np.arange(len(values))
        if np.array_equal(order, np.arange(len(values))):
            self.axes, self.values = axes, values
        else:
            self.axes, self.values = [axis[order] for axis in axes], values[order]
        self.fill = fill

    def dense(self, region: Region) -> Array:
        """Return a region with all its elements."""
        out = np.full(region_shape(region), self.fill, self.values.dtype)
        if not region:
            out[()] = self.values[0] if len(self.values) else self.fill
            return out
        first, last = np.searchsorted(self.axes[0], region[0])
        axes = [axis[first:last] for axis in self.axes]
        inside = np.ones(last - first, bool)
        for axis, (start, stop) in zip(axes[1:], region[1:], strict=True):
            inside &= (axis >= start) & (axis < stop)
        at = tuple(axis[inside] - start for axis, (start, _) in zip(axes, region, strict=True))
        out[at] = self.values[first:last][inside]
        return out


def sparse_source(value: Any, name: str) -> SlicedSource | None:
    """Return the source of a sparse array; None for other objects.

    Raises:
        DTypeError: it is not numeric.
    """
    convert = getattr(value, "tocoo", None) or getattr(value, "to_coo", None) or getattr(value, "asformat", None)
    if convert is None and not hasattr(value, "coords"):
        return None
    found = value if hasattr(value, "coords") and hasattr(value, "data") else _converted(value)
    if hasattr(found, "sum_duplicates") and not getattr(found, "has_canonical_format", False):
        found = found.copy()
        found.sum_duplicates()
    try:
        dtype = from_numpy(found.data.dtype)
    except KeyError:
        raise DTypeError(
            f"input {name}: the {kind_of(value)} given has dtype {value.dtype}, which einturnip has no type for; "
            "convert it with .astype"
        ) from None
    kept = Coordinates([np.asarray(axis) for axis in found.coords], found.data, getattr(value, "fill_value", 0))
    shape = tuple(int(n) for n in value.shape)
    source = sliced_source(value, name, shape, dtype, kept.dense)
    assert isinstance(source, SlicedSource)
    return source


def _converted(value: Any) -> Any:
    if hasattr(value, "to_coo"):
        return value.to_coo()
    return value.tocoo() if hasattr(value, "tocoo") else value.asformat("coo")
