"""Inverts an access: finds the points of a label space that read a given element of the tensor.

The labels become indices over the tensor's own axes. ``X[i + p]`` is read at element a by the points i = a - p;
``X[2*i]`` by i = a // 2 where a is even; ``X[i // 2]`` by i = 2*a + r with r below 2; ``X[m // e, m % e]`` by m = e*a +
b. Axes are solved one after another; labels that no axis determines are summed. Therefore the adjoint of a convolution
is itself a convolution.
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
    """The part of an axis that is read, from ``start``; ``label`` None for a single element."""

    label: int | None
    start: int


@dataclass
class InvertedAccess:
    """An inverted access.

    ``at`` gives each solved label as an index over the labels of ``places`` and ``summed``. A point contributes only
    where all of ``tests`` hold.
    """

    places: list[ReadPosition] = field(default_factory=list)
    at: dict[int, int | Index] = field(default_factory=dict)
    tests: list[IndexTest] = field(default_factory=list)
    summed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexTest:
    """The condition ``index op value``; the index may be outside the range of the label that it replaces."""

    op: str
    index: int | Index
    value: int | Index

    def condition(self) -> Scalar:
        """The test as a scalar expression."""
        value = ScalarConst(self.value, I64) if isinstance(self.value, int) else number(self.value)
        return ScalarCall(self.op, (number(self.index), value), BOOL)


class NotInvertible(Exception):
    """Raised for an access that index arithmetic cannot invert; the caller scatters by key instead."""


def invert_access(space: LabelSpace, access: Access, shape: Sequence[int]) -> InvertedAccess | None:
    """Invert an access, adding new labels to ``space``.

    Returns None where index arithmetic cannot express the points.

    No label of the space may have size 0.
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
            self._assign_label(axis, as_index(index))
        rest = [axis for axis, place in enumerate(self.places) if place is None]
        for axis in sorted(rest, key=lambda a: len(as_index(self.access[a]).terms)):
            self._solve_axis(axis)
        free = (labels_read(self.access) | set(self.new)) - self.known - set(self.at)
        read = {q for index in self.at.values() for q in labels_read((index,))}
        used = [p for p in sorted(free) if p in read or p not in self.new]
        places = [place for place in self.places if place is not None]
        return InvertedAccess(places, self.at, self._open(self.tests), tuple(used))

    def _assign_label(self, axis: int, index: Index) -> None:
        """Assign an axis to its label, where a single label runs along it with stride 1."""
        if not index.affine or len(index.terms) != 1 or index.terms[0][1] != 1:
            return
        label = index.terms[0][0]
        if label not in self.known:
            self.known.add(label)
            self.places[axis] = ReadPosition(label, index.offset)

    def _current(self, index: int | Index) -> Index:
        """Substitute the labels solved so far into an index."""
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
        self._solve_equation(replace(index, divisor=1, modulus=0), target)

    def _label(self, name: str, bound: int) -> int:
        label = self.space.add_label(name, bound)
        self.new.append(label)
        return label

    def _before_division(self, index: Index, value: Index) -> Index:
        """Undo division and modulus: ``offset + terms``, given their result ``value``, over new labels."""
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

    def _solve_equation(self, index: Index, target: Index) -> None:
        """Solve ``index == target`` for the combination of labels that spans the most points."""
        open_terms = [(p, c) for p, c in index.terms if p not in self.known]
        subsets = [s for n in range(1, len(open_terms) + 1) for s in combinations(open_terms, n)]
        for chosen in sorted(subsets, key=lambda s: -prod(self.space.bounds[p] for p, _ in s)):
            others = [(p, -c) for p, c in index.terms if (p, c) not in chosen]
            rest = affine([*target.terms, *others], target.offset - index.offset)
            if (found := self._digits(chosen, rest)) is not None:
                self._record(*found)
                return
        raise NotInvertible

    def _digits(
        self, chosen: Sequence[tuple[int, int]], rest: Index
    ) -> tuple[dict[int, Index], list[IndexTest]] | None:
        """Solve for labels as digits of ``rest`` in a positional system; also return the tests."""
        bounds = self.space.bounds
        for p, c in chosen:
            if c < 0:  # count from the end of the range
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

    def _record(self, found: dict[int, Index], tests: Iterable[IndexTest]) -> None:
        """Record solved labels and substitute them into everything solved before."""
        self.at.update(found)
        self.at = {p: self._current(index) for p, index in self.at.items()}
        self.tests = [replace(t, index=self._current(t.index)) for t in (*self.tests, *tests)]

    def _open(self, tests: Iterable[IndexTest]) -> list[IndexTest]:
        """Return the tests that do not hold at every point."""
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
