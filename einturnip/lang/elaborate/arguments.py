"""Arguments of calls as tensors: the caller's tensors where possible, otherwise new equations."""

from __future__ import annotations

from dataclasses import replace

from einturnip.core.diagnostics import Span
from einturnip.ir.dtypes import I64
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.context import ElaborationContext, bind_shown, rest_names, size_in
from einturnip.lang.elaborate.scope import KnownNames, NamedConstant, NameScope
from einturnip.lang.elaborate.syntax_analysis import is_program_function
from einturnip.lang.elaborate.typing import settle
from einturnip.lang.expressions import AccessExpr, AxisSize, NumberExpr, SizeExpr, SizeNumber
from einturnip.lang.keywords import CONSTANTS
from einturnip.lang.program import Equation
from einturnip.lang.relabel import relabel, shown_labels

Argument = tuple[KnownNames, tuple[str, ...]]
"""A tensor, and the caller's names for its axes.

Axes of implicitly carried labels come first and are not named.
"""


def as_tensor(at: ElaborationContext, node: s.Node, name: str) -> Argument | None:
    """Convert an argument to a tensor, called ``name`` if it needs an equation.

    Returns None if it is wrong (reported).
    """
    return _plain(at, node) or _equation(at, node, name)


def _plain(at: ElaborationContext, node: s.Node) -> Argument | None:
    """Match an access to a whole tensor by one label for each axis."""
    scope = at.scope
    if isinstance(node, s.NameNode) and node.name not in at.bound and node.name not in scope.constants:
        known = scope.tensors.get(node.name)
        return (known, ()) if known is not None and known.rank == 0 else None
    if not isinstance(node, s.Element):
        return None
    known = scope.tensors.get(node.name)
    if known is None:
        return None
    names: list[str] = []
    for index in node.indices:
        match index:
            case s.NameNode(name=name) if name in at.bound or scope.is_label(name):
                names.append(name)
            case s.RestAxes() if "...0" not in names:
                names += rest_names(known.rank - len(node.indices) + 1)
            case _:
                return None
    if len(names) != known.rank or len(set(names)) < len(names):
        return None
    whole = all(_takes_axis(at, known, len(known.carried) + axis, name) for axis, name in enumerate(names))
    return (known, tuple(names)) if whole else None


def _takes_axis(at: ElaborationContext, known: KnownNames, axis: int, name: str) -> bool:
    """True if the text shows that a label runs over the whole axis and has the required size."""
    if name in at.bound:
        label = at.labels[at.bound[name]]
        if label.size is not None or (label.dim is not None and name not in at.scope.dims):
            return False
    if name not in at.scope.dims:
        return True
    size = at.scope.size_of(name, known.span)
    return size is not None and _same(at.scope, AxisSize(known.number, axis, name, known.span), size)


def _same(scope: NameScope, a: SizeExpr, b: SizeExpr) -> bool:
    first, second = (scope.draft.axis_size(x.tensor, x.axis) if isinstance(x, AxisSize) else x for x in (a, b))
    return first == second


def _equation(at: ElaborationContext, node: s.Node, name: str) -> Argument | None:
    """Emit an argument as an equation; its labels are in the order in which its accesses show them."""
    scope = at.scope
    inner = at.beside(scope)
    inner.root, inner.left = node, at.left
    names: dict[int, str] = {}

    def offer(label: str, span: Span) -> int:
        parent = at.labels[at.bound[label]] if label in at.bound else None
        number = inner.new_label(label, None if parent is None else parent.size, span)
        if parent is not None and inner.labels[number].dim is None:
            inner.labels[number] = replace(inner.labels[number], dim=parent.dim)
        inner.bound[label] = number
        names[number] = label
        return number

    inner.offer = offer
    bind_shown(inner, node, frozenset(at.bound))
    value = inner.expr(node)
    if value is None:
        return None
    settled = inner.attempt(lambda: settle(value))
    if settled is None:
        return None
    shown = [k for k in shown_labels(settled) if k in names]
    carried = [k for k in shown if names[k] in scope.ambient and not names[k].startswith("...")]
    order = [*carried, *(k for k in shown if k not in carried)]
    for k in order:
        if not _has_size(at, inner, k, names[k]):
            return None
    others = [k for k in range(len(inner.labels)) if k not in names]
    numbers = {old: new for new, old in enumerate((*order, *others))}
    labels = tuple(inner.labels[k] for k in (*order, *others))
    equation = Equation(
        name, scope.draft.number, labels, len(order), relabel(settled, numbers), scope.draft.place or node.span
    )
    scope.draft.emit(equation)
    known = KnownNames(equation, len(order) - len(carried), tuple(names[k] for k in carried))
    return known, tuple(names[k] for k in order[len(carried) :])


def _has_size(at: ElaborationContext, inner: ElaborationContext, number: int, name: str) -> bool:
    """Size a label that the argument does not size as in the caller's statement."""
    label = inner.labels[number]
    if label.size is not None or label.dim is not None or number in inner.sized:
        return True
    size = None if at.root is None else size_in(at.scope, at.root, name)
    if size is not None:
        inner.labels[number] = replace(label, dim=size)
        return True
    message = f"label '{name}' has no size in this argument"
    at.scope.error("E032", message, label.span, f"write its size where it is bound: [{name}: n]")
    return False


def as_constant(at: ElaborationContext, node: s.Node, name: str) -> NamedConstant | None:
    """The number that an argument of literals and sizes denotes; None for other arguments."""
    if not _is_constant(at, node):
        return None
    size = at.scope.size(node) if at.scope.is_size(node) else None
    number = at.expr(node)
    if number is None:
        return None
    if not isinstance(number, NumberExpr | SizeNumber) and size is not None and not _divides(node):
        number = SizeNumber(size, I64, "number", node.span)
    if not isinstance(number, NumberExpr | SizeNumber | AccessExpr):
        draft = at.scope.draft
        equation = Equation(name, draft.number, (), 0, number, draft.place or node.span)
        draft.emit(equation)
        number = AccessExpr(equation.number, (), equation.dtype, equation.strength, node.span)
    return NamedConstant(size, number, node.span, False)


def _is_constant(at: ElaborationContext, node: s.Node) -> bool:
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        match part:
            case s.NameNode(name=name):
                scope = at.scope
                if name in at.bound or not (name in CONSTANTS or name in scope.constants or name in scope.dims):
                    return False
            case s.CallNode(name=name):
                if is_program_function(name):
                    return False
            case s.LiteralNode() | s.UnaryNode() | s.BinaryNode() | s.ComparisonChain():
                pass
            case _:
                return False
    return True


def _divides(node: s.Node) -> bool:
    """True if an expression has an operator that differs between sizes and numbers."""
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        if isinstance(part, s.BinaryNode) and part.op in ("/", "^"):
            return True
    return False
