"""The base class of all drawing: choices, labels and their sizes, and the compatibility of types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from einturnip.testing.kinds import type_of
from einturnip.testing.labels import plain_indices
from einturnip.testing.promotion import Type, kind
from einturnip.testing.ranges import RangeContext, ranges
from einturnip.testing.terms import AccessTerm, BoundTerm, Fn, IndexTerm, NumberTerm, SizeTerm, Term

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

LABELS = ("i", "j", "k", "l", "o", "q")
MOST_POINTS = 150
"""Maximum number of points of a scope's label space, because the oracle visits each."""


class DrawnTensor(NamedTuple):
    """A name that an equation may read; ``exact``: computed without a rounding function.

    ``below``: its values are integers in [0, below), if that is known.
    """

    shape: tuple[int, ...]
    type: Type
    exact: bool
    below: int | None = None


class Drawn(NamedTuple):
    """A term with the properties that the terms around it depend on."""

    term: Term
    type: Type
    exact: bool


class Applicable(NamedTuple):
    """A function with the arguments for which it was drawn; later calls use the same shapes and types.

    ``given``: a tensor for each parameter, without the ``rest`` axes of ``...``; ``numbers``: the literals given for
    scalars. ``made``: the sizes of labels that it introduces. ``exact``: whether each result is exact.
    """

    function: Fn
    given: Mapping[str, DrawnTensor]
    numbers: Mapping[str, Term]
    rest: tuple[int, ...]
    exact: tuple[bool, ...]
    made: Mapping[str, int]


@dataclass
class DrawingContext:
    """The names that a statement may use. ``counts``: sizes that are not labels, with minimum and maximum."""

    sizes: Mapping[str, int]
    names: Mapping[str, DrawnTensor]
    exact: bool
    features: frozenset[str] = frozenset()
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    functions: tuple[Applicable, ...] = ()


class Drawer:
    """Draws terms for one statement in one context."""

    def __init__(self, draw: Draw, world: DrawingContext) -> None:
        self.draw, self.world = draw, world
        self.sizes, self.names, self.exact, self.counts = world.sizes, world.names, world.exact, world.counts
        self.types = {name: tensor.type for name, tensor in world.names.items()}
        self.shapes = {name: tensor.shape for name, tensor in world.names.items()}
        self.ragged: frozenset[str] = frozenset()
        """Labels in scope whose range varies from point to point."""
        # Labels named as dims, and dims in index arithmetic: such a name means the label wherever there is one.
        self.labels_as_dims = "indices" not in world.features or self.pick((True, False))

    # --- small choices ----------------------------------------------------------------------------------------------

    def pick(self, choices: Iterable[Any]) -> Any:
        """One of these; Hypothesis shrinks towards the first."""
        return self.draw(st.sampled_from(tuple(choices)))

    def rarely(self, n: int = 7) -> bool:
        """True in about one of n + 1 draws."""
        return bool(self.pick((False,) * n + (True,)))

    def uses(self, feature: str, n: int = 2) -> bool:
        """True in some draws, if the feature is requested."""
        return feature in self.world.features and self.rarely(n)

    def pick_some(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        """At most three of these, in any order."""
        order = self.draw(st.permutations(choices)) if choices else []
        return tuple(order[: self.draw(st.integers(0, min(3, len(order))))])

    # --- labels -----------------------------------------------------------------------------------------------------

    def label_names(self, size: int) -> tuple[str, ...]:
        """Names for a label of that size; a dim's name only if the dim has the same size."""
        dims = tuple(name for name, s in self.sizes.items() if s == size) if self.labels_as_dims else ()
        return (*(x for x in LABELS if x not in self.sizes), *dims)

    def more_names(self) -> tuple[str, ...]:
        """Further names for labels; in an index a scalar's name means the scalar."""
        scalars = {name for name, tensor in self.names.items() if not tensor.shape}
        return tuple(x for x in ("u", "v", "x", "y", "z") if x not in scalars)

    def new_label(self, scope: dict[str, int], taken: frozenset[str], size: int | None = None) -> str | None:
        """Bind a new label in ``scope``, which may hide an outer one; None if there are enough."""
        if size is None:
            axes = tuple(size for tensor in self.names.values() for size in tensor.shape)
            size = self.pick(axes + tuple(self.sizes.values()) or (2,))
            if "indices" in self.world.features and size > 1 and self.rarely(3):
                size -= 1
        if math.prod(scope.values()) * size > MOST_POINTS:
            return None
        names = [x for x in self.label_names(size) if x not in taken]
        if not names:
            return None
        label: str = self.pick(names)
        scope.pop(label, None)
        scope[label] = size
        return label

    def bounds(self, scope: Mapping[str, int], terms: tuple[Term, ...], labels: Iterable[str]) -> tuple[BoundTerm, ...]:
        """The labels as written where they are bound, with sizes if needed, and sometimes anyway."""
        wanted = [x for x in scope if x in frozenset(labels)]
        known = {x: size for x, size in scope.items() if x not in wanted}
        known |= {x: scope[x] for x in wanted if self.is_sized(x, {x: scope[x]}, terms)}
        bounds = []
        for label in wanted:
            unsized = self.is_sized(label, {**known, label: scope[label]}, terms) and not self.rarely()
            known[label] = scope[label]
            bounds.append(BoundTerm(label, None if unsized else self.size_term(scope[label], scope)))
        return tuple(bounds)

    def is_sized(self, label: str, scope: Mapping[str, int], terms: tuple[Term, ...]) -> bool:
        """True if a label's size can be inferred, given that the others' sizes can."""
        axes = {self.shapes[name][axis] for t in terms for name, axis, x in plain_indices(t) if x == label}
        if axes or label in self.sizes:
            return axes <= {scope[label]}
        around = {x: size for x, size in scope.items() if x != label}
        try:
            return ranges((BoundTerm(label),), terms, RangeContext(self.sizes, self.shapes, around)) == {
                label: scope[label]
            }
        except (ValueError, KeyError):
            return False

    def are_sized(self, scope: Mapping[str, int], *terms: Term) -> bool:
        """True if all sizes of labels can be inferred."""
        return all(self.is_sized(x, {x: size}, terms) for x, size in scope.items())

    def size_term(self, size: int, scope: Mapping[str, int]) -> Term:
        """A size as a number, or as a name that no label hides."""
        names = [name for name, s in self.sizes.items() if s == size and name not in scope]
        names += [name for name, (least, most) in self.counts.items() if least == most == size]
        return self.pick((*map(SizeTerm, names), NumberTerm(size)))  # type: ignore[no-any-return]

    # --- what goes with what ----------------------------------------------------------------------------------------

    def node(self, term: Term, *parts: Drawn, exact: bool = True) -> Drawn:
        """A term built of parts."""
        return Drawn(term, type_of(term, self.types), exact and all(p.exact for p in parts))

    def compatible(self, a: Drawn, b: Drawn) -> bool:
        """True if an arithmetic operator may combine two terms and the language defines the result's dtype."""
        types = (a.type, b.type)
        if "bool" in (a.type.dtype, b.type.dtype):
            return all(t.strength == "strong" for t in types) and a.type.dtype != b.type.dtype
        if "u64" in (a.type.dtype, b.type.dtype) and a.type != b.type:
            return all(kind(t.dtype) not in "i" or t.strength == "python" for t in types) and self._small(a, b)
        return self._small(a, b)

    def _small(self, a: Drawn, b: Drawn) -> bool:
        """False if a Python number may exceed the other's integers, or the width of a soft type is undefined."""
        for weak, strong in ((a, b), (b, a)):
            if strong.type.strength != "strong" or kind(strong.type.dtype) in "fc":
                continue
            if weak.type.strength == "python" and not isinstance(weak.term, NumberTerm | SizeTerm):
                return False
            if weak.type.strength == "soft" and not isinstance(weak.term, IndexTerm) and strong.type.dtype != "i64":
                return False
        return True

    def tensors(self) -> list[Drawn]:
        """Every readable name, without its labels."""
        return [Drawn(AccessTerm(name), t.type, t.exact) for name, t in self.names.items()]

    def name(self, drawn: Drawn) -> str:
        """The name of a tensor."""
        assert isinstance(drawn.term, AccessTerm)
        return drawn.term.name

    def shape(self, drawn: Drawn) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.names[self.name(drawn)].shape
