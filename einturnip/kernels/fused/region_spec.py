"""The specification of a region's kernel: its blocks, their programs and the workspace.

The cost model counts the work of a specification, and a kernel executes the same one, so a predicted time is that of
the blocks that run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache

from einturnip.core.errors import InternalError
from einturnip.core.units import whole_lines
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import region_product
from einturnip.kernels.fused.block_iterator import BlockIterator
from einturnip.kernels.fused.block_layout import MAX_PACKED_VALUE_NBYTES, MAX_VALUE_NBYTES, choose_blocks, lay_out
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile
from einturnip.kernels.fused.combine import RegionCombiner
from einturnip.kernels.fused.partial_states import state_levels
from einturnip.kernels.fused.program import Action, BlockProgram, ComputeStep, FoldStep
from einturnip.kernels.fused.value_layout import streamed_first
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import ConditionValues, label_mask
from einturnip.kernels.protocol import Mode

_SPARE_NBYTES = 4 << 10  # scratch for kernels of blocks at the edges, which can need more than those of full blocks
_MIN_VALUE_NBYTES = 4 << 10  # minimum bytes of a tiled value when blocks are halved to fit a workspace
_SAMPLE_EXTENT = 512  # the extent along each label of a sample block, where the answer is the same for all blocks
# A mask with n conditions has 3^n cases: each condition is true, false or undecided in a block.
_MAX_CASE_CONDITIONS = 3  # maximum conditions for which each case has machine code of its own
_MAX_STORED_CONDITIONS = 1  # maximum conditions for which ``stored_steps`` builds the programs of all cases


def region_spec(
    region: Region, extents: tuple[int, ...], mode: Mode, compile_step: Compile, native: bool
) -> RegionSpec:
    """Return the specification of a region's kernel; ``compile_step`` returns the kernels of its steps.

    ``native``: the kernel's machine code is loaded. Its workspace is then still as large as NumPy's, which the plan has
    reserved.
    """
    numpy = RegionSpec(region, extents, mode, compile_step)
    if not native:
        return numpy
    packs = any(isinstance(code, PackedSpec) for code in region_code(region, mode, compile_step))
    made = RegionSpec(region, extents, mode, compile_step, True, MAX_PACKED_VALUE_NBYTES if packs else None)
    repacks = any(made.blocks[p] < extents[p] for p in region.aggregated)  # in each block of rows
    if packs and (repacks or not made.reuses_packed or made.layout.nbytes > numpy.workspace_nbytes):
        made = RegionSpec(region, extents, mode, compile_step, True)
    made.workspace_nbytes = numpy.workspace_nbytes  # RegionKernel halves blocks that need more
    made.scratch_nbytes = numpy.workspace_nbytes - made.layout.nbytes
    return made


@lru_cache(maxsize=256)
def region_code(region: Region, mode: Mode, compile_step: Compile) -> tuple[code_cache.Code, ...]:
    """Return the machine code that a region's kernels call, for all tiles and all cases of the mask."""
    spec = RegionSpec(region, tuple([min(n, _SAMPLE_EXTENT) for n in region.bounds]), mode, compile_step, True)
    cases = (None, True, False) if len(spec.mask.conditions) <= _MAX_CASE_CONDITIONS else (None,)
    for decided in itertools.product(cases, repeat=len(spec.mask.conditions)) if mode != "finalize" else ():
        spec.program(spec.blocks, decided)
    if not spec.row_functions:
        return ()
    actions = spec.actions()
    products = [region_product(a.kernel) for a in actions if isinstance(a, ComputeStep | FoldStep)]
    functions, found = dict.fromkeys(spec.row_functions), dict.fromkeys(p for p in products if p is not None)
    return (*functions, CommandListExecutor(), *found)


@lru_cache(maxsize=256)
def stored_steps(region: Region, mode: Mode, compile_step: Compile) -> frozenset[int] | None:
    """Return the steps whose values need workspace bytes in at least one of a region's programs.

    The answer holds for blocks of all extents. None if the mask has too many cases to build all programs.
    """
    mask, blocks = label_mask(region), tuple([min(n, _SAMPLE_EXTENT) for n in region.bounds])
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


class RegionSpec:
    """The blocks, block programs and workspace of a region over tiles of fixed extents.

    ``region``: where NumPy computes it (not ``native``), with the axes of values in the order that is fastest for
    NumPy. ``levels``: the levels of partial states. ``scratch_nbytes``: the part of the workspace that all actions
    share.
    """

    def __init__(
        self,
        region: Region,
        extents: tuple[int, ...],
        mode: Mode,
        compile_step: Compile,
        native: bool = False,
        value_nbytes: int | None = None,
    ) -> None:
        """``value_nbytes``: the maximum bytes of a tiled value, see ``choose_blocks``."""
        self.extents, self.mode, self.compile, self.native = extents, mode, compile_step, native
        self.row_functions: list[FusedRowSpec] = []
        self.blocks = choose_blocks(region, extents, mode == "full", value_nbytes)
        self.stored = None if region.of_rows else stored_steps(region, mode, compile_step)
        self.region = region = region if native else streamed_first(region, self.blocks)
        self.mask = label_mask(region)
        self.levels = state_levels(region, extents, self.blocks, mode)
        self._combiners: dict[tuple[int, ...], RegionCombiner] = {}
        combine_nbytes = self.combiner(self.blocks).workspace_nbytes if self.levels.partial else 0
        levels = self.levels.partial + (mode == "full")
        self.layout = lay_out(region, self.blocks, levels, self.stored, combine_nbytes)
        self.programs: dict[tuple[tuple[int, ...], ConditionValues | None], BlockProgram | None] = {}
        unknown: ConditionValues = (None,) * len(self.mask.conditions)
        folds = mode != "finalize" and not region.of_rows and 0 not in self.blocks
        first = [self.program(self.blocks, unknown)] if folds else []
        first += [] if mode == "accumulate" or 0 in self.blocks[: region.n_out] else [self.finalizer(self.blocks)]
        largest = max([0, *(p.scratch_nbytes for p in first if p is not None)])
        self.scratch_nbytes = whole_lines(largest + min(largest, _SPARE_NBYTES))
        self.workspace_nbytes = self.layout.nbytes + self.scratch_nbytes
        self.iterator = BlockIterator(region, self.blocks, self.mask)

    @property
    def records(self) -> bool:
        """True if blocks can be recorded as command lists: all indices of operands are labels."""
        plain = all(isinstance(p, int) for access in self.region.accesses for p in access)
        return self.native and self.mode != "finalize" and plain

    @property
    def reuses_packed(self) -> bool:
        """True if a step is an unbatched product, whose packed right side can be used again by the next block."""
        kernels = [a.kernel for a in self.actions() if isinstance(a, ComputeStep | FoldStep)]
        return any(isinstance(kernel, ContractionKernel) and not kernel.batch for kernel in kernels)

    def actions(self) -> list[Action]:
        """Return the actions of all programs that have been built."""
        return [a for program in self.programs.values() if program is not None for a in program.actions]

    def within(self, nbytes: int) -> RegionSpec:
        """Return the specification with the largest blocks whose workspace fits ``nbytes``, else the smallest."""
        largest, found = MAX_VALUE_NBYTES, self
        while found.workspace_nbytes > nbytes and largest > _MIN_VALUE_NBYTES:
            largest //= 2
            found = RegionSpec(self.region, self.extents, self.mode, self.compile, self.native, largest)
        return found

    def program(self, extents: tuple[int, ...], decided: ConditionValues) -> BlockProgram | None:
        """Return the program of a block with these condition values; None if it changes no state."""
        key = extents, decided
        if key not in self.programs:
            variant = self.mask.variant(decided, not self.native)
            idle = variant.idle.issuperset(self.region.carried)
            if self.native and len(decided) > _MAX_CASE_CONDITIONS:  # only the undecided case has machine code
                variant = self.mask.variant((None,) * len(decided), False)
            self.programs[key] = None if idle else self._built(extents, lambda builder: builder.block(variant))
        return self.programs[key]

    def finalizer(self, extents: tuple[int, ...]) -> BlockProgram:
        """Return the program that computes the result from the states of a block of the output."""
        key = extents, None
        found = self.programs.get(key)
        if found is None:
            variant = self.mask.variant((None,) * len(self.mask.conditions), not self.region.of_rows)
            found = self.programs[key] = self._built(extents, lambda builder: builder.finalize(variant))
        return found

    def _built(self, extents: tuple[int, ...], build: Callable[[BlockProgramBuilder], BlockProgram]) -> BlockProgram:
        """Build a program and check that every stored value has its bytes in the workspace."""
        builder = BlockProgramBuilder(self.region, self.layout, extents, self.compile, native=self.native)
        made = build(builder)
        if self.stored is not None and not builder.stored <= self.stored:
            missing = sorted(builder.stored - self.stored)
            raise InternalError(f"values of steps {missing} have no bytes in {self.layout}")
        self.row_functions += builder.row_functions
        return made

    def combiner(self, extents: tuple[int, ...]) -> RegionCombiner:
        """Return the kernel that adds the states of a block of the output to each other."""
        key = extents[: self.region.n_out]
        if key not in self._combiners:
            self._combiners[key] = RegionCombiner(self.region, extents, self.compile)
        return self._combiners[key]
