"""Derives the region of a group of nodes from algebraic laws, or finds that no law allows fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod

from einturnip.ir.dtypes import F32, F64, I64
from einturnip.ir.einsum import Access, Einsum, labels_read, relabelled
from einturnip.ir.laws import LawFactor, LinearTerm, deviation_factor, exponent, factors, linear
from einturnip.ir.region import Region, RegionStep, Rescale, Shift
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarConst, labels_of, rewrite, slots_of, walk
from einturnip.tuning.search import MAX_TERM_NODES


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A node of a group: ``operands`` are outside tensors by number, or ``~k`` for the value of member k.

    ``classes`` numbers its labels within the group.
    """

    einsum: Einsum
    operands: tuple[int, ...]
    classes: tuple[int, ...]


def derive(
    members: Sequence[GroupMember], streamed: Sequence[int], max_untiled: int
) -> tuple[Region, tuple[int, ...]] | None:
    """Return a group's region and its operands' numbers; None where no law allows it or it is too large.

    ``max_untiled`` limits the elements spanned by output labels that cannot be tiled, and by inner labels.
    """
    if not streamed:
        return _region(members, members[-1].classes, 0)
    order = _label_order(members, streamed)
    region, reads = _region(members, order, len(streamed))
    corrections = _Terms(region).corrections()
    untiled = _untiled_labels(region)
    if corrections is None or max(prod(region.bounds[p] for p in untiled), _inner(region)) > max_untiled:
        return None
    rescales, shifts = corrections
    steps = _counting(region.steps, frozenset(shift.of for shift in shifts))
    return replace(region, steps=steps, rescales=rescales, shifts=shifts, untiled=untiled), reads


def _region(members: Sequence[GroupMember], order: Sequence[int], n_streamed: int) -> tuple[Region, tuple[int, ...]]:
    """Return the members as steps over labels in this order, and the numbers of their operands."""
    # A label is named as in the output, else as in the first step that has it.
    last, called = members[-1], (*reversed(members), members[-1])
    known = {c: (m.einsum.labels[p], m.einsum.bounds[p]) for m in called for p, c in enumerate(m.classes)}
    steps, reads = _steps(members, {c: i for i, c in enumerate(order)})
    plain = all(isinstance(index, int) for read in reads for index in read.access)
    region = Region(
        labels=tuple(known[c][0] for c in order),
        bounds=tuple(known[c][1] for c in order),
        n_out=last.einsum.n_out,
        n_streamed=n_streamed,
        accesses=tuple(read.access for read in reads),
        dtypes=tuple(read.einsum.dtypes[read.slot] for read in reads),
        steps=steps,
        rescales=(),
        shapes=() if plain else tuple(read.einsum.operand_shape(read.slot) for read in reads),
    )
    return region, tuple(read.number for read in reads)


def _counting(steps: Sequence[RegionStep], means: frozenset[int]) -> tuple[RegionStep, ...]:
    """Make the given means also count their values."""
    found = list(steps)
    for k in means:
        aggregation = steps[k].einsum.aggregation
        assert aggregation is not None
        counted = replace(aggregation, state=(*aggregation.state, I64))
        found[k] = replace(steps[k], einsum=replace(steps[k].einsum, aggregation=counted))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Read:
    """Operand ``number``, read by ``slot`` of an einsum; ``access`` is over the region's labels."""

    number: int
    access: Access
    einsum: Einsum
    slot: int


def _label_order(members: Sequence[GroupMember], streamed: Sequence[int]) -> list[int]:
    """Order the region's labels: output, streamed (first those that every aggregation binds), others."""
    folds = [{m.classes[p] for p in m.einsum.aggregated} for m in members]
    folds = [bound for bound in folds if not bound.isdisjoint(streamed)]
    out = members[-1].classes[: members[-1].einsum.n_out]
    along = sorted(streamed, key=lambda c: not all(c in bound for bound in folds))
    return list(dict.fromkeys((*out, *along, *(c for m in members for c in m.classes))))


def _steps(members: Sequence[GroupMember], position: dict[int, int]) -> tuple[tuple[RegionStep, ...], list[_Read]]:
    """Convert members to steps and collect outside reads; equal accesses of a tensor share a slot."""
    slots: dict[tuple[int, Access], int] = {}
    reads: list[_Read] = []
    steps: list[RegionStep] = []
    for member in members:
        labels = tuple(position[c] for c in member.classes)
        operands: list[int] = []
        for slot, number in enumerate(member.operands):
            if number < 0:
                operands.append(number)
                continue
            access = tuple(relabelled(index, labels) for index in member.einsum.accesses[slot])
            if (number, access) not in slots:
                slots[number, access] = len(reads)
                reads.append(_Read(number, access, member.einsum, slot))
            operands.append(slots[number, access])
        steps.append(RegionStep(member.einsum, labels, tuple(operands)))
    return tuple(steps), reads


def _untiled_labels(region: Region) -> tuple[int, ...]:
    """Output labels that some tiled or carried step lacks."""
    steps = [region.steps[k] for k in (*region.tiled, *region.carried)]
    outs = [set(step.labels[: step.einsum.n_out]) for step in steps]
    return tuple(p for p in range(region.n_out) if not all(p in out for out in outs))


def _inner(region: Region) -> int:
    """The maximum number of elements that one step's inner labels span."""
    inner = range(region.n_out + region.n_streamed, len(region.labels))
    return max(prod(region.bounds[p] for p in set(step.labels).intersection(inner)) for step in region.steps)


class _Terms:
    """The scalar term of each step, with tiled maps substituted; slot ``~k`` denotes the value of step k."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self._carried = frozenset(region.carried)
        self._maps = frozenset(k for k in region.tiled if region.steps[k].einsum.aggregation is None)
        self._terms: list[Scalar] = []
        self._seen: list[frozenset[int]] = []
        self.large = False
        for step in region.steps:
            self._terms.append(self._written(step, step.einsum.join))
            keys = [self._written(step, key.value) for key in step.einsum.keys]
            self._seen.append(self._folds(self._terms[-1]).union(*map(self._folds, keys)))

    def corrections(self) -> tuple[tuple[Rescale, ...], tuple[Shift, ...]] | None:
        """Return the corrections of sums for changing maxima, minima and means; None where one has none."""
        rescales: list[Rescale] = []
        shifts: list[Shift] = []
        for k in self.region.carried if not self.large else ():
            if self._seen[k]:
                shift = self._shift(k)
                shares = self._shares(k) if shift is None else {}
                if shares is None:
                    return None
                rescales += [Rescale(k, m, c) for m, c in sorted(shares.items()) if c]
                shifts += [shift] if shift is not None else []
        return None if self.large else (tuple(rescales), tuple(shifts))

    def _written(self, step: RegionStep, expr: Scalar) -> Scalar:
        """A step's join or key over the region's labels and slots."""

        def leaf(expr: Scalar) -> Scalar:
            match expr:
                case LabelValue(p, dtype):
                    return LabelValue(step.labels[p], dtype)
                case OperandRef(slot, dtype):
                    source = step.operands[slot]
                    return self._terms[~source] if ~source in self._maps else OperandRef(source, dtype)
            return expr

        term = rewrite(expr, leaf) if not self.large else expr
        self.large = self.large or sum(1 for _ in walk(term)) > MAX_TERM_NODES
        return term

    def _folds(self, expr: Scalar) -> frozenset[int]:
        """The carried steps that an expression depends on, also through tiled steps."""
        steps = [~slot for slot in slots_of(expr) if slot < 0]
        return frozenset(k for k in steps if k in self._carried).union(
            *(self._seen[k] for k in steps if k not in self._carried)
        )

    def _shift(self, k: int) -> Shift | None:
        """The correction of a sum of squared deviations when its mean changes; None for any other sum."""
        (m, *others) = self._seen[k]
        step, mean = self.region.steps[k], self.region.steps[m]
        total, average = step.einsum.aggregation, mean.einsum.aggregation
        if others or self._seen[m] or total is None or average is None:
            return None
        exact = all(op.state in ((F32,), (F64,)) and op.state == (op.result,) for op in (total, average))
        exact = exact and total.is_linear and average.is_mean
        bound = [{s.labels[p] for p in s.einsum.aggregated} for s in (step, mean)]
        own = [set(s.labels[: s.einsum.n_out]) for s in (step, mean)]
        if not exact or bound[0] != bound[1] or not own[1] <= own[0] or step.einsum.keys or mean.einsum.keys:
            return None
        coefficient, count = 1.0, 0
        for factor in factors(self._terms[k]):
            match factor.expr:
                case _ if factor.where:
                    return None
                case ScalarConst(int() | float() as value, _) if value:
                    coefficient *= float(value) ** factor.power
                case expr if factor.power == 1:
                    c = deviation_factor(expr, self._terms[m], OperandRef(~m, mean.einsum.dtype))
                    if c is None:
                        return None
                    coefficient, count = coefficient * c, count + 1
                case _:
                    return None
        return Shift(k, m, coefficient) if count == 2 and isfinite(coefficient) else None

    def _shares(self, k: int) -> dict[int, float] | None:
        """The coefficient of each maximum or minimum in the exponents of a sum's terms."""
        aggregation = self.region.steps[k].einsum.aggregation
        assert aggregation is not None
        if not aggregation.is_linear or not aggregation.state[0].is_float:
            return None
        total: dict[int, float] = {}
        for factor in factors(self._terms[k]):
            if any(map(self._folds, factor.where)):
                return None
            if self._folds(factor.expr):
                shares = self._shares_of(factor)
                if shares is None:
                    return None
                for m, c in shares.items():
                    total[m] = total.get(m, 0.0) + c
        return total

    def _shares_of(self, factor: LawFactor) -> dict[int, float] | None:
        """The same for one factor, which must be an exponential that cannot overflow within the bounds."""
        found = exponent(factor)
        if found is None:
            return None
        form = linear(*found)
        holds = factor.where | form.where
        shares: dict[int, float] = {}
        for m in sorted(self._folds(factor.expr)):
            step = self.region.steps[m]
            value = OperandRef(~m, step.einsum.dtype)
            aggregation = step.einsum.aggregation
            sign = aggregation.bound_sign if aggregation else 0
            coefficient = form.terms.get(value, 0.0)
            if sign * coefficient >= 0 or self._seen[m] or not aggregation or not aggregation.finalize_is_identity:
                return None
            bounded = linear(self._terms[m], float(sign))
            if not bounded.where <= holds:
                return None
            form = form.without(
                LinearTerm({**bounded.terms, value: -float(sign)}, constant=bounded.constant), abs(coefficient)
            )
            shares[m] = coefficient
        rest = (*form.terms, *form.where)
        if any(map(self._folds, rest)) or any(map(self._streams, form.terms)):
            return None
        return shares if all(map(isfinite, (form.constant, *form.terms.values(), *shares.values()))) else None

    def _streams(self, expr: Scalar) -> bool:
        """True for an expression that varies along a streamed label."""
        region, labels = self.region, set(labels_of(expr))
        for slot in slots_of(expr):
            if slot >= 0:
                labels |= labels_read(region.accesses[slot])
            else:
                labels |= set(region.steps[~slot].labels[: region.steps[~slot].einsum.n_out])
        return not labels.isdisjoint(region.aggregated)
