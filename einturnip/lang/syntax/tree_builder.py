"""Builds the syntax tree: one method for each rule of ``grammar/ein.lark``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from einturnip.core.diagnostics import Diagnostic, Edit, Span, nearest
from einturnip.lang import syntax_tree as s
from einturnip.lang.lexer import LexToken


class TreeError(Exception):
    """A statement that the grammar accepts and the language does not."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class Return:
    """``return values``: the last statement of a function's block."""

    values: tuple[s.Node, ...]
    span: Span


def number_value(token: LexToken) -> int | float | complex:
    """The value of a NUMBER token.

    Raises:
        TreeError: misplaced underscores, too many digits, or too large for a float.
    """
    text = token.text
    try:
        if text.replace("_", "").isdigit():
            return int(text)
        value = float(text.removesuffix("j"))
    except ValueError:
        raise _bad_number(token, "underscores stand between digits, and at most 4300 digits make a number") from None
    if value == float("inf"):
        raise _bad_number(token, "it is larger than any f64; write inf for infinity")
    return complex(0.0, value) if text.endswith("j") else value


def _bad_number(token: LexToken, reason: str) -> TreeError:
    shown = token.text if len(token.text) <= 40 else token.text[:40] + "..."
    return TreeError(Diagnostic("E010", f"'{shown}' is not a number: {reason}", token.span))


def _string(token: LexToken) -> str:
    body = token.text[1:-1]
    return re.sub(r'\\(["\\])', r"\1", body) if token.text[0] == '"' else body


Children = list[Any]
_HINTS = {"tile": "@tile(i = 256, j = 4 parts)", "place": "@place(cuda:0)", "keep": "@keep", "recompute": "@recompute"}


class TreeBuilder:
    """Builds tree nodes; the parser calls the method named after each rule with the values of its parts."""

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

    def states(self, c: Children) -> Children:
        return [replace(declaration, state=True) for declaration in c]

    def shape(self, c: Children) -> Children:
        return c

    def file(self, c: Children) -> s.FileLiteral:
        path, key = c
        return s.FileLiteral(_string(path), _string(key) if key else None, path.span.to((key or path).span))

    def output(self, c: Children) -> s.OutputDeclaration:
        name, file = c
        return s.OutputDeclaration(name.text, file, name.span)

    def import_file(self, c: Children) -> s.Import:
        return s.Import(_string(c[0]), False, c[0].span)

    def import_standard(self, c: Children) -> s.Import:
        span = c[0].span.to(c[-1].span)
        path = ".".join(name.text for name in c)
        if c[0].text != "std":
            message = (
                "a file to import is written in quotes" if c[-1].text == "ein" else f"there is no library '{path}'"
            )
            file = c[-1].text == "ein"
            help_text = f'write import "{path}"' if file else "libraries begin with std, as in import std.nn"
            edits = (Edit(span, f'"{path}"'),) if file else ()
            raise TreeError(Diagnostic("E003", message, span, help=help_text, edits=edits))
        return s.Import(path, True, span)

    imports = dims

    def equation(self, c: Children) -> Children:
        *hints, targets, value = c
        return [s.Definition(tuple(targets), value, targets[0].span.to(value.span), tuple(hints))]

    def update(self, c: Children) -> Children:
        return [replace(definition, update=True) for definition in self.equation(c)]

    def targets(self, c: Children) -> Children:
        return c

    def target(self, c: Children) -> s.Target:
        name: LexToken = c[0]
        if c[-1] is None:
            return s.Target(name.text, None, name.span, name.span)
        indices = tuple(left_index(index) for index in c[1:-1] if index is not None)
        return s.Target(name.text, indices, name.span, name.span.to(c[-1].span))

    # -- hints

    def hint(self, c: Children) -> s.HintNode:
        at, kind, *rest = c
        arguments = tuple(argument for argument in rest if isinstance(argument, s.HintArgument))
        end = rest[-1] if rest[-1] is not None else kind
        return check_hint(s.HintNode(kind.text, arguments, at.span.to(end.span)))

    def tile(self, c: Children) -> s.HintArgument:
        name, value, parts = c
        if parts is not None and parts.text != "parts":
            message = f"unexpected '{parts.text}'"
            help_text = f"write {name.text} = ... parts"
            edits = (Edit(parts.span, "parts"),) if parts.text == "part" else ()
            raise TreeError(Diagnostic("E012", message, parts.span, help=help_text, edits=edits))
        return s.HintArgument(name.text, value, parts is not None, "", name.span.to((parts or value).span))

    def device(self, c: Children) -> s.HintArgument:
        kind, _, number = c
        text = kind.text if number is None else f"{kind.text}:{number.text}"
        return s.HintArgument("", None, False, text, kind.span.to((number or kind).span))

    # -- functions and loops

    def function(self, c: Children) -> list[s.FunctionNode]:
        name, _, *rest, closed, result = c
        parameters = tuple(parameter for parameter in rest if parameter is not None)
        _check_distinct(parameters)
        if isinstance(result, list):
            span = name.span.to(result[-1].span)
            return [s.FunctionNode(name.text, parameters, (), tuple(result), name.span, span)]
        if result.returns is None:
            message = f"the block of '{name.text}' does not end with 'return'"
            raise TreeError(Diagnostic("E011", message, result.end, help="end it with: return NAME[labels]"))
        span = name.span.to(result.end)
        return [s.FunctionNode(name.text, parameters, result.body, result.returns, name.span, span)]

    def parameter(self, c: Children) -> s.ParameterNode:
        name, *indices, default = c
        end = default if default is not None else next((part for part in reversed(c) if part is not None), name)
        labels = None
        if indices[-1] is not None:
            labels = tuple(s.NameNode(i.text, i.span) if isinstance(i, LexToken) else i for i in indices[:-1])
            _check_parameter(labels)
        return s.ParameterNode(name.text, labels, default, name.span, name.span.to(end.span))

    def returns(self, c: Children) -> Return:
        (values,) = c
        return Return(tuple(values), values[0].span.to(values[-1].span))

    def values(self, c: Children) -> Children:
        return c

    def loop(self, c: Children) -> list[s.LoopNode]:
        variable, start, stop, block = c
        span = variable.span.to(block.end)
        return [s.LoopNode(variable.text, start, stop, block.body, variable.span, span)]

    def while_loop(self, c: Children) -> list[s.WhileNode]:
        condition, at, most, bound, block = c
        if (at.text, most.text) != ("at", "most"):
            span = at.span.to(most.span)
            message = f"unexpected '{at.text} {most.text}': the bound of a 'while' is written 'at most'"
            raise TreeError(Diagnostic("E003", message, span, help="write at most", edits=(Edit(span, "at most"),)))
        return [s.WhileNode(condition, bound, block.body, condition.span.to(block.end))]

    # -- indices

    def slice(self, c: Children) -> s.SliceIndex:
        start, colon, stop = c
        first, last = start or colon, stop or colon
        return s.SliceIndex(start, stop, first.span.to(last.span))

    def sized(self, c: Children) -> s.Alternatives:
        """Build ``i: 2 | j: 3``, which is parsed as ``i``, ``2 | j`` and ``3``."""
        first, *rest = c[::2]
        names = [*_parts(first)]
        sizes: list[s.Node | None] = [None] * (len(names) - 1)
        for colon, between in zip(c[1::2], rest, strict=True):
            size, *after = _parts(between)
            if len(names) == len(sizes):
                help_text = "use an index: X[2*i] takes every second"
                raise TreeError(Diagnostic("E003", "slices have no step", colon.span, help=help_text))
            sizes += [size, *(None for _ in after[1:])]
            names += after
        sizes += [None] * (len(names) - len(sizes))
        return alternatives(tuple(names), tuple(sizes), first.span.to(rest[-1].span))

    def guarded(self, c: Children) -> s.GuardedIndex:
        return s.GuardedIndex(c[0], c[1], c[0].span.to(c[1].span))

    def merged(self, c: Children) -> s.Merged:
        return s.Merged(tuple(name.text for name in c[1:-1]), c[0].span.to(c[-1].span))

    def rest(self, c: Children) -> s.RestAxes:
        return s.RestAxes(c[0].span)

    # -- expressions

    def concatenation(self, c: Children) -> s.Concatenation:
        return s.Concatenation(tuple(c), c[0].span.to(c[-1].span))

    def binary(self, c: Children) -> s.BinaryNode:
        left, op, right = c
        return s.BinaryNode(op.text, left, right, op.span, left.span.to(right.span))

    def unary(self, c: Children) -> s.UnaryNode:
        op, argument = c
        return s.UnaryNode(op.text, argument, op.span.to(argument.span))

    def chain(self, c: Children) -> s.ComparisonChain:
        return s.ComparisonChain(tuple(c[::2]), tuple(op.text for op in c[1::2]), c[0].span.to(c[-1].span))

    def number(self, c: Children) -> s.LiteralNode:
        return s.LiteralNode(number_value(c[0]), c[0].span)

    def name(self, c: Children) -> s.NameNode:
        return s.NameNode(c[0].text, c[0].span)

    def element(self, c: Children) -> s.Element:
        name: LexToken = c[0]
        indices = tuple(index for index in c[1:-1] if index is not None)
        return s.Element(name.text, indices, name.span, name.span.to(c[-1].span))

    def call(self, c: Children) -> s.CallNode:
        name: LexToken = c[0]
        arguments = tuple(argument for argument in c[2:-1] if argument is not None)
        return s.CallNode(name.text, arguments, name.span, name.span.to(c[-1].span))

    def named(self, c: Children) -> s.Named:
        return s.Named(c[0].text, c[1], c[0].span.to(c[1].span))

    def parenthesis(self, c: Children) -> s.Node:
        opened, node, closed = c
        if isinstance(node, s.LiteralNode | s.NameNode | s.Element | s.CallNode):
            return node
        widened: s.Node = replace(node, span=opened.span.to(closed.span))
        return widened

    def bound(self, c: Children) -> s.BoundLabel:
        annotations = tuple(a for a in c[1:] if a is not None and not isinstance(a, LexToken))
        end = annotations[-1].span if annotations else c[0].span
        return s.BoundLabel(c[0].text, annotations, c[0].span.to(end))

    def aggregate(self, c: Children) -> s.AggregationNode:
        op, *labels, closed, body = c
        head = op.span.to(closed.span)
        return s.AggregationNode(op.text, tuple(labels), body, head, op.span.to(body.span))


def left_index(index: s.Index) -> s.Index:
    """Reinterpret an index for the left side of an equation."""
    match index:
        case s.SliceIndex(start=start, stop=stop, span=span) if any(
            isinstance(x, s.Concatenation) for x in (start, stop)
        ):
            # 'i | e: 2 | k' is read as a slice from 'i | e' to '2 | k'.
            before = start.parts if isinstance(start, s.Concatenation) else (start,)
            size, *after = stop.parts if isinstance(stop, s.Concatenation) else (stop,)
            sizes = [None] * (len(before) - 1) + [size] + [None] * len(after)
            return alternatives((*before, *after), tuple(sizes), span)
        case s.SliceIndex(start=start, stop=stop, span=span) if start is not None and not isinstance(start, s.NameNode):
            return s.KeyedAxis(start, stop, span)
        case s.Concatenation(parts=parts, span=span):
            return alternatives(parts, (None,) * len(parts), span)
        case s.GuardedIndex(span=span):
            raise TreeError(Diagnostic("E003", "a guarded index reads; it cannot be on the left", span))
        case _:
            return index


def _parts(node: s.Node) -> tuple[s.Node, ...]:
    return node.parts if isinstance(node, s.Concatenation) else (node,)


def alternatives(parts: tuple[s.Node | None, ...], sizes: tuple[s.Node | None, ...], span: Span) -> s.Alternatives:
    """Build concatenated labels of a left side."""
    names = tuple(part.name for part in parts if isinstance(part, s.NameNode))
    if len(names) < len(parts):
        raise TreeError(Diagnostic("E003", "only labels can be joined by '|' here", span, help="write Z[i | j] = ..."))
    return s.Alternatives(names, sizes, span)


def check_hint(hint: s.HintNode) -> s.HintNode:
    """Return the hint if its arguments are valid for its kind."""
    if hint.kind not in _HINTS:
        known = [f"@{kind}" for kind in _HINTS]
        meant = nearest(f"@{hint.kind}", known)
        help_text = f"did you mean '{meant}'?" if meant else f"the hints are {', '.join(known)}"
        span = hint.span
        name = Span(span.file, span.line, span.column, span.line, span.column + 1 + len(hint.kind))
        edits = (Edit(name, meant),) if meant else ()
        raise TreeError(Diagnostic("E012", f"there is no hint '@{hint.kind}'", span, help=help_text, edits=edits))
    arguments = hint.arguments
    match hint.kind:
        case "tile":
            right = bool(arguments) and all(argument.name for argument in arguments)
        case "place":
            right = len(arguments) == 1 and not arguments[0].name
        case _:
            right = not arguments
    if not right:
        message = f"these are no arguments of '@{hint.kind}'"
        if not arguments:
            message = f"'@{hint.kind}' takes its arguments in parentheses"
        alone = hint.kind not in ("tile", "place")
        edits = (Edit(hint.span, _HINTS[hint.kind]),) if alone else ()
        help_text = f"write {'' if alone else 'its arguments as in '}{_HINTS[hint.kind]}"
        raise TreeError(Diagnostic("E012", message, hint.span, help=help_text, edits=edits))
    return hint


def _check_distinct(parameters: tuple[s.ParameterNode, ...]) -> None:
    found: dict[str, Span] = {}
    for parameter in parameters:
        if parameter.name in found:
            message = f"'{parameter.name}' is a parameter already"
            place = ((found[parameter.name], "here"),)
            raise TreeError(Diagnostic("E023", message, parameter.name_span, place, help="give one another name"))
        found[parameter.name] = parameter.name_span


def _check_parameter(labels: tuple[s.NameNode | s.RestAxes, ...]) -> None:
    for label in labels[1:]:
        if isinstance(label, s.RestAxes):
            message = "'...' must precede all labels of a parameter"
            raise TreeError(Diagnostic("E003", message, label.span, help="write X[..., i]"))
