"""Kernels of regions: a tile is computed in blocks, so that intermediate values stay in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.einsum import Box, Einsum
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.fused.block_iterator import extents_of
from einturnip.kernels.fused.block_layout import state_ranges
from einturnip.kernels.fused.partial_states import CombineStates, FoldBlock, OpenState
from einturnip.kernels.fused.program import BlockContext
from einturnip.kernels.fused.region_spec import RegionSpec
from einturnip.kernels.fused.replay import RegionCommandLists
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel, PythonCall


class RegionKernel(PreparableKernel):
    """The kernel of a region over tiles of fixed extents."""

    def __init__(self, spec: RegionSpec) -> None:
        self.spec, region = spec, spec.region
        self.workspace_nbytes = spec.workspace_nbytes
        self.states = state_ranges(region)
        self.identities = [
            _identities(region.steps[k].einsum) if k in region.carried else () for k in range(len(region.steps))
        ]
        self.command_lists = RegionCommandLists(self) if spec.native and spec.mode != "finalize" else None
        self._smaller: dict[int, RegionKernel] = {}

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        if len(arguments.workspace) < self.workspace_nbytes:  # the plan expected machine code, which needs less
            return self._within(len(arguments.workspace)).prepare(arguments)
        return PythonCall(lambda: self._run(arguments))

    def _within(self, nbytes: int) -> RegionKernel:
        if nbytes not in self._smaller:
            self._smaller[nbytes] = RegionKernel(self.spec.within(nbytes))
        return self._smaller[nbytes]

    def _run(self, arguments: CallArguments) -> int:
        outs, operands, origins, first, workspace = arguments
        region, mode = self.spec.region, self.spec.mode
        tile = tuple([(o, o + n) for o, n in zip(origins, self.spec.extents, strict=True)])
        context = BlockContext(
            operands=operands,
            corners=tuple([tuple([lo for lo, _ in region.operand_box(s, tile)]) for s in range(len(region.accesses))])
            if mode != "finalize"
            else (),
            workspace=workspace,
            scratch=workspace[self.spec.layout.nbytes :],
            values=[workspace] * len(region.steps),
            states=[()] * len(region.steps),
            out=outs[0],
        )
        log, bits = StatusLog(), 0
        boxes = self.spec.iterator.rows(tile)
        with recording_numpy_errors(log):
            if self.command_lists is not None and code_cache.find(CommandListExecutor()) is not None:
                bits = self.command_lists.run(boxes, context, tile, outs, first)
            else:
                for out_box in boxes:
                    bits |= self.rows(context, out_box, tile, outs, first)
        return bits | log.bits

    def rows(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Compute a block of the output over the tile's full range of the streamed labels."""
        region, mode, bits = self.spec.region, self.spec.mode, 0
        if mode != "finalize" and not region.of_rows:
            self.move_to(context, box, tile)
            self.bind(context, outs, box)
            if first or mode == "full":
                self._open(context)
            current: tuple[int, Box] = -1, ()
            for step in self.spec.levels.steps(self.spec.iterator.streamed(box)):
                match step:
                    case OpenState(level):
                        self.move_to(context, box, tile)
                        self.bind(context, outs, box, level)
                        self._open(context)
                        current = -1, current[1]
                    case FoldBlock(level, block):
                        if (level, block[: region.n_out]) != current:
                            context.fresh |= block[: region.n_out] != current[1]
                            current = level, block[: region.n_out]
                            self.move_to(context, block, tile)
                            self.bind(context, outs, box, level)
                        bits |= self._block(context, block, tile)
                    case CombineStates():
                        bits |= self.combine_states(context, box, tile, outs, step)
        return bits if mode == "accumulate" else bits | self.finalize(context, box, tile, outs)

    def _open(self, context: BlockContext) -> None:
        """Initialise the states of the current block."""
        for states, values in zip(context.states, self.identities, strict=True):
            for state, value in zip(states, values, strict=True):
                np.copyto(state, value)

    def combine_states(
        self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], levels: CombineStates
    ) -> int:
        """Add the partial state of one level to the state of another, for a block of the output."""
        self.move_to(context, box, tile)
        found = []
        for level in levels:
            self.bind(context, outs, box, level)
            found.append(tuple([state for k in self.states for state in context.states[k]]))
        combiner = self.spec.combiner(extents_of(box))
        workspace = context.workspace[self.spec.layout.combine :]
        return combiner(found[1], found[0], (0,) * len(box), False, workspace)

    def finalize(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...]) -> int:
        """Compute the result of a block of the output from its states."""
        self.move_to(context, box, tile)
        self.bind(context, context.operands if self.spec.mode == "finalize" else outs, box)
        at: Any = (*context.cuts[: self.spec.region.n_out], ...)
        context.out = outs[0][at]
        return self.spec.finalizer(extents_of(box))(context)

    def _block(self, context: BlockContext, box: Box, tile: Box) -> int:
        """Fold one block into the states; halve it if its kernels need more scratch than there is."""
        extents = extents_of(box)
        if 0 in extents:
            return 0
        program = self.spec.program(extents, self.spec.mask.evaluate(box))
        if program is None:
            return 0
        if program.scratch_nbytes > self.spec.scratch_nbytes:
            return self._halves(context, box, tile)
        self.move_to(context, box, tile)
        bits = program(context)
        context.fresh = False
        return bits

    def _halves(self, context: BlockContext, box: Box, tile: Box) -> int:
        walked = [p for p in self.spec.region.aggregated if p not in self.spec.region.whole]
        longest = max(walked, key=lambda p: box[p][1] - box[p][0], default=-1)
        lo, hi = box[longest]
        if longest < 0 or hi - lo < 2:
            raise InternalError(f"a block of {box} needs more workspace than one of {self.spec.blocks}")
        parts = ((lo, (lo + hi) // 2), ((lo + hi) // 2, hi))
        halves = [(*box[:longest], part, *box[longest + 1 :]) for part in parts]
        return self._block(context, halves[0], tile) | self._block(context, halves[1], tile)

    def move_to(self, context: BlockContext, box: Box, tile: Box) -> None:
        """Make ``box`` the context's current block."""
        context.box = box
        context.cuts = tuple([slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(box, tile, strict=True)])

    def bind(self, context: BlockContext, components: tuple[Array, ...], rows: Box, level: int | None = None) -> None:
        """Bind the states of the current block; the workspace has the states of all its ``rows``.

        ``level``: of a partial state; by default the tile's.
        """
        region, cuts, extents = self.spec.region, context.cuts, [hi - lo for lo, hi in rows]
        level = self.spec.levels.partial if level is None else level
        within = level < len(self.spec.layout.states)
        if within:
            cuts = tuple(
                [slice(lo - first, hi - first) for (lo, hi), (first, _) in zip(context.box, rows, strict=True)]
            )
        for k, numbers in self.states.items():
            step = region.steps[k]
            labels = step.labels[: step.einsum.n_out]
            if within:
                shape, dtypes = tuple([extents[p] for p in labels]), step.einsum.state_dtypes
                places = zip(numbers, dtypes, strict=True)
                states = [context.place(self.spec.layout.states[level][i], shape, d.numpy) for i, d in places]
            else:
                states = [components[i] for i in numbers]
            at: Any = (*[cuts[p] for p in labels], ...)
            context.states[k] = tuple([state[at] for state in states])


def _identities(einsum: Einsum) -> tuple[Array, ...]:
    aggregation = einsum.aggregation
    assert aggregation is not None
    return tuple(number(v, d) for v, d in zip(aggregation.identity, aggregation.state, strict=True))
