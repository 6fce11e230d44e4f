"""Declares functions and checks their definitions before any call."""

from __future__ import annotations

from einturnip.core.diagnostics import Diagnostic
from einturnip.core.program_limits import MAX_TERMS
from einturnip.ir.dtypes import F32, I64
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.arguments import as_tensor
from einturnip.lang.elaborate.draft import FunctionDefinition, ProgramDraft
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.functions import definitions
from einturnip.lang.elaborate.gradients import derived_by
from einturnip.lang.elaborate.scope import KnownNames, NamedConstant, NameScope
from einturnip.lang.elaborate.syntax_analysis import expanded_size
from einturnip.lang.elaborate.typing import literal
from einturnip.lang.expressions import AxisSize, SizeLiteral, SizeNumber
from einturnip.lang.program import DimDef, InputDef

# Codes of errors that depend on the dtypes and numbers that a call passes, or on its left side.
_DEPENDS_ON_CALL = frozenset({"E032", "E040", "E041", "E042", "E044", "E045", "E046", "E048", "E050", "E051", "E052"})


def declare_function(scope: NameScope, node: s.FunctionNode, file: str) -> None:
    """Declare a function, visible from here on; reports errors in its head."""
    draft = scope.draft
    before = draft.functions.get(node.name, [])
    if not scope.usable(node.name, node.name_span):
        return
    draft.broken_functions.add(node.name)
    same = next((f for f in before if f.origin == file), None)
    if same is not None:
        message = f"the function '{node.name}' is defined twice"
        help_text = "give one of them another name"
        place = same.syntax.name_span
        scope.conflict("E023", message, node.name_span, place, "defined here first", help_text)
        return
    if all([_check_parameter(scope, node, k) for k in range(len(node.parameters))]):
        order = sum(map(len, draft.functions.values()))
        size = expanded_size((*node.body, *node.returns), lambda name: draft.function(name, order))
        definition = FunctionDefinition(node, order, file, size)
        draft.tried += size.terms
        # Checking a function that expands beyond the limit would use the memory that the limit protects.
        if not file.startswith("std.") and draft.tried <= MAX_TERMS:
            draft.problems += _problems_of(scope, definition)
        draft.declare_function(node.name, definition)
        draft.broken_functions.discard(node.name)


def _problems_of(outside: NameScope, definition: FunctionDefinition) -> list[Diagnostic]:
    """Find errors in a function's body that no call could avoid, by a trial call with f32 tensors."""
    node = definition.syntax
    known = outside.draft
    draft = ProgramDraft(known.files, functions=known.functions, broken_functions=known.broken_functions)
    later = dict(definitions(node.body))
    path = f"{node.name}."
    scope = NameScope(
        draft, later, outside.block, function=node.name, path=path, limit=definition.order, outside=outside
    )
    for parameter in node.parameters:
        name, span = parameter.name, parameter.span
        if parameter.indices is None and name in derived_by(node):
            variable = InputDef(name, draft.number, F32, (), None, span)
            draft.emit(variable)
            scope.tensors[name] = KnownNames(variable, 0)
            continue
        if parameter.indices is None:
            default = parameter.default.value if isinstance(parameter.default, s.LiteralNode) else 1
            size = SizeLiteral(default, span) if isinstance(default, int) else None
            number = SizeNumber(size, I64, "number", span) if size is not None else literal(default, span)
            scope.constants[name] = NamedConstant(size, number, span, False)
            continue
        labels = [index for index in parameter.indices if isinstance(index, s.NameNode)]
        tensor = InputDef(name, draft.number, F32, tuple(SizeLiteral(1, index.span) for index in labels), None, span)
        draft.emit(tensor)
        scope.tensors[name] = KnownNames(tensor, len(labels))
        for axis, index in enumerate(labels):
            axis_size = AxisSize(tensor.number, axis, index.name, index.span)
            scope.dims.setdefault(index.name, DimDef(index.name, axis_size, False, index.span))
    scope.block(scope, node.body)
    at = Elaboration(scope)
    at.left = tuple(f"{scope.path}{k}" for k in range(16))
    for value in node.returns if not draft.problems else ():
        as_tensor(at, value, f"{scope.path}return")
    return [problem for problem in draft.problems if problem.code not in _DEPENDS_ON_CALL]


def _check_parameter(scope: NameScope, node: s.FunctionNode, position: int) -> bool:
    parameter = node.parameters[position]
    name, span = parameter.name, parameter.name_span
    good = scope.usable(name, span)
    labels: dict[str, s.NameNode] = {}
    for index in parameter.indices or ():
        if isinstance(index, s.RestAxes):
            continue
        if index.name in labels:
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


def _check_sizes(scope: NameScope, node: s.FunctionNode, parameter: s.ParameterNode) -> bool:
    """Report a scalar parameter with the name of a label, which is a size in the body."""
    if parameter.indices is not None:
        return True
    for other in node.parameters:
        for index in other.indices or ():
            if isinstance(index, s.NameNode) and index.name == parameter.name:
                message = f"'{parameter.name}' is a scalar, and also a label of '{other.name}'"
                help_text = f"a label is a size in the function: give the scalar another name, {parameter.name}_"
                scope.conflict("E067", message, parameter.name_span, index.span, "the label", help_text)
                return False
    return True
