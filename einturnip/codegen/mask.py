"""What a box of labels decides of an einsum or a region, so that what adds nothing is not computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.einsum import Einsum
from einturnip.core.predicates import adds_nothing, conditions, settled, truth
from einturnip.core.region import Region, Step
from einturnip.core.scalar import Const, Label, Scalar, rewrite, slots_of

Held = tuple[bool | None, ...]
"""For each condition: it holds at every point of a box, at none, or that cannot be said."""


@dataclass(frozen=True)
class Variant:
    """Steps where some conditions are decided.

    ``joins``: each step's join. ``numbers``: steps that are one number everywhere. ``idle``: carried steps to which
    nothing is added.
    """

    joins: tuple[Scalar, ...]
    numbers: Mapping[int, Const]
    idle: frozenset[int]


class Mask:
    """The conditions of an einsum or a region that hang on labels alone, and what they decide."""

    def __init__(self, space: Einsum | Region) -> None:
        self.steps = space.steps if isinstance(space, Region) else (_alone(space),)
        self.carried = space.carried if isinstance(space, Region) else (0,)
        self.rescales = space.rescales if isinstance(space, Region) else ()
        self.of_step = [{c: _placed(c, s.labels) for c in conditions(s.einsum.join)} for s in self.steps]
        self.conditions = tuple(dict.fromkeys(c for found in self.of_step for c in found.values()))
        keys = [(s, slots_of(key.value)) for s in self.steps for key in s.einsum.keys]
        self._keyed = {~s.operands[slot] for s, slots in keys for slot in slots}
        self._idle: dict[Held, bool] = {}

    def held(self, box: Sequence[tuple[int, int]]) -> Held:
        """What a box, (start, stop) by label, decides."""
        return tuple([truth(c, box) for c in self.conditions])

    def idle(self, box: Sequence[tuple[int, int]]) -> bool:
        """True where a box adds nothing to any state."""
        if not self.conditions:
            return False
        held = self.held(box)
        if held not in self._idle:
            self._idle[held] = self.variant(held).idle.issuperset(self.carried)
        return self._idle[held]

    def variant(self, held: Held) -> Variant:
        """The steps, the conditions being decided so."""
        known = dict(zip(self.conditions, held, strict=True))
        joins: list[Scalar] = []
        numbers: dict[int, Const] = {}
        idle: set[int] = set()
        of = {r.step: r.of for r in self.rescales}
        for k, (step, place) in enumerate(zip(self.steps, self.of_step, strict=True)):
            given = {s: numbers[~o] for s, o in enumerate(step.operands) if o < 0 and ~o in numbers}
            told = {condition: known[placed] for condition, placed in place.items()}
            join = settled(step.einsum.join, told.get, given)
            joins.append(join)
            if k in self.carried:
                if adds_nothing(step.einsum, join) or of.get(k) in idle:
                    idle.add(k)
            elif isinstance(join, Const) and step.einsum.aggregation is None and k not in self._keyed:
                numbers[k] = join
        return Variant(tuple(joins), numbers, frozenset(idle))


def _alone(einsum: Einsum) -> Step:
    return Step(einsum, tuple(range(len(einsum.labels))), tuple(range(len(einsum.accesses))))


def _placed(condition: Scalar, labels: Sequence[int]) -> Scalar:
    """A condition of a step over the region's labels."""
    return rewrite(condition, lambda e: Label(labels[e.position], e.dtype) if isinstance(e, Label) else e)
