"""An EinGraph under construction, and the label space in which one statement's nodes are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from einturnip.core.algebra import Aggregation
from einturnip.core.einsum import Einsum
from einturnip.core.scalar import Label, Operand, Scalar, rewrite
from einturnip.eingraph.types import EinsumNode, Node


class Assembly:
    """Nodes so far. Lives inside one function; what leaves it is a frozen EinGraph."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.nodes: list[Node] = []
        self._names = set(names)

    def add(self, node: Node) -> int:
        """Append a node; its id."""
        self.nodes.append(node)
        self._names.add(node.name)
        return len(self.nodes) - 1

    def fresh(self, name: str) -> str:
        """A name no node has yet: ``name``, ``name2``, ``name3``..., which is then taken."""
        candidate, n = name, 1
        while candidate in self._names:
            n += 1
            candidate = f"{name}{n}"
        self._names.add(candidate)
        return candidate


class Space:
    """Labels with bounds, and scalar expressions over them that read earlier nodes.

    An ``Operand`` of the space stands for one (node, access); the same pair is the same slot. ``emit`` makes a node of
    an expression, with just the labels and slots that it needs.
    """

    def __init__(self, assembly: Assembly, labels: Sequence[str], bounds: Sequence[int], name: str, line: int) -> None:
        self.assembly, self.name, self.line = assembly, name, line
        self.labels, self.bounds = tuple(labels), tuple(bounds)
        self.slots: list[tuple[int, tuple[int, ...]]] = []
        self._slot_of: dict[tuple[int, tuple[int, ...]], int] = {}

    def operand(self, node: int, access: tuple[int, ...]) -> Operand:
        """The element of ``node`` at the labels of ``access``."""
        key = (node, access)
        if key not in self._slot_of:
            self._slot_of[key] = len(self.slots)
            self.slots.append(key)
        return Operand(self._slot_of[key], self.assembly.nodes[node].dtype)

    @classmethod
    def around(cls, assembly: Assembly, node: EinsumNode) -> Space:
        """The label space of an existing node, without slots yet."""
        return cls(assembly, node.einsum.labels, node.einsum.bounds, node.name, node.line)

    def substitute(
        self,
        join: Scalar,
        accesses: Sequence[tuple[int, ...]],
        operands: Sequence[int],
        labels: Sequence[int] | None = None,
    ) -> Scalar:
        """A join whose slots are given by ``accesses`` and ``operands``, in this space's slots.

        ``labels`` are this space's labels for the join's own, where they differ.
        """

        def leaf(expr: Scalar) -> Scalar:
            match expr:
                case Operand(slot, _):
                    return self.operand(operands[slot], accesses[slot])
                case Label(position, dtype) if labels is not None:
                    return Label(labels[position], dtype)
            return expr

        return rewrite(join, leaf)

    def labels_in(self, expr: Scalar) -> frozenset[int]:
        """The labels that an expression stands on: those of its accesses and those used as numbers."""
        found: set[int] = set()

        def leaf(e: Scalar) -> Scalar:
            match e:
                case Operand(slot, _):
                    found.update(self.slots[slot][1])
                case Label(position, _):
                    found.add(position)
            return e

        rewrite(expr, leaf)
        return frozenset(found)

    def emit(
        self,
        out: Sequence[int],
        bound: Sequence[int],
        join: Scalar,
        aggregation: Aggregation | None,
        name: str | None = None,
    ) -> int:
        """Add the node ``[out] = aggregation[bound] join``; its id. Without a name it takes one after its operator."""
        if name is None:
            name = self.assembly.fresh(f"{self.name}.{aggregation.op if aggregation else 'map'}")
        return self.assembly.add(self.node(out, bound, join, aggregation, name))

    def node(
        self, out: Sequence[int], bound: Sequence[int], join: Scalar, aggregation: Aggregation | None, name: str
    ) -> EinsumNode:
        """The node ``[out] = aggregation[bound] join``, not yet added."""
        order = (*out, *bound)
        position = {p: i for i, p in enumerate(order)}
        slots: dict[int, int] = {}

        def leaf(expr: Scalar) -> Scalar:
            match expr:
                case Operand(slot, dtype):
                    return Operand(slots.setdefault(slot, len(slots)), dtype)
                case Label(p, dtype):
                    return Label(position[p], dtype)
            return expr

        renumbered = rewrite(join, leaf)
        sources = [self.slots[s] for s in slots]
        einsum = Einsum(
            labels=tuple(self.labels[p] for p in order),
            bounds=tuple(self.bounds[p] for p in order),
            n_out=len(out),
            accesses=tuple(tuple(position[p] for p in access) for _, access in sources),
            dtypes=tuple(self.assembly.nodes[node].dtype for node, _ in sources),
            join=renumbered,
            aggregation=aggregation,
        )
        return EinsumNode(name, einsum, tuple(node for node, _ in sources), self.line)


def copy_input(assembly: Assembly, node: int, name: str, line: int) -> int:
    """A node of its own with the values of another, for an output that is an input."""
    source = assembly.nodes[node]
    labels = tuple(f"i{axis}" for axis in range(len(source.shape)))
    space = Space(assembly, labels, source.shape, name, line)
    axes = tuple(range(len(labels)))
    return space.emit(axes, (), space.operand(node, axes), None, name)
