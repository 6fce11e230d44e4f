"""The left side of an equation under elaboration, and the classification of its indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.expressions import Expr, SizeExpr

Value = Callable[[Elaboration], "Expr | None"]


def ordinary(node: s.Node) -> Value:
    """Return the elaboration of a right side without changes."""
    return lambda at: at.value(node)


@dataclass(frozen=True)
class EquationLhs:
    """A left side: its indices with ``...`` and ``:`` as labels; ``fixed`` are prescribed sizes of labels.

    ``node`` is the right side and ``value`` elaborates it. ``define`` creates the tensor of this or of a partial left
    side.
    """

    scope: NameScope
    name: str
    indices: tuple[s.Index, ...]
    node: s.Node
    value: Value
    definition: s.Definition
    target: s.Target
    rest: int
    define: Callable[[EquationLhs], KnownNames | None]
    fixed: tuple[SizeExpr | None, ...] = ()

    @property
    def span(self) -> Span:
        """The span of the statement that the program shows for it."""
        return self.scope.draft.place or self.definition.span

    def part(self, name: str, indices: Sequence[s.Index], **more: object) -> EquationLhs:
        """A partial left side under a hidden name."""
        return replace(self, name=f"{self.name}.{name}", indices=tuple(indices), **more)  # type: ignore[arg-type]


def is_number(scope: NameScope, index: s.Index) -> bool:
    """True if an index on the left is a number, which makes the equation a slice replacement."""
    match index:
        case s.NameNode(name=name):
            constant = scope.constants.get(name)
            return constant is not None and constant.size is not None
        case s.SliceIndex() | s.KeyedAxis() | s.Merged() | s.Alternatives() | s.RestAxes() | s.GuardedIndex():
            return False
        case _:
            return scope.is_size(index)


def label_name(index: s.Index, number: int) -> str:
    """The label that an index on the left names, or a new name."""
    match index:
        case s.NameNode(name=name) | s.SliceIndex(start=s.NameNode(name=name)):
            return name
        case _:
            return f"i{number}"
