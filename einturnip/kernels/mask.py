"""Masks: conditions on labels in the joins of an einsum or a region, decided for boxes of labels.

A box to which the mask adds nothing is not computed, and a box on which a condition is constant needs no test of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from einturnip.ir.einsum import Einsum
from einturnip.ir.predicates import adds_nothing, conditions, specialized, truth
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import (
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
    children,
    labels_of,
    rewrite,
    slots_of,
)

ConditionValues = tuple[bool | None, ...]
"""For each condition, whether it holds at every point of a box (True), at none (False), or neither is known (None)."""


@dataclass(frozen=True)
class MaskVariant:
    """Steps specialised to decided conditions.

    ``joins``: each step's join. ``numbers``: steps that are one number everywhere. ``idle``: carried steps to which
    nothing is added. ``masked``: steps whose value is replaced by a number where a condition over the region's labels
    fails; the joins of other steps read the replaced value.
    """

    joins: tuple[Scalar, ...]
    numbers: Mapping[int, ScalarConst]
    idle: frozenset[int]
    masked: Mapping[int, tuple[Scalar, ScalarConst]]


class LabelMask:
    """The conditions of an einsum or a region that depend on labels alone."""

    def __init__(self, space: Einsum | Region) -> None:
        self.steps = space.steps if isinstance(space, Region) else (_alone(space),)
        self.carried = space.carried if isinstance(space, Region) else (0,)
        self.rescales = space.rescales if isinstance(space, Region) else ()
        self.of_step = [{c: _placed(c, s.labels) for c in conditions(s.einsum.join)} for s in self.steps]
        self.conditions = tuple(dict.fromkeys(c for found in self.of_step for c in found.values()))
        keys = [(s, slots_of(key.value)) for s in self.steps for key in s.einsum.keys]
        self._keyed = {~s.operands[slot] for s, slots in keys for slot in slots}
        self._variants: dict[tuple[ConditionValues, bool], MaskVariant] = {}

    def evaluate(self, box: Sequence[tuple[int, int]]) -> ConditionValues:
        """Return the condition values on a box, (start, stop) by label."""
        return tuple([truth(c, box) for c in self.conditions])

    def is_idle(self, box: Sequence[tuple[int, int]]) -> bool:
        """Return True where a box adds nothing to any state."""
        return self.is_idle_where(self.evaluate(box))

    def is_idle_where(self, decided: ConditionValues) -> bool:
        """Return True where nothing is added to any state, given the condition values."""
        if not self.conditions or not self.carried:
            return False
        return self.variant(decided).idle.issuperset(self.carried)

    def variant(self, decided: ConditionValues, hoists: bool = True) -> MaskVariant:
        """Return the steps specialised to condition values; ``hoists``: masked values may be overwritten."""
        found = self._variants.get((decided, hoists))
        if found is None:
            found = self._variants[decided, hoists] = self._specialized(decided, hoists)
        return found

    def _specialized(self, decided: ConditionValues, hoists: bool) -> MaskVariant:
        known = dict(zip(self.conditions, decided, strict=True))
        joins: list[Scalar] = []
        numbers: dict[int, ScalarConst] = {}
        idle: set[int] = set()
        of = {r.step: r.of for r in self.rescales}
        for k, (step, place) in enumerate(zip(self.steps, self.of_step, strict=True)):
            given = {s: numbers[~o] for s, o in enumerate(step.operands) if o < 0 and ~o in numbers}
            values = {condition: known[placed] for condition, placed in place.items()}
            join = specialized(step.einsum.join, values.get, given)
            joins.append(join)
            if k in self.carried:
                if adds_nothing(step.einsum, join) or of.get(k) in idle:
                    idle.add(k)
            elif isinstance(join, ScalarConst) and step.einsum.aggregation is None and k not in self._keyed:
                numbers[k] = join
        masked = self._hoist_conditions(joins, idle) if hoists else {}
        return MaskVariant(tuple(joins), numbers, frozenset(idle), masked)

    def _hoist_conditions(self, joins: list[Scalar], idle: set[int]) -> dict[int, tuple[Scalar, ScalarConst]]:
        """Move conditions from readers to values that are read under one condition only."""
        found: dict[int, set[tuple[Scalar, ScalarConst] | None]] = {}
        for k, step in enumerate(self.steps):
            for slot, o in enumerate(step.operands):
                if o < 0 and k not in idle:
                    found.setdefault(~o, set()).update(_read_conditions(joins[k], slot, step.labels))
        masked = {}
        for k, reads in found.items():
            (condition, *others) = reads or {None}
            own = set(self.steps[k].labels[: self.steps[k].einsum.n_out])
            excluded = k in self.carried or k in self._keyed
            if condition is not None and not others and not excluded and labels_of(condition[0]) <= own:
                masked[k] = condition
        for k, step in enumerate(self.steps):
            slots = frozenset(s for s, o in enumerate(step.operands) if o < 0 and ~o in masked)
            joins[k] = _unmasked(joins[k], slots) if slots else joins[k]
        return masked


label_mask = lru_cache(maxsize=64)(LabelMask)


def _alone(einsum: Einsum) -> RegionStep:
    return RegionStep(einsum, tuple(range(len(einsum.labels))), tuple(range(len(einsum.accesses))))


def _is_masked_read(expr: Scalar) -> bool:
    """Return True for ``where(condition on labels, operand, number)``."""
    if not isinstance(expr, ScalarCall) or expr.op != "where" or slots_of(expr.arguments[0]):
        return False
    return isinstance(expr.arguments[1], OperandRef) and isinstance(expr.arguments[2], ScalarConst)


def _read_conditions(expr: Scalar, slot: int, labels: Sequence[int]) -> Iterator[tuple[Scalar, ScalarConst] | None]:
    """Yield the condition and the replacing number of each read of an operand; None for a bare read."""
    match expr:
        case OperandRef(found, _) if found == slot:
            yield None
        case ScalarCall("where", (condition, OperandRef(found, _), ScalarConst() as number), _) if (
            found == slot and _is_masked_read(expr)
        ):
            yield _placed(condition, labels), number
        case _:
            for inner in children(expr):
                yield from _read_conditions(inner, slot, labels)


def _unmasked(expr: Scalar, slots: frozenset[int]) -> Scalar:
    """Replace each read under a condition by the bare operand."""
    match expr:
        case ScalarCall("where", (_, OperandRef(slot, _) as operand, ScalarConst()), _) if slot in slots:
            return operand
        case ScalarCall(_, arguments, _):
            return replace(expr, arguments=tuple(_unmasked(a, slots) for a in arguments))
        case ScalarCast(argument, _):
            return replace(expr, argument=_unmasked(argument, slots))
        case _:
            return expr


def _placed(condition: Scalar, labels: Sequence[int]) -> Scalar:
    """Map a condition of a step to the region's labels."""
    return rewrite(condition, lambda e: LabelValue(labels[e.position], e.dtype) if isinstance(e, LabelValue) else e)
