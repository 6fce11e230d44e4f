"""Kernels of regions: a tile walked in blocks that stay in the cache; what passes between the steps never leaves it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.reference import identity
from einturnip.ir.region import Region
from einturnip.ir.scalar import ScalarCall, walk
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.fused.block_iterator import BlockIterator, Box
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile, required_steps
from einturnip.kernels.fused.program import BlockContext, BlockProgram, ComputeStep, FoldStep
from einturnip.kernels.fused.replay import RegionCommandLists
from einturnip.kernels.fused.space import NEAR_NBYTES, VALUE_NBYTES, choose_blocks, lay_out, rounded
from einturnip.kernels.fused.value_layout import streamed_first
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from einturnip.kernels.llvm.contraction import region_product
from einturnip.kernels.llvm.pack_routines import ProductSpec
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import ConditionValues, LabelMask
from einturnip.kernels.protocol import Mode

_SPARE_NBYTES = 4 << 10  # room for kernels of blocks at the edges, which may need more than those of whole blocks
_LEAST_VALUE = 4 << 10  # bytes of a tiled value, beneath which a block does not become smaller
_SOME = 512  # points along a label, where any number does
_MOST_TOLD = 3  # conditions of a mask of which each may hold or not
_MOST_KNOWN = 1  # conditions of which every case is looked at before blocks are laid out


def compile_region(
    region: Region, extents: tuple[int, ...], mode: Mode, compile_step: Compile, native: bool = False
) -> RegionKernel:
    """The kernel of a region over a tile of ``extents``; ``compile_step`` compiles those of its steps.

    ``native``: its steps are put together for machine code, whether that is at hand or not. Where part of the code is
    missing, NumPy does all of it: steps put together for machine code are slow without, in blocks halved again.
    """
    kernel = RegionKernel(region, extents, mode, compile_step, native)
    if not native and code_cache.ready():
        codes = region_code(region, mode, compile_step)
        if codes and all(code_cache.find(code) is not None for code in codes):
            near = NEAR_NBYTES if any(isinstance(code, ProductSpec) for code in codes) else None
            made = RegionKernel(region, extents, mode, compile_step, True, near)
            again = any(made.blocks[p] < extents[p] for p in region.aggregated)  # each row would pack right sides anew
            if near and (again or not made.keeps_packed or made.layout.nbytes > kernel.workspace_nbytes):
                made = RegionKernel(region, extents, mode, compile_step, True)
            made.workspace_nbytes = kernel.workspace_nbytes  # as planned; blocks that need more are halved
            made.scratch_nbytes = kernel.workspace_nbytes - made.layout.nbytes
            return made
    return kernel


@lru_cache(maxsize=256)
def region_code(region: Region, mode: Mode, compile_step: Compile) -> tuple[code_cache.Code, ...]:
    """The machine code that a region's kernels would call, whatever their tiles and wherever their masks hold."""
    kernel = RegionKernel(region, tuple([min(n, _SOME) for n in region.bounds]), mode, compile_step, True)
    known = (None, True, False) if len(kernel.mask.conditions) <= _MOST_TOLD else (None,)
    for held in itertools.product(known, repeat=len(kernel.mask.conditions)) if mode != "finish" else ():
        kernel._program(kernel.blocks, held)
    if not kernel.bands:
        return ()
    actions = [a for program in kernel.programs.values() if program is not None for a in program.actions]
    products = [region_product(a.kernel) for a in actions if isinstance(a, ComputeStep | FoldStep)]
    return (*dict.fromkeys(kernel.bands), CommandListExecutor(), *dict.fromkeys(p for p in products if p is not None))


@lru_cache(maxsize=256)
def stored_steps(region: Region, mode: Mode, compile_step: Compile) -> frozenset[int] | None:
    """The steps whose values have places of their own in some program of a region, by NumPy or by machine code.

    Whatever the blocks. None: masks say too many things to know all programs.
    """
    mask, blocks = LabelMask(region), tuple([min(n, _SOME) for n in region.bounds])
    if len(mask.conditions) > _MOST_KNOWN or 0 in blocks:
        return None
    layout, found = lay_out(region, blocks, True), set[int]()
    for native in (False, True):
        for held in itertools.product((None, True, False), repeat=len(mask.conditions)):
            builder = BlockProgramBuilder(region, layout, blocks, compile_step, native=native)
            if mode != "finish":
                builder.block(mask.variant(held, not native))
                found |= builder.apart
        builder = BlockProgramBuilder(region, layout, blocks, compile_step, native=native)
        builder.finish(mask.variant((None,) * len(mask.conditions), not region.of_rows))
        found |= builder.apart
    return frozenset(found)


class RegionKernel:
    """A region over tiles of fixed extents."""

    def __init__(
        self,
        region: Region,
        extents: tuple[int, ...],
        mode: Mode,
        compile_step: Compile,
        native: bool = False,
        value_nbytes: int | None = None,
    ) -> None:
        """``value_nbytes``: what a tiled value may take of the workspace; see ``choose_blocks``."""
        self.extents, self.mode, self.compile, self.native = extents, mode, compile_step, native
        self.bands: list[FusedRowSpec] = []
        self.blocks = choose_blocks(region, extents, mode == "whole", value_nbytes)
        self.apart = None if region.of_rows else stored_steps(region, mode, compile_step)
        self.region = region = region if native else streamed_first(region, self.blocks)
        self.mask = LabelMask(region)
        self.layout = lay_out(region, self.blocks, mode == "whole", self.apart)
        self.programs: dict[tuple[tuple[int, ...], ConditionValues | None], BlockProgram | None] = {}
        unknown: ConditionValues = (None,) * len(self.mask.conditions)
        folds = mode != "finish" and not region.of_rows and 0 not in self.blocks
        first = [self._program(self.blocks, unknown)] if folds else []
        first += [] if mode == "touch" or 0 in self.blocks[: region.n_out] else [self.finisher(self.blocks)]
        most = max([0, *(p.scratch_nbytes for p in first if p is not None)])
        self.scratch_nbytes = rounded(most + min(most, _SPARE_NBYTES))
        self.workspace_nbytes = self.layout.nbytes + self.scratch_nbytes
        folded = [k for k in range(len(region.steps)) if k in required_steps(region, region.carried)]
        counted = range(len(region.steps)) if mode == "whole" else folded
        counted = [k for k in range(len(region.steps)) if k not in folded] if mode == "finish" else counted
        self.flops = sum(step_flops(region, k, extents) for k in counted)
        self.states = _split(region)
        self.walk = BlockIterator(region, self.blocks, self.mask)
        self.nothing = [
            _identities(region.steps[k].einsum) if k in region.carried else () for k in range(len(region.steps))
        ]
        self.tapes = RegionCommandLists(self) if native and mode != "finish" else None
        self.narrower: dict[int, RegionKernel] = {}

    @property
    def keeps_packed(self) -> bool:
        """Whether a block has a product of its own, whose right side may stay packed for the next: no batch of them."""
        actions = [a for program in self.programs.values() if program is not None for a in program.actions]
        kernels = [a.kernel for a in actions if isinstance(a, ComputeStep | FoldStep)]
        return any(isinstance(kernel, ContractionKernel) and not kernel.batch for kernel in kernels)

    def __call__(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """Run over one tile; gives what the floating-point unit saw."""
        if len(workspace) < self.workspace_nbytes:  # planned for machine code
            return self.within(len(workspace))(outs, operands, origins, first, workspace)
        region, mode = self.region, self.mode
        tile = tuple([(o, o + n) for o, n in zip(origins, self.extents, strict=True)])
        frame = BlockContext(
            operands=operands,
            corners=tuple([tuple([lo for lo, _ in region.operand_box(s, tile)]) for s in range(len(region.accesses))])
            if mode != "finish"
            else (),
            workspace=workspace,
            scratch=workspace[self.layout.nbytes :],
            values=[workspace] * len(region.steps),
            states=[()] * len(region.steps),
            out=outs[0],
        )
        log, bits = StatusLog(), 0
        boxes = self.walk.rows(tile)
        with recording_numpy_errors(log):
            if self.tapes is not None and code_cache.find(CommandListExecutor()) is not None:
                bits = self.tapes.run(boxes, frame, tile, outs, first)
            else:
                for out_box in boxes:
                    bits |= self.rows(frame, out_box, tile, outs, first)
        return bits | log.bits

    def within(self, nbytes: int) -> RegionKernel:
        """The same in blocks that take no more than ``nbytes`` of workspace, or in the smallest there are."""
        found = self.narrower.get(nbytes)
        if found is None:
            most, found = VALUE_NBYTES, self
            while found.workspace_nbytes > nbytes and most > _LEAST_VALUE:
                most //= 2
                found = RegionKernel(self.region, self.extents, self.mode, self.compile, self.native, most)
            self.narrower[nbytes] = found
        return found

    def rows(self, frame: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], first: bool) -> int:
        """A block of the output, over all that the tile has of the streamed labels."""
        region, mode, bits = self.region, self.mode, 0
        if mode != "finish" and not region.of_rows:
            self.stand(frame, box, tile)
            self.bind(frame, outs, box)
            if first or mode == "whole":
                for states, values in zip(frame.states, self.nothing, strict=True):
                    for state, value in zip(states, values, strict=True):
                        np.copyto(state, value)
            stands: Box = ()
            for block, _ in self.walk.streamed(box):
                if block[: region.n_out] != stands:
                    stands, frame.fresh = block[: region.n_out], True
                    self.stand(frame, block, tile)
                    self.bind(frame, outs, box)
                bits |= self._block(frame, block, tile)
        return bits if mode == "touch" else bits | self.finish(frame, box, tile, outs)

    def finish(self, frame: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...]) -> int:
        """The result of a block of the output."""
        self.stand(frame, box, tile)
        self.bind(frame, frame.operands if self.mode == "finish" else outs, box)
        at: Any = (*frame.cuts[: self.region.n_out], ...)
        frame.out = outs[0][at]
        return self.finisher(tuple([hi - lo for lo, hi in box]))(frame)

    def _block(self, frame: BlockContext, box: Box, tile: Box) -> int:
        """One block; halved where its kernels need more scratch than there is."""
        extents = tuple([hi - lo for lo, hi in box])
        if 0 in extents:
            return 0
        program = self._program(extents, self.mask.held(box))
        if program is None:
            return 0
        if program.scratch_nbytes > self.scratch_nbytes:
            return self._halves(frame, box, tile)
        self.stand(frame, box, tile)
        bits = program(frame)
        frame.fresh = False
        return bits

    def _halves(self, frame: BlockContext, box: Box, tile: Box) -> int:
        walked = [p for p in self.region.aggregated if p not in self.region.whole]
        longest = max(walked, key=lambda p: box[p][1] - box[p][0], default=-1)
        lo, hi = box[longest]
        if longest < 0 or hi - lo < 2:
            raise InternalError(f"a block of {box} needs more workspace than one of {self.blocks}")
        parts = ((lo, (lo + hi) // 2), ((lo + hi) // 2, hi))
        halves = [(*box[:longest], part, *box[longest + 1 :]) for part in parts]
        return self._block(frame, halves[0], tile) | self._block(frame, halves[1], tile)

    def _program(self, extents: tuple[int, ...], held: ConditionValues) -> BlockProgram | None:
        """What to do with a block where conditions hold so; None: it adds nothing."""
        key = extents, held
        if key not in self.programs:
            variant = self.mask.variant(held, not self.native)
            idle = variant.idle.issuperset(self.region.carried)
            if self.native and len(held) > _MOST_TOLD:  # there is code for what decides nothing alone
                variant = self.mask.variant((None,) * len(held), False)
            self.programs[key] = None if idle else self._built(extents, lambda builder: builder.block(variant))
        return self.programs[key]

    def _built(self, extents: tuple[int, ...], build: Callable[[BlockProgramBuilder], BlockProgram]) -> BlockProgram:
        """A program, and the bands that it was made with; a value without a place would be written over another."""
        builder = BlockProgramBuilder(self.region, self.layout, extents, self.compile, native=self.native)
        made = build(builder)
        if self.apart is not None and not builder.apart <= self.apart:
            raise InternalError(f"values of steps {sorted(builder.apart - self.apart)} have no place in {self.layout}")
        self.bands += builder.bands
        return made

    def finisher(self, extents: tuple[int, ...]) -> BlockProgram:
        """What makes the result of the states of a block of the output."""
        key = extents, None
        found = self.programs.get(key)
        if found is None:
            variant = self.mask.variant((None,) * len(self.mask.conditions), not self.region.of_rows)
            found = self.programs[key] = self._built(extents, lambda builder: builder.finish(variant))
        return found

    def stand(self, frame: BlockContext, box: Box, tile: Box) -> None:
        frame.box = box
        frame.cuts = tuple([slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(box, tile, strict=True)])

    def bind(self, frame: BlockContext, components: tuple[Array, ...], rows: Box) -> None:
        """The states of the block that the frame stands on; in the workspace are those of all its ``rows``."""
        region, cuts, extents = self.region, frame.cuts, [hi - lo for lo, hi in rows]
        if self.mode == "whole":
            cuts = tuple([slice(lo - first, hi - first) for (lo, hi), (first, _) in zip(frame.box, rows, strict=True)])
        for k, numbers in self.states.items():
            step = region.steps[k]
            labels = step.labels[: step.einsum.n_out]
            if self.mode == "whole":
                shape, dtypes = tuple([extents[p] for p in labels]), step.einsum.state_dtypes
                places = zip(numbers, dtypes, strict=True)
                held = [frame.place(self.layout.states[i], shape, d.numpy) for i, d in places]
            else:
                held = [components[i] for i in numbers]
            at: Any = (*[cuts[p] for p in labels], ...)
            frame.states[k] = tuple([state[at] for state in held])


def _split(region: Region) -> dict[int, range]:
    """By carried step, the numbers of the components of its state."""
    found, start = {}, 0
    for k in region.carried:
        n = len(region.steps[k].einsum.state_dtypes)
        found[k] = range(start, start + n)
        start += n
    return found


def _identities(einsum: Einsum) -> tuple[Array, ...]:
    aggregation = einsum.aggregation
    assert aggregation is not None
    return tuple(number(v, d) for v, d in zip(identity(aggregation), aggregation.state, strict=True))


def step_flops(region: Region, k: int, extents: Sequence[int]) -> int:
    """Scalar operations of a step over a tile: 2 a point of a contraction, else the join's operators and the fold."""
    e = region.steps[k].einsum
    keyed = {key.label for key in e.keys}
    points = math.prod(extents[p] for q, p in enumerate(region.steps[k].labels) if q not in keyed)
    if contraction(e) is not None and e.join.dtype.is_inexact:
        return 2 * points
    return max(1, sum(isinstance(x, ScalarCall) for x in walk(e.join)) + (e.aggregation is not None)) * points
