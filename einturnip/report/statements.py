"""A plan by statements of the program, with the tensors that each defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.report.tensor_work import TensorWork, total


@dataclass(frozen=True, slots=True)
class PlanStatement:
    """A line of the program.

    ``nodes``: its tensors in order (a loop's line defines some in each iteration); ``within``: the line in whose
    kernels it is computed, if it has none of its own; ``tensors``: names of its definitions that are never stored.
    """

    line: int
    text: str
    nodes: tuple[int, ...]
    within: int | None = None
    tensors: tuple[str, ...] = ()


def statements(graph: EinGraph) -> tuple[PlanStatement, ...]:
    """Every statement with a definition, in source order."""
    nodes: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, InputNode):
            nodes.setdefault(node.line, []).append(i)
    by_line = {line: PlanStatement(line, _text(graph, line), tuple(numbers)) for line, numbers in nodes.items()}
    for line, host in graph.merged:
        if line not in nodes:
            by_line[line] = PlanStatement(line, _text(graph, line), (), _host(graph, host, nodes))
    for node in graph.nodes:
        if isinstance(node, EinsumNode):
            for line, steps in groupby(sorted(node.steps, key=lambda step: step[1]), key=lambda step: step[1]):
                if line not in nodes:
                    names = tuple(dict.fromkeys(name for name, _ in steps))
                    by_line[line] = PlanStatement(line, _text(graph, line), (), node.line, names)
    return tuple(by_line[line] for line in sorted(by_line))


def _text(graph: EinGraph, line: int) -> str:
    """A source line without its trailing comment."""
    return graph.statement(line).partition("#")[0].rstrip()


def _host(graph: EinGraph, line: int, nodes: dict[int, list[int]]) -> int:
    """The line with its own kernels in which a line is computed."""
    merged_into = dict(graph.merged)
    seen = {line}
    while line not in nodes and line in merged_into and merged_into[line] not in seen:
        line = merged_into[line]
        seen.add(line)
    return line


def hosts(graph: EinGraph, line: int) -> tuple[int, ...]:
    """The lines in which a line without kernels is computed, once in each."""
    return tuple(sorted({b for a, b in graph.merged if a == line}))


def stored_nodes(graph: EinGraph, statement: PlanStatement) -> tuple[int, ...]:
    """The nodes of a statement that the program names; if there is none, the last node."""
    named = tuple(i for i in statement.nodes if "." not in graph.nodes[i].name)
    return named or statement.nodes[-1:]


def work_of(statement: PlanStatement, work: Sequence[TensorWork]) -> TensorWork:
    """The work for a statement's tensors."""
    return total([work[i] for i in statement.nodes])
