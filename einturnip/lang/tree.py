"""What each rule of ``grammar/ein.lark`` builds: nodes of the syntax tree."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lark import Transformer

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax as s
from einturnip.lang.lex import Token


class BadNumber(Exception):
    """A literal that is no number; ``token`` is it, ``reason`` says why."""

    def __init__(self, token: Token, reason: str) -> None:
        super().__init__(reason)
        self.token = token
        self.reason = reason


def number_value(token: Token) -> int | float | complex:
    """The number that a NUMBER token writes.

    Raises:
        BadNumber: misplaced underscores, too many digits, or too large for a float.
    """
    text = token.text
    try:
        if text.replace("_", "").isdigit():
            return int(text)
        value = float(text.removesuffix("j"))
    except ValueError:
        raise BadNumber(token, "underscores stand between digits, and at most 4300 digits make a number") from None
    if value == float("inf"):
        raise BadNumber(token, "it is larger than any f64; write inf for infinity")
    return complex(0.0, value) if text.endswith("j") else value


def _string(token: Token) -> str:
    body = token.text[1:-1]
    return re.sub(r'\\(["\\])', r"\1", body) if token.text[0] == '"' else body


Children = list[Any]


class TreeBuilder(Transformer[Token, s.Declaration]):
    """Lark calls the method named after each rule with the values of its parts."""

    def dims(self, c: Children) -> Children:
        return c

    inputs = outputs = dims

    def dim(self, c: Children) -> s.DimDeclaration:
        name: Span = c[0].span
        return s.DimDeclaration(c[0].text, c[1], name, name if c[1] is None else name.to(c[1].span))

    def input(self, c: Children) -> s.InputDeclaration:
        name, _, dtype, shape, default = c
        end = default.span if default is not None else shape[-1].span if shape else dtype.span
        axes = tuple(axis for axis in shape[:-1] if axis is not None) if shape else ()
        return s.InputDeclaration(name.text, dtype.text, axes, default, name.span, dtype.span, name.span.to(end))

    def shape(self, c: Children) -> Children:
        return c

    def file(self, c: Children) -> s.File:
        path, key = c
        return s.File(_string(path), _string(key) if key else None, path.span.to((key or path).span))

    def output(self, c: Children) -> s.OutputDeclaration:
        name, file = c
        return s.OutputDeclaration(name.text, file, name.span)

    def equation(self, c: Children) -> Children:
        targets, value = c
        return [s.Definition(tuple(targets), value, targets[0].span.to(value.span))]

    def targets(self, c: Children) -> Children:
        return c

    def target(self, c: Children) -> s.Target:
        name: Token = c[0]
        if c[-1] is None:
            return s.Target(name.text, None, name.span, name.span)
        indices = tuple(index for index in c[1:-1] if index is not None)
        return s.Target(name.text, indices, name.span, name.span.to(c[-1].span))

    # -- indices

    def slice(self, c: Children) -> s.Slice:
        start, colon, stop = c
        first, last = start or colon, stop or colon
        return s.Slice(start, stop, first.span.to(last.span))

    def guarded(self, c: Children) -> s.Guarded:
        return s.Guarded(c[0], c[1], c[0].span.to(c[1].span))

    def merged(self, c: Children) -> s.Merged:
        return s.Merged(tuple(name.text for name in c[1:-1]), c[0].span.to(c[-1].span))

    def rest(self, c: Children) -> s.Rest:
        return s.Rest(c[0].span)

    # -- expressions

    def concatenation(self, c: Children) -> s.Concatenation:
        return s.Concatenation(tuple(c), c[0].span.to(c[-1].span))

    def binary(self, c: Children) -> s.Binary:
        left, op, right = c
        return s.Binary(op.text, left, right, op.span, left.span.to(right.span))

    def unary(self, c: Children) -> s.Unary:
        op, argument = c
        return s.Unary(op.text, argument, op.span.to(argument.span))

    def chain(self, c: Children) -> s.Chain:
        return s.Chain(tuple(c[::2]), tuple(op.text for op in c[1::2]), c[0].span.to(c[-1].span))

    def number(self, c: Children) -> s.Literal:
        return s.Literal(number_value(c[0]), c[0].span)

    def name(self, c: Children) -> s.Name:
        return s.Name(c[0].text, c[0].span)

    def element(self, c: Children) -> s.Element:
        name: Token = c[0]
        indices = tuple(index for index in c[1:-1] if index is not None)
        return s.Element(name.text, indices, name.span, name.span.to(c[-1].span))

    def call(self, c: Children) -> s.Call:
        name: Token = c[0]
        arguments = tuple(argument for argument in c[2:-1] if argument is not None)
        return s.Call(name.text, arguments, name.span, name.span.to(c[-1].span))

    def named(self, c: Children) -> s.Named:
        return s.Named(c[0].text, c[1], c[0].span.to(c[1].span))

    def parenthesis(self, c: Children) -> s.Node:
        opened, node, closed = c
        if isinstance(node, s.Literal | s.Name | s.Element | s.Call):
            return node
        widened: s.Node = replace(node, span=opened.span.to(closed.span))
        return widened

    def bound(self, c: Children) -> s.Bound:
        annotations = tuple(a for a in c[1:] if a is not None and not isinstance(a, Token))
        end = annotations[-1].span if annotations else c[0].span
        return s.Bound(c[0].text, annotations, c[0].span.to(end))

    def aggregate(self, c: Children) -> s.Aggregation:
        op, *labels, closed, body = c
        head = op.span.to(closed.span)
        return s.Aggregation(op.text, tuple(labels), body, head, op.span.to(body.span))
