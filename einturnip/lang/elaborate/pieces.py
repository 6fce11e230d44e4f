"""Left sides that need several equations: slice replacement, concatenated axes, merged axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from einturnip.core.diagnostics import Span
from einturnip.ir.dtypes import DType
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.context import size_in
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.indices import wrong_rank
from einturnip.lang.elaborate.lhs import EquationLhs, is_number, label_name, ordinary
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.expressions import AccessExpr, AffineIndex, AxisSize, SizeExpr, SizeLiteral, SizeOp, Strength
from einturnip.lang.program import Concatenate, Equation, EquationLabel, Replace
from einturnip.lang.sizes import multiply


def replaced(left: EquationLhs) -> KnownNames | None:
    """Elaborate ``H[t, d] = h[d]``, which replaces a slice of the tensor."""
    scope, target = left.scope, left.target
    base = scope.tensors.get(target.name)
    if base is None:
        if target.name not in scope.tensors:
            first = next(index for index in left.indices if is_number(scope, index))
            labels = [index for index in left.indices if isinstance(index, s.NameNode) and not is_number(scope, index)]
            names = [i.name if i in labels and i.name.isidentifier() else "" for i in left.indices]
            fresh = (name for name in "ijklpqrstuvw" if name not in names)
            axes = ", ".join(f"{name or next(fresh, 'z')}: ..." for name in names)
            help_text = f"define all of '{target.name}' before, with its sizes: {target.name}[{axes}] = 0"
            message = f"there is no '{target.name}' yet to replace a slice of"
            scope.error("E047", message, first.span, help_text)
        return None
    if base.rank != len(left.indices):
        wrong_rank(Elaboration(scope), base, len(left.indices), target.span)
        return None
    at = [scope.size(index) if is_number(scope, index) else None for index in left.indices]  # type: ignore[arg-type]
    kept = [k for k, size in enumerate(at) if size is None]
    begin = len(base.carried)
    names = [index.name if isinstance(index, s.NameNode) else "" for index in left.indices]
    fixed = tuple(AxisSize(base.number, begin + k, names[k] or "axis", left.indices[k].span) for k in kept)
    piece = left.define(left.part("piece", [left.indices[k] for k in kept], fixed=fixed))
    if piece is None:
        return None
    if not isinstance(piece.tensor, Equation | Concatenate):
        scope.error("E034", "this cannot be combined with a number on the left", target.span)
        return None
    number = replace(whole(piece, piece.span), strength=piece.strength)  # where(u == t, 1, H[u]) keeps H's dtype
    dtype, strength = t.common(whole(base, base.span), number)
    base, piece = _shaped(left, base, dtype, strength, piece.carried), _shaped(left, piece, dtype, strength, ())
    if any(name not in piece.carried for name in base.carried):
        piece = _shaped(left, piece, dtype, strength, base.carried)
    draft = scope.draft
    places = (*(None for _ in base.carried), *at)
    tensor = Replace(left.name, draft.number, base.number, piece.number, places, dtype, strength, left.span)
    draft.emit(tensor)
    return KnownNames(tensor, base.rank, base.carried)


def whole(known: KnownNames, span: Span) -> AccessExpr:
    """Access a tensor with one label for each axis, in order."""
    indices = tuple(range(known.tensor.rank))
    strength: Strength = "weak" if known.strength == "number" and indices else known.strength
    return AccessExpr(known.number, indices, known.dtype, strength, span)


def _shaped(
    left: EquationLhs, known: KnownNames, dtype: DType, strength: Strength, carried: tuple[str, ...]
) -> KnownNames:
    return shaped(left.scope, known, dtype, strength, carried, left.name)


def shaped(
    scope: NameScope, known: KnownNames, dtype: DType, strength: Strength, carried: tuple[str, ...], name: str
) -> KnownNames:
    """Convert a tensor to a dtype and extend it over ``carried`` labels, by a hidden equation if needed."""
    missing = tuple(label for label in scope.ambient if label in carried and label not in known.carried)
    if known.dtype == dtype and not missing:
        return known
    span = scope.draft.place or known.span
    order = (*missing, *known.carried)
    labels = [EquationLabel(label, None, scope.ambient[label], span) for label in missing]
    labels += [EquationLabel(f"i{k}", None, None, span) for k in range(known.tensor.rank)]
    access = replace(whole(known, span), indices=tuple(range(len(missing), len(labels))))
    value = t.coerce(access, dtype, strength)
    equation = Equation(f"{name}.as", scope.draft.number, tuple(labels), len(labels), value, span)
    scope.draft.emit(equation)
    return KnownNames(equation, known.rank, order)


def concatenated(left: EquationLhs) -> KnownNames | None:
    """Elaborate ``Z[i | j] = X[i] | Y[j]`` with one equation for each part."""
    scope = left.scope
    places = [k for k, index in enumerate(left.indices) if isinstance(index, s.Alternatives)]
    node = left.node
    names = left.indices[places[0]] if places else None
    parts = node.parts if isinstance(node, s.Concatenation) else (node,)
    if not isinstance(names, s.Alternatives):
        labels = " | ".join("ijklmnpq"[k % 8] for k in range(len(parts)))
        help_text = f"say along which axis: write [{labels}] there on the left"
        scope.error("E038", f"{len(parts)} parts are joined, but no axis on the left is", node.span, help_text)
        return None
    if len(places) > 1:
        scope.error("E038", "one axis can be joined in a statement", left.indices[places[1]].span)
        return None
    if len(parts) != len(names.names):
        message = f"{len(names.names)} labels on the left are joined, but {len(parts)} part{'s' * (len(parts) != 1)}"
        help_text = f"write a part for each of {', '.join(names.names)}, with '|' between them"
        scope.error("E038", f"{message} on the right", node.span, help_text)
        return None
    return _join(left, names, places[0], parts)


def _join(left: EquationLhs, names: s.Alternatives, place: int, parts: tuple[s.Node, ...]) -> KnownNames | None:
    scope, draft = left.scope, left.scope.draft
    fixed = [*left.fixed] or [_size_of_axis(scope, index, parts) for index in left.indices]
    fixed[place] = None
    made: list[KnownNames] = []
    for name, size, part in zip(names.names, names.sizes, parts, strict=True):
        label = s.NameNode(name, names.span)
        index = label if size is None else s.SliceIndex(label, size, names.span)
        indices: list[s.Index] = [*left.indices[:place], index, *left.indices[place + 1 :]]
        known = left.define(left.part(name, indices, node=part, value=ordinary(part), fixed=tuple(fixed)))
        if known is None:
            return None
        made.append(known)
        # A size that one part determines, as by the bounds of 2 * j, applies to later parts.
        sized = [_axis_size(known, k, index) for k, index in enumerate(left.indices)]
        fixed = [old if old is not None or k == place else sized[k] for k, old in enumerate(fixed)]
    joined = whole(made[0], left.span)
    for known in made[1:]:
        dtype, strength = t.common(joined, whole(known, left.span))
        joined = replace(joined, dtype=dtype, strength=strength)
    dtype, strength = joined.dtype, joined.strength
    carried = tuple(name for name in scope.ambient if any(name in known.carried for known in made))
    made = [_shaped(left, known, dtype, strength, carried) for known in made]
    numbers = tuple(known.number for known in made)
    axis, rank = len(carried) + place, len(carried) + len(left.indices)
    tensor = Concatenate(left.name, draft.number, axis, numbers, rank, dtype, strength, left.span)
    draft.emit(tensor)
    return KnownNames(tensor, len(left.indices), carried)


def _size_of_axis(scope: NameScope, index: s.Index, parts: tuple[s.Node, ...]) -> SizeExpr | None:
    """The size of a label in the first part where it indexes an axis alone; it applies to all parts."""
    if not isinstance(index, s.NameNode):
        return None
    return next((size for part in parts if (size := size_in(scope, part, index.name)) is not None), None)


def _axis_size(known: KnownNames, axis: int, index: s.Index) -> SizeExpr:
    name = index.name if isinstance(index, s.NameNode) else ""
    return AxisSize(known.number, len(known.carried) + axis, name, index.span)


def merged(left: EquationLhs) -> KnownNames | None:
    """Elaborate ``Z[(h e), s] = X[s, h, e]``: one equation with separate axes, and one that merges them."""
    scope, draft = left.scope, left.scope.draft
    apart: list[s.Index] = []
    for index in left.indices:
        apart += [s.NameNode(name, index.span) for name in index.names] if isinstance(index, s.Merged) else [index]
    inner = left.define(left.part("apart", apart, fixed=()))
    if inner is None:
        return None
    first = len(inner.carried)
    labels = [EquationLabel(name, None, scope.ambient[name], left.span) for name in inner.carried]
    indices: list[int | AffineIndex] = list(range(first))
    fixed = left.fixed or (None,) * len(left.indices)
    for index, size in zip(left.indices, fixed, strict=True):
        number, span = len(labels), index.span
        axis = len(indices)
        if not isinstance(index, s.Merged):
            labels.append(EquationLabel(label_name(index, number), None, size, span))
            indices.append(number)
            continue
        sizes = [AxisSize(inner.number, axis + k, name, span) for k, name in enumerate(index.names)]
        product: SizeExpr = sizes[0]
        for each in sizes[1:]:
            product = multiply(product, each, span)
        labels.append(EquationLabel(" ".join(index.names).join("()"), product, size, span))
        indices += _digits(number, sizes, span)
    access = AccessExpr(inner.number, tuple(indices), inner.dtype, whole(inner, left.span).strength, left.span)
    equation = Equation(left.name, draft.number, tuple(labels), len(labels), access, left.span)
    draft.emit(equation)
    return KnownNames(equation, len(left.indices), inner.carried)


def _digits(label: int, sizes: Sequence[SizeExpr], span: Span) -> list[AffineIndex]:
    """Decompose a row-major index over axes of these sizes into one index for each axis."""
    one = SizeLiteral(1, span)
    found = []
    for k in range(len(sizes)):
        divisor: SizeExpr = one
        for size in sizes[k + 1 :]:
            divisor = multiply(divisor, SizeOp("max", (size, one), span), span)
        modulus = SizeOp("max", (sizes[k], one), span) if k else None
        last = k == len(sizes) - 1
        found.append(AffineIndex(((label, one),), SizeLiteral(0, span), None if last else divisor, modulus, span))
    return found
