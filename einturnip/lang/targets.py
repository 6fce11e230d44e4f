"""The left sides of equations: labels, sizes, keys, numbers, merged and concatenated axes, several targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from einturnip.core.diagnostics import Span
from einturnip.core.dtypes import DType
from einturnip.lang import syntax as s
from einturnip.lang import typing as t
from einturnip.lang.context import carried_in, rest_names, rest_of, size_in, slice_name
from einturnip.lang.equations import Elaboration
from einturnip.lang.functions import Frame, enter, result
from einturnip.lang.hints import hints_of
from einturnip.lang.labels import DEEPEST, is_program_function, too_deep
from einturnip.lang.scope import Known, Scope
from einturnip.lang.sizes import multiply
from einturnip.lang.types import (
    Access,
    Affine,
    AxisSize,
    Concatenate,
    Equation,
    Expr,
    Label,
    Replace,
    SizeExpr,
    SizeLiteral,
    SizeOp,
    Strength,
)
from einturnip.lang.words import RESERVED

Value = Callable[[Elaboration], "Expr | None"]


@dataclass(frozen=True)
class _Left:
    """A left side being made: its indices with ``...`` and ``:`` as labels; ``fixed`` the sizes labels must have.

    ``node`` is the right side, ``value`` elaborates it.
    """

    scope: Scope
    name: str
    indices: tuple[s.Index, ...]
    node: s.Node
    value: Value
    definition: s.Definition
    target: s.Target
    rest: int
    fixed: tuple[SizeExpr | None, ...] = ()

    @property
    def span(self) -> Span:
        """The statement that the program shows for it."""
        return self.scope.draft.place or self.definition.span

    def part(self, name: str, indices: Sequence[s.Index], **more: object) -> _Left:
        """A left side that is a part of this one, under a hidden name."""
        return replace(self, name=f"{self.name}.{name}", indices=tuple(indices), **more)  # type: ignore[arg-type]


def define(scope: Scope, definition: s.Definition) -> None:
    """The statements that a definition means; the problems in ``scope`` where it is wrong."""
    found: list[Known | None] = [None] * len(definition.targets)
    if too_deep(definition.value) or any(too_deep(i) for target in definition.targets for i in target.indices or ()):
        scope.error("E008", f"this nests deeper than {DEEPEST}", definition.value.span, "name a part of it first")
    elif len(definition.targets) > 1:
        found = _several(scope, definition)
    else:
        found = [_single(scope, definition, definition.targets[0], definition.value, _ordinary(definition.value))]
    for target, known in zip(definition.targets, found, strict=True):
        if target.name not in RESERVED:
            constant = scope.constants.get(target.name)
            if constant is None or not constant.is_variable:
                scope.constants.pop(target.name, None)
                scope.tensors[target.name] = known


def _ordinary(node: s.Node) -> Value:
    return lambda at: at.value(node)


def _single(scope: Scope, definition: s.Definition, target: s.Target, node: s.Node, value: Value) -> Known | None:
    before = len(scope.problems)
    if not _may_define(scope, target):
        return None
    rest = _rest(scope, target, node)
    left = _Left(
        scope, f"{scope.path}{target.name}", _named(scope, target, rest), node, value, definition, target, rest
    )
    known = _defined(left)
    return known if len(scope.problems) == before else None


def _may_define(scope: Scope, target: s.Target) -> bool:
    """Whether a name may be given to a tensor."""
    name, span = target.name, target.name_span
    if not scope.usable(name, span):
        return False
    constant = scope.constants.get(name)
    if constant is not None and constant.is_variable:
        scope.conflict("E039", f"'{name}' is a loop's variable", span, constant.span, "the loop")
        return False
    if target.indices is None and name in scope.dims:
        help_text = f"give the scalar another name, such as {name}_"
        place = scope.dims[name].span
        scope.conflict("E023", f"'{name}' is a size already", span, place, "declared here", help_text)
        return False
    return True


def _rest(scope: Scope, target: s.Target, node: s.Node) -> int:
    """How many axes ``...`` on the left stands for."""
    indices = target.indices or ()
    if not any(isinstance(index, s.Rest) for index in indices):
        return 0
    known = scope.tensors.get(target.name)
    if known is not None and any(_is_number(scope, index) for index in indices):
        return max(0, known.rank - len(indices) + 1)
    return rest_of(scope, node)


def _named(scope: Scope, target: s.Target, rest: int) -> tuple[s.Index, ...]:
    """The indices with a label for each ``:`` and each axis of ``...``."""
    found: list[s.Index] = []
    slices = rests = 0
    for index in target.indices or ():
        match index:
            case s.Rest(span=span):
                rests += 1
                if rests > 1:
                    scope.error("E035", "'...' stands once on the left", span)
                else:
                    found += [s.Name(name, span) for name in rest_names(rest)]
            case s.Slice(start=None, stop=None, span=span):
                found.append(s.Name(slice_name(slices), span))
                slices += 1
            case _:
                found.append(index)
    return tuple(found)


def _is_number(scope: Scope, index: s.Index) -> bool:
    """Whether an index on the left is a number: it replaces a slice."""
    match index:
        case s.Name(name=name):
            constant = scope.constants.get(name)
            return constant is not None and constant.size is not None
        case s.Slice() | s.Keyed() | s.Merged() | s.Alternatives() | s.Rest() | s.Guarded():
            return False
        case _:
            return scope.is_size(index)


def _defined(left: _Left) -> Known | None:
    """The tensor of a left side, after those that its parts need."""
    if any(_is_number(left.scope, index) for index in left.indices):
        return _replaced(left)
    if any(isinstance(index, s.Alternatives) for index in left.indices) or isinstance(left.node, s.Concatenation):
        return _concatenated(left)
    if any(isinstance(index, s.Merged) for index in left.indices):
        return _merged(left)
    return _equation(left)


# -- one equation ------------------------------------------------------------------------------------------------------


def _equation(left: _Left) -> Known | None:
    begun = _begin(left)
    if begun is None:
        return None
    at, keys = begun
    found: tuple[tuple[int, Expr], ...] = ()
    if keys:
        both = at.scatter(left.node, keys)
        value, found = (None, ()) if both is None else both
    else:
        value = left.value(at)
    return None if value is None else _finish(left, at, value, found)


def _begin(left: _Left) -> tuple[Elaboration, list[tuple[int, s.Node]]] | None:
    """The equation with its left side bound, and its keys."""
    scope = left.scope
    at = Elaboration(scope)
    at.rest = left.rest if any(isinstance(index, s.Rest) for index in left.target.indices or ()) else None
    written = {index.name for index in left.indices if isinstance(index, s.Name)}
    names = [name for name in carried_in(scope, left.node) if name not in written]
    good = all([at.bind(name, None, left.target.span) for name in names])
    keys: list[tuple[int, s.Node]] = []
    fixed = left.fixed or (None,) * len(left.indices)
    for index, size in zip(left.indices, fixed, strict=True):
        good = _bind(at, index, keys) and good
        if good and size is not None and at.labels[-1].dim is None:
            at.labels[-1] = replace(at.labels[-1], dim=size)
    return (at, keys) if good else None


def _bind(at: Elaboration, index: s.Index, keys: list[tuple[int, s.Node]]) -> bool:
    scope = at.scope
    match index:
        case s.Name(name=name, span=span):
            return at.bind(name, None, span)
        case s.Slice(start=s.Name(name=name, span=span), stop=stop) if stop is not None:
            size = scope.size(stop)
            return at.bind(name, size, span) and size is not None
        case s.Keyed(key=key, size=size_node, span=span):
            return _bind_key(at, key, size_node, span, keys)
        case s.Slice(span=span):
            help_text = "on the left stands ':' for a whole axis, or a label with its size, [i: n]"
            scope.error("E034", "a part of an axis cannot stand on the left", span, help_text)
        case s.Guarded(span=span):
            scope.error("E034", "a guard stands on the right only", span)
        case s.Element(span=span) | s.Call(span=span):
            text = scope.draft.text(span) or "key"
            help_text = f"to aggregate by a key write how many groups there are: [{text}: n]"
            scope.error("E034", "the left side of an equation names labels", span, help_text, expected="a label")
        case _:
            help_text = "a number replaces a slice of a tensor" if isinstance(index, s.Binary) else ""
            scope.error("E034", "the left side of an equation names labels", index.span, help_text, expected="a label")
    return False


def _bind_key(
    at: Elaboration, key: s.Node, size_node: s.Node | None, span: Span, keys: list[tuple[int, s.Node]]
) -> bool:
    """An axis of groups: its label has no name in the program."""
    scope = at.scope
    if scope.is_size(key):
        text = scope.draft.text(span) or "a:b"
        stop = scope.draft.text(size_node.span) if size_node is not None else "n"
        help_text = (
            f"on the left a slice is ':', and takes its size from the right; a label with its size is [i: {stop}]"
        )
        scope.error("E034", f"the slice '{text}' cannot stand on the left", span, help_text)
        return False
    if size_node is None:
        scope.error("E046", "a key needs the number of groups", span, f"[{scope.draft.text(key.span) or 'key'}: n]")
        return False
    size = scope.size(size_node)
    name = key.name if isinstance(key, s.Element | s.Call) else "key"
    label = f"{name}." if name in at.bound else name
    if size is None:
        return False
    at.labels.append(Label(label, size, None, key.span))
    keys.append((len(at.labels) - 1, key))
    return True


def _finish(left: _Left, at: Elaboration, value: Expr, keys: tuple[tuple[int, Expr], ...] = ()) -> Known:
    """Emit the equation."""
    carried = tuple(name for name in at.left if name in left.scope.ambient and not _is_written(left, name))
    n_out = len(carried) + len(left.indices)
    hints = hints_of(left.scope, left.definition.hints, at.labels)
    draft = left.scope.draft
    equation = Equation(left.name, draft.number, tuple(at.labels), n_out, value, left.span, keys, hints)
    draft.emit(equation)
    return Known(equation, len(left.indices), carried)


def _is_written(left: _Left, name: str) -> bool:
    return any(isinstance(index, s.Name) and index.name == name for index in left.indices)


# -- what is made of several equations ---------------------------------------------------------------------------------


def _replaced(left: _Left) -> Known | None:
    """``H[t, d] = h[d]``: a slice of the tensor is another one."""
    scope, target = left.scope, left.target
    base = scope.tensors.get(target.name)
    if base is None:
        if target.name not in scope.tensors:
            first = next(index for index in left.indices if _is_number(scope, index))
            help_text = f"define all of '{target.name}' before, as in {target.name}[i: n, ...] = 0"
            message = f"there is no '{target.name}' yet to replace a slice of"
            scope.error("E047", message, first.span, help_text)
        return None
    if base.rank != len(left.indices):
        from einturnip.lang.indices import wrong_rank

        wrong_rank(Elaboration(scope), base, len(left.indices), target.span)
        return None
    at = [scope.size(index) if _is_number(scope, index) else None for index in left.indices]  # type: ignore[arg-type]
    kept = [k for k, size in enumerate(at) if size is None]
    begin = len(base.carried)
    names = [index.name if isinstance(index, s.Name) else "" for index in left.indices]
    fixed = tuple(AxisSize(base.number, begin + k, names[k] or "axis", left.indices[k].span) for k in kept)
    piece = _defined(left.part("piece", [left.indices[k] for k in kept], fixed=fixed))
    if piece is None:
        return None
    if not isinstance(piece.tensor, Equation | Concatenate):
        scope.error("E034", "this cannot stand beside a number on the left", target.span)
        return None
    dtype, strength = _meet(base, piece)
    base, piece = _shaped(left, base, dtype, strength, piece.carried), _shaped(left, piece, dtype, strength, ())
    if any(name not in piece.carried for name in base.carried):
        piece = _shaped(left, piece, dtype, strength, base.carried)
    draft = scope.draft
    places = (*(None for _ in base.carried), *at)
    tensor = Replace(left.name, draft.number, base.number, piece.number, places, dtype, strength, left.span)
    draft.emit(tensor)
    return Known(tensor, base.rank, base.carried)


def _meet(a: Known, b: Known) -> tuple[DType, Strength]:
    """The dtype of two tensors together, and how strongly it holds."""
    return t.common(whole(a, a.span), whole(b, b.span))


def whole(known: Known, span: Span) -> Access:
    """A tensor with a label for each axis, in order."""
    indices = tuple(range(known.tensor.rank))
    strength: Strength = "weak" if known.strength == "number" and indices else known.strength
    return Access(known.number, indices, known.dtype, strength, span)


def _shaped(left: _Left, known: Known, dtype: DType, strength: Strength, carried: tuple[str, ...]) -> Known:
    return shaped(left.scope, known, dtype, strength, carried, left.name)


def shaped(scope: Scope, known: Known, dtype: DType, strength: Strength, carried: tuple[str, ...], name: str) -> Known:
    """The tensor in another dtype and over the labels ``carried`` too: a hidden equation where it has another."""
    missing = tuple(label for label in scope.ambient if label in carried and label not in known.carried)
    if known.dtype == dtype and not missing:
        return known
    span = scope.draft.place or known.span
    order = (*missing, *known.carried)
    labels = [Label(label, None, scope.ambient[label], span) for label in missing]
    labels += [Label(f"i{k}", None, None, span) for k in range(known.tensor.rank)]
    access = replace(whole(known, span), indices=tuple(range(len(missing), len(labels))))
    value = t.coerce(access, dtype, strength)
    equation = Equation(f"{name}.as", scope.draft.number, tuple(labels), len(labels), value, span)
    scope.draft.emit(equation)
    return Known(equation, known.rank, order)


def _concatenated(left: _Left) -> Known | None:
    """``Z[i | j] = X[i] | Y[j]``: an equation for each part."""
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


def _join(left: _Left, names: s.Alternatives, place: int, parts: tuple[s.Node, ...]) -> Known | None:
    scope, draft = left.scope, left.scope.draft
    fixed = [*left.fixed] or [_size_of_axis(scope, index, parts) for index in left.indices]
    fixed[place] = None
    made: list[Known] = []
    for name, part in zip(names.names, parts, strict=True):
        indices = [*left.indices[:place], s.Name(name, names.span), *left.indices[place + 1 :]]
        known = _defined(left.part(name, indices, node=part, value=_ordinary(part), fixed=tuple(fixed)))
        if known is None:
            return None
        made.append(known)
    dtype, strength = made[0].dtype, made[0].strength
    for known in made[1:]:
        dtype, strength = t.common(
            replace(whole(made[0], left.span), dtype=dtype, strength=strength), whole(known, left.span)
        )
    carried = tuple(name for name in scope.ambient if any(name in known.carried for known in made))
    made = [_shaped(left, known, dtype, strength, carried) for known in made]
    numbers = tuple(known.number for known in made)
    axis, rank = len(carried) + place, len(carried) + len(left.indices)
    tensor = Concatenate(left.name, draft.number, axis, numbers, rank, dtype, strength, left.span)
    draft.emit(tensor)
    return Known(tensor, len(left.indices), carried)


def _size_of_axis(scope: Scope, index: s.Index, parts: tuple[s.Node, ...]) -> SizeExpr | None:
    """The size that a label has in the first part in which it stands alone: all parts have it."""
    if not isinstance(index, s.Name):
        return None
    return next((size for part in parts if (size := size_in(scope, part, index.name)) is not None), None)


def _merged(left: _Left) -> Known | None:
    """``Z[(h e), s] = X[s, h, e]``: an equation with the axes apart, and one that lays them together."""
    scope, draft = left.scope, left.scope.draft
    apart: list[s.Index] = []
    for index in left.indices:
        apart += [s.Name(name, index.span) for name in index.names] if isinstance(index, s.Merged) else [index]
    inner = _defined(left.part("apart", apart, fixed=()))
    if inner is None:
        return None
    first = len(inner.carried)
    labels = [Label(name, None, scope.ambient[name], left.span) for name in inner.carried]
    indices: list[int | Affine] = list(range(first))
    fixed = left.fixed or (None,) * len(left.indices)
    for index, size in zip(left.indices, fixed, strict=True):
        number, span = len(labels), index.span
        axis = len(indices)
        if not isinstance(index, s.Merged):
            labels.append(Label(_label_name(index, number), None, size, span))
            indices.append(number)
            continue
        sizes = [AxisSize(inner.number, axis + k, name, span) for k, name in enumerate(index.names)]
        product: SizeExpr = sizes[0]
        for each in sizes[1:]:
            product = multiply(product, each, span)
        labels.append(Label(" ".join(index.names).join("()"), product, size, span))
        indices += _digits(number, sizes, span)
    access = Access(inner.number, tuple(indices), inner.dtype, whole(inner, left.span).strength, left.span)
    equation = Equation(left.name, draft.number, tuple(labels), len(labels), access, left.span)
    draft.emit(equation)
    return Known(equation, len(left.indices), inner.carried)


def _label_name(index: s.Index, number: int) -> str:
    match index:
        case s.Name(name=name) | s.Slice(start=s.Name(name=name)):
            return name
        case _:
            return f"i{number}"


def _digits(label: int, sizes: Sequence[SizeExpr], span: Span) -> list[Affine]:
    """The indices that a row-major index over axes of these sizes stands for."""
    one = SizeLiteral(1, span)
    found = []
    for k in range(len(sizes)):
        divisor: SizeExpr = one
        for size in sizes[k + 1 :]:
            divisor = multiply(divisor, SizeOp("max", (size, one), span), span)
        modulus = SizeOp("max", (sizes[k], one), span) if k else None
        last = k == len(sizes) - 1
        found.append(Affine(((label, one),), SizeLiteral(0, span), None if last else divisor, modulus, span))
    return found


# -- several targets ---------------------------------------------------------------------------------------------------


def _several(scope: Scope, definition: s.Definition) -> list[Known | None]:
    """``A[i,j], b[i] = f(...)``."""
    none: list[Known | None] = [None] * len(definition.targets)
    node = definition.value
    function = scope.find_function(node.name) if isinstance(node, s.Call) else None
    if not isinstance(node, s.Call) or (function is None and not is_program_function(node.name)):
        help_text = "write one equation for each"
        scope.error("E066", "several tensors on the left come from one function", node.span, help_text)
        return none
    if function is None:
        Elaboration(scope).expr(node)
        return none
    returns = function.syntax.returns
    if len(returns) != len(definition.targets):
        count, wanted = len(returns), len(definition.targets)
        message = f"'{node.name}' returns {count} tensor{'s' * (count != 1)}, but {wanted} are on the left"
        place = function.syntax.name_span
        scope.conflict(
            "E066", message, definition.targets[0].span.to(definition.targets[-1].span), place, "defined here"
        )
        return none
    at = Elaboration(scope)
    at.root = node
    for target in definition.targets:
        for index in _named(scope, target, _rest(scope, target, node)):
            name = _label_name(index, 0)
            if name not in at.bound and isinstance(index, s.Name | s.Slice):
                size = index.stop if isinstance(index, s.Slice) else None
                at.bind(name, None if size is None else scope.size(size), index.span)
    frame = enter(at, node, function)
    if frame is None:
        return none
    return [
        _single(scope, definition, target, node, _result(frame, position))
        for position, target in enumerate(definition.targets)
    ]


def _result(frame: Frame, position: int) -> Value:
    def value(at: Elaboration) -> Expr | None:
        at.root = frame.call
        found = result(at, frame, position)
        if found is None:
            return None
        at.check_sizes(range(len(at.left)), "on the left")
        return at.attempt(lambda: t.settle(found))

    return value
