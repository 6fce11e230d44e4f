"""States: checks of ``<-`` and the equations that it creates."""

from __future__ import annotations

from dataclasses import replace

from einturnip.core.diagnostics import Diagnostic, Edit, nearest
from einturnip.ir.dtypes import DType
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.indices import wrong_rank
from einturnip.lang.elaborate.pieces import whole
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.expressions import AxisSize, Expr, NumberExpr, SizeExpr, SizeNumber
from einturnip.lang.program import Equation, EquationLabel, InputDef, Output, Statement

_KINDS = "buifc"


def may_change(scope: NameScope, target: s.Target) -> bool:
    """True if ``<-`` is allowed after a name here; reports errors."""
    name, span = target.name, target.name_span
    if not scope.is_state(name):
        _no_state(scope, name, target)
        return False
    if (before := scope.draft.updates.get(name)) is not None:
        message = f"state '{name}' is changed twice in a step"
        help_text = f"give what it is changed to first another name, and write one {name} <- ..."
        scope.conflict("E081", message, span, before.span, "changed here first", help_text)
        return False
    return True


def _no_state(scope: NameScope, name: str, target: s.Target) -> None:
    """Report ``<-`` after a name that is not a state."""
    span, known = target.name_span, scope.tensors.get(name)
    if known is not None:
        message = f"'{name}' is no state, and '<-' changes states only"
        written = scope.draft.text(target.span) or name
        what = (
            "declare it by 'state' instead of 'input'"
            if isinstance(known.tensor, InputDef)
            else f"write {written} = ..."
        )
        scope.conflict("E080", message, span, known.span, "defined here", what)
    elif name not in scope.tensors:
        states = [each for each in scope.tensors if scope.is_state(each)]
        later = scope.later.get(name)
        meant = nearest(name, states)
        help_text = f"did you mean '{meant}'?" if meant else f"declare it before: state {name} : f32[n] = 0"
        edits = (Edit(span, meant),) if meant else ()
        if later is not None and later > span:
            help_text, edits = "move its declaration up", ()
        message = f"there is no state '{name}'"
        scope.problems.append(Diagnostic("E080", message, span, help=help_text, edits=edits))


def axes_of(scope: NameScope, target: s.Target, count: int) -> tuple[SizeExpr | None, ...]:
    """The sizes that ``count`` indices on the left must have: those of the state.

    Returns None each for a wrong rank.
    """
    known = scope.tensors[target.name]
    if known is None or known.rank != count:
        return (None,) * count
    return tuple(scope.draft.axis_size(known.number, axis) for axis in range(count))


def changed(scope: NameScope, target: s.Target, made: KnownNames) -> None:
    """Make ``made`` the next value of the state, converted to the state's dtype."""
    state = scope.tensors[target.name]
    assert state is not None
    if made.rank != state.rank:
        wrong_rank(Elaboration(scope), state, made.rank, target.span)
        return
    draft, tensor = scope.draft, made.tensor
    if not isinstance(tensor, Equation) or tensor.keys:
        labels = tuple(
            EquationLabel(f"i{axis}", None, AxisSize(state.number, axis, "axis", target.span), target.span)
            for axis in range(state.rank)
        )
        value: Expr = whole(made, tensor.span)
        tensor = Equation(target.name, draft.number, labels, state.rank, value, tensor.span)
        draft.emit(tensor)
    rounded = _rounded(scope, target, tensor.value, state.dtype)
    if rounded is not None:
        final = replace(tensor, value=rounded, update=True)
        place = next(k for k, statement in enumerate(draft.statements) if statement is tensor)
        draft.statements[place] = draft.tensors[tensor.number] = draft.updates[target.name] = final


def _rounded(scope: NameScope, target: s.Target, value: Expr, dtype: DType) -> Expr | None:
    """Convert a value to the state's dtype; it is an error if that loses more than precision."""
    if _KINDS.index(value.dtype.kind.replace("i", "u")) > _KINDS.index(dtype.kind.replace("i", "u")):
        message = f"'{target.name}' is {dtype}, which cannot hold {value.dtype}"
        help_text = f"convert it: {target.name} <- {dtype}(...)"
        found = value.dtype.name
        scope.error("E082", message, value.span, help_text, expected=str(dtype), found=found)
        return None
    try:
        given = value.dtype == dtype or isinstance(value, NumberExpr | SizeNumber)
        return t.coerce(value, dtype, "strong") if given else t.cast(value, dtype, value.span)
    except t.TypeProblem as problem:
        scope.problems.append(problem.diagnostic)
        return None


def after_the_step(scope: NameScope) -> list[Statement]:
    """Redirect each ``output`` of a changing state to its new value, after the definition of that."""
    found: list[Statement] = []
    late: list[Statement] = []
    for statement in scope.draft.statements:
        update = scope.draft.updates.get(statement.name) if isinstance(statement, Output) else None
        if isinstance(statement, Output) and update is not None:
            late.append(replace(statement, tensor=update.number))
        else:
            found.append(statement)
    return found + late
