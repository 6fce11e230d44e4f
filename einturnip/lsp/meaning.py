"""Resolves a word at a position: a tensor's version, a label, a size, a function, a reserved word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from einturnip.core.diagnostics import Span
from einturnip.lang.expressions import AccessExpr, AggregateExpr, Expr, walk
from einturnip.lang.keywords import RESERVED
from einturnip.lang.lexer import LexToken
from einturnip.lang.program import (
    Concatenate,
    DimDef,
    Equation,
    GradStatement,
    InputDef,
    Loop,
    Replace,
    Statement,
    TypedProgram,
    is_condition,
)
from einturnip.lsp.glossary import HINTS
from einturnip.lsp.names import VisibleName, standard, visible_names
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
    """A reserved word of the language; hints begin with '@'."""

    text: str


Meaning = TensorMeaning | LabelMeaning | SizeMeaning | VisibleName | WordMeaning


def meaning(reading: Reading, line: int, column: int) -> tuple[Meaning, LexToken] | None:
    """The meaning of the word at a position, and the word; None if there is none or it is unknown."""
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
    # The names that a definition introduces are visible after its end.
    name = visible_names(reading.tree, token.line, token.column).get(word) or _defined_here(reading, token)
    if name is not None and program is not None:
        if name.kind == "dim" and word in program.dims:
            return SizeMeaning(program.dims[word])
        # A call's arguments are read inside the inlined function, so the equation here has no access of them.
        numbers = (t.number for t in program.tensors if t.name == word and t.span[:3] == name.span[:3])
        return next(map(TensorMeaning, numbers), name)
    return name or next((f for names in standard().values() for f in names if f.name == word), None)


def _defined_here(reading: Reading, token: LexToken) -> VisibleName | None:
    """The name that a token defines."""
    end = len(reading.lines[token.line - 1]) + 1
    name = visible_names(reading.tree, token.line + 1, 1).get(token.text) or visible_names(
        reading.tree, token.line, end
    ).get(token.text)
    return name if name and name.span[1:3] == (token.line, token.column) else None


def _in_statements(program: TypedProgram, statements: Sequence[Statement], token: LexToken) -> Meaning | None:
    """The meaning of a word in the statement that contains it."""
    for statement in statements:
        if not _contains(statement.span, token) and not isinstance(statement, Loop):
            continue
        match statement:
            case Loop(body=body):
                found = _in_statements(program, body, token)
            case Equation(name=name) if "." not in name or is_condition(name):
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
        if isinstance(part, AccessExpr) and isinstance(source_tensor := program.tensors[part.tensor], GradStatement):
            if program.tensors[source_tensor.by].name == word and _begins(part.span, token):
                return TensorMeaning(source_tensor.by)
            if program.tensors[source_tensor.loss].name == word:
                return TensorMeaning(source_tensor.loss)
    labels = equation.labels
    for number in (*_bound_around(parts, token), *range(equation.n_out)):
        if labels[number].name == word:
            return LabelMeaning(equation, number)
    return next((LabelMeaning(equation, n) for n, label in enumerate(labels) if label.name == word), None)


def _bound_around(parts: Sequence[Expr], token: LexToken) -> Iterator[int]:
    """The labels bound by the aggregations around a word, innermost first."""
    enclosing = [part for part in parts if isinstance(part, AggregateExpr) and _contains(part.span, token)]
    for aggregate in reversed(enclosing):
        yield from aggregate.labels


def _contains(span: Span, token: LexToken) -> bool:
    start, end = (token.line, token.column), (token.line, token.column + len(token.text))
    return span.file == token.file and span[1:3] <= start and end <= span[3:]


def _begins(span: Span, token: LexToken) -> bool:
    return span.file == token.file and span[1:3] == (token.line, token.column)


def definition(reading: Reading, found: Meaning) -> Span | None:
    """The span of the definition of a meaning."""
    match found:
        case TensorMeaning(number=number):
            assert reading.program is not None
            tensor = reading.program.tensors[number]
            # A tensor that a loop rebinds is defined by its initial value.
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
