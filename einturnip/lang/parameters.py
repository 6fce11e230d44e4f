"""Definitions of functions: what can be said of them before they are called."""

from __future__ import annotations

from einturnip.lang import syntax as s
from einturnip.lang.draft import FunctionDefinition
from einturnip.lang.scope import Scope


def declare_function(scope: Scope, node: s.Function, file: str) -> None:
    """A function that is in force from here; what is wrong with its head is noted."""
    draft = scope.draft
    before = draft.functions.get(node.name, [])
    if not scope.usable(node.name, node.name_span):
        return
    same = next((f for f in before if f.origin == file), None)
    if same is not None:
        message = f"the function '{node.name}' is defined twice"
        help_text = "give one of them another name"
        place = same.syntax.name_span
        scope.conflict("E023", message, node.name_span, place, "defined here first", help_text)
        return
    if all([_check_parameter(scope, node, k) for k in range(len(node.parameters))]) and _check_returns(scope, node):
        order = sum(map(len, draft.functions.values()))
        draft.declare_function(node.name, FunctionDefinition(node, order, file))


def _check_parameter(scope: Scope, node: s.Function, position: int) -> bool:
    parameter = node.parameters[position]
    name, span = parameter.name, parameter.name_span
    good = scope.usable(name, span)
    first = next((p for p in node.parameters[:position] if p.name == name), None)
    if first is not None:
        scope.conflict("E067", f"parameter '{name}' stands twice", span, first.name_span, "first here")
        good = False
    labels: dict[str, s.Name] = {}
    for place, index in enumerate(parameter.indices or ()):
        if isinstance(index, s.Rest):
            if place:
                scope.error("E067", "'...' stands first among the axes of a parameter", index.span)
                good = False
        elif index.name in labels:
            other = labels[index.name].span
            help_text = "a parameter's axes have different labels"
            scope.conflict("E067", f"label '{index.name}' stands twice", index.span, other, "first here", help_text)
            good = False
        else:
            good = scope.usable(index.name, index.span) and good
            labels[index.name] = index
    if parameter.default is not None and parameter.indices is not None:
        scope.error("E067", "only a scalar parameter may have a default", parameter.default.span)
        good = False
    late = next((p for p in node.parameters[:position] if p.default is not None), None)
    if parameter.default is None and late is not None:
        message = f"'{name}' has no default, but '{late.name}' before it has one"
        scope.conflict("E067", message, span, late.span, "this one", "parameters with a default come last")
        good = False
    return good and _check_sizes(scope, node, parameter)


def _check_sizes(scope: Scope, node: s.Function, parameter: s.Parameter) -> bool:
    """A scalar cannot have the name of a label, which is a size in the body."""
    if parameter.indices is not None:
        return True
    for other in node.parameters:
        for index in other.indices or ():
            if isinstance(index, s.Name) and index.name == parameter.name:
                message = f"'{parameter.name}' is a scalar, and also a label of '{other.name}'"
                help_text = f"a label is a size in the function: give the scalar another name, {parameter.name}_"
                scope.conflict("E067", message, parameter.name_span, index.span, "the label", help_text)
                return False
    return True


def _check_returns(scope: Scope, node: s.Function) -> bool:
    if node.returns:
        return True
    last = next((d for d in reversed(node.body) if isinstance(d, s.Definition)), None)
    shown = scope.draft.text(last.targets[0].span) if last is not None else ""
    help_text = f"end it with: return {shown or '...'}"
    scope.error("E068", f"the function '{node.name}' returns nothing", node.name_span, help_text)
    return False
