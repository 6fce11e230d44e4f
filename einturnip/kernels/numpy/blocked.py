"""A kernel that computes a tile block by block, with all temporary values in a small workspace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.assemble import Assembler, PrimitiveStep, Register
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.space import BlockedSpace
from einturnip.kernels.expr.window import TileView, aligned
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel

BLOCKS_IN_SEQUENCE = 64  # blocks whose results are added to one partial state, where additions round
_ALL = slice(None)


@dataclass(frozen=True)
class BlockedKernel(PreparableKernel):
    """Steps over registers, in sections of a loop nest; see Assembler.

    ``accesses`` and ``out_accesses``: the labels of each operand's and output's axes. ``cleared``: the initial value of
    each output, if the sections only add to it. ``carries``: by level of partial states, the steps that initialise the
    state above it, and those that combine with it. ``tables_nbytes``: the part of the workspace that does not depend on
    the blocks' size. ``within``: the same kernel in blocks that fit a number of bytes, or in the smallest there are.
    """

    space: BlockedSpace
    registers: tuple[Register, ...]
    sections: tuple[tuple[PrimitiveStep, ...], ...]
    offsets: dict[int, int]
    iotas: tuple[int, ...]
    accesses: tuple[Access, ...]
    out_accesses: tuple[Access, ...]
    whole: bool
    workspace_nbytes: int
    cleared: tuple[Array, ...] = ()
    carries: tuple[tuple[tuple[PrimitiveStep, ...], tuple[PrimitiveStep, ...]], ...] = ()
    tables_nbytes: int = 0
    within: Callable[[int], BlockedKernel] | None = field(default=None, compare=False)

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        if len(arguments.workspace) < self.workspace_nbytes and self.within is not None:
            return self.within(len(arguments.workspace)).prepare(arguments)  # the plan expected machine code
        return _BlockedCall(self, arguments)


def blocked(
    assembler: Assembler,
    accesses: Sequence[Access],
    out_accesses: Sequence[Access],
    whole: bool,
    cleared: Sequence[Array] = (),
) -> BlockedKernel:
    """Freeze the state of an assembler into a kernel."""
    offsets, nbytes = assembler.layout()
    sections = list(map(tuple, assembler.sections))
    own = assembler.fresh + 3
    return BlockedKernel(
        space=assembler.space,
        registers=tuple(assembler.registers),
        sections=tuple(sections[:own]),
        offsets=offsets,
        iotas=assembler.iotas,
        accesses=tuple(accesses),
        out_accesses=tuple(out_accesses),
        whole=whole,
        workspace_nbytes=nbytes,
        cleared=tuple(cleared),
        carries=tuple(zip(sections[own::2], sections[own + 1 :: 2], strict=True)),
        tables_nbytes=assembler.tables_nbytes,
    )


class _BlockedCall(KernelCall):
    """A call by NumPy: registers bound to arrays, and the current block."""

    def __init__(self, kernel: BlockedKernel, arguments: CallArguments) -> None:
        space, (outs, operands, origins, first, workspace) = kernel.space, arguments
        first = first or kernel.whole
        self.cleared = tuple(zip(outs, kernel.cleared, strict=False)) if first else ()
        self.kernel, self.space, self.first, self.workspace = kernel, space, first, workspace
        self.sizes = list(space.extents[p] if p not in space.loops else space.blocks[p] for p in space.order)
        self.current = [_ALL] * len(space.order)
        self.axis = {p: a for a, p in enumerate(space.order)}
        self.origins, self.done = origins, 0  # blocks folded into the current block of the output
        n_levels = len(space.loops) + 1
        self.registers: list[Array | TileView | int] = [0] * len(kernel.registers)
        self.slices: list[list[tuple[int, Array, tuple[bool, ...]]]] = [[] for _ in range(n_levels)]
        self.slots: list[list[int]] = [[] for _ in range(n_levels)]
        self.counters: list[list[tuple[int, int, bool]]] = [[] for _ in range(n_levels)]
        self.shaped: dict[tuple[int, ...], list[tuple[int, Array]]] = {}
        self.shapes: list[tuple[int, ...] | None] = [None] * n_levels
        for index, register in enumerate(kernel.registers):
            self._bind(index, register, outs, operands)
        shapes = ((index, space.shape(kernel.registers[index].labels)) for index in kernel.iotas)
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
                access = (self.kernel.out_accesses if is_out else self.kernel.accesses)[register.index]
                view = aligned((outs if is_out else operands)[register.index], access, space.order, space.extents)
                self.registers[index] = view
                if level:
                    moving = tuple(p in space.loops and p in register.labels for p in space.order)
                    self.slices[level].append((index, view, moving))

    def _array(self, index: int, shape: tuple[int, ...]) -> Array:
        register = self.kernel.registers[index]
        return np.ndarray(shape, register.dtype, self.workspace, self.kernel.offsets[index])

    def _run(self, depth: int) -> None:
        """Run the loop nest from level ``depth`` on, for the current block of the outer loops."""
        self._enter(depth)
        kernel, space = self.kernel, self.space
        self._steps(kernel.sections[depth])
        innermost = len(space.loops)
        if depth == space.n_out_loops:
            self.done = 0
        if depth == innermost:
            fresh = self.done % BLOCKS_IN_SEQUENCE == 0 if kernel.carries else self.first and not self.done
            self._steps(kernel.sections[innermost + (1 if fresh else 2)])
            self.done += 1
            if kernel.carries:
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
            self._steps(kernel.sections[innermost + 3])

    def _carry(self) -> None:
        """Add full partial states, and the last, to the state above, as digits are carried."""
        space, count, carries = self.space, self.done, self.kernel.carries
        last = count == math.prod(-(-space.extents[p] // space.blocks[p]) for p in space.loops[space.n_out_loops :])
        for level, (begin, join) in enumerate(carries):
            if count % BLOCKS_IN_SEQUENCE and not last:
                return
            before = (count - 1) // BLOCKS_IN_SEQUENCE  # parts already added to the state above
            top = level == len(carries) - 1
            fresh = self.first and not before if top else before % BLOCKS_IN_SEQUENCE == 0
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
            labels = self.kernel.registers[index].labels
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
