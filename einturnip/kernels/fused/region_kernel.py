"""Kernels of regions: a tile is computed in blocks, so that intermediate values stay in the cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import region_product
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.fused.block_iterator import BlockIterator, Box
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile
from einturnip.kernels.fused.combine import RegionCombiner
from einturnip.kernels.fused.partial_states import CombineStates, FoldBlock, OpenState, state_levels
from einturnip.kernels.fused.program import BlockContext, BlockProgram, ComputeStep, FoldStep
from einturnip.kernels.fused.replay import RegionCommandLists
from einturnip.kernels.fused.space import (
    PACKED_VALUE_NBYTES,
    VALUE_NBYTES,
    choose_blocks,
    lay_out,
    rounded,
    state_ranges,
)
from einturnip.kernels.fused.value_layout import streamed_first
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import ConditionValues, label_mask
from einturnip.kernels.protocol import CallArguments, KernelCall, Mode, PreparableKernel, PythonCall

_SPARE_NBYTES = 4 << 10  # scratch for kernels of blocks at the edges, which may need more than those of full blocks
_MIN_VALUE_NBYTES = 4 << 10  # minimum bytes of a tiled value when blocks are halved to fit a workspace
_ANY_EXTENT = 512  # points along a label, where the result does not depend on the number
_MAX_CASE_CONDITIONS = 3  # maximum conditions for which machine code is made for each case
_MAX_STORED_CONDITIONS = 1  # maximum conditions for which stored_steps looks at each case


def compile_region(
    region: Region, extents: tuple[int, ...], mode: Mode, compile_step: Compile, native: bool = False
) -> RegionKernel:
    """Return the kernel of a region over a tile of ``extents``; ``compile_step`` compiles its steps.

    ``native``: compile for machine code even if none is available. If part of the code is missing, NumPy computes the
    whole region: block programs built for machine code are slow without it.
    """
    kernel = RegionKernel(region, extents, mode, compile_step, native)
    if not native and code_cache.ready():
        codes = region_code(region, mode, compile_step)
        if codes and all(code_cache.find(code) is not None for code in codes):
            limit = PACKED_VALUE_NBYTES if any(isinstance(code, PackedSpec) for code in codes) else None
            made = RegionKernel(region, extents, mode, compile_step, True, limit)
            repacks = any(made.blocks[p] < extents[p] for p in region.aggregated)  # each row would repack right sides
            if limit and (repacks or not made.reuses_packed or made.layout.nbytes > kernel.workspace_nbytes):
                made = RegionKernel(region, extents, mode, compile_step, True)
            made.workspace_nbytes = kernel.workspace_nbytes  # as planned for NumPy; blocks that need more are halved
            made.scratch_nbytes = kernel.workspace_nbytes - made.layout.nbytes
            return made
    return kernel


@lru_cache(maxsize=256)
def region_code(region: Region, mode: Mode, compile_step: Compile) -> tuple[code_cache.Code, ...]:
    """Return the machine code that a region's kernels call, for any tile and any condition values."""
    kernel = RegionKernel(region, tuple([min(n, _ANY_EXTENT) for n in region.bounds]), mode, compile_step, True)
    cases = (None, True, False) if len(kernel.mask.conditions) <= _MAX_CASE_CONDITIONS else (None,)
    for decided in itertools.product(cases, repeat=len(kernel.mask.conditions)) if mode != "finalize" else ():
        kernel._program(kernel.blocks, decided)
    if not kernel.row_functions:
        return ()
    actions = [a for program in kernel.programs.values() if program is not None for a in program.actions]
    products = [region_product(a.kernel) for a in actions if isinstance(a, ComputeStep | FoldStep)]
    functions, found = dict.fromkeys(kernel.row_functions), dict.fromkeys(p for p in products if p is not None)
    return (*functions, CommandListExecutor(), *found)


@lru_cache(maxsize=256)
def stored_steps(region: Region, mode: Mode, compile_step: Compile) -> frozenset[int] | None:
    """Return the steps whose values need workspace bytes in any of a region's programs, for any blocks.

    None if the mask has too many conditions to look at every program.
    """
    mask, blocks = label_mask(region), tuple([min(n, _ANY_EXTENT) for n in region.bounds])
    if len(mask.conditions) > _MAX_STORED_CONDITIONS or 0 in blocks:
        return None
    layout, found = lay_out(region, blocks, 1), set[int]()
    for native in (False, True):
        for decided in itertools.product((None, True, False), repeat=len(mask.conditions)):
            builder = BlockProgramBuilder(region, layout, blocks, compile_step, native=native)
            if mode != "finalize":
                builder.block(mask.variant(decided, not native))
                found |= builder.stored
        builder = BlockProgramBuilder(region, layout, blocks, compile_step, native=native)
        builder.finalize(mask.variant((None,) * len(mask.conditions), not region.of_rows))
        found |= builder.stored
    return frozenset(found)


class RegionKernel(PreparableKernel):
    """The kernel of a region over tiles of fixed extents."""

    def __init__(
        self,
        region: Region,
        extents: tuple[int, ...],
        mode: Mode,
        compile_step: Compile,
        native: bool = False,
        value_nbytes: int | None = None,
    ) -> None:
        """``value_nbytes``: the most bytes of the workspace for a tiled value; see ``choose_blocks``."""
        self.extents, self.mode, self.compile, self.native = extents, mode, compile_step, native
        self.row_functions: list[FusedRowSpec] = []
        self.combiners: dict[tuple[int, ...], RegionCombiner] = {}
        self.blocks = choose_blocks(region, extents, mode == "full", value_nbytes)
        self.stored = None if region.of_rows else stored_steps(region, mode, compile_step)
        self.region = region = region if native else streamed_first(region, self.blocks)
        self.mask = label_mask(region)
        self.levels = state_levels(region, extents, self.blocks, mode)
        combine_nbytes = self.combiner(self.blocks).workspace_nbytes if self.levels.partial else 0
        levels = self.levels.partial + (mode == "full")
        self.layout = lay_out(region, self.blocks, levels, self.stored, combine_nbytes)
        self.programs: dict[tuple[tuple[int, ...], ConditionValues | None], BlockProgram | None] = {}
        unknown: ConditionValues = (None,) * len(self.mask.conditions)
        folds = mode != "finalize" and not region.of_rows and 0 not in self.blocks
        first = [self._program(self.blocks, unknown)] if folds else []
        first += [] if mode == "accumulate" or 0 in self.blocks[: region.n_out] else [self.finalizer(self.blocks)]
        largest = max([0, *(p.scratch_nbytes for p in first if p is not None)])
        self.scratch_nbytes = rounded(largest + min(largest, _SPARE_NBYTES))
        self.workspace_nbytes = self.layout.nbytes + self.scratch_nbytes
        self.states = state_ranges(region)
        self.iterator = BlockIterator(region, self.blocks, self.mask)
        self.identities = [
            _identities(region.steps[k].einsum) if k in region.carried else () for k in range(len(region.steps))
        ]
        self.command_lists = RegionCommandLists(self) if native and mode != "finalize" else None
        self.smaller_kernels: dict[int, RegionKernel] = {}

    @property
    def reuses_packed(self) -> bool:
        """True if a block has an unbatched product, whose right side can stay packed for the next block."""
        actions = [a for program in self.programs.values() if program is not None for a in program.actions]
        kernels = [a.kernel for a in actions if isinstance(a, ComputeStep | FoldStep)]
        return any(isinstance(kernel, ContractionKernel) and not kernel.batch for kernel in kernels)

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        if len(arguments.workspace) < self.workspace_nbytes:  # the plan expected machine code, which needs less
            return self.within(len(arguments.workspace)).prepare(arguments)
        return PythonCall(lambda: self._run(arguments))

    def _run(self, arguments: CallArguments) -> int:
        outs, operands, origins, first, workspace = arguments
        region, mode = self.region, self.mode
        tile = tuple([(o, o + n) for o, n in zip(origins, self.extents, strict=True)])
        context = BlockContext(
            operands=operands,
            corners=tuple([tuple([lo for lo, _ in region.operand_box(s, tile)]) for s in range(len(region.accesses))])
            if mode != "finalize"
            else (),
            workspace=workspace,
            scratch=workspace[self.layout.nbytes :],
            values=[workspace] * len(region.steps),
            states=[()] * len(region.steps),
            out=outs[0],
        )
        log, bits = StatusLog(), 0
        boxes = self.iterator.rows(tile)
        with recording_numpy_errors(log):
            if self.command_lists is not None and code_cache.find(CommandListExecutor()) is not None:
                bits = self.command_lists.run(boxes, context, tile, outs, first)
            else:
                for out_box in boxes:
                    bits |= self.rows(context, out_box, tile, outs, first)
        return bits | log.bits

    def within(self, nbytes: int) -> RegionKernel:
        """Return the kernel with the largest blocks that fit ``nbytes`` of workspace, else with the smallest."""
        found = self.smaller_kernels.get(nbytes)
        if found is None:
            largest, found = VALUE_NBYTES, self
            while found.workspace_nbytes > nbytes and largest > _MIN_VALUE_NBYTES:
                largest //= 2
                found = RegionKernel(self.region, self.extents, self.mode, self.compile, self.native, largest)
            self.smaller_kernels[nbytes] = found
        return found

    def rows(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """Compute a block of the output over the tile's full range of the streamed labels."""
        region, mode, bits = self.region, self.mode, 0
        if mode != "finalize" and not region.of_rows:
            self.move_to(context, box, tile)
            self.bind(context, outs, box)
            if first or mode == "full":
                self._open(context)
            current: tuple[int, Box] = -1, ()
            for step in self.levels.steps(self.iterator.streamed(box)):
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

    def combiner(self, extents: tuple[int, ...]) -> RegionCombiner:
        """Return the kernel that adds the states of a block of the output to each other."""
        key = extents[: self.region.n_out]
        if key not in self.combiners:
            self.combiners[key] = RegionCombiner(self.region, extents, self.compile)
        return self.combiners[key]

    def combine_states(
        self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], levels: CombineStates
    ) -> int:
        """Add the partial state of one level to the state of another, for a block of the output."""
        self.move_to(context, box, tile)
        found = []
        for level in levels:
            self.bind(context, outs, box, level)
            found.append(tuple([state for k in self.states for state in context.states[k]]))
        combiner = self.combiner(tuple([hi - lo for lo, hi in box]))
        workspace = context.workspace[self.layout.combine :]
        return combiner(found[1], found[0], (0,) * len(box), False, workspace)

    def finalize(self, context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...]) -> int:
        """Compute the result of a block of the output from its states."""
        self.move_to(context, box, tile)
        self.bind(context, context.operands if self.mode == "finalize" else outs, box)
        at: Any = (*context.cuts[: self.region.n_out], ...)
        context.out = outs[0][at]
        return self.finalizer(tuple([hi - lo for lo, hi in box]))(context)

    def _block(self, context: BlockContext, box: Box, tile: Box) -> int:
        """Fold one block into the states; halve it if its kernels need more scratch than there is."""
        extents = tuple([hi - lo for lo, hi in box])
        if 0 in extents:
            return 0
        program = self._program(extents, self.mask.evaluate(box))
        if program is None:
            return 0
        if program.scratch_nbytes > self.scratch_nbytes:
            return self._halves(context, box, tile)
        self.move_to(context, box, tile)
        bits = program(context)
        context.fresh = False
        return bits

    def _halves(self, context: BlockContext, box: Box, tile: Box) -> int:
        walked = [p for p in self.region.aggregated if p not in self.region.whole]
        longest = max(walked, key=lambda p: box[p][1] - box[p][0], default=-1)
        lo, hi = box[longest]
        if longest < 0 or hi - lo < 2:
            raise InternalError(f"a block of {box} needs more workspace than one of {self.blocks}")
        parts = ((lo, (lo + hi) // 2), ((lo + hi) // 2, hi))
        halves = [(*box[:longest], part, *box[longest + 1 :]) for part in parts]
        return self._block(context, halves[0], tile) | self._block(context, halves[1], tile)

    def _program(self, extents: tuple[int, ...], decided: ConditionValues) -> BlockProgram | None:
        """Return the program of a block with these condition values; None if the block adds nothing."""
        key = extents, decided
        if key not in self.programs:
            variant = self.mask.variant(decided, not self.native)
            idle = variant.idle.issuperset(self.region.carried)
            if self.native and len(decided) > _MAX_CASE_CONDITIONS:  # only the undecided variant has code
                variant = self.mask.variant((None,) * len(decided), False)
            self.programs[key] = None if idle else self._built(extents, lambda builder: builder.block(variant))
        return self.programs[key]

    def _built(self, extents: tuple[int, ...], build: Callable[[BlockProgramBuilder], BlockProgram]) -> BlockProgram:
        """Build a program and check that every stored value has its bytes in the workspace."""
        builder = BlockProgramBuilder(self.region, self.layout, extents, self.compile, native=self.native)
        made = build(builder)
        if self.stored is not None and not builder.stored <= self.stored:
            missing = sorted(builder.stored - self.stored)
            raise InternalError(f"values of steps {missing} have no place in {self.layout}")
        self.row_functions += builder.row_functions
        return made

    def finalizer(self, extents: tuple[int, ...]) -> BlockProgram:
        """Return the program that computes the result from the states of a block of the output."""
        key = extents, None
        found = self.programs.get(key)
        if found is None:
            variant = self.mask.variant((None,) * len(self.mask.conditions), not self.region.of_rows)
            found = self.programs[key] = self._built(extents, lambda builder: builder.finalize(variant))
        return found

    def move_to(self, context: BlockContext, box: Box, tile: Box) -> None:
        """Make ``box`` the context's current block."""
        context.box = box
        context.cuts = tuple([slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(box, tile, strict=True)])

    def bind(self, context: BlockContext, components: tuple[Array, ...], rows: Box, level: int | None = None) -> None:
        """Bind the states of the current block; the workspace has the states of all its ``rows``.

        ``level``: of a partial state; by default the tile's.
        """
        region, cuts, extents = self.region, context.cuts, [hi - lo for lo, hi in rows]
        level = self.levels.partial if level is None else level
        within = level < len(self.layout.states)
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
                states = [context.place(self.layout.states[level][i], shape, d.numpy) for i, d in places]
            else:
                states = [components[i] for i in numbers]
            at: Any = (*[cuts[p] for p in labels], ...)
            context.states[k] = tuple([state[at] for state in states])


def _identities(einsum: Einsum) -> tuple[Array, ...]:
    aggregation = einsum.aggregation
    assert aggregation is not None
    return tuple(number(v, d) for v, d in zip(aggregation.identity, aggregation.state, strict=True))
