"""The loops of a kernel: a register tile of outputs, its fold inside, vectors along one label, a masked last step.

The one argument of the function is an array of i64:
extents and first points by label; whether a touch initialises, else the bytes of the result that this may be a part of;
for each operand, then each output, its address and what a step of each label moves, in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from einturnip.codegen.assemble import needed
from einturnip.codegen.fold import finished
from einturnip.codegen.graph import Graph
from einturnip.codegen.native.folds import Fold, State
from einturnip.codegen.native.ir import Code, Value
from einturnip.codegen.native.memory import METADATA, STREAMED_NBYTES, Coordinate
from einturnip.codegen.native.primitives import convert, write
from einturnip.codegen.native.recipe import Recipe
from einturnip.codegen.native.values import Values, flat, like_states

_LEAST_LINE = 32  # bytes of a vector that is worth storing past the caches
_STRIP = 128  # rows of a result that vectors are put in side by side, where operands are turned
CHUNK = 256  # values that a float sum adds before it goes on from zero


def function(recipe: Recipe, name: str) -> str:
    """The LLVM IR of a kernel."""
    nest = Nest(recipe)
    nest.write()
    body = "\n".join(nest.code.lines)
    declared = "\n".join(nest.code.declared)
    return (
        f"define void @{name}(ptr noalias readonly %args) #0 {{\nentry:\n{body}\n  ret void\n}}\n{declared}\n{METADATA}"
    )


class Nest(Values):
    """One kernel's code while it is written."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.einsum, self.graph = recipe, recipe.einsum, recipe.graph
        self.code = Code()
        self.width, self.vector = recipe.width, recipe.vector
        n = recipe.n_labels
        self.n = n
        self.order = needed(self.graph, [recipe.root])
        self.folding = self.einsum.aggregation is not None and recipe.mode != "finish"
        self.n_out = self.einsum.n_out
        self.counts = dict(recipe.tile)  # of this body of the register tile
        self.within: dict[int, tuple[Value, Value]] = {}  # of a label, from where to where a strip goes
        self.at: dict[int, Value] = {}  # where each label stands: its index in the tile
        self.mask: Value | None = None
        self.streamed = None
        self.known: dict[tuple[int, Coordinate], Value] = {}
        self.extents = [self._argument(p) for p in range(n)]
        self.origins = [self._argument(n + p) for p in range(n)]
        begins = self._argument(2 * n) if recipe.mode == "touch" else Value("1", "i64", 0)
        self.first = self.code.compare("icmp ne", begins, Value("0", "i64", 0))
        self.operands = self._places(2 * n + 1, len(recipe.operand_dtypes))
        self.outs = self._places(2 * n + 1 + len(self.operands) * (n + 1), len(recipe.out_dtypes))

    # --- the nest -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """All loops."""
        labels = [p for p in range(self.n_out) if p not in self.counts]
        nbytes = self.recipe.out_dtypes[0].itemsize
        if self.folding or math.prod(self.einsum.shape) * nbytes < STREAMED_NBYTES or self.width * nbytes < _LEAST_LINE:
            self._outer(labels)
        else:
            out, total = self.outs[0], self._result_nbytes()
            self._streaming(out, range(self.n_out), self.vector, nbytes, total, lambda: self._outer(labels))

    def _result_nbytes(self) -> Value:
        """Of the result that this call makes, or makes a part of."""
        if self.recipe.mode != "touch":
            return self._argument(2 * self.n)
        return self._nbytes(range(self.n_out), self.recipe.out_dtypes[0].itemsize)

    def _outer(self, labels: Sequence[int]) -> None:
        if not labels and self.recipe.swept >= 0:
            self._sweep(range(self.n_out, self.n), self.first)
            return
        if not labels:
            tiled = [p for p, _ in self.recipe.tile if p < self.n_out]
            if self.recipe.crossed:
                self._strips(tiled[0], lambda: self._tiles(tiled), tiled)
            else:
                self._tiles(tiled)
            return
        self._each(labels[0], 1, Value("0", "i64", 0), self.extents[labels[0]], lambda: self._outer(labels[1:]), labels)

    def _each(
        self, label: int, step: int, begin: Value, end: Value, inside: Callable[[], None], moving: Sequence[int]
    ) -> None:
        """A loop without carried values; what does not move inside is computed before it."""
        self._fix(frozenset(moving))

        def body(index: Value, _: list[Value]) -> list[Value]:
            kept = dict(self.known)
            self.at[label] = index
            inside()
            self.known = kept
            return []

        self.code.loop(begin, end, step, [], body)
        self.at.pop(label, None)

    def _fix(self, moving: frozenset[int]) -> None:
        """Compute what hangs on none of the labels that still move, so that it is computed once."""
        still = moving | (frozenset(range(self.n)) - self.at.keys())
        for node in self.order:
            n = self.graph[node]
            if n.op not in ("number", "iota") and n.labels and not n.labels & (still | self.counts.keys()):
                self.value(node, {})

    def _strips(self, label: int, inside: Callable[[], None], moving: Sequence[int]) -> None:
        """So few rows at a time that their pages stay known while vectors are put beside each other in them."""
        extent = self.extents[label]
        strips = self.code.integer("sdiv", self.code.integer("add", extent, _STRIP - 1), _STRIP)

        def strip() -> None:
            begin = self.at[label]
            last = self.code.integer("add", begin, _STRIP)
            short = self.code.compare("icmp sgt", last, extent)
            self.within[label] = begin, self.code.select(short, extent, last)
            inside()
            del self.within[label]

        self._each(label, _STRIP, Value("0", "i64", 0), self.code.integer("mul", strips, _STRIP), strip, moving)

    def _tiles(self, labels: Sequence[int]) -> None:
        """The register tile along each of its labels: whole tiles, then what remains, singly."""
        if not labels:
            self._tile()
            return
        # The vectors' label is walked outermost: what it reads stays in the cache while the others pass.
        label = labels[-1]
        count = self.counts[label]
        begin, extent = self.within.get(label, (Value("0", "i64", 0), self.extents[label]))
        size = count * (self.width if label == self.vector else 1)
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size)) if size > 1 else extent

        def inside() -> None:
            self._tiles(labels[:-1])

        self._each(label, size, begin, whole, inside, labels)
        if size == 1:
            return
        self.counts[label] = 1
        if label == self.vector:
            if count > 1:
                rest = self.code.integer("sub", extent, self.code.integer("urem", extent, self.width))
                self._each(label, self.width, whole, rest, inside, labels)
                whole = rest
            self._masked(label, whole, inside, labels)
        else:
            self._each(label, 1, whole, extent, inside, labels)
        self.counts[label] = count

    def _sweep(self, labels: Sequence[int], first: Value) -> None:
        """A few points along what is folded at a time, over all outputs, whose states wait in the nearest cache.

        So whole rows are read one after the other, as they lie. ``first``: whether nothing was folded yet.
        """
        label, extent, begin = labels[0], self.extents[labels[0]], Value("0", "i64", 0)
        size = self.counts[label] if label == self.recipe.swept else 1
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size)) if size > 1 else extent

        def inside() -> None:
            begins = self.code.compare("icmp eq", self.at[label], Value("0", "i64", 0))
            begins = self.code.binary("and", first, begins)
            if len(labels) > 1:
                self._sweep(labels[1:], begins)
                return
            before, self.first = self.first, begins
            self._tiles([self.vector])
            self.first = before

        self._each(label, size, begin, whole, inside, (*labels, self.vector))
        if size > 1:
            self.counts[label] = 1
            self._each(label, 1, whole, extent, inside, (*labels, self.vector))
            self.counts[label] = size

    def _masked(self, label: int, begin: Value, inside: Callable[[], None], moving: Sequence[int]) -> None:
        """At most one step of fewer points than a vector has."""
        rest = self.code.integer("sub", self.extents[label], begin)
        some = self.code.compare("icmp sgt", rest, Value("0", "i64", 0))
        end = self.code.integer("add", begin, self.width)
        end = self.code.make(f"select {some}, {end}, {begin}", "i64", 0)
        lanes = self.code.lanes("i64", self.width)
        before = self.mask
        self.mask = self.code.compare("icmp slt", lanes, self.code.splat(rest, self.width))
        self._each(label, self.width, begin, end, inside, moving)
        self.mask = before

    def _coordinates(self, labels: Sequence[int]) -> list[dict[int, int]]:
        """The points of the register tile along labels."""
        found: list[dict[int, int]] = [{}]
        for label in labels:
            found = [{**c, label: k} for c in found for k in range(self.counts[label])]
        return found

    def _tile(self) -> None:
        """One register tile: fold, join the state that is there, store."""
        tiled = [p for p, _ in self.recipe.tile]
        if not self.folding:
            for coordinate in self._coordinates(tiled):
                self._store(0, coordinate, self.value(self.recipe.root, coordinate), self.graph[self.recipe.root].dtype)
            return
        assert self.einsum.aggregation is not None
        fold, swept = Fold(self.code, self.einsum.aggregation), self.recipe.swept
        coordinates = self._coordinates([p for p in tiled if p != swept])
        if swept >= 0:
            for c in coordinates:
                state = fold.empty(self.width)
                for k in range(self.counts[swept]):
                    state = fold.step(state, self._wide(self.value(self.recipe.root, {**c, swept: k})), None)
                self._settle(fold, c, state)
            return
        aggregated = [p for p in range(self.n_out, self.n) if p != self.vector]
        if self.vector >= self.n_out:
            aggregated.append(self.vector)
        width = self.width
        states = [fold.empty(width) for _ in coordinates]
        states = self._fold(fold, aggregated, coordinates, states)
        if self.vector >= self.n_out:
            coordinates, states = self._across(fold, coordinates, states)
        for coordinate, state in zip(coordinates, states, strict=True):
            self._settle(fold, coordinate, state)

    def _fold(
        self, fold: Fold, labels: Sequence[int], coordinates: list[dict[int, int]], states: list[State]
    ) -> list[State]:
        """Loops over the aggregated labels, the states carried."""
        if not labels:
            return [  # each value goes into its state at once: no register holds it longer
                fold.step(s, self._wide(self.value(self.recipe.root, c)), self._flat_index(c) if fold.indexed else None)
                for s, c in zip(states, coordinates, strict=True)
            ]
        label = labels[0]
        self._fix(frozenset(labels))
        if label == self.vector:
            return self._fold_vectors(fold, labels, coordinates, states)
        zero, extent = Value("0", "i64", 0), self.extents[label]
        if len(labels) > 1 or not fold.sums_floats:
            return self._carry(fold, labels, coordinates, states, (zero, extent, 1))

        def chunk(index: Value, carried: list[Value]) -> list[Value]:
            end = self.code.intrinsic("smin", self.code.integer("add", index, CHUNK), extent)
            fresh = [fold.empty(self.width) for _ in coordinates]
            part = self._carry(fold, labels, coordinates, fresh, (index, end, 1))
            return flat([fold.combine(a, b) for a, b in zip(like_states(carried, states), part, strict=True)])

        return like_states(self.code.loop(zero, extent, CHUNK, flat(states), chunk), states)

    def _carry(
        self,
        fold: Fold,
        labels: Sequence[int],
        coordinates: list[dict[int, int]],
        states: list[State],
        span: tuple[Value, Value, int],
    ) -> list[State]:
        def body(index: Value, carried: list[Value]) -> list[Value]:
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
        self, fold: Fold, labels: Sequence[int], coordinates: list[dict[int, int]], states: list[State]
    ) -> list[State]:
        """Along the aggregated label in vectors; lanes past its end add nothing."""
        label, count = self.vector, self.counts[self.vector]
        extent, size = self.extents[label], self.width * count
        whole = self.code.integer("sub", extent, self.code.integer("urem", extent, size))
        states = self._carry(fold, labels, coordinates, states, (Value("0", "i64", 0), whole, size))
        self.counts[label] = 1
        some = [c[label] == 0 for c in coordinates]
        near = [c for c, s in zip(coordinates, some, strict=True) if s]
        lanes = self.code.lanes("i64", self.width)

        def body(index: Value, carried: list[Value]) -> list[Value]:
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

    def _across(
        self, fold: Fold, coordinates: list[dict[int, int]], states: list[State]
    ) -> tuple[list[dict[int, int]], list[State]]:
        """The lanes of each state folded together, and the vectors of one point."""
        groups: dict[Coordinate, list[State]] = {}
        for coordinate, state in zip(coordinates, states, strict=True):
            key = tuple(k for p, k in coordinate.items() if p != self.vector)
            groups.setdefault(key, []).append(state)
        labels = [p for p, _ in self.recipe.tile if p != self.vector]
        whole = [reduce(fold.combine, group) for group in groups.values()]
        found: list[State] = []
        while whole:
            n = min(self.width, 1 << len(whole).bit_length() - 1)
            found += self._lanes(fold, whole[:n])
            whole = whole[n:]
        return [dict(zip(labels, key, strict=True)) for key in groups], found

    def _lanes(self, fold: Fold, states: list[State]) -> list[State]:
        """The lanes of each of two, four, ... vectors folded together: two halves at a time in one vector.

        Lanes meet in the order in which those of one vector alone would.
        """
        code, distance, places, n = self.code, self.width // 2, [0] * len(states), 1
        while distance:
            if len(states) > 1:
                pairs = list(zip(states[::2], states[1::2], strict=True))
                halves = [[code.halves(x, y, distance) for x, y in zip(a, b, strict=True)] for a, b in pairs]
                states = [fold.combine(tuple(h[0] for h in both), tuple(h[1] for h in both)) for both in halves]
                places = [at + (distance if k & n else 0) for k, at in enumerate(places)]
            else:
                states = [fold.combine(states[0], tuple(code.swapped(v, distance) for v in states[0]))]
            distance, n = distance // 2, 2 * n
        return [tuple(code.lane(v, at) for v in states[0]) for at in places]

    def _settle(self, fold: Fold, coordinate: dict[int, int], state: State) -> None:
        """What a tile made joins what was there, and is finished where the kernel does it all."""
        aggregation, mode = self.einsum.aggregation, self.recipe.mode
        assert aggregation is not None
        if mode == "touch" or self.recipe.swept >= 0 or self.recipe.packing is not None:

            def joined() -> list[Value]:
                there = []
                for k, (stored, inner) in enumerate(zip(aggregation.state, fold.dtypes, strict=True)):
                    there.append(convert(self.code, self._load_out(k, coordinate, stored), stored, inner))
                return list(fold.combine(tuple(there), state))

            results = self.code.choose(self.first, lambda: list(state), joined)
            for k, (value, inner) in enumerate(zip(results, fold.dtypes, strict=True)):
                self._store(k, coordinate, value, inner)
            return
        graph = Graph()
        nodes = []
        for k, (stored, inner) in enumerate(zip(aggregation.state, fold.dtypes, strict=True)):
            nodes.append(graph.convert(graph.input(k, inner, ()), stored))
        root = finished(graph, self.einsum, nodes)
        made: dict[int, Value] = {}
        for node in needed(graph, [root]):
            n = graph[node]
            if n.op == "input":
                assert isinstance(n.payload, int)
                made[node] = state[n.payload]
                continue
            values = [self._like(made[a], state[0].width) for a in n.arguments]
            made[node] = write(self.code, n, values, [graph[a].dtype for a in n.arguments])
        self._store(0, coordinate, made[root], graph[root].dtype)

    def _input(self, node: int, coordinate: dict[int, int]) -> Value:
        slot = self.graph[node].payload
        if slot in self.recipe.crossed and self.recipe.mode != "finish":
            assert isinstance(slot, int)
            return self._turned(node, slot, coordinate)
        return super()._input(node, coordinate)

    # --- indices ----------------------------------------------------------------------------------------------------

    def _flat_index(self, coordinate: dict[int, int]) -> Value:
        """Over the aggregated labels, as argmax counts."""
        total: Value | None = None
        for label in self.einsum.aggregated:
            index = self._wide(self._index(label, coordinate))
            if total is not None:
                bound = self.code.constant(self.einsum.bounds[label], "i64", self.width)
                index = self.code.binary("add", self.code.binary("mul", total, bound), index)
            total = index
        return total if total is not None else self.code.constant(0, "i64", self.width)
