"""The join of a block as a graph: operands as views or loads, labels as numbers, keys checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einturnip.ir.dtypes import BOOL, I32, I64
from einturnip.ir.einsum import Access, Einsum, Index, labels_read
from einturnip.ir.scalar import Scalar, ScalarCast, ScalarConst
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.blocked_space import BlockedSpace, choose_order, cut, must_gather
from einturnip.kernels.expr.graph import PrimitiveGraph, number
from einturnip.kernels.expr.guard import guarded
from einturnip.kernels.expr.lower import lower
from einturnip.kernels.expr.primitives import copy
from einturnip.kernels.expr.window import is_affine, terms
from einturnip.kernels.numpy.index_check import IndexCheck
from einturnip.kernels.numpy.indexed_load import PiecewiseLoad, RowLoad, non_affine_axes


class JoinBuilder:
    """Builds nodes for one einsum over a tile of ``extents``; ``keys``: labels whose index is data."""

    def __init__(self, assembler: Assembler, einsum: Einsum, extents: Sequence[int]) -> None:
        self.assembler, self.einsum, self.extents = assembler, einsum, tuple(extents)
        self.graph = PrimitiveGraph()
        self.keys = key_labels(einsum)
        self._operands: dict[int, int] = {}
        self._keys: dict[int, int] = {}

    def value(self, expr: Scalar) -> int:
        """Return the node of an expression."""
        return lower(self.graph, expr, self)

    def guarded(self, expr: Scalar) -> int | None:
        """Return the node of an operand's guarded read; None for any other expression."""
        found = guarded(self.einsum, expr)
        if found is None or by_position(self.einsum.accesses[found[0]], self.keys):
            return None
        slot, fill = found
        if not isinstance(fill, ScalarConst):
            return None
        return self._fetched(slot, self.einsum.accesses[slot], number(fill.value, fill.dtype).tobytes())

    def label(self, position: int) -> int:
        """Return the node of a label's index in the whole tensor."""
        return self.graph.convert(self.position(position), I64)

    def position(self, label: int) -> int:
        """Return the node of a label's index as i64, or of a key's value as it is stored (see ``key``)."""
        return self.key(label) if label in self.keys else self.graph.iota(label)

    def key(self, label: int) -> int:
        """Return the node of a key's value, i32 or i64, which is checked to be an index of its label."""
        if label not in self._keys:
            self.assembler.sized = True
            key = next(k for k in self.einsum.keys if k.label == label)
            value = self.value(_unwidened(key.value))
            value = value if self.graph[value].dtype == I32 else self.graph.convert(value, I64)
            labels, size = tuple(sorted(self.einsum.labels_of(key.value))), self.einsum.bounds[label]
            check = IndexCheck(self.einsum.labels, label, size, self.assembler.space.order, labels)
            self._keys[label] = self.graph.special("check", check, value)
        return self._keys[label]

    def hit(self) -> int | None:
        """Return the node that is true where every key's value is in the tile; None if it always is."""
        graph, found = self.graph, None
        for label in sorted(self.keys):
            if self.extents[label] == self.einsum.bounds[label]:
                continue
            start = graph.input(self.assembler.scalar("start", label), I64, ())
            local = graph.apply("subtract", self.label(label), start)
            within = graph.apply("less", local, graph.number(self.extents[label], I64), dtype=BOOL)
            above = graph.apply("greater_equal", local, graph.number(0, I64), dtype=BOOL)
            inside = graph.apply("logical_and", within, above)
            found = inside if found is None else graph.apply("logical_and", found, inside)
        return found

    def operand(self, slot: int) -> int:
        """Return the node of an operand."""
        if slot not in self._operands:
            access = self.einsum.accesses[slot]
            if is_affine(access) and self.keys.isdisjoint(labels_read(access)):
                self._operands[slot] = self._view(slot, access)
            else:
                self._operands[slot] = self._fetched(slot, access)
        return self._operands[slot]

    def _view(self, slot: int, access: Access) -> int:
        space, dtype, labels = self.assembler.space, self.einsum.dtypes[slot], labels_read(access)
        register = self.assembler.external("operand", slot, dtype.numpy, labels)
        node = self.graph.input(register, dtype, labels)
        return self.graph.apply("gather", node) if must_gather(access, space.order, space.extents) else node

    def _fetched(self, slot: int, access: Access, fill: bytes | None = None) -> int:
        graph, order, dtype = self.graph, self.assembler.space.order, self.einsum.dtypes[slot]
        self.assembler.sized = True
        raw = graph.input(self.assembler.external("raw", slot, dtype.numpy, ()), dtype, ())
        shape = self.einsum.operand_shape(slot)
        if not by_position(access, self.keys):
            labels = tuple(p for p in order if p in labels_read(access))
            pieces = PiecewiseLoad(
                access, shape, order, self.extents, labels, tuple((non_affine_axes(access) or {}).items()), fill
            )
            return graph.special("fetch", pieces, raw, labels=frozenset(labels))
        indexed = len(access) - self._suffix(access)
        indices = [self._index(p, n) for p, n in zip(access[:indexed], shape, strict=False)]
        by = frozenset[int]().union(*(graph[i].labels for i in indices))
        rows = RowLoad(access, shape, order, self.extents, indexed, tuple(sorted(by)))
        return graph.special("fetch", rows, raw, *indices, labels=by | labels_read(access[indexed:]))

    def _suffix(self, access: Access) -> int:
        """Return how many of the last axes are labels of their own that also come last in the block's order."""
        order = self.assembler.space.order
        for n in range(len(access) - 1, 0, -1):
            rest, behind = access[-n:], self._labels_behind(access[:-n])
            last = [p for p in order if p in behind or p in rest][-n:]
            if last == list(rest) and behind.isdisjoint(last) and self.keys.isdisjoint(last):
                return n
        return 0

    def _labels_behind(self, access: Access) -> frozenset[int]:
        """Return the labels that axes depend on, through keys too."""
        found = labels_read(access)
        of_keys = (self.einsum.labels_of(k.value) for k in self.einsum.keys if k.label in found)
        return found.union(*of_keys) - self.keys

    def _index(self, axis: int | Index, size: int) -> int:
        """Return the node of an axis' index in the whole operand."""
        graph = self.graph
        if isinstance(axis, int):
            return self.position(axis)
        node: int | None = None
        for label, coefficient in terms(axis):
            term = self.label(label)
            if coefficient != 1:
                term = graph.apply("multiply", term, graph.number(coefficient, I64))
            node = term if node is None else graph.apply("add", node, term)
        node = graph.number(0, I64) if node is None else node
        if axis.offset:
            node = graph.apply("add", node, graph.number(axis.offset, I64))
        if axis.divisor != 1:
            node = graph.apply("floor_divide", node, graph.number(axis.divisor, I64))
        if axis.modulus:
            node = graph.apply("remainder", node, graph.number(axis.modulus, I64))
        if axis.clamped:
            node = graph.apply("maximum", node, graph.number(0, I64))
            node = graph.apply("minimum", node, graph.number(size - 1, I64))
        return node


def _unwidened(expr: Scalar) -> Scalar:
    """Return the i32 value of a key, which machine code reads, instead of its conversion to i64."""
    return expr.argument if isinstance(expr, ScalarCast) and (expr.argument.dtype, expr.dtype) == (I32, I64) else expr


def broadcast(assembler: Assembler, value: int, labels: frozenset[int]) -> int:
    """Return the register of a value that is broadcast to all the labels."""
    register = assembler.registers[value]
    if register.labels == labels:
        return value
    made = assembler.slot(register.dtype, labels)
    assembler.step(len(assembler.space.loops), copy, (value,), made)
    return made


def key_labels(einsum: Einsum) -> frozenset[int]:
    """Return the labels whose index is data, which have no loop."""
    return frozenset(k.label for k in einsum.keys)


def free_extents(einsum: Einsum, extents: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of the loops: a key's label has one point at a time."""
    keys = key_labels(einsum)
    return tuple(1 if p in keys else n for p, n in enumerate(extents))


def keyed_space(einsum: Einsum, extents: Sequence[int], points: int, program_order: bool = False) -> BlockedSpace:
    """Return the blocks for loops over all labels but the keys'.

    ``program_order``: keep the program's order, as also where rows are loaded by position.
    """
    keys, free = key_labels(einsum), free_extents(einsum, extents)
    order, crossing = choose_order(free, einsum.n_out, loop_accesses(einsum), program_order)
    if any(by_position(a, keys) for a in einsum.accesses):
        order, crossing = tuple(range(len(extents))), frozenset[int]()
    order = (*sorted(keys), *(p for p in order if p not in keys))
    return cut(order, free, einsum.n_out, points, crossing - keys)


def by_position(access: Access, keys: frozenset[int]) -> bool:
    """Return True where an operand is loaded row by row: it is neither a view nor divisible into pieces."""
    return not keys.isdisjoint(labels_read(access)) or (not is_affine(access) and non_affine_axes(access) is None)


def loop_accesses(einsum: Einsum) -> tuple[Access, ...]:
    """Return the accesses over loop labels: an axis under a key depends on the labels of the key's value."""
    behind = {k.label: tuple(sorted(einsum.labels_of(k.value))) for k in einsum.keys}
    if not behind:
        return einsum.accesses
    return tuple(tuple(q for p in access for q in _walked(p, behind)) for access in einsum.accesses)


def _walked(axis: int | Index, behind: Mapping[int, tuple[int, ...]]) -> Access:
    keyed = [p for p, _ in terms(axis) if p in behind]
    return tuple(q for p in keyed for q in behind[p]) if keyed else (axis,)
