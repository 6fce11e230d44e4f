"""Loop nest of a two-sided fold: blocks of columns, chunks of terms, strips of rows, register tiles.

Source: Goto and van de Geijn (2008), with any join and any fold in place of product and sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.folds import State, VectorFold
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.kernel_spec import STREAMED_NBYTES, KernelSpec
from einturnip.kernels.llvm.nest import LoopNest
from einturnip.kernels.llvm.pack_plan import CHUNK, COLUMN_VECTORS
from einturnip.kernels.llvm.values import flat, like_states

_ZERO = IrValue("0", "i64", 0)


def packed_function(spec: KernelSpec, name: str) -> str:
    """Return the LLVM IR of a kernel that packs operands; its argument ends with the scratch address."""
    nest = PackedNest(spec)
    nest.write()
    return nest.text(name)


class PackedNest(LoopNest):
    """Writes the code of one kernel that packs operands.

    ``packs``: nodes are currently computed from operands in order to pack them; otherwise they are read from the packed
    buffers.
    """

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__(spec)
        assert spec.packing is not None and self.einsum.aggregation is not None
        self.packing = spec.packing
        self.column, self.row, self.term = self.vector, self.packing.row, self.packing.term
        self.places = self.packing.places(self.graph, self.width)
        behind = 2 * self.n + 1 + (len(self.operands) + len(self.outs)) * (self.n + 1)
        self.scratch = self.code.cast("inttoptr", self._argument(behind), "ptr")
        self.fold = VectorFold(self.code, self.einsum.aggregation)
        self.packs = False
        self.term_at = self.panel = _ZERO  # of the tile being folded: its term, and its columns' panel
        self.streams = self._streams()

    def _streams(self) -> IrValue:
        """Return whether results are written once, in aligned vectors, and are too large for the caches."""
        code, (base, steps) = self.code, self.outs[0]
        size = self.spec.out_dtypes[0].itemsize
        bits = code.make(f"ptrtoint ptr {base.name} to i64", "i64", 0)
        for label in range(self.n_out):
            bits = code.integer("or", bits, steps[label]) if label != self.column else bits
        once = code.compare("icmp sle", self.extents[self.term], IrValue(str(CHUNK), "i64", 0))
        even = code.compare("icmp eq", code.integer("and", bits, self.width * size - 1), _ZERO)
        large = code.compare("icmp sge", self._result_nbytes(), IrValue(str(STREAMED_NBYTES), "i64", 0))
        alone = IrValue(str(int(self.n == self.n_out + 1)), "i1", 0)
        for condition in (once, even, large, self.first):
            alone = code.binary("and", alone, condition)
        return alone

    def write(self) -> None:
        """Write all loops."""
        self._outer([p for p in range(self.n_out) if p not in (self.row, self.column)])
        self.code.run_intrinsic("x86.sse.sfence")

    def _outer(self, labels: Sequence[int]) -> None:
        if labels:
            everything = [*labels, self.row, self.column, *range(self.n_out, self.n)]
            self._each(labels[0], 1, _ZERO, self.extents[labels[0]], lambda: self._outer(labels[1:]), everything)
            return
        size = COLUMN_VECTORS * self.width

        def block(begin: IrValue) -> None:
            self.columns = begin, self._remaining(self.extents[self.column], begin, size)
            self._folded([p for p in range(self.n_out, self.n) if p != self.term], self.first)

        self._blocks(_ZERO, self.extents[self.column], size, block)

    def _folded(self, labels: list[int], first: IrValue) -> None:
        """Loop over the other aggregated labels, then over chunks of terms."""
        if labels:
            everything = [*labels, self.row, self.column, self.term]

            def inside() -> None:
                begins = self.code.compare("icmp eq", self.at[labels[0]], _ZERO)
                self._folded(labels[1:], self.code.binary("and", first, begins))

            self._each(labels[0], 1, _ZERO, self.extents[labels[0]], inside, everything)
            return

        def chunk(begin: IrValue) -> None:
            self.terms = begin, self._remaining(self.extents[self.term], begin, CHUNK)
            before, self.first = self.first, self.code.binary("and", first, self.code.compare("icmp eq", begin, _ZERO))
            self._pack_right()
            high, end = self.packing.height, self.extents[self.row]
            whole = self.code.integer("sub", end, self.code.integer("urem", end, high))
            self._blocks(_ZERO, whole, high, lambda row: self._strip(row, high))
            low = self.packing.lower
            self._blocks(whole, end, low, lambda row: self._strip(row, low))
            self.first = before

        self._blocks(_ZERO, self.extents[self.term], CHUNK, chunk)

    def _remaining(self, end: IrValue, begin: IrValue, limit: int) -> IrValue:
        """Return the rest of a range, at most ``limit``."""
        return self.code.intrinsic("smin", self.code.integer("sub", end, begin), IrValue(str(limit), "i64", 0))

    def _blocks(self, begin: IrValue, end: IrValue, step: int, body: Callable[[IrValue], None]) -> None:
        """Loop from ``begin`` in steps, the last of which may be partial; values computed inside are not kept."""
        code = self.code
        count = code.integer("sdiv", code.integer("add", code.integer("sub", end, begin), step - 1), step)

        def inside(turn: IrValue, _: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            body(code.integer("add nsw", begin, code.integer("mul nsw", turn, step)))
            self.known = kept
            return []

        code.loop(_ZERO, count, 1, [], inside)

    # --- packing ------------------------------------------------------------------------------------------------------

    def _pack_right(self) -> None:
        """Pack vectors of columns: of each, the chunk's terms in order."""
        begin, count = self.columns
        self.packs = True

        def columns(start: IrValue) -> None:
            self.at[self.column] = self.code.integer("add nsw", begin, start)
            self.mask = self._lanes_below(self.code.integer("sub", count, start))

            def term(p: IrValue) -> None:
                self.at[self.term] = self.code.integer("add nsw", self.terms[0], p)
                for node in self.packing.right:
                    value = self._wide(self.value(node, {}))
                    if node in self.packing.negated:
                        value = self.code.make(f"fneg {value}", value.element, value.width)
                    self.code.line(f"store {value}, {self._right(node, start, p)}, align 64")

            self._blocks(_ZERO, self.terms[1], 1, term)
            self.mask = None

        self._blocks(_ZERO, count, self.width, columns)
        self.packs = False
        del self.at[self.column], self.at[self.term]

    def _right(self, node: int, column: IrValue, term: IrValue) -> IrValue:
        """Return the address of a packed vector of columns of a term."""
        line = self.width * self.graph[node].dtype.itemsize
        panel = self.code.integer("mul nsw", column, CHUNK * line // self.width)
        at = self.code.integer("add nsw", panel, self.code.integer("mul nsw", term, line))
        return self.code.pointer(self.scratch, self.code.integer("add nsw", at, self.places[node]))

    def _pack_left(self, begin: IrValue, height: int) -> None:
        """Pack rows: of each, the chunk's terms contiguously; rows past the end repeat the last."""
        self.packs, self.vector = True, self.term
        last = self.code.integer("sub", self.extents[self.row], 1)

        def row(r: IrValue) -> None:
            self.at[self.row] = self.code.intrinsic("smin", self.code.integer("add nsw", begin, r), last)

            def some(p: IrValue) -> None:
                self.at[self.term] = self.code.integer("add nsw", self.terms[0], p)
                self.mask = self._lanes_below(self.code.integer("sub", self.terms[1], p))
                for node in self.packing.left:
                    value, dtype = self._wide(self.value(node, {})), self.graph[node].dtype
                    at = self.code.integer("mul nsw", r, self.packing.line_nbytes(dtype))
                    at = self.code.integer("add nsw", at, self.code.integer("mul nsw", p, dtype.itemsize))
                    place = self.code.pointer(self.scratch, self.code.integer("add nsw", at, self.places[node]))
                    self.code.line(f"store {value}, {place}, align 1")
                self.mask = None

            self._blocks(_ZERO, self.terms[1], self.width, some)

        self._blocks(_ZERO, IrValue(str(height), "i64", 0), 1, row)
        self.packs, self.vector = False, self.column
        del self.at[self.row], self.at[self.term]

    def _input(self, node: int, coordinate: dict[int, int]) -> IrValue:
        n = self.graph[node]
        assert isinstance(n.payload, int)
        if self.vector in n.labels and self.packing.along[n.payload] != self.vector:
            address = self._address(self.operands[n.payload], n.labels, coordinate)
            return self._gathered(address, self.operands[n.payload][1][self.vector], n.dtype)
        return super()._input(node, coordinate)

    # --- tiles --------------------------------------------------------------------------------------------------------

    def _strip(self, row: IrValue, height: int) -> None:
        """Compute a strip of rows over all packed columns."""
        self._pack_left(row, height)
        begin, count = self.columns

        def tile(start: IrValue) -> None:
            self.at[self.row], self.at[self.column] = row, self.code.integer("add nsw", begin, start)
            self._put_tile(row, height, self.code.integer("sub", count, start), self._tile_of(start, height))
            del self.at[self.row], self.at[self.column]

        self._blocks(_ZERO, count, self.width, tile)

    def _tile_of(self, start: IrValue, height: int) -> list[State]:
        """Fold a register tile of a vector of columns by ``height`` rows over the chunk's terms."""
        code, fold = self.code, self.fold
        states = [fold.empty(self.width) for _ in range(height)]
        self.panel, self.counts[self.row] = start, height

        def body(p: IrValue, carried: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            self.term_at, self.at[self.term] = p, code.integer("add nsw", self.terms[0], p)
            made = [
                fold.step(state, self._wide(self.value(self.spec.root, {self.row: r})), None)
                for r, state in enumerate(like_states(carried, states))
            ]
            self.known = kept
            return flat(made)

        found = code.loop(_ZERO, self.terms[1], 1, flat(states), body)
        del self.at[self.term]
        return like_states(found, states)

    def _value(self, node: int, coordinate: dict[int, int]) -> IrValue:
        if self.packs:
            return super()._value(node, coordinate)
        n, packing = self.graph[node], self.packing
        if node in packing.right:
            return self._packed(self._right(node, self.panel, self.term_at), n.dtype, self.width)
        if node in packing.left:
            at = self.code.integer("mul nsw", self.term_at, n.dtype.itemsize)
            first = self.code.pointer(self.scratch, self.code.integer("add nsw", at, self.places[node]))
            row = IrValue(str(coordinate[self.row] * packing.line_nbytes(n.dtype)), "i64", 0)
            return self._packed(self.code.pointer(first, row), n.dtype, 0)
        if n.op == "subtract" and n.arguments[1] in packing.negated:
            a, b = (self._wide(self.value(k, coordinate)) for k in n.arguments)
            return self.code.binary("fadd", a, b)
        return super()._value(node, coordinate)

    def _packed(self, place: IrValue, dtype: DType, width: int) -> IrValue:
        kind = IrValue("", element(dtype), width)
        return self.code.make(f"load {kind.type}, {place}, align {width * dtype.itemsize or 1}", kind.element, width)

    def _put_tile(self, row: IrValue, height: int, rest: IrValue, states: list[State]) -> None:
        """Store a tile: by non-temporal stores, as full vectors, or masked to its valid lanes and rows."""
        code, kept = self.code, dict(self.known)
        whole = code.compare("icmp sge", rest, IrValue(str(self.width), "i64", 0))

        def past() -> None:
            self.known, self.streamed = dict(kept), self.outs[0]
            for r, state in enumerate(states):
                self._store(0, {self.row: r}, state[0], self.fold.dtype)
            self.streamed = None

        def through() -> None:
            self.known = dict(kept)
            for r, state in enumerate(states):
                self._settle(self.fold, {self.row: r}, state)

        def some() -> None:
            self.known, self.mask = dict(kept), self._lanes_below(rest)
            for r, state in enumerate(states):
                there = code.compare("icmp slt", code.integer("add nsw", row, r), self.extents[self.row])
                code.when(there, partial(self._settle, self.fold, {self.row: r}, state))
            self.mask = None

        if height != self.packing.height:
            some()
        else:
            self.code.either(whole, lambda: self.code.either(self.streams, past, through), some)
        self.known = kept
