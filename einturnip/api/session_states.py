"""States of a program that runs: where they begin, and which of them are wanted when the step ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from einturnip.api.jobs import Missing
from einturnip.eingraph.types import InputNode
from einturnip.lang.program import FileRef, Output, TypedProgram
from einturnip.storage.constant import ConstantSource
from einturnip.storage.types import Source


def with_state_outputs(program: TypedProgram, names: Iterable[str]) -> TypedProgram:
    """Add the named states, with their values after the step, to the program's outputs."""
    known = {output.name for output in program.outputs}
    states = {state.name: state for state in program.states}
    added = []
    for name in dict.fromkeys(names):
        if name in states and name not in known:
            made = program.updates.get(name, states[name])
            added.append(Output(name, made.number, None, made.span))
    return replace(program, statements=(*program.statements, *added)) if added else program


def initial_state(program: TypedProgram, missing: Missing) -> Missing:
    """A placeholder for inputs without data: the number with which a state begins, else ``missing``."""
    defaults = {state.name: state.default for state in program.states}

    def source(node: InputNode) -> Source:
        value = defaults.get(node.name)
        if value is None or isinstance(value, FileRef):
            return missing(node)
        return ConstantSource(node.name, node.shape, node.dtype, value)

    return source
