"""What a box of labels decides of an einsum or a region, so that what adds nothing is not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
"""For each condition: it holds at every point of a box, at none, or that cannot be said."""


@dataclass(frozen=True)
class MaskVariant:
    """Steps where some conditions are decided.

    ``joins``: each step's join. ``numbers``: steps that are one number everywhere. ``idle``: carried steps to which
    nothing is added. ``veiled``: steps whose value counts only where a condition over the region's labels holds, and
    is the number elsewhere; the joins read it as if it were so.
    """

    joins: tuple[Scalar, ...]
    numbers: Mapping[int, ScalarConst]
    idle: frozenset[int]
    veiled: Mapping[int, tuple[Scalar, ScalarConst]]


class LabelMask:
    """The conditions of an einsum or a region that hang on labels alone, and what they decide."""

    def __init__(self, space: Einsum | Region) -> None:
        self.steps = space.steps if isinstance(space, Region) else (_alone(space),)
        self.carried = space.carried if isinstance(space, Region) else (0,)
        self.rescales = space.rescales if isinstance(space, Region) else ()
        self.of_step = [{c: _placed(c, s.labels) for c in conditions(s.einsum.join)} for s in self.steps]
        self.conditions = tuple(dict.fromkeys(c for found in self.of_step for c in found.values()))
        keys = [(s, slots_of(key.value)) for s in self.steps for key in s.einsum.keys]
        self._keyed = {~s.operands[slot] for s, slots in keys for slot in slots}
        self._idle: dict[ConditionValues, bool] = {}

    def held(self, box: Sequence[tuple[int, int]]) -> ConditionValues:
        """What a box, (start, stop) by label, decides."""
        return tuple([truth(c, box) for c in self.conditions])

    def idle(self, box: Sequence[tuple[int, int]]) -> bool:
        """True where a box adds nothing to any state."""
        return self.idles(self.held(box))

    def idles(self, held: ConditionValues) -> bool:
        """True where nothing is added to any state, the conditions being decided so."""
        if not self.conditions or not self.carried:
            return False
        if held not in self._idle:
            self._idle[held] = self.variant(held).idle.issuperset(self.carried)
        return self._idle[held]

    def variant(self, held: ConditionValues, veils: bool = True) -> MaskVariant:
        """The steps, the conditions being decided so. ``veils``: what is masked may be written over once it is made."""
        known = dict(zip(self.conditions, held, strict=True))
        joins: list[Scalar] = []
        numbers: dict[int, ScalarConst] = {}
        idle: set[int] = set()
        of = {r.step: r.of for r in self.rescales}
        for k, (step, place) in enumerate(zip(self.steps, self.of_step, strict=True)):
            given = {s: numbers[~o] for s, o in enumerate(step.operands) if o < 0 and ~o in numbers}
            told = {condition: known[placed] for condition, placed in place.items()}
            join = specialized(step.einsum.join, told.get, given)
            joins.append(join)
            if k in self.carried:
                if adds_nothing(step.einsum, join) or of.get(k) in idle:
                    idle.add(k)
            elif isinstance(join, ScalarConst) and step.einsum.aggregation is None and k not in self._keyed:
                numbers[k] = join
        veiled = self._veil(joins, idle) if veils else {}
        return MaskVariant(tuple(joins), numbers, frozenset(idle), veiled)

    def _veil(self, joins: list[Scalar], idle: set[int]) -> dict[int, tuple[Scalar, ScalarConst]]:
        """Values that are read under one condition only: that is found here, and taken out of the joins."""
        found: dict[int, set[tuple[Scalar, ScalarConst] | None]] = {}
        for k, step in enumerate(self.steps):
            for slot, o in enumerate(step.operands):
                if o < 0 and k not in idle:
                    found.setdefault(~o, set()).update(_veils(joins[k], slot, step.labels))
        veiled = {}
        for k, veils in found.items():
            (veil, *others) = veils or {None}
            own = set(self.steps[k].labels[: self.steps[k].einsum.n_out])
            apart = k in self.carried or k in self._keyed
            if veil is not None and not others and not apart and labels_of(veil[0]) <= own:
                veiled[k] = veil
        for k, step in enumerate(self.steps):
            slots = frozenset(s for s, o in enumerate(step.operands) if o < 0 and ~o in veiled)
            joins[k] = _unveiled(joins[k], slots) if slots else joins[k]
        return veiled


def _alone(einsum: Einsum) -> RegionStep:
    return RegionStep(einsum, tuple(range(len(einsum.labels))), tuple(range(len(einsum.accesses))))


def _is_veil(expr: Scalar) -> bool:
    """True for ``where(condition on labels, operand, number)``."""
    if not isinstance(expr, ScalarCall) or expr.op != "where" or slots_of(expr.arguments[0]):
        return False
    return isinstance(expr.arguments[1], OperandRef) and isinstance(expr.arguments[2], ScalarConst)


def _veils(expr: Scalar, slot: int, labels: Sequence[int]) -> Iterator[tuple[Scalar, ScalarConst] | None]:
    """The conditions under which an operand is read, and what counts elsewhere; None where it is read bare."""
    match expr:
        case OperandRef(found, _) if found == slot:
            yield None
        case ScalarCall("where", (condition, OperandRef(found, _), ScalarConst() as number), _) if (
            found == slot and _is_veil(expr)
        ):
            yield _placed(condition, labels), number
        case _:
            for inner in children(expr):
                yield from _veils(inner, slot, labels)


def _unveiled(expr: Scalar, slots: frozenset[int]) -> Scalar:
    """The expression with the bare operand where it is read under a condition."""
    match expr:
        case ScalarCall("where", (_, OperandRef(slot, _) as operand, ScalarConst()), _) if slot in slots:
            return operand
        case ScalarCall(_, arguments, _):
            return replace(expr, arguments=tuple(_unveiled(a, slots) for a in arguments))
        case ScalarCast(argument, _):
            return replace(expr, argument=_unveiled(argument, slots))
        case _:
            return expr


def _placed(condition: Scalar, labels: Sequence[int]) -> Scalar:
    """A condition of a step over the region's labels."""
    return rewrite(condition, lambda e: LabelValue(labels[e.position], e.dtype) if isinstance(e, LabelValue) else e)
