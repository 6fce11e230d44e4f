"""Prints a TypedProgram as text with the same meaning."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Iterator
from typing import assert_never

from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AggregateExpr,
    ApplyExpr,
    ConvertExpr,
    Expr,
    GatherIndex,
    GuardedAccess,
    Index,
    LabelNumber,
    NumberExpr,
    SizeExpr,
    SizeLiteral,
    SizeName,
    SizeNumber,
    SizeOp,
    SplitIndex,
)
from einturnip.lang.program import (
    Carried,
    Concatenate,
    DimDef,
    Equation,
    EquationLabel,
    FileRef,
    GradStatement,
    InputDef,
    Loop,
    Output,
    PlanHint,
    Replace,
    Statement,
    TypedProgram,
    is_condition,
)
from einturnip.lang.sizes import add, multiply, negate, size_text, subtract

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
# Python's precedence. An aggregation extends over a whole product, so its precedence is between sum and product.
_OR, _AND, _NOT, _COMPARISON, _SUM, _AGGREGATE, _PRODUCT, _UNARY, _ATOM = 1, 2, 3, 4, 5, 6, 7, 8, 10
_INFIX = {
    "or": ("or", _OR),
    "and": ("and", _AND),
    "add": ("+", _SUM),
    "sub": ("-", _SUM),
    "mul": ("*", _PRODUCT),
    "div": ("/", _PRODUCT),
    "floordiv": ("//", _PRODUCT),
    "mod": ("%", _PRODUCT),
}
_POWER = 9


def show(program: TypedProgram) -> str:
    """Print a program, one statement a line."""
    return "".join(f"{line}\n" for line in _lines(program.statements, program))


def _lines(statements: Iterable[Statement], program: TypedProgram) -> Iterator[str]:
    """Yield the lines of statements; conditions are shown in the heads of their loops."""
    for statement in statements:
        if not (isinstance(statement, Equation) and is_condition(statement.name)):
            yield from show_statement(statement, program).split("\n")


def show_statement(statement: Statement, program: TypedProgram) -> str:
    """Print one statement; a loop takes several lines."""
    match statement:
        case DimDef(name=name, definition=definition):
            return f"dim {name}" if definition is None else f"dim {name} = {size_text(definition)}"
        case InputDef(name=name, dtype=dtype, shape=shape, default=default, state=state):
            axes = f"[{', '.join(map(size_text, shape))}]" if shape else ""
            head = f"{'state' if state else 'input'} {name} : {dtype}{axes}"
            if isinstance(default, FileRef):
                return f"{head} = {_file(default)}"
            return head + ("" if default is None else f" = {number_text(default)}")
        case Equation():
            return _equation(statement, program)
        case Replace(name=name, at=at, piece=piece):
            free = iter("ijklmnpqrs")
            places = ", ".join(next(free) if size is None else size_text(size) for size in at)
            axes = ", ".join("ijklmnpqrs"[: sum(size is None for size in at)])
            return f"{name}[{places}] = {program.tensors[piece].name}" + (f"[{axes}]" if axes else "")
        case Concatenate(name=name, axis=axis, rank=rank, parts=parts):
            labels = [[f"i{k}" for k in range(rank)] for _ in parts]
            for k, each in enumerate(labels):
                each[axis] = f"j{k}"
            places = ", ".join(" | ".join(e[k] for e in labels) if k == axis else f"i{k}" for k in range(rank))
            right = (f"{program.tensors[p].name}[{', '.join(e)}]" for p, e in zip(parts, labels, strict=True))
            return f"{name}[{places}] = {' | '.join(right)}"
        case GradStatement(name=name, loss=loss, by=by, rank=rank):
            axes = f"[{', '.join('ijklmnpqrs'[:rank])}]" if rank else ""
            return f"{name}{axes} = grad({program.tensors[loss].name}, {program.tensors[by].name}{axes})"
        case Loop(body=body):
            return "\n".join([_head(statement, program), *(f"  {line}" for line in _lines(body, program)), "}"])
        case Output(name=name, file=file):
            return f"output {name}" + ("" if file is None else f" = {_file(file)}")
        case _:
            assert_never(statement)


def _head(loop: Loop, program: TypedProgram) -> str:
    if loop.condition is None:
        return f"for {loop.variable} in {size_text(loop.start)} .. {size_text(loop.stop)} {{"
    carried = program.tensors[loop.condition]
    assert isinstance(carried, Carried)
    first = program.tensors[carried.initial]
    assert isinstance(first, Equation)
    return f"while {_Writer(program, first).text(first.value, 0)}, at most {size_text(loop.stop)} {{"


def _equation(equation: Equation, program: TypedProgram) -> str:
    writer = _Writer(program, equation)
    keys = dict(equation.keys)
    places = [_label(label) for label in equation.labels[: equation.n_out]]
    for k, key in keys.items():
        size = equation.labels[k].size
        places[k] = writer.text(key, 0) + ("" if size is None else f": {size_text(size)}")
    left = f"[{', '.join(places)}]" if places else ""
    hints = "".join(f"{_hint(hint, equation)} " for hint in equation.hints)
    return f"{hints}{equation.name}{left} {'<-' if equation.update else '='} {writer.text(equation.value, 0)}"


def _hint(hint: PlanHint, equation: Equation) -> str:
    tiles = (f"{equation.labels[k].name} = {size_text(n)}{' parts' if parts else ''}" for k, n, parts in hint.tiles)
    inside = ", ".join(tiles) or hint.device
    return f"@{hint.kind}({inside})" if inside else f"@{hint.kind}"


def _file(file: FileRef) -> str:
    parts = [part for part in (file.path, file.key) if part is not None]
    return " :: ".join('"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in parts)


def _label(label: EquationLabel) -> str:
    return label.name if label.size is None else f"{label.name}: {size_text(label.size)}"


def number_text(value: bool | int | float | complex) -> str:
    """Format a number in the syntax of the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"{value.imag!r}j" if not cmath.isnan(value) else "nan"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


class _Writer:
    """Prints expressions of one equation. ``outer``: the minimum precedence that needs no parentheses."""

    def __init__(self, program: TypedProgram, equation: Equation) -> None:
        self.tensors = program.tensors
        self.labels = equation.labels

    def text(self, expr: Expr, outer: int) -> str:
        text, precedence = self._parts(expr)
        return f"({text})" if precedence < outer else text

    def _parts(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case NumberExpr(value=value):
                text = number_text(value)
                return text, _UNARY if text.startswith("-") else _ATOM
            case SizeNumber(size=size):
                return size_text(size), _ATOM
            case LabelNumber(label=label):
                return self.labels[label].name, _ATOM
            case AccessExpr(tensor=tensor, indices=labels):
                text = ", ".join(map(self._index, labels))
                return self.tensors[tensor].name + (f"[{text}]" if labels else ""), _ATOM
            case ConvertExpr(argument=argument, dtype=dtype, explicit=explicit):
                return (f"{dtype}({self.text(argument, 0)})", _ATOM) if explicit else self._parts(argument)
            case ApplyExpr():
                return self._apply(expr)
            case AggregateExpr():
                return self._aggregate(expr)
            case _:
                assert_never(expr)

    def _index(self, index: Index) -> str:
        match index:
            case int():
                return self.labels[index].name
            case AffineIndex():
                return self._affine(index)
            case SplitIndex(labels=labels):
                return f"({' '.join(self.labels[label].name for label in labels)})"
            case GatherIndex(value=value):
                text = self.text(value, 0)
                return f"floor({text})" if _degree(value) <= 1 else text  # else it would be read as an affine index
            case GuardedAccess(index=inner, fill=fill):
                return f"{self._index(inner)} ? {self.text(fill, 0)}"
            case _:
                assert_never(index)

    def _affine(self, index: AffineIndex) -> str:
        """Format an affine index like a size expression in which labels are names."""
        span = index.span
        total: SizeExpr = SizeLiteral(0, span)
        taken: list[SizeExpr] = []
        for label, coefficient in index.terms:
            name, opposite = SizeName(self.labels[label].name, span), negate(coefficient, span)
            if _is_negation(coefficient):
                taken.append(multiply(opposite, name, span))
            else:
                total = add(total, multiply(coefficient, name, span), span)
        if _is_negation(index.offset):
            taken.insert(0, negate(index.offset, span))
        else:
            total = add(total, index.offset, span)
        for size in taken:
            total = subtract(total, size, span)
        if index.divisor is not None:
            total = SizeOp("floordiv", (total, index.divisor), span)
        return size_text(total if index.modulus is None else SizeOp("mod", (total, index.modulus), span))

    def _aggregate(self, expr: AggregateExpr) -> tuple[str, int]:
        if expr.implied:
            return self._parts(expr.body)
        labels = ", ".join(_label(self.labels[label]) for label in expr.labels)
        accumulator = f" : {expr.accumulator}" if expr.accumulator is not None else ""
        return f"{expr.op}[{labels}{accumulator}] {self.text(expr.body, _AGGREGATE)}", _AGGREGATE

    def _apply(self, expr: ApplyExpr) -> tuple[str, int]:
        op, arguments = expr.op, expr.arguments
        if op == "and" and (chain := self._chain(expr)):
            return chain, _COMPARISON
        if op in _INFIX:
            symbol, precedence = _INFIX[op]
            right = _AGGREGATE if precedence == _SUM else precedence + 1
            return f"{self.text(arguments[0], precedence)} {symbol} {self.text(arguments[1], right)}", precedence
        if op in _COMPARE:
            left, right_text = (self.text(argument, _SUM) for argument in arguments)
            return f"{left} {_COMPARE[op]} {right_text}", _COMPARISON
        if op == "pow":
            return f"{self.text(arguments[0], _ATOM)} ^ {self.text(arguments[1], _UNARY)}", _POWER
        if op == "neg":
            return f"-{self.text(arguments[0], _UNARY)}", _UNARY
        if op == "not":
            return f"not {self.text(arguments[0], _NOT)}", _NOT
        return f"{op}({', '.join(self.text(argument, 0) for argument in arguments)})", _ATOM

    def _chain(self, expr: ApplyExpr) -> str:
        """Format ``a < b and b < c`` as ``a < b < c``; empty for other expressions."""
        first, last = expr.arguments
        if not (isinstance(first, ApplyExpr) and isinstance(last, ApplyExpr) and last.op in _COMPARE):
            return ""
        link = first.arguments[1] if first.op == "and" else first
        if not (isinstance(link, ApplyExpr) and link.op in _COMPARE):
            return ""
        if _bare(link.arguments[1]) != _bare(last.arguments[0]):
            return ""
        start = self._chain(first) if first.op == "and" else self.text(first, _COMPARISON)
        return f"{start} {_COMPARE[last.op]} {self.text(last.arguments[1], _SUM)}" if start else ""


def _is_negation(size: SizeExpr) -> bool:
    return (isinstance(size, SizeLiteral) and size.value < 0) or (isinstance(size, SizeOp) and size.op == "neg")


def _bare(expr: Expr) -> object:
    """An expression without implicit conversions."""
    while isinstance(expr, ConvertExpr) and not expr.explicit:
        expr = expr.argument
    match expr:
        case NumberExpr(value=value):
            return (type(value), value)
        case SizeNumber(size=size):
            return size
        case _:
            return expr


def _degree(index: Expr) -> int:
    """Return the degree of an integer expression in labels; 2 also for what no affine index can contain."""
    match index:
        case NumberExpr() | SizeNumber():
            return 0
        case LabelNumber():
            return 1
        case ConvertExpr(argument=argument, explicit=False):
            return _degree(argument)
        case ApplyExpr(op="neg" | "add" | "sub", arguments=arguments):
            return max(map(_degree, arguments))
        case ApplyExpr(op="mul", arguments=arguments):
            return sum(map(_degree, arguments))
        case ApplyExpr(op="floordiv" | "mod", arguments=(dividend, divisor)):
            return _degree(dividend) if _degree(divisor) == 0 else 2
        case _:
            return 2
