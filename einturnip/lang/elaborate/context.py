"""The interface of an equation under elaboration that its expressions use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.elaborate.syntax_analysis import Occurrence, occurrences
from einturnip.lang.expressions import AxisSize, Expr, SizeExpr
from einturnip.lang.keywords import RESERVED
from einturnip.lang.program import EquationLabel, InputDef

Offer = Callable[[str, Span], "int | None"]
"""Creates a label for an unbound name, or finds it in an enclosing equation."""


class ElaborationContext(Protocol):
    """An equation under elaboration.

    ``bound`` maps names to labels; ``left`` are the names of labels on the left side; ``sized`` are labels that an
    access sizes; ``spare`` are fallback sizes of labels. ``offer`` is None where every label must be on the left or
    bound. ``path`` is the prefix of labels that are bound here. ``root`` is the right side.
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
        """Create another elaboration: of a separate equation, or over the given labels."""

    def new_label(self, name: str, size: SizeExpr | None, span: Span) -> int:
        """Create a label that no name denotes yet."""

    def label(self, name: str, span: Span) -> int | None:
        """The label that a name denotes; None, without a report, if there is none."""

    def expr(self, node: s.Node) -> Expr | None:
        """A typed expression."""

    def attempt(self, build: Callable[[], Expr]) -> Expr | None:
        """Build an expression; None if that fails (reported)."""


def rest_names(count: int) -> tuple[str, ...]:
    """The labels for ``...`` with this number of axes."""
    return tuple(f"...{k}" for k in range(count))


def slice_name(position: int) -> str:
    """The label of the slice ``:`` at a position, counted from 0."""
    return f":{position}"


def rest_of(scope: NameScope, node: s.Node | s.Index) -> int:
    """The number of axes that ``...`` covers in an expression: the maximum over its tensors."""
    max_rest = 0
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        stack += s.parts(part)
        if isinstance(part, s.Element) and any(isinstance(index, s.RestAxes) for index in part.indices):
            known = scope.tensors.get(part.name)
            max_rest = max(max_rest, known.rank - len(part.indices) + 1) if known is not None else max_rest
    return max_rest


def bind_shown(at: ElaborationContext, node: s.Node, numbers: frozenset[str] = frozenset()) -> None:
    """Bind the labels that an expression without a left side implies.

    These are the bare names in its indices, otherwise undefined names in index arithmetic, and those used as
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
    """The size of an axis that a label indexes alone in an expression; None if there is none."""
    stack: list[s.Node | s.Index] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, s.AggregationNode) and any(label.name == name for label in part.labels):
            continue  # the name is another label there
        stack += s.parts(part)
        known = scope.tensors.get(part.name) if isinstance(part, s.Element) else None
        if isinstance(part, s.Element) and known is not None and len(part.indices) == known.rank:
            for axis, index in enumerate(part.indices):
                if isinstance(index, s.NameNode) and index.name == name:
                    return AxisSize(known.number, len(known.carried) + axis, name, index.span)
    return None


def axis_names(scope: NameScope, known: KnownNames) -> list[str]:
    """Names for a tensor's axes, for use in a help line."""
    tensor = known.tensor
    names: list[str] = []
    if isinstance(tensor, InputDef):
        names = [text if (text := scope.draft.text(size.span)).isidentifier() else "" for size in tensor.shape]
    elif (labels := getattr(tensor, "labels", None)) is not None:
        names = [label.name for label in labels[len(known.carried) : tensor.rank]]
    names = names or [""] * known.rank
    free = (letter for letter in "ijklmnpqrstuvw" if letter not in names)
    return [name if name.isidentifier() else next(free, "i") for name in names]
