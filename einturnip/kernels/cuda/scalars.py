"""Writes scalar expressions as C++ statements; equal subexpressions are computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import BOOL, F32, I64, DType, promote
from einturnip.ir.functions import ELEMENTWISE
from einturnip.ir.scalar import (
    ARITHMETIC,
    COMPARISONS,
    LOGICAL,
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
)
from einturnip.kernels.expr.graph import NARROW, number

TYPES = {
    "bool": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "i64",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned",
    "u64": "u64",
    "f16": "half_t",
    "bf16": "bfloat_t",
    "f32": "float",
    "f64": "double",
    "c64": "cplx<float>",
    "c128": "cplx<double>",
}
_RESERVED = {"and": "and_", "or": "or_", "not": "not_"}


def ctype(dtype: DType) -> str:
    """Return the C++ type of an element."""
    return TYPES[dtype.name]


def literal(value: complex, dtype: DType) -> str:
    """Return a C++ literal with the same bits as NumPy's number."""
    found = number(value, dtype)
    match dtype.kind:
        case "b":
            return "true" if found else "false"
        case "i":
            return f"({ctype(dtype)})({int(found)}LL)" if int(found) > -(1 << 63) else "(-9223372036854775807LL - 1)"
        case "u":
            return f"({ctype(dtype)}){int(found)}ULL"
        case "c":
            part = "float" if dtype.name == "c64" else "double"
            return f"{ctype(dtype)}{{{_real(float(found.real), part)}, {_real(float(found.imag), part)}}}"
        case "f" if dtype in NARROW:
            return f"{ctype(dtype)}{{{int(found.view(np.uint16))}}}"
        case _:
            return _real(float(found), ctype(dtype))


def _real(value: float, name: str) -> str:
    if math.isfinite(value):
        return f"({name}){value.hex()}"
    sign = "-" if math.copysign(1, value) < 0 else ""
    infinity = f"infinity_(({name})0)"
    return f"({infinity} - {infinity})" if math.isnan(value) else sign + infinity


@dataclass
class ScalarWriter:
    """Writes statements that compute expressions at one point.

    ``operand``, ``label``: return C++ for the leaves. ``flags``: C++ name of the object that collects floating-point
    flags. ``prefix``: of the variables' names.
    """

    operand: Callable[[int], str]
    label: Callable[[int], str]
    flags: str = "f"
    prefix: str = "v"
    lines: list[str] = field(default_factory=list)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _made: dict[int, tuple[Scalar, tuple[str, DType]]] = field(default_factory=dict)

    def value(self, expr: Scalar, dtype: DType) -> str:
        """Write the statements of an expression; return the C++ name of its value converted to ``dtype``."""
        return self._convert(*self._emit(expr), dtype)

    def _emit(self, expr: Scalar) -> tuple[str, DType]:
        found = self._made.get(id(expr))
        if found is not None:
            return found[1]
        made = self._new(expr)
        self._made[id(expr)] = expr, made
        return made

    def _new(self, expr: Scalar) -> tuple[str, DType]:
        match expr:
            case ScalarConst(value, dtype):
                return literal(value, dtype), dtype
            case OperandRef(slot, dtype):
                return self._set(ctype(dtype), self.operand(slot)), dtype
            case LabelValue(position, dtype):
                return self._convert(f"({self.label(position)})", I64, dtype), dtype
            case ScalarCast(argument, dtype):
                return self._convert(*self._emit(argument), dtype), dtype
            case ScalarCall(op, arguments, dtype):
                return self._call(op, [self._emit(a) for a in arguments], dtype), dtype
            case _:
                assert_never(expr)

    def _call(self, op: str, arguments: list[tuple[str, DType]], dtype: DType) -> str:
        """Write one operator. f16 and bf16 are computed in f32 and rounded once."""
        if op == "where":
            condition, yes, no = arguments
            chosen = f"{self._convert(*condition, BOOL)} ? {self._convert(*yes, dtype)} : {self._convert(*no, dtype)}"
            return self._set(ctype(dtype), chosen)
        common = arguments[0][1]
        for _, other in arguments[1:]:
            common = promote(common, other)
        if op in LOGICAL:
            common = BOOL
        elif (op in ARITHMETIC and common.kind != "c") or (op in ELEMENTWISE and not ELEMENTWISE[op].keeps_integers):
            common = dtype
        wide = F32 if common in NARROW else common
        row = ELEMENTWISE.get(op)
        if row is not None and row.definition is not None:
            (argument,) = arguments
            return self._convert(self._defined(row.definition, self._convert(*argument, wide), wide), wide, dtype)
        given = ", ".join(self._convert(*a, wide) for a in arguments)
        result = BOOL if op in COMPARISONS | LOGICAL else wide if row is None else row.result(wide)
        made = self._set(ctype(result), f"{_RESERVED.get(op, op)}({self.flags}, {given})")
        return self._convert(made, result, dtype)

    def _defined(self, definition: Callable[[Scalar], Scalar], argument: str, dtype: DType) -> str:
        """Write a function by its definition; ``argument`` and the result have the stated dtype."""
        outer, self.operand = self.operand, lambda slot: argument
        made = self._new(definition(OperandRef(0, dtype)))[0]
        self.operand = outer
        return made

    def _convert(self, name: str, source: DType, dtype: DType) -> str:
        if source == dtype:
            return name
        return self._set(ctype(dtype), f"to<{ctype(dtype)}>({self.flags}, {name})")

    def _set(self, kind: str, text: str) -> str:
        key = kind, text
        if key not in self._names:
            self._names[key] = f"{self.prefix}{len(self._names)}"
            self.lines.append(f"const {kind} {self._names[key]} = {text};")
        return self._names[key]


def nested(expr: Scalar, operands: Sequence[str]) -> str:
    """Return an expression as one C++ expression; f16 and bf16 do not occur in it."""
    match expr:
        case ScalarConst(value, dtype):
            return literal(value, dtype)
        case OperandRef(slot, _):
            return operands[slot]
        case ScalarCast(argument, dtype):
            return f"to<{ctype(dtype)}>(f, {nested(argument, operands)})"
        case ScalarCall("where", (condition, yes, no), _):
            return f"({' '.join((nested(condition, operands), '?', nested(yes, operands), ':', nested(no, operands)))})"
        case ScalarCall(op, arguments, _):
            return f"ein::{_RESERVED.get(op, op)}(f, {', '.join(nested(a, operands) for a in arguments)})"
        case LabelValue():
            raise InternalError("the result of a state depends on a label")
        case _:
            assert_never(expr)
