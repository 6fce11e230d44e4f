"""Builds a program with long loops as stages: graphs that run one after another.

The body of a loop is a stage that runs once an iteration.

A tensor that one stage makes and another one reads is a *value*: an output of the one graph and an input of the other,
under one name. A tensor that a loop carries is an input and an output of the body, under one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from einturnip.core.errors import SourceError
from einturnip.eingraph.build.dependencies import tensors_read
from einturnip.eingraph.build.loop_body import LoopBody, TensorSlice, Unrolled
from einturnip.eingraph.build.positions import Place
from einturnip.eingraph.build.program import ExpansionCount, ProgramLowering
from einturnip.eingraph.build.sizes import BoundSizes, bind_sizes
from einturnip.eingraph.builder import GraphBuilder, copy_of
from einturnip.eingraph.check import check
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import I64, DType
from einturnip.lang.program import GradStatement, InputDef, Loop, TypedProgram
from einturnip.tuning.search import ROLLED_EQUATIONS, ROLLED_ITERATIONS


@dataclass(frozen=True, slots=True)
class ValueSlice:
    """A slice of a value or of an input of the program, at a position that depends on the loop's variable."""

    value: str
    place: Place


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations of a loop.

    ``variable``: the input that holds the loop's variable, if the body reads it, which takes the ``values``. ``states``
    are the values that the body reads and replaces. ``reads`` are the slices that inputs of the body read, ``writes``
    the slices of values that its outputs are. ``initial``: the value or input that a value is a copy of when the loop
    begins. ``condition``: of a ``while``, the value that must be true for an iteration to begin; ``values`` are then
    those of the bound.
    """

    values: range
    variable: str | None
    states: tuple[str, ...]
    reads: Mapping[str, ValueSlice]
    writes: Mapping[str, ValueSlice]
    initial: Mapping[str, str]
    condition: str | None


@dataclass(frozen=True, slots=True)
class Stage:
    """A graph, and for the body of a loop its iterations. ``line``: where it begins in the program."""

    graph: EinGraph
    iterations: Iterations | None
    line: int


@dataclass(frozen=True, slots=True)
class StageValue:
    """A tensor that outlives the stage that makes it."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class StagedProgram:
    """The stages of a program in their order, and the values that they hand on."""

    stages: tuple[Stage, ...]
    values: tuple[StageValue, ...]


def build_stages(
    program: TypedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, int] | None = None,
    origins: Mapping[str, str] | None = None,
) -> StagedProgram | None:
    """Build a program in stages if it has long loops that need not be unrolled; None otherwise.

    Parameters and errors: see ``build``. A program with a ``while`` has stages, or an error.
    """
    sizes = bind_sizes(program, shapes, dims or {}, origins or {})
    count = ExpansionCount(sizes)
    top = [s for s in program.statements if isinstance(s, Loop)]
    loops, whiles = {id(s) for s in top if _may_be_long(s, count)}, {id(s) for s in top if s.condition is not None}
    while loops and not program.states:
        lowering = _StageLowering(sizes, loops, can_unroll=not loops <= whiles)
        try:
            lowering.run(program.statements)
            if not sizes.problems:
                return lowering.staged() if lowering.is_staged else None
        except Unrolled:
            pass
        # An error outside loops, or a gradient across one, may be an error of the unrolled graph too.
        current = lowering.current
        unrolled = loops - whiles if current is None else {id(current)} - whiles
        if whiles and not unrolled:
            raise SourceError(sizes.rendered())
        loops -= unrolled
        sizes = bind_sizes(program, shapes, dims or {}, origins or {})
    return None


def _may_be_long(loop: Loop, count: ExpansionCount) -> bool:
    """True if a loop has many equations, its bounds are unknown yet, or it has a condition."""
    values = count.iteration_values(loop)
    if values is None or loop.condition is not None:
        return True
    return len(values) >= ROLLED_ITERATIONS and count.expanded((loop,), ROLLED_EQUATIONS) >= ROLLED_EQUATIONS


@dataclass
class _Draft:
    """A stage under construction.

    ``imports``: tensors of earlier stages that it reads. ``nodes``: by tensor number.
    """

    builder: GraphBuilder
    line: int
    body: LoopBody | None = None
    imports: set[int] = field(default_factory=set)
    nodes: dict[int, int] = field(default_factory=dict)
    outputs: list[tuple[str, int]] = field(default_factory=list)


class _Nodes(dict[int, int]):
    """The nodes of the current stage by tensor number; reading one of an earlier stage adds an input."""

    def __init__(self, lowering: _StageLowering) -> None:
        super().__init__()
        self._lowering = lowering

    def __missing__(self, number: int) -> int:
        self[number] = node = self._lowering.input_of(number)
        return node


class _StageLowering(ProgramLowering):
    """Lowers statements to stages.

    ``current``: the loop whose body is being lowered. ``can_unroll``: a loop that does not fit can be unrolled instead.
    """

    def __init__(self, sizes: BoundSizes, loops: set[int], can_unroll: bool) -> None:
        super().__init__(sizes)
        self.current: Loop | None = None
        self._loops, self._can_unroll = loops, can_unroll
        self._drafts = [_Draft(self.builder, 1)]
        self._next = len(sizes.program.tensors)
        self._loop_of: dict[int, int] = {}  # the stage of the loop that carries a tensor, by its number
        self._initial: dict[int, int] = {}  # by the number of a carried tensor
        self.nodes = self._drafts[0].nodes = _Nodes(self)

    @property
    def is_staged(self) -> bool:
        """True if there is more than one stage."""
        return len(self._drafts) > 1

    # -- stages

    def _loop(self, loop: Loop) -> None:
        values = self._count.iteration_values(loop)
        is_staged = self.current is None and id(loop) in self._loops and _may_be_long(loop, self._count)
        if values is None or not is_staged:
            super()._loop(loop)
            return
        self.current, sizes = loop, self.sizes
        for carried in loop.carried:
            sizes.axes[carried.number] = sizes.axes[carried.initial]
            self._initial[carried.number] = carried.initial
        body = LoopBody(sizes, loop, values, self._next)
        self._begin(_Draft(GraphBuilder(), loop.span.line, body))
        stage = len(self._drafts) - 1
        states = [c for c in loop.carried if c.number not in body.written]
        for carried in states:
            shape = tuple(size.value for size in sizes.axes[carried.number])
            name = self._value_name(carried.number)
            self.nodes[carried.number] = self.builder.add(InputNode(name, shape, carried.dtype, carried.span.line))
        self.run(body.statements)
        if sizes.problems:
            raise Unrolled("the body has an error in its general form")
        self._check_shapes(loop)
        if sizes.problems or not body.has_fitting_slices():
            raise Unrolled("a carried tensor changes its shape")
        draft = self._drafts[-1]
        draft.outputs += [(self._value_name(c.number), self._output_of(draft, self.nodes[c.last])) for c in states]
        for written in body.written.values():
            node = self._output_of(draft, self.nodes[written.piece])
            draft.outputs.append((self._slice_name(body, written), node))
        self._next += len(body.reads) + (body.variable_input is not None)
        self._begin(_Draft(GraphBuilder(), loop.span.end_line + 1))
        self._loop_of |= {carried.number: stage for carried in loop.carried}
        self.current = None

    def _begin(self, draft: _Draft) -> None:
        """End the current stage and begin another one."""
        self._drafts.append(draft)
        self.builder, self.nodes = draft.builder, _Nodes(self)
        draft.nodes = self.nodes
        self._derived, self._gradients = None, set()

    def input_of(self, number: int) -> int:
        """Add an input for a tensor that the current stage does not make."""
        draft, sizes = self._drafts[-1], self.sizes
        shape = tuple(size.value for size in sizes.axes[number])
        if number in sizes.names:
            assert draft.body is not None
            read = draft.body.reads.get(number)
            name = _variable_name(draft.body) if read is None else self._slice_name(draft.body, read)
            dtype = I64 if read is None else sizes.program.tensors[read.tensor].dtype
            return self.builder.add(InputNode(name, shape, dtype, draft.line))
        tensor = sizes.program.tensors[number]
        if isinstance(tensor, InputDef):
            return self.builder.add(InputNode(tensor.name, shape, tensor.dtype, tensor.span.line))
        draft.imports.add(number)
        return self.builder.add(InputNode(self._value_name(number), shape, tensor.dtype, tensor.span.line))

    def _gradient(self, statement: GradStatement) -> None:
        """Lower a gradient. A derivative through another stage is unknown here: then its loop is unrolled."""
        nodes = self.nodes[statement.loss], self.nodes[statement.by]
        if self.is_staged:
            outside = {i for i, node in enumerate(self.builder.nodes) if isinstance(node, InputNode)} - self._states()
            if not outside.isdisjoint(nodes):
                if self._can_unroll:
                    raise Unrolled("a gradient crosses the loop")
                if self.nodes[statement.by] in outside and self._crosses(statement):
                    self._refuse_gradient(statement)
                    return
        super()._gradient(statement)

    def _crosses(self, statement: GradStatement) -> bool:
        """True if the loss depends on the tensor from outside through another stage or other iterations."""
        draft, by = self._drafts[-1], statement.by
        carried = set() if draft.body is None else {c.number for c in draft.body.loop.carried}
        stack, seen = [statement.loss], {by}
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in carried or number in draft.imports or number not in draft.nodes:
                if self._depends(number, by):
                    return True
            else:
                stack += tensors_read(self.sizes.program.tensors[number])
        return False

    def _depends(self, number: int, source: int) -> bool:
        """True if a tensor is computed from another one, in any iteration of the loops that carry it."""
        stack, seen = [number], set[int]()
        while stack:
            found = stack.pop()
            if found not in seen:
                seen.add(found)
                stack += tensors_read(self.sizes.program.tensors[found])
        return source in seen

    def _refuse_gradient(self, statement: GradStatement) -> None:
        """Report a derivative that passes through a ``while``."""
        loops = [s for s in self.sizes.program.statements if isinstance(s, Loop) and s.condition is not None]
        loop = self.current or loops[0]
        message, place = "a gradient cannot pass a 'while'", ((loop.span, "the loop"),)
        help_text = "take it before the loop, in its body by what the loop carries, or let the loop count"
        self.sizes.report("E217", message, statement.span, secondary=place, help=help_text)
        self.sizes.axes[statement.number] = self.sizes.axes[statement.by]
        self._add_placeholder(statement)

    def _states(self) -> set[int]:
        """The nodes of the tensors that the loop carries, at the start of an iteration."""
        body = self._drafts[-1].body
        carried = () if body is None else body.loop.carried
        return {self.nodes[c.number] for c in carried if c.number in self.nodes}

    # -- the finished stages

    def staged(self) -> StagedProgram:
        """The stages; called after all statements."""
        for output in self.sizes.program.outputs:
            if self._maker(output.tensor) != len(self._drafts) - 1:
                made = self.nodes[output.tensor]
                node = self._output_of(self._drafts[-1], made, output.name, output.span.line)
                self._drafts[-1].outputs.append((output.name, node))
            else:
                self._export(output.tensor, output.name)
        values, initial = dict[str, StageValue](), dict[str, str]()
        for number in sorted(self._loop_of):
            name, source = self._value_name(number), self._initial[number]
            values[name] = self._value(number)
            if not self._export(source, name):
                initial[name] = self._source_name(source)
        for number in sorted(self._imported()):
            values[self._value_name(number)] = self._value(number)
            self._export(number, self._value_name(number))
        stages = [found for draft in self._drafts if (found := self._stage(draft, initial)) is not None]
        return StagedProgram(tuple(stages), tuple(values.values()))

    def _imported(self) -> set[int]:
        """The tensors that a later stage reads, and those with which loops begin."""
        found = {self._initial[number] for number in self._loop_of if self._initial[number] in self._loop_of}
        for draft in self._drafts:
            found |= draft.imports
            if draft.body is not None:
                found |= {read.tensor for read in draft.body.reads.values()}
        tensors = self.sizes.program.tensors
        return {number for number in found if not isinstance(tensors[number], InputDef)}

    def _maker(self, number: int) -> int | None:
        """The stage that makes a tensor; None for an input of the program."""
        if isinstance(self.sizes.program.tensors[number], InputDef):
            return None
        if number in self._loop_of:
            return self._loop_of[number]
        return next(k for k, d in enumerate(self._drafts) if number in d.nodes and number not in d.imports)

    def _export(self, number: int, name: str) -> bool:
        """Make a tensor of a stage without loop an output of it; False for other tensors."""
        stage = self._maker(number)
        if stage is None or stage in self._loop_of.values():
            return False
        draft = self._drafts[stage]
        if name not in dict(draft.outputs):
            draft.outputs.append((name, self._output_of(draft, draft.nodes[number], name)))
        return True

    def _output_of(self, draft: _Draft, node: int, name: str = "", line: int = 0) -> int:
        """A node that can be an output: a copy of an input, other nodes themselves."""
        made = draft.builder.nodes[node]
        if not isinstance(made, InputNode):
            return node
        return draft.builder.place([copy_of(made.dtype, made.shape)], [node], name or made.name, line or made.line)

    def _stage(self, draft: _Draft, initial: Mapping[str, str]) -> Stage | None:
        program, body = self.sizes.program, draft.body
        if not draft.outputs:
            return None
        graph = EinGraph(tuple(draft.builder.nodes), tuple(draft.outputs), program.file, program.source)
        check(graph)
        if body is None:
            return Stage(graph, None, draft.line)
        reads = {
            self._slice_name(body, r): ValueSlice(self._source_name(r.tensor), r.place) for r in body.reads.values()
        }
        writes = {
            self._slice_name(body, w): ValueSlice(self._value_name(w.tensor), w.place) for w in body.written.values()
        }
        carried = {self._value_name(c.number): c.number not in body.written for c in body.loop.carried}
        iterations = Iterations(
            body.values,
            None if body.variable_input is None else _variable_name(body),
            tuple(name for name, is_state in carried.items() if is_state),
            reads,
            writes,
            {name: initial[name] for name in carried if name in initial},
            None if body.loop.condition is None else self._value_name(body.loop.condition),
        )
        return Stage(graph, iterations, draft.line)

    # -- names

    def _value(self, number: int) -> StageValue:
        shape = tuple(size.value for size in self.sizes.axes[number])
        return StageValue(self._value_name(number), shape, self.sizes.program.tensors[number].dtype)

    def _value_name(self, number: int) -> str:
        """The name of a value; tensors of the program have no ``#`` in theirs."""
        return f"{self.sizes.name_of(number)}#{number}"

    def _source_name(self, number: int) -> str:
        """The name of a value or of an input of the program."""
        tensor = self.sizes.program.tensors[number]
        return tensor.name if isinstance(tensor, InputDef) else self._value_name(number)

    def _slice_name(self, body: LoopBody, part: TensorSlice) -> str:
        return f"{body.text(part)}#{part.tensor}"


def _variable_name(body: LoopBody) -> str:
    """The name of the input that holds a loop's variable."""
    return f"{body.loop.variable}#"
