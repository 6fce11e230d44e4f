"""Arrays of the caller as sources and sinks, used in place and copied only region by region."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError
from einturnip.ir.dtypes import DType, from_numpy
from einturnip.storage.device_arrays import DeviceArray, gpu_of
from einturnip.storage.file_versions import MappedFile
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import c_layout
from einturnip.storage.strided_array import StridedArray
from einturnip.storage.types import Array, Region, slices

# Limit on the search for an element that two arrays share, in NumPy's units of work.
MAX_WORK = 10**5


class ArraySource(StridedArray):
    """A NumPy array of any strides and byte order."""

    def __init__(self, name: str, array: Array, dtype: DType) -> None:
        super().__init__(name, array, dtype)
        self.mapped = None if array.base is None else MappedFile.of(name, array)

    def read(self, region: Region, out: Array) -> int:
        """Copy the region into ``out``."""
        self._layout.check(region)
        copy_blocked(out, self.array[_window(region)])
        return out.nbytes

    def require_unchanged(self) -> None:
        """Raise StoreError if the file that the array maps, if any, has changed."""
        if self.mapped is not None:
            self.mapped.require_unchanged()


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


class WidenedSource(StridedArray):
    """A caller's array of 8-bit floats as f32, or as the float type that a program declares."""

    def __init__(self, name: str, array: Array, dtype: DType) -> None:
        super().__init__(name, array, dtype)
        self.transferred = array.itemsize
        self._layout = c_layout(array.shape, dtype.itemsize, 0)  # of the converted tensor

    def expanded_to(self, dtype: DType) -> WidenedSource:
        """Return this tensor converted to another float type; it replaces this source."""
        return WidenedSource(self.name, self.array, dtype) if dtype.is_float else self

    def read(self, region: Region, out: Array) -> int:
        """Convert the region into ``out``."""
        self._layout.check(region)
        out[...] = self.array[_window(region)]
        return out.nbytes


def _window(region: Region) -> tuple[Any, ...]:
    """The region as an index that yields a view even for a scalar."""
    return (*slices(region), ...)


def array_source(array: Array, name: str) -> ArraySource:
    """A source over a NumPy array.

    Raises:
        DTypeError: its dtype has no name in the language.
    """
    return ArraySource(name, array, element_type(array, name))


def array_sink(out: Any, name: str, shape: tuple[int, ...], dtype: DType) -> ArraySink | DeviceArray:
    """Return a sink over the caller's array, on the host or a GPU, with the output's shape and dtype.

    Raises:
        BindError: it has not, or it is read-only.
    """
    number = gpu_of(out)
    if number is None and not isinstance(out, np.ndarray):
        raise BindError(f"output {name}: out= takes a NumPy array or a file's name, not {type(out).__name__}")
    sink: ArraySink | DeviceArray
    if number is None:
        sink, given = ArraySink(name, out, element_type(out, f"output {name}")), str(out.dtype)
    else:
        sink = DeviceArray(name, out, number)
        given = sink.dtype.name
    array = sink.array
    if sink.shape != shape or sink.dtype != dtype:
        raise BindError(
            f"output {name}: is {_typed(dtype.name, shape)}, but the array given for it is {_typed(given, sink.shape)}"
        )
    if not array.flags.writeable:
        raise BindError(f"output {name}: the array given for it is read-only; pass a writable one")
    if array.size and any(stride == 0 and n > 1 for n, stride in zip(shape, array.strides, strict=True)):
        raise BindError(
            f"output {name}: the array given for it is a broadcast view, where elements share memory; copy it"
        )
    return sink


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


def element_type(array: Array, name: str) -> DType:
    """The language's type of an array's elements.

    Raises:
        DTypeError: it has none.
    """
    try:
        return from_numpy(array.dtype)
    except KeyError:
        raise DTypeError(
            f"{name}: the array given has dtype {array.dtype}, which einturnip has no type for; convert it with .astype"
        ) from None


def _typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
