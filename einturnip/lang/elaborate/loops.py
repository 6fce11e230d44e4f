"""Elaborates loops: the body is typed once; names that it rebinds are carried between iterations.

The condition of a ``while`` is carried too: it is elaborated for the values before the loop, and at the end of the body
again, for those that the next iteration begins with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.pieces import shaped, whole
from einturnip.lang.elaborate.scope import KnownNames, NamedConstant, NameScope
from einturnip.lang.elaborate.syntax_analysis import MAX_DEPTH, occurrences, too_deep
from einturnip.lang.elaborate.targets import define
from einturnip.lang.expressions import SizeExpr, SizeLiteral, SizeName, SizeNumber, Strength
from einturnip.lang.program import CONDITION, Carried, Equation, Loop


@dataclass(frozen=True, slots=True)
class _LoopStart:
    """A name's value before the loop, and its dtype within the loop."""

    known: KnownNames
    dtype: DType
    strength: Strength


def loop(scope: NameScope, node: s.LoopNode | s.WhileNode) -> None:
    """Elaborate a loop statement; reports errors to ``scope``."""
    if isinstance(node, s.WhileNode):
        start, stop = SizeLiteral(0, node.bound.span), _end(scope, node.bound)
        if _may_begin(scope, node) and stop is not None:
            _elaborate(scope, node, "", start, stop, {})
        return
    first, stop = (_end(scope, end) for end in (node.start, node.stop))
    if _may_count(scope, node) and first is not None and stop is not None:
        size = SizeName(f"{scope.path}{node.variable}", node.variable_span)
        counter = NamedConstant(size, SizeNumber(size, I64, "number", size.span), size.span, True)
        _elaborate(scope, node, size.name, first, stop, {node.variable: counter})


def _elaborate(
    scope: NameScope,
    node: s.LoopNode | s.WhileNode,
    variable: str,
    start: SizeExpr,
    stop: SizeExpr,
    counter: Mapping[str, NamedConstant],
) -> None:
    """Elaborate a loop whose head is right. ``counter``: its variable, if it has one."""
    draft = scope.draft
    starts = {n: _start(scope, n) for n in dict.fromkeys(t.name for t in _targets(node.body)) if _exists(scope, n)}
    before = {**scope.tensors, **{n: start.known for n, start in starts.items()}}
    constants = {n: c for n, c in scope.constants.items() if n not in starts}
    gone = dict(scope.gone)
    while True:
        back, problems = draft.attempt(), len(draft.problems)
        scope.tensors, scope.constants, scope.gone = dict(before), {**constants, **counter}, dict(gone)
        with draft.body() as first:
            if isinstance(node, s.WhileNode):
                scope.tensors |= {name: begun.known for name, begun in starts.items()}
                if (known := _condition(scope, node, before)) is not None:
                    starts[CONDITION] = _LoopStart(known, BOOL, "strong")
        with draft.body() as body:
            carried = _carry(scope, starts)
            outer, draft.loop = draft.loop, _place(node)
            scope.block(scope, node.body)
            draft.loop = outer
            # A name with an error before the loop causes errors inside it, which are not reported again.
            fine = len(draft.problems) == problems and None not in map(scope.tensors.get, starts)
            changes = _changes(scope, starts) if fine else {}
            if fine and not changes:
                _close(scope, starts)
                if isinstance(node, s.WhileNode) and len(draft.problems) == problems:
                    scope.tensors[CONDITION] = _condition(scope, node, before)
        if not changes:
            break
        back()
        for name, (dtype, strength, labels) in changes.items():
            known = shaped(scope, starts[name].known, dtype, strength, labels, f"{scope.path}{name}")
            starts[name] = _LoopStart(known, dtype, strength)
    local = [n for n in scope.tensors if n not in before and n != CONDITION]
    ends = _set_last(scope, carried) if fine and len(draft.problems) == problems else None
    scope.constants = constants
    names = [n for n in starts if n != CONDITION]
    scope.tensors = {**before, **{n: None if ends is None else KnownNames(ends[n], *_shape(starts[n])) for n in names}}
    scope.gone = {**gone, **dict.fromkeys(local, node.span), **{n: known.span for n, known in counter.items()}}
    if ends is not None:
        condition = ends[CONDITION].number if CONDITION in ends else None
        if isinstance(node, s.WhileNode):
            _warn_if_fixed(scope, node, starts)
        draft.statements += first
        place = draft.place or node.span
        draft.emit(Loop(variable, start, stop, tuple(ends.values()), tuple(body), place, condition))


# -- conditions


def _place(node: s.LoopNode | s.WhileNode) -> Span:
    """The part of a loop's head that messages show."""
    return node.condition.span if isinstance(node, s.WhileNode) else node.variable_span


def _may_begin(scope: NameScope, node: s.WhileNode) -> bool:
    """True if a ``while`` is in no other loop."""
    outer = scope.draft.loop
    if outer is None:
        return True
    help_text = "count the iterations of one of the two: for k in 0 .. n { ... }"
    scope.conflict("E011", "a 'while' cannot be in another loop", _place(node), outer, "the outer loop", help_text)
    return False


def _warn_if_fixed(scope: NameScope, node: s.WhileNode, starts: Collection[str]) -> None:
    """Warn that no iteration changes what a condition reads; constants are meant so."""
    read: set[str] = set()
    stack: list[s.Node | s.Index] = [node.condition]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        if isinstance(part, s.NameNode | s.Element) and part.name in scope.tensors:
            read.add(part.name)
    if read and read.isdisjoint(starts):
        message = "no iteration changes what this condition reads, so it holds always or never"
        help_text = f"define {' or '.join(sorted(read))} in the body of the loop"
        problem = Diagnostic("W004", message, node.condition.span, help=help_text, severity="warning")
        scope.warnings.append(problem)


def _condition(scope: NameScope, node: s.WhileNode, names: Collection[str]) -> KnownNames | None:
    """Elaborate a condition over tensors of these ``names``; None if it is wrong (reported)."""
    condition, draft = node.condition, scope.draft
    text = draft.text(condition.span) or "..."
    tensors = {name: known for name, known in scope.tensors.items() if name in names}
    coming = {t.name: t.name_span for t in reversed(list(_targets(node.body))) if t.name not in names}
    inner = replace(scope, tensors=tensors, constants=dict(scope.constants), coming=coming)
    names_in_indices = (o.name for o in occurrences(condition) if o.place == "index")
    if free := [name for name in dict.fromkeys(names_in_indices) if name == "..." or scope.is_label(name)]:
        shown = ", ".join(name for name in free if name != "...") or "i"
        message = f"the condition of a 'while' is one value, and this has one for each {shown}"
        scope.error("E031", message, condition.span, f"aggregate it, as in any[{shown}] ({text})", expected="no labels")
        return None
    target = s.Target(CONDITION, None, condition.span, condition.span)
    place, draft.place = draft.place, draft.place if scope.function else condition.span
    define(inner, s.Definition((target,), condition, condition.span))
    draft.place, known = place, inner.tensors[CONDITION]
    if known is None:
        return None
    if known.dtype != BOOL:
        message = f"the condition of a 'while' is true or false, and this is {known.dtype}"
        help_text = f"compare it, as in: while {text} > 0"
        scope.error("E040", message, condition.span, help_text, expected="bool", found=str(known.dtype))
        return None
    if known.carried:
        label = known.carried[0].removeprefix(scope.path)
        message = f"the condition has a value for each '{label}' of the call, and a loop ends once"
        scope.error("E031", message, condition.span, "call the function without that label, or aggregate in it")
        return None
    return known


# -- heads and carried names


def _shape(start: _LoopStart) -> tuple[int, tuple[str, ...]]:
    return start.known.rank, start.known.carried


def _end(scope: NameScope, node: s.Node) -> SizeExpr | None:
    if too_deep(node):
        scope.error("E008", f"this nests deeper than {MAX_DEPTH}", node.span)
        return None
    return scope.size(node)


def _may_count(scope: NameScope, node: s.LoopNode) -> bool:
    """True if the loop's variable is a new, valid name."""
    name, span = node.variable, node.variable_span
    if not scope.usable(name, span):
        return False
    known = scope.tensors.get(name)
    taken = scope.dims.get(name) or scope.constants.get(name) or known
    if taken is None:
        return True
    message = f"'{name}' is taken, and a loop's variable is a new name"
    scope.conflict("E039", message, span, taken.span, "defined here", f"give the variable another name: {name}_")
    return False


def _targets(body: Sequence[s.Declaration]) -> Iterator[s.Target]:
    """The left sides that a body defines."""
    for declaration in body:
        match declaration:
            case s.Definition(targets=targets):
                yield from targets
            case s.LoopNode(body=inner) | s.WhileNode(body=inner):
                yield from _targets(inner)
            case _:
                pass


def _exists(scope: NameScope, name: str) -> bool:
    constant = scope.constants.get(name)
    return scope.tensors.get(name) is not None or (constant is not None and not constant.is_variable)


def _start(scope: NameScope, name: str) -> _LoopStart:
    """The value of a name before the loop; a number passed to a function becomes a tensor."""
    known = scope.tensors.get(name)
    constant = scope.constants.get(name)
    if constant is not None:
        draft = scope.draft
        value = t.settle(constant.number)
        equation = Equation(f"{scope.path}{name}", draft.number, (), 0, value, draft.place or constant.span)
        draft.emit(equation)
        known = KnownNames(equation, 0)
    assert known is not None
    return _LoopStart(known, known.dtype, whole(known, known.span).strength)


def _carry(scope: NameScope, starts: Mapping[str, _LoopStart]) -> dict[str, int]:
    """Give each carried name the tensor of its value at the start of an iteration; returns their numbers."""
    draft = scope.draft
    numbers = {}
    for name, start in starts.items():
        numbers[name] = draft.number
        known, path = start.known, f"{scope.path}{name}"
        rank, initial = known.tensor.rank, known.number
        carried = Carried(path, draft.number, initial, initial, rank, start.dtype, start.strength, known.span)
        draft.tensors.append(carried)
        scope.tensors[name] = KnownNames(carried, known.rank, known.carried)
    return numbers


def _set_last(scope: NameScope, numbers: Mapping[str, int]) -> dict[str, Carried]:
    """Set the final value of each carried name in an iteration."""
    found = {}
    for name, number in numbers.items():
        last, tensor = scope.tensors[name], scope.draft.tensors[number]
        assert last is not None and isinstance(tensor, Carried)
        found[name] = scope.draft.tensors[number] = replace(tensor, last=last.number)
    return found


def _changes(scope: NameScope, starts: Mapping[str, _LoopStart]) -> dict[str, tuple[DType, Strength, tuple[str, ...]]]:
    """Find dtypes with which names must start so that the loop preserves them.

    Dtypes from numbers give way.
    """
    found = {}
    for name, start in starts.items():
        last = scope.tensors[name]
        if last is None or last.rank != start.known.rank:
            continue
        dtype, strength = (start.dtype, start.strength) if start.strength == "strong" else _together(start, last)
        labels = {*last.carried, *start.known.carried}
        if len(labels) > len(start.known.carried) or (dtype, strength) != (start.dtype, start.strength):
            found[name] = (dtype, strength, tuple(label for label in scope.ambient if label in labels))
    return found


def _close(scope: NameScope, starts: Mapping[str, _LoopStart]) -> None:
    """Convert final values to the initial dtype where they differ only because of number literals."""
    for name, start in starts.items():
        last = scope.tensors[name]
        assert last is not None
        same = last.dtype == start.dtype or last.strength != "strong"
        if last.rank != start.known.rank:
            _changed(scope, name, start, last, "number of axes", str(start.known.rank), str(last.rank))
        elif not same or _together(start, last)[0] != start.dtype:
            _changed(scope, name, start, last, "dtype", str(start.dtype), str(last.dtype))
        else:
            path, labels = f"{scope.path}{name}", start.known.carried
            scope.tensors[name] = shaped(scope, last, start.dtype, start.strength, labels, path)


def _changed(
    scope: NameScope, name: str, start: _LoopStart, last: KnownNames, what: str, expected: str, found: str
) -> None:
    left = scope.draft.text(last.span).split(" =")[0] or name
    part = "real(...)" if last.dtype.kind == "c" and start.dtype.kind != "c" else "..."
    help_text = f"cast it: {left} = {expected}({part})" if what == "dtype" else "give the new tensor another name"
    scope.problems.append(
        Diagnostic(
            "E048",
            f"the loop changes the {what} of '{name}'",
            last.span,
            secondary=((start.known.span, "what it is before the loop"),),
            expected=expected,
            found=found,
            help=help_text,
        )
    )


def _together(start: _LoopStart, last: KnownNames) -> tuple[DType, Strength]:
    span = last.span
    begun = replace(whole(start.known, span), dtype=start.dtype, strength=start.strength)
    return t.common(begun, whole(last, span))
