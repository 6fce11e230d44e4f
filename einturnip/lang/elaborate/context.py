"""What an expression needs of the equation that it stands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.labels import Occurrence, occurrences
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.keywords import RESERVED
from einturnip.lang.program import AxisSize, EquationLabel, Expr, InputDef, SizeExpr

Offer = Callable[[str, Span], "int | None"]
"""Makes a label for a name that is bound nowhere, or finds it elsewhere."""


class ElaborationContext(Protocol):
    """An equation while it is elaborated.

    ``bound`` are the labels by name, ``left`` the names of those on the left, ``sized`` the labels that an access
    sizes, ``spare`` the sizes of labels that may have no other. ``offer`` is None where every label is on the left or
    bound. ``path`` begins the names of labels that are bound here. ``root`` is the right side.
    """

    scope: NameScope
    labels: list[EquationLabel]
    bound: dict[str, int]
    left: tuple[str, ...]
    sized: set[int]
    spare: dict[int, SizeExpr]
    comparing: int
    offer: Offer | None
    path: str
    rest: int | None
    root: s.Node | None

    def beside(
        self, scope: NameScope, labels: list[EquationLabel] | None = None, sized: set[int] | None = None
    ) -> ElaborationContext:
        """Another elaboration: of an equation of its own, or over the given labels."""

    def new_label(self, name: str, size: SizeExpr | None, span: Span) -> int:
        """A label that no name means yet."""

    def label(self, name: str, span: Span) -> int | None:
        """The label that a name means; None, and nothing noted, where it means none."""

    def expr(self, node: s.Node) -> Expr | None:
        """A typed expression."""

    def attempt(self, build: Callable[[], Expr]) -> Expr | None:
        """The expression, or None and the problem noted."""


def rest_names(count: int) -> tuple[str, ...]:
    """The labels that ``...`` stands for, of that many axes."""
    return tuple(f"...{k}" for k in range(count))


def slice_name(position: int) -> str:
    """The label of the slice ``:`` at a position, counted from 0."""
    return f":{position}"


def rest_of(scope: NameScope, node: s.Node | s.Index) -> int:
    """How many axes ``...`` stands for in an expression: those that the tensor with most of them does not name."""
    most = 0
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        if isinstance(part, s.Element) and any(isinstance(index, s.RestAxes) for index in part.indices):
            known = scope.tensors.get(part.name)
            most = max(most, known.rank - len(part.indices) + 1) if known is not None else most
    return most


def carried_in(scope: NameScope, node: s.Node | s.Index) -> tuple[str, ...]:
    """The labels that the tensors in an expression carry unseen, in the order of the function's."""
    if not scope.ambient:
        return ()
    found: set[str] = set()
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        if isinstance(part, s.NameNode | s.Element):
            known = scope.tensors.get(part.name)
            found |= set(known.carried) if known is not None else set()
    return tuple(name for name in scope.ambient if name in found)


def bind_shown(at: ElaborationContext, node: s.Node, numbers: frozenset[str] = frozenset()) -> None:
    """Offer the labels that an expression without a left side shows.

    These are the bare names in its indices, names in index arithmetic that mean nothing else, and those used as
    ``numbers``.
    """
    assert at.offer is not None
    for occurrence in occurrences(node):
        name, span = occurrence.name, occurrence.span
        if name == "...":
            at.rest = rest_of(at.scope, node) if at.rest is None else at.rest
            for rest in rest_names(at.rest):
                at.label(rest, span)
        elif name not in at.bound and _shows_label(at.scope, occurrence, numbers):
            at.label(name, span)


def _shows_label(scope: NameScope, occurrence: Occurrence, numbers: frozenset[str]) -> bool:
    name = occurrence.name
    if occurrence.place == "index":
        return scope.is_label(name)
    if name in numbers:
        return True
    known = name in scope.dims or name in scope.constants or name in scope.tensors or name in RESERVED
    return occurrence.place == "arithmetic" and not known


def size_in(scope: NameScope, node: s.Node, name: str) -> SizeExpr | None:
    """The size of an axis on which a label stands alone in an expression."""
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, s.AggregationNode) and any(label.name == name for label in part.labels):
            continue  # there the name is another label
        stack += s.parts(part)
        known = scope.tensors.get(part.name) if isinstance(part, s.Element) else None
        if isinstance(part, s.Element) and known is not None and len(part.indices) == known.rank:
            for axis, index in enumerate(part.indices):
                if isinstance(index, s.NameNode) and index.name == name:
                    return AxisSize(known.number, len(known.carried) + axis, name, index.span)
    return None


def axis_names(scope: NameScope, known: KnownNames) -> list[str]:
    """Names for a tensor's axes, as a help line may write them."""
    tensor = known.tensor
    names: list[str] = []
    if isinstance(tensor, InputDef):
        names = [text if (text := scope.draft.text(size.span)).isidentifier() else "" for size in tensor.shape]
    elif (labels := getattr(tensor, "labels", None)) is not None:
        names = [label.name for label in labels[len(known.carried) : tensor.rank]]
    names = names or [""] * known.rank
    free = (letter for letter in "ijklmnpqrstuvw" if letter not in names)
    return [name if name.isidentifier() else next(free, "i") for name in names]
