"""Derives one loop of a program in stages, as the docstring of ``stage_gradients`` describes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from einturnip.eingraph.autodiff.reverse import Adjoint, Gradients, Sweep, is_zero
from einturnip.eingraph.build.loop_body import LoopBody, TensorSlice
from einturnip.eingraph.build.positions import Place, Position
from einturnip.eingraph.build.slice_adjoints import iterations_between, placed, until, unwritten
from einturnip.eingraph.build.stage_adjoints import StageAdjoints
from einturnip.eingraph.build.stage_drafts import LoopDraft, StageDraft
from einturnip.eingraph.builder import GraphBuilder


class BackwardLoop:
    """The backward loop of the loop in stage number ``stage``, and its replay.

    ``pending``: by tensor that the loop carries, the summands of its adjoint after the loop.
    """

    def __init__(
        self, sweep: StageAdjoints, stage: int, loop: LoopDraft, body: LoopBody, pending: Mapping[int, list[int]]
    ) -> None:
        self._sweep, self._lowering = sweep, sweep.lowering
        self._stage, self._loop, self._body, self._pending = stage, loop, body, pending
        self._forward = self._lowering.drafts[stage]
        self._first, self._n = loop.values.start, len(loop.values)
        self._own = LoopDraft(loop.variable, loop.values[::-1], [], dict(loop.reads))
        # By the number of an input of the body, the tape with its adjoints, or their sum.
        self._tapes: dict[int, int] = {}
        self._sums: dict[int, int] = {}
        self._seeds: dict[int, int] = {}  # by tensor that is written in slices, its adjoint after the loop

    def add(self) -> None:
        """Add the stages; the last one computes the adjoints of the loop's operands."""
        sweep, lowering = self._sweep, self._lowering
        carried = [c for c in self._body.loop.carried if sweep.has_adjoint(c.number)]
        states = {c.number: c for c in carried if c.number not in self._body.written}
        starts = {number: sweep.sum(self._pending.get(number, []), number) for number in states}
        own = self._loop.own_inputs
        outer = [n for n in dict.fromkeys(self._forward.inputs.values()) if n not in own and sweep.has_adjoint(n)]
        reads = [n for n in self._loop.reads if sweep.has_adjoint(self._loop.reads[n].tensor)]
        fixed = [n for n in reads if not any(position.factor for _, position in self._loop.reads[n].place)]
        zeros = {number: self._zeros(number) for number in (*outer, *fixed)}
        for number in self._body.written.keys() & self._pending.keys():
            self._seeds[number] = sweep.sum(self._pending[number], number)
        renamed = self._initial_slices()
        self._add_replay(renamed)
        draft = lowering.begin(StageDraft(GraphBuilder(), self._forward.line, self._own))
        self._own.forward, self._own.variable_input = self._stage, self._loop.variable_input
        self._own.segment, self._own.counted = self._segment, self._loop.condition
        inputs = {number: self._tape_input(number) for number in self._loop.states}
        at = sweep.copy(self._forward, {**renamed, **inputs})
        seeds = dict[int, list[Adjoint]]()
        for number, state in states.items():
            self._sums[number] = self._state(number, starts[number])
            last = at[self._forward.nodes[state.last]]
            seeds.setdefault(last, []).append(lowering.nodes[self._sums[number]])
        for number in self._body.written:
            if sweep.has_adjoint(number):
                piece = at[self._forward.nodes[self._body.written[number].piece]]
                seeds.setdefault(piece, []).extend(self._slice_seeds(number, reads))
        found = Sweep(Gradients(lowering.builder), seeds)
        for number in states:
            adjoint = found.adjoint(lowering.nodes[inputs[number]])
            self._replace(draft, self._sums[number], sweep.node(adjoint, number))
        for number in (*outer, *reads):
            adjoint = found.adjoint(lowering.nodes[renamed.get(number, number)])
            if number in zeros:
                if not is_zero(adjoint):
                    self._sums[number] = self._state(number, zeros[number])
                    parts = [lowering.nodes[self._sums[number]], sweep.node(adjoint, number)]
                    self._replace(draft, self._sums[number], sweep.total(parts, number))
            elif number in self._tapes or not is_zero(adjoint):
                self._write_tape(number, sweep.node(adjoint, number))
        lowering.begin(StageDraft(GraphBuilder(), self._forward.line))
        self._pass_on(states, outer, reads)

    # -- carried tensors

    @property
    def _segment(self) -> int:
        """The number of iterations in a segment; all of them without segments."""
        return math.isqrt(max(self._n - 1, 0)) + 1 if self._lowering.in_segments else max(self._n, 1)

    def _zeros(self, number: int) -> int:
        """The number of a tensor of zeros in the shape of an input of the body."""
        return self._sweep.made(self._sweep.total([], number), number)

    def _state(self, like: int, initial: int) -> int:
        """Add a state of the backward loop, the adjoint of a tensor."""
        lowering = self._lowering
        number = self._new(like)
        self._own.states.append(number)
        self._own.initial[number] = initial
        lowering.loop_of[number] = len(lowering.drafts) - 1
        return number

    def _new(self, like: int, leading: Sequence[int] = (), suffix: str = "grad") -> int:
        lowering = self._lowering
        name, shape = f"{lowering.sizes.name_of(like)}.{suffix}", (*leading, *lowering.shape(like))
        return lowering.new(name, shape, self._lowering.dtype(like))

    def _replace(self, draft: StageDraft, number: int, node: int) -> None:
        draft.add_output(self._lowering.value_name(number), node)

    # -- the states of the loop

    def _tape_input(self, state: int) -> int:
        """Add an input that reads from the tape the state with which the iteration began; return its number."""
        lowering, tapes = self._lowering, self._loop.tape_of
        if state not in tapes:
            tapes[state] = self._new(state, (self._segment,), "tape")
        modulus = self._segment if lowering.in_segments else 0
        number = lowering.new(lowering.sizes.name_of(state), lowering.shape(state), lowering.dtype(state))
        self._own.reads[number] = TensorSlice(tapes[state], ((0, Position(1, -self._first, 1, modulus)),))
        self._own.tapes[number] = state
        return number

    def _add_replay(self, renamed: Mapping[int, int]) -> None:
        """Begin the stage that recomputes the states of a segment; it stays empty if no tape is needed."""
        lowering, sweep = self._lowering, self._sweep
        copies = {state: self._new(state, (), "again") for state in self._loop.states}
        loop = LoopDraft(self._loop.variable, self._loop.values, list(copies.values()), dict(self._own.reads))
        loop.variable_input, loop.replays, loop.counted = self._loop.variable_input, True, self._loop.condition
        draft = lowering.begin(StageDraft(GraphBuilder(), self._forward.line, loop))
        at = sweep.copy(self._forward, {**renamed, **copies})
        for carried in self._body.loop.carried:
            if carried.number in copies:
                draft.nodes[carried.last] = at[self._forward.nodes[carried.last]]

    # -- slices

    def _initial_slices(self) -> dict[int, int]:
        """Add inputs that read the tensor before the loop, for slices that are read before they are written."""
        lowering, renamed = self._lowering, dict[int, int]()
        for number, read in self._loop.reads.items():
            written = self._body.written.get(read.tensor)
            between = None if written is None else iterations_between(written.place, read.place)
            if between is not None and between < 0:
                initial = self._loop.initial[read.tensor]
                assert isinstance(initial, int)
                renamed[number] = lowering.new(
                    lowering.sizes.names[number], lowering.shape(number), self._lowering.dtype(number)
                )
                self._own.reads[renamed[number]] = TensorSlice(initial, read.place)
        return renamed

    def _between(self, number: int) -> int | None:
        """The number of iterations from the write of a slice to its read; None unless it is positive."""
        read = self._loop.reads[number]
        written = self._body.written.get(read.tensor)
        found = None if written is None else iterations_between(written.place, read.place)
        return found if found is not None and found > 0 else None

    def _slice_seeds(self, number: int, reads: Sequence[int]) -> list[int]:
        """The adjoints of the slice of a tensor that an iteration writes."""
        lowering, place = self._lowering, self._body.written[number].place
        found = []
        if number in self._seeds:
            found.append(lowering.nodes[self._read(self._seeds[number], place, number)])
        for read in reads:
            between = self._between(read) if self._loop.reads[read].tensor == number else None
            if between is not None:
                tape = self._tape(read)
                node = lowering.nodes[self._read(tape, self._slot(between), number)]
                variable, last = lowering.variable_of(self._own), self._first + self._n - 1 - between
                name = f"{lowering.sizes.name_of(number)}.grad"
                found.append(until(lowering.builder, node, variable, last, name, self._forward.line))
        return found

    def _slot(self, ahead: int = 0) -> Place:
        return ((0, Position(1, ahead - self._first)),)

    def _read(self, tensor: int, place: Place, like: int) -> int:
        """Add an input that reads a slice; return its number."""
        lowering = self._lowering
        axes = [n for axis, n in enumerate(lowering.shape(tensor)) if axis not in dict(place)]
        number = lowering.new(lowering.sizes.name_of(tensor), axes, lowering.dtype(like))
        self._own.reads[number] = TensorSlice(tensor, place)
        return number

    def _tape(self, read: int) -> int:
        if read not in self._tapes:
            self._tapes[read] = number = self._new(read, (max(self._n, 1),))
            self._lowering.loop_of[number] = len(self._lowering.drafts) - 1
        return self._tapes[read]

    def _write_tape(self, read: int, node: int) -> None:
        self._lowering.write_slice(TensorSlice(self._tape(read), self._slot()), node)

    # -- the operands of the loop

    def _pass_on(self, states: Mapping[int, object], outer: Sequence[int], reads: Sequence[int]) -> None:
        """Add the adjoints of the tensors that the loop reads to those that earlier stages receive."""
        sweep, lowering = self._sweep, self._lowering
        initial = self._loop.initial
        for number in states:
            self._add(initial[number], self._sums[number])
        for number in outer:
            if number in self._sums:
                self._add(number, self._sums[number])
        for number, seed in self._seeds.items():
            tensor = initial[number]
            if isinstance(tensor, int) and sweep.has_adjoint(tensor):
                place, line = self._body.written[number].place, self._forward.line
                node = unwritten(
                    lowering.builder,
                    lowering.nodes[seed],
                    place,
                    self._loop.values,
                    lowering.shape(number),
                    f"{lowering.sizes.name_of(number)}.grad",
                    line,
                )
                self._add(tensor, sweep.made(node, number))
        for number in reads:
            part = self._loop.reads[number]
            target = initial.get(part.tensor, part.tensor) if part.tensor in self._body.written else part.tensor
            found = self._tapes.get(number, self._sums.get(number))
            if found is None or not isinstance(target, int) or not sweep.has_adjoint(target):
                continue
            between = self._between(number)
            values = self._loop.values if between is None else self._loop.values[:between]
            name, shape = f"{lowering.sizes.name_of(part.tensor)}.grad", lowering.shape(part.tensor)
            node, line = lowering.nodes[found], self._forward.line
            made = placed(lowering.builder, node, part.place, values, self._first, shape, name, line)
            self._add(target, sweep.made(made, part.tensor))

    def _add(self, tensor: int | TensorSlice, part: int) -> None:
        if isinstance(tensor, int) and self._sweep.has_adjoint(tensor):
            self._sweep.pending.setdefault(tensor, []).append(part)
