"""States of a program that runs: where they begin, and which of them are wanted when the step ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from einturnip.api.jobs import Missing
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang.program import FileRef, Output, TypedProgram
from einturnip.storage.constant import ConstantSource
from einturnip.storage.types import Source


def with_state_outputs(program: TypedProgram, names: Iterable[str]) -> TypedProgram:
    """The program with the named states among its outputs, as they are when the step ends."""
    known = {output.name for output in program.outputs}
    states = {state.name: state for state in program.states}
    added = []
    for name in dict.fromkeys(names):
        if name in states and name not in known:
            made = program.updates.get(name, states[name])
            added.append(Output(name, made.number, None, made.span))
    return replace(program, statements=(*program.statements, *added)) if added else program


def initial_state(program: TypedProgram, missing: Missing) -> Missing:
    """What stands in for what nothing was given for: the number that a state begins with, else ``missing``."""
    defaults = {state.name: state.default for state in program.states}

    def source(node: InputNode) -> Source:
        value = defaults.get(node.name)
        if value is None or isinstance(value, FileRef):
            return missing(node)
        return ConstantSource(node.name, node.shape, node.dtype, value)

    return source


def state_outputs(graph: EinGraph, program: TypedProgram) -> dict[int, int]:
    """Return, by the node of each state, the number of the output that takes its place."""
    outputs = {name: number for number, (name, _) in enumerate(graph.outputs)}
    nodes = {n.name: i for i, n in enumerate(graph.nodes) if isinstance(n, InputNode)}
    return {nodes[name]: outputs[name] for name in program.updates if name in nodes}
