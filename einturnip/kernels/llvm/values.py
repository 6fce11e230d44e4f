"""Values of a join's graph at points of a register tile, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.kernels.llvm.folds import State
from einturnip.kernels.llvm.ir import METADATA, IrValue
from einturnip.kernels.llvm.memory import Place, TileMemory
from einturnip.kernels.llvm.primitives import write


class NodeValues(TileMemory):
    """Computes nodes of the graph, and reads addresses and strides from the function's argument.

    ``n``: labels of the space; ``extents``, ``origins``: of the tile, by label.
    """

    n: int
    extents: list[IrValue]
    origins: list[IrValue]

    def text(self, name: str) -> str:
        """Return the LLVM IR of the function that the code so far is the body of."""
        body, declared = "\n".join(self.code.lines), "\n".join(self.code.declared)
        head = f"define void @{name}(ptr noalias readonly %args) #0 {{"
        return f"{head}\nentry:\n{body}\n  ret void\n}}\n{declared}\n{METADATA}"

    def _loop(self, label: int, step: int, begin: IrValue, end: IrValue, inside: Callable[[], None]) -> None:
        """Write a loop over a label without carried values."""

        def body(index: IrValue, _: list[IrValue]) -> list[IrValue]:
            kept = dict(self.known)
            self.at[label] = index
            inside()
            self.known = kept
            return []

        self.code.loop(begin, end, step, [], body)
        self.at.pop(label, None)

    def _lanes_below(self, rest: IrValue) -> IrValue:
        """Return the mask of the lanes with a number below ``rest``."""
        lanes = self.code.lanes("i64", self.width)
        return self.code.compare("icmp slt", lanes, self.code.splat(rest, self.width))

    def _argument(self, k: int) -> IrValue:
        address = self.code.make(f"getelementptr i64, ptr %args, i64 {k}", "ptr", 0)
        return self.code.make(f"load i64, {address}", "i64", 0)

    def _places(self, start: int, count: int) -> list[Place]:
        found = []
        for k in range(count):
            base = start + k * (self.n + 1)
            address = self.code.cast("inttoptr", self._argument(base), "ptr")
            found.append((address, [self._argument(base + 1 + p) for p in range(self.n)]))
        return found

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, node: int, coordinate: dict[int, int]) -> IrValue:
        """Return a node at a point of the register tile.

        It is a vector if the node depends on the vector label, else a scalar.
        """
        n = self.graph[node]
        key = node, tuple(coordinate[p] for p in sorted(n.labels & coordinate.keys()))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._value(node, coordinate)
        return found

    def _value(self, node: int, coordinate: dict[int, int]) -> IrValue:
        n = self.graph[node]
        if n.op == "input":
            return self._input(node, coordinate)
        if n.op == "guarded":
            return self._guarded(node, coordinate)
        if n.op == "iota":
            assert isinstance(n.payload, int)
            return self._index(n.payload, coordinate)
        arguments = [self.value(a, coordinate) for a in n.arguments]
        width = max((a.width for a in arguments), default=0)
        types = [self.graph[a].dtype for a in n.arguments]
        return write(self.code, n, [self._like(a, width) for a in arguments], types)

    def _wide(self, value: IrValue) -> IrValue:
        return self._like(value, self.width)

    def _index(self, label: int, coordinate: dict[int, int]) -> IrValue:
        """Return a label's index in the whole tensor."""
        index = self.code.integer("add nsw", self._local(label, coordinate), self.origins[label])
        if label != self.vector:
            return index
        return self.code.binary("add", self.code.splat(index, self.width), self.code.lanes("i64", self.width))

    def _input(self, node: int, coordinate: dict[int, int]) -> IrValue:
        """Load an input's value."""
        n = self.graph[node]
        assert isinstance(n.payload, int)
        return self._operand(n.payload, n.dtype, self._labels_read(node), coordinate)

    def _guarded(self, node: int, coordinate: dict[int, int]) -> IrValue:
        """Load a guarded input, or compute its fill."""
        raise NotImplementedError


def flat(states: Sequence[State]) -> list[IrValue]:
    """Return the components of states in one list."""
    return [v for state in states for v in state]


def like_states(values: Sequence[IrValue], like: Sequence[State]) -> list[State]:
    """Group components into states of the same sizes as ``like``."""
    found, at = [], 0
    for state in like:
        found.append(tuple(values[at : at + len(state)]))
        at += len(state)
    return found
