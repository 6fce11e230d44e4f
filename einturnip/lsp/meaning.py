"""What a word in a program means where it stands: a tensor's version, a label, a size, a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from einturnip.core.diagnostics import Span
from einturnip.lang.keywords import RESERVED
from einturnip.lang.lexer import LexToken
from einturnip.lang.program import (
    AccessExpr,
    AggregateExpr,
    Concatenate,
    DimDef,
    Equation,
    Expr,
    ForLoop,
    GradStatement,
    InputDef,
    Replace,
    Statement,
    TypedProgram,
    walk,
)
from einturnip.lsp.glossary import HINTS
from einturnip.lsp.names import VisibleName, in_force, standard
from einturnip.lsp.reading import Reading


@dataclass(frozen=True, slots=True)
class TensorMeaning:
    """Tensor number ``number`` of the program."""

    number: int


@dataclass(frozen=True, slots=True)
class LabelMeaning:
    """Label ``number`` of an equation."""

    equation: Equation
    number: int


@dataclass(frozen=True, slots=True)
class SizeMeaning:
    """A dim of the program."""

    dim: DimDef


@dataclass(frozen=True, slots=True)
class WordMeaning:
    """A word of the language; a hint's begins with '@'."""

    text: str


Meaning = TensorMeaning | LabelMeaning | SizeMeaning | VisibleName | WordMeaning


def meaning(reading: Reading, line: int, column: int) -> tuple[Meaning, LexToken] | None:
    """What the word at a place means, and the word; None where there is none, or nobody knows."""
    token = reading.word(line, column)
    if token is None:
        return None
    found = _meaning(reading, token)
    return None if found is None else (found, token)


def _meaning(reading: Reading, token: LexToken) -> Meaning | None:
    word = token.text
    if word in RESERVED:
        return WordMeaning(word)
    if word in HINTS and reading.lines[token.line - 1][: token.column - 1].rstrip().endswith("@"):
        return WordMeaning("@" + word)
    program = reading.program
    if program is not None:
        found = _in_statements(program, program.statements, token)
        if found is not None:
            return found
    # A definition's own names count from its end on.
    name = in_force(reading.tree, token.line, token.column).get(word) or _defined_here(reading, token)
    if name is not None and program is not None:
        if name.kind == "dim" and word in program.dims:
            return SizeMeaning(program.dims[word])
        # What a call is given is read inside the function, so that no access stands here.
        given = (t.number for t in program.tensors if t.name == word and t.span[:3] == name.span[:3])
        return next(map(TensorMeaning, given), name)
    return name or next((f for names in standard().values() for f in names if f.name == word), None)


def _defined_here(reading: Reading, token: LexToken) -> VisibleName | None:
    """A name where it is given."""
    end = len(reading.lines[token.line - 1]) + 1
    name = in_force(reading.tree, token.line + 1, 1).get(token.text) or in_force(reading.tree, token.line, end).get(
        token.text
    )
    return name if name and name.span[1:3] == (token.line, token.column) else None


def _in_statements(program: TypedProgram, statements: Sequence[Statement], token: LexToken) -> Meaning | None:
    """What a word means in the statement that it stands in."""
    for statement in statements:
        if not _holds(statement.span, token) and not isinstance(statement, ForLoop):
            continue
        match statement:
            case ForLoop(body=body):
                found = _in_statements(program, body, token)
            case Equation(name=name) if "." not in name:
                found = _in_equation(program, statement, token)
            case InputDef(number=number, name=name) if name == token.text:
                found = TensorMeaning(number)
            case Replace(number=number, name=name) | Concatenate(number=number, name=name):
                found = TensorMeaning(number) if name == token.text and _begins(statement.span, token) else None
            case _:
                found = None
        if found is not None:
            return found
    return None


def _in_equation(program: TypedProgram, equation: Equation, token: LexToken) -> Meaning | None:
    word = token.text
    if word == equation.name and _begins(equation.span, token):
        return TensorMeaning(equation.number)
    parts = [e for whole in (equation.value, *(key for _, key in equation.keys)) for e in walk(whole)]
    for part in parts:
        if isinstance(part, AccessExpr) and program.tensors[part.tensor].name == word and _begins(part.span, token):
            return TensorMeaning(part.tensor)
        if isinstance(part, AccessExpr) and isinstance(made := program.tensors[part.tensor], GradStatement):
            if program.tensors[made.by].name == word and _begins(part.span, token):
                return TensorMeaning(made.by)
            if program.tensors[made.loss].name == word:
                return TensorMeaning(made.loss)
    labels = equation.labels
    for number in (*_bound_around(parts, token), *range(equation.n_out)):
        if labels[number].name == word:
            return LabelMeaning(equation, number)
    return next((LabelMeaning(equation, n) for n, label in enumerate(labels) if label.name == word), None)


def _bound_around(parts: Sequence[Expr], token: LexToken) -> Iterator[int]:
    """The labels that the aggregations around a word bind, innermost first."""
    around = [part for part in parts if isinstance(part, AggregateExpr) and _holds(part.span, token)]
    for aggregate in reversed(around):
        yield from aggregate.labels


def _holds(span: Span, token: LexToken) -> bool:
    start, end = (token.line, token.column), (token.line, token.column + len(token.text))
    return span.file == token.file and span[1:3] <= start and end <= span[3:]


def _begins(span: Span, token: LexToken) -> bool:
    return span.file == token.file and span[1:3] == (token.line, token.column)


def definition(reading: Reading, found: Meaning) -> Span | None:
    """Where a meaning was given its name."""
    match found:
        case TensorMeaning(number=number):
            assert reading.program is not None
            tensor = reading.program.tensors[number]
            # A loop's variable of a name begins as what was before the loop.
            while not isinstance(tensor, InputDef | Equation | Replace | Concatenate | GradStatement):
                tensor = reading.program.tensors[tensor.initial]
            return tensor.span
        case LabelMeaning(equation=equation, number=number):
            return equation.labels[number].span
        case SizeMeaning(dim=dim):
            return dim.span
        case VisibleName(span=span):
            return span
        case WordMeaning():
            return None
