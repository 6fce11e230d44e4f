"""The IRs of a plan as Graphviz graphs; an IR with very many nodes as a graph of its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import format_size
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.emit import IRLevel
from einturnip.report.notes import size, tiles_text, type_text
from einturnip.report.relations import operators
from einturnip.report.styled_lines import truncated
from einturnip.report.tensor_work import nodes_of_ops
from einturnip.taskgraph.types import TaskGraph, TaskKind

# A drawing of more nodes is unreadable.
MAX_NODES = 300
_COLOURS = {"load": "lightblue", "reload": "lightblue", "store": "khaki", "offload": "khaki", "kernel": "white"}
_COLOURS |= {"move": "lightgrey", "aggregate": "lightgrey", "scan": "lightblue", "repartition": "lightgrey"}
_COLOURS |= {"join": "white", "aggregation": "white", "union": "white"}

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DotGraph:
    """Nodes by number, with edges. ``group`` is the group of a node, used if there are too many nodes."""

    n: int
    label: Callable[[int], str]
    style: Callable[[int], str]
    edges: Ints
    group: Ints
    group_label: Callable[[int, int], str]


def emit_dot(planned: PlannedProgram, level: IRLevel) -> Iterator[str]:
    """Format an IR in Graphviz's language; above ``MAX_NODES`` nodes, its groups with the number of edges."""
    match level:
        case "einsum" | "decomposition":
            drawing = _einsums(planned, level == "decomposition")
        case "relation":
            drawing = _relations(planned)
        case "taskgraph":
            drawing = _tasks(planned)
        case "memgraph" | "sites":  # the ops of all sites, with a move for each transfer
            drawing = _ops(planned)
        case _:
            assert_never(level)
    yield f"digraph {level} {{"
    yield '  node [shape=box, style=filled, fillcolor=white, fontname="sans-serif", fontsize=10];'
    yield from _single_nodes(drawing) if drawing.n <= MAX_NODES else _groups(drawing)
    yield "}"


def _single_nodes(drawing: DotGraph) -> Iterator[str]:
    for i in range(drawing.n):
        yield f"  n{i} [label={_quoted(drawing.label(i))}{drawing.style(i)}];"
    for a, b in drawing.edges.tolist():
        yield f"  n{a} -> n{b};"


def _groups(drawing: DotGraph) -> Iterator[str]:
    names, first, count = np.unique(drawing.group, return_index=True, return_counts=True)
    yield f"  label={_quoted(f'{drawing.n:,} nodes, drawn in {len(names):,} groups of similar nodes')};"
    for name, i, n in zip(names.tolist(), first.tolist(), count.tolist(), strict=True):
        yield f"  n{name} [label={_quoted(drawing.group_label(i, n))}{drawing.style(i)}];"
    if not len(drawing.edges):
        return
    pairs_of_groups, times = np.unique(drawing.group[drawing.edges], axis=0, return_counts=True)
    for (a, b), n in zip(pairs_of_groups.tolist(), times.tolist(), strict=True):
        yield f'  n{a} -> n{b} [label="{n:,}"];'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _fill(word: str) -> str:
    return f", fillcolor={_COLOURS[word]}"


def _csr_edges(ptr: Ints, targets: NDArray[np.int32]) -> Ints:
    """(earlier, later) for each edge of a CSR of every node's predecessors."""
    later = np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))
    return np.stack([targets.astype(np.int64), later], axis=1)


def _einsums(planned: PlannedProgram, with_tiles: bool) -> DotGraph:
    graph: EinGraph = planned.graph
    outputs = {number: name for name, number in graph.outputs}
    computed = [(i, node) for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)]
    pairs = [(operand, i) for i, node in computed for operand in dict.fromkeys(node.operands)]

    def label(i: int) -> str:
        node = graph.nodes[i]
        text = f"{node.name}: {type_text(node)}, {format_size(size(node))}"
        if not isinstance(node, InputNode):
            text += f"\nline {node.line}: {truncated(graph.statement(node.line).partition('#')[0], 48)}"
        if with_tiles:
            text += f"\n{tiles_text(planned.decomposition.partitionings[i])}"
        return text + (f"\noutput {outputs[i]}" if i in outputs else "")

    def style(i: int) -> str:
        match graph.nodes[i]:
            case InputNode():
                return _fill("load")
            case EinsumNode() | ConcatNode():
                return ', fillcolor="khaki"' if i in outputs else ""

    def group_label(i: int, n: int) -> str:
        node = graph.nodes[i]
        return f"line {node.line}: {n:,} tensors\n{truncated(graph.statement(node.line).partition('#')[0], 48)}"

    lines = np.array([node.line for node in graph.nodes], dtype=np.int64)
    return DotGraph(len(graph.nodes), label, style, np.array(pairs, np.int64).reshape(-1, 2), lines, group_label)


def _relations(planned: PlannedProgram) -> DotGraph:
    found = operators(planned.taskgraph)
    edges = np.array([(a, i) for i, o in enumerate(found) for a in o.inputs], np.int64).reshape(-1, 2)
    words = list(dict.fromkeys(o.word for o in found))
    groups = np.array([o.line * len(words) + words.index(o.word) for o in found], np.int64)

    def group_label(i: int, n: int) -> str:
        return f"{n:,} x {found[i].word}, line {found[i].line}"

    def style(i: int) -> str:
        return _fill(found[i].word)

    return DotGraph(len(found), lambda i: found[i].text, style, edges, groups, group_label)


def _tasks(planned: PlannedProgram) -> DotGraph:
    tasks, nodes = planned.taskgraph, planned.graph.nodes
    outputs = np.array([node for _, node in planned.graph.outputs], dtype=np.int64)
    node_of = tasks.node.astype(np.int64)
    stores = tasks.kind == TaskKind.STORE
    node_of[stores] = outputs[node_of[stores]]

    def word(i: int) -> str:
        return TaskKind(int(tasks.kind[i])).word

    def label(i: int) -> str:
        key = tasks.key[tasks.key_ptr[i] : tasks.key_ptr[i + 1]].tolist() if word(i) != "move" else ""
        return f"{i}: {word(i)} {nodes[node_of[i]].name} {key}\n{format_size(int(tasks.value_nbytes[tasks.value[i]]))}"

    def group_label(i: int, n: int) -> str:
        return f"{n:,} x {word(i)} {nodes[node_of[i]].name}"

    return DotGraph(
        len(tasks),
        label,
        lambda i: _fill(word(i)),
        _task_edges(tasks),
        node_of * len(TaskKind) + tasks.kind,
        group_label,
    )


def _task_edges(tasks: TaskGraph) -> Ints:
    """Edges from every producer of a value (a state has several) to its readers."""
    makers = np.flatnonzero(tasks.kind != TaskKind.STORE)
    makers = makers[np.argsort(tasks.value[makers], kind="stable")]
    ptr = np.searchsorted(tasks.value[makers], np.arange(tasks.n_values + 1))
    reader = np.repeat(np.arange(len(tasks), dtype=np.int64), np.diff(tasks.read_ptr))
    n_makers = (ptr[1:] - ptr[:-1])[tasks.read]
    begins = np.repeat(ptr[tasks.read], n_makers)
    within = np.arange(int(n_makers.sum())) - np.repeat(np.cumsum(n_makers) - n_makers, n_makers)
    edges = np.stack([makers[begins + within], np.repeat(reader, n_makers)], axis=1)
    return np.unique(edges, axis=0)


def _ops(planned: PlannedProgram) -> DotGraph:
    graph, nodes = planned.memgraph, planned.graph.nodes
    node_of = nodes_of_ops(graph)

    def word(i: int) -> str:
        return OpKind(int(graph.kind[i])).name.lower()

    def label(i: int) -> str:
        op = graph[i]
        accesses = op.writes if op.kind.lane != Lane.OUT else op.reads
        places = ", ".join(f"{a.offset}:{a.offset + a.nbytes}" for a in accesses if a.nbytes)
        return f"{i}: {word(i)} {nodes[node_of[i]].name}\n{places}"

    def group_label(i: int, n: int) -> str:
        return f"{n:,} x {word(i)} {nodes[node_of[i]].name}"

    return DotGraph(
        len(graph),
        label,
        lambda i: _fill(word(i)),
        _csr_edges(graph.after_ptr, graph.after),
        node_of * len(OpKind) + graph.kind,
        group_label,
    )
