"""A kernel that computes a tile block by block, with all temporary values in a small workspace."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.assemble import AssembledSteps, Assembler, PrimitiveStep, Register
from einturnip.kernels.expr.blocked_space import BLOCK_POINTS, BlockedSpace
from einturnip.kernels.expr.fold import ADDITIONS_PER_STATE
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView, aligned
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel

_ALL = slice(None)

_WORKSPACE_NBYTES = 1 << 20  # about a core's second-level cache
_MIN_POINTS, _TINY_POINTS = 1024, 8192
_STREAM_BLOCKS, _STREAM_NBYTES = 32, 64 << 10  # with few temporary values, long blocks save calls
_LONG_BLOCKS_NBYTES = 256 << 10  # maximum temporary bytes for which blocks are lengthened


def _no_sizes(space: BlockedSpace) -> Hashable:
    return ()


@dataclass(frozen=True, eq=False)
class BlockedSteps:
    """The steps of an einsum's blocked kernels, for tiles of any extents.

    Tiles whose blocks have the same loops share them.

    ``cut``: from a tile's extents and the points of a block to the blocks. ``assemble``: emits the steps for blocks and
    extents. ``accesses`` and ``out_accesses``: the labels of each operand's and output's axes. ``whole``: the outputs
    are overwritten. ``cleared``: the initial value of each output, if the steps only add to it. ``sizes``: what the
    steps depend on besides the order of labels and the loops. ``tile_points``: points of a tile.
    """

    cut: Callable[[tuple[int, ...], int], BlockedSpace]
    assemble: Callable[[Assembler, tuple[int, ...]], None]
    accesses: tuple[Access, ...]
    out_accesses: tuple[Access, ...]
    whole: bool
    cleared: tuple[Array, ...] = ()
    sizes: Callable[[BlockedSpace], Hashable] = _no_sizes
    tile_points: Callable[[tuple[int, ...]], int] = math.prod
    _shared: dict[Hashable, AssembledSteps] = field(default_factory=dict)

    def kernel(self, extents: tuple[int, ...]) -> BlockedKernel:
        """Return the kernel with the largest blocks whose workspace fits the cache, and is small for its tile."""
        points, tile_points = _STREAM_BLOCKS * BLOCK_POINTS, self.tile_points(extents)
        kernel = self._in_blocks(extents, points)
        if kernel.blocks_nbytes > max(_STREAM_NBYTES, min(points, tile_points) // 4):
            kernel = self.within(extents, _WORKSPACE_NBYTES)
            limit, points = min(_LONG_BLOCKS_NBYTES, tile_points // 4), 2 * BLOCK_POINTS
            while kernel.space.loops and (longer := self._in_blocks(extents, points)).blocks_nbytes <= limit:
                kernel, points = longer, 2 * points
        return kernel

    def within(self, extents: tuple[int, ...], nbytes: int) -> BlockedKernel:
        """Return the kernel with the largest blocks whose workspace fits ``nbytes``, else with the smallest."""
        points = min(BLOCK_POINTS, max(_TINY_POINTS, self.tile_points(extents) // 4))
        while (kernel := self._in_blocks(extents, points)).blocks_nbytes > nbytes and points > _MIN_POINTS:
            points //= 2
        return kernel

    def _in_blocks(self, extents: tuple[int, ...], points: int) -> BlockedKernel:
        """Return the kernel in blocks of at most about ``points`` points."""
        space = self.cut(extents, points)
        inner = space.order[-1:]
        key = space.order, space.loops, space.n_out_loops, [space.extents[p] > 1 for p in inner] == [True]
        shared = (*key, self.sizes(space))
        steps = self._shared.get(shared)
        if steps is None:
            assembler = Assembler(space)
            self.assemble(assembler, extents)
            steps = assembler.finish()
            if not assembler.sized:
                self._shared[shared] = steps
        return BlockedKernel(self, extents, space, steps, steps.layout(space)[1])


@dataclass(frozen=True, eq=False)
class BlockedKernel(PreparableKernel):
    """The steps of an einsum over the blocks of a tile.

    Its size is chosen from the sizes of the steps' registers; no memory is laid out before the first call.
    """

    source: BlockedSteps
    extents: tuple[int, ...]
    space: BlockedSpace
    steps: AssembledSteps
    workspace_nbytes: int
    _smaller: dict[int, BlockedKernel] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> dict[int, int]:
        """Offsets of the slots in the workspace."""
        return self.steps.layout(self.space)[0]

    @property
    def blocks_nbytes(self) -> int:
        """Bytes of workspace that depend on the blocks' size."""
        return self.workspace_nbytes - self.steps.tables_nbytes(self.space)

    def within(self, nbytes: int) -> BlockedKernel:
        """Return the kernel in blocks that fit ``nbytes`` of workspace, or in the smallest there are."""
        if nbytes not in self._smaller:
            self._smaller[nbytes] = self.source.within(self.extents, nbytes)
        return self._smaller[nbytes]

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        fits = len(arguments.workspace) >= self.workspace_nbytes  # else the plan expected machine code
        return _BlockedCall(self if fits else self.within(len(arguments.workspace)), arguments)


class _BlockedCall(KernelCall):
    """A call by NumPy: registers bound to arrays, and the current block."""

    def __init__(self, kernel: BlockedKernel, arguments: CallArguments) -> None:
        space, (outs, operands, origins, first, workspace) = kernel.space, arguments
        first = first or kernel.source.whole
        self.cleared = tuple(zip(outs, kernel.source.cleared, strict=False)) if first else ()
        self.kernel, self.space, self.first, self.workspace = kernel, space, first, workspace
        self.sizes = list(space.extents[p] if p not in space.loops else space.blocks[p] for p in space.order)
        self.current = [_ALL] * len(space.order)
        self.axis = {p: a for a, p in enumerate(space.order)}
        self.origins, self.done = origins, 0  # ``done``: blocks folded into the current block of the output
        n_levels = len(space.loops) + 1
        self.registers: list[Array | TileView | int] = [0] * len(kernel.steps.registers)
        self.slices: list[list[tuple[int, Array, tuple[bool, ...]]]] = [[] for _ in range(n_levels)]
        self.slots: list[list[int]] = [[] for _ in range(n_levels)]
        self.counters: list[list[tuple[int, int, bool]]] = [[] for _ in range(n_levels)]
        self.shaped: dict[tuple[int, ...], list[tuple[int, Array]]] = {}
        self.shapes: list[tuple[int, ...] | None] = [None] * n_levels
        for index, register in enumerate(kernel.steps.registers):
            self._bind(index, register, outs, operands)
        shapes = ((index, space.shape(kernel.steps.registers[index].labels)) for index in kernel.steps.iotas)
        self.counting = [self._array(index, shape).reshape(-1) for index, shape in shapes]

    def run(self) -> int:
        """See KernelCall."""
        log = StatusLog()
        for out, number in self.cleared:
            np.copyto(out, number)
        with recording_numpy_errors(log):
            for array in self.counting:  # registers that hold 0, 1, 2, ...: others use the workspace between runs
                count_up(array)
            self._run(0)
        return log.bits

    def _bind(self, index: int, register: Register, outs: tuple[Array, ...], operands: tuple[Array, ...]) -> None:
        level, space = register.level, self.space
        match register.kind:
            case "number":
                self.registers[index] = register.array
            case "slot":
                if index in self.kernel.offsets:
                    self.slots[level].append(index)
            case "start" | "size":
                self.counters[level].append((index, register.index, register.kind == "start"))
            case "table":
                self.registers[index] = self._array(index, (register.index,))
            case "raw":
                self.registers[index] = TileView(operands[register.index], self.origins)
            case "raw_out":
                self.registers[index] = TileView(outs[register.index], self.origins)
            case "operand" | "out":
                is_out = register.kind == "out"
                access = (self.kernel.source.out_accesses if is_out else self.kernel.source.accesses)[register.index]
                view = aligned((outs if is_out else operands)[register.index], access, space.order, space.extents)
                self.registers[index] = view
                if level:
                    moving = tuple(p in space.loops and p in register.labels for p in space.order)
                    self.slices[level].append((index, view, moving))

    def _array(self, index: int, shape: tuple[int, ...]) -> Array:
        register = self.kernel.steps.registers[index]
        return np.ndarray(shape, register.dtype, self.workspace, self.kernel.offsets[index])

    def _run(self, depth: int) -> None:
        """Run the loop nest from level ``depth`` on, for the current block of the outer loops."""
        self._enter(depth)
        kernel, space = self.kernel, self.space
        self._steps(kernel.steps.sections[depth])
        innermost = len(space.loops)
        if depth == space.n_out_loops:
            self.done = 0
        if depth == innermost:
            fresh = self.done % ADDITIONS_PER_STATE == 0 if kernel.steps.carries else self.first and not self.done
            self._steps(kernel.steps.sections[innermost + (1 if fresh else 2)])
            self.done += 1
            if kernel.steps.carries:
                self._carry()
        else:
            label = space.loops[depth]
            axis, extent, block = self.axis[label], space.extents[label], space.blocks[label]
            for start in range(0, extent, block):
                stop = min(start + block, extent)
                self.current[axis] = slice(start, stop)
                self.sizes[axis] = stop - start
                self._run(depth + 1)
        if depth == space.n_out_loops:
            self._steps(kernel.steps.sections[innermost + 3])

    def _carry(self) -> None:
        """Add each full partial state, and the last one of the range, to the state one level above."""
        space, count, carries = self.space, self.done, self.kernel.steps.carries
        last = count == math.prod(-(-space.extents[p] // space.blocks[p]) for p in space.loops[space.n_out_loops :])
        for level, (begin, join) in enumerate(carries):
            if count % ADDITIONS_PER_STATE and not last:
                return
            before = (count - 1) // ADDITIONS_PER_STATE  # parts already added to the state above
            top = level == len(carries) - 1
            fresh = self.first and not before if top else before % ADDITIONS_PER_STATE == 0
            self._steps(begin if fresh else join)
            count = before + 1

    def _steps(self, steps: tuple[PrimitiveStep, ...]) -> None:
        registers = self.registers
        for step in steps:
            step.operation(*[registers[a] for a in step.arguments], out=registers[step.out])

    def _enter(self, depth: int) -> None:
        """Bind the registers that depend on the label of the loop just entered."""
        registers, current = self.registers, self.current
        for index, view, moving in self.slices[depth]:
            registers[index] = view[tuple([c if m else _ALL for c, m in zip(current, moving, strict=True)])]
        for index, label, is_start in self.counters[depth]:
            axis = self.axis[label]
            registers[index] = self.origins[label] + (current[axis].start or 0) if is_start else self.sizes[axis]
        shape = tuple(self.sizes)
        if self.slots[depth] and self.shapes[depth] != shape:
            self.shapes[depth] = shape
            found = self.shaped.get((depth, *shape))
            if found is None:
                found = self.shaped[(depth, *shape)] = self._shape_slots(depth)
            for index, array in found:
                registers[index] = array

    def _shape_slots(self, depth: int) -> list[tuple[int, Array]]:
        made = []
        for index in self.slots[depth]:
            labels = self.kernel.steps.registers[index].labels
            shape = tuple(n if p in labels else 1 for n, p in zip(self.sizes, self.space.order, strict=True))
            made.append((index, self._array(index, shape)))
        return made


def count_up(array: Array) -> None:
    """Fill with 0, 1, 2, ... by doubling, since NumPy has no ``arange`` into an array."""
    array[:1] = 0
    done = 1
    while done < array.size:
        more = min(done, array.size - done)
        np.add(array[:more], done, out=array[done : done + more])
        done += more
