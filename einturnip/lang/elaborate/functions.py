"""Expands calls of functions: the body becomes statements of the program, the results expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from einturnip.core.diagnostics import Diagnostic, Span, at_call_site, did_you_mean
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.arguments import Argument, as_constant, as_tensor
from einturnip.lang.elaborate.context import ElaborationContext, bind_shown, rest_names
from einturnip.lang.elaborate.draft import FunctionDefinition
from einturnip.lang.elaborate.gradients import as_variable, derived_by
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.elaborate.syntax_analysis import MAX_DEPTH, occurrences
from einturnip.lang.expressions import AccessExpr, AxisSize, Expr, children
from einturnip.lang.program import DimDef, Equation, EquationLabel

MAX_CALL_DEPTH = 40
"""Maximum nesting depth of calls."""


@dataclass
class CallFrame:
    """One call: the names in the function's body, and the caller's label for each of its labels."""

    syntax: s.FunctionNode
    call: s.CallNode
    scope: NameScope
    outer: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] = ()


def call_function(at: ElaborationContext, node: s.CallNode, function: FunctionDefinition) -> Expr | None:
    """Elaborate a call in an expression to its result; None if it is wrong (reported)."""
    frame = enter(at, node, function)
    if frame is None:
        return None
    count = len(function.syntax.returns)
    if count > 1:
        targets = ", ".join(f"{letter}[...]" for letter in "ABCDEFGH"[:count])
        message = f"'{node.name}' returns {count} tensors, so it cannot be used in an expression"
        help_text = f"name them all in a statement: {targets} = {node.name}(...)"
        at.scope.conflict("E066", message, node.span, function.syntax.name_span, "defined here", help_text)
        return None
    return result(at, frame, 0)


def enter(at: ElaborationContext, node: s.CallNode, function: FunctionDefinition) -> CallFrame | None:
    """Elaborate the arguments and the body of a call."""
    draft = at.scope.draft
    if draft.depth >= MAX_CALL_DEPTH:
        at.scope.error("E008", f"calls nest deeper than {MAX_CALL_DEPTH}", node.span)
        return None
    given = _matched(at, node, function.syntax)
    if given is None:
        return None
    name = draft.frame(node.name)
    outside = at.scope.outside or at.scope
    later = dict(definitions(function.syntax.body))
    scope = NameScope(
        draft, later, at.scope.block, function=node.name, path=f"{name}.", limit=function.order, outside=outside
    )
    frame = CallFrame(function.syntax, node, scope)
    tensors = [(p, v) for p, v in given if p.indices is not None]
    scalars = [(p, v) for p, v in given if p.indices is None]
    taken = {p.name: _take_tensor(at, frame, p, value) for p, value in tensors if value is not None}
    if not all(taken.values()):
        return None
    if not all([_take_scalar(at, frame, parameter, value) for parameter, value in scalars]):
        return None
    before = len(draft.problems)
    draft.depth += 1
    scope.block(scope, function.syntax.body)
    draft.depth -= 1
    _mark_call(draft.problems, before, node.span)
    return frame if len(draft.problems) == before else None


def _mark_call(problems: list[Diagnostic], before: int, call: Span) -> None:
    problems[before:] = [at_call_site(problem, call) for problem in problems[before:]]


def definitions(body: Sequence[s.Declaration]) -> Iterator[tuple[str, Span]]:
    """Yield the names that a body defines, each with its first place."""
    for declaration in reversed(body):
        if isinstance(declaration, s.Definition):
            yield from ((target.name, target.name_span) for target in declaration.targets)


# -- arguments ---------------------------------------------------------------------------------------------------------


def signature(function: s.FunctionNode) -> str:
    """A function's head as source text."""
    parts = []
    for parameter in function.parameters:
        axes = ""
        if parameter.indices is not None:
            axes = f"[{', '.join('...' if isinstance(i, s.RestAxes) else i.name for i in parameter.indices)}]"
        default = parameter.default
        value = "" if default is None else f" = {default.value}" if isinstance(default, s.LiteralNode) else " = ..."
        parts.append(f"{parameter.name}{axes}{value}")
    return f"{function.name}({', '.join(parts)})"


def _matched(
    at: ElaborationContext, node: s.CallNode, function: s.FunctionNode
) -> list[tuple[s.ParameterNode, s.Node | None]] | None:
    """Match each parameter with its argument, or with None if its default applies."""
    scope = at.scope
    parameters = {parameter.name: parameter for parameter in function.parameters}
    given: dict[str, s.Node] = {}
    shape = signature(function)
    fine = True
    for position, argument in enumerate(node.arguments):
        if isinstance(argument, s.Named):
            if argument.name not in parameters:
                message = f"'{node.name}' has no parameter '{argument.name}'"
                help_text = did_you_mean(argument.name, parameters) or f"it is {shape}"
                scope.conflict("E061", message, argument.span, function.name_span, "defined here", help_text)
                fine = False
                continue
            name, value = argument.name, argument.value
        elif any(isinstance(earlier, s.Named) for earlier in node.arguments[:position]):
            help_text = f"arguments by name come last: {shape}"
            scope.error("E061", "this argument has no name, and stands after one that has", argument.span, help_text)
            fine = False
            continue
        elif position >= len(function.parameters):
            continue
        else:
            name, value = function.parameters[position].name, argument
        if name in given:
            scope.conflict("E061", f"'{name}' is given twice", argument.span, given[name].span, "given here")
            fine = False
        given[name] = value
    missing = [name for name, p in parameters.items() if name not in given and p.default is None]
    if fine and (missing or len(node.arguments) > len(parameters)):
        count = len(parameters)
        lacks = f"; {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
        scope.problems.append(
            Diagnostic(
                "E060",
                f"'{node.name}' takes {count} argument{'s' * (count != 1)}{lacks}",
                node.span,
                secondary=((function.name_span, "defined here"),),
                expected=shape,
                found=str(len(node.arguments)),
                help=f"it is {shape}",
            )
        )
        fine = False
    return [(p, given.get(p.name)) for p in function.parameters] if fine else None


def _take_tensor(at: ElaborationContext, frame: CallFrame, parameter: s.ParameterNode, value: s.Node) -> bool:
    """Bind a tensor parameter: its axes to the caller's labels, its labels to sizes."""
    scope, indices = frame.scope, parameter.indices or ()
    argument = as_tensor(at, value, f"{scope.path}{parameter.name}")
    if argument is None:
        return False
    own = [index.name for index in indices if isinstance(index, s.NameNode)]
    has_rest = len(own) < len(indices)
    known, labels = argument
    if len(labels) < len(own) or (len(labels) > len(own) and not has_rest):
        _wrong_axes(at, frame, parameter, value, labels)
        return False
    count = len(labels) - len(own)
    if count and not frame.rest:
        frame.rest = labels[:count]
        frame.outer.update(zip(rest_names(count), frame.rest, strict=True))
    elif count and set(labels[:count]) != set(frame.rest):
        message = f"'...' of '{parameter.name}' stands for {_list(labels[:count])}, before for {_list(frame.rest)}"
        at.scope.error("E063", message, value.span, "'...' is the same labels, or none, in all arguments")
        return False
    elif count and labels[:count] != frame.rest:
        known = _permuted(at, frame, argument, parameter.name)
    carried = tuple(_carry(frame, known, k, name) for k, name in enumerate(known.carried))
    for axis, (name, label) in enumerate(zip(own, labels[count:], strict=True), len(known.carried) + count):
        if frame.outer.setdefault(name, label) != label:
            other = frame.outer[name]
            message = f"'{name}' of '{frame.call.name}' stands for '{other}' in one argument and for '{label}' here"
            help_text = f"it is one label: write '{other}' in both, or swap the axes here"
            at.scope.conflict("E063", message, value.span, parameter.span, "the parameter", help_text)
            return False
        span = indices[axis - len(known.carried) - count + has_rest].span
        scope.dims.setdefault(name, DimDef(name, AxisSize(known.number, axis, name, span), False, span))
    scope.tensors[parameter.name] = KnownNames(known.tensor, len(labels), carried)
    return True


def _list(labels: Sequence[str]) -> str:
    return ", ".join(f"'{label}'" for label in labels)


def _wrong_axes(
    at: ElaborationContext, frame: CallFrame, parameter: s.ParameterNode, value: s.Node, labels: tuple[str, ...]
) -> None:
    shape = signature(s.FunctionNode("", (parameter,), (), (), parameter.name_span, parameter.span))[1:-1]
    count = sum(isinstance(index, s.NameNode) for index in parameter.indices or ())
    least = f"at least {count}" if count < len(parameter.indices or ()) else str(count)
    listed = f": {', '.join(labels)}" if labels else ""
    help_text = ""
    if isinstance(value, s.Element) and len(value.indices) > len(labels):
        help_text = "a label that stands twice takes the diagonal, which is one axis: give each axis its own"
    at.scope.problems.append(
        Diagnostic(
            "E062",
            f"'{parameter.name}' of '{frame.call.name}' has another number of axes",
            value.span,
            secondary=((parameter.span, "the parameter"),),
            expected=f"{least} ({shape})",
            found=f"{len(labels)}{listed}",
            help=help_text,
        )
    )


def _permuted(at: ElaborationContext, frame: CallFrame, argument: Argument, name: str) -> KnownNames:
    """The argument with the axes of ``...`` in the order of the first argument that has them."""
    known, labels = argument
    count = len(frame.rest)
    order = (*known.carried, *frame.rest, *labels[count:])
    stored = (*known.carried, *labels)
    span = frame.call.span
    indices = tuple(order.index(label) for label in stored)
    value = AccessExpr(known.number, indices, known.dtype, known.strength, span)
    draft = at.scope.draft
    equation = Equation(
        f"{frame.scope.path}{name}",
        draft.number,
        tuple(EquationLabel(label, None, None, span) for label in order),
        len(order),
        value,
        draft.place or span,
    )
    draft.emit(equation)
    return KnownNames(equation, known.rank, known.carried)


def _carry(frame: CallFrame, known: KnownNames, axis: int, label: str) -> str:
    """The name in the body for a label that an argument carries implicitly."""
    name = rest_names(len(frame.rest))[frame.rest.index(label)] if label in frame.rest else f"{frame.scope.path}{label}"
    frame.outer[name] = label
    frame.scope.ambient.setdefault(name, AxisSize(known.number, axis, label, frame.call.span))
    return name


def _take_scalar(at: ElaborationContext, frame: CallFrame, parameter: s.ParameterNode, value: s.Node | None) -> bool:
    """Bind a scalar parameter to a number, or to a tensor whose labels it carries."""
    scope, name = frame.scope, f"{frame.scope.path}{parameter.name}"
    if value is None:
        assert parameter.default is not None
        at, value = at.beside(scope), parameter.default
    before = len(scope.problems)
    constant = as_constant(at, value, name)
    if constant is not None and parameter.name in derived_by(frame.syntax):
        scope.tensors[parameter.name] = KnownNames(as_variable(scope.draft, constant, name), 0)
        return True
    if constant is not None:
        scope.constants[parameter.name] = constant
        return True
    argument = None if len(scope.problems) > before else as_tensor(at, value, name)
    if argument is None:
        return False
    known, labels = argument
    carried = tuple(_carry(frame, known, k, label) for k, label in enumerate((*known.carried, *labels)))
    for axis, label in enumerate(labels, len(known.carried)):
        if label in at.bound:  # it ranges over the argument, even if the function never reads it
            at.spare.setdefault(at.bound[label], AxisSize(known.number, axis, label, value.span))
    scope.tensors[parameter.name] = KnownNames(known.tensor, 0, carried)
    return True


# -- results -----------------------------------------------------------------------------------------------------------


def result(at: ElaborationContext, frame: CallFrame, position: int) -> Expr | None:
    """Elaborate one result of a call as an expression of the caller's equation."""
    node, scope = frame.syntax.returns[position], frame.scope
    inner = at.beside(scope, at.labels, at.sized)
    inner.root, inner.path, inner.comparing = node, scope.path, at.comparing
    outer = dict(frame.outer)
    for label in at.left:
        outer.setdefault(f"{scope.path}{label}", label)
    inner.left = tuple(f"{scope.path}{label}" for label in at.left)
    before = len(scope.problems)

    def offer(name: str, span: Span) -> int | None:
        caller = outer.get(name)
        number = None
        if caller is not None:
            number = at.label(caller, frame.call.span)
            if number is None:
                _unbound(at, frame, caller)
        elif not name.startswith("...") and scope.is_label(name):
            number = _made(at, frame, inner, name)
        if number is not None:
            inner.bound[name] = number
        return number

    inner.offer = offer
    shown = [o for o in occurrences(node) if o.place == "index" and o.name in outer]
    for occurrence in shown:
        if scope.is_label(occurrence.name):
            inner.label(occurrence.name, occurrence.span)
    for name in scope.carried_in(node):
        inner.label(name, node.span)
    if len(scope.problems) == before:
        bind_shown(inner, node)
    scope.draft.depth += 1
    value = inner.expr(node) if len(scope.problems) == before else None
    scope.draft.depth -= 1
    for name, number in inner.bound.items():
        bound = at.labels[number]
        if name in scope.dims and number not in at.sized and bound.size is None and bound.dim is None:
            at.labels[number] = replace(bound, dim=scope.size_of(name, bound.span))
    if value is not None and scope.draft.depth == 0 and _depth(value) > MAX_DEPTH:
        message = f"with its calls written out, this nests deeper than {MAX_DEPTH}"
        at.scope.error("E008", message, frame.call.span, "name a part of it first")
    _mark_call(scope.problems, before, frame.call.span)
    return value


def _depth(expr: Expr) -> int:
    deepest, stack = 0, [(expr, 1)]
    while stack:
        part, depth = stack.pop()
        deepest = max(deepest, depth)
        stack += [(child, depth + 1) for child in children(part)]
    return deepest


def _made(at: ElaborationContext, frame: CallFrame, inner: ElaborationContext, name: str) -> int | None:
    """The label for an axis that the function creates: the next one on the left that the result lacks."""
    taken = set(inner.bound.values())
    for label in at.left:
        number = at.label(label, frame.call.span)
        if number is not None and number not in taken:
            return number
    message = f"'{frame.call.name}' makes an axis '{name}', and no label on the left is left for it"
    help_text = f"name it in a statement of its own: R[..., {name}] = {frame.call.name}(...)"
    at.scope.conflict("E064", message, frame.call.span, frame.syntax.name_span, "defined here", help_text)
    return None


def _unbound(at: ElaborationContext, frame: CallFrame, label: str) -> None:
    text = at.scope.draft.text(frame.call.span) or f"{frame.call.name}(...)"
    shown = label.split(".")[-1] if not label.startswith("...") else "..."
    message = f"the result of '{frame.call.name}' has the label '{shown}', which is neither on the left nor bound"
    at.scope.error("E031", message, frame.call.span, f"write it on the left, or aggregate it: sum[{shown}] {text}")
