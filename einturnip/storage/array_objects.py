"""Objects of other libraries as inputs: arrays in memory used in place, all others read by tile.

No library is imported here: an object of a library that was never imported cannot be given, and its type names the
library.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError, EinturnipError
from einturnip.ir.dtypes import F32, DType, from_numpy
from einturnip.storage.arrays import ArraySource, WidenedSource, element_type
from einturnip.storage.sliced import kind_of, sliced_source
from einturnip.storage.sparse_coordinates import sparse_source
from einturnip.storage.tables import table_source
from einturnip.storage.types import Array, Source, slices

_CPU = (1, 3)
"""DLPack's kinds of devices whose memory the CPU reads: its own, and memory pinned for CUDA."""


def object_source(value: Any, name: str) -> Source:
    """Return the source of an array, a number, nested lists, or an object of another library.

    Raises:
        BindError: it is on another device, has missing values, or cannot be read. DTypeError: it is not numeric.
    """
    if type(value) is np.ndarray:
        return _array(value, name)
    if isinstance(value, np.ndarray | numbers.Number | np.generic | list | tuple):
        return _array(_plain(value, name), name)
    reader = _LIBRARIES.get(type(value).__module__.partition(".")[0])
    found = None if reader is None else reader(value, name)
    if found is not None:
        return found
    if _is_sliced(value):
        return _sliced(value, name)
    array = _in_memory(value, name)
    stated = getattr(value, "shape", array.shape)
    if tuple(stated) != array.shape:
        raise BindError(
            f"input {name}: the {kind_of(value)} given states the shape {list(stated)}, but its elements have the "
            f"shape {list(array.shape)}"
        )
    return _array(array, name)


def _plain(value: Any, name: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise BindError(
            f"input {name}: the masked array given has no values where it is masked. help: pass its filled(0), or "
            "another number that has no effect on the result"
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise BindError(f"input {name}: the nested lists given are not rectangular ({error})") from error


def _array(array: Array, name: str) -> Source:
    if array.dtype.name.startswith("float8_"):
        return WidenedSource(name, array, F32)
    return ArraySource(name, array, element_type(array, name))


def _is_sliced(value: Any) -> bool:
    """True for an object that is read by tile: it has slices, and is in chunks or has no memory to share."""
    if not all(hasattr(value, attribute) for attribute in ("shape", "dtype", "__getitem__")):
        return False
    in_memory = ("__array_interface__", "__array_struct__", "__dlpack__", "__cuda_array_interface__")
    return _chunks(value) is not None or not any(hasattr(value, attribute) for attribute in in_memory)


def _chunks(value: Any) -> tuple[int, ...] | None:
    """The chunk shape of an object, if it has one."""
    chunks: Any = getattr(value, "chunks", None)
    is_shape = isinstance(chunks, tuple) and len(chunks) == len(value.shape) > 0
    return chunks if is_shape and all(isinstance(n, int | np.integer) and n > 0 for n in chunks) else None


def _sliced(value: Any, name: str) -> Source:
    try:
        shape = tuple(int(n) for n in value.shape)
        chunks = _chunks(value)
    except EinturnipError:
        raise
    except Exception as error:
        raise BindError(
            f"input {name}: the {kind_of(value)} given does not state a shape ({type(error).__name__}: {error})"
        ) from error
    return sliced_source(value, name, shape, _stated_dtype(value, name), chunks=chunks)


def _stated_dtype(value: Any, name: str) -> DType:
    try:
        return from_numpy(np.dtype(value.dtype))
    except (KeyError, TypeError):
        raise DTypeError(
            f"input {name}: the {kind_of(value)} given has dtype {value.dtype}, which einturnip has no type for; "
            "convert it with .astype"
        ) from None


def _in_memory(value: Any, name: str) -> Array:
    """The memory of an object as a NumPy array, which shares it wherever the object allows that."""
    _require_cpu(value, name)
    readers: list[Callable[[Any], Any]] = []
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        readers.append(np.from_dlpack)
    if any(hasattr(value, attribute) for attribute in ("__array_interface__", "__array_struct__", "__array__")):
        readers.append(np.asarray)
    elif not readers and not isinstance(value, bytes) and _has_buffer(value):
        readers.append(lambda exporter: np.asarray(memoryview(exporter)))
    if not readers:
        raise DTypeError(
            f"input {name}: takes a NumPy or DLPack array, an object with __array__, a buffer or slices, a number, or "
            f"a file's name, not {type(value).__name__}"
        )
    first: Exception | None = None
    for read in readers:  # NumPy's DLPack lacks types such as bf16, which __array__ may have
        try:
            found: Array = read(value)
            return found
        except EinturnipError:  # raised by the object itself
            raise
        except Exception as error:
            first = first or error
    raise BindError(
        f"input {name}: the {type(value).__name__} given does not share its memory with NumPy ({first}); "
        "einturnip's CPU path needs a plain array in CPU memory: detach it, move it to the CPU, or convert it"
    ) from first


def _has_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _require_cpu(value: Any, name: str) -> None:
    if not hasattr(value, "__dlpack_device__"):
        return
    try:
        kind, number = value.__dlpack_device__()
    except Exception:  # an array on several devices has none; __array__ gathers it
        return
    if int(kind) not in _CPU:
        raise BindError(
            f"input {name}: the {kind_of(value)} given is in the memory of a device (DLPack's kind {int(kind)}, number "
            f"{number}). einturnip's CPU path needs a plain array in CPU memory: move it to the CPU"
        )


# -- libraries whose objects need more than the protocols --------------------------------------------------------------


def _dask(value: Any, name: str) -> Source | None:
    if not hasattr(value, "_meta") or not hasattr(value, "blocks"):
        return None
    from einturnip.storage.dask_arrays import DaskSource

    return DaskSource(name, value)


def _xarray(value: Any, name: str) -> Source | None:
    """A ``DataArray``: its Dask array, its array in memory, or slices of the file that it was opened from."""
    if not hasattr(value, "dims") or not hasattr(value, "dtype"):
        raise BindError(f"input {name}: takes one xarray.DataArray, not {kind_of(value)}. help: name a variable of it")
    variable = getattr(value, "variable", value)
    if value.chunks is not None or getattr(variable, "_in_memory", True):
        return object_source(variable.data, name)
    fetch = lambda region: variable[slices(region)].to_numpy()  # noqa: E731
    return sliced_source(value, name, tuple(value.shape), _stated_dtype(value, name), fetch)


def _torch(value: Any, name: str) -> Source | None:
    """A tensor of a type that NumPy lacks: its bits, with the type of ml_dtypes. Others have DLPack."""
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if not kind.startswith(("bfloat16", "float8_")):
        return None
    _require_cpu(value, name)
    import ml_dtypes
    import torch  # type: ignore[import-not-found,unused-ignore]

    held = getattr(ml_dtypes, kind, None)
    if held is None:
        raise DTypeError(f"input {name}: the torch.Tensor given has dtype {value.dtype}; convert it with .float()")
    bits = value.view(torch.int16 if kind == "bfloat16" else torch.uint8)
    return _array(_in_memory(bits, name).view(held), name)


_LIBRARIES: dict[str, Callable[[Any, str], Source | None]] = {
    "dask": _dask,
    "pandas": table_source,
    "polars": table_source,
    "pyarrow": table_source,
    "scipy": sparse_source,
    "sparse": sparse_source,
    "torch": _torch,
    "xarray": _xarray,
}
