"""The labels of a drawn term: their positions, their order, and their mapping by calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    CallTerm,
    ComparisonTerm,
    FunctionTerm,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    NumberTerm,
    ParenTerm,
    Position,
    RestTerm,
    SizeTerm,
    SliceTerm,
    Term,
    UnaryTerm,
)


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms, without the sizes written in bounds and slices."""
    match term:
        case NumberTerm() | SizeTerm() | IndexTerm():
            return ()
        case AccessTerm(indices=indices):
            return tuple(inner for position in indices for inner in position_terms(position))
        case UnaryTerm(argument=argument):
            return (argument,)
        case BinaryTerm(left=left, right=right):
            return (left, right)
        case ComparisonTerm(arguments=arguments) | FunctionTerm(arguments=arguments):
            return arguments
        case AggregateTerm(body=body):
            return (body,)
        case ParenTerm(inner=inner):
            return (inner,)
        case CallTerm(arguments=arguments, named=named):
            return (*arguments, *(value for _, value in named))
        case _:
            assert_never(term)


def position_terms(position: Position) -> tuple[Term, ...]:
    """The terms in one index of an access."""
    match position:
        case str() | SliceTerm() | GroupTerm() | RestTerm():
            return ()
        case GuardedTerm(index=index, fill=fill):
            return (*position_terms(index), fill)
        case _:
            return (position,)


def rewritten(term: Term, change: Callable[[Term], Term]) -> Term:
    """Apply ``change`` to each subterm, inner ones first; returns the same object if nothing changes."""
    inner = tuple(rewritten(c, change) for c in children(term))
    if any(new is not old for new, old in zip(inner, children(term), strict=True)):
        term = _with_children(term, inner)
    return change(term)


def _with_children(term: Term, inner: tuple[Term, ...]) -> Term:
    match term:
        case AccessTerm(indices=indices):
            rest = list(inner)
            return replace(term, indices=tuple(_with_terms(p, rest) for p in indices))
        case UnaryTerm():
            return replace(term, argument=inner[0])
        case BinaryTerm():
            return replace(term, left=inner[0], right=inner[1])
        case ComparisonTerm() | FunctionTerm():
            return replace(term, arguments=inner)
        case AggregateTerm():
            return replace(term, body=inner[0])
        case ParenTerm():
            return replace(term, inner=inner[0])
        case CallTerm(arguments=arguments, named=named):
            values = inner[len(arguments) :]
            named = tuple((name, value) for (name, _), value in zip(named, values, strict=True))
            return replace(term, arguments=inner[: len(arguments)], named=named)
        case _:
            return term


def _with_terms(position: Position, inner: list[Term]) -> Position:
    """The position with its terms taken from the front of ``inner``."""
    match position:
        case str() | SliceTerm() | GroupTerm() | RestTerm():
            return position
        case GuardedTerm(index=str()):
            return replace(position, fill=inner.pop(0))
        case GuardedTerm():
            return GuardedTerm(inner.pop(0), inner.pop(0))
        case _:
            return inner.pop(0)


# --- labels -----------------------------------------------------------------------------------------------------------


def shown_labels(term: Term) -> tuple[str, ...]:
    """The labels that the term does not bind itself, in the order in which its accesses show them."""
    return tuple(dict.fromkeys(_shown(term, inside=False)))


def _shown(term: Term, inside: bool) -> Iterator[str]:
    match term:
        case IndexTerm(label=label):
            yield from (label,) if inside else ()
        case AccessTerm(indices=indices):
            for position in indices:
                yield from _shown_at(position)
        case AggregateTerm(bounds=bounds, body=body):
            own = {b.label for b in bounds}
            yield from (x for x in _shown(body, inside) if x not in own)
        case CallTerm():
            yield from result_labels(term)
        case _:
            for child in children(term):
                yield from _shown(child, inside)


def _shown_at(position: Position) -> Iterator[str]:
    match position:
        case str():
            yield position
        case GuardedTerm(index=index, fill=fill):
            yield from _shown_at(index)
            yield from _shown(fill, inside=False)
        case GroupTerm(labels=labels):
            yield from labels
        case SliceTerm() | RestTerm():
            return
        case _:
            yield from _shown(position, inside=True)


def free_labels(term: Term) -> frozenset[str]:
    """The labels that the term uses, in accesses or as numbers, and does not bind itself."""
    match term:
        case IndexTerm(label=label):
            return frozenset((label,))
        case AggregateTerm(bounds=bounds, body=body):
            return free_labels(body) - {b.label for b in bounds}
        case CallTerm():
            return frozenset(result_labels(term))
        case AccessTerm(indices=indices):
            alone = frozenset(x for position in indices for x in _shown_at(position))
            return alone.union(*(free_labels(c) for c in children(term)))
        case _:
            return frozenset[str]().union(*(free_labels(c) for c in children(term)))


def accesses(term: Term, hidden: frozenset[str] = frozenset()) -> Iterator[tuple[AccessTerm, frozenset[str]]]:
    """Every access in the term, with the labels bound around it."""
    if isinstance(term, AggregateTerm):
        hidden |= {b.label for b in term.bounds}
    if isinstance(term, CallTerm):
        hidden |= consumed_labels(term)
    if isinstance(term, AccessTerm):
        yield term, hidden
    for child in children(term):
        yield from accesses(child, hidden)


def plain_indices(term: Term) -> Iterator[tuple[str, int, str]]:
    """(tensor, axis, label) for each free label of the term that is an index on its own."""
    for access, hidden in accesses(term):
        for axis, position in enumerate(x for x in access.indices if not isinstance(x, RestTerm)):
            if isinstance(position, str) and position not in hidden:
                yield access.name, axis, position


def calls(term: Term) -> Iterator[CallTerm]:
    """Every call in the term, without those inside the functions."""
    if isinstance(term, CallTerm):
        yield term
    for child in children(term):
        yield from calls(child)


def has_rest(term: Term) -> bool:
    """True if the term contains ``...``."""
    return any(isinstance(x, RestTerm) for access, _ in accesses(term) for x in access.indices)


# --- how a call maps labels -------------------------------------------------------------------------------------------


def arguments_of(call: CallTerm) -> dict[str, Term]:
    """The argument of each parameter, by position, name or default."""
    given = dict(zip((p.name for p in call.function.parameters), call.arguments, strict=False)) | dict(call.named)
    return {p.name: given[p.name] if p.name in given else _default(p.default) for p in call.function.parameters}


def _default(term: Term | None) -> Term:
    assert term is not None, "an argument is missing"
    return term


def label_map(call: CallTerm) -> tuple[dict[str, str], tuple[str, ...]]:
    """The caller's label for each label of the parameters, and the labels that ``...`` denotes."""
    given, own_to_callers, rest = arguments_of(call), dict[str, str](), tuple[str, ...]()
    for parameter in call.function.parameters:
        if parameter.labels is None:
            continue
        shown = shown_labels(given[parameter.name])
        own = [x for x in parameter.labels if isinstance(x, str)]
        more = len(shown) - len(own)
        if more < 0 or (more and len(own) == len(parameter.labels)):
            raise ValueError(f"{parameter.name} is given labels {shown}")
        rest = shown[:more] or rest
        for mine, callers in zip(own, shown[more:], strict=True):
            if own_to_callers.setdefault(mine, callers) != callers:
                raise ValueError(f"{mine} stands for {own_to_callers[mine]} and {callers}")
    return own_to_callers, rest


def returned_labels(call: CallTerm) -> tuple[str, ...]:
    """The function's own labels of its result, in axis order, without ``...``."""
    return shown_labels(call.function.returns[call.result])


def made_labels(call: CallTerm) -> tuple[str, ...]:
    """The labels of the function's result that correspond to none of the caller's labels."""
    own, _ = label_map(call)
    return tuple(x for x in returned_labels(call) if x not in own)


def scalar_labels(call: CallTerm) -> tuple[str, ...]:
    """The caller's labels in scalar arguments: the function is applied point by point over them."""
    given = arguments_of(call)
    scalars = [given[p.name] for p in call.function.parameters if p.labels is None]
    return tuple(dict.fromkeys(x for term in scalars for x in sorted(free_labels(term))))


def result_labels(call: CallTerm) -> tuple[str, ...]:
    """The labels of a call: the caller's for returned ones, and the names of introduced ones."""
    own, rest = label_map(call)
    made = dict(zip(made_labels(call), call.made, strict=False))
    term = call.function.returns[call.result]
    callers = [own[x] if x in own else made[x] for x in returned_labels(call) if x in own or x in made]
    return tuple(dict.fromkeys([*(rest if has_rest(term) else ()), *callers, *scalar_labels(call)]))


def consumed_labels(call: CallTerm) -> frozenset[str]:
    """The caller's labels that the function binds."""
    own, rest = label_map(call)
    return frozenset((*own.values(), *rest)) - set(result_labels(call))


def is_product(term: Term) -> bool:
    """True for a product of accesses and label-free factors, possibly with divisions."""
    match term:
        case AccessTerm():
            return True
        case ParenTerm(inner=inner):
            return is_product(inner)
        case UnaryTerm(op="-", argument=argument):
            return is_product(argument)
        case BinaryTerm(op="*", left=left, right=right):
            return is_product(left) and is_product(right)
        case BinaryTerm(op="/", left=left, right=right):
            return is_product(left) and not free_labels(right)
        case _:
            return not free_labels(term)
