"""Static indices: sums of labels and sizes, with division and modulus."""

from __future__ import annotations

from dataclasses import dataclass, replace

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.context import ElaborationContext
from einturnip.lang.expressions import AffineIndex, Index, SizeExpr, SizeLiteral, SizeName, SizeOp
from einturnip.lang.sizes import add, is_literal, multiply, negate


@dataclass(frozen=True, slots=True)
class AffineForm:
    """``(offset + sum of coefficient * label) // divisor % modulus``."""

    terms: dict[int, SizeExpr]
    offset: SizeExpr
    divisor: SizeExpr | None = None
    modulus: SizeExpr | None = None

    @property
    def is_plain(self) -> bool:
        """True for a sum without division or modulus."""
        return self.divisor is None and self.modulus is None


def index_of_form(form: AffineForm, span: Span) -> Index:
    """Return the index of an affine form; a label's number where the form is only that label."""
    terms = tuple(sorted(form.terms.items()))
    if form.is_plain and len(terms) == 1 and is_literal(terms[0][1], 1) and is_literal(form.offset, 0):
        return terms[0][0]
    if terms:
        return AffineIndex(terms, form.offset, form.divisor, form.modulus, span)
    return AffineIndex((), folded(form, span), None, None, span)


def folded(form: AffineForm, span: Span) -> SizeExpr:
    """The index as a size, after all labels cancelled; a bare name, which reads as a label, is ``n + 0``."""
    offset = form.offset
    if form.is_plain and isinstance(offset, SizeName):
        return SizeOp("add", (offset, SizeLiteral(0, span)), span)
    if form.divisor is not None:
        offset = SizeOp("floordiv", (offset, form.divisor), span)
    return offset if form.modulus is None else SizeOp("mod", (offset, form.modulus), span)


def static_form(at: ElaborationContext, node: s.Node) -> AffineForm | None:
    """The affine form of an expression; None if it has none."""
    span = node.span
    match node:
        case s.NameNode(name=name) if name in at.bound:
            return AffineForm({at.bound[name]: SizeLiteral(1, span)}, SizeLiteral(0, span))
        case s.UnaryNode(op="-" | "+" as op, argument=argument) if not _is_size(at, node):
            inner = static_form(at, argument)
            return inner if op == "+" else _scaled(inner, SizeLiteral(-1, span), span)
        case s.BinaryNode(op=op, left=left, right=right) if not _is_size(at, node):
            return _combined(op, static_form(at, left), static_form(at, right), span)
    if not _is_size(at, node):
        return None
    size = at.scope.size(node)
    return None if size is None else AffineForm({}, size)


def _is_size(at: ElaborationContext, node: s.Node) -> bool:
    """True if an expression consists of sizes, none of them shadowed by a label."""
    if not at.scope.is_size(node):
        return False
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, s.NameNode) and part.name in at.bound:
            return False
        stack += s.parts(part)
    return True


def _combined(op: str, a: AffineForm | None, b: AffineForm | None, span: Span) -> AffineForm | None:
    if a is None or b is None:
        return None
    match op:
        case "+" | "-":
            b = b if op == "+" else _scaled(b, SizeLiteral(-1, span), span)
            if b is None:
                return None
            if a.is_plain and b.is_plain:
                terms = dict(a.terms)
                for label, c in b.terms.items():
                    terms[label] = add(terms[label], c, span) if label in terms else c
                left = {label: c for label, c in terms.items() if not is_literal(c, 0)}
                return AffineForm(left, add(a.offset, b.offset, span))
            divided, constant = (a, b) if b.is_plain else (b, a)
            if divided.modulus is None and divided.divisor is not None and constant.is_plain and not constant.terms:
                shift = multiply(constant.offset, divided.divisor, span)
                return replace(divided, offset=add(divided.offset, shift, span))
            return None
        case "*":
            if a.is_plain and not a.terms:
                return _scaled(b, a.offset, span)
            return _scaled(a, b.offset, span) if b.is_plain and not b.terms else None
        case "//" if a.is_plain and b.is_plain and not b.terms:
            return replace(a, divisor=b.offset)
        case "%" if a.modulus is None and b.is_plain and not b.terms:
            return replace(a, modulus=b.offset)
        case _:
            return None


def _scaled(form: AffineForm | None, factor: SizeExpr, span: Span) -> AffineForm | None:
    if form is None or not form.is_plain:
        return None
    minus = is_literal(factor, -1)
    terms = {k: negate(c, span) if minus else multiply(c, factor, span) for k, c in form.terms.items()}
    terms = {k: c for k, c in terms.items() if not is_literal(c, 0)}
    return AffineForm(terms, negate(form.offset, span) if minus else multiply(factor, form.offset, span))
