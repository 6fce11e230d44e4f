"""Gradients by a reverse sweep over the nodes of a graph under construction.

The adjoint of a node is the sum of its seed, if it has one, and the contributions of all nodes that read it. There is
one sweep for each loss. It computes only the adjoints that are requested, and gradients of the same loss share it. It
adds ordinary einsums, which can be differentiated again.

Source: Griewank and Walther, Evaluating Derivatives (2nd ed.), ch. 3: reverse mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from einturnip.eingraph.autodiff.einsum import AdjointTerm, contribution, is_flat
from einturnip.eingraph.autodiff.pieces import AdjointPart, total, visible
from einturnip.eingraph.autodiff.shift_invariance import is_shift_invariant
from einturnip.eingraph.builder import GraphBuilder, LabelSpace, StatementDrafts, distinct, pattern
from einturnip.eingraph.types import ConcatNode, EinsumNode, Node, TensorPiece, operands_of
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import ScalarConst
from einturnip.ir.simplify import constant, is_number

Adjoint: TypeAlias = int | ScalarConst
"""A node id, or a number that all elements share."""


class Gradients:
    """The gradients of one graph under construction, by loss."""

    def __init__(self, assembly: GraphBuilder) -> None:
        self.assembly = assembly
        self._sweeps: dict[int, Sweep] = {}
        self._made: dict[Hashable, tuple[AdjointTerm | None, Einsum]] = {}

    def gradient(self, loss: int, tensor: int) -> int:
        """Return the node of the derivative of the scalar node ``loss`` with respect to the node ``tensor``."""
        adjoint = self.sweep_of(loss).adjoint(tensor)
        return adjoint if isinstance(adjoint, int) else self.filled(adjoint, tensor)

    def sweep_of(self, loss: int) -> Sweep:
        """Return the sweep of a loss, which all of its gradients share."""
        if loss not in self._sweeps:
            self._sweeps[loss] = Sweep(self, {loss: (constant(1, self.assembly.nodes[loss].dtype),)})
        return self._sweeps[loss]

    def filled(self, number: ScalarConst, tensor: int) -> int:
        """Add a node with the same number at every element, in the shape of another node."""
        node = self.assembly.nodes[tensor]
        space = LabelSpace(StatementDrafts(), [f"i{axis}" for axis in range(len(node.shape))], node.shape)
        space.emit(range(len(node.shape)), (), number, None, "")
        return self.place(space.drafts, (), node)

    def place(self, drafts: StatementDrafts, outside: Sequence[int], node: Node) -> int:
        """Add drafts that are part of a node's adjoint, named after that node."""
        name = self.assembly.fresh(f"{node.name}.grad")
        return self.assembly.place(drafts.nodes, outside, name, node.line)

    def contribution(self, user: int, slot: int, g: Adjoint) -> tuple[AdjointTerm | None, tuple[int, ...]]:
        """Return a slot's contribution to the adjoint of its operand, and the nodes that its drafts read."""
        node = self.assembly.nodes[user]
        assert isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum)
        read = [*node.operands, user, *((g,) if isinstance(g, int) else ())]
        places, outside = pattern(read), distinct(read)
        word = repr(g.value) if isinstance(g, ScalarConst) else ""
        key = id(node.einsum), slot, places, word
        if key not in self._made:
            tensors = [(self.assembly.nodes[o].dtype, self.assembly.nodes[o].shape) for o in outside]
            value = places[len(node.operands)]
            seed = g if isinstance(g, ScalarConst) else places[-1]
            made = contribution(node.einsum, places[: len(node.operands)], tensors, slot, seed, value)
            self._made[key] = made, node.einsum
        return self._made[key][0], outside


class Sweep:
    """The adjoints of one loss that have been computed so far.

    ``seeds``: by node, the derivatives of the loss by it that no reader of the node contributes: 1 for the loss itself,
    or what another graph found that reads the node.
    """

    def __init__(self, gradients: Gradients, seeds: Mapping[int, Sequence[Adjoint]]) -> None:
        self.gradients, self.seeds = gradients, seeds
        nodes = gradients.assembly.nodes
        self.adjoints: dict[int, Adjoint] = {}
        self._users: dict[int, list[int]] = {}
        seen, stack = set(seeds), list(seeds)
        while stack:
            user = stack.pop()
            for operand in dict.fromkeys(_differentiable(nodes, user)):
                self._users.setdefault(operand, []).append(user)
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)

    def adjoint(self, tensor: int) -> Adjoint:
        """Return the adjoint of a node; computes those of all its readers first."""
        needed, stack = set(), [tensor]
        while stack:
            node = stack.pop()
            if node not in needed and node not in self.adjoints:
                needed.add(node)
                stack += self._users.get(node, ())
        for node in sorted(needed, reverse=True):
            self.adjoints[node] = self._made(node)
        return self.adjoints[tensor]

    def _made(self, number: int) -> Adjoint:
        made = self.gradients
        node = made.assembly.nodes[number]
        if is_shift_invariant(made.assembly.nodes, self._users, self.seeds, number):
            return constant(0, node.dtype)
        parts = [
            AdjointPart(g, whole_piece(g, node) if isinstance(g, int) else None) for g in self.seeds.get(number, ())
        ]
        for user in sorted(self._users.get(number, ()), reverse=True):
            g = self.adjoints[user]
            if not is_zero(g):
                parts += self._from(user, number, g)
        return total(made.assembly, parts, node.shape, node.dtype, f"{node.name}.grad", node.line)

    def _from(self, user: int, number: int, g: Adjoint) -> Iterable[AdjointPart]:
        """Return the contributions of node ``user`` to the adjoint of node ``number``, which it reads."""
        made = self.gradients
        node, reads = made.assembly.nodes[number], made.assembly.nodes[user]
        if isinstance(reads, ConcatNode):
            return visible(made.assembly, reads, number, g, node)
        parts = []
        for slot, operand in enumerate(operands_of(reads)):
            if operand == number:
                found, outside = made.contribution(user, slot, g)
                if found is not None and found.value is not None:
                    parts.append(AdjointPart(found.value, None))
                elif found is not None:
                    name = made.assembly.fresh(f"{node.name}.grad")
                    placed = made.assembly.place(found.drafts, outside, name, reads.line)
                    parts.append(AdjointPart(placed, TensorPiece(placed, found.axes, found.offsets)))
        return parts


def is_zero(adjoint: Adjoint) -> bool:
    """True for a number that is zero."""
    return isinstance(adjoint, ScalarConst) and is_number(adjoint, 0)


def whole_piece(number: int, node: Node) -> TensorPiece:
    """A node as a piece that is a whole tensor."""
    axes = len(node.shape)
    return TensorPiece(number, tuple(range(axes)), (0,) * axes)


def _is_flat(node: EinsumNode) -> bool:
    assert isinstance(node.einsum, Einsum)
    return is_flat(node.einsum)


def _differentiable(nodes: Sequence[Node], user: int) -> Iterable[int]:
    """Yield the operands on which a node depends differentiably."""
    node = nodes[user]
    if not node.dtype.is_inexact or (isinstance(node, EinsumNode) and _is_flat(node)):
        return ()
    return (o for o in operands_of(node) if nodes[o].dtype.is_inexact)
