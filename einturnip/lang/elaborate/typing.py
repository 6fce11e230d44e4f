"""Dtypes of expressions: promotion, casts, and operand types. Source: NumPy 2's rules (NEP 50)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import log2

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.ir.aggregations import MONOIDS, aggregation
from einturnip.ir.dtypes import BOOL, C64, C128, F16, F32, F64, I64, DType, promote
from einturnip.ir.functions import ELEMENTWISE
from einturnip.lang.expressions import AggregateExpr, ApplyExpr, ConvertExpr, Expr, NumberExpr, SizeNumber, Strength

COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "^": "pow"}
_ORDERED = frozenset({"lt", "le", "gt", "ge", "floordiv", "mod", "min", "max"})
_BOOL_OPS = {"add": "or", "mul": "and", "max": "or", "min": "and"}
_KINDS = "bufc"
_EXACT = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
}
# No dtype holds a number with more bits.
_MAX_BITS = 1023


class TypeProblem(Exception):
    """An expression without a dtype; carries the diagnostic."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def literal(value: bool | int | float | complex, span: Span) -> NumberExpr:
    """A literal, with its default dtype."""
    dtype = BOOL if isinstance(value, bool) else {int: I64, float: F64, complex: C128}[type(value)]
    return NumberExpr(value, dtype, "number", span)


def common(a: Expr, b: Expr) -> tuple[DType, Strength]:
    """The common dtype of ``a`` and ``b``, and its strength in further promotions."""
    if a.strength == "strong" and b.strength == "strong":
        return promote(a.dtype, b.dtype), "strong"
    if a.strength != "strong" and b.strength != "strong":
        return promote(a.dtype, b.dtype), "number" if a.strength == b.strength == "number" else "weak"
    strong, weak = (a, b) if a.strength == "strong" else (b, a)
    if weak.dtype == BOOL:
        return strong.dtype, "strong"
    if strong.dtype == BOOL:
        return weak.dtype, "weak"
    return _common_with_weak(strong.dtype, weak), "strong"


def _common_with_weak(strong: DType, weak: Expr) -> DType:
    """The common dtype of a strong and a weak number."""
    if strong.is_integer and weak.dtype.is_integer:
        return strong if weak.strength == "number" else promote(strong, weak.dtype)
    if weak.dtype.kind == "c":
        return strong if strong.kind == "c" else C64 if strong.is_float and strong != F64 else C128
    return strong if strong.is_inexact else F64


def coerce(expr: Expr, dtype: DType, strength: Strength) -> Expr:
    """Convert ``expr`` to ``dtype`` as promotion requires.

    Raises:
        TypeProblem: a literal does not fit (E042).
    """
    if isinstance(expr, NumberExpr):
        return _number_as(expr, dtype, strength)
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, SizeNumber):
        return SizeNumber(expr.size, dtype, strength, expr.span)
    return ConvertExpr(expr, dtype, strength, False, expr.span)


def _number_as(expr: NumberExpr, dtype: DType, strength: Strength) -> NumberExpr:
    if dtype.is_integer and not fits(expr.value, dtype):
        raise TypeProblem(
            Diagnostic(
                "E042",
                f"{expr.value} does not fit {dtype}",
                expr.span,
                expected=f"{_min_value(dtype)} .. {_max_value(dtype)}",
                found=str(expr.value),
                help=f"cast the other side to a wider dtype, or write the number as f64({expr.value})",
            )
        )
    if dtype == expr.dtype and strength == expr.strength:
        return expr
    return NumberExpr(expr.value, dtype, strength, expr.span)


def fits(value: bool | int | float | complex, dtype: DType) -> bool:
    """True if an integer literal is in the range of an integer dtype."""
    return not isinstance(value, int) or _min_value(dtype) <= value <= _max_value(dtype)


def _min_value(dtype: DType) -> int:
    return 0 if dtype.kind == "u" else -(1 << (8 * dtype.itemsize - 1))


def _max_value(dtype: DType) -> int:
    return (1 << (8 * dtype.itemsize - (dtype.kind == "i"))) - 1


def settle(expr: Expr) -> Expr:
    """Finish an expression as a tensor's value or an aggregation's body: a literal must fit its dtype."""
    return coerce(expr, expr.dtype, expr.strength)


def _refuse(op: str, dtype: DType, span: Span, help_text: str = "") -> TypeProblem:
    message = f"'{op}' is not defined for {dtype}"
    return TypeProblem(Diagnostic("E041", message, span, found=str(dtype), help=help_text))


# -- operators ---------------------------------------------------------------------------------------------------------


def arithmetic(symbol: str, a: Expr, b: Expr, op_span: Span, span: Span) -> Expr:
    """``a symbol b`` for one of ``+ - * / // % ^``.

    Raises:
        TypeProblem: the operator is not defined for these dtypes (E041), or a literal does not fit (E042).
    """
    op = ARITHMETIC[symbol]
    whole = _of_literals(op, a, b, span)
    if whole is not None:
        return whole
    dtype, strength = common(a, b)
    if op == "pow":
        return _power(a, b, dtype, strength, op_span, span)
    if op == "div" and not dtype.is_inexact:
        dtype = F64
    return _pair(op, symbol, a, b, dtype, strength, op_span, span)


def _of_literals(op: str, a: Expr, b: Expr, span: Span) -> NumberExpr | None:
    """Evaluate an operator of two integer literals exactly, as Python does; None for other operands."""
    if not (isinstance(a, NumberExpr) and isinstance(b, NumberExpr) and op in _EXACT):
        return None
    x, y = a.value, b.value
    if type(x) is not int or type(y) is not int or (y == 0 and op in ("floordiv", "mod")) or (y < 0 and op == "pow"):
        return None
    large = op == "pow" and abs(x) > 1 and (y > _MAX_BITS or y * log2(abs(x)) > _MAX_BITS)
    value = 0 if large else _EXACT[op](x, y)
    if large or value.bit_length() > _MAX_BITS:
        raise TypeProblem(Diagnostic("E042", "this number is larger than any dtype can hold", span))
    return literal(value, span)


def extremum(op: str, a: Expr, b: Expr, name_span: Span, span: Span) -> Expr:
    """``min(a, b)`` or ``max(a, b)``."""
    dtype, strength = common(a, b)
    return _pair(op, op, a, b, dtype, strength, name_span, span)


def _pair(op: str, symbol: str, a: Expr, b: Expr, dtype: DType, strength: Strength, op_span: Span, span: Span) -> Expr:
    if dtype.kind == "c" and op in _ORDERED:
        raise _refuse(symbol, dtype, op_span, "take real(z), imag(z) or abs(z)")
    if dtype == BOOL:
        if op not in _BOOL_OPS:
            raise _refuse(symbol, dtype, op_span, "cast to a number first, as in i64(x)")
        op = _BOOL_OPS[op]
    return ApplyExpr(op, (coerce(a, dtype, strength), coerce(b, dtype, strength)), dtype, strength, span)


def _power(a: Expr, b: Expr, dtype: DType, strength: Strength, op_span: Span, span: Span) -> Expr:
    if dtype == BOOL:
        raise _refuse("^", dtype, op_span, "cast to a number first, as in i64(x)")
    if dtype.is_integer and isinstance(b, NumberExpr) and isinstance(b.value, int) and b.value < 0:
        if a.strength == "strong":
            help_text = f"give the exponent as a float: {float(b.value)}"
            message = "an integer to a negative power is no integer"
            raise TypeProblem(Diagnostic("E041", message, span, found=f"{a.dtype} ^ {b.value}", help=help_text))
        dtype = F64
    return ApplyExpr("pow", (coerce(a, dtype, strength), coerce(b, dtype, strength)), dtype, strength, span)


def negate(a: Expr, span: Span) -> Expr:
    """``-a``."""
    if isinstance(a, NumberExpr) and a.dtype != BOOL:
        return NumberExpr(-a.value, a.dtype, a.strength, span)
    if a.dtype == BOOL:
        raise _refuse("-", BOOL, span, "write not, or cast to a number first, as in i64(x)")
    return ApplyExpr("neg", (settle(a),), a.dtype, a.strength, span)


def compare(symbol: str, a: Expr, b: Expr, span: Span) -> Expr:
    """``a symbol b``: bool."""
    dtype, strength = common(a, b)
    op = COMPARISONS[symbol]
    if dtype.kind == "c" and op in _ORDERED:
        raise _refuse(symbol, dtype, span, "compare real(z), imag(z) or abs(z)")
    literals = [x for x in (a, b) if isinstance(x, NumberExpr)]
    if dtype.is_integer and any(not fits(x.value, dtype) for x in literals):
        dtype = I64 if all(fits(x.value, I64) for x in literals) else F64
    strength = "strong" if "strong" in (a.strength, b.strength) else strength
    return ApplyExpr(op, (coerce(a, dtype, strength), coerce(b, dtype, strength)), BOOL, strength, span)


def logical(op: str, arguments: Sequence[Expr], span: Span) -> Expr:
    """``and``, ``or``, ``not``: all bool."""
    for argument in arguments:
        condition(argument, f"'{op}'")
    return ApplyExpr(op, tuple(arguments), BOOL, weakest(arguments), span)


def condition(expr: Expr, what: str) -> None:
    """Require a bool.

    Raises:
        TypeProblem: it is a number (E040).
    """
    if expr.dtype != BOOL:
        raise TypeProblem(
            Diagnostic(
                "E040",
                f"{what} takes a condition",
                expr.span,
                expected="bool",
                found=str(expr.dtype),
                help="compare it, as in x != 0 or x > 0; an aggregation's body ends before a comparison, so write"
                " any[i] (X[i] > 0)"
                if "any" in what or "all" in what
                else "compare it, as in x != 0",
            )
        )


def weakest(arguments: Sequence[Expr]) -> Strength:
    """``strong`` if any argument is, ``number`` if all are, else ``weak``."""
    strengths = {argument.strength for argument in arguments}
    return "strong" if "strong" in strengths else "number" if strengths == {"number"} else "weak"


def choose(c: Expr, a: Expr, b: Expr, span: Span) -> Expr:
    """``where(c, a, b)``."""
    condition(c, "the first argument of 'where'")
    dtype, strength = common(a, b)
    if strength == "number" and c.strength != "number":
        strength = "weak"
    return ApplyExpr("where", (c, coerce(a, dtype, strength), coerce(b, dtype, strength)), dtype, strength, span)


# -- functions, casts, aggregations ------------------------------------------------------------------------------------


def function(name: str, a: Expr, name_span: Span, span: Span) -> Expr:
    """An elementwise function of one argument.

    Raises:
        TypeProblem: it is not defined for the argument's dtype (E041).
    """
    dtype, row = a.dtype, ELEMENTWISE[name]
    if dtype.kind == "c" and not row.takes_complex:
        raise _refuse(name, dtype, name_span, "take real(z), imag(z) or abs(z)")
    if dtype == BOOL and not row.takes_bool:
        raise _refuse(name, dtype, name_span, "cast to a number first, as in i64(x)")
    if dtype.kind in row.identity_kinds:
        return a
    if name == "imag" and dtype.kind != "c":
        return arithmetic("*", coerce(a, dtype, a.strength), literal(0, span), name_span, span)
    if dtype.is_inexact or row.keeps_integers:
        return ApplyExpr(name, (settle(a),), row.result(dtype), a.strength, span)
    taken = F64 if a.strength != "strong" else _float_for(dtype)
    return ApplyExpr(name, (coerce(a, taken, a.strength),), taken, a.strength, span)


def _float_for(dtype: DType) -> DType:
    """The float type that NumPy's functions use for integers: f16 for 8 bits, f32 for 16, f64 above."""
    return {1: F16, 2: F32}.get(dtype.itemsize, F64)


def cast(a: Expr, dtype: DType, span: Span) -> Expr:
    """``dtype(a)`` as written in the program.

    Raises:
        TypeProblem: a literal does not fit (E042), or a complex number would lose its imaginary part (E041).
    """
    if a.dtype.kind == "c" and dtype.kind != "c" and dtype != BOOL:
        raise _refuse(dtype.name, a.dtype, span, f"take {dtype}(real(z))")
    if isinstance(a, NumberExpr) and isinstance(a.value, int) and not isinstance(a.value, bool):
        a = _number_as(a, dtype if dtype.is_integer else F64 if not fits(a.value, I64) else I64, "number")
    return ConvertExpr(a, dtype, "strong", True, span)


def aggregate(
    op: str,
    labels: tuple[int, ...],
    body: Expr,
    accumulator: DType | None,
    head: Span,
    span: Span,
    implied: bool = False,
) -> AggregateExpr:
    """``op[labels : accumulator] body``.

    Raises:
        TypeProblem: the operator does not take these dtypes (E040, E041, E044).
    """
    body = settle(body)
    row = MONOIDS[op]
    if row.values == "bool":
        condition(body, f"'{op}'")
    if body.dtype.kind == "c" and row.values == "real":
        raise _refuse(op, body.dtype, head, "take real(z), imag(z) or abs(z)")
    if body.dtype == BOOL and row.bool_row:
        op = row.bool_row
    if accumulator is not None:
        _check_accumulator(op, body.dtype, accumulator, head)
    result = aggregation(op, body.dtype, accumulator).result
    strength: Strength = "strong" if accumulator is not None or body.strength == "strong" else "weak"
    return AggregateExpr(op, labels, body, accumulator, result, strength, implied, span)


def _check_accumulator(op: str, value: DType, accumulator: DType, head: Span) -> None:
    if not MONOIDS[op].accumulates:
        message = f"'{op}' has no accumulator to give a dtype to"
        raise TypeProblem(Diagnostic("E044", message, head, help=f"leave out ': {accumulator}'"))
    if accumulator == BOOL or _KINDS.index(accumulator.kind.replace("i", "u")) < _KINDS.index(
        value.kind.replace("i", "u")
    ):
        message = f"an accumulator of {accumulator} cannot hold values of {value}"
        help_text = f"cast the values first: {op}[...] {accumulator}(...)"
        raise TypeProblem(Diagnostic("E044", message, head, found=str(accumulator), help=help_text))
    if MONOIDS[op].result == "inexact" and not accumulator.is_inexact:
        message = f"'{op}' needs a float to accumulate in"
        raise TypeProblem(Diagnostic("E044", message, head, expected="a float dtype", found=str(accumulator)))
