"""Short ways of writing, spelled out: Einstein's convention, slices, slices replaced, axes merged, several results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from einturnip.testing.labels import calls, is_product, made_labels, result_labels, rewritten, shown_labels, standing
from einturnip.testing.terms import (
    Access,
    Aggregate,
    Binary,
    Bound,
    Call,
    Chain,
    Colon,
    Fixed,
    Function,
    Group,
    Index,
    Joined,
    Keyed,
    Left,
    Number,
    Position,
    Rest,
    Several,
    Slice,
    Statement,
    Term,
)

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Equation:
    """A statement spelled out: plain labels on the left, and a term.

    ``groups``: how many labels make up each axis of the tensor. ``keys``: the key of each label that has one.
    """

    name: str
    bounds: tuple[Bound, ...]
    body: Term
    groups: tuple[int, ...]
    keys: tuple[tuple[str, Term], ...] = ()


def statements_of(several: Several) -> list[Statement]:
    """A statement for each tensor that a function returns; all read what was there before."""
    return [
        Statement(name, bounds, replace(several.call, result=k)) for k, (name, bounds) in enumerate(several.targets)
    ]


def parts_of(statement: Statement, shapes: Shapes) -> list[Statement]:
    """A statement for each part of a concatenation, with the part's own label; the statement itself if it is none.

    Shapes:
        shapes: of the tensors; a label that one part lacks is as large as in the others.
    """
    if not statement.others:
        return [statement]
    bodies = (statement.body, *statement.others)
    sizes = {label: shapes[name][axis] for b in bodies for name, axis, label in standing(b) if name in shapes}
    parts = []
    for k, body in enumerate(bodies):
        shown = shown_labels(body)
        bounds = (x.bounds[k] if isinstance(x, Joined) else x for x in statement.bounds)
        parts.append(
            replace(
                statement,
                bounds=tuple(
                    replace(x, size=Number(sizes[x.label]))
                    if isinstance(x, Bound) and x.size is None and x.label not in shown and x.label in sizes
                    else x
                    for x in bounds
                ),
                body=body,
                others=(),
            )
        )
    return parts


def spelled_out(statement: Statement, shapes: Shapes) -> Equation:
    """A statement that joins nothing as an equation.

    Shapes:
        shapes: of every tensor that it reads; sizes of slices that go to the end of an axis hang on them.
    """
    bounds: list[Left] = [x for x in statement.bounds if not isinstance(x, Rest)]
    body = without_rest(statement.body)
    bounds, body = _without_slices(bounds, body, shapes)
    keys = tuple((f"key {k}", without_rest(x.key)) for k, x in enumerate(bounds) if isinstance(x, Keyed))
    labels: list[Left] = [Bound(f"key {k}", x.size) if isinstance(x, Keyed) else x for k, x in enumerate(bounds)]
    left = [label for x in labels for label in written_labels(x)]
    body = with_made_labels(body, left)
    if not keys:
        body = with_implied_sum(body, left)
    if any(isinstance(x, Fixed) for x in labels):
        labels, body = _replacing(statement.name, labels, body)
    flat = [b for x in labels for b in _flat(x)]
    groups = tuple(len(_flat(x)) for x in labels)
    return Equation(statement.name, tuple(flat), body, groups, keys)


def without_rest(term: Term) -> Term:
    """The term without ``...``, which is one point at a time to whoever evaluates a function."""

    def change(term: Term) -> Term:
        if isinstance(term, Access) and any(isinstance(x, Rest) for x in term.indices):
            return replace(term, indices=tuple(x for x in term.indices if not isinstance(x, Rest)))
        return term

    return rewritten(term, change)


def written_labels(left: Left) -> tuple[str, ...]:
    """The labels in one place on the left."""
    match left:
        case Bound(label=label):
            return (label,)
        case Group(labels=labels):
            return labels
        case Joined(bounds=bounds):
            return tuple(b.label for b in bounds)
        case _:
            return ()


def _flat(left: Left) -> tuple[Bound, ...]:
    return (left,) if isinstance(left, Bound) else tuple(map(Bound, written_labels(left)))


def with_made_labels(body: Term, left: Sequence[str]) -> Term:
    """The term with the labels that its calls make named: the next ones on the left that the result lacks."""

    def change(term: Term) -> Term:
        if not isinstance(term, Call) or term.made or not made_labels(term):
            return term
        lacking = [x for x in left if x not in result_labels(term)]
        return replace(term, made=tuple(lacking[: len(made_labels(term))]))

    return rewritten(body, change) if any(made_labels(c) for c in calls(body)) else body


def with_implied_sum(body: Term, left: Sequence[str]) -> Term:
    """The term with Einstein's convention spelled out."""
    missing = [label for label in shown_labels(body) if label not in left]
    if not missing or not is_product(body):
        return body
    return Aggregate("sum", tuple(map(Bound, missing)), body)


def _without_slices(bounds: list[Left], body: Term, shapes: Shapes) -> tuple[list[Left], Term]:
    """Slices as labels of their own: the first of each access goes with the first ``:`` on the left, and so on."""
    places = [k for k, x in enumerate(bounds) if isinstance(x, Colon)]
    names = [f"slice {k}" for k in range(len(places))]
    sizes: dict[str, Term] = {}

    def change(term: Term) -> Term:
        if not isinstance(term, Access) or not any(isinstance(x, Slice) for x in term.indices):
            return term
        names_left, positions = list(names), list[Position]()
        for axis, position in enumerate(term.indices):
            if not isinstance(position, Slice):
                positions.append(position)
                continue
            label = names_left.pop(0)
            start = Number(0) if position.start is None else position.start
            stop = Number(shapes[term.name][axis]) if position.stop is None else position.stop
            sizes.setdefault(label, Binary("-", stop, start))
            positions.append(Binary("+", Index(label), start))
        return replace(term, indices=tuple(positions))

    body = rewritten(body, change)
    bounds = [
        Bound(names[places.index(k)], sizes.get(names[places.index(k)])) if k in places else x
        for k, x in enumerate(bounds)
    ]
    return bounds, body


def _replacing(name: str, bounds: list[Left], body: Term) -> tuple[list[Left], Term]:
    """``H[t, d] = body`` as ``H[u, d] = where(u == t, body, H[u, d])``."""
    left: list[Left] = [Bound(f"at {k}") if isinstance(x, Fixed) else x for k, x in enumerate(bounds)]
    conditions = [Chain(("==",), (Index(f"at {k}"), x.at)) for k, x in enumerate(bounds) if isinstance(x, Fixed)]
    condition: Term = conditions[0]
    for more in conditions[1:]:
        condition = Binary("and", condition, more)
    old = Access(name, tuple(b.label for x in left for b in _flat(x)))
    return left, Function("where", (condition, body, old))
