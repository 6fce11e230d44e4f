"""A plan seen as its author wrote it: statement by statement, with the tensors that each makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.report.tensor_work import TensorWork, total


@dataclass(frozen=True, slots=True)
class PlanStatement:
    """A line of the program. ``nodes``: the tensors that it makes, in order (a loop's line makes some in each step).

    ``within``: the line in whose kernels it is computed, where it has none of its own; ``tensors``: the names of what
    it defines that is never stored.
    """

    line: int
    text: str
    nodes: tuple[int, ...]
    within: int | None = None
    tensors: tuple[str, ...] = ()


def statements(graph: EinGraph) -> tuple[PlanStatement, ...]:
    """Every statement that defines something, in the order of the text."""
    nodes: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, InputNode):
            nodes.setdefault(node.line, []).append(i)
    found = {line: PlanStatement(line, _text(graph, line), tuple(made)) for line, made in nodes.items()}
    for line, host in graph.merged:
        if line not in nodes:
            found[line] = PlanStatement(line, _text(graph, line), (), _host(graph, host, nodes))
    for node in graph.nodes:
        if isinstance(node, EinsumNode):
            for line, steps in groupby(sorted(node.steps, key=lambda step: step[1]), key=lambda step: step[1]):
                if line not in nodes:
                    names = tuple(dict.fromkeys(name for name, _ in steps))
                    found[line] = PlanStatement(line, _text(graph, line), (), node.line, names)
    return tuple(found[line] for line in sorted(found))


def _text(graph: EinGraph, line: int) -> str:
    """A line as its author wrote it, without the remark at its end."""
    return graph.statement(line).partition("#")[0].rstrip()


def _host(graph: EinGraph, line: int, nodes: dict[int, list[int]]) -> int:
    """The line with kernels of its own that a line is computed in."""
    onward = dict(graph.merged)
    seen = {line}
    while line not in nodes and line in onward and onward[line] not in seen:
        line = onward[line]
        seen.add(line)
    return line


def hosts(graph: EinGraph, line: int) -> tuple[int, ...]:
    """The lines that a line without kernels is computed in, each time again."""
    return tuple(sorted({b for a, b in graph.merged if a == line}))


def stored(graph: EinGraph, statement: PlanStatement) -> tuple[int, ...]:
    """The nodes of a statement that its author named; where he named none, the last."""
    named = tuple(i for i in statement.nodes if "." not in graph.nodes[i].name)
    return named or statement.nodes[-1:]


def work_of(statement: PlanStatement, work: Sequence[TensorWork]) -> TensorWork:
    """The work for a statement's tensors."""
    return total([work[i] for i in statement.nodes])
