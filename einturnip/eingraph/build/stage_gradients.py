"""Gradients that pass long loops: derives a program in stages, the last stage first.

The adjoint of a tensor that one stage passes to another is computed by stages after both. A stage without a loop is
derived by a copy of it, to which its reverse sweep is added. A loop is derived by a *backward loop*: its body is such a
copy of the loop's body, and its iterations run in the opposite order. It carries the adjoints of the loop's states, and
a sum for each tensor that every iteration reads. The adjoint of a slice that an iteration reads goes to a *tape*, a
tensor with one element along its first axis for each iteration; the statements after the backward loop add the elements
of the tape to the adjoint of the tensor, at the places of the slices.

If the derivative reads the states with which iterations begin, these are on tapes too. Either the loop itself writes a
tape with a place for each iteration; or the tape has a place for each iteration of one segment, and a *replay* of the
loop fills it before the backward loop runs that segment.

Source: Griewank and Walther, Evaluating Derivatives (2nd ed.), ch. 12: checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einturnip.eingraph.autodiff.reverse import Adjoint, Gradients, Sweep, is_zero
from einturnip.eingraph.build.backward_loop import BackwardLoop
from einturnip.eingraph.build.dependencies import dependents, tensors_read
from einturnip.eingraph.build.loop_body import LoopBody, TensorSlice, Unrolled
from einturnip.eingraph.build.positions import Position
from einturnip.eingraph.build.stage_adjoints import StageAdjoints, sum_of
from einturnip.eingraph.build.stage_builder import StageBuilder
from einturnip.eingraph.build.stage_drafts import LoopDraft, StageDraft
from einturnip.eingraph.types import operands_of
from einturnip.lang.program import Carried, GradStatement


class StageGradients:
    """The gradients of one program in stages, by loss. Tensors are given by number."""

    def __init__(self, lowering: StageBuilder) -> None:
        self._lowering = lowering
        self._found: dict[int, dict[int, list[int]]] = {}  # by loss and tensor, the summands of the gradient
        self._gradients: set[int] = set()  # the numbers of gradient statements so far

    def has(self, loss: int) -> bool:
        """True if earlier stages have been derived for this loss."""
        return loss in self._found

    def gradient(self, statement: GradStatement) -> int:
        """Add the gradient to the current stage; return its node. New stages begin for a new loss.

        Raises:
            Unrolled: the derivative passes an earlier gradient.
        """
        if statement.loss not in self._found:
            program = self._lowering.sizes.program
            same = [s.by for s in program.statements if isinstance(s, GradStatement) and s.loss == statement.loss]
            sweep = StageSweep(self._lowering, statement, same, self._gradients)
            self._found[statement.loss] = sweep.contributions()
        self._gradients.add(statement.number)
        lowering = self._lowering
        parts = [lowering.nodes[number] for number in self._found[statement.loss][statement.by]]
        return sum_of(lowering, parts, statement.by)

    def complete(self, stage: int) -> None:
        """Let a loop write the tapes that its backward loop reads, once all nodes of that loop are known."""
        backward = self._lowering.drafts[stage]
        if backward.loop is None or not backward.loop.tapes:
            return
        backward.drop_unused()
        used = set(backward.inputs.values())
        read = {state: number for number, state in backward.loop.tapes.items() if number in used}
        if not read:
            backward.loop.tapes, backward.loop.segment = {}, 0
            return
        forward = self._lowering.drafts[backward.loop.forward]
        assert forward.loop is not None
        if self._lowering.in_segments:
            self._replay(stage, forward, read)
            return
        for state, number in read.items():
            tape = backward.loop.reads[number]
            if tape.tensor not in self._lowering.loop_of:
                self._lowering.loop_of[tape.tensor] = backward.loop.forward
                self._lowering.write_slice(tape, forward.nodes[state], backward.loop.forward)

    def _replay(self, stage: int, forward: StageDraft, read: Mapping[int, int]) -> None:
        """Complete the replay of a loop, which is the stage before the backward loop."""
        lowering = self._lowering
        replay, backward = lowering.drafts[stage - 1], lowering.drafts[stage]
        assert replay.loop is not None and backward.loop is not None and forward.loop is not None
        source = forward.loop
        assert source.body is not None
        last = {c.number: c.last for c in source.body.loop.carried}
        copies = dict(zip(source.states, replay.loop.states, strict=True))
        needed, states = list(read), dict[int, None]()
        while needed:
            state = needed.pop()
            if state not in states:
                states[state] = None
                needed += [s for s in source.states if replay.nodes[copies[s]] in _sources(replay, last[state])]
        replay.loop.states = [copies[state] for state in states]
        n, first = len(source.values), source.values.start
        for state, copy in ((s, copies[s]) for s in states):
            lowering.loop_of[copy] = stage - 1
            replay.add_output(lowering.value_name(copy), replay.nodes[last[state]])
            if state not in source.saved:
                shape = (-(-n // backward.loop.segment), *lowering.shape(state))
                number = lowering.new(f"{lowering.sizes.name_of(state)}.saved", shape, lowering.dtype(state))
                place = ((0, Position(1, -first, backward.loop.segment)),)
                source.saved[state] = TensorSlice(number, place)
                lowering.loop_of[number] = backward.loop.forward
            replay.loop.initial[copy] = source.saved[state]
        for state, number in read.items():
            tape = backward.loop.reads[number]
            lowering.loop_of[tape.tensor] = stage - 1
            lowering.write_slice(tape, replay.nodes[copies[state]], stage - 1)
        source.segment = replay.loop.segment = backward.loop.segment


class StageSweep(StageAdjoints):
    """The adjoints of one loss, from the current stage back to the first one.

    ``by``: the tensors whose adjoints are requested. ``gradients``: the numbers of earlier gradients through loops.
    """

    def __init__(
        self, lowering: StageBuilder, statement: GradStatement, by: Sequence[int], gradients: set[int]
    ) -> None:
        super().__init__(lowering, by, statement.span.line)
        self._statement = statement
        if any(
            g in self.active and statement.loss in dependents(lowering.sizes.program.tensors, [g]) for g in gradients
        ):
            raise Unrolled("a gradient of a gradient passes a loop")
        self._found = dict[int, list[int]]((number, []) for number in by)

    def contributions(self) -> dict[int, list[int]]:
        """Return the summands of the gradient by each tensor; begins new stages."""
        lowering = self.lowering
        last = len(lowering.drafts) - 1
        draft = lowering.drafts[last]
        sweep = lowering.gradients.sweep_of(lowering.nodes[self._statement.loss])
        self._take(sweep, last, {node: node for node in range(len(draft.builder.nodes))})
        for stage in reversed(range(last)):
            loop = lowering.drafts[stage].loop
            if loop is None:
                self._through_statements(stage)
            elif loop.body is not None:
                self._through_loop(stage, loop, loop.body)
        for number in self._found:
            if lowering.maker(number) is None:
                self._found[number] = self.pending.get(number, [])
        return self._found

    # -- statements

    def _through_statements(self, stage: int) -> None:
        """Derive a stage without a loop in the current one."""
        lowering, draft = self.lowering, self.lowering.drafts[stage]
        seeds = {number: self.pending.pop(number) for number in list(self.pending) if lowering.maker(number) == stage}
        if not seeds:
            return
        at = self.copy(draft, {})
        by_node = dict[int, list[Adjoint]]()
        for number, parts in seeds.items():
            by_node.setdefault(at[draft.nodes[number]], []).extend(lowering.nodes[part] for part in parts)
        self._take(Sweep(Gradients(lowering.builder), by_node), stage, at)

    def _take(self, sweep: Sweep, stage: int, at: Mapping[int, int]) -> None:
        """Keep the adjoints of tensors that a stage reads or makes. ``at``: the copy of each of its nodes."""
        lowering, draft = self.lowering, self.lowering.drafts[stage]
        for node, number in list(draft.inputs.items()):
            if self.has_adjoint(number):
                adjoint = sweep.adjoint(at[node])
                if not is_zero(adjoint):
                    self.pending.setdefault(number, []).append(self.made(adjoint, number))
        for number in self._found:
            if lowering.maker(number) == stage:
                self._found[number] = [self.made(sweep.adjoint(at[draft.nodes[number]]), number)]

    # -- loops

    def _through_loop(self, stage: int, loop: LoopDraft, body: LoopBody) -> None:
        """Derive a loop: add a replay, its backward loop, and a stage for the adjoints of its operands."""
        forward = self.lowering.drafts[stage]
        pending = {number: self.pending.pop(number) for number in loop.initial if number in self.pending}
        for number in self._found.keys() & loop.initial.keys():
            self._require_unread(number, body)
            self._found[number] = pending.get(number, [])
        outside = [*loop.initial.values(), *(part.tensor for part in loop.reads.values()), *forward.inputs.values()]
        if pending and any(n in self.active for n in outside if isinstance(n, int) and n not in loop.initial):
            BackwardLoop(self, stage, loop, body, pending).add()

    def _require_unread(self, number: int, body: LoopBody) -> None:
        """Require that the last iteration does not read the tensor by which the gradient is taken.

        Raises:
            Unrolled: it does.
        """
        (last,) = (carried.last for carried in body.loop.carried if carried.number == number)
        for tensor in self.lowering.sizes.program.tensors:
            if not isinstance(tensor, Carried) and tensor.dtype.is_inexact and last in tensors_read(tensor):
                raise Unrolled("a gradient by what the last iteration reads")


def _sources(draft: StageDraft, number: int) -> set[int]:
    """The nodes that a tensor of a stage is computed from."""
    seen, stack = set[int](), [draft.nodes[number]]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += operands_of(draft.builder.nodes[node])
    return seen
