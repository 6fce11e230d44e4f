"""Where a kernel's operands and outputs lie: addresses, vectors loaded and stored, blocks turned in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.llvm.ir import IrBuilder, IrValue, element
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.primitives import convert

STREAMED_NBYTES = 4 << 20  # of a tile's result, from which on it goes past the caches: nobody would find it there
METADATA = "!0 = !{i32 1}\n"  # what the stores that do are marked with
Coordinate = tuple[int, ...]
Place = tuple[IrValue, list[IrValue]]


class TileMemory:
    """Loads and stores at points of the register tile.

    ``at``: where each label stands, its index in the tile; ``counts``: of the register tile, by label; ``mask``: the
    lanes of a last vector that count; ``streamed``: what is stored past the caches; ``known``: values by node and
    coordinate, as long as they hold.
    """

    code: IrBuilder
    recipe: KernelSpec
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
        """A label's index in the tile; of a vector's first lane."""
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

    def _operand(self, slot: int, dtype: DType, labels: frozenset[int], coordinate: dict[int, int]) -> IrValue:
        address = self._address(self.operands[slot], labels, coordinate)
        return self._load(address, dtype, self.width if self.vector in labels else 0)

    def _turned(self, node: int, slot: int, coordinate: dict[int, int]) -> IrValue:
        """An operand that is contiguous along the tile's other label: whole blocks are transposed in registers."""
        n, code, width = self.graph[node], self.code, self.width
        across = self.recipe.tile[0][0]
        address = self._address(self.operands[slot], n.labels, coordinate)
        step = self.operands[slot][1][self.vector]
        if self.counts[across] < width or self.mask is not None:
            return self._scattered(address, step, n.dtype)
        first = self._address(self.operands[slot], n.labels, {**coordinate, across: 0})
        rows = [self._load(code.pointer(first, code.integer("mul", step, k)), n.dtype, width) for k in range(width)]
        for k, column in enumerate(code.transposed(rows)):
            place = {**coordinate, across: k}
            self.known[node, tuple(place[p] for p in sorted(n.labels & place.keys()))] = column
        return self.known[node, tuple(coordinate[p] for p in sorted(n.labels & coordinate.keys()))]

    def _scattered(self, address: IrValue, step: IrValue, dtype: DType) -> IrValue:
        """A vector of elements that lie ``step`` bytes apart."""
        code, width, lying = self.code, self.width, _lying(dtype)
        offsets = code.binary("mul", code.lanes("i64", width), code.splat(step, width))
        places = code.make(f"getelementptr i8, ptr {address.name}, {offsets}", "ptr", width)
        mask = self.mask or code.constant(1, "i1", width)
        one = code.make(f"load {lying}, {address}, align 1", lying, 0)
        name = f"llvm.masked.gather.v{width}{_short(lying)}.v{width}p0"
        value = code.call(name, [places, IrValue("1", "i32", 0), mask, code.splat(one, width)], lying, width)
        return self._taken(value, dtype)

    def _load(self, address: IrValue, dtype: DType, width: int) -> IrValue:
        lying = _lying(dtype)
        one = IrValue("", lying, width)
        if width and self.mask is not None:
            scalar = self.code.make(f"load {lying}, {address}, align 1", lying, 0)
            passed = self.code.splat(scalar, width)  # a lane past the end holds a number that is there
            name = f"llvm.masked.load.v{width}{_short(lying)}.p0"
            arguments = [address, IrValue("1", "i32", 0), self.mask, passed]
            value = self.code.call(name, arguments, lying, width)
        else:
            value = self.code.make(f"load {one.type}, {address}, align 1", lying, width)
        return self._taken(value, dtype)

    def _taken(self, value: IrValue, dtype: DType) -> IrValue:
        """What lay in memory, as it is in a register."""
        if dtype.kind == "b":
            return self.code.compare("icmp ne", value, self.code.constant(0, "i8", value.width))
        kind = element(dtype)
        return value if kind == value.element else self.code.cast("bitcast", value, kind)

    def _load_out(self, k: int, coordinate: dict[int, int], dtype: DType) -> IrValue:
        address = self._address(self.outs[k], range(self.n_out), coordinate)
        return self._load(address, dtype, self.width if self.vector < self.n_out else 0)

    def _store(self, k: int, coordinate: dict[int, int], value: IrValue, dtype: DType) -> None:
        self._put(self.outs[k], range(self.n_out), coordinate, value, dtype, self.recipe.out_dtypes[k])

    def _put(
        self,
        place: Place,
        labels: Sequence[int] | frozenset[int],
        coordinate: dict[int, int],
        value: IrValue,
        dtype: DType,
        target: DType,
    ) -> None:
        """Store a value of one type as another."""
        width = self.width if self.vector in labels else 0
        value = convert(self.code, self._like(value, width), dtype, target)
        lying = _lying(target)
        if target.kind == "b":
            value = self.code.cast("zext", value, "i8")
        elif value.element != lying:
            value = self.code.cast("bitcast", value, lying)
        address = self._address(place, labels, coordinate)
        if width and self.mask is not None:
            text = f"llvm.masked.store.v{width}{_short(lying)}.p0"
            types = f"{value.type}, ptr, i32, {self.mask.type}"
            self.code.declared.setdefault(f"declare void @{text}({types})")
            self.code.line(f"call void @{text}({value}, {address}, i32 1, {self.mask})")
        elif width and place is self.streamed:
            self.code.line(f"store {value}, {address}, align {width * target.itemsize}, !nontemporal !0")
        else:
            self.code.line(f"store {value}, {address}, align 1")

    # --- past the caches ----------------------------------------------------------------------------------------------

    def _nbytes(self, labels: Sequence[int], itemsize: int) -> IrValue:
        """Of a tile."""
        total = IrValue(str(itemsize), "i64", 0)
        for label in labels:
            total = self.code.integer("mul", total, self.extents[label])
        return total

    def _streaming(
        self, place: Place, labels: Sequence[int], vector: int, itemsize: int, total: IrValue, write: Callable[[], None]
    ) -> None:
        """Everything twice: for a result that is large and lies as vectors do, stored past the caches, and for others.

        What is stored so need not be read before, and leaves what is read where it is. ``total``: bytes of the result.
        """
        code, size = self.code, self.width * itemsize
        base, steps = place
        bits = code.make(f"ptrtoint ptr {base.name} to i64", "i64", 0)
        for label in labels:
            bits = code.integer("or", bits, steps[label]) if label != vector else bits
        zero = IrValue("0", "i64", 0)
        even = code.compare("icmp eq", code.integer("and", bits, size - 1), zero)
        large = code.compare("icmp sge", total, IrValue(str(STREAMED_NBYTES), "i64", 0))

        def past() -> list[IrValue]:
            self.known, self.streamed = dict(known), place
            write()
            code.declared.setdefault("declare void @llvm.x86.sse.sfence()")
            code.line("call void @llvm.x86.sse.sfence()")
            return []

        def through() -> list[IrValue]:
            self.known, self.streamed = dict(known), None
            write()
            return []

        known = dict(self.known)
        code.choose(code.binary("and", even, large), past, through)


def _lying(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    return element(dtype) if dtype.name in ("f32", "f64") else f"i{8 * dtype.itemsize}"


def _short(lying: str) -> str:
    return {"float": "f32", "double": "f64"}.get(lying, lying)
