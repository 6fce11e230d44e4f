"""Builds an EinGraph: binds sizes, unrolls loops, splits each statement at its aggregations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.core.errors import SourceError
from einturnip.core.program_limits import MAX_NODES, MAX_STATEMENTS, MAX_TENSOR_NBYTES, is_addressable
from einturnip.eingraph.build.concatenation import concatenation, replacement
from einturnip.eingraph.build.dependencies import Dependencies, equation_dependencies
from einturnip.eingraph.build.ranges import label_sizes
from einturnip.eingraph.build.sizes import BoundSize, BoundSizes, bind_sizes
from einturnip.eingraph.build.statement import StatementBuilder
from einturnip.eingraph.builder import (
    EinsumInterner,
    GraphBuilder,
    LabelSpace,
    NodeDraft,
    StatementDrafts,
    copy_of,
    distinct,
    pattern,
)
from einturnip.eingraph.check import check
from einturnip.eingraph.types import NO_HINTS, ConcatNode, EinGraph, InputNode
from einturnip.lang.expressions import SizeExpr
from einturnip.lang.program import (
    Concatenate,
    DimDef,
    Equation,
    GradStatement,
    InputDef,
    Loop,
    Output,
    Replace,
    Statement,
    TypedProgram,
)
from einturnip.lang.program import Statement as ProgramStatement
from einturnip.lang.sizes import size_names

if TYPE_CHECKING:
    from einturnip.eingraph.autodiff.reverse import Gradients


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
        self._done += not isinstance(statement, DimDef | InputDef | Output | Loop)
        if nodes > MAX_NODES:
            message = "the program is too large with this statement"
            at_most = f"at most {MAX_NODES:,} operations on tensors"
            help_text = "gradients of gradients, and gradients in loops, multiply the operations"
            found = f"{nodes:,}"
            self._refuse(Diagnostic("E214", message, statement.span, expected=at_most, found=found, help=help_text))

    def require_loop(self, loop: Loop) -> None:
        """Refuse a loop that would exceed the program's limit on equations.

        Raises:
            SourceError: names the loop and what it expands to.
        """
        count = self.expanded((loop,), MAX_STATEMENTS - self._done)
        if self._done + count <= MAX_STATEMENTS:
            return
        values = self.iteration_values(loop)
        message = f"the loop over '{loop.variable}' expands to too many equations"
        at_most = f"at most {MAX_STATEMENTS:,} in a program, after unrolling its loops"
        found = f"{count:,} or more, in {len(values) if values is not None else 0:,} iterations"
        help_text = (
            f"let no size depend on '{loop.variable}' and no gradient cross the loop: then a run on the CPU does not "
            "unroll it; or iterate less often, or make it a step: a state and --steps"
        )
        self._refuse(Diagnostic("E214", message, loop.span, expected=at_most, found=found, help=help_text))

    def expanded(self, statements: Iterable[Statement], max_count: int) -> int:
        """Count the equations of statements; exact up to ``max_count``, larger than ``max_count`` otherwise."""
        total = 0
        for statement in statements:
            match statement:
                case Loop(condition=int(), body=body):
                    total += self.expanded(body, max_count - total)
                case Loop():
                    total += self._iterations(statement, max_count - total)
                case DimDef() | InputDef() | Output():
                    pass
                case _:
                    total += 1
            if total > max_count:
                break
        return total

    def _iterations(self, loop: Loop, max_count: int) -> int:
        """Count the equations of a loop; an empty iteration counts as one, and so do unknown loop bounds."""
        values = self.iteration_values(loop)
        if values is None:
            return self.expanded(loop.body, max_count)
        if not any(loop.variable in size_names(end) for end in _loop_bounds(loop.body)):
            return len(values) * max(1, self.expanded(loop.body, max_count)) if values else 0
        total = 0
        before = dict(self._sizes.loops)
        for value in values:
            self._sizes.loops[loop.variable] = value
            total += max(1, self.expanded(loop.body, max_count - total))
            if total > max_count:
                break
        self._sizes.loops = before
        return total

    def iteration_values(self, loop: Loop) -> range | None:
        """The values of a loop's variable; None while a bound is unknown."""
        start, stop = map(self._sizes.integer_quietly, (loop.start, loop.stop))
        return None if start is None or stop is None else range(start, max(start, stop))

    def _refuse(self, problem: Diagnostic) -> None:
        sizes = self._sizes
        sizes.problems = [problem]
        raise SourceError(sizes.rendered())


def _loop_bounds(statements: Iterable[Statement]) -> Iterator[SizeExpr]:
    """Yield the bounds of the loops among statements, including nested ones."""
    for statement in statements:
        if isinstance(statement, Loop):
            yield from (statement.start, statement.stop)
            yield from _loop_bounds(statement.body)


def build(
    program: TypedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, int] | None = None,
    origins: Mapping[str, str] | None = None,
) -> EinGraph:
    """Build the graph of a program for given sizes.

    Each aggregation becomes one einsum, and the remaining expression around the aggregations becomes another.

    Shapes:
        shapes: of inputs, from files and arrays; an input without one takes its shape from the dims.
        dims: sizes given by the user. origins: names, for messages, of the source of an input's shape or of a dim.

    Raises:
        BindError: sizes from outside disagree with the program or each other, or are missing.
        SourceError: a statement's labels have two sizes, or none, or an index leaves its axis.
    """
    sizes = bind_sizes(program, shapes, dims or {}, origins or {})
    lowering = ProgramLowering(sizes)
    lowering.run(program.statements)
    if sizes.problems:
        raise SourceError(sizes.rendered())
    builder = lowering.builder
    outputs = []
    for output in program.outputs:
        node = lowering.nodes[output.tensor]
        if isinstance(source := builder.nodes[node], InputNode):
            node = builder.place([copy_of(source.dtype, source.shape)], [node], output.name, output.span.line)
        outputs.append((output.name, node))
    graph = EinGraph(tuple(builder.nodes), tuple(outputs), program.file, program.source)
    check(graph)
    return graph


class ProgramLowering:
    """Lowers statements in order; ``nodes`` maps each tensor number to its current node."""

    def __init__(self, sizes: BoundSizes) -> None:
        self.sizes = sizes
        self.builder = GraphBuilder()
        self._derived: Gradients | None = None  # created for the first gradient
        self._gradients: set[int] = set()
        self.nodes: dict[int, int] = {}
        self._interner = EinsumInterner()
        self._dependencies: dict[int, Dependencies] = {}
        self._lowered: dict[Hashable, tuple[tuple[NodeDraft, ...], tuple[BoundSize, ...]]] = {}
        self._count = ExpansionCount(sizes)

    def run(self, statements: Iterable[ProgramStatement]) -> None:
        """Lower statements in order."""
        for statement in statements:
            self.sizes.statement = statement.span
            match statement:
                case DimDef() | Output():
                    pass
                case InputDef():
                    self._input(statement)
                case Equation():
                    self._equation(statement)
                case Replace() | Concatenate():
                    self._concatenate(statement)
                case GradStatement():
                    self._gradient(statement)
                case Loop():
                    self._loop(statement)
                case _:
                    assert_never(statement)
            if not isinstance(statement, DimDef | Output | Loop):
                self._require_addressable(statement)
            self._count.add(statement, len(self.builder.nodes))

    def _input(self, tensor: InputDef) -> None:
        shape = tuple(size.value for size in self.sizes.axes[tensor.number])
        node = InputNode(tensor.name, shape, tensor.dtype, tensor.span.line)
        self.nodes[tensor.number] = self.builder.add(node)

    def _require_addressable(self, statement: InputDef | Equation | Replace | Concatenate | GradStatement) -> None:
        """Report a tensor that exceeds the addressable size."""
        shape = [size.value for size in self.sizes.axes[statement.number]]
        if statement.number not in self.sizes.unsized and not is_addressable(shape, statement.dtype.itemsize):
            self._refuse_size(f"'{statement.name}' is too large", statement.span, f"{statement.dtype}{shape}")

    def _refuse_size(self, message: str, span: Span, found: str) -> None:
        expected = f"at most {MAX_TENSOR_NBYTES:,} bytes, not counting empty axes"
        self.sizes.report("E215", message, span, expected=expected, found=found)

    def _equation(self, equation: Equation) -> None:
        if equation.number not in self._dependencies:
            self._dependencies[equation.number] = equation_dependencies(equation)
        found = self._dependencies[equation.number]
        if self._is_unsized(equation, found.tensors):
            return
        read = [self.nodes[number] for number in found.tensors]
        places, outside = pattern(read), distinct(read)  # two of the tensors may be the same node in a loop
        variables = tuple(self.sizes.loops.get(name) for name in found.names)
        key = (equation.number, variables, places, tuple(self.builder.nodes[node].shape for node in outside))
        if key not in self._lowered:
            numbers = dict(zip(found.tensors, places, strict=True))
            self._lowered[key] = self._lower(equation, numbers, outside), self.sizes.axes[equation.number]
        drafts, self.sizes.axes[equation.number] = self._lowered[key]
        if drafts and (copied := self._copied(drafts, outside)) is not None:
            self.nodes[equation.number] = copied
        elif drafts:
            name, line = equation.name, equation.span.line
            self.nodes[equation.number] = self.builder.place(drafts, outside, name, line)
        else:
            self._add_placeholder(equation)

    def _copied(self, drafts: Sequence[NodeDraft], outside: Sequence[int]) -> int | None:
        """The gradient's node where the equation only renames a gradient; None otherwise."""
        (draft, *more) = drafts
        made = self.builder.nodes[outside[0]] if outside else None
        if more or made is None or outside[0] not in self._gradients or isinstance(made, InputNode):
            return None
        plain = copy_of(made.dtype, made.shape).einsum
        einsum = draft.einsum
        same = einsum.bounds == plain.bounds and einsum.accesses == plain.accesses and einsum.join == plain.join
        return outside[0] if same and einsum.aggregation is None and draft.hints == NO_HINTS else None

    def _lower(self, equation: Equation, numbers: Mapping[int, int], outside: Sequence[int]) -> tuple[NodeDraft, ...]:
        """The drafts of an equation over the tensors in ``numbers``; empty where it has errors."""
        problems = len(self.sizes.problems)
        bounds = label_sizes(self.sizes, equation)
        if len(self.sizes.problems) > problems:
            return ()
        for label, bound in zip(equation.labels, bounds, strict=True):
            if not is_addressable((bound,), 1):
                self._refuse_size(f"the range of '{label.name}' is too large", equation.span, f"{bound:,} values")
                return ()
        nodes = [self.builder.nodes[node] for node in outside]
        drafts = StatementDrafts((node.dtype, node.shape) for node in nodes)
        space = LabelSpace(drafts, [label.name for label in equation.labels], bounds)
        StatementBuilder(self.sizes, equation, space, numbers.__getitem__).emit()
        if len(self.sizes.problems) > problems:
            return ()
        return tuple(self._interner.draft(draft) for draft in drafts.nodes)

    def _concatenate(self, statement: Replace | Concatenate) -> None:
        sizes = self.sizes
        read = (statement.base, statement.piece) if isinstance(statement, Replace) else statement.parts
        if self._is_unsized(statement, read):
            return
        if isinstance(statement, Replace):
            shape, pieces = replacement(sizes, statement, self.nodes)
        else:
            shape, pieces = concatenation(sizes, statement, self.nodes)
        node = ConcatNode(statement.name, shape, statement.dtype, pieces, statement.span.line)
        self.nodes[statement.number] = self.builder.add(node)

    @property
    def gradients(self) -> Gradients:
        """The gradients within the graph under construction."""
        from einturnip.eingraph.autodiff.reverse import Gradients  # most programs have none

        if self._derived is None:
            self._derived = Gradients(self.builder)
        return self._derived

    def _gradient(self, statement: GradStatement) -> None:
        if self._is_unsized(statement, (statement.loss, statement.by)):
            return
        loss, by = self.nodes[statement.loss], self.nodes[statement.by]
        self.nodes[statement.number] = made = self.gradients.gradient(loss, by)
        self._gradients.add(made)
        self.sizes.axes[statement.number] = self.sizes.axes[statement.by]

    def _loop(self, loop: Loop) -> None:
        """Unroll a loop. Stops at the first iteration with an error, so that each error is reported once."""
        sizes = self.sizes
        start, stop = sizes.integer(loop.start), sizes.integer(loop.stop)
        for carried in loop.carried:
            self._alias(carried.number, carried.initial)
        if start is None or stop is None:
            return
        if loop.condition is not None:
            self._refuse_while(loop)
            return
        self._count.require_loop(loop)
        problems = len(sizes.problems)
        for value in range(start, stop):
            sizes.loops[loop.variable] = value
            self.run(loop.body)
            if len(sizes.problems) == problems:
                self._check_shapes(loop)
            if len(sizes.problems) > problems:
                break
            last = [(carried.number, carried.last, self.nodes[carried.last]) for carried in loop.carried]
            for number, source, node in last:
                self.nodes[number] = node
                if source in sizes.unsized:
                    sizes.unsized.add(number)
        sizes.loops.pop(loop.variable, None)

    def _refuse_while(self, loop: Loop) -> None:
        """Report that a ``while`` cannot be unrolled, after the errors in its body."""
        problems = len(self.sizes.problems)
        self.run(loop.body)
        if len(self.sizes.problems) == problems:
            self._check_shapes(loop)
        if len(self.sizes.problems) == problems:
            self.sizes.statement = None
            message = "this run unrolls loops, and a 'while' cannot be unrolled"
            help_text = (
                "run it alone, without --device, --at, --sites, --parts, --emit, --simulate, --record, --replay, in "
                "Python device= and client=; or count: for k in 0 .. n { ... }"
            )
            self.sizes.report("E216", message, loop.span, help=help_text)

    def _check_shapes(self, loop: Loop) -> None:
        for carried in loop.carried:
            before, after = self.sizes.axes[carried.number], self.sizes.axes[carried.last]
            if [size.value for size in before] != [size.value for size in after]:
                expected, found = (f"[{', '.join(map(str, axes))}]" for axes in (before, after))
                message = f"'{carried.name}' changes its shape in the loop"
                self.sizes.statement = None
                place, start = self.sizes.program.tensors[carried.last].span, (carried.span, "its shape before")
                self.sizes.report("E212", message, place, secondary=(start,), expected=expected, found=found)

    def _alias(self, number: int, source: int) -> None:
        """Make tensor ``number`` an alias of ``source``."""
        self.nodes[number], self.sizes.axes[number] = self.nodes[source], self.sizes.axes[source]
        if source in self.sizes.unsized:
            self.sizes.unsized.add(number)

    def _is_unsized(self, statement: Equation | Replace | Concatenate | GradStatement, read: Iterable[int]) -> bool:
        """True where a statement reads a tensor of unknown size, whose error has been reported already."""
        if self.sizes.unsized.isdisjoint(read):
            return False
        self.sizes.axes[statement.number] = (BoundSize(0, "unknown"),) * statement.rank
        self.sizes.unsized.add(statement.number)
        self._add_placeholder(statement)
        return True

    def _add_placeholder(self, statement: Equation | Replace | Concatenate | GradStatement) -> None:
        """Add a placeholder for a node that could not be built; the graph is discarded in that case."""
        shape = tuple(size.value for size in self.sizes.axes[statement.number])
        node = InputNode(statement.name, shape, statement.dtype, statement.span.line)
        self.nodes[statement.number] = self.builder.add(node)
