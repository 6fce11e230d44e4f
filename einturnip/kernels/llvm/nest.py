"""Loop nest of a kernel: register tiles of outputs around their folds, with vectors along one label.

The function's one argument is an array of i64: extents and first points by label; whether the state is initialised,
else the bytes of the whole result; for each operand, then each output, its address and its strides by label in bytes;
for each guarded axis of an operand its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.fold import finalized
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.llvm.blocked_sums import Span, sum_in_blocks
from einturnip.kernels.llvm.folds import State, VectorFold
from einturnip.kernels.llvm.ir import IrBuilder, IrValue
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.loops import OutputLoops
from einturnip.kernels.llvm.memory import Coordinate, Place
from einturnip.kernels.llvm.primitives import convert, write
from einturnip.kernels.llvm.values import flat, like_states


def function(spec: KernelSpec, name: str) -> str:
    """Return the LLVM IR of a kernel."""
    nest = LoopNest(spec)
    nest.write()
    return nest.text(name)


class LoopNest(OutputLoops):
    """Writes the code of one kernel."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec, self.einsum, self.graph = spec, spec.einsum, spec.graph
        self.code = IrBuilder()
        self.width, self.vector = spec.width, spec.vector
        n = spec.n_labels
        self.n = n
        self.order = reachable_nodes(self.graph, [spec.root])
        self.folding = spec.folding
        self.n_out = self.einsum.n_out
        self.counts = dict(spec.tile)  # of this body of the register tile
        self.within: dict[int, tuple[IrValue, IrValue]] = {}  # by label, the range of the current strip
        self.at: dict[int, IrValue] = {}  # by label, the current index in the tile
        self.mask: IrValue | None = None
        self.streamed = None
        self.known: dict[tuple[int, Coordinate], IrValue] = {}
        self.extents = [self._argument(p) for p in range(n)]
        self.origins = [self._argument(n + p) for p in range(n)]
        begins = self._argument(2 * n) if spec.mode == "accumulate" else IrValue("1", "i64", 0)
        self.first = self.code.compare("icmp ne", begins, IrValue("0", "i64", 0))
        self.operands = self._places(2 * n + 1, len(spec.operand_dtypes))
        self.outs = self._places(2 * n + 1 + len(self.operands) * (n + 1), len(spec.out_dtypes))
        sizes_at = 2 * n + 1 + (len(self.operands) + len(self.outs)) * (n + 1)
        self.sizes = [self._argument(sizes_at + k) for k in range(len(spec.guards))]
        self.are_inside = False
        self.partial: list[Place] = []
        self.merged: Place | None = None
        if spec.swept >= 0:
            self._make_partial_rows()

    # --- the nest -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all loops."""
        labels = [p for p in range(self.n_out) if p not in self.counts]
        nbytes = self.spec.out_dtypes[0].itemsize
        if self.spec.strided and self.vector < self.n_out:
            # Neighbours of a strided element belong to other points: they are used while they are in the cache.
            self._strips(self.vector, lambda: self._outer(labels), [*labels, *self.counts])
        elif not self.spec.streams:
            self._outer(labels)
        else:
            out, total = self.outs[0], self._result_nbytes()
            self._streaming(out, range(self.n_out), self.vector, nbytes, total, lambda: self._outer(labels))

    def _result_nbytes(self) -> IrValue:
        """Return the bytes of the whole result that this call computes or contributes to."""
        if self.spec.mode != "accumulate":
            return self._argument(2 * self.n)
        return self._nbytes(range(self.n_out), self.spec.out_dtypes[0].itemsize)

    def _outer(self, labels: Sequence[int]) -> None:
        if not labels and self.spec.swept >= 0:
            self._sweep_strips(range(self.n_out, self.n))
            return
        if not labels:
            tiled = [p for p, _ in self.spec.tile if p < self.n_out]
            if self.spec.crossed:
                self._strips(tiled[0], lambda: self._all_tiles(tiled), tiled)
            else:
                self._all_tiles(tiled)
            return
        self._each(
            labels[0], 1, IrValue("0", "i64", 0), self.extents[labels[0]], lambda: self._outer(labels[1:]), labels
        )

    def _tile(self) -> None:
        """Write one register tile: fold, combine with the existing state, store."""
        tiled = [p for p, _ in self.spec.tile]
        if not self.folding:
            for coordinate in self._coordinates(tiled):
                self._store(0, coordinate, self.value(self.spec.root, coordinate), self.graph[self.spec.root].dtype)
            return
        assert self.einsum.aggregation is not None
        fold, swept = VectorFold(self.code, self.einsum.aggregation), self.spec.swept
        coordinates = self._coordinates([p for p in tiled if p != swept])
        if self.merged is not None:
            for c in coordinates:
                address = self._address(self.merged, range(self.n_out), c)
                self._settle(fold, c, (self._load(address, fold.dtype, self.width),))
            return
        if swept >= 0:
            for c in coordinates:
                state = fold.empty(self.width)
                for k in range(self.counts[swept]):
                    state = fold.step(state, self._wide(self.value(self.spec.root, {**c, swept: k})), None)
                self._settle(fold, c, state)
            return
        states = [fold.empty(self.width) for _ in coordinates]
        states = self._fold(fold, self.spec.walked, coordinates, states)
        if self.vector >= self.n_out:
            coordinates, states = self._across(fold, coordinates, states)
        for coordinate, state in zip(coordinates, states, strict=True):
            self._settle(fold, coordinate, state)

    def _fold(
        self, fold: VectorFold, labels: Sequence[int], coordinates: list[dict[int, int]], states: list[State]
    ) -> list[State]:
        """Write loops over the aggregated labels that carry the states."""
        if not labels:
            return [  # each value is folded at once, so that it occupies no register for long
                fold.step(s, self._wide(self.value(self.spec.root, c)), self._flat_index(c) if fold.indexed else None)
                for s, c in zip(states, coordinates, strict=True)
            ]
        label = labels[0]
        self._fix(frozenset(labels))
        if label == self.vector:
            return self._fold_vectors(fold, labels, coordinates, states)
        span = IrValue("0", "i64", 0), self.extents[label], 1
        return self._in_blocks(fold, labels, coordinates, states, span)

    def _in_blocks(
        self,
        fold: VectorFold,
        labels: Sequence[int],
        coordinates: list[dict[int, int]],
        states: list[State],
        span: Span,
    ) -> list[State]:
        """Write the loop over the first label, in blocks of partial sums if it is long."""

        def empty() -> list[State]:
            return [fold.empty(self.width) for _ in coordinates]

        def combine(a: list[State], b: list[State]) -> list[State]:
            return [fold.combine(x, y) for x, y in zip(a, b, strict=True)]

        def inside(span: Span, carried: list[State]) -> list[State]:
            return self._carry(fold, labels, coordinates, carried, span)

        return sum_in_blocks(self.code, span, self.spec.blocks[-len(labels)], states, empty, combine, inside)

    def _carry(
        self,
        fold: VectorFold,
        labels: Sequence[int],
        coordinates: list[dict[int, int]],
        states: list[State],
        span: Span,
    ) -> list[State]:
        def body(index: IrValue, carried: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            self.at[labels[0]] = index
            result = self._fold(fold, labels[1:], coordinates, like_states(carried, states))
            self.known = kept
            return flat(result)

        begin, end, step = span
        found = self.code.loop(begin, end, step, flat(states), body)
        del self.at[labels[0]]
        return like_states(found, states)

    def _fold_vectors(
        self, fold: VectorFold, labels: Sequence[int], coordinates: list[dict[int, int]], states: list[State]
    ) -> list[State]:
        """Fold along the aggregated vector label; lanes past its end add nothing."""
        label, count = self.vector, self.counts[self.vector]
        extent, size = self.extents[label], self.width * count
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size))
        states = self._in_blocks(fold, labels, coordinates, states, (IrValue("0", "i64", 0), whole, size))
        self.counts[label] = 1
        some = [c[label] == 0 for c in coordinates]
        near = [c for c, s in zip(coordinates, some, strict=True) if s]
        lanes = self.code.lanes("i64", self.width)

        def body(index: IrValue, carried: list[IrValue]) -> list[IrValue]:
            kept, before = dict(self.known), self.mask
            self.at[label] = index
            rest = self.code.integer("sub", extent, index)
            self.mask = self.code.compare("icmp slt", lanes, self.code.splat(rest, self.width))
            old = like_states(carried, mine)
            new = self._fold(fold, labels[1:], near, old)
            chosen = [
                tuple(self.code.select(self.mask, y, x) for x, y in zip(a, b, strict=True))
                for a, b in zip(old, new, strict=True)
            ]
            self.known, self.mask = kept, before
            return flat(chosen)

        mine = [s for s, take in zip(states, some, strict=True) if take]
        carried = like_states(self.code.loop(whole, extent, self.width, flat(mine), body), mine)
        del self.at[label]
        self.counts[label] = count
        turn = iter(carried)
        return [next(turn) if take else s for s, take in zip(states, some, strict=True)]

    def _settle(self, fold: VectorFold, coordinate: dict[int, int], state: State) -> None:
        """Combine a tile's state with the existing one and store it, or finalize and store it."""
        aggregation, mode = self.einsum.aggregation, self.spec.mode
        assert aggregation is not None
        if mode == "accumulate" or self.spec.swept >= 0:

            def joined() -> list[IrValue]:
                there = []
                for k, (stored, inner) in enumerate(zip(aggregation.state, fold.dtypes, strict=True)):
                    there.append(convert(self.code, self._load_out(k, coordinate, stored), stored, inner))
                return list(fold.combine(tuple(there), state))

            results = self.code.choose(self.first, lambda: list(state), joined)
            for k, (value, inner) in enumerate(zip(results, fold.dtypes, strict=True)):
                self._store(k, coordinate, value, inner)
            return
        graph = PrimitiveGraph()
        nodes = []
        for k, (stored, inner) in enumerate(zip(aggregation.state, fold.dtypes, strict=True)):
            nodes.append(graph.convert(graph.input(k, inner, ()), stored))
        root = finalized(graph, self.einsum, nodes)
        made: dict[int, IrValue] = {}
        for node in reachable_nodes(graph, [root]):
            n = graph[node]
            if n.op == "input":
                assert isinstance(n.payload, int)
                made[node] = state[n.payload]
                continue
            values = [self._like(made[a], state[0].width) for a in n.arguments]
            made[node] = write(self.code, n, values, [graph[a].dtype for a in n.arguments])
        self._store(0, coordinate, made[root], graph[root].dtype)

    def _input(self, node: int, coordinate: dict[int, int]) -> IrValue:
        slot = self.graph[node].payload
        assert isinstance(slot, int)
        if slot in self.spec.crossed and self.spec.mode != "finalize":
            return self._transposed(node, slot, coordinate)
        labels = self._labels_read(node)
        if slot in self.spec.strided and self.vector in labels:
            address = self._address(self.operands[slot], labels, coordinate)
            return self._load_strided(address, self.operands[slot][1][self.vector], self.graph[node].dtype)
        return super()._input(node, coordinate)

    # --- indices ----------------------------------------------------------------------------------------------------

    def _flat_index(self, coordinate: dict[int, int]) -> IrValue:
        """Return the index over the aggregated labels, as argmax counts."""
        total: IrValue | None = None
        for label in self.einsum.aggregated:
            index = self._wide(self._index(label, coordinate))
            if total is not None:
                bound = self.code.constant(self.einsum.bounds[label], "i64", self.width)
                index = self.code.binary("add", self.code.binary("mul", total, bound), index)
            total = index
        return total if total is not None else self.code.constant(0, "i64", self.width)
