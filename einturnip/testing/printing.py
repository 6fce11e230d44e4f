"""Prints drawn programs as `.ein` text, with the fewest parentheses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    ColonTerm,
    ComparisonTerm,
    DrawnLoop,
    DrawnParameter,
    DrawnProgram,
    DrawnSeveral,
    DrawnStatement,
    FixedTerm,
    Fn,
    FunctionTerm,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    JoinedTerm,
    KeyedTerm,
    Left,
    NumberTerm,
    ParenTerm,
    Position,
    RestTerm,
    SizeTerm,
    SliceTerm,
    Step,
    Term,
    UnaryTerm,
)

OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, POWER, ATOM = range(9)
_LEVELS = {
    "or": OR,
    "and": AND,
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "//": PRODUCT,
    "%": PRODUCT,
    "^": POWER,
}


def level(term: Term) -> int:
    """The precedence of the printed term, as of Python's operators."""
    match term:
        case UnaryTerm(op=op):
            return SIGN if op == "-" else NOT
        case BinaryTerm(op=op):
            return _LEVELS[op]
        case ComparisonTerm():
            return COMPARE
        case AggregateTerm():
            return PRODUCT
        case _:
            return ATOM


def ends_open(term: Term) -> bool:
    """True if the printed term ends in an aggregation, whose body would include a factor that follows."""
    match term:
        case AggregateTerm():
            return True
        case UnaryTerm(argument=argument):
            return (isinstance(argument, AggregateTerm) or level(argument) >= level(term)) and ends_open(argument)
        case BinaryTerm(right=right):
            bare = level(right) > level(term) or (isinstance(right, AggregateTerm) and level(term) == PRODUCT)
            return bare and ends_open(right)
        case _:
            return False


def text(term: Term) -> str:
    """The term as `.ein` text, with the fewest parentheses."""
    match term:
        case NumberTerm(value=value):
            return repr(value).lower()
        case SizeTerm(name=name) | IndexTerm(label=name):
            return name
        case AccessTerm(name=name, indices=indices):
            return f"{name}[{', '.join(map(position_text, indices))}]" if indices else name
        case UnaryTerm(op=op, argument=argument):
            inside = _inside(argument, level(term), aggregate=op == "-")
            return f"-{inside}" if op == "-" else f"not {inside}"
        case BinaryTerm():
            return _binary_text(term)
        case ComparisonTerm(ops=ops, arguments=arguments):
            first, *rest = (_inside(a, SUM) for a in arguments)
            return first + "".join(f" {op} {a}" for op, a in zip(ops, rest, strict=True))
        case FunctionTerm(name=name, arguments=arguments):
            return f"{name}({', '.join(map(text, arguments))})"
        case AggregateTerm(op=op, bounds=bounds, body=body, dtype=dtype):
            inside = ", ".join(map(left_text, bounds)) + (f" : {dtype}" if dtype else "")
            return f"{op}[{inside}] {_inside(body, PRODUCT)}"
        case ParenTerm(inner=inner):
            return f"({text(inner)})"
        case CallTerm(function=function, arguments=arguments, named=named):
            given = [*map(text, arguments), *(f"{name} = {text(value)}" for name, value in named)]
            return f"{function.name}({', '.join(given)})"
        case _:
            assert_never(term)


def _inside(term: Term, min_level: int, *, aggregate: bool = False, closed: bool = False) -> str:
    """The term as an operand whose precedence must be at least ``min_level``."""
    plain = level(term) >= min_level or (aggregate and isinstance(term, AggregateTerm))
    return text(term) if plain and not (closed and ends_open(term)) else f"({text(term)})"


def _binary_text(term: BinaryTerm) -> str:
    own = _LEVELS[term.op]
    if own == POWER:
        return f"{_inside(term.left, ATOM)} ^ {_inside(term.right, SIGN, closed=True)}"
    left = _inside(term.left, own, closed=own == PRODUCT)
    return f"{left} {term.op} {_inside(term.right, own + 1, aggregate=own == PRODUCT)}"


def position_text(position: Position) -> str:
    """One index of an access."""
    match position:
        case str():
            return position
        case GuardedTerm(index=index, fill=fill):
            return f"{position_text(index)} ? {text(fill)}"
        case SliceTerm(start=start, stop=stop):
            return ":".join("" if end is None else text(end) for end in (start, stop))
        case GroupTerm(labels=labels):
            return f"({' '.join(labels)})"
        case RestTerm():
            return "..."
        case _:
            return text(position)


def left_text(left: Left) -> str:
    """One label or index on the left side, or in an aggregation's brackets."""
    match left:
        case BoundTerm(label=label, size=size):
            return label if size is None else f"{label}: {text(size)}"
        case ColonTerm():
            return ":"
        case FixedTerm(at=at):
            return text(at)
        case KeyedTerm(key=key, size=size):
            return f"{text(key)}: {text(size)}"
        case JoinedTerm(bounds=bounds):
            return " | ".join(map(left_text, bounds))
        case GroupTerm() | RestTerm():
            return position_text(left)
        case _:
            assert_never(left)


def program_text(program: DrawnProgram) -> str:
    """The program as `.ein` text, one statement a line."""
    lines = [f"dim {d.name}" + (f" = {text(d.size)}" if d.size is not None else "") for d in program.dims]
    for i in program.inputs:
        lines.append(f"input {i.name} : {i.dtype}" + (f"[{', '.join(map(text, i.shape))}]" if i.shape else ""))
    for function in program.functions:
        lines += _function_lines(function)
    lines += _step_lines(program.statements)
    lines.append(f"output {', '.join(program.outputs)}")
    return "\n".join(lines) + "\n"


def _function_lines(function: Fn) -> list[str]:
    head = f"fn {function.name}({', '.join(map(_parameter_text, function.parameters))})"
    if not function.steps and len(function.returns) == 1:
        return [f"{head} = {text(function.returns[0])}"]
    returns = f"return {', '.join(map(text, function.returns))}"
    return [f"{head} {{", *_indented([*_step_lines(function.steps), returns]), "}"]


def _parameter_text(parameter: DrawnParameter) -> str:
    labels = "" if parameter.labels is None else f"[{', '.join(map(position_text, parameter.labels))}]"
    default = "" if parameter.default is None else f" = {text(parameter.default)}"
    return parameter.name + labels + default


def _step_lines(steps: Iterable[Step]) -> list[str]:
    lines: list[str] = []
    for step in steps:
        match step:
            case DrawnStatement(name=name, bounds=bounds, body=body, others=others, hints=hints):
                value = " | ".join(map(text, (body, *others)))
                lines += [*hints, f"{_target_text(name, bounds)} = {value}"]
            case DrawnSeveral(targets=targets, call=call):
                lines.append(f"{', '.join(_target_text(*target) for target in targets)} = {text(call)}")
            case DrawnLoop(variable=variable, start=start, stop=stop, body=inner):
                lines.append(f"for {variable} in {text(start)} .. {text(stop)} {{")
                lines += [*_indented(_step_lines(inner)), "}"]
            case _:
                assert_never(step)
    return lines


def _target_text(name: str, bounds: tuple[Left, ...]) -> str:
    return f"{name}[{', '.join(map(left_text, bounds))}]" if bounds else name


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
