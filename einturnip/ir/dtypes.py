"""The element types of the language and how they promote (NumPy 2's rules)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np

Kind = Literal["b", "i", "u", "f", "c"]


@dataclass(frozen=True)
class DType:
    """An element type. ``name`` is the language's word for it, ``itemsize`` is in bytes."""

    name: str
    kind: Kind
    itemsize: int

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype, native byte order. bf16 comes from ml_dtypes, loaded on first use."""
        if self.name == "bf16":
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(_NUMPY_NAMES[self.name])

    @property
    def is_float(self) -> bool:
        """True for real floating types."""
        return self.kind == "f"

    @property
    def is_inexact(self) -> bool:
        """True for floating and complex types."""
        return self.kind in "fc"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in "iu"

    @property
    def real(self) -> DType:
        """The type of the real part."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def accumulator(self) -> DType:
        """The type in which contractions and float reductions accumulate: f32 for f16 and bf16."""
        return F32 if self.name in ("f16", "bf16") else self

    def __repr__(self) -> str:
        """Return the name that programs use."""
        return self.name


_NUMPY_NAMES = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}

BOOL = DType("bool", "b", 1)
I8, I16, I32, I64 = (DType(f"i{8 * n}", "i", n) for n in (1, 2, 4, 8))
U8, U16, U32, U64 = (DType(f"u{8 * n}", "u", n) for n in (1, 2, 4, 8))
F16, BF16, F32, F64 = DType("f16", "f", 2), DType("bf16", "f", 2), DType("f32", "f", 4), DType("f64", "f", 8)
C64, C128 = DType("c64", "c", 8), DType("c128", "c", 16)

DTYPES: dict[str, DType] = {
    d.name: d for d in (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, C64, C128)
}
_BY_NUMPY = {n: DTYPES[k] for k, n in _NUMPY_NAMES.items()} | {"bfloat16": BF16}


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The language's name for a NumPy dtype.

    Raises:
        KeyError: the dtype has no name in the language (object, string, longdouble, ...).
    """
    return _BY_NUMPY[dtype.name]


@cache
def promote(a: DType, b: DType) -> DType:
    """The common type of two typed (strong) values, as ``np.promote_types``.

    bf16, which NumPy lacks, promotes with f16 to f32, with wider floats to those, and with integers and bool as f16
    does.
    """
    if a == b:
        return a
    if BF16 in (a, b):
        other = b if a == BF16 else a
        if other == F16:
            return F32
        if other.kind == "b" or other in (I8, U8):
            return BF16
        return promote(F16, other)
    return from_numpy(np.promote_types(a.numpy, b.numpy))
