"""Expands short forms: Einstein convention, slices, replaced slices, merged axes, several results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from einturnip.testing.labels import (
    calls,
    is_product,
    made_labels,
    plain_indices,
    result_labels,
    rewritten,
    shown_labels,
)
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    ColonTerm,
    ComparisonTerm,
    DrawnSeveral,
    DrawnStatement,
    FixedTerm,
    FunctionTerm,
    GroupTerm,
    IndexTerm,
    JoinedTerm,
    KeyedTerm,
    Left,
    NumberTerm,
    Position,
    RestTerm,
    SliceTerm,
    Term,
)

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SpelledEquation:
    """An expanded statement: plain labels on the left, and a term.

    ``groups``: the number of labels of each axis of the tensor. ``keys``: the key of each label that has one.
    """

    name: str
    bounds: tuple[BoundTerm, ...]
    body: Term
    groups: tuple[int, ...]
    keys: tuple[tuple[str, Term], ...] = ()


def statements_of(several: DrawnSeveral) -> list[DrawnStatement]:
    """A statement for each tensor that a function returns; all read the names from before."""
    return [
        DrawnStatement(name, bounds, replace(several.call, result=k))
        for k, (name, bounds) in enumerate(several.targets)
    ]


def parts_of(statement: DrawnStatement, shapes: Shapes) -> list[DrawnStatement]:
    """A statement for each part of a concatenation, with its own label; otherwise the statement itself.

    Shapes:
        shapes: of the tensors; a label that one part lacks has the same size as in the others.
    """
    if not statement.others:
        return [statement]
    bodies = (statement.body, *statement.others)
    sizes = {label: shapes[name][axis] for b in bodies for name, axis, label in plain_indices(b) if name in shapes}
    parts = []
    for k, body in enumerate(bodies):
        shown = shown_labels(body)
        bounds = (x.bounds[k] if isinstance(x, JoinedTerm) else x for x in statement.bounds)
        parts.append(
            replace(
                statement,
                bounds=tuple(
                    replace(x, size=NumberTerm(sizes[x.label]))
                    if isinstance(x, BoundTerm) and x.size is None and x.label not in shown and x.label in sizes
                    else x
                    for x in bounds
                ),
                body=body,
                others=(),
            )
        )
    return parts


def spelled_out(statement: DrawnStatement, shapes: Shapes) -> SpelledEquation:
    """Expand a statement without concatenation to an equation.

    Shapes:
        shapes: of every tensor that it reads; the sizes of open slices depend on them.
    """
    bounds: list[Left] = [x for x in statement.bounds if not isinstance(x, RestTerm)]
    body = without_rest(statement.body)
    bounds, body = _without_slices(bounds, body, shapes)
    keys = tuple((f"key {k}", without_rest(x.key)) for k, x in enumerate(bounds) if isinstance(x, KeyedTerm))
    labels: list[Left] = [
        BoundTerm(f"key {k}", x.size) if isinstance(x, KeyedTerm) else x for k, x in enumerate(bounds)
    ]
    left = [label for x in labels for label in written_labels(x)]
    body = with_made_labels(body, left)
    if not keys:
        body = with_implied_sum(body, left)
    if any(isinstance(x, FixedTerm) for x in labels):
        labels, body = _replacing(statement.name, labels, body)
    flat = [b for x in labels for b in _flat(x)]
    groups = tuple(len(_flat(x)) for x in labels)
    return SpelledEquation(statement.name, tuple(flat), body, groups, keys)


def without_rest(term: Term) -> Term:
    """The term without ``...``, because a function is evaluated at one point of these axes at a time."""

    def change(term: Term) -> Term:
        if isinstance(term, AccessTerm) and any(isinstance(x, RestTerm) for x in term.indices):
            return replace(term, indices=tuple(x for x in term.indices if not isinstance(x, RestTerm)))
        return term

    return rewritten(term, change)


def written_labels(left: Left) -> tuple[str, ...]:
    """The labels in one position on the left."""
    match left:
        case BoundTerm(label=label):
            return (label,)
        case GroupTerm(labels=labels):
            return labels
        case JoinedTerm(bounds=bounds):
            return tuple(b.label for b in bounds)
        case _:
            return ()


def _flat(left: Left) -> tuple[BoundTerm, ...]:
    return (left,) if isinstance(left, BoundTerm) else tuple(map(BoundTerm, written_labels(left)))


def with_made_labels(body: Term, left: Sequence[str]) -> Term:
    """Name the labels that a term's calls introduce: the next ones on the left that the result lacks."""

    def change(term: Term) -> Term:
        if not isinstance(term, CallTerm) or term.made or not made_labels(term):
            return term
        lacking = [x for x in left if x not in result_labels(term)]
        return replace(term, made=tuple(lacking[: len(made_labels(term))]))

    return rewritten(body, change) if any(made_labels(c) for c in calls(body)) else body


def with_implied_sum(body: Term, left: Sequence[str]) -> Term:
    """The term with the Einstein convention expanded to an explicit sum."""
    missing = [label for label in shown_labels(body) if label not in left]
    if not missing or not is_product(body):
        return body
    return AggregateTerm("sum", tuple(map(BoundTerm, missing)), body)


def _without_slices(bounds: list[Left], body: Term, shapes: Shapes) -> tuple[list[Left], Term]:
    """Replace slices by labels: the n-th slice of each access corresponds to the n-th ``:`` on the left."""
    places = [k for k, x in enumerate(bounds) if isinstance(x, ColonTerm)]
    names = [f"slice {k}" for k in range(len(places))]
    sizes: dict[str, Term] = {}

    def change(term: Term) -> Term:
        if not isinstance(term, AccessTerm) or not any(isinstance(x, SliceTerm) for x in term.indices):
            return term
        names_left, positions = list(names), list[Position]()
        for axis, position in enumerate(term.indices):
            if not isinstance(position, SliceTerm):
                positions.append(position)
                continue
            label = names_left.pop(0)
            start = NumberTerm(0) if position.start is None else position.start
            stop = NumberTerm(shapes[term.name][axis]) if position.stop is None else position.stop
            sizes.setdefault(label, BinaryTerm("-", stop, start))
            positions.append(BinaryTerm("+", IndexTerm(label), start))
        return replace(term, indices=tuple(positions))

    body = rewritten(body, change)
    bounds = [
        BoundTerm(names[places.index(k)], sizes.get(names[places.index(k)])) if k in places else x
        for k, x in enumerate(bounds)
    ]
    return bounds, body


def _replacing(name: str, bounds: list[Left], body: Term) -> tuple[list[Left], Term]:
    """``H[t, d] = body`` as ``H[u, d] = where(u == t, body, H[u, d])``."""
    left: list[Left] = [BoundTerm(f"at {k}") if isinstance(x, FixedTerm) else x for k, x in enumerate(bounds)]
    conditions = [
        ComparisonTerm(("==",), (IndexTerm(f"at {k}"), x.at)) for k, x in enumerate(bounds) if isinstance(x, FixedTerm)
    ]
    condition: Term = conditions[0]
    for more in conditions[1:]:
        condition = BinaryTerm("and", condition, more)
    old = AccessTerm(name, tuple(b.label for x in left for b in _flat(x)))
    return left, FunctionTerm("where", (condition, body, old))
