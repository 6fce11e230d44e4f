"""Arrays of the caller as sources and sinks, used in place and copied only region by region."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError, EinturnipError
from einturnip.ir.dtypes import DType, from_numpy
from einturnip.storage.file_versions import MappedFile
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import StridedLayout
from einturnip.storage.types import Array, Extent, Region, slices

# Limit on the search for an element that two arrays share, in NumPy's units of work.
MAX_WORK = 10**5


class ArraySource:
    """A NumPy array of any strides and byte order."""

    def __init__(self, name: str, array: Array, dtype: DType) -> None:
        self.name, self.array, self.dtype = name, array, dtype
        self.tier = name
        self.mapped = None if array.base is None else MappedFile.of(name, array)
        self.shape: tuple[int, ...] = array.shape
        low = sum(min(0, stride * (n - 1)) for n, stride in zip(array.shape, array.strides, strict=True) if n)
        self._layout = StridedLayout(array.shape, array.strides, array.itemsize, -low)

    def read(self, region: Region, out: Array) -> int:
        """Copy the region into ``out``."""
        self._layout.check(region)
        copy_blocked(out, self.array[_window(region)])
        return out.nbytes

    def extent(self, region: Region) -> Extent:
        """The region's bytes as an extent, counted from the array's lowest address."""
        return self._layout.extent(region)

    def require_unchanged(self) -> None:
        """Raise StoreError if the file that the array maps, if any, has changed."""
        if self.mapped is not None:
            self.mapped.require_unchanged()

    def release(self, region: Region) -> None:
        """Nothing to do: the memory is the caller's."""

    def close(self) -> None:
        """Nothing to do: the memory is the caller's."""


class ArraySink(ArraySource):
    """A caller's array that receives an output. An abort does not restore its old content."""

    def write(self, region: Region, array: Array) -> int:
        """Copy ``array`` into the region."""
        self._layout.check(region)
        copy_blocked(self.array[_window(region)], array)
        return array.nbytes

    def commit(self) -> None:
        """Nothing to do: writes take effect at once."""

    def abort(self) -> None:
        """Nothing to do: writes cannot be undone."""


def _window(region: Region) -> tuple[Any, ...]:
    """The region as an index that yields a view even for a scalar."""
    return (*slices(region), ...)


def array_source(value: Any, name: str) -> ArraySource:
    """A source over a NumPy array, a number, or an object with an array interface or DLPack.

    Raises:
        BindError: the value is no array in the CPU's memory, or its dtype has no name in the language.
    """
    array = _as_array(value, name)
    return ArraySource(name, array, _element_type(array, name))


def array_sink(out: Any, name: str, shape: tuple[int, ...], dtype: DType) -> ArraySink:
    """Return a sink over the caller's array, which must have the output's shape and dtype.

    Raises:
        BindError: it has not, or it is read-only.
    """
    if not isinstance(out, np.ndarray):
        raise BindError(f"output {name}: out= takes a NumPy array or a file's name, not {type(out).__name__}")
    if out.shape != shape or _element_type(out, f"output {name}") != dtype:
        raise BindError(
            f"output {name}: is {_typed(dtype.name, shape)}, but the array given for it is "
            f"{_typed(str(out.dtype), out.shape)}"
        )
    if not out.flags.writeable:
        raise BindError(f"output {name}: the array given for it is read-only; pass a writable one")
    if out.size and any(stride == 0 and n > 1 for n, stride in zip(out.shape, out.strides, strict=True)):
        raise BindError(
            f"output {name}: the array given for it is a broadcast view, where elements share memory; copy it"
        )
    return ArraySink(name, out, dtype)


def require_apart(outs: Mapping[str, Any]) -> None:
    """Refuse two output arrays with a common element; if that takes too long to decide, they are accepted.

    Raises:
        BindError: names the two outputs.
    """
    arrays = [(name, out) for name, out in outs.items() if isinstance(out, np.ndarray)]
    for (a, x), (b, y) in combinations(arrays, 2):
        with contextlib.suppress(np.exceptions.TooHardError):
            if np.shares_memory(x, y, max_work=MAX_WORK):  # type: ignore[arg-type]
                raise BindError(f"the arrays given for outputs {a} and {b} share memory; give them two places")


def _as_array(value: Any, name: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (numbers.Number, np.generic, list, tuple)):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise BindError(f"input {name}: the nested lists given are not rectangular ({error})") from error
    try:
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
    except EinturnipError:  # raised by the object itself
        raise
    except Exception as error:
        raise BindError(
            f"input {name}: the {type(value).__name__} given does not share its memory with NumPy ({error}); "
            "einturnip's CPU path needs a plain array in CPU memory: detach it, move it to the CPU, or convert it"
        ) from error
    raise DTypeError(
        f"input {name}: takes a NumPy or DLPack array, a number, or a file's name, not {type(value).__name__}"
    )


def _element_type(array: Array, name: str) -> DType:
    try:
        return from_numpy(array.dtype)
    except KeyError:
        raise DTypeError(
            f"{name}: the array given has dtype {array.dtype}, which einturnip has no type for; convert it with .astype"
        ) from None


def _typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
