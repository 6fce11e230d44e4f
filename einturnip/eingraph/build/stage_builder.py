"""Stages of a program under construction, and the tensors that they pass to each other."""

from __future__ import annotations

from collections.abc import Iterable

from einturnip.eingraph.build.loop_body import TensorSlice, slice_text
from einturnip.eingraph.build.program import ProgramLowering
from einturnip.eingraph.build.sizes import BoundSize, BoundSizes
from einturnip.eingraph.build.stage_drafts import LoopDraft, StageDraft
from einturnip.eingraph.build.stage_types import StageValue, ValueSlice
from einturnip.eingraph.types import InputNode
from einturnip.ir.dtypes import I64, DType
from einturnip.lang.program import InputDef


class StageNodes(dict[int, int]):
    """The nodes of the current stage by tensor number; reading one of an earlier stage adds an input."""

    def __init__(self, builder: StageBuilder) -> None:
        super().__init__()
        self._builder = builder

    def __missing__(self, number: int) -> int:
        """Add an input."""
        self[number] = node = self._builder.input_of(number)
        return node


class StageBuilder(ProgramLowering):
    """Builds a program in stages; nodes are added to the last stage.

    ``drafts``: the stages so far. ``loop_of``: by tensor, the stage of the loop that writes it. ``in_segments``: loops
    with a gradient save their states only at the start of each segment.
    """

    def __init__(self, sizes: BoundSizes, in_segments: bool) -> None:
        super().__init__(sizes)
        self.in_segments = in_segments
        self.drafts = [StageDraft(self.builder, 1)]
        self.loop_of: dict[int, int] = {}
        self._next = len(sizes.program.tensors)
        self._dtypes: dict[int, DType] = {}  # of the tensors that are not in the program
        self.nodes = self.drafts[0].nodes = StageNodes(self)

    @property
    def is_staged(self) -> bool:
        """True if there is more than one stage."""
        return len(self.drafts) > 1

    def begin(self, draft: StageDraft) -> StageDraft:
        """End the current stage and begin another one."""
        self.drafts.append(draft)
        self.builder, self.nodes = draft.builder, StageNodes(self)
        draft.nodes = self.nodes
        self._derived, self._gradients = None, set()
        return draft

    def write_slice(self, part: TensorSlice, node: int, stage: int = -1) -> None:
        """Let each iteration of a loop write a slice of a value. ``stage``: the loop, by default the last."""
        draft = self.drafts[stage]
        assert draft.loop is not None
        name = self.slice_name(part, draft.loop.variable)
        draft.loop.writes[name] = part
        draft.add_output(name, node)

    def new(self, name: str, shape: Iterable[int], dtype: DType) -> int:
        """Add a tensor that is not in the program; return its number."""
        number = self._next
        self._next += 1
        self.sizes.names[number], self._dtypes[number] = name, dtype
        self.sizes.axes[number] = tuple(BoundSize(n, "a gradient") for n in shape)
        return number

    def variable_of(self, loop: LoopDraft) -> int:
        """The node of the loop's variable in the current stage, which must be that loop."""
        if loop.variable_input is None:
            loop.variable_input = self._next
            self._next += 1
            self.sizes.axes[loop.variable_input], self.sizes.names[loop.variable_input] = (), loop.variable
        return self.nodes[loop.variable_input]

    def input_of(self, number: int) -> int:
        """Add an input for a tensor that the current stage does not make."""
        draft, shape = self.drafts[-1], self.shape(number)
        name, dtype, line = self.source_name(number), I64, draft.line
        read = None if draft.loop is None else draft.loop.reads.get(number)
        if read is not None:
            assert draft.loop is not None
            name, dtype = self.slice_name(read, draft.loop.variable), self.dtype(read.tensor)
        elif number in self._dtypes:
            dtype = self._dtypes[number]
        elif number in self.sizes.names:
            assert draft.loop is not None
            name = variable_name(draft.loop)
        else:
            tensor = self.sizes.program.tensors[number]
            dtype, line = tensor.dtype, tensor.span.line
        node = self.builder.add(InputNode(name, shape, dtype, line))
        draft.inputs[node] = number
        return node

    def imports(self, draft: StageDraft) -> set[int]:
        """The values of other stages that a stage reads as a whole."""
        own = set() if draft.loop is None else draft.loop.own_inputs
        return {number for number in draft.inputs.values() if number not in own and not self.is_input(number)}

    def maker(self, number: int) -> int | None:
        """The stage that makes a tensor; None for an input of the program, or before it is made."""
        if self.is_input(number):
            return None
        if number in self.loop_of:
            return self.loop_of[number]
        made = (k for k, d in enumerate(self.drafts) if number in d.nodes and number not in d.inputs.values())
        return next(made, None)

    # -- tensors

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(size.value for size in self.sizes.axes[number])

    def dtype(self, number: int) -> DType:
        """The element type of a tensor."""
        return self._dtypes[number] if number in self._dtypes else self.sizes.program.tensors[number].dtype

    def is_input(self, number: int) -> bool:
        """True for an input of the program."""
        tensors = self.sizes.program.tensors
        return number < len(tensors) and isinstance(tensors[number], InputDef)

    def value(self, number: int) -> StageValue:
        """The value that holds a tensor."""
        return StageValue(self.value_name(number), self.shape(number), self.dtype(number))

    def value_name(self, number: int) -> str:
        """The name of a value; tensors of the program have no ``#`` in theirs."""
        return f"{self.sizes.name_of(number)}#{number}"

    def source_name(self, number: int) -> str:
        """The name of a value or of an input of the program."""
        return self.sizes.name_of(number) if self.is_input(number) else self.value_name(number)

    def value_slice(self, part: TensorSlice) -> ValueSlice:
        """The slice of the value that holds a tensor."""
        return ValueSlice(self.source_name(part.tensor), part.place)

    def slice_name(self, part: TensorSlice, variable: str) -> str:
        """The name of a slice that a stage reads or writes."""
        return f"{slice_text(self.sizes, part, variable)}#{part.tensor}"


def variable_name(loop: LoopDraft) -> str:
    """The name of the input that holds a loop's variable."""
    return f"{loop.variable}#"
