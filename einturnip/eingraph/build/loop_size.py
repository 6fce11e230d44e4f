"""How many equations statements expand to, counted before any loop is unrolled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from einturnip.core.diagnostics import Diagnostic
from einturnip.core.errors import SourceError
from einturnip.core.program_limits import MAX_NODES, MAX_STATEMENTS
from einturnip.eingraph.build.sizes import BoundSizes
from einturnip.lang.program import DimDef, ForLoop, InputDef, Output, SizeExpr, Statement
from einturnip.lang.sizes import size_names


class ExpansionCount:
    """Equations that were carried out so far, held against the limit on those of a program."""

    def __init__(self, sizes: BoundSizes) -> None:
        self._sizes = sizes
        self._done = 0

    def add(self, statement: Statement, nodes: int) -> None:
        """Count a statement that was carried out, and check the nodes that the graph now has.

        Raises:
            SourceError: the graph is too large.
        """
        self._done += not isinstance(statement, DimDef | InputDef | Output | ForLoop)
        if nodes > MAX_NODES:
            message = "with what this computes, the program is too large"
            most = f"at most {MAX_NODES:,} operations on tensors"
            help_text = "gradients of gradients, and those in loops, multiply what is computed"
            self._refuse(Diagnostic("E214", message, statement.span, expected=most, found=f"{nodes:,}", help=help_text))

    def require_loop(self, loop: ForLoop) -> None:
        """Refuse a loop that would take the program beyond its equations.

        Raises:
            SourceError: names the loop and what it expands to.
        """
        count = self._expanded((loop,), MAX_STATEMENTS - self._done)
        if self._done + count <= MAX_STATEMENTS:
            return
        rounds = self._rounds(loop)
        message = f"the loop over '{loop.variable}' expands to too many equations"
        most = f"at most {MAX_STATEMENTS:,} in a program, loops written out"
        found = f"{count:,} or more, in {len(rounds) if rounds is not None else 0:,} iterations"
        help_text = "iterate less often; to repeat a computation without end, make it a step: a state and --steps"
        self._refuse(Diagnostic("E214", message, loop.span, expected=most, found=found, help=help_text))

    def _expanded(self, statements: Iterable[Statement], most: int) -> int:
        """The equations of statements, exactly where they are not more than ``most``."""
        total = 0
        for statement in statements:
            match statement:
                case ForLoop():
                    total += self._iterations(statement, most - total)
                case DimDef() | InputDef() | Output():
                    pass
                case _:
                    total += 1
            if total > most:
                break
        return total

    def _iterations(self, loop: ForLoop, most: int) -> int:
        """The equations of a loop; an empty iteration, and ends not known yet, count as one."""
        rounds = self._rounds(loop)
        if rounds is None:
            return self._expanded(loop.body, most)
        if not any(loop.variable in size_names(end) for end in _ends(loop.body)):
            return len(rounds) * max(1, self._expanded(loop.body, most)) if rounds else 0
        total = 0
        before = dict(self._sizes.loops)
        for value in rounds:
            self._sizes.loops[loop.variable] = value
            total += max(1, self._expanded(loop.body, most - total))
            if total > most:
                break
        self._sizes.loops = before
        return total

    def _rounds(self, loop: ForLoop) -> range | None:
        start, stop = map(self._sizes.quietly, (loop.start, loop.stop))
        return None if start is None or stop is None else range(start, max(start, stop))

    def _refuse(self, problem: Diagnostic) -> None:
        sizes = self._sizes
        sizes.problems = [problem]
        raise SourceError(sizes.rendered())


def _ends(statements: Iterable[Statement]) -> Iterator[SizeExpr]:
    """Where the loops among statements, and in them, begin and end."""
    for statement in statements:
        if isinstance(statement, ForLoop):
            yield from (statement.start, statement.stop)
            yield from _ends(statement.body)
