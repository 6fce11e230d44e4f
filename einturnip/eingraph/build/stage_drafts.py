"""Stages under construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from einturnip.eingraph.build.loop_body import LoopBody, TensorSlice
from einturnip.eingraph.builder import GraphBuilder, copy_of
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node, operands_of


@dataclass
class LoopDraft:
    """The parts of a stage that make it a loop; see ``Iterations``. Tensors are given by number.

    ``variable``: name of the loop's variable; ``variable_input``: the input with its value. ``states``: tensors that
    are both input and output. ``reads``: slices by the number of the input; ``writes``: slices by the name of the
    output. ``initial``: the contents of states, and of tensors that are written in slices, when the loop begins.
    ``body``: of a loop in the program; ``tape_of``: by state, its tape.

    In a backward loop: ``forward`` is the stage of the loop that it derives; ``tapes``: by the number of an input that
    reads a tape, the state on that tape.
    """

    variable: str
    values: range
    states: list[int]
    reads: dict[int, TensorSlice]
    body: LoopBody | None = None
    variable_input: int | None = None
    writes: dict[str, TensorSlice] = field(default_factory=dict)
    initial: dict[int, int | TensorSlice] = field(default_factory=dict)
    condition: int | None = None
    counted: int | None = None
    segment: int = 0
    saved: dict[int, TensorSlice] = field(default_factory=dict)
    replays: bool = False
    forward: int = -1
    tapes: dict[int, int] = field(default_factory=dict)
    tape_of: dict[int, int] = field(default_factory=dict)

    @property
    def own_inputs(self) -> set[int]:
        """The numbers of inputs that are not whole tensors of other stages."""
        return {*self.states, *self.reads, *([] if self.variable_input is None else [self.variable_input])}


@dataclass
class StageDraft:
    """A stage under construction.

    ``inputs``: the tensor of each input node. ``nodes``: by tensor number.
    """

    builder: GraphBuilder
    line: int
    loop: LoopDraft | None = None
    inputs: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    outputs: list[tuple[str, int]] = field(default_factory=list)

    def graph(self, program: str, source: tuple[str, ...]) -> EinGraph:
        """The finished graph."""
        return EinGraph(tuple(self.builder.nodes), tuple(self.outputs), program, source)

    def add_output(self, name: str, node: int, node_name: str = "", line: int = 0) -> None:
        """Add a node as an output; an input is copied first, since an output must be computed."""
        self.outputs.append((name, self.copied(node, node_name, line)))

    def copied(self, node: int, name: str = "", line: int = 0) -> int:
        """A node with the same value that can be an output: a copy of an input."""
        made = self.builder.nodes[node]
        if not isinstance(made, InputNode):
            return node
        return self.builder.place([copy_of(made.dtype, made.shape)], [node], name or made.name, line or made.line)

    def drop_unused(self) -> None:
        """Drop the nodes that no output depends on; called when the outputs are complete."""
        nodes = self.builder.nodes
        used, stack = set[int](), [node for _, node in self.outputs]
        while stack:
            node = stack.pop()
            if node not in used:
                used.add(node)
                stack += operands_of(nodes[node])
        at = {node: k for k, node in enumerate(sorted(used))}
        self.builder.nodes = [moved(nodes[node], at) for node in at]
        self.outputs = [(name, at[node]) for name, node in self.outputs]
        self.inputs = {at[node]: number for node, number in self.inputs.items() if node in at}
        kept = {number: at[node] for number, node in self.nodes.items() if node in at}
        self.nodes.clear()
        self.nodes.update(kept)


def moved(node: Node, at: Mapping[int, int]) -> Node:
    """The node with its operands renumbered."""
    match node:
        case EinsumNode(operands=operands):
            return replace(node, operands=tuple(at[operand] for operand in operands))
        case ConcatNode(pieces=pieces):
            return replace(node, pieces=tuple(replace(piece, operand=at[piece.operand]) for piece in pieces))
    return node
