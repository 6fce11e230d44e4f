"""An access turned round: which points of a label space read an element, as indices over the element's own axes.

``X[i + p]`` is read at element a by the points i = a - p; ``X[2*i]`` by i = a // 2 where a is even; ``X[i // 2]`` by
i = 2*a + r with r below 2; ``X[m // e, m % e]`` by m = e*a + b. Labels are solved for, one axis after another; those
that no axis decides are left to be summed. So the adjoint of a convolution is a convolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod

from einturnip.eingraph.builder import LabelSpace
from einturnip.eingraph.indices import affine, as_index, inside, normal, number, span
from einturnip.ir.dtypes import BOOL, I64
from einturnip.ir.einsum import Access, Index, labels_read
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarConst


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Where along an axis of the tensor the elements read stand: from ``start``; ``label`` None for one element."""

    label: int | None
    start: int


@dataclass
class InvertedAccess:
    """An access turned round.

    ``at`` gives labels as indices over others: those of ``places`` and ``summed``. A point counts where each of
    ``tests``, (index, what it is compared with), holds.
    """

    places: list[ReadPosition] = field(default_factory=list)
    at: dict[int, int | Index] = field(default_factory=dict)
    tests: list[IndexTest] = field(default_factory=list)
    summed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexTest:
    """``index op value``, where the index may be outside what it stands for."""

    op: str
    index: int | Index
    value: int | Index

    def condition(self) -> Scalar:
        """The test as an expression."""
        value = ScalarConst(self.value, I64) if isinstance(self.value, int) else number(self.value)
        return ScalarCall(self.op, (number(self.index), value), BOOL)


class NotInvertible(Exception):
    """An access that cannot be turned round so; a scatter by key is what is left."""


def invert_access(space: LabelSpace, access: Access, shape: Sequence[int]) -> InvertedAccess | None:
    """The access turned round, new labels added to ``space``; None where no formula of indices tells the points.

    No label of the space may be empty.
    """
    try:
        return _Inverting(space, access, shape).result()
    except NotInvertible:
        return None


class _Inverting:
    def __init__(self, space: LabelSpace, access: Access, shape: Sequence[int]) -> None:
        self.space, self.access, self.shape = space, access, shape
        self.known: set[int] = set()
        self.at: dict[int, int | Index] = {}
        self.tests: list[IndexTest] = []
        self.new: list[int] = []
        self.places: list[ReadPosition | None] = [None] * len(access)

    def result(self) -> InvertedAccess:
        for axis, index in enumerate(self.access):
            self._take_label(axis, as_index(index))
        rest = [axis for axis, place in enumerate(self.places) if place is None]
        for axis in sorted(rest, key=lambda a: len(as_index(self.access[a]).terms)):
            self._solve_axis(axis)
        free = (labels_read(self.access) | set(self.new)) - self.known - set(self.at)
        read = {q for index in self.at.values() for q in labels_read((index,))}
        used = [p for p in sorted(free) if p in read or p not in self.new]
        places = [place for place in self.places if place is not None]
        return InvertedAccess(places, self.at, self._open(self.tests), tuple(used))

    def _take_label(self, axis: int, index: Index) -> None:
        """An axis that one label runs along, with steps of 1, is that label's."""
        if not index.affine or len(index.terms) != 1 or index.terms[0][1] != 1:
            return
        label = index.terms[0][0]
        if label not in self.known:
            self.known.add(label)
            self.places[axis] = ReadPosition(label, index.offset)

    def _current(self, index: int | Index) -> Index:
        """An index with what is known of its labels put in."""
        total = len(self.space.labels)
        found = inside(as_index(index), [self.at.get(p, p) for p in range(total)])  # type: ignore[arg-type]
        if found is None:
            raise NotInvertible
        simple = as_index(normal(found, self.space.bounds, -1))
        return simple

    def _solve_axis(self, axis: int) -> None:
        index = self._current(replace(as_index(self.access[axis]), clamped=False))
        ends = span(index, self.space.bounds)
        assert ends is not None
        low, high = max(ends[0], 0), min(ends[1], self.shape[axis] - 1)
        if low > high:
            raise NotInvertible
        if low == high == ends[0] == ends[1]:
            self.places[axis] = ReadPosition(None, low)
            return
        label = self._label(f"a{axis}", high - low + 1)
        self.known.add(label)
        self.places[axis] = ReadPosition(label, low)
        target = Index(((label, 1),), low)
        if labels_read((index,)) <= self.known:
            self.tests.append(IndexTest("eq", target, index))
            return
        target = self._before_division(index, target)
        self._decide(replace(index, divisor=1, modulus=0), target)

    def _label(self, name: str, bound: int) -> int:
        label = self.space.add_label(name, bound)
        self.new.append(label)
        return label

    def _before_division(self, index: Index, value: Index) -> Index:
        """What ``offset + terms`` is where ``... // divisor % modulus`` is ``value``, over new labels."""
        if index.modulus:
            ends = span(replace(index, modulus=0), self.space.bounds)
            assert ends is not None
            first, last = ends[0] // index.modulus, ends[1] // index.modulus
            turns = self._label("turn", last - first + 1)
            value = affine([*value.terms, (turns, index.modulus)], value.offset + first * index.modulus)
        if index.divisor > 1:
            rest = self._label("rest", index.divisor)
            scaled = [(p, c * index.divisor) for p, c in value.terms]
            value = affine([*scaled, (rest, 1)], value.offset * index.divisor)
        return value

    def _decide(self, index: Index, target: Index) -> None:
        """Solve ``index == target`` for as many points as can be: the labels with most of them."""
        open_terms = [(p, c) for p, c in index.terms if p not in self.known]
        subsets = [s for n in range(1, len(open_terms) + 1) for s in combinations(open_terms, n)]
        for chosen in sorted(subsets, key=lambda s: -prod(self.space.bounds[p] for p, _ in s)):
            others = [(p, -c) for p, c in index.terms if (p, c) not in chosen]
            rest = affine([*target.terms, *others], target.offset - index.offset)
            if (found := self._decoded(chosen, rest)) is not None:
                self._settle(*found)
                return
        raise NotInvertible

    def _decoded(
        self, chosen: Sequence[tuple[int, int]], rest: Index
    ) -> tuple[dict[int, Index], list[IndexTest]] | None:
        """Labels as the digits of ``rest``, where their coefficients are those of a number system; with its tests."""
        bounds = self.space.bounds
        for p, c in chosen:
            if c < 0:  # counted from the other end
                rest = replace(rest, offset=rest.offset - c * (bounds[p] - 1))
        order = sorted(chosen, key=lambda term: -abs(term[1]))
        at: dict[int, Index] = {}
        tests: list[IndexTest] = []
        above = 0
        for p, c in order:
            size = abs(c)
            if above and (above % size or above // size < bounds[p]):
                return None
            digit = replace(rest, divisor=size, modulus=above // size if above else 0)
            tests += [IndexTest("ge", digit, 0), IndexTest("lt", digit, bounds[p])]
            if c < 0:
                if not digit.affine:
                    return None
                digit = Index(tuple((q, -d) for q, d in digit.terms), bounds[p] - 1 - digit.offset)
            at[p], above = digit, size
        if above > 1:
            tests.append(IndexTest("eq", replace(rest, modulus=above), 0))
        return at, tests

    def _settle(self, found: dict[int, Index], tests: Iterable[IndexTest]) -> None:
        """Labels that are now known by others, put in wherever they stood."""
        self.at.update(found)
        self.at = {p: self._current(index) for p, index in self.at.items()}
        self.tests = [replace(t, index=self._current(t.index)) for t in (*self.tests, *tests)]

    def _open(self, tests: Iterable[IndexTest]) -> list[IndexTest]:
        """The tests that do not hold everywhere."""
        found: dict[IndexTest, None] = {}
        for test in tests:
            index = self._current(test.index)
            value = test.value if isinstance(test.value, int) else self._current(test.value)
            if not self._holds(test.op, index, value):
                found[IndexTest(test.op, index, value)] = None
        return list(found)

    def _holds(self, op: str, index: Index, value: int | Index) -> bool:
        ends = span(index, self.space.bounds)
        assert ends is not None
        if not isinstance(value, int):
            return index == value
        return {"ge": ends[0] >= value, "lt": ends[1] < value, "eq": ends[0] == ends[1] == value}[op]
