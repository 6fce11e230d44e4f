"""The floors of a plan as graphs for Graphviz; a floor of very many nodes as a graph of its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import format_size
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planned_program import PlannedProgram
from einturnip.report.emit import Floor
from einturnip.report.notes import size, tiles_text, type_text
from einturnip.report.styled_lines import cut
from einturnip.report.tensor_work import nodes_of_ops
from einturnip.taskgraph.types import TaskGraph, TaskKind

# A drawing of more nodes than this shows nobody anything.
MOST = 300
_COLOURS = {"load": "lightblue", "reload": "lightblue", "store": "khaki", "offload": "khaki", "kernel": "white"}
_COLOURS |= {"move": "lightgrey", "aggregate": "lightgrey"}

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DotGraph:
    """Nodes by number, with edges between them. ``group`` is what a node is counted with where there are too many."""

    n: int
    label: Callable[[int], str]
    style: Callable[[int], str]
    edges: Ints
    group: Ints
    group_label: Callable[[int, int], str]


def emit_dot(planned: PlannedProgram, floor: Floor) -> Iterator[str]:
    """The floor in Graphviz's language. Of more than ``MOST`` nodes, groups are drawn, edges with their number."""
    match floor:
        case "einsum" | "decomposition":
            drawing = _einsums(planned, floor == "decomposition")
        case "taskgraph":
            drawing = _tasks(planned)
        case "memgraph":
            drawing = _ops(planned)
        case _:
            assert_never(floor)
    yield f"digraph {floor} {{"
    yield '  node [shape=box, style=filled, fillcolor=white, fontname="sans-serif", fontsize=10];'
    yield from _each(drawing) if drawing.n <= MOST else _groups(drawing)
    yield "}"


def _each(drawing: DotGraph) -> Iterator[str]:
    for i in range(drawing.n):
        yield f"  n{i} [label={_quoted(drawing.label(i))}{drawing.style(i)}];"
    for a, b in drawing.edges.tolist():
        yield f"  n{a} -> n{b};"


def _groups(drawing: DotGraph) -> Iterator[str]:
    names, first, count = np.unique(drawing.group, return_index=True, return_counts=True)
    yield f"  label={_quoted(f'{drawing.n:,} nodes, drawn in {len(names):,} groups of alike ones')};"
    for name, i, n in zip(names.tolist(), first.tolist(), count.tolist(), strict=True):
        yield f"  n{name} [label={_quoted(drawing.group_label(i, n))}{drawing.style(i)}];"
    if not len(drawing.edges):
        return
    between, times = np.unique(drawing.group[drawing.edges], axis=0, return_counts=True)
    for (a, b), n in zip(between.tolist(), times.tolist(), strict=True):
        yield f'  n{a} -> n{b} [label="{n:,}"];'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _fill(word: str) -> str:
    return f", fillcolor={_COLOURS[word]}"


def _csr_edges(ptr: Ints, targets: NDArray[np.int32]) -> Ints:
    """(earlier, later) for each edge of a CSR of what every node comes after."""
    later = np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))
    return np.stack([targets.astype(np.int64), later], axis=1)


def _einsums(planned: PlannedProgram, cuts: bool) -> DotGraph:
    graph: EinGraph = planned.graph
    outputs = {number: name for name, number in graph.outputs}
    made = [(i, node) for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)]
    pairs = [(operand, i) for i, node in made for operand in dict.fromkeys(node.operands)]

    def label(i: int) -> str:
        node = graph.nodes[i]
        shown = f"{node.name}: {type_text(node)}, {format_size(size(node))}"
        if not isinstance(node, InputNode):
            shown += f"\nline {node.line}: {cut(graph.statement(node.line).partition('#')[0], 48)}"
        if cuts:
            shown += f"\n{tiles_text(planned.decomposition.partitionings[i])}"
        return shown + (f"\noutput {outputs[i]}" if i in outputs else "")

    def style(i: int) -> str:
        match graph.nodes[i]:
            case InputNode():
                return _fill("load")
            case EinsumNode() | ConcatNode():
                return ', fillcolor="khaki"' if i in outputs else ""

    def group_label(i: int, n: int) -> str:
        node = graph.nodes[i]
        return f"line {node.line}: {n:,} tensors\n{cut(graph.statement(node.line).partition('#')[0], 48)}"

    lines = np.array([node.line for node in graph.nodes], dtype=np.int64)
    return DotGraph(len(graph.nodes), label, style, np.array(pairs, np.int64).reshape(-1, 2), lines, group_label)


def _tasks(planned: PlannedProgram) -> DotGraph:
    tasks, nodes = planned.taskgraph, planned.graph.nodes
    outputs = np.array([node for _, node in planned.graph.outputs], dtype=np.int64)
    of = tasks.node.astype(np.int64)
    stores = tasks.kind == TaskKind.STORE
    of[stores] = outputs[of[stores]]

    def word(i: int) -> str:
        return TaskKind(int(tasks.kind[i])).word

    def label(i: int) -> str:
        key = tasks.key[tasks.key_ptr[i] : tasks.key_ptr[i + 1]].tolist() if word(i) != "move" else ""
        return f"{i}: {word(i)} {nodes[of[i]].name} {key}\n{format_size(int(tasks.value_nbytes[tasks.value[i]]))}"

    def group_label(i: int, n: int) -> str:
        return f"{n:,} x {word(i)} {nodes[of[i]].name}"

    return DotGraph(
        len(tasks),
        label,
        lambda i: _fill(word(i)),
        _task_edges(tasks),
        of * len(TaskKind) + tasks.kind,
        group_label,
    )


def _task_edges(tasks: TaskGraph) -> Ints:
    """From every maker of a value (a state has several) to its readers."""
    making = np.flatnonzero(tasks.kind != TaskKind.STORE)
    making = making[np.argsort(tasks.value[making], kind="stable")]
    ptr = np.searchsorted(tasks.value[making], np.arange(tasks.n_values + 1))
    reader = np.repeat(np.arange(len(tasks), dtype=np.int64), np.diff(tasks.read_ptr))
    many = (ptr[1:] - ptr[:-1])[tasks.read]
    begins = np.repeat(ptr[tasks.read], many)
    within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    edges = np.stack([making[begins + within], np.repeat(reader, many)], axis=1)
    return np.unique(edges, axis=0)


def _ops(planned: PlannedProgram) -> DotGraph:
    graph, nodes = planned.memgraph, planned.graph.nodes
    of = nodes_of_ops(graph)

    def word(i: int) -> str:
        return OpKind(int(graph.kind[i])).name.lower()

    def label(i: int) -> str:
        op = graph[i]
        held = op.writes if op.kind.lane != Lane.OUT else op.reads
        places = ", ".join(f"{a.offset}:{a.offset + a.nbytes}" for a in held if a.nbytes)
        return f"{i}: {word(i)} {nodes[of[i]].name}\n{places}"

    def group_label(i: int, n: int) -> str:
        return f"{n:,} x {word(i)} {nodes[of[i]].name}"

    return DotGraph(
        len(graph),
        label,
        lambda i: _fill(word(i)),
        _csr_edges(graph.after_ptr, graph.after),
        of * len(OpKind) + graph.kind,
        group_label,
    )
