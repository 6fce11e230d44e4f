"""Size expressions: evaluation, formatting, and the names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, assert_never

from einturnip.core.diagnostics import Diagnostic, Edit, Span
from einturnip.core.errors import SourceError
from einturnip.lang.expressions import AxisSize, SizeExpr, SizeLiteral, SizeName, SizeOp

LARGEST = 2**62

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "^"}
_PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "div": 2, "floordiv": 2, "mod": 2, "neg": 3, "pow": 4}


def size_value(expr: SizeExpr, values: Mapping[str, int], axes: Callable[[int, int], int] | None = None) -> int:
    """The integer value of ``expr``; may be negative, which the caller must check.

    ``axes`` returns the size of an axis of a tensor.

    Raises:
        KeyError: a name has no value, or there is an axis and no ``axes``.
        SourceError: a division that is not exact or by zero, a negative power, or a number past 2^62 (code E050).
    """
    match expr:
        case SizeLiteral(value=value):
            return value
        case SizeName(name=name):
            return values[name]
        case AxisSize(tensor=tensor, axis=axis, name=name):
            if axes is None:
                raise KeyError(name)
            return axes(tensor, axis)
        case SizeOp(op=op, arguments=arguments):
            numbers = [size_value(argument, values, axes) for argument in arguments]
            result = _apply(expr, op, numbers, values)
            if abs(result) > LARGEST:
                raise _error(expr, f"size {size_text(expr)} is too large", values)
            return result
        case _:
            assert_never(expr)


def _apply(expr: SizeOp, op: str, numbers: list[int], values: Mapping[str, int]) -> int:
    a, b = numbers[0], numbers[-1]
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
        case "neg":
            return -a
        case "pow":
            if b < 0:
                raise _error(expr, f"{a} ^ {b} is no integer", values)
            if abs(a) > 1 and b > 64:
                raise _error(expr, f"size {size_text(expr)} is too large", values)
            return int(a**b)
        case _:
            if b == 0:
                raise _error(expr, f"size {size_text(expr)} divides by zero", values)
            if op == "div" and a % b:
                message = f"size {size_text(expr)} is not exact: {a} / {b} leaves {a % b}"
                raise _error(expr, message, values, size_text(replace(expr, op="floordiv")))
            return a % b if op == "mod" else a // b


def _error(expr: SizeOp, message: str, values: Mapping[str, int], rounded: str = "") -> SourceError:
    found = ", ".join(f"{name} = {values[name]}" for name in size_names(expr) if name in values)
    help_text = f"to round down, write {rounded}" if rounded else ""
    # The span may include parentheses, which the text lacks. Names in functions have a dot.
    edits = (Edit(expr.span, f"({rounded})"),) if rounded and "." not in rounded else ()
    return SourceError((Diagnostic("E050", message, expr.span, found=found, help=help_text, edits=edits),))


def size_names(expr: SizeExpr) -> tuple[str, ...]:
    """The names in ``expr``, each once, in order."""
    return tuple(dict.fromkeys(_names(expr)))


def _names(expr: SizeExpr) -> Iterator[str]:
    match expr:
        case SizeLiteral() | AxisSize():
            return
        case SizeName(name=name):
            yield name
        case SizeOp(arguments=arguments):
            for argument in arguments:
                yield from _names(argument)
        case _:
            assert_never(expr)


# -- building sizes ---------------------------------------------------------------------------------------------------


def is_literal(expr: SizeExpr, value: int) -> bool:
    """True if a size is the literal ``value``."""
    return isinstance(expr, SizeLiteral) and expr.value == value


def add(a: SizeExpr, b: SizeExpr, span: Span) -> SizeExpr:
    """``a + b``, computed where both are literals."""
    if is_literal(a, 0) or is_literal(b, 0):
        return b if is_literal(a, 0) else a
    if isinstance(b, SizeOp) and b.op == "neg":
        return subtract(a, b.arguments[0], span)
    return _build("add", a, b, span)


def subtract(a: SizeExpr, b: SizeExpr, span: Span) -> SizeExpr:
    """``a - b``, computed where both are literals."""
    if is_literal(b, 0):
        return a
    return negate(b, span) if is_literal(a, 0) else _build("sub", a, b, span)


def multiply(a: SizeExpr, b: SizeExpr, span: Span) -> SizeExpr:
    """``a * b``, computed where both are literals."""
    if is_literal(a, 1) or is_literal(b, 1):
        return b if is_literal(a, 1) else a
    if is_literal(a, 0) or is_literal(b, 0):
        return SizeLiteral(0, span)
    return _build("mul", a, b, span)


def negate(a: SizeExpr, span: Span) -> SizeExpr:
    """``-a``, computed where it is a literal."""
    if isinstance(a, SizeLiteral):
        return SizeLiteral(-a.value, span)
    return a.arguments[0] if isinstance(a, SizeOp) and a.op == "neg" else SizeOp("neg", (a,), span)


def _build(op: Literal["add", "sub", "mul"], a: SizeExpr, b: SizeExpr, span: Span) -> SizeExpr:
    if isinstance(a, SizeLiteral) and isinstance(b, SizeLiteral):
        return SizeLiteral({"add": a.value + b.value, "sub": a.value - b.value, "mul": a.value * b.value}[op], span)
    return SizeOp(op, (a, b), span)


def size_text(expr: SizeExpr) -> str:
    """Format ``expr`` as source text."""
    return _text(expr, 0)


def _text(expr: SizeExpr, outer: int) -> str:
    match expr:
        case SizeLiteral(value=value):
            return str(value)
        case SizeName(name=name) | AxisSize(name=name):
            return name
        case SizeOp(op="min" | "max" as op, arguments=arguments):
            return f"{op}({', '.join(_text(argument, 0) for argument in arguments)})"
        case SizeOp(op=op, arguments=arguments):
            mine = _PRECEDENCE[op]
            if op == "neg":
                text = f"-{_text(arguments[0], mine)}"
            elif op == "pow":
                text = f"{_text(arguments[0], mine + 1)} ^ {_text(arguments[1], 3)}"
            else:
                text = f"{_text(arguments[0], mine)} {_SYMBOLS[op]} {_text(arguments[1], mine + 1)}"
            return f"({text})" if mine < outer else text
        case _:
            assert_never(expr)
