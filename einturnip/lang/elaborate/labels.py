"""Analysis of expressions before elaboration: free names, nesting depth, Einstein's convention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from einturnip.core.diagnostics import Span
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang import syntax_tree as s
from einturnip.lang.keywords import BUILT_IN, FUNCTIONS

MAX_DEPTH = 200
"""Maximum nesting depth of an expression, because every IR walks expressions recursively."""


class Occurrence(NamedTuple):
    """A bare name outside every aggregation that would bind it; ``...`` counts as a name.

    ``place``: an index of a tensor, a part of index arithmetic, or a number.
    """

    name: str
    span: Span
    place: Literal["index", "arithmetic", "number"]


def too_deep(root: s.Node | s.Index) -> s.Node | s.Index | None:
    """A part of the expression nested deeper than MAX_DEPTH; None if there is none."""
    stack: list[tuple[s.Node | s.Index, int]] = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            return node
        below = s.parts(node)
        # A chain of comparisons, or min of many arguments, becomes as deep as it is long.
        step = len(below) if isinstance(node, s.ComparisonChain | s.CallNode) else 1
        stack += [(part, depth + max(1, step)) for part in below]
    return None


def occurrences(root: s.Node | s.Index, calls: bool = False) -> Iterator[Occurrence]:
    """Yield the free names of an expression in source order; in function arguments only if ``calls``.

    A function may bind the labels of its arguments, so those are not free outside.
    """
    stack: list[tuple[s.Node | s.Index, frozenset[str], Literal["index", "arithmetic", "number"]]] = [
        (root, frozenset(), "number")
    ]
    while stack:
        node, bound, place = stack.pop()
        match node:
            case s.NameNode(name=name, span=span):
                if name not in bound:
                    yield Occurrence(name, span, place)
            case s.Element(indices=indices):
                stack += [(part, bound, "index") for part in reversed(indices)]
            case s.RestAxes(span=span):
                yield Occurrence("...", span, "index")
            case s.Merged(names=names, span=span):
                yield from (Occurrence(name, span, "index") for name in names if name not in bound)
            case s.SliceIndex():
                pass
            case s.GuardedIndex(index=index, value=value):
                stack += [(value, bound, "number"), (index, bound, "index")]
            case s.AggregationNode(labels=labels, body=body):
                stack.append((body, bound | {label.name for label in labels}, "number"))
            case s.CallNode(name=name) if not calls and (is_program_function(name) or lacks_labels(node)):
                pass
            case _:
                inside: Literal["arithmetic", "number"] = "number" if place == "number" else "arithmetic"
                stack += [(part, bound, inside) for part in reversed(s.parts(node))]


def is_program_function(name: str) -> bool:
    """True if a called name is a function of the program rather than of the language."""
    return name not in BUILT_IN


def lacks_labels(node: s.CallNode) -> bool:
    """True if an aggregation is called like a function, without the labels that it binds."""
    return node.name in AGGREGATIONS and not (node.name in FUNCTIONS and len(node.arguments) > 1)


def is_product(node: s.Node, labels: frozenset[str]) -> bool:
    """True where Einstein's convention applies: a product of accesses and label-free factors or divisors."""
    match node:
        case s.Element() | s.CallNode(name="grad"):
            return True
        case s.BinaryNode(op="*", left=left, right=right):
            return is_product(left, labels) and is_product(right, labels)
        case s.BinaryNode(op="/", left=left, right=right):
            return is_product(left, labels) and is_label_free(right, labels)
        case s.UnaryNode(op="-" | "+", argument=argument):
            return is_product(argument, labels)
        case _:
            return is_label_free(node, labels)


def is_label_free(node: s.Node, labels: frozenset[str]) -> bool:
    """True if the value of an expression does not depend on the labels."""
    return not any(occurrence.name in labels for occurrence in occurrences(node, calls=True))


def bound_around(root: s.Node, place: Span) -> dict[str, bool]:
    """The labels that aggregations around a place bind, and whether their bodies use them."""
    found: dict[str, bool] = {}
    node: s.Node | s.Index | None = root
    while node is not None:
        if isinstance(node, s.AggregationNode):
            used = {o.name for o in occurrences(node.body, calls=True)}
            found |= {label.name: label.name in used for label in node.labels}
        inside = (part for part in s.parts(node) if part.span[:3] <= place[:3] and place[3:] <= part.span[3:])
        node = next(inside, None)
    return found


def term_of(root: s.Node, label: str) -> s.Node:
    """The largest product in the expression that contains a label, to suggest as an aggregation's body."""
    node = root
    while True:
        match node:
            case (
                s.BinaryNode(op="*" | "/" | "//" | "%" | "^")
                | s.Element()
                | s.NameNode()
                | s.LiteralNode()
                | s.AggregationNode()
            ):
                return node
            case _:
                inside = [
                    part
                    for part in s.parts(node)
                    if not isinstance(
                        part, s.SliceIndex | s.GuardedIndex | s.Merged | s.RestAxes | s.KeyedAxis | s.Alternatives
                    )
                    and any(o.name == label for o in occurrences(part, calls=True))
                ]
                if not inside:
                    return node
                node = inside[0]
