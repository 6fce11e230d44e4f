"""Tensors without a file: random numbers, shapes without data, outputs that are only summarized."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import InternalError, StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.layout import StridedLayout, blocks, c_layout
from einturnip.storage.types import Array, Extent, Region, region_shape, slices

# Elements processed at a time, so that temporary memory stays small and in the cache.
_BLOCK = 1 << 15


@dataclass(frozen=True)
class _GeneratedTensor:
    """Base of these tensors: their bytes are counted as in a C-order file named after the tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def tier(self) -> str:
        return self.name

    @cached_property
    def layout(self) -> StridedLayout:
        return c_layout(self.shape, self.dtype.itemsize, 0)

    def extent(self, region: Region) -> Extent:
        return self.layout.extent(region)

    def release(self, region: Region) -> None:
        """Do nothing: no bytes are cached."""

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True)
class AbsentSource(_GeneratedTensor):
    """A tensor of known shape without data: it can be planned with, but not read."""

    def read(self, region: Region, out: Array) -> int:
        """Refuse to read: there is no data."""
        raise StoreError(f"input {self.name} has a shape but no data")


@dataclass(frozen=True)
class RandomSource(_GeneratedTensor):
    """Random numbers that depend only on seed, name and position; any tile can be generated anytime.

    Floats and both parts of complex numbers are in [-1, 1), integers in 0 .. 9.

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014 (SplitMix64), of the position.
    """

    seed: int
    transferred: ClassVar[float] = 0.0

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``; no bytes are transferred."""
        self.layout.check(region)
        start = zlib.crc32(self.name.encode()) + (self.seed << 32)
        for block in blocks(region, 1, _BLOCK):
            bits = _mixed(_positions(block, self.shape), start)
            out[_within(block, region)] = _numbers(bits, self.dtype)
        return 0


class SummarySink:
    """A sink that keeps only a summary: range, number and first place of NaN, and a checksum.

    The checksum adds a hash of every element with its position, so it does not depend on tiles or their order.
    """

    transferred: ClassVar[float] = 0.0

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        self._unstored = _GeneratedTensor(name, shape, dtype)
        self._lock = threading.Lock()
        self._checksum = 0
        self.low: float | None = None
        self.high: float | None = None
        self.nan = 0
        self.first_nan: tuple[int, ...] | None = None
        self.nan_causes: tuple[str, ...] = ()  # elements of inputs that the first NaN comes from

    name = property(lambda self: self._unstored.name)
    shape = property(lambda self: self._unstored.shape)
    dtype = property(lambda self: self._unstored.dtype)
    tier = property(lambda self: self._unstored.tier)

    @property
    def checksum(self) -> str:
        """Sixteen hexadecimal digits."""
        return f"{self._checksum:016x}"

    def parts(self) -> tuple[object, ...]:
        """The summary as plain values, for ``add`` in another process."""
        return self._checksum, self.low, self.high, self.nan, self.first_nan

    def add(self, parts: Any) -> None:
        """Add the summary of other regions."""
        checksum, low, high, nan, first = parts
        self._checksum = (self._checksum + checksum) % 2**64
        self.nan += nan
        self.low = min((x for x in (self.low, low) if x is not None), default=None)
        self.high = max((x for x in (self.high, high) if x is not None), default=None)
        self.first_nan = min((x for x in (self.first_nan, first) if x is not None), default=None)

    def extent(self, region: Region) -> Extent:
        """The region's extent."""
        return self._unstored.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Refuse to read: no plan does."""
        raise InternalError(f"output {self.name} is not kept and cannot be read back")

    def write(self, region: Region, array: Array) -> int:
        """Add the region to the summary; no bytes are transferred."""
        for block in blocks(region, 1, _BLOCK):
            part = np.ascontiguousarray(array[_within(block, region)])
            hashes = _mixed(_positions(block, self.shape) * _ODD + _bits(part), 0)
            low, high, nan = _range(part)
            with self._lock:
                self._checksum = (self._checksum + int(hashes.sum(dtype=np.uint64))) % 2**64
                self.nan += nan
                if nan:
                    first = np.unravel_index(int(np.argmax(np.isnan(_as_float(part)))), region_shape(block))
                    place = tuple(lo + int(k) for (lo, _), k in zip(block, first, strict=True))
                    self.first_nan = place if self.first_nan is None else min(self.first_nan, place)
                if low is not None and high is not None:
                    self.low = low if self.low is None else min(self.low, low)
                    self.high = high if self.high is None else max(self.high, high)
        return 0

    def release(self, region: Region) -> None:
        """Do nothing: no bytes are cached."""

    def commit(self) -> None:
        """Do nothing: the output is not kept."""

    def abort(self) -> None:
        """Do nothing: the output is not kept."""

    def close(self) -> None:
        """Do nothing: no file is open."""


_ODD = np.uint64(0xD1342543DE82EF95)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _positions(block: Region, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """The row-major position of every element of a block."""
    flat: NDArray[np.uint64] = np.zeros((), np.uint64)
    for (start, stop), n in zip(block, shape, strict=True):
        outer = np.multiply(flat[..., None], n, dtype=np.uint64)
        flat = np.add(outer, np.arange(start, stop, dtype=np.uint64))
    return flat


def _within(block: Region, region: Region) -> tuple[slice, ...]:
    return slices(tuple((a - o, b - o) for (a, b), (o, _) in zip(block, region, strict=True)))


def _mixed(values: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = np.asarray((values + np.uint64(1)) * _GOLDEN + np.uint64(start % 2**64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def _numbers(bits: NDArray[np.uint64], dtype: DType) -> NDArray[Any]:
    match dtype.kind:
        case "b":
            return (bits >> np.uint64(63)).astype(np.bool_)
        case "i" | "u":
            return ((bits >> np.uint64(32)) % np.uint64(10)).astype(dtype.numpy)
        case "f":
            return _unit(bits, dtype.itemsize).astype(dtype.numpy)
        case "c":
            imag = _unit(_mixed(bits, 1), dtype.itemsize // 2)
            return (_unit(bits, dtype.itemsize // 2) + 1j * imag).astype(dtype.numpy)


def _unit(bits: NDArray[np.uint64], itemsize: int) -> NDArray[np.float64]:
    """Numbers in [-1, 1), on a grid that a float of ``itemsize`` bytes represents exactly."""
    digits = {2: 8, 4: 24, 8: 53}[itemsize]
    return (bits >> np.uint64(64 - digits)).astype(np.float64) * 2.0 ** (1 - digits) - 1.0


def _bits(part: Array) -> NDArray[np.uint64]:
    if part.dtype.itemsize == 16:
        halves = part.reshape(*part.shape, 1).view(np.uint64)
        return np.asarray(halves[..., 0] + halves[..., 1] * _GOLDEN)
    return part.view(f"u{part.dtype.itemsize}").astype(np.uint64)


def _range(part: Array) -> tuple[float | None, float | None, int]:
    """Minimum and maximum (of complex numbers: magnitude), and the number of NaN."""
    if part.size == 0:
        return None, None, 0
    if part.dtype.kind in "biu":
        return int(part.min()), int(part.max()), 0
    values = _as_float(part)
    nan = int(np.isnan(values).sum())
    if nan == values.size:
        return None, None, nan
    return float(np.nanmin(values)), float(np.nanmax(values)), nan


def _as_float(part: Array) -> Array:
    """Return the values as NumPy's floats; of complex numbers the magnitude."""
    if part.dtype.kind == "c":
        return np.asarray(np.abs(part))
    return part.astype(np.float32) if part.dtype.kind == "V" or part.dtype.name == "bfloat16" else part
