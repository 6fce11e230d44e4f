"""Names in an expression before they mean anything: which are free, how deep it nests, what Einstein would sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax as s

DEEPEST = 200
"""How deep an expression may nest: every floor below walks it by recursion."""


class Occurrence(NamedTuple):
    """A bare name outside every aggregation that would bind it. ``is_index``: it stands as an index of a tensor."""

    name: str
    span: Span
    is_index: bool


def too_deep(root: s.Node | s.Index) -> s.Node | s.Index | None:
    """A part of the expression nested deeper than DEEPEST, if there is one."""
    stack: list[tuple[s.Node | s.Index, int]] = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > DEEPEST:
            return node
        below = s.parts(node)
        # A chain of comparisons, or min of many, becomes as deep as it is long.
        step = len(below) if isinstance(node, s.Chain | s.Call) else 1
        stack += [(part, depth + max(1, step)) for part in below]
    return None


def occurrences(root: s.Node | s.Index) -> Iterator[Occurrence]:
    """The free names of an expression, in the order of the text."""
    stack: list[tuple[s.Node | s.Index, frozenset[str], bool]] = [(root, frozenset(), False)]
    while stack:
        node, bound, index = stack.pop()
        match node:
            case s.Name(name=name, span=span):
                if name not in bound:
                    yield Occurrence(name, span, index)
            case s.Element(indices=indices):
                stack += [(part, bound, True) for part in reversed(indices)]
            case s.Aggregation(labels=labels, body=body):
                stack.append((body, bound | {label.name for label in labels}, False))
            case _:
                stack += [(part, bound, False) for part in reversed(s.parts(node))]


def is_product(node: s.Node, labels: frozenset[str]) -> bool:
    """Whether Einstein's convention holds: one product of accesses and label-free factors, which may divide."""
    match node:
        case s.Element():
            return True
        case s.Binary(op="*", left=left, right=right):
            return is_product(left, labels) and is_product(right, labels)
        case s.Binary(op="/", left=left, right=right):
            return is_product(left, labels) and is_label_free(right, labels)
        case s.Unary(op="-" | "+", argument=argument):
            return is_product(argument, labels)
        case _:
            return is_label_free(node, labels)


def is_label_free(node: s.Node, labels: frozenset[str]) -> bool:
    """Whether the value of an expression does not depend on the labels."""
    return not any(occurrence.name in labels for occurrence in occurrences(node))


def term_of(root: s.Node, label: str) -> s.Node:
    """The largest product in the expression that holds a label: what an aggregation over it should take."""
    node = root
    while True:
        match node:
            case s.Binary(op="*" | "/" | "//" | "%" | "^") | s.Element() | s.Name() | s.Literal() | s.Aggregation():
                return node
            case _:
                inside = [
                    part
                    for part in s.parts(node)
                    if not isinstance(part, s.Slice | s.Guarded | s.Merged | s.Rest)
                    and any(o.name == label for o in occurrences(part))
                ]
                if not inside:
                    return node
                node = inside[0]
