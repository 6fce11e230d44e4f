"""Elaborates calls: casts, functions, and names that are not functions."""

from __future__ import annotations

import re

from einturnip.core.diagnostics import Diagnostic, Edit, nearest
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.dtypes import DTYPES
from einturnip.ir.functions import ELEMENTWISE
from einturnip.lang import syntax_tree as s
from einturnip.lang.diagnose.other_libraries import EXAMPLES, KNOWN_ELSEWHERE, REWRITES
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.context import ElaborationContext
from einturnip.lang.elaborate.functions import call_function
from einturnip.lang.elaborate.gradients import gradient
from einturnip.lang.elaborate.imports import modules_with
from einturnip.lang.elaborate.scope import dtype_named
from einturnip.lang.elaborate.syntax_analysis import lacks_labels, occurrences
from einturnip.lang.expressions import Expr
from einturnip.lang.keywords import BUILT_IN, FUNCTIONS

_ARITY = {"where": 3, "min": 2, "max": 2}
_SHAPES = {"where": "where(condition, a, b)", "min": "min(a, b)", "max": "max(a, b)"}


def call(at: ElaborationContext, node: s.CallNode) -> Expr | None:
    """Elaborate a call; None if it is wrong (reported)."""
    name = node.name
    if name == "grad":
        return gradient(at, node)
    function = at.scope.find_function(name)
    if function is not None:
        return call_function(at, node, function)
    if name not in BUILT_IN:
        _unknown(at, node)
        return None
    for argument in node.arguments:
        if isinstance(argument, s.Named):
            at.scope.error("E043", f"'{name}' takes no argument by name", argument.span, "write == to compare")
            return None
    if lacks_labels(node):
        _aggregation_as_function(at, node)
        return None
    if name not in FUNCTIONS and name not in DTYPES:
        _unknown(at, node)
        return None
    return _built_in(at, node)


def _built_in(at: ElaborationContext, node: s.CallNode) -> Expr | None:
    name, n_expected = node.name, _ARITY.get(node.name, 1)
    variadic = name in ("min", "max")
    if len(node.arguments) != n_expected and not (variadic and len(node.arguments) > n_expected):
        shape = _SHAPES.get(name, f"{name}(x)")
        message = f"'{name}' takes {n_expected} argument{'s' * (n_expected > 1)}"
        at.scope.error(
            "E043", message, node.span, f"it is {shape}", expected=str(n_expected), found=str(len(node.arguments))
        )
        return None
    arguments = [at.expr(argument) for argument in node.arguments]
    typed = [argument for argument in arguments if argument is not None]
    if len(typed) < len(arguments):
        return None
    return at.attempt(lambda: _apply(name, typed, node))


def _apply(name: str, arguments: list[Expr], node: s.CallNode) -> Expr:
    if name in DTYPES:
        return t.cast(arguments[0], DTYPES[name], node.span)
    if name in ELEMENTWISE:
        return t.function(name, arguments[0], node.name_span, node.span)
    if name == "where":
        return t.choose(arguments[0], arguments[1], arguments[2], node.span)
    result = arguments[0]
    for argument in arguments[1:]:
        result = t.extremum(name, result, argument, node.name_span, node.span)
    return result


def _aggregation_as_function(at: ElaborationContext, node: s.CallNode) -> None:
    """Report ``sum(X[i])``: an aggregation is not a function."""
    argument = node.arguments[0] if node.arguments else None
    used = [o.name for o in occurrences(argument) if o.place == "index"] if argument is not None else []
    labels = [name for name in dict.fromkeys(used) if name not in at.bound] or used[-1:] or ["i"]
    body = at.scope.draft.text(argument.span) if isinstance(argument, s.Element | s.CallNode) else ""
    example = f"{node.name}[{', '.join(labels)}] {body or '...'}"
    also = f", or {node.name}(a, b) for the {node.name} of two values" if node.name in _ARITY else ""
    message = f"'{node.name}' does not say which labels it runs over"
    at.scope.error("E007", message, node.name_span, f"name them in brackets: {example}{also}")


def _unknown(at: ElaborationContext, node: s.CallNode) -> None:
    name, scope = node.name, at.scope
    later = scope.draft.functions.get(name, [])
    if name in scope.draft.broken_functions and name != scope.function:
        return
    if name == scope.function:
        message = f"'{name}' calls itself: recursion is not possible"
        scope.error("E065", message, node.name_span, "repeat with a loop: for t in 0 .. n { ... }")
    elif name in scope.tensors or name in at.bound or name in scope.dims or name in scope.constants:
        known = scope.tensors.get(name)
        if name in scope.tensors and known is None:
            return
        what = "a tensor" if known is not None else "a label" if name in at.bound else "a size"
        help_text = (
            f"axes belong in brackets: {name}[...]"
            if known is not None and known.rank
            else f"to multiply, write {name} * (...)"
        )
        scope.error("E021", f"'{name}' is {what}, not a function", node.name_span, help_text)
    elif not later and name in scope.later and scope.later[name] > node.name_span:
        scope.unknown("function", name, node.name_span, (), "E021")
    elif later:
        message = f"the function '{name}' is used before it is defined"
        span = later[-1].syntax.name_span
        scope.conflict("E021", message, node.name_span, span, "defined here", "move its definition up")
    elif dtype_named(name):
        scope.unknown_dtype(name, node.name_span)
    elif modules := modules_with(name):
        help_text = f"it is in {modules[0]}; begin with: import {modules[0]}"
        scope.error("E021", f"unknown function '{name}'", node.name_span, help_text)
    elif name in KNOWN_ELSEWHERE:
        _known_elsewhere(at, node)
    else:
        own = list(scope.draft.functions)
        message, names = f"unknown function '{name}'", [*own, *FUNCTIONS, *DTYPES, *AGGREGATIONS]
        if nearest(name, names):
            scope.misspelt("E021", message, name, node.name_span, names)
        else:
            scope.error("E021", message, node.name_span, f"the functions are {', '.join([*own, *sorted(FUNCTIONS)])}")


def _known_elsewhere(at: ElaborationContext, node: s.CallNode) -> None:
    """Report a function of other languages, with its exact equivalent or the nearest one."""
    name, message = node.name, f"unknown function '{node.name}'"
    edits: tuple[Edit, ...] = ()
    if name in REWRITES:
        names, written = REWRITES[name]
        texts = [at.scope.draft.text(argument.span) for argument in node.arguments]
        if len(texts) == len(names.split()) and all(texts):
            given = dict(zip(names.split(), texts, strict=True))
            # In parentheses, unless it is a name, a number or an access, because it becomes part of an expression.
            plain = {k: v if re.fullmatch(r"[\w.]+(\[[^\[\]]*\])?", v) else f"({v})" for k, v in given.items()}
            whole = re.sub(r"[A-Za-z_]\w*", lambda m: plain.get(m[0], m[0]), written)
            written = whole if re.fullmatch(r"\w+\([^()]*\)", whole) else f"({whole})"
            edits = (Edit(node.span, written),)
        help_text = f"write {written}"
    elif name in EXAMPLES:
        help_text = f"it is an equation here: {EXAMPLES[name]}"
    else:
        help_text = f"the functions are {', '.join(sorted(FUNCTIONS))}"
    at.scope.problems.append(Diagnostic("E021", message, node.name_span, help=help_text, edits=edits))
