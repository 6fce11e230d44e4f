"""Numeric columns and tables of pandas, polars and pyarrow: columns in place, tables by tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError
from einturnip.ir.dtypes import DType, from_numpy, promote
from einturnip.storage.arrays import ArraySource, element_type
from einturnip.storage.sliced import ObjectReader, SlicedSource, kind_of
from einturnip.storage.types import Array, Region, Source, region_shape


def table_source(value: Any, name: str) -> Source | None:
    """Return the source of a column or of a table ``[rows, columns]``; None for other objects.

    The type of a table is the common type of its columns, as NumPy has it.

    Raises:
        BindError: a column has missing values. DTypeError: a column is not numeric.
    """
    library = type(value).__module__.partition(".")[0]
    columns = _COLUMNS[library](value)
    if columns is None:
        return None
    is_table = len(getattr(value, "shape", (0,))) == 2
    dtypes = [_dtype_of(column, label, value, name) for label, column in columns]
    if not is_table:
        ((_, column),) = columns
        array = _in_place(column, library)
        if array is not None:
            return ArraySource(name, array, element_type(array, name))
    if not dtypes:
        raise BindError(f"input {name}: the {kind_of(value)} given has no columns")
    dtype = reduce(promote, dtypes)
    rows = len(columns[0][1])

    def fetch(region: Region) -> Array:
        (start, stop), *rest = region
        out = np.empty(region_shape(region), dtype.numpy)
        if not rest:
            out[...] = _part(columns[0][1], start, stop, library)
        else:
            for k in range(*rest[0]):
                out[:, k - rest[0][0]] = _part(columns[k][1], start, stop, library)
        return out

    def stated() -> tuple[int, ...]:
        return tuple(value.shape) if is_table else (len(value),)

    shape = (rows, len(columns)) if is_table else (rows,)
    return SlicedSource(ObjectReader(name, value, shape, dtype, fetch, stated))


def _pandas(value: Any) -> list[tuple[Any, Any]] | None:
    if hasattr(value, "columns"):
        return [(label, value.iloc[:, k]) for k, label in enumerate(value.columns)]
    return [(getattr(value, "name", None), value)] if hasattr(value, "to_numpy") else None


def _polars(value: Any) -> list[tuple[Any, Any]] | None:
    if hasattr(value, "collect"):
        raise BindError("a polars.LazyFrame has no values yet. help: pass its collect()")
    if hasattr(value, "get_columns"):
        return [(column.name, column) for column in value.get_columns()]
    return [(value.name, value)] if hasattr(value, "to_numpy") else None


def _pyarrow(value: Any) -> list[tuple[Any, Any]] | None:
    if hasattr(value, "column_names"):
        return list(zip(value.column_names, value.columns, strict=True))
    return [(None, value)] if hasattr(value, "null_count") and hasattr(value, "to_numpy") else None


_COLUMNS: dict[str, Callable[[Any], Sequence[tuple[Any, Any]] | None]] = {
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _pyarrow,
}


def _dtype_of(column: Any, label: Any, value: Any, name: str) -> DType:
    """The type of a column, from an empty part of it.

    Raises:
        BindError: it has missing values. DTypeError: it is not numeric.
    """
    library = type(value).__module__.partition(".")[0]
    place = f"input {name}: the {kind_of(value)} given" + ("" if label is None else f", column {label!r},")
    if _has_missing(column, library):
        raise BindError(f"{place} has missing values, which are no numbers. help: replace them, for instance by 0")
    try:
        if library == "pandas" and hasattr(column.dtype, "numpy_dtype"):
            return from_numpy(np.dtype(column.dtype.numpy_dtype))
        return from_numpy(np.asarray(_part(column, 0, 0, library)).dtype)
    except (KeyError, TypeError, ValueError):
        raise DTypeError(
            f"{place} has the type {getattr(column, 'dtype', getattr(column, 'type', None))}, which is not numeric. "
            "help: leave it out, or convert it to numbers"
        ) from None


def _has_missing(column: Any, library: str) -> bool:
    if library == "pandas":  # a NaN of a NumPy column is a number, and no missing value
        return not isinstance(column.dtype, np.dtype) and bool(column.isna().any())
    if library == "polars":
        return bool(column.null_count())
    return bool(column.null_count)


def _in_place(column: Any, library: str) -> Array | None:
    """The memory of a column that NumPy can share; None if the values would be copied."""
    if library == "pandas":
        return np.asarray(column.to_numpy()) if isinstance(column.dtype, np.dtype) else None
    try:
        found: Array = (
            column.to_numpy(allow_copy=False) if library == "polars" else column.to_numpy(zero_copy_only=True)
        )
    except Exception:  # each library has its own errors for values that have to be copied
        return None
    return found


def _part(column: Any, start: int, stop: int, library: str) -> Array:
    if library == "pandas":
        part = column.iloc[start:stop] if hasattr(column, "iloc") else column[start:stop]
        numpy = getattr(column.dtype, "numpy_dtype", None)
        return np.asarray(part.to_numpy() if numpy is None else part.to_numpy(numpy))
    part = column.slice(start, stop - start)
    if library == "polars" or not hasattr(part, "buffers"):
        return np.asarray(part.to_numpy())
    return np.asarray(part.to_numpy(zero_copy_only=False))
