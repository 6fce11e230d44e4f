"""Builds a program with long loops as stages: graphs that run one after another.

The body of a loop is a stage that runs once for each iteration.

A tensor that one stage makes and another one reads is a *value*: an output of the one graph and an input of the other,
under one name. A tensor that a loop carries is an input and an output of the body, under one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from einturnip.core.errors import SourceError
from einturnip.eingraph.build.dependencies import dependents, tensors_read
from einturnip.eingraph.build.loop_body import LoopBody, TensorSlice, Unrolled
from einturnip.eingraph.build.program import ExpansionCount
from einturnip.eingraph.build.sizes import BoundSizes, bind_sizes
from einturnip.eingraph.build.stage_builder import StageBuilder, variable_name
from einturnip.eingraph.build.stage_drafts import LoopDraft, StageDraft
from einturnip.eingraph.build.stage_gradients import StageGradients
from einturnip.eingraph.build.stage_types import Iterations, Stage, StagedProgram, StageValue, ValueSlice
from einturnip.eingraph.builder import GraphBuilder
from einturnip.eingraph.check import check
from einturnip.eingraph.types import InputNode
from einturnip.lang.program import GradStatement, InputDef, Loop, TypedProgram
from einturnip.tuning.search import ROLLED_EQUATIONS, ROLLED_ITERATIONS


def build_stages(
    program: TypedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, int] | None = None,
    origins: Mapping[str, str] | None = None,
    in_segments: bool = False,
) -> StagedProgram | None:
    """Build a program in stages if it has long loops that need not be unrolled; None otherwise.

    Parameters and errors: see ``build``. A program with a ``while`` has stages, or an error. ``in_segments``: derived
    loops keep their states at the start of each segment only.
    """
    sizes = bind_sizes(program, shapes, dims or {}, origins or {})
    count = ExpansionCount(sizes)
    top = [s for s in program.statements if isinstance(s, Loop)]
    loops, whiles = {id(s) for s in top if _may_be_long(s, count)}, {id(s) for s in top if s.condition is not None}
    while loops:
        lowering = StageLowering(sizes, loops, can_unroll=not loops <= whiles, in_segments=in_segments)
        try:
            lowering.run(program.statements)
            if not sizes.problems:
                again = None if in_segments else partial(build_stages, program, shapes, dims, origins, True)
                return lowering.staged(again) if lowering.is_staged else None
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


class StageLowering(StageBuilder):
    """Lowers statements to stages.

    ``current``: the loop whose body is being lowered. ``can_unroll``: a loop that does not fit can be unrolled instead.
    """

    def __init__(self, sizes: BoundSizes, loops: set[int], can_unroll: bool, in_segments: bool = False) -> None:
        super().__init__(sizes, in_segments)
        self.current: Loop | None = None
        self._loops, self._can_unroll = loops, can_unroll
        self._stage_gradients = StageGradients(self)
        self._inputs: list[InputNode] = []

    # -- stages

    def _input(self, tensor: InputDef) -> None:
        self.nodes[tensor.number] = node = self.input_of(tensor.number)
        made = self.builder.nodes[node]
        assert isinstance(made, InputNode)
        self._inputs.append(made)

    def _loop(self, loop: Loop) -> None:
        values = self._count.iteration_values(loop)
        is_staged = self.current is None and id(loop) in self._loops and _may_be_long(loop, self._count)
        if values is None or not is_staged:
            super()._loop(loop)
            return
        self.current, sizes = loop, self.sizes
        for carried in loop.carried:
            sizes.axes[carried.number] = sizes.axes[carried.initial]
        body = LoopBody(sizes, loop, values, self._next)
        self._next += len(body.reads) + (body.variable_input is not None)
        self._dtypes |= {number: sizes.program.tensors[read.tensor].dtype for number, read in body.reads.items()}
        states = [c for c in loop.carried if c.number not in body.written]
        head = LoopDraft(loop.variable, values, [c.number for c in states], body.reads, body)
        head.initial = {c.number: c.initial for c in loop.carried}
        head.condition, head.variable_input = loop.condition, body.variable_input
        self.begin(StageDraft(GraphBuilder(), loop.span.line, head))
        self.loop_of |= {c.number: len(self.drafts) - 1 for c in loop.carried}
        for carried in states:
            self.nodes[carried.number] = self.input_of(carried.number)
        self.run(body.statements)
        if sizes.problems:
            raise Unrolled("the body has an error in its general form")
        self._check_shapes(loop)
        if sizes.problems or not body.has_fitting_slices():
            raise Unrolled("a carried tensor changes its shape")
        draft = self.drafts[-1]
        for carried in states:
            draft.add_output(self.value_name(carried.number), self.nodes[carried.last])
        for written in body.written.values():
            self.write_slice(written, self.nodes[written.piece])
        self.begin(StageDraft(GraphBuilder(), loop.span.end_line + 1))
        self.current = None

    # -- gradients

    def _gradient(self, statement: GradStatement) -> None:
        """Lower a gradient. Where it passes a loop outside of the loop's body, the loop is derived as a whole."""
        if not self.is_staged or not (self._stage_gradients.has(statement.loss) or self._crosses(statement)):
            super()._gradient(statement)
            return
        try:
            if self.current is not None:
                raise Unrolled("a gradient in the body passes other iterations")
            self.nodes[statement.number] = made = self._stage_gradients.gradient(statement)
            self._gradients.add(made)
            self.sizes.axes[statement.number] = self.sizes.axes[statement.by]
        except Unrolled:
            if self._can_unroll:
                raise
            self._refuse_gradient(statement)

    def _crosses(self, statement: GradStatement) -> bool:
        """True if the loss depends on the tensor through another stage or other iterations."""
        draft, by, tensors = self.drafts[-1], statement.by, self.sizes.program.tensors
        carried = set() if draft.loop is None else set(draft.loop.initial)
        imports, found = self.imports(draft), dependents(tensors, [by])
        stack, seen = [statement.loss], {by}
        while stack:
            number = stack.pop()
            if number in seen or number not in found:
                continue
            seen.add(number)
            if number in carried or number in imports or number not in draft.nodes:
                return True
            stack += tensors_read(tensors[number])
        return False

    def _refuse_gradient(self, statement: GradStatement) -> None:
        """Report a derivative that would have to unroll a ``while``."""
        loops = [s for s in self.sizes.program.statements if isinstance(s, Loop) and s.condition is not None]
        loop = self.current or loops[0]
        message, place = "this gradient cannot pass a 'while'", ((loop.span, "the loop"),)
        help_text = "take it after the loop and derive no gradient twice, or in its body by what the loop carries"
        self.sizes.report("E217", message, statement.span, secondary=place, help=help_text)
        self.sizes.axes[statement.number] = self.sizes.axes[statement.by]
        self._add_placeholder(statement)

    # -- the finished stages

    def staged(self, in_segments: Callable[[], StagedProgram | None] | None) -> StagedProgram:
        """The stages; called after all statements."""
        for output in self.sizes.program.outputs:
            if self.maker(output.tensor) == len(self.drafts) - 1:
                self._export(output.tensor, output.name)
            else:
                self.drafts[-1].add_output(output.name, self.nodes[output.tensor], output.name, output.span.line)
        values, stages = dict[str, StageValue](), list[Stage]()
        for k in reversed(range(len(self.drafts))):  # what a stage needs is then known before the stages that make it
            draft = self.drafts[k]
            self._stage_gradients.complete(k)
            draft.drop_unused()
            needed = sorted(self.imports(draft))
            if draft.loop is not None and draft.outputs:
                needed += [part.tensor for n, part in draft.loop.reads.items() if n in draft.inputs.values()]
                needed += [number for number, stage in self.loop_of.items() if stage == k]
            for number in needed:
                if not self.is_input(number):
                    values[self.value_name(number)] = self.value(number)
                    self._export(number, self.value_name(number))
            found = self._stage(draft)
            if found is not None:
                stages.insert(0, found)
        is_derived = any(draft.loop is not None and draft.loop.tapes for draft in self.drafts)
        again = None
        if in_segments is not None and is_derived:
            again = partial(_required, in_segments)
        return StagedProgram(tuple(stages), tuple(values.values()), tuple(self._inputs), again)

    def _export(self, number: int, name: str) -> bool:
        """Make a tensor of a stage without loop an output of it; False for other tensors."""
        stage = self.maker(number)
        if stage is None or self.drafts[stage].loop is not None:
            return False
        draft = self.drafts[stage]
        if name not in dict(draft.outputs):
            draft.add_output(name, draft.nodes[number], name)
        return True

    def _stage(self, draft: StageDraft) -> Stage | None:
        program, loop = self.sizes.program, draft.loop
        if not draft.outputs:
            return None
        graph = draft.graph(program.file, program.source)
        check(graph)
        if loop is None:
            return Stage(graph, None, draft.line)
        reads = [part for number, part in loop.reads.items() if number in draft.inputs.values()]
        initial = dict[str, str | ValueSlice]()
        for number, source in loop.initial.items():
            name = self.value_name(number)
            if isinstance(source, TensorSlice):
                initial[name] = self.value_slice(source)
            elif not self._export(source, name):
                initial[name] = self.source_name(source)
        iterations = Iterations(
            loop.values,
            None if loop.variable_input is None else variable_name(loop),
            tuple(map(self.value_name, loop.states)),
            {self.slice_name(part, loop.variable): self.value_slice(part) for part in reads},
            {name: self.value_slice(part) for name, part in loop.writes.items()},
            initial,
            None if loop.condition is None else self.value_name(loop.condition),
            None if loop.counted is None else self.value_name(loop.counted),
            loop.segment,
            {self.value_name(number): self.value_slice(part) for number, part in loop.saved.items()},
            loop.replays,
        )
        return Stage(graph, iterations, draft.line)


def _required(build: Callable[[], StagedProgram | None]) -> StagedProgram:
    found = build()
    assert found is not None
    return found
