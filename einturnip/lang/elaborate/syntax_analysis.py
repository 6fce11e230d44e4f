"""Analysis of syntax before elaboration: free names, depth, Einstein's convention, expanded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from einturnip.core.diagnostics import Span
from einturnip.core.program_limits import MAX_TERMS
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.draft import ExpandedSize, FunctionDefinition
from einturnip.lang.elaborate.scope import NameScope
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


Part: TypeAlias = "s.Node | s.Index | s.Declaration"


@dataclass(frozen=True, slots=True)
class _Found:
    """The expanded size of some syntax, and its call with the largest expansion."""

    size: ExpandedSize
    largest: s.CallNode | None
    largest_size: ExpandedSize


def expanded_size(roots: Iterable[Part], find: Callable[[str], FunctionDefinition | None]) -> ExpandedSize:
    """The size of syntax after expanding its calls; ``find`` looks functions up by name."""
    return _measure(roots, find).size


def _measure(roots: Iterable[Part], find: Callable[[str], FunctionDefinition | None]) -> _Found:
    terms = calls = 0
    largest, largest_size = None, ExpandedSize(0, 0)
    stack: list[Part] = list(roots)
    while stack:
        part = stack.pop()
        terms += 1
        match part:
            case s.CallNode(name=name):
                function = find(name)
                if function is not None:
                    inner = ExpandedSize(function.size.terms, function.size.calls + 1)
                    terms, calls = terms + inner.terms, calls + inner.calls
                    if inner.terms > largest_size.terms:
                        largest, largest_size = part, inner
                stack += part.arguments
            case s.Definition(targets=targets, value=value):
                stack += (index for target in targets for index in target.indices or ())
                stack.append(value)
            case s.LoopNode(start=start, stop=stop, body=body):
                stack += (start, stop, *body)
            case s.WhileNode(condition=condition, bound=bound, body=body):
                stack += (condition, condition, bound, *body)  # before the first iteration and in each
            case s.InputDeclaration(shape=shape):
                stack += shape
            case s.FunctionNode(body=body, returns=returns):
                stack += (*body, *returns)
            case s.DimDeclaration() | s.OutputDeclaration() | s.Import():
                pass
            case _:
                stack += s.parts(part)
    return _Found(ExpandedSize(terms, calls), largest, largest_size)


def count_statement(scope: NameScope, statement: s.Declaration) -> bool:
    """Count the terms of a statement; False beyond the limit (reported)."""
    draft = scope.draft
    if draft.terms > MAX_TERMS:
        return False
    found = _measure((statement,), scope.find_function if not isinstance(statement, s.FunctionNode) else lambda _: None)
    draft.terms += found.size.terms
    if draft.terms <= MAX_TERMS:
        return True
    call, size = found.largest, found.largest_size
    if call is None or 2 * size.terms < found.size.terms:
        _note(scope, "the program is too large", statement.span, draft.terms, "split it into several")
        return False
    message = f"'{call.name}' expands to {size.calls:,} calls, which make the program too large"
    help_text = "give what is computed more than once a name in a statement of its own, or repeat it in a loop"
    _note(scope, message, call.span, size.terms, help_text)
    return False


def count_import(scope: NameScope, node: s.Import, tree: s.SyntaxTree) -> bool:
    """Count the terms of an imported file, as ``count_statement`` does."""
    draft = scope.draft
    draft.terms += expanded_size(tree.declarations, lambda _: None).terms
    if draft.terms > MAX_TERMS:
        _note(scope, f"with '{node.path}' the program is too large", node.span, draft.terms, "import smaller files")
    return draft.terms <= MAX_TERMS


def _note(scope: NameScope, message: str, span: Span, terms: int, help_text: str) -> None:
    at_most = f"at most {MAX_TERMS:,} names, numbers and operators, those of a function once for each call"
    scope.error("E072", message, span, help_text, expected=at_most, found=f"{terms:,}")
