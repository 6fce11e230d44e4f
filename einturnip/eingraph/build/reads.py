"""Lowers one access: a direct read, or separate nodes for gathers and guards."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from einturnip.eingraph.builder import LabelSpace
from einturnip.eingraph.indices import as_index, number, shifted, span
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.ir.einsum import Access, Index, labels_read
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarCast, ScalarConst


class OperandRead:
    """Lowers an access to an operand of ``space``, with values of ``dtype``.

    ``at`` holds the static indices by axis, ``data`` the data-dependent ones as i64. A guard supplies the value where
    its index is out of range; with several guards the first one applies. A node over exactly the labels ``out`` orders
    its axes like them.
    """

    def __init__(self, space: LabelSpace, tensor: int, dtype: DType, name: str, out: tuple[int, ...]) -> None:
        self.space, self.tensor, self.dtype, self.name, self.out = space, tensor, dtype, name, out
        self.shape = space.drafts.tensor(tensor)[1]
        self.at: dict[int, int | Index] = {}
        self.data: dict[int, Scalar] = {}
        self._fills: dict[int, Scalar] = {}
        self._otherwise: Scalar | None = None

    def guard(self, axis: int, fill: Scalar) -> None:
        """Guard the index of an axis; a test that is decided statically is not emitted."""
        size = self.shape[axis]
        ends = self._ends(axis)
        if self._otherwise is not None or (ends is not None and ends[0] >= 0 and ends[1] < size):
            return
        if size == 0 or (ends is not None and (ends[0] >= size or ends[1] < 0)):
            self._otherwise = fill
        elif axis in self.data or ends is not None:
            self._fills[axis] = fill

    def value(self) -> Scalar:
        """Return the element that is read, or the fill value where an index is out of range."""
        if self._otherwise is not None:
            return self._guarded(self._otherwise)
        if not self.data and not self._fills:
            return self._converted(self.space.operand(self.tensor, tuple(self.at[a] for a in range(len(self.shape)))))
        packed = self._pack()
        labels = self._labels(range(len(self.shape)))
        if self.data:
            tensor, access = self._gather(labels)
        else:
            tensor, access = self.tensor, tuple(self._clamped(axis) for axis in range(len(self.shape)))
        if self._fills:
            extra = frozenset[int]().union(*map(self.space.labels_in, self._fills.values())) - set(labels)
            value = self._guarded(self._converted(self.space.operand(tensor, access)))
            order = self._ordered((*labels, *sorted(extra)))
            tensor, access = self.space.emit(order, (), value, None), order
        final = tuple(packed.get(p, p) if isinstance(p, int) else p for p in access)
        return self._converted(self.space.operand(tensor, final))

    def _ordered(self, labels: tuple[int, ...]) -> tuple[int, ...]:
        return self.out if sorted(labels) == list(self.out) else labels

    def _converted(self, value: Scalar) -> Scalar:
        return value if value.dtype == self.dtype else ScalarCast(value, self.dtype)

    def _ends(self, axis: int) -> tuple[int, int] | None:
        """Minimum and maximum of a static index; None for a data-dependent one or an empty range."""
        return span(as_index(self.at[axis]), self.space.bounds) if axis in self.at else None

    def _labels(self, axes: Iterable[int]) -> tuple[int, ...]:
        """The labels that the indices of some axes depend on, in axis order."""
        found: list[int] = []
        for axis in axes:
            found += sorted(labels_read((self.at[axis],)) if axis in self.at else self.space.labels_in(self.data[axis]))
        return tuple(dict.fromkeys(found))

    def _pack(self) -> dict[int, Index]:
        """Replace an index over labels, such as ``i + p``, by one new label where that has fewer values.

        Only if nothing else uses those labels. A guarded convolution operand is then padded instead of expanded.
        Returns the index that each new label replaces.
        """
        packed: dict[int, Index] = {}
        fills = frozenset[int]().union(*map(self.space.labels_in, self._fills.values()))
        for axis, index in list(self.at.items()):
            if isinstance(index, int) or len(index.terms) < 2 or (ends := self._ends(axis)) is None:
                continue
            elsewhere = fills | set(self._labels(a for a in range(len(self.shape)) if a != axis))
            own = [p for p, _ in index.terms if p not in elsewhere]
            size, outer = ends[1] - ends[0] + 1, shifted(index, -ends[0])
            if outer is not None and size < prod(self.space.bounds[p] for p in own):
                label = self.space.add_label(self.space.labels[own[0]], size)
                self.at[axis], packed[label] = Index(((label, 1),), ends[0]), outer
        return packed

    def _clamped(self, axis: int) -> int | Index:
        index = self.at[axis]
        if axis not in self._fills:
            return index
        index = as_index(index)
        return Index(index.terms, index.offset, index.divisor, index.modulus, clamped=True)

    def _gather(self, labels: tuple[int, ...]) -> tuple[int, Access]:
        """Emit a gather by data-dependent indices, and the access to it; guarded axes stay whole."""
        space, last = self.space, [n - 1 for n in self.shape]
        access: list[int | Index] = []
        keys: list[tuple[int, Scalar]] = []
        whole: dict[int, int | Index] = {}
        for axis, size in enumerate(self.shape):
            if axis in self.data:
                value = self.data[axis]
                if axis in self._fills:
                    value = ScalarCall("min", (value, ScalarConst(last[axis], I64)), I64)
                    value = ScalarCall("max", (value, ScalarConst(0, I64)), I64)
                keys.append((space.add_label(f"{self.name}.{axis}", size), value))
                access.append(keys[-1][0])
            elif axis in self._fills:
                access.append(space.add_label(f"{self.name}.{axis}", size))
                whole[access[-1]] = self._clamped(axis)  # type: ignore[index]
            else:
                access.append(self.at[axis])
        join = space.operand(self.tensor, tuple(access))
        bound = [label for label, _ in keys]
        kept = space.labels_in(join).union(*(space.labels_in(value) for _, value in keys)) - set(bound)
        order = self._ordered((*(p for p in labels if p in kept), *whole))
        node = space.emit(order, bound, join, aggregation("pick", join.dtype), None, keys)
        return node, tuple(whole.get(p, p) for p in order)

    def _guarded(self, value: Scalar) -> Scalar:
        """``value`` where all guarded indices are in range, else the fill of the first that is not."""
        for axis in sorted(self._fills, reverse=True):
            value = ScalarCall("where", (self._is_inside(axis), value, self._fills[axis]), self.dtype)
        return value

    def _is_inside(self, axis: int) -> Scalar:
        ends = self._ends(axis)
        index = self.data[axis] if axis in self.data else number(self.at[axis])
        tests: list[Scalar] = []
        if ends is None or ends[0] < 0:
            tests.append(ScalarCall("ge", (index, ScalarConst(0, I64)), BOOL))
        if ends is None or ends[1] >= self.shape[axis]:
            tests.append(ScalarCall("lt", (index, ScalarConst(self.shape[axis], I64)), BOOL))
        return tests[0] if len(tests) == 1 else ScalarCall("and", tuple(tests), BOOL)
