"""Counts the equations that loops expand to, before any loop is unrolled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from einturnip.core.diagnostics import Diagnostic
from einturnip.core.errors import SourceError
from einturnip.core.program_limits import MAX_NODES, MAX_STATEMENTS
from einturnip.eingraph.build.sizes import BoundSizes
from einturnip.lang.program import DimDef, ForLoop, InputDef, Output, SizeExpr, Statement
from einturnip.lang.sizes import size_names


class ExpansionCount:
    """Counts the equations lowered so far and enforces the limits on a program's size."""

    def __init__(self, sizes: BoundSizes) -> None:
        self._sizes = sizes
        self._done = 0

    def add(self, statement: Statement, nodes: int) -> None:
        """Count a lowered statement, and check the number of nodes in the graph.

        Raises:
            SourceError: the graph is too large.
        """
        self._done += not isinstance(statement, DimDef | InputDef | Output | ForLoop)
        if nodes > MAX_NODES:
            message = "the program is too large with this statement"
            at_most = f"at max_count {MAX_NODES:,} operations on tensors"
            help_text = "gradients of gradients, and gradients in loops, multiply the operations"
            found = f"{nodes:,}"
            self._refuse(Diagnostic("E214", message, statement.span, expected=at_most, found=found, help=help_text))

    def require_loop(self, loop: ForLoop) -> None:
        """Refuse a loop that would exceed the program's limit on equations.

        Raises:
            SourceError: names the loop and what it expands to.
        """
        count = self._expanded((loop,), MAX_STATEMENTS - self._done)
        if self._done + count <= MAX_STATEMENTS:
            return
        values = self._iteration_values(loop)
        message = f"the loop over '{loop.variable}' expands to too many equations"
        at_most = f"at max_count {MAX_STATEMENTS:,} in a program, after unrolling its loops"
        found = f"{count:,} or more, in {len(values) if values is not None else 0:,} iterations"
        help_text = "iterate less often; to repeat a computation without end, make it a step: a state and --steps"
        self._refuse(Diagnostic("E214", message, loop.span, expected=at_most, found=found, help=help_text))

    def _expanded(self, statements: Iterable[Statement], max_count: int) -> int:
        """Count the equations of statements; exact up to ``max_count``, larger than ``max_count`` otherwise."""
        total = 0
        for statement in statements:
            match statement:
                case ForLoop():
                    total += self._iterations(statement, max_count - total)
                case DimDef() | InputDef() | Output():
                    pass
                case _:
                    total += 1
            if total > max_count:
                break
        return total

    def _iterations(self, loop: ForLoop, max_count: int) -> int:
        """Count the equations of a loop; an empty iteration counts as one, and so do unknown loop bounds."""
        values = self._iteration_values(loop)
        if values is None:
            return self._expanded(loop.body, max_count)
        if not any(loop.variable in size_names(end) for end in _loop_bounds(loop.body)):
            return len(values) * max(1, self._expanded(loop.body, max_count)) if values else 0
        total = 0
        before = dict(self._sizes.loops)
        for value in values:
            self._sizes.loops[loop.variable] = value
            total += max(1, self._expanded(loop.body, max_count - total))
            if total > max_count:
                break
        self._sizes.loops = before
        return total

    def _iteration_values(self, loop: ForLoop) -> range | None:
        start, stop = map(self._sizes.integer_quietly, (loop.start, loop.stop))
        return None if start is None or stop is None else range(start, max(start, stop))

    def _refuse(self, problem: Diagnostic) -> None:
        sizes = self._sizes
        sizes.problems = [problem]
        raise SourceError(sizes.rendered())


def _loop_bounds(statements: Iterable[Statement]) -> Iterator[SizeExpr]:
    """Yield the bounds of the loops among statements, including nested ones."""
    for statement in statements:
        if isinstance(statement, ForLoop):
            yield from (statement.start, statement.stop)
            yield from _loop_bounds(statement.body)
