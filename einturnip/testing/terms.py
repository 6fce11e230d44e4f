"""A small syntax of its own for drawn programs, and how it prints as `.ein` text.

Deliberately not the compiler's: a program drawn here reaches the compiler as text only, so that a mistake in the
compiler's syntax tree cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: true, 3, 0.5, 2j, inf, nan. Never negative; use Unary."""

    value: bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Size:
    """A dim used as a number."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """A label used as a number."""

    label: str


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor with all its axes, or a scalar with none."""

    name: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``not x``."""

    op: str
    argument: Term


@dataclass(frozen=True, slots=True)
class Binary:
    """``a op b`` with op one of ``+ - * / // % ^ and or``."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of comparisons: ``ops[i]`` stands between ``arguments[i]`` and ``arguments[i + 1]``."""

    ops: tuple[str, ...]
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """``where``, ``min``, ``max``, an elementwise function or a cast (its name is the dtype's)."""

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A label where it is bound, with the size written there, if any."""

    label: str
    size: Term | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``op[bounds] body``; ``dtype`` is the one asked for, as in ``sum[k : f64]``."""

    op: str
    bounds: tuple[Bound, ...]
    body: Term
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Paren:
    """Parentheses that the meaning does not need."""

    inner: Term


Term: TypeAlias = Number | Size | Index | Access | Unary | Binary | Chain | Function | Aggregate | Paren


@dataclass(frozen=True, slots=True)
class Dim:
    """``dim name`` or ``dim name = size``."""

    name: str
    size: Term | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """``input name : dtype[shape]``."""

    name: str
    dtype: str
    shape: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """``name[bounds] = body``, or ``name = body`` where there are no bounds."""

    name: str
    bounds: tuple[Bound, ...]
    body: Term


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the language core."""

    dims: tuple[Dim, ...]
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms (sizes written in bounds are not among them)."""
    match term:
        case Number() | Size() | Index() | Access():
            return ()
        case Unary(argument=argument):
            return (argument,)
        case Binary(left=left, right=right):
            return (left, right)
        case Chain(arguments=arguments) | Function(arguments=arguments):
            return arguments
        case Aggregate(body=body):
            return (body,)
        case Paren(inner=inner):
            return (inner,)
        case _:
            assert_never(term)


def free_accesses(term: Term, hidden: frozenset[str] = frozenset()) -> Iterator[tuple[str, int, str]]:
    """(tensor, axis, label) for each label that the term does not bind itself, where it stands on an axis."""
    if isinstance(term, Aggregate):
        hidden |= {b.label for b in term.bounds}
    if isinstance(term, Access):
        yield from ((term.name, axis, x) for axis, x in enumerate(term.labels) if x not in hidden)
    for child in children(term):
        yield from free_accesses(child, hidden)


def free_labels(term: Term) -> frozenset[str]:
    """Labels that the term uses, on axes or as numbers, and does not bind itself."""
    match term:
        case Index(label=label):
            return frozenset((label,))
        case Access(labels=labels):
            return frozenset(labels)
        case Aggregate(bounds=bounds, body=body):
            return free_labels(body) - {b.label for b in bounds}
        case _:
            return frozenset[str]().union(*(free_labels(c) for c in children(term)))


def is_product(term: Term) -> bool:
    """True for one product of accesses and label-free factors, which may divide (Einstein's convention applies)."""
    match term:
        case Access():
            return True
        case Paren(inner=inner):
            return is_product(inner)
        case Binary(op="*", left=left, right=right):
            return is_product(left) and is_product(right)
        case Binary(op="/", left=left, right=right):
            return is_product(left) and not free_labels(right)
        case _:
            return not free_labels(term)


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
    """How tightly the printed term holds together, as Python's operators do."""
    match term:
        case Unary(op=op):
            return SIGN if op == "-" else NOT
        case Binary(op=op):
            return _LEVELS[op]
        case Chain():
            return COMPARE
        case Aggregate():
            return PRODUCT
        case _:
            return ATOM


def ends_open(term: Term) -> bool:
    """True where the printed term ends in an aggregation, which would swallow a factor that follows."""
    match term:
        case Aggregate():
            return True
        case Unary(argument=argument):
            return (isinstance(argument, Aggregate) or level(argument) >= level(term)) and ends_open(argument)
        case Binary(right=right):
            bare = level(right) > level(term) or (isinstance(right, Aggregate) and level(term) == PRODUCT)
            return bare and ends_open(right)
        case _:
            return False


def text(term: Term) -> str:
    """The term as `.ein` text, with the fewest parentheses."""
    match term:
        case Number(value=value):
            return repr(value).lower()
        case Size(name=name) | Index(label=name):
            return name
        case Access(name=name, labels=labels):
            return f"{name}[{', '.join(labels)}]" if labels else name
        case Unary(op=op, argument=argument):
            inside = _inside(argument, level(term), aggregate=op == "-")
            return f"-{inside}" if op == "-" else f"not {inside}"
        case Binary():
            return _binary_text(term)
        case Chain(ops=ops, arguments=arguments):
            first, *rest = (_inside(a, SUM) for a in arguments)
            return first + "".join(f" {op} {a}" for op, a in zip(ops, rest, strict=True))
        case Function(name=name, arguments=arguments):
            return f"{name}({', '.join(map(text, arguments))})"
        case Aggregate(op=op, bounds=bounds, body=body, dtype=dtype):
            inside = ", ".join(map(_bound_text, bounds)) + (f" : {dtype}" if dtype else "")
            return f"{op}[{inside}] {_inside(body, PRODUCT)}"
        case Paren(inner=inner):
            return f"({text(inner)})"
        case _:
            assert_never(term)


def _inside(term: Term, least: int, *, aggregate: bool = False, closed: bool = False) -> str:
    """The term as an operand that must hold at least as tightly as ``least``."""
    plain = level(term) >= least or (aggregate and isinstance(term, Aggregate))
    return text(term) if plain and not (closed and ends_open(term)) else f"({text(term)})"


def _binary_text(term: Binary) -> str:
    own = _LEVELS[term.op]
    if own == POWER:
        return f"{_inside(term.left, ATOM)} ^ {_inside(term.right, SIGN, closed=True)}"
    left = _inside(term.left, own, closed=own == PRODUCT)
    return f"{left} {term.op} {_inside(term.right, own + 1, aggregate=own == PRODUCT)}"


def _bound_text(bound: Bound) -> str:
    return bound.label if bound.size is None else f"{bound.label}: {text(bound.size)}"


def program_text(program: Program) -> str:
    """The program as `.ein` text, a statement a line."""
    lines = [f"dim {d.name}" + (f" = {text(d.size)}" if d.size is not None else "") for d in program.dims]
    for i in program.inputs:
        lines.append(f"input {i.name} : {i.dtype}" + (f"[{', '.join(map(text, i.shape))}]" if i.shape else ""))
    for s in program.statements:
        labels = f"[{', '.join(map(_bound_text, s.bounds))}]" if s.bounds else ""
        lines.append(f"{s.name}{labels} = {text(s.body)}")
    lines.append(f"output {', '.join(program.outputs)}")
    return "\n".join(lines) + "\n"
