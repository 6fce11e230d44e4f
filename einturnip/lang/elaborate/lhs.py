"""The left side of an equation while it is made, and what its indices are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.equations import Elaboration
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.program import Expr, SizeExpr

Value = Callable[[Elaboration], "Expr | None"]


def ordinary(node: s.Node) -> Value:
    """The value of a right side as it stands."""
    return lambda at: at.value(node)


@dataclass(frozen=True)
class EquationLhs:
    """A left side being made: its indices with ``...`` and ``:`` as labels; ``fixed`` the sizes labels must have.

    ``node`` is the right side, ``value`` elaborates it. ``define`` makes the tensor of a left side, so of a part.
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
        """The statement that the program shows for it."""
        return self.scope.draft.place or self.definition.span

    def part(self, name: str, indices: Sequence[s.Index], **more: object) -> EquationLhs:
        """A left side that is a part of this one, under a hidden name."""
        return replace(self, name=f"{self.name}.{name}", indices=tuple(indices), **more)  # type: ignore[arg-type]


def is_number(scope: NameScope, index: s.Index) -> bool:
    """Whether an index on the left is a number: it replaces a slice."""
    match index:
        case s.NameNode(name=name):
            constant = scope.constants.get(name)
            return constant is not None and constant.size is not None
        case s.SliceIndex() | s.KeyedAxis() | s.Merged() | s.Alternatives() | s.RestAxes() | s.GuardedIndex():
            return False
        case _:
            return scope.is_size(index)


def label_name(index: s.Index, number: int) -> str:
    """The label that an index on the left names, or one for it."""
    match index:
        case s.NameNode(name=name) | s.SliceIndex(start=s.NameNode(name=name)):
            return name
        case _:
            return f"i{number}"
