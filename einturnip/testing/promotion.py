"""The dtype of a term by the language's rules; NumPy's own promotion wherever NumPy defines it.

A type is a dtype's name and a strength. ``python``: literals, sizes and results computed from these, which are Python
numbers to NumPy. ``soft``: an array or label whose dtype comes from such numbers and labels alone; it never widens a
float, and is i64, f64 or c128 to other types. ``strong``: everything computed from a declared dtype or a cast.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from einturnip.ir.aggregations import MONOIDS
from einturnip.ir.functions import ELEMENTWISE

Strength = Literal["strong", "soft", "python"]


class Type(NamedTuple):
    """A dtype of the language, and its strength against others."""

    dtype: str
    strength: Strength = "strong"


LABEL = Type("i64", "soft")
PYTHON_INT = Type("i64", "python")

_SHORT = {"f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"} | {
    f"{kind}{8 * n}": f"{kind}{n}" for kind in "iu" for n in (1, 2, 4, 8)
}
_SAMPLE: dict[str, bool | int | float | complex] = {"bool": True, "i64": 0, "f64": 0.0, "c128": 0j}
_WIDTH = list(_SAMPLE)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a language dtype; bf16 is that of ml_dtypes."""
    if dtype == "bf16":
        import ml_dtypes

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    return np.dtype(_SHORT.get(dtype, dtype))


def name_of(dtype: np.dtype[Any]) -> str:
    """The language's name of a NumPy dtype."""
    if dtype.name == "bfloat16":
        return "bf16"
    return "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"


def kind(dtype: str) -> str:
    """``b``, ``i``, ``u``, ``f`` or ``c``."""
    return "f" if dtype == "bf16" else dtype[0]


def common(a: Type, b: Type) -> Type:
    """The type to which an operator converts two operands."""
    if a.strength != "strong" and b.strength != "strong":
        wider = max(a.dtype, b.dtype, key=_WIDTH.index)
        return Type(wider, "python" if a.strength == b.strength == "python" else "soft")
    if a.strength != "strong":
        a, b = b, a
    if b.strength == "strong":
        return Type(_promote(a.dtype, b.dtype))
    if b.strength == "python" or kind(a.dtype) in "fc":
        return Type(_weak(a.dtype, _SAMPLE[b.dtype]))
    return Type(_promote(a.dtype, b.dtype))


def _promote(a: str, b: str) -> str:
    """``np.promote_types``; bf16 relates to other dtypes as f16 does, and the two promote to f32."""
    if "bf16" in (a, b) and a != b:
        other = b if a == "bf16" else a
        result = "f32" if other == "f16" else _promote("f16", other)
        return "bf16" if result == "f16" else result
    return a if a == b else name_of(np.promote_types(numpy_dtype(a), numpy_dtype(b)))


def _weak(strong: str, number: bool | int | float | complex) -> str:
    if strong == "bf16":
        result = _weak("f16", number)
        return "bf16" if result == "f16" else result
    return name_of(np.result_type(numpy_dtype(strong), number))


def condition(*operands: Type) -> Type:
    """The type of a comparison or of ``and or not``: bool, as strong as the strongest operand."""
    strengths = {x.strength for x in operands}
    return Type("bool", "strong" if "strong" in strengths else "python" if strengths == {"python"} else "soft")


def choice(test: Type, a: Type, b: Type) -> Type:
    """The type of ``where``; a choice among Python numbers by an array is an array."""
    both = common(a, b)
    return Type(both.dtype, "soft") if both.strength == "python" != test.strength else both


def arithmetic(op: str, a: Type, b: Type) -> Type:
    """The type of ``a op b`` for ``+ - * / // % ^``, and of ``min`` and ``max``.

    Raises:
        TypeError: the operator does not accept these types.
    """
    both = common(a, b)
    if both.dtype == "bool" and op not in ("+", "*", "min", "max"):
        raise TypeError(f"{op} of bools")
    if kind(both.dtype) == "c" and op in ("//", "%", "min", "max"):
        raise TypeError(f"{op} of complex numbers")
    if op == "/" and kind(both.dtype) in "iu":
        return Type("f64", both.strength)
    return both


_KEEPING = {"-", *(name for name, row in ELEMENTWISE.items() if row.keeps_integers)}
_REAL_ONLY = {"sign", *(name for name, row in ELEMENTWISE.items() if not row.takes_complex)}


def function(name: str, x: Type) -> Type:
    """The type of an elementwise function of one argument, including ``-``.

    Raises:
        TypeError: the function does not accept this type.
    """
    if x.dtype == "bool" or (kind(x.dtype) == "c" and name in _REAL_ONLY):
        raise TypeError(f"{name} of {x.dtype}")
    if kind(x.dtype) == "c" and name != "-" and ELEMENTWISE[name].returns_real:
        return Type("f32" if x.dtype == "c64" else "f64", x.strength)
    if name in _KEEPING or kind(x.dtype) in "fc":
        return x
    return Type(name_of(np.exp(np.zeros(0, numpy_dtype(x.dtype))).dtype), x.strength)


_AGGREGATES: dict[str, Any] = {"wide": np.sum, "inexact": np.mean, "value": np.max}


def aggregate(op: str, x: Type, requested: str | None) -> Type:
    """The type of an aggregation of values of type ``x``.

    Raises:
        TypeError: the aggregation does not accept this type.
    """
    strength: Strength = "strong" if x.strength == "strong" else "soft"
    row = MONOIDS[op]
    if row.values == "bool":
        if x.dtype != "bool":
            raise TypeError(f"{op} of {x.dtype}")
        return Type("bool", strength)
    if kind(x.dtype) == "c" and row.values == "real":
        raise TypeError(f"{op} of {x.dtype}")
    if requested is not None:
        return Type(requested)
    if row.result == "index":
        return Type("i64", strength)
    if kind(x.dtype) in "fc":
        return Type(x.dtype, strength)
    return Type(name_of(_AGGREGATES[row.result](np.ones(1, numpy_dtype(x.dtype))).dtype), strength)
