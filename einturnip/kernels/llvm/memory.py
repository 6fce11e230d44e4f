"""Access to a kernel's operands and outputs: addresses, vector loads and stores, transposed blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.llvm.ir import IrBuilder, IrValue, element
from einturnip.kernels.llvm.kernel_spec import STREAMED_NBYTES, KernelSpec
from einturnip.kernels.llvm.primitives import convert

Coordinate = tuple[int, ...]
Place = tuple[IrValue, list[IrValue]]


class TileMemory:
    """Loads and stores at points of the register tile.

    ``at``: by label, its current index in the tile. ``counts``: by label, the points of the register tile, in vectors
    along ``vector``. ``mask``: the valid lanes of a partial last vector. ``streamed``: the output that is written with
    non-temporal stores. ``known``: values that have been computed, by node and coordinate.

    An element has one LLVM type in memory and another in registers: bools are i8 in memory and i1 in registers, f16 and
    bf16 are i16 in memory.
    """

    code: IrBuilder
    spec: KernelSpec
    graph: PrimitiveGraph
    width: int
    vector: int
    n_out: int
    at: dict[int, IrValue]
    counts: dict[int, int]
    mask: IrValue | None
    known: dict[tuple[int, Coordinate], IrValue]
    extents: list[IrValue]
    operands: list[Place]
    outs: list[Place]
    streamed: Place | None

    def _like(self, value: IrValue, width: int) -> IrValue:
        if value.width == width:
            return value
        if value.name[0] != "%":
            return IrValue(f"<{', '.join([f'{value.element} {value.name}'] * width)}>", value.element, width)
        return self.code.splat(value, width)

    def _local(self, label: int, coordinate: dict[int, int]) -> IrValue:
        """Return a label's index in the tile, for a vector that of its first lane."""
        offset = coordinate.get(label, 0) * (self.width if label == self.vector else 1)
        at = self.at[label]
        return self.code.integer("add nsw", at, offset) if offset else at

    def _address(self, place: Place, labels: Sequence[int] | frozenset[int], coordinate: dict[int, int]) -> IrValue:
        base, steps = place
        total: IrValue | None = None
        for label in sorted(labels):
            moved = self.code.integer("mul nsw", self._local(label, coordinate), steps[label])
            total = moved if total is None else self.code.integer("add nsw", total, moved)
        return base if total is None else self.code.pointer(base, total)

    def _labels_read(self, node: int) -> frozenset[int]:
        """Return the labels that an input's address depends on."""
        return self.graph[node].labels

    def _operand(self, slot: int, dtype: DType, labels: frozenset[int], coordinate: dict[int, int]) -> IrValue:
        address = self._address(self.operands[slot], labels, coordinate)
        return self._load(address, dtype, self.width if self.vector in labels else 0)

    def _transposed(self, node: int, slot: int, coordinate: dict[int, int]) -> IrValue:
        """Load an operand that is contiguous along the register tile's other label.

        A full block is loaded as rows and transposed; all of its columns become known values.
        """
        n, code, width = self.graph[node], self.code, self.width
        across = self.spec.tile[0][0]
        labels = self._labels_read(node)
        address = self._address(self.operands[slot], labels, coordinate)
        step = self.operands[slot][1][self.vector]
        if self.counts[across] < width or self.mask is not None:
            return self._load_strided(address, step, n.dtype)
        first = self._address(self.operands[slot], labels, {**coordinate, across: 0})
        rows = [self._load(code.pointer(first, code.integer("mul", step, k)), n.dtype, width) for k in range(width)]
        for k, column in enumerate(code.transposed(rows)):
            place = {**coordinate, across: k}
            self.known[node, tuple(place[p] for p in sorted(n.labels & place.keys()))] = column
        return self.known[node, tuple(coordinate[p] for p in sorted(n.labels & coordinate.keys()))]

    def _load_strided(self, address: IrValue, step: IrValue, dtype: DType) -> IrValue:
        """Load a vector of elements that are ``step`` bytes apart."""
        mask = self.mask or self.code.constant(1, "i1", self.width)
        return self._to_register(
            self._load_lanes(address, step, mask, self._broadcast_element(address, dtype), dtype), dtype
        )

    def _broadcast_element(self, address: IrValue, dtype: DType) -> IrValue:
        """Load one element and broadcast it: lanes past the end then hold a valid value."""
        memory_kind = _memory_type(dtype)
        scalar = self.code.make(f"load {memory_kind}, {address}, align 1", memory_kind, 0)
        return self.code.splat(scalar, self.width)

    def _load_lanes(
        self, address: IrValue, step: IrValue | None, mask: IrValue, passthru: IrValue, dtype: DType
    ) -> IrValue:
        """Load the lanes that ``mask`` selects; the others are those of ``passthru``.

        Both have memory types, as the result has. ``step``: bytes between neighbouring elements; None if they are
        contiguous.
        """
        at = address if step is None else self._strided_addresses(address, step)
        return self.code.masked_load(at, mask, passthru)

    def _strided_addresses(self, address: IrValue, step: IrValue) -> IrValue:
        """Return the addresses of a vector of elements that are ``step`` bytes apart."""
        code, width = self.code, self.width
        offsets = code.binary("mul", code.lanes("i64", width), code.splat(step, width))
        return code.make(f"getelementptr i8, ptr {address.name}, {offsets}", "ptr", width)

    def _load(self, address: IrValue, dtype: DType, width: int) -> IrValue:
        memory_kind = _memory_type(dtype)
        one = IrValue("", memory_kind, width)
        if width and self.mask is not None:
            value = self._load_lanes(address, None, self.mask, self._broadcast_element(address, dtype), dtype)
        else:
            value = self.code.make(f"load {one.type}, {address}, align 1", memory_kind, width)
        return self._to_register(value, dtype)

    def _to_register(self, value: IrValue, dtype: DType) -> IrValue:
        """Convert a value from its memory type to its register type."""
        if dtype.kind == "b":
            return self.code.compare("icmp ne", value, self.code.constant(0, "i8", value.width))
        kind = element(dtype)
        return value if kind == value.element else self.code.cast("bitcast", value, kind)

    def _to_memory(self, value: IrValue, dtype: DType) -> IrValue:
        """Convert a value from its register type to its memory type."""
        if dtype.kind == "b":
            return self.code.cast("zext", value, "i8")
        memory_kind = _memory_type(dtype)
        return value if memory_kind == value.element else self.code.cast("bitcast", value, memory_kind)

    def _load_out(self, k: int, coordinate: dict[int, int], dtype: DType) -> IrValue:
        address = self._address(self.outs[k], range(self.n_out), coordinate)
        if self._is_strided(k):
            return self._load_strided(address, self.outs[k][1][self.vector], dtype)
        return self._load(address, dtype, self.width if self.vector < self.n_out else 0)

    def _is_strided(self, k: int) -> bool:
        """Return whether the vectors of an output are elements at a stride."""
        return len(self.operands) + k in self.spec.strided

    def _store(self, k: int, coordinate: dict[int, int], value: IrValue, dtype: DType) -> None:
        place, dtypes = self.outs[k], self.spec.out_dtypes
        step = place[1][self.vector] if self._is_strided(k) else None
        self._put(place, range(self.n_out), coordinate, value, dtype, dtypes[k], step)

    def _put(
        self,
        place: Place,
        labels: Sequence[int] | frozenset[int],
        coordinate: dict[int, int],
        value: IrValue,
        dtype: DType,
        target: DType,
        step: IrValue | None = None,
    ) -> None:
        """Convert a value and store it; ``step`` is None if neighbouring elements are contiguous."""
        width = self.width if self.vector in labels else 0
        value = self._to_memory(convert(self.code, self._like(value, width), dtype, target), target)
        address = self._address(place, labels, coordinate)
        if width and step is not None:
            mask = self.mask or self.code.constant(1, "i1", width)
            self.code.masked_store(value, self._strided_addresses(address, step), mask)
        elif width and self.mask is not None:
            self.code.masked_store(value, address, self.mask)
        elif width and place is self.streamed:
            self.code.line(f"store {value}, {address}, align {width * target.itemsize}, !nontemporal !0")
        else:
            self.code.line(f"store {value}, {address}, align 1")

    # --- non-temporal stores ------------------------------------------------------------------------------------------

    def _nbytes(self, labels: Sequence[int], itemsize: int) -> IrValue:
        """Return the bytes of a tile."""
        total = IrValue(str(itemsize), "i64", 0)
        for label in labels:
            total = self.code.integer("mul", total, self.extents[label])
        return total

    def _streaming(
        self, place: Place, labels: Sequence[int], vector: int, itemsize: int, total: IrValue, write: Callable[[], None]
    ) -> None:
        """Emit the loops with and without non-temporal stores, and choose at run time.

        Non-temporal stores are chosen for a large, aligned result. Such a store does not fetch the cache line first and
        does not evict operands. ``total``: bytes of the result.
        """
        code, size = self.code, self.width * itemsize
        base, steps = place
        bits = code.make(f"ptrtoint ptr {base.name} to i64", "i64", 0)
        for label in labels:
            bits = code.integer("or", bits, steps[label]) if label != vector else bits
        zero = IrValue("0", "i64", 0)
        even = code.compare("icmp eq", code.integer("and", bits, size - 1), zero)
        large = code.compare("icmp sge", total, IrValue(str(STREAMED_NBYTES), "i64", 0))

        def streaming() -> list[IrValue]:
            self.known, self.streamed = dict(known), place
            write()
            code.run_intrinsic("x86.sse.sfence")
            return []

        def cached() -> list[IrValue]:
            self.known, self.streamed = dict(known), None
            write()
            return []

        known = dict(self.known)
        code.choose(code.binary("and", even, large), streaming, cached)


def _memory_type(dtype: DType) -> str:
    """Return the LLVM type of an element in memory."""
    return element(dtype) if dtype.name in ("f32", "f64") else f"i{8 * dtype.itemsize}"
