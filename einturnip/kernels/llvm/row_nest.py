"""Loop nest of a fused row kernel: rows outside, its stages along each row, vectors along one label.

The function's one argument is an array of i64: extents and first points by label; then for each tensor its address and
the strides of all labels, in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.fold import finalized
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.llvm.blocked_sums import Span, sum_in_blocks
from einturnip.kernels.llvm.extremum import QuietExtremum
from einturnip.kernels.llvm.folds import State, VectorFold
from einturnip.kernels.llvm.functions import MathFunctions
from einturnip.kernels.llvm.ir import IrBuilder, IrValue
from einturnip.kernels.llvm.memory import Coordinate
from einturnip.kernels.llvm.primitives import write
from einturnip.kernels.llvm.row_spec import FusedRowSpec, RowMember, RowStage
from einturnip.kernels.llvm.values import NodeValues, flat, like_states

Leaf = Callable[[list[dict[int, int]], list[State]], list[State]]
_ZERO = IrValue("0", "i64", 0)


def fused_row_function(spec: FusedRowSpec, name: str) -> str:
    """Return the LLVM IR of a fused row kernel."""
    nest = FusedRowNest(spec)
    nest.write()
    return nest.text(name)


class FusedRowNest(NodeValues):
    """Writes the code of one fused row kernel.

    ``folded``: results of the members' folds for this row. ``factors``: by (member, coefficient), the factor of sums
    that depend on the member. ``saved``: nodes that an earlier stage stored in a tensor.
    """

    def __init__(self, spec: FusedRowSpec) -> None:
        self.row_spec, self.graph = spec, spec.graph
        self.code = IrBuilder()
        self.width, self.vector = spec.width, spec.vector
        self.n = n = len(spec.spec.bounds)
        self.at: dict[int, IrValue] = {}
        self.counts: dict[int, int] = {}
        self.mask: IrValue | None = None
        self.streamed = None
        self.known: dict[tuple[int, Coordinate], IrValue] = {}
        self.folded: dict[int, IrValue] = {}
        self.factors: dict[tuple[int, float], IrValue] = {}
        self.saved: dict[int, int] = {}
        self.running: list[VectorFold | QuietExtremum] = []  # the fold of each state that a stage carries
        self.blocks: dict[int, tuple[int, ...]] = {}  # by label of a stage, the sizes of blocks of partial sums
        self.extents = [self._argument(p) for p in range(n)]
        self.origins = [self._argument(n + p) for p in range(n)]
        self.operands = self._places(2 * n, len(spec.spec.tensors))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all loops."""
        number, rows = self.row_spec.spec.result, self.row_spec.rows
        stage = self._streamable(number)
        if stage is None:
            self._rows(rows)
            return
        tensor = self.row_spec.spec.tensors[number]
        place, labels = self.operands[number], sorted(tensor.labels)
        itemsize = tensor.dtype.itemsize
        self._streaming(place, labels, stage.vector, itemsize, self._nbytes(labels, itemsize), lambda: self._rows(rows))

    def _streamable(self, number: int) -> RowStage | None:
        """Return the stage that stores the result if non-temporal stores pay: it is large and contiguous.

        They do not if an earlier stage stores intermediate values in the result's place: softmax would then write each
        row in one burst without computing meanwhile (5.8 ms instead of 3.1).
        """
        spec, stages = self.row_spec.spec, self.row_spec.stages
        stage = next((s for s in stages if any(spec.members[k].out == number for k in s.stores)), None)
        if number < 0 or stage is None:
            return None
        if not self.row_spec.streams or stage.vector not in spec.tensors[number].labels:
            return None
        return stage if all(t != number for s in stages for _, t in s.keeps) else None

    def _rows(self, labels: Sequence[int]) -> None:
        if not labels:
            self._row()
            return
        label, extent = labels[0], self.extents[labels[0]]
        if label != self.row_spec.vector:
            self._loop(label, 1, _ZERO, extent, lambda: self._rows(labels[1:]))
            return
        self.counts[label] = 1
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, self.width))
        self._loop(label, self.width, _ZERO, whole, self._row)
        self._rest(label, whole, self._row)

    def _rest(self, label: int, begin: IrValue, inside: Callable[[], None]) -> None:
        """Write at most one step of fewer points than a vector has."""
        rest = self.code.integer("sub", self.extents[label], begin)
        some = self.code.compare("icmp sgt", rest, _ZERO)
        end = self.code.make(f"select {some}, {self.code.integer('add', begin, self.width)}, {begin}", "i64", 0)
        before, self.mask = self.mask, self._lanes_below(rest)
        self._loop(label, self.width, begin, end, inside)
        self.mask = before

    def _row(self) -> None:
        self.folded, self.factors, self.saved = {}, {}, {}
        for stage in self.row_spec.stages:
            self._stage(stage)
            self.saved.update(stage.keeps)

    # --- stages -------------------------------------------------------------------------------------------------------

    def _stage(self, stage: RowStage) -> None:
        outer, self.vector = self.vector, stage.vector
        members = self.row_spec.spec.members
        roots = [self.row_spec.roots[k] for k in (*stage.folds, *stage.stores)]
        nodes = reachable_nodes(self.graph, roots)
        folds = [self._fold(members[k]) for k in stage.folds]
        along = self.row_spec.vector >= 0

        def leaf(coordinates: list[dict[int, int]], states: list[State]) -> list[State]:
            made = []
            for n, coordinate in enumerate(coordinates):
                for i, (fold, k) in enumerate(zip(folds, stage.folds, strict=True)):
                    x = self._wide(self.value(self.row_spec.roots[k], coordinate))
                    made.append(fold.step(states[n * len(folds) + i], x, None))
                for node, tensor in stage.keeps:
                    self._write(tensor, coordinate, self.value(node, coordinate))
                results = [self.value(self.row_spec.roots[k], coordinate) for k in stage.stores]
                for k, value in zip(stage.stores, results, strict=True):  # after all reads, which may alias
                    self._write(members[k].out, coordinate, value)
                if stage.scaled is not None:
                    self._scale(stage.scaled, coordinate)
            return made

        self.running = [fold for _ in range(stage.unrolled) for fold in folds]
        self.blocks = dict(zip(stage.inner, stage.blocks, strict=True))
        states = self._walk(stage.inner, [fold.empty(self.width) for fold in self.running], leaf, stage.unrolled, nodes)
        for i, (fold, k) in enumerate(zip(folds, stage.folds, strict=True)):
            mine = states[i :: len(folds)]
            self._settle(fold, k, mine if along else [self._across(fold, mine)])
        self.vector = outer

    def _in_blocks(
        self, label: int, span: Span, states: list[State], inside: Callable[[Span, list[State]], list[State]]
    ) -> list[State]:
        """Write a loop over a label, in blocks of partial sums if it is long."""

        def empty() -> list[State]:
            return [fold.empty(self.width) for fold in self.running]

        def combine(a: list[State], b: list[State]) -> list[State]:
            return [fold.combine(x, y) for fold, x, y in zip(self.running, a, b, strict=True)]

        return sum_in_blocks(self.code, span, self.blocks[label], states, empty, combine, inside)

    def _walk(
        self, labels: Sequence[int], states: list[State], leaf: Leaf, count: int, nodes: Sequence[int]
    ) -> list[State]:
        """Write loops over the labels that carry the states, with invariant values computed before them."""
        self._hoist(nodes, labels)
        if not labels:
            at = {self.vector: 0} if self.vector in self.counts else {}
            return leaf([at], states)
        label, extent = labels[0], self.extents[labels[0]]
        if label == self.vector:
            return self._vectors(label, states, leaf, count)

        def body(index: IrValue, carried: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            self.at[label] = index
            result = self._walk(labels[1:], like_states(carried, states), leaf, count, nodes)
            self.known = kept
            return flat(result)

        def inside(span: Span, mine: list[State]) -> list[State]:
            found = self.code.loop(*span, flat(mine), body)
            del self.at[label]
            return like_states(found, mine)

        return self._in_blocks(label, (_ZERO, extent, 1), states, inside)

    def _hoist(self, nodes: Sequence[int], moving: Sequence[int]) -> None:
        for node in nodes:
            n = self.graph[node]
            if n.op not in ("number", "iota") and n.labels <= self.at.keys() and not n.labels & set(moving):
                self.value(node, {self.vector: 0} if self.vector in n.labels else {})

    def _vectors(self, label: int, states: list[State], leaf: Leaf, count: int) -> list[State]:
        """Loop over vectors along a label: ``count`` at a time, then one, then the remaining lanes."""
        extent, each = self.extents[label], len(states) // count

        def steps(begin: IrValue, end: IrValue, number: int, mine: list[State], masked: bool) -> list[State]:
            def body(index: IrValue, carried: list[IrValue]) -> list[IrValue]:
                kept, before = dict(self.known), self.mask
                self.at[label] = index
                old = like_states(carried, mine)
                if masked:
                    self.mask = self._lanes_below(self.code.integer("sub", extent, index))
                new = leaf([{label: k} for k in range(number)], old)
                if self.mask is not None and masked:
                    new = [tuple(self.code.select(self.mask, y, x) for x, y in zip(a, b, strict=True))
                           for a, b in zip(old, new, strict=True)]  # fmt: skip
                self.known, self.mask = kept, before
                return flat(new)

            self.counts[label] = number
            found = self.code.loop(begin, end, self.width * number, flat(mine), body)
            del self.at[label], self.counts[label]
            return like_states(found, mine)

        size = self.width * count
        many = self.code.integer("sub", extent, self.code.integer("urem", extent, size))
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, self.width))
        states = self._in_blocks(
            label, (_ZERO, many, size), states, lambda span, mine: steps(span[0], span[1], count, mine, False)
        )
        near = states[:each]
        if count > 1:
            near = steps(many, whole, 1, near, False)
        some = self.code.compare("icmp slt", whole, extent)
        end = self.code.make(f"select {some}, {self.code.integer('add', whole, self.width)}, {whole}", "i64", 0)
        return [*steps(whole, end, 1, near, True), *states[each:]]

    # --- folds --------------------------------------------------------------------------------------------------------

    def _fold(self, member: RowMember) -> VectorFold | QuietExtremum:
        aggregation = member.einsum.aggregation
        assert aggregation is not None
        if aggregation.bound_sign:
            return QuietExtremum(self.code, aggregation.bound_sign > 0, aggregation.state[0])
        return VectorFold(self.code, aggregation)

    def _across(self, fold: VectorFold | QuietExtremum, states: list[State]) -> State:
        """Fold the lanes of vectors."""
        while len(states) > 1:
            pairs = zip(states[::2], states[1::2], strict=False)
            states = [*(fold.combine(a, b) for a, b in pairs), *(states[-1:] if len(states) % 2 else [])]
        (state,) = states
        distance = self.width // 2
        while distance:
            state = fold.combine(state, tuple(self.code.swapped(v, distance) for v in state))
            distance //= 2
        return tuple(self.code.lane(v) for v in state)

    def _settle(self, fold: VectorFold | QuietExtremum, k: int, states: list[State]) -> None:
        """Combine a row's state with the existing one and publish the result."""
        member, (state,) = self.row_spec.spec.members[k], states
        aggregation = member.einsum.aggregation
        assert aggregation is not None
        if member.state < 0:
            self.folded[k] = self._finished(member, self._result_of(fold, state))
            self._leave(member, self.folded[k])
            return
        old = self._read(member.state)
        joined = self._scaled_by(k, old)
        wide = tuple(self._like(v, old.width) for v in state)
        there = fold.state(joined) if isinstance(fold, QuietExtremum) else (joined,)
        union = fold.combine(there, wide)
        new = self._result_of(fold, union)
        self._write(member.state, self._here(), new, self.row_spec.vector)
        self.folded[k] = new
        if member.moves:
            assert isinstance(fold, QuietExtremum)
            seen = self.code.select(fold.is_empty(union), self.code.constant(0, new.element, new.width), new)
            self.folded[k] = self._moved(k, member, old, seen)
        self._leave(member, self.folded[k])

    def _leave(self, member: RowMember, value: IrValue) -> None:
        """Store a fold's result if other actions read it."""
        if member.out >= 0:
            self._write(member.out, self._here(), value, self.row_spec.vector)

    def _result_of(self, fold: VectorFold | QuietExtremum, state: State) -> IrValue:
        return fold.value(state) if isinstance(fold, QuietExtremum) else state[0]

    def _finished(self, member: RowMember, value: IrValue) -> IrValue:
        """Return the result of a fold without an existing state."""
        assert member.einsum.aggregation is not None
        graph = PrimitiveGraph()
        root = finalized(graph, member.einsum, [graph.input(0, member.einsum.aggregation.state[0], ())])
        made: dict[int, IrValue] = {}
        for node in reachable_nodes(graph, [root]):
            n = graph[node]
            arguments = [self._like(made[a], value.width) for a in n.arguments]
            types = [graph[a].dtype for a in n.arguments]
            made[node] = value if n.op == "input" else write(self.code, n, arguments, types)
        return made[root]

    def _scaled_by(self, k: int, value: IrValue) -> IrValue:
        """Rescale a sum by the factors of the maxima it depends on."""
        for j, other in enumerate(self.row_spec.spec.members):
            for target, _, coefficient in other.rescales:
                if target == k:
                    value = self.code.binary("fmul", value, self.factors[j, coefficient])
        return value

    def _moved(self, k: int, member: RowMember, old: IrValue, seen: IrValue) -> IrValue:
        """Return the published value of an extremum, and compute the factors of sums that depend on it."""
        code, gap = self.code, self.code.binary("fsub", old, seen)
        for coefficient in {c for _, _, c in member.rescales}:
            number = code.constant(-coefficient, gap.element, gap.width)
            x = gap if coefficient == -1 else code.binary("fmul", gap, number)
            # A single number is computed in a vector too: for a scalar, the compiler compares it with infinity by an
            # instruction that raises a flag for NaN.
            wide = x if x.width else code.first(x, self.width)
            factor = MathFunctions(code, wide).exp(wide)
            self.factors[k, coefficient] = factor if x.width else code.lane(factor)
        return seen

    def _scale(self, scaled: tuple[int, int, float], coordinate: dict[int, int]) -> None:
        tensor, member, coefficient = scaled
        old = self._read(tensor, coordinate)
        factor = self._like(self.factors[member, coefficient], old.width)
        self._write(tensor, coordinate, self.code.binary("fmul", old, factor))

    # --- tensors ------------------------------------------------------------------------------------------------------

    def _here(self) -> dict[int, int]:
        return {self.row_spec.vector: 0} if self.row_spec.vector >= 0 else {}

    def _read(self, tensor: int, coordinate: dict[int, int] | None = None) -> IrValue:
        t = self.row_spec.spec.tensors[tensor]
        outer, self.vector = self.vector, self.vector if coordinate is not None else self.row_spec.vector
        value = self._operand(tensor, t.dtype, t.labels, self._here() if coordinate is None else coordinate)
        self.vector = outer
        return value

    def _write(self, tensor: int, coordinate: dict[int, int], value: IrValue, vector: int | None = None) -> None:
        t = self.row_spec.spec.tensors[tensor]
        outer, self.vector = self.vector, self.vector if vector is None else vector
        width = self.width if self.vector in t.labels else 0
        self._put(self.operands[tensor], t.labels, coordinate, self._like(value, width), t.dtype, t.dtype)
        self.vector = outer

    def _input(self, node: int, coordinate: dict[int, int]) -> IrValue:
        payload = self.graph[node].payload
        assert isinstance(payload, int)
        return self.folded[~payload] if payload < 0 else super()._input(node, coordinate)

    def _value(self, node: int, coordinate: dict[int, int]) -> IrValue:
        if node in self.saved:
            n = self.graph[node]
            return self._operand(self.saved[node], n.dtype, n.labels, coordinate)
        return super()._value(node, coordinate)


def points(spec: FusedRowSpec, extents: Sequence[int]) -> int:
    """Return the points that all stages iterate over."""
    rows = math.prod(extents[p] for p in spec.rows)
    return sum(rows * math.prod(extents[p] for p in stage.inner) for stage in spec.stages)
