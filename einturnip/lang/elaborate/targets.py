"""Elaborates left sides: labels, sizes, keys, numbers, merged and concatenated axes, several targets."""

from __future__ import annotations

from dataclasses import replace

from einturnip.core.diagnostics import Span
from einturnip.core.program_limits import checkpoint
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.context import rest_names, rest_of, slice_name
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.functions import CallFrame, enter, result
from einturnip.lang.elaborate.hints import hints_of
from einturnip.lang.elaborate.lhs import EquationLhs, Value, is_number, label_name, ordinary
from einturnip.lang.elaborate.pieces import concatenated, merged, replaced
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.elaborate.states import axes_of, changed, may_change
from einturnip.lang.elaborate.syntax_analysis import MAX_DEPTH, is_program_function, occurrences, too_deep
from einturnip.lang.expressions import Expr
from einturnip.lang.keywords import RESERVED
from einturnip.lang.program import Equation, EquationLabel, PlanHint


def define(scope: NameScope, definition: s.Definition) -> None:
    """Elaborate a definition to statements; reports errors to ``scope``."""
    checkpoint()
    found: list[KnownNames | None] = [None] * len(definition.targets)
    if too_deep(definition.value) or any(too_deep(i) for target in definition.targets for i in target.indices or ()):
        scope.error("E008", f"this nests deeper than {MAX_DEPTH}", definition.value.span, "name a part of it first")
    elif len(definition.targets) > 1:
        found = _several(scope, definition)
    else:
        found = [_single(scope, definition, definition.targets[0], definition.value, ordinary(definition.value))]
    for target, known in zip(definition.targets, found, strict=True):
        if definition.update:
            if known is not None:
                changed(scope, target, known)
        elif target.name not in RESERVED:
            constant = scope.constants.get(target.name)
            if constant is None or not constant.is_variable:
                scope.constants.pop(target.name, None)
                scope.tensors[target.name] = known


def _single(
    scope: NameScope, definition: s.Definition, target: s.Target, node: s.Node, value: Value
) -> KnownNames | None:
    before = len(scope.problems)
    if not (may_change if definition.update else _may_define)(scope, target):
        return None
    rest = _rest(scope, target, node)
    indices = _named(scope, target, rest)
    fixed = axes_of(scope, target, len(indices)) if definition.update else ()
    name = f"{scope.path}{target.name}"
    left = EquationLhs(scope, name, indices, node, value, definition, target, rest, _defined, fixed)
    known = _defined(left)
    return known if len(scope.problems) == before else None


def _may_define(scope: NameScope, target: s.Target) -> bool:
    """True if a name may be defined as a tensor; reports errors."""
    name, span = target.name, target.name_span
    if not scope.usable(name, span):
        return False
    if scope.is_state(name):
        message, known = f"'{name}' is a state, and only '<-' changes it", scope.tensors[name]
        help_text = f"write {scope.draft.text(target.span) or name} <- ..., or give what is computed another name"
        scope.conflict("E080", message, span, known.span if known else span, "declared here", help_text)
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


def _rest(scope: NameScope, target: s.Target, node: s.Node) -> int:
    """The number of axes that ``...`` on the left covers."""
    indices = target.indices or ()
    if not any(isinstance(index, s.RestAxes) for index in indices):
        return 0
    known = scope.tensors.get(target.name)
    if known is not None and any(is_number(scope, index) for index in indices):
        return max(0, known.rank - len(indices) + 1)
    keys = [index.key for index in indices if isinstance(index, s.KeyedAxis)]
    return max(rest_of(scope, each) for each in (node, *keys))


def _named(scope: NameScope, target: s.Target, rest: int) -> tuple[s.Index, ...]:
    """The indices with a label for each ``:`` and each axis of ``...``."""
    found: list[s.Index] = []
    slices = rests = 0
    for index in target.indices or ():
        match index:
            case s.RestAxes(span=span):
                rests += 1
                if rests > 1:
                    scope.error("E035", "'...' stands once on the left", span)
                else:
                    found += [s.NameNode(name, span) for name in rest_names(rest)]
            case s.SliceIndex(start=None, stop=None, span=span):
                found.append(s.NameNode(slice_name(slices), span))
                slices += 1
            case _:
                found.append(index)
    return tuple(found)


def _defined(left: EquationLhs) -> KnownNames | None:
    """Define the tensor of a left side, after the tensors of its parts."""
    if any(is_number(left.scope, index) for index in left.indices):
        return replaced(left)
    if any(isinstance(index, s.Alternatives) for index in left.indices) or isinstance(left.node, s.Concatenation):
        return concatenated(left)
    if any(isinstance(index, s.Merged) for index in left.indices):
        return merged(left)
    return _equation(left)


# -- one equation ------------------------------------------------------------------------------------------------------


def _equation(left: EquationLhs) -> KnownNames | None:
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


def _begin(left: EquationLhs) -> tuple[Elaboration, list[tuple[int, s.Node]]] | None:
    """Start an equation: bind its left side, and collect its keys."""
    scope = left.scope
    at = Elaboration(scope)
    at.rest = left.rest if any(isinstance(index, s.RestAxes) for index in left.target.indices or ()) else None
    written = {index.name for index in left.indices if isinstance(index, s.NameNode)}
    names = [name for name in scope.carried_in(left.node) if name not in written]
    good = all([at.bind(name, None, left.target.span) for name in names])
    keys: list[tuple[int, s.Node]] = []
    fixed = left.fixed or (None,) * len(left.indices)
    own = frozenset(b.name for b in left.node.labels) if isinstance(left.node, s.AggregationNode) else frozenset()
    for index, size in zip(left.indices, fixed, strict=True):
        good = _bind(at, index, keys, own) and good
        if good and size is not None and at.labels[-1].dim is None:
            at.labels[-1] = replace(at.labels[-1], dim=size)
    return (at, keys) if good else None


def _bind(at: Elaboration, index: s.Index, keys: list[tuple[int, s.Node]], own: frozenset[str]) -> bool:
    """Bind one index. ``own``: the labels of the aggregation on the right, which a key may use."""
    scope = at.scope
    match index:
        case s.NameNode(name=name, span=span):
            return at.bind(name, None, span)
        case s.SliceIndex(start=s.NameNode(name=name, span=span), stop=stop) if stop is not None:
            size = scope.size(stop)
            return at.bind(name, size, span) and size is not None
        case s.KeyedAxis(key=key, size=size_node, span=span):
            return _bind_key(at, key, size_node, span, keys, own)
        case s.SliceIndex(span=span):
            help_text = "on the left stands ':' for a whole axis, or a label with its size, [i: n]"
            scope.error("E034", "a part of an axis cannot be on the left", span, help_text)
        case s.Element(span=span) | s.CallNode(span=span):
            text = scope.draft.text(span) or "key"
            help_text = f"to aggregate by a key write how many groups there are: [{text}: ...]"
            scope.error("E034", "the left side of an equation names labels", span, help_text, expected="a label")
        case _:
            help_text = "a number replaces a slice of a tensor" if isinstance(index, s.BinaryNode) else ""
            scope.error("E034", "the left side of an equation names labels", index.span, help_text, expected="a label")
    return False


def _bind_key(
    at: Elaboration,
    key: s.Node,
    size_node: s.Node | None,
    span: Span,
    keys: list[tuple[int, s.Node]],
    own: frozenset[str],
) -> bool:
    """Bind an axis of groups, whose label has no name in the program."""
    scope = at.scope
    if scope.is_size(key) and own.isdisjoint(o.name for o in occurrences(key)):
        text = scope.draft.text(span) or "a:b"
        stop = scope.draft.text(size_node.span) if size_node is not None else "n"
        help_text = (
            f"on the left a slice is ':', and takes its size from the right; a label with its size is [i: {stop}]"
        )
        scope.error("E034", f"the slice '{text}' cannot be on the left", span, help_text)
        return False
    if size_node is None:
        scope.error("E046", "a key needs the number of groups", span, f"[{scope.draft.text(key.span) or 'key'}: n]")
        return False
    size = scope.size(size_node)
    name = key.name if isinstance(key, s.Element | s.CallNode) else "key"
    label = f"{name}." if name in at.bound else name
    if size is None:
        return False
    at.labels.append(EquationLabel(label, size, None, key.span))
    keys.append((len(at.labels) - 1, key))
    return True


def _finish(left: EquationLhs, at: Elaboration, value: Expr, keys: tuple[tuple[int, Expr], ...] = ()) -> KnownNames:
    """Emit the equation."""
    carried = tuple(name for name in at.left if name in left.scope.ambient and not _is_written(left, name))
    n_out = len(carried) + len(left.indices)
    hints = _hints(left, at) if left.definition.hints else ()
    draft = left.scope.draft
    equation = Equation(left.name, draft.number, tuple(at.labels), n_out, value, left.span, keys, hints)
    draft.emit(equation)
    return KnownNames(equation, len(left.indices), carried)


def _hints(left: EquationLhs, at: Elaboration) -> tuple[PlanHint, ...]:
    indices = (index for target in left.definition.targets for index in target.indices or ())
    names = (_labels_named(left.scope, index) for index in indices)
    return hints_of(left.scope, left.definition.hints, at.labels, frozenset(name for some in names for name in some))


def _is_written(left: EquationLhs, name: str) -> bool:
    return any(isinstance(index, s.NameNode) and index.name == name for index in left.indices)


# -- several targets ---------------------------------------------------------------------------------------------------


def _several(scope: NameScope, definition: s.Definition) -> list[KnownNames | None]:
    """``A[i,j], b[i] = f(...)``."""
    none: list[KnownNames | None] = [None] * len(definition.targets)
    node = definition.value
    function = scope.find_function(node.name) if isinstance(node, s.CallNode) else None
    if not isinstance(node, s.CallNode) or (function is None and not is_program_function(node.name)):
        help_text = "write one equation for each"
        scope.error("E066", "several tensors on the left come from one function", node.span, help_text)
        return none
    if function is None:
        Elaboration(scope).expr(node)
        return none
    returns = function.syntax.returns
    if len(returns) != len(definition.targets):
        count, n_expected = len(returns), len(definition.targets)
        message = f"'{node.name}' returns {count} tensor{'s' * (count != 1)}, but {n_expected} are on the left"
        place = function.syntax.name_span
        scope.conflict(
            "E066", message, definition.targets[0].span.to(definition.targets[-1].span), place, "defined here"
        )
        return none
    at = Elaboration(scope)
    at.root = node
    for target in definition.targets:
        for index in _named(scope, target, _rest(scope, target, node)):
            size = scope.size(index.stop) if isinstance(index, s.SliceIndex) and index.stop is not None else None
            for name in _labels_named(scope, index) if not isinstance(index, s.Alternatives) else ():
                if name not in at.bound and not at.bind(name, size, index.span):
                    return none
    frame = enter(at, node, function)
    if frame is None:
        return none
    return [
        _single(scope, definition, target, node, _result(at, frame, position))
        for position, target in enumerate(definition.targets)
    ]


def _labels_named(scope: NameScope, index: s.Index) -> tuple[str, ...]:
    """The labels that an index on the left names."""
    match index:
        case s.Merged(names=names) | s.Alternatives(names=names):
            return names
        case s.NameNode() | s.SliceIndex() if not is_number(scope, index):
            return (label_name(index, 0),)
        case _:
            return ()


def _result(call: Elaboration, frame: CallFrame, position: int) -> Value:
    """One result of a call, as the value of an equation.

    ``call``: the elaboration of its arguments. A label that only an argument has gets its size from there.
    """

    def value(at: Elaboration) -> Expr | None:
        at.root = frame.call
        for name, number in at.bound.items():
            size = call.spare.get(call.bound[name]) if name in call.bound else None
            if size is not None:
                at.spare.setdefault(number, size)
        found = result(at, frame, position)
        if found is None:
            return None
        at.check_sizes(range(len(at.left)), "on the left")
        return at.attempt(lambda: t.settle(found))

    return value
