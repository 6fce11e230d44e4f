"""Elaborates ``grad(loss, W[labels])`` to a separate tensor with the axes of W."""

from __future__ import annotations

from einturnip.core.diagnostics import Diagnostic
from einturnip.ir.dtypes import F64
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.arguments import as_tensor
from einturnip.lang.elaborate.context import ElaborationContext
from einturnip.lang.elaborate.draft import ProgramDraft
from einturnip.lang.elaborate.indices import access_of, scalar, wrong_rank
from einturnip.lang.elaborate.scope import KnownNames, NamedConstant
from einturnip.lang.elaborate.typing import coerce, settle
from einturnip.lang.expressions import AccessExpr
from einturnip.lang.program import Equation, GradStatement


def gradient(at: ElaborationContext, node: s.CallNode) -> AccessExpr | None:
    """Elaborate a call of ``grad`` to an access; None if it is wrong (reported)."""
    named = [argument for argument in node.arguments if isinstance(argument, s.Named)]
    if len(node.arguments) != 2 or named:
        message = "'grad' takes a scalar and the tensor to differentiate by"
        help_text = "it is called as in grad(loss, W[i, j])"
        at.scope.error("E043", message, node.span, help_text, expected="2", found=str(len(node.arguments)))
        return None
    loss_node, by_node = node.arguments
    by = _by(at, by_node)
    loss = _loss(at, loss_node)
    if by is None or loss is None:
        return None
    extra = [name for name in loss.carried if name not in by.carried]
    if extra:
        label = extra[0].removeprefix(at.scope.path)
        message = f"the loss has a value for each '{label}' of the call, and the tensor has not"
        help_text = "derive outside the function, a sum of what the function gives"
        at.scope.error("E068", message, loss_node.span, help_text)
        return None
    draft = at.scope.draft
    name = f"{by.tensor.name.removesuffix('.grad')}.grad"
    made = GradStatement(name, draft.number, loss.number, by.number, by.tensor.rank, by.dtype, draft.place or node.span)
    draft.emit(made)
    known = KnownNames(made, by.rank, by.carried)
    return access_of(at, by_node, known) if isinstance(by_node, s.Element) else scalar(at, known, node.span)


def derived_by(function: s.FunctionNode) -> frozenset[str]:
    """The scalars that a function's body differentiates by.

    They become tensors even if a call passes numbers.
    """
    found: set[str] = set()
    stack: list[s.Node | s.Index | s.Declaration] = [*function.body, *function.returns]
    while stack:
        part = stack.pop()
        match part:
            case s.Definition(value=value):
                stack.append(value)
            case s.LoopNode(body=body):
                stack += body
            case s.WhileNode(condition=condition, body=body):
                stack += (condition, *body)
            case s.CallNode(name="grad", arguments=(loss, s.NameNode(name=name))):
                found.add(name)
                stack.append(loss)
            case s.DimDeclaration() | s.InputDeclaration() | s.OutputDeclaration() | s.FunctionNode() | s.Import():
                pass
            case _:
                stack += s.parts(part)
    return frozenset(found)


def as_variable(draft: ProgramDraft, constant: NamedConstant, name: str) -> Equation:
    """Emit a number as a scalar tensor to differentiate by; an integer becomes f64."""
    value = constant.number
    if not value.dtype.is_inexact:
        value = coerce(value, F64, value.strength)
    equation = Equation(name, draft.number, (), 0, settle(value), draft.place or constant.span)
    draft.emit(equation)
    return equation


def _by(at: ElaborationContext, node: s.Node) -> KnownNames | None:
    """The tensor to differentiate by; None if it is wrong (reported)."""
    scope = at.scope
    if not isinstance(node, s.Element | s.NameNode):
        help_text = "name it in a statement of its own, before the loss is computed from it"
        scope.error("E069", "'grad' derives by a tensor, not by an expression", node.span, help_text)
        return None
    name, span = node.name, node.name_span if isinstance(node, s.Element) else node.span
    known = scope.tensors.get(name)
    if known is None:
        if name not in scope.tensors:
            if name in at.bound or name in scope.dims or name in scope.constants:
                what = "a label" if name in at.bound else "a size" if name in scope.dims else "a number"
                scope.error("E069", f"'{name}' is {what}, and 'grad' derives by a tensor", span)
            else:
                scope.unknown("tensor", name, span, scope.tensors)
        return None
    if known.rank and isinstance(node, s.NameNode):
        wrong_rank(at, known, 0, span)
        return None
    if not known.dtype.is_inexact:
        _whole(at, known, name, node)
        return None
    return known


def _whole(at: ElaborationContext, known: KnownNames, name: str, node: s.Node) -> None:
    """Report that a tensor of integers has no derivative."""
    message = f"'{name}' is {known.dtype}: there is no derivative by integers or truth values"
    help_text = f"convert it in a statement, f64({name}[...]), and compute the loss from that"
    place = ((known.span, "defined here"),)
    found = known.dtype.name
    problem = Diagnostic("E069", message, node.span, secondary=place, found=found, help=help_text)
    at.scope.problems.append(problem)


def _loss(at: ElaborationContext, node: s.Node) -> KnownNames | None:
    """The scalar to differentiate; None if it is wrong (reported)."""
    scope = at.scope
    found = as_tensor(at, node, f"{scope.path}loss")
    if found is None:
        return None
    known, labels = found
    if labels:
        text = scope.draft.text(node.span) or "..."
        shown = ", ".join(label for label in labels if label.isidentifier()) or "i"
        message = f"what is derived is a scalar, and this has the labels {', '.join(labels)}"
        scope.error("E068", message, node.span, f"sum it: grad(sum[{shown}] {text}, ...)", expected="no labels")
        return None
    if not known.dtype.is_float:
        complex_ = known.dtype.kind == "c"
        help_text = (
            "take real(z), imag(z) or abs(z) of it" if complex_ else "convert it before it is computed: f64(...)"
        )
        message = f"what is derived is a real number, and this is {known.dtype}"
        scope.error("E068", message, node.span, help_text, expected="f16, bf16, f32 or f64", found=known.dtype.name)
        return None
    return known
