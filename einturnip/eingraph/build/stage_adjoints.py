"""Adjoints of tensors that one stage passes to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einturnip.eingraph.autodiff.pieces import AdjointPart, total
from einturnip.eingraph.autodiff.reverse import Adjoint, whole_piece
from einturnip.eingraph.build.dependencies import dependents
from einturnip.eingraph.build.slice_adjoints import filled
from einturnip.eingraph.build.stage_builder import StageBuilder
from einturnip.eingraph.build.stage_drafts import StageDraft, moved


class StageAdjoints:
    """The adjoints of one loss, as far as they are known; adds to the last stage of ``lowering``.

    ``by``: the tensors whose adjoints are requested. ``pending``: by tensor, the summands of its adjoint that later
    stages have contributed. ``line``: of the gradient in the program.
    """

    def __init__(self, lowering: StageBuilder, by: Sequence[int], line: int) -> None:
        self.lowering, self._line = lowering, line
        self.active = dependents(lowering.sizes.program.tensors, by)
        self.pending: dict[int, list[int]] = {}

    def copy(self, draft: StageDraft, renamed: Mapping[int, int]) -> dict[int, int]:
        """Copy the nodes of a stage to the current one; ``renamed``: tensors to read instead of others."""
        lowering, at = self.lowering, dict[int, int]()
        for node, made in enumerate(list(draft.builder.nodes)):
            if node in draft.inputs:
                number = draft.inputs[node]
                at[node] = lowering.nodes[renamed.get(number, number)]
            else:
                at[node] = lowering.builder.add(moved(made, at))
        return at

    def has_adjoint(self, number: int) -> bool:
        """True if the adjoint of a tensor is requested, or needed for one that is."""
        return number in self.active and self.lowering.dtype(number).is_inexact

    def made(self, adjoint: Adjoint, like: int) -> int:
        """Make the adjoint of the tensor ``like`` a tensor that other stages can read; return its number."""
        lowering = self.lowering
        number = lowering.new(f"{lowering.sizes.name_of(like)}.grad", lowering.shape(like), lowering.dtype(like))
        lowering.nodes[number] = self.node(adjoint, like)
        return number

    def node(self, adjoint: Adjoint, like: int) -> int:
        """The node of an adjoint in the current stage."""
        if isinstance(adjoint, int):
            return adjoint
        lowering = self.lowering
        return filled(
            lowering.builder, adjoint, lowering.shape(like), f"{lowering.sizes.name_of(like)}.grad", self._line
        )

    def sum(self, parts: Sequence[int], like: int) -> int:
        """Return the number of a sum of adjoints; zeros if there are none."""
        if len(parts) == 1:
            return parts[0]
        return self.made(self.total([self.lowering.nodes[p] for p in parts], like), like)

    def total(self, parts: Sequence[int], like: int) -> int:
        """Add the sum of nodes to the current stage; zeros if there are none."""
        return sum_of(self.lowering, parts, like)


def sum_of(lowering: StageBuilder, parts: Sequence[int], like: int) -> int:
    """Add the sum of nodes to the current stage; zeros if there are none."""
    shape, dtype, name = lowering.shape(like), lowering.dtype(like), f"{lowering.sizes.name_of(like)}.grad"
    nodes, line = lowering.builder.nodes, lowering.drafts[-1].line
    found = total(lowering.builder, [AdjointPart(p, whole_piece(p, nodes[p])) for p in parts], shape, dtype, name, line)
    return found if isinstance(found, int) else filled(lowering.builder, found, shape, name, line)
