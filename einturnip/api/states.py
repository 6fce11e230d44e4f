"""States of a program that runs: where they begin, and which of them are wanted when the step ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from einturnip.api.jobs import Missing
from einturnip.eingraph.types import InputNode
from einturnip.lang.types import FileRef, Output, Program
from einturnip.stores.constant import Constant
from einturnip.stores.types import Source


def keeping(program: Program, names: Iterable[str]) -> Program:
    """The program with the named states among its outputs, as they are when the step ends."""
    known = {output.name for output in program.outputs}
    states = {state.name: state for state in program.states}
    added = []
    for name in dict.fromkeys(names):
        if name in states and name not in known:
            made = program.updates.get(name, states[name])
            added.append(Output(name, made.number, None, made.span))
    return replace(program, statements=(*program.statements, *added)) if added else program


def beginning(program: Program, missing: Missing) -> Missing:
    """What stands in for what nothing was given for: the number that a state begins with, else ``missing``."""
    defaults = {state.name: state.default for state in program.states}

    def source(node: InputNode) -> Source:
        value = defaults.get(node.name)
        if value is None or isinstance(value, FileRef):
            return missing(node)
        return Constant(node.name, node.shape, node.dtype, value)

    return source
