"""Lowers the language's scalar operators to primitives that NumPy computes in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import BOOL, F32, DType, promote
from einturnip.ir.functions import ELEMENTWISE, ElementwiseFunction
from einturnip.ir.scalar import (
    ARITHMETIC,
    COMPARISONS,
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
)
from einturnip.kernels.expr.erf import erf
from einturnip.kernels.expr.graph import NARROW, PrimitiveGraph


class LeafNodes(Protocol):
    """The leaves of an expression as nodes."""

    def operand(self, slot: int) -> int:
        """Return the node of an operand."""

    def label(self, position: int) -> int:
        """Return the node of a label's index."""

    def guarded(self, expr: Scalar) -> int | None:
        """Return the node of an expression that is computed as a whole, else None."""


def lower(graph: PrimitiveGraph, expr: Scalar, leaves: LeafNodes) -> int:
    """Return the node that computes ``expr``."""
    match expr:
        case ScalarConst(value, dtype):
            return graph.number(value, dtype)
        case OperandRef(slot, dtype):
            return graph.convert(leaves.operand(slot), dtype)
        case LabelValue(position, dtype):
            return graph.convert(leaves.label(position), dtype)
        case ScalarCast(argument, dtype):
            return graph.convert(lower(graph, argument, leaves), dtype)
        case ScalarCall(op, arguments, dtype):
            known = leaves.guarded(expr) if op == "where" else None
            return _call(graph, op, [lower(graph, a, leaves) for a in arguments], dtype) if known is None else known
        case _:
            assert_never(expr)


def _call(graph: PrimitiveGraph, op: str, arguments: list[int], dtype: DType) -> int:
    """Return the node of an operator; f16 and bf16 are computed in f32 and rounded once."""
    if op == "where":
        condition, yes, no = arguments
        return graph.select(condition, graph.convert(yes, dtype), graph.convert(no, dtype))
    common = graph[arguments[0]].dtype
    for argument in arguments[1:]:
        common = promote(common, graph[argument].dtype)
    if op in ("and", "or", "not"):
        common = BOOL
    elif op in ARITHMETIC and common.kind != "c":
        common = dtype
    wide = F32 if common in NARROW else common
    inner = F32 if dtype in NARROW else dtype
    converted = [graph.convert(a, wide) for a in arguments]
    return graph.convert(_OPERATORS[op](graph, converted, inner), dtype)


Lowering = Callable[[PrimitiveGraph, list[int], DType], int]


def _ufunc(name: str) -> Lowering:
    """An operator that is one ufunc."""

    def build(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
        return graph.apply(name, *arguments, dtype=dtype)

    return build


def _by_ufunc(row: ElementwiseFunction) -> Lowering:
    """A function that one ufunc computes, of which some types of numbers are the result."""

    def build(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
        x = arguments[0] if row.keeps_integers else graph.convert(arguments[0], dtype)
        if graph[x].dtype.kind in row.identity_kinds:
            return graph.convert(x, dtype)
        return graph.apply(row.ufunc, x, dtype=dtype)

    return build


@dataclass(frozen=True, slots=True)
class _Argument:
    """The leaves of a definition: its only operand is a node."""

    node: int

    def operand(self, slot: int) -> int:
        return self.node

    def label(self, position: int) -> int:
        raise InternalError("a definition has no labels")

    def guarded(self, expr: Scalar) -> int | None:
        return None


def _defined(definition: Callable[[Scalar], Scalar]) -> Lowering:
    """A function that is a formula in other functions."""

    def build(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
        x = graph.convert(arguments[0], dtype)
        return lower(graph, definition(OperandRef(0, dtype)), _Argument(x))

    return build


def _pow(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    base, exponent = arguments
    match graph.value(exponent):
        case 1:
            return base
        case 2:
            return graph.apply("square", base)
        case 3:
            return graph.apply("multiply", graph.apply("square", base), base)
        case 4:
            return graph.apply("square", graph.apply("square", base))
        case int(value) if value >= 0:
            return graph.apply("power", base, exponent)
    if dtype.kind != "i":
        return graph.apply("power", base, exponent)
    return _signed_power(graph, base, exponent, dtype)


def _signed_power(graph: PrimitiveGraph, base: int, exponent: int, dtype: DType) -> int:
    """Return an integer power; for exponents below 0, 1 // base^|e| truncated, and 0 for base 0.

    NumPy raises an error for these.
    """
    zero, one, minus = (graph.number(v, dtype) for v in (0, 1, -1))
    powers = graph.apply("power", base, graph.apply("maximum", exponent, zero))
    odd = graph.apply("bitwise_and", exponent, one)
    sign = graph.select(odd, minus, one)
    of_minus = graph.select(graph.apply("equal", base, minus, dtype=BOOL), sign, zero)
    unit = graph.select(graph.apply("equal", base, one, dtype=BOOL), one, of_minus)
    return graph.select(graph.apply("less", exponent, zero, dtype=BOOL), unit, powers)


def _real(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    return graph.part("real", arguments[0]) if graph[arguments[0]].dtype.kind == "c" else arguments[0]


def _imag(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    return graph.part("imag", arguments[0]) if graph[arguments[0]].dtype.kind == "c" else graph.number(0, dtype)


def _rsqrt(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    return graph.apply("reciprocal", graph.apply("sqrt", graph.convert(arguments[0], dtype)))


def _one_plus_exp_minus(graph: PrimitiveGraph, x: int, dtype: DType) -> int:
    """Return 1 + exp(-x) without the overflow flag, since inf is the right limit for a divisor."""
    power = graph.apply("exp_quiet", graph.apply("negative", x))
    return graph.apply("add", power, graph.number(1, dtype))


def _sigmoid(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    return graph.apply("reciprocal", _one_plus_exp_minus(graph, graph.convert(arguments[0], dtype), dtype))


def _silu(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    x = graph.convert(arguments[0], dtype)
    return graph.apply("true_divide", x, _one_plus_exp_minus(graph, x, dtype))


def _relu(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    x = graph.convert(arguments[0], dtype)
    return graph.apply("maximum", x, graph.number(0, dtype))


def _softplus(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    x = graph.convert(arguments[0], dtype)
    decay = graph.apply("exp", graph.apply("negative", graph.apply("absolute", x)))
    return graph.apply("add", graph.apply("log1p", decay), graph.apply("maximum", x, graph.number(0, dtype)))


def _erf(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    return erf(graph, graph.convert(arguments[0], dtype))


def _gelu(graph: PrimitiveGraph, arguments: list[int], dtype: DType) -> int:
    x = graph.convert(arguments[0], dtype)
    tail = erf(graph, graph.apply("multiply", x, graph.number(0.5**0.5, dtype)))
    half = graph.apply("multiply", x, graph.number(0.5, dtype))
    return graph.apply("multiply", half, graph.apply("add", tail, graph.number(1, dtype)))


_COMPARED = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
_NAMES = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "min": "minimum",
    "max": "maximum",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
    "neg": "negative",
}
_OPERATORS: dict[str, Lowering] = {
    **{op: _ufunc(name) for op, name in (_NAMES | _COMPARED).items()},
    **{op: _by_ufunc(row) for op, row in ELEMENTWISE.items() if row.ufunc},
    **{op: _defined(row.definition) for op, row in ELEMENTWISE.items() if row.definition is not None},
    "pow": _pow,
    "real": _real,
    "imag": _imag,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "relu": _relu,
    "softplus": _softplus,
    "erf": _erf,
    "gelu": _gelu,
}
assert set(_COMPARED) == COMPARISONS
