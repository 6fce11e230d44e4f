"""Counts the terms of a statement's expansion, before any of its calls is expanded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from einturnip.core.diagnostics import Span
from einturnip.core.program_limits import MAX_TERMS
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.draft import ExpandedSize, FunctionDefinition
from einturnip.lang.elaborate.scope import NameScope

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
