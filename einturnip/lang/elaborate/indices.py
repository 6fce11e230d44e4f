"""Elaborates accesses. Indices are labels, affine, split, data-dependent, guarded, slices or ``...``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from einturnip.core.diagnostics import Diagnostic, Edit, Span
from einturnip.ir.dtypes import I64
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.affine import AffineForm, index_of_form, static_form
from einturnip.lang.elaborate.context import ElaborationContext, axis_names, rest_names, rest_of, slice_name
from einturnip.lang.elaborate.scope import KnownNames
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AxisSize,
    Expr,
    GatherIndex,
    GuardedAccess,
    Index,
    SizeExpr,
    SizeLiteral,
    SizeName,
    SplitIndex,
    Strength,
)
from einturnip.lang.keywords import RESERVED, describe
from einturnip.lang.sizes import size_text, subtract


def access(at: ElaborationContext, node: s.Element) -> AccessExpr | None:
    """Elaborate ``name[indices]``; None if it is wrong (reported)."""
    known = _tensor(at, node)
    return None if known is None else access_of(at, node, known)


def access_of(at: ElaborationContext, node: s.Element, known: KnownNames) -> AccessExpr | None:
    """Elaborate the access of a tensor by the indices of ``node``, regardless of its name."""
    indices = _spread(at, node, known)
    if indices is None:
        return None
    found: list[Index | None] = []
    slices = 0
    for axis, index in enumerate(indices):
        if isinstance(index, s.SliceIndex):
            found.append(_slice(at, index, slices, known, axis))
            slices += 1
        else:
            found.append(index_of(at, index, (known, axis)))
    carried = _carried(at, known, node.span)
    good = tuple(index for index in found if index is not None)
    if carried is None or len(good) < len(found):
        return None
    strength: Strength = "weak" if known.strength == "number" and (good or carried) else known.strength
    plain = AccessExpr(known.number, (*carried, *good), known.dtype, strength, node.span)
    return _filled(at, plain) if any(isinstance(index, GuardedAccess) for index in good) else plain


def scalar(at: ElaborationContext, known: KnownNames, span: Span) -> AccessExpr | None:
    """The access of a scalar, which in a function may carry labels."""
    carried = _carried(at, known, span)
    if carried is None:
        return None
    strength: Strength = "weak" if known.strength == "number" and carried else known.strength
    return AccessExpr(known.number, carried, known.dtype, strength, span)


def _carried(at: ElaborationContext, known: KnownNames, span: Span) -> tuple[int, ...] | None:
    numbers = [at.label(name, span) for name in known.carried]
    good = tuple(number for number in numbers if number is not None)
    at.sized.update(good)
    return good if len(good) == len(numbers) else None


def _tensor(at: ElaborationContext, node: s.Element) -> KnownNames | None:
    scope, name = at.scope, node.name
    if name in scope.tensors:
        return scope.tensors[name]
    if name in RESERVED:
        help_text = f"{describe(name)} takes parentheses: {name}(...)"
        scope.error("E020", f"'{name}' is {describe(name)}, not a tensor", node.name_span, help_text)
    elif name in scope.dims or name in scope.constants:
        what = "a number" if name in scope.constants else "a size"
        scope.error("E020", f"'{name}' is {what}, not a tensor", node.name_span)
    else:
        scope.unknown("tensor", name, node.name_span, scope.tensors)
    return None


def _spread(at: ElaborationContext, node: s.Element, known: KnownNames) -> Sequence[s.Index] | None:
    """The indices, one for each axis, with ``...`` expanded."""
    places = [k for k, index in enumerate(node.indices) if isinstance(index, s.RestAxes)]
    if not places:
        if len(node.indices) == known.rank:
            return node.indices
        wrong_rank(at, known, len(node.indices), node.span)
        return None
    if len(places) > 1:
        at.scope.error("E035", "'...' stands once in an access", node.indices[places[1]].span)
        return None
    count = known.rank - len(node.indices) + 1
    if count < 0:
        wrong_rank(at, known, len(node.indices) - 1, node.span)
        return None
    if at.rest is None:
        at.rest = rest_of(at.scope, node if at.root is None else at.root)
    span = node.indices[places[0]].span
    if count not in (0, at.rest):
        message = f"'...' stands for {_axes(count)} of '{node.name}', but for {_axes(at.rest)} elsewhere"
        at.scope.error("E035", message, span, "it is the same axes, or none, throughout a statement")
        return None
    rest = [s.NameNode(name, span) for name in rest_names(count)]
    return [*node.indices[: places[0]], *rest, *node.indices[places[0] + 1 :]]


def _axes(count: int) -> str:
    return f"{count} ax{'i' if count == 1 else 'e'}s"


def wrong_rank(at: ElaborationContext, known: KnownNames, found: int, span: Span) -> None:
    """Report that a tensor is written with a wrong number of axes."""
    axes = _axes(known.rank) if known.rank else "no axes"
    name = known.tensor.name.removeprefix(at.scope.path)
    names = axis_names(at.scope, known)
    written = f"{name}[{', '.join(names)}]" if names else name
    at.scope.problems.append(
        Diagnostic(
            "E030",
            f"'{name}' has {axes}, but {found or 'none'} {'is' if found == 1 else 'are'} written",
            span,
            secondary=((known.span, "defined here"),),
            expected=f"{known.rank} labels" if known.rank != 1 else "1 label",
            found=str(found),
            help=f"its axes are {', '.join(names)}" if names else f"write {written}",
            edits=() if names else (Edit(span, written),),
        )
    )


def _filled(at: ElaborationContext, plain: AccessExpr) -> AccessExpr | None:
    """Convert an access with guards and its fill values to their common dtype."""
    dtype, strength = plain.dtype, plain.strength
    fills = [index.fill for index in plain.indices if isinstance(index, GuardedAccess)]
    try:
        for fill in fills:
            dtype, strength = t.common(replace(plain, dtype=dtype, strength=strength), fill)
        indices = tuple(
            replace(index, fill=t.coerce(index.fill, dtype, strength)) if isinstance(index, GuardedAccess) else index
            for index in plain.indices
        )
    except t.TypeProblem as problem:
        at.scope.problems.append(problem.diagnostic)
        return None
    return AccessExpr(plain.tensor, indices, dtype, strength, plain.span)


# -- one index ---------------------------------------------------------------------------------------------------------


def index_of(at: ElaborationContext, node: s.Index, axis: tuple[KnownNames, int] | None = None) -> Index | None:
    """Elaborate one index, except slices and ``...``; None if it is wrong (reported).

    ``axis``: the tensor and axis that it indexes.
    """
    match node:
        case s.NameNode():
            return _name(at, node)
        case s.Merged(names=names, span=span):
            numbers = [_known_label(at, name, span) for name in names]
            good = tuple(number for number in numbers if number is not None)
            at.sized.update(good)
            return SplitIndex(good, span) if len(good) == len(numbers) else None
        case s.GuardedIndex(index=index, value=value, span=span):
            return _guarded(at, index, value, span, axis)
        case s.SliceIndex() | s.RestAxes() | s.KeyedAxis() | s.Alternatives():
            at.scope.error("E035", "this cannot stand here", node.span)
            return None
        case s.Concatenation(span=span):
            help_text = "'|' joins the right sides of one equation: Z[i | j] = X[i] | Y[j]"
            at.scope.error("E038", "'|' cannot be used in an index", span, help_text)
            return None
        case _:
            form = static_form(at, node)
            if form is None:
                return gather(at, node)
            if not form.terms and isinstance(form.offset, SizeLiteral) and form.offset.value < 0:
                _from_the_end(at, node, axis)
                return None
            if form.modulus is None:
                at.sized.update(form.terms)
            return index_of_form(form, node.span)


def _name(at: ElaborationContext, node: s.NameNode) -> Index | None:
    name, span = node.name, node.span
    if name not in at.bound and not at.scope.is_label(name):
        constant = at.scope.constants.get(name)
        if constant is not None and constant.size is not None:
            return AffineIndex((), constant.size, None, None, span)
        if constant is not None or name in at.scope.tensors:
            return gather(at, node)
    number = _known_label(at, name, span)
    if number is not None:
        at.sized.add(number)
    return number


def _known_label(at: ElaborationContext, name: str, span: Span) -> int | None:
    number = at.label(name, span)
    if number is None and at.scope.usable(name, span):
        known = at.scope.tensors.get(name)
        if known is not None and known.rank == 0:
            dtype_help = f"an index is a whole number, and '{name}' is {known.dtype}"
            at.scope.error("E045", f"'{name}' is no label here", span, dtype_help)
        elif name.isidentifier():
            at.scope.unknown("label", name, span, [n for n in at.bound if n.isidentifier()])
        else:
            help_text = "write ':' there as well, or name the label" if name.startswith(":") else ""
            shown = "..." if name.startswith("...") else ":" if name.startswith(":") else name
            at.scope.error("E035", f"'{shown}' is not on the left", span, help_text)
    return number


def _guarded(
    at: ElaborationContext, node: s.Node, value: s.Node, span: Span, axis: tuple[KnownNames, int] | None
) -> GuardedAccess | None:
    """Elaborate ``index ? value``, which sizes no label."""
    sized = set(at.sized)
    inner = index_of(at, node, axis)
    if not isinstance(inner, GatherIndex):
        at.sized.intersection_update(sized)
    fill = at.expr(value)
    if inner is None or fill is None:
        return None
    if isinstance(inner, SplitIndex | GuardedAccess):
        at.scope.error("E035", "a guard applies to one index", span)
        return None
    return GuardedAccess(inner, fill, span)


def gather(at: ElaborationContext, node: s.Node) -> GatherIndex | None:
    """Elaborate a data-dependent index."""
    value = whole_number(at, node, "an index")
    return None if value is None else GatherIndex(value, node.span)


def whole_number(at: ElaborationContext, node: s.Node, what: str) -> Expr | None:
    """An integer expression, as i64."""
    at.comparing += 1
    value = at.expr(node)
    at.comparing -= 1
    if value is None:
        return None
    if not value.dtype.is_integer:
        text = at.scope.draft.text(node.span)
        edits: tuple[Edit, ...]
        if isinstance(node, s.BinaryNode) and node.op == "/":
            help_text = "write // for the whole part"
            edits = (Edit(node.op_span, "//"),)
        else:
            help_text = f"convert it: i64({text or '...'})"
            edits = (Edit(node.span, f"i64({text})"),) if text and value.dtype.kind != "c" else ()
        found = Diagnostic("E045", f"{what} is a whole number", node.span, found=value.dtype.name, help=help_text)
        at.scope.problems.append(replace(found, expected="an integer", edits=edits))
        return None
    return at.attempt(lambda: t.coerce(value, I64, "strong"))


# -- slices ------------------------------------------------------------------------------------------------------------


def _slice(at: ElaborationContext, node: s.SliceIndex, position: int, known: KnownNames, axis: int) -> Index | None:
    """Match the ``position``-th slice of an access with the same ``:`` on the left, and size that label."""
    scope, span = at.scope, node.span
    number = at.label(slice_name(position), span)
    if number is None:
        count = sum(name.startswith(":") for name in at.bound)
        found = f"{count} ':' on the left" if count else "no ':' on the left"
        text = scope.draft.text(node.start.span) if node.start is not None else ""
        named = f"i + {text}" if text and text != "0" else "i"
        help_text = f"a slice goes with a ':' on the left, as in Y[:] = X[a:b]; or name a label: ...[{named}]"
        scope.error("E036", "this slice has no ':' on the left to go with", span, help_text, found=found)
        return None
    at.sized.add(number)
    whole = AxisSize(known.number, len(known.carried) + axis, scope.draft.text(span) or ":", span)
    if node.start is None and node.stop is None:
        _fix(at, number, whole)
        return number
    ends = [None if end is None else _end(at, end, (known, axis)) for end in (node.start, node.stop)]
    if any(end is None and written is not None for end, written in zip(ends, (node.start, node.stop), strict=True)):
        return None
    start = ends[0] or SizeLiteral(0, span)
    size = subtract(ends[1] or replace(whole, name=known.tensor.name), start, span)
    label = at.labels[number]
    if label.size is None:
        at.labels[number] = replace(label, size=size)
    elif label.size != size:
        if isinstance(label.size, SizeLiteral) and isinstance(size, SizeLiteral):
            message = f"this slice has {size_text(size)} elements, another {size_text(label.size)}"
            scope.conflict("E037", message, span, label.size.span, "the other")
            return None
        _fix(at, number, size)
    return index_of_form(AffineForm({number: SizeLiteral(1, span)}, start), span)


def _fix(at: ElaborationContext, number: int, size: SizeExpr) -> None:
    """Fix the size of a label."""
    if at.labels[number].dim is None:
        at.labels[number] = replace(at.labels[number], dim=size)


def _end(at: ElaborationContext, node: s.Node, axis: tuple[KnownNames, int]) -> SizeExpr | None:
    size = at.scope.size(node)
    if isinstance(node, s.UnaryNode) and node.op == "-" and isinstance(node.argument, s.LiteralNode):
        _from_the_end(at, node, axis)
        return None
    return size


def _from_the_end(at: ElaborationContext, node: s.Node, axis: tuple[KnownNames, int] | None) -> None:
    """Report ``X[-1]``, with the index from the beginning if the size of the axis has a name."""
    text = at.scope.draft.text(node.span).removeprefix("-").strip()
    size = "" if axis is None or not text.isdigit() else _written_size(at, *axis)
    written = str(int(size) - int(text)) if size.isdigit() and text.isdigit() else f"{size} - {text}"
    help_text = f"count from the size of the axis{f': {written}' if size else ''}"
    edits = (Edit(node.span, written),) if size else ()
    problem = Diagnostic("E036", "nothing counts from the end of an axis", node.span, help=help_text, edits=edits)
    at.scope.problems.append(problem)


def _written_size(at: ElaborationContext, known: KnownNames, axis: int) -> str:
    """The size of a tensor's axis as an index may write it here; empty if it has no name."""
    size = at.scope.draft.axis_size(known.number, len(known.carried) + axis)
    text = at.scope.draft.text(size.span) if isinstance(size, SizeName | SizeLiteral) else ""
    here = text.isdigit() or at.scope.size_of(text, size.span) is not None
    return text if here else ""
