"""Draws the indices of an access."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from einturnip.testing.drawing_base import Drawer, Drawn
from einturnip.testing.promotion import kind
from einturnip.testing.terms import (
    AccessTerm,
    BinaryTerm,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    NumberTerm,
    Position,
    SizeTerm,
    Term,
    UnaryTerm,
)


class IndexDrawer(Drawer):
    """Draws accesses over the labels in scope."""

    def integer(self, scope: Mapping[str, int]) -> Drawn:
        """An integer term without rounding, of any range."""
        raise NotImplementedError

    def access(self, drawn: Drawn, scope: Mapping[str, int], guards: bool = True) -> Drawn:
        """A tensor at labels in scope, or at indices computed from them."""
        assert isinstance(drawn.term, AccessTerm)
        positions = tuple(self.position(size, scope, drawn, guards) for size in self.shape(drawn))
        return self.node(AccessTerm(drawn.term.name, positions), drawn)

    def can_access(self, drawn: Drawn, scope: Mapping[str, int]) -> bool:
        """True if there is an index for each axis."""
        sizes = set(scope.values())
        return all(size in sizes or (size and "indices" in self.world.features) for size in self.shape(drawn))

    def position(self, size: int, scope: Mapping[str, int], of: Drawn, guards: bool) -> Position:
        """An index for an axis; usually a label alone."""
        alone = [x for x, s in scope.items() if s == size]
        if guards and self.uses("guards", 9):
            return self.guarded(scope, of)
        if size and self.uses("gathers", 6):
            return self.gathered(size, scope)
        makers = [maker for maker in self._affine_makers(size, scope) if "indices" in self.world.features]
        if alone and not (makers and self.rarely(3)):
            return self.pick(alone)  # type: ignore[no-any-return]
        maker: Callable[[], Position] = self.pick(makers)
        return maker()

    def _affine_makers(self, size: int, scope: Mapping[str, int]) -> list[Callable[[], Position]]:
        """Functions that draw indices within an axis, the simplest first."""
        if size == 0 or 0 in scope.values():
            return [lambda: self.constant(size)] if size else []
        makers: list[Callable[[], Position]] = [lambda: self.constant(size)]
        for label, extent in scope.items():
            if extent < size and label not in self.sizes:
                makers.append(lambda label=label: label)  # type: ignore[misc]
            if extent <= size:
                makers.append(lambda label=label, extent=extent: self.shifted(label, extent, size))  # type: ignore[misc]
            if 2 * extent - 1 <= size:
                makers.append(lambda label=label, extent=extent: self.strided(label, extent, size))  # type: ignore[misc]
            makers.append(lambda label=label, extent=extent: self.divided(label, extent, size))  # type: ignore[misc]
            makers += self._pair_makers(label, extent, size, scope)
        return makers

    def _pair_makers(
        self, label: str, extent: int, size: int, scope: Mapping[str, int]
    ) -> list[Callable[[], Position]]:
        makers: list[Callable[[], Position]] = []
        for other, more in scope.items():
            if other != label and extent + more - 1 <= size:
                makers.append(lambda other=other: BinaryTerm("+", IndexTerm(label), IndexTerm(other)))  # type: ignore[misc]
            if (
                other != label
                and extent * more == size
                and not self.ragged & {label, other}
                and "reshaping" in self.world.features
            ):
                makers.append(lambda other=other: GroupTerm((label, other)))  # type: ignore[misc]
        return makers

    # --- affine indices ---------------------------------------------------------------------------------------------

    def constant(self, size: int) -> Term:
        """A number on the axis, or a loop's variable if it is on the axis."""
        counts = [name for name, (_, most) in self.counts.items() if most < size]
        if counts and self.pick((True, True, False)):
            return SizeTerm(self.pick(counts))
        return self.number(self.pick(range(size)))

    def number(self, value: int) -> Term:
        """A number in index arithmetic, possibly in terms of a size."""
        if self.labels_as_dims or not self.sizes or not self.rarely(4):
            return NumberTerm(value) if value >= 0 else UnaryTerm("-", NumberTerm(-value))
        name = self.pick(self.sizes)
        less = self.sizes[name] - value
        if less == 0:
            return BinaryTerm("*", SizeTerm(name), NumberTerm(1))
        return BinaryTerm("-" if less > 0 else "+", SizeTerm(name), NumberTerm(abs(less)))

    def shifted(self, label: str, extent: int, size: int) -> Term:
        """``i + 2``, ``i + t`` or ``3 - i``."""
        room = size - extent
        fitting = [name for name, (_, most) in self.counts.items() if most <= room]
        if fitting and self.pick((True, False)):
            return BinaryTerm("+", IndexTerm(label), SizeTerm(self.pick(fitting)))
        offset = self.pick(range(room + 1))
        if offset == 0 or self.pick((False, False, True)):
            return BinaryTerm("-", self.number(offset + extent - 1), IndexTerm(label))
        return BinaryTerm("+", IndexTerm(label), self.number(offset))

    def strided(self, label: str, extent: int, size: int) -> Term:
        """``2 * i + 1``."""
        offset = self.pick(range(size - 2 * extent + 2))
        term = BinaryTerm("*", NumberTerm(2), IndexTerm(label))
        return BinaryTerm("+", term, self.number(offset)) if offset else term

    def divided(self, label: str, extent: int, size: int) -> Term:
        """``i // 2`` or ``i % 3``."""
        if self.pick((False, True)):
            return BinaryTerm("%", IndexTerm(label), NumberTerm(self.pick(range(1, size + 1))))
        least = max(2, math.ceil(extent / size))
        return BinaryTerm("//", IndexTerm(label), NumberTerm(least + self.pick((0, 1))))

    # --- gathers and guards ------------------------------------------------------------------------------------------

    def guarded(self, scope: Mapping[str, int], of: Drawn) -> Position:
        """``i - 1 ? 0``."""
        index: str | Term
        if not scope:
            index = NumberTerm(self.pick((0, 1, 2)))
        else:
            label = self.pick(scope)
            choices: list[Any] = [
                label,
                BinaryTerm("-", IndexTerm(label), NumberTerm(1)),
                BinaryTerm("+", IndexTerm(label), NumberTerm(2)),
            ]
            choices += [
                BinaryTerm("-", BinaryTerm("*", NumberTerm(2), IndexTerm(label)), NumberTerm(1)),
                BinaryTerm("-", NumberTerm(1), IndexTerm(label)),
            ]
            choices += [BinaryTerm("+", IndexTerm(label), SizeTerm(name)) for name in self.counts]
            index = self.pick(choices)
        fills: tuple[Term, ...] = (NumberTerm(0), NumberTerm(1))
        if of.type.dtype == "bool":
            fills = (NumberTerm(False), NumberTerm(True))
        elif kind(of.type.dtype) == "f" and not self.exact:
            fills = (NumberTerm(0), NumberTerm(0.5), UnaryTerm("-", NumberTerm(math.inf)))
        return GuardedTerm(index, self.pick(fills))

    def gathered(self, size: int, scope: Mapping[str, int]) -> Position:
        """``ids[s]``, or any integers modulo the size of the axis."""
        known = [x for x in self.tensors() if self.is_below(x, size) and self.can_access(x, scope)]
        if known and self.pick((True, True, False)):
            return self.access(self.pick(known), scope, guards=False).term
        found = self.integer(scope).term
        return BinaryTerm("%", found, NumberTerm(size))

    def is_below(self, drawn: Drawn, size: int) -> bool:
        """True if a tensor's values are known to index an axis of that size."""
        assert isinstance(drawn.term, AccessTerm)
        below = self.names[drawn.term.name].below
        return below is not None and below <= size
