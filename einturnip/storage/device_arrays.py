"""Arrays in the memory of a GPU as sources and sinks: CuPy's, and others by DLPack.

An array is described by the CUDA array interface (version 3) or by DLPack. Its ``view`` is a NumPy array over the
addresses that the elements have on the GPU: it has their shape, strides and type, and is never read on the host.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError, StoreError
from einturnip.ir.dtypes import DTYPES, DType, from_numpy
from einturnip.storage.strided_array import StridedArray
from einturnip.storage.types import Array, Region, slices

ON_GPU = (2, 13)
"""Kinds of memory in DLPack: kDLCUDA, kDLCUDAManaged."""
LEGACY_STREAM = 1
"""The legacy default stream, in the numbering of DLPack and of the CUDA array interface."""

_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf", 5: "c", 6: "bool"}
_CONVERTED = {"torch": "torch", "jax": "jax.dlpack", "jaxlib": "jax.dlpack"}
"""The module with ``from_dlpack`` of a library, by the module of its arrays."""

Fetch = Callable[[Array, int], None]
"""Fills a contiguous array on the host from an address on the GPU."""


def gpu_of(value: Any) -> int | None:
    """Return the number of the GPU in whose memory an array is; None for everything else."""
    if isinstance(value, np.ndarray | str | int | float | complex):
        return None
    where = getattr(type(value), "__dlpack_device__", None)
    if where is None:
        return None
    kind, number = where(value)
    return int(number) if kind in ON_GPU else None


class DeviceArray(StridedArray):
    """An array on a GPU, as a source and a sink. It keeps ``value`` alive.

    ``number``: of the GPU. ``transferred``: nothing is moved between host and GPU. ``fetch``: set by a run.
    """

    transferred = 0.0

    def __init__(self, name: str, value: Any, number: int) -> None:
        view, self._capsule = _view(value, name)
        if not view.flags.aligned:
            raise BindError(
                f"{name}: the elements of the {type(value).__name__} given are not aligned. help: pass x.copy()"
            )
        super().__init__(name, view, _element_type(view.dtype, name))
        self.value, self.number = value, number
        self.fetch: Fetch | None = None

    @property
    def device(self) -> str:
        """The device, as in ``cuda:0``."""
        return f"cuda:{self.number}"

    def stream(self) -> int | None:
        """Return the stream whose present work must end before the array is used; None if there is none.

        DLPack makes the legacy default stream wait for the work of the array's library.
        """
        interface = _interface(self.value)
        if interface is not None:
            number = interface["stream"]
            return None if number is None else int(number)
        self.value.__dlpack__(stream=LEGACY_STREAM)
        return LEGACY_STREAM

    def window(self, region: Region) -> Array:
        """Return the region's addresses on the GPU."""
        at: tuple[Any, ...] = (*slices(region), ...)
        part: Array = self.array[at]
        return part

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``, on the host, with the region: to find the cause of a numeric event.

        Raises:
            StoreError: no run on the GPU reads the array.
        """
        if self.fetch is None:
            raise StoreError(_elsewhere(self, "this run is not on it"))
        _fetch_runs(self.window(region), out, self.fetch)
        return out.nbytes

    def write(self, region: Region, array: Array) -> int:
        """Refuse: only the GPU writes to its memory.

        Raises:
            StoreError: always.
        """
        raise StoreError(_elsewhere(self, "this run is not on it"))

    def commit(self) -> None:
        """Nothing to do: writes take effect at once."""

    def abort(self) -> None:
        """Nothing to do: writes cannot be undone."""


def require_on(arrays: Mapping[str, object], device: str) -> None:
    """Refuse arrays that are not on the one device of a run.

    Raises:
        BindError: names the array and both places.
    """
    for name, array in arrays.items():
        if isinstance(array, DeviceArray) and array.device != device:
            raise BindError(f"{name}: {_elsewhere(array, f'the run is on {device}')}")


def _elsewhere(array: DeviceArray, why: str) -> str:
    return (
        f"{array.name} is in the memory of {array.device}, and {why}. help: leave out device=, or pass a copy on the "
        "host: cupy.asnumpy(x), or x.cpu() for torch"
    )


def in_library_of(value: Any, array: Any) -> Any:
    """Return a CuPy array as an array of the library of ``value``, over the same memory."""
    module = _CONVERTED.get(type(value).__module__.partition(".")[0])
    return array if module is None else import_module(module).from_dlpack(array)


def _fetch_runs(source: Array, out: Array, fetch: Fetch) -> None:
    """Copy an array run by run; ``out`` is contiguous."""
    if not source.size:
        return
    if source.flags.c_contiguous:
        fetch(out, int(source.__array_interface__["data"][0]))
        return
    for part, target in zip(source, out, strict=True):
        _fetch_runs(part[...], target[...], fetch)


def _interface(value: Any) -> Mapping[str, Any] | None:
    """Return the CUDA array interface of an array if it names a stream (version 3)."""
    if not hasattr(type(value), "__cuda_array_interface__"):
        return None
    found: Mapping[str, Any] = value.__cuda_array_interface__
    return found if "stream" in found else None


def _view(value: Any, name: str) -> tuple[Array, object]:
    """Return the addresses of an array's elements, and what keeps them valid."""
    try:
        interface = _interface(value)
        if interface is None:
            return _of_dlpack(value.__dlpack__(stream=LEGACY_STREAM))
        own = getattr(value, "dtype", None)
        dtype = own if isinstance(own, np.dtype) else np.dtype(interface["typestr"])
        place, read_only = interface["data"]
        strides = interface.get("strides")
        return _over(int(place), tuple(interface["shape"]), strides, dtype, bool(read_only)), None
    except DTypeError:
        raise
    except Exception as error:
        raise BindError(
            f"{name}: the {type(value).__name__} given does not share its memory ({type(error).__name__}: {error}). "
            "help: detach it, or copy it"
        ) from error


def _over(place: int, shape: tuple[int, ...], strides: Any, dtype: np.dtype[Any], read_only: bool) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype)
    dense = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = tuple(dense if strides is None else strides)
    spans = [(n - 1) * step for n, step in zip(shape, steps, strict=True)]
    low, high = sum(min(0, span) for span in spans), sum(max(0, span) for span in spans)
    memory = (ctypes.c_uint8 * (high - low + dtype.itemsize)).from_address(place + low)
    view: Array = np.ndarray(shape, dtype, np.ctypeslib.as_array(memory), -low, steps)
    view.flags.writeable = not read_only
    return view


class _Tensor(ctypes.Structure):
    """DLTensor, with which DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _of_dlpack(capsule: object) -> tuple[Array, object]:
    """Return the addresses in a capsule, which stays unused: it frees its tensor when it is deleted."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    kind = _DLPACK_KINDS.get(tensor.code, "?")
    named = DTYPES.get(kind if kind == "bool" else f"{kind}{tensor.bits}")
    if named is None or tensor.lanes != 1:
        raise DTypeError(f"an array of DLPack type {tensor.code} with {tensor.bits} bits has no type in einturnip")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = [step * named.itemsize for step in tensor.strides[: tensor.ndim]] if tensor.strides else None
    return _over((tensor.data or 0) + tensor.byte_offset, shape, strides, named.numpy, False), capsule


def _element_type(dtype: np.dtype[Any], name: str) -> DType:
    try:
        if dtype.isnative:
            return from_numpy(dtype)
    except KeyError:
        pass
    raise DTypeError(f"{name}: the array given has dtype {dtype}, which einturnip has no type for; convert it")
