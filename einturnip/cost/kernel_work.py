"""Work of a compiled kernel in counts: array passes, matrix products, iterations of Python loops.

The counts are read from the spec of a contraction, and from the kernel object of other einsums, so that the price
belongs to the code that runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from einturnip.cost.machine import Machine
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import ScalarCall, walk
from einturnip.kernels.blas.contraction_spec import ContractionSpec
from einturnip.kernels.blas.matrices import multiplied_ns
from einturnip.kernels.expr.assemble import PrimitiveStep, Register
from einturnip.kernels.expr.primitives import copy, summed
from einturnip.kernels.llvm.contraction import PackedContraction
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.numpy.empty import FillKernel
from einturnip.kernels.numpy.gather_row import GatherRows
from einturnip.kernels.numpy.indexed_load import PiecewiseLoad, RowLoad
from einturnip.kernels.numpy.keyed import CheckedKernel, FinalizedKernel
from einturnip.kernels.numpy.scatter import Scatter
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import blas_spec
from einturnip.tuning.search import BYTE_NS, CACHED_NBYTES, SERIALIZED_SCATTERS, SMALL_PRODUCT


@dataclass(frozen=True, slots=True)
class ArrayPass:
    """One array operation: ``times`` calls, total ``points`` and inner ``loops``, bytes read and written.

    ``table``: for a gather of rows, the bytes of the table.
    """

    name: str
    times: float
    points: float
    loops: float = 0.0
    read: float = 0.0
    written: float = 0.0
    table: float = 0.0


@dataclass(frozen=True, slots=True)
class ProductWork:
    """``times`` matrix products (m, k) by (k, n)."""

    dtype: str
    m: int
    n: int
    k: int
    times: float


@dataclass(slots=True)
class KernelWork:
    """Work of a kernel; ``turns`` counts Python overhead: calls, blocks, contraction iterations, actions."""

    passes: list[ArrayPass] = field(default_factory=list)
    products: list[ProductWork] = field(default_factory=list)
    turns: dict[str, float] = field(default_factory=dict)

    def add(self, other: KernelWork, times: float = 1.0) -> None:
        """Add the work of another kernel ``times`` times; its operands are in the cache."""
        for p in other.passes:
            self.passes.append(ArrayPass(p.name, p.times * times, p.points * times, p.loops * times, table=p.table))
        self.products += [ProductWork(p.dtype, p.m, p.n, p.k, p.times * times) for p in other.products]
        for name, count in other.turns.items():
            self.turn(name, count * times)

    def turn(self, name: str, times: float = 1) -> None:
        """Count an overhead ``name`` ``times`` times."""
        self.turns[name] = self.turns.get(name, 0) + times


def simple_work(kernel: object, share: float = 1.0) -> KernelWork:
    """Return the work of a kernel that is not a region.

    ``share``: share of the data-dependent points that fall into the tile.
    """
    match kernel:
        case BlockedKernel():
            return _blocked(kernel, share)
        case ContractionSpec():
            return contraction_work(kernel)
        case PackedContraction(fallback=ContractionSpec() as product):
            return multiplied_work(product, kernel.code)
        case FinalizedKernel():
            work = simple_work(kernel.fold, share)
            work.add(simple_work(kernel.finalize))
            return work
        case CheckedKernel():
            return simple_work(kernel.keys)
        case FillKernel():
            return KernelWork(turns={"call": 1})
    # Machine code costs about as much as the NumPy operations it replaces.
    fallback = getattr(kernel, "fallback", None)
    return KernelWork(turns={"call": 1}) if fallback is None else simple_work(fallback, share)


class _Sections:
    """Number of runs of each section of a blocked kernel, and the total points of a register."""

    def __init__(self, kernel: BlockedKernel) -> None:
        self.kernel, self.space = kernel, kernel.space
        self.counts = {p: -(-self.space.extents[p] // max(1, self.space.blocks[p])) for p in self.space.loops}
        outer = self.space.loops[: self.space.n_out_loops]
        self.innermost = len(self.space.loops)
        self.total = math.prod(self.counts.values())
        self.fresh = math.prod(self.counts[p] for p in outer)

    def entered(self, section: int) -> Sequence[int]:
        """Return the loops around a section."""
        if section <= self.innermost:
            return self.space.loops[:section]
        return self.space.loops[: self.space.n_out_loops] if section == self.innermost + 3 else self.space.loops

    def share(self, section: int) -> float:
        """Return the share of the innermost blocks in which a reduction's section runs."""
        first = self.fresh / max(1, self.total)
        return {self.innermost + 1: first, self.innermost + 2: 1 - first}.get(section, 1.0)

    def times(self, section: int) -> float:
        """Return the number of runs of a section."""
        return math.prod(self.counts[p] for p in self.entered(section)) * self.share(section)

    def points(self, labels: Iterable[int], section: int) -> float:
        """Return the points of a value over ``labels``, over all runs of the section."""
        space, around, of = self.space, set(self.entered(section)), set(labels)
        own = math.prod(space.extents[p] if p not in space.loops or p in around else space.blocks[p] for p in of)
        return own * math.prod(self.counts[p] for p in around - of) * self.share(section)


def _blocked(kernel: BlockedKernel, share: float) -> KernelWork:
    sections, work = _Sections(kernel), KernelWork()
    seen, before = set[int](), set[int]()
    work.turn("call")
    work.turn("block", sections.total)
    for number, steps in enumerate(kernel.steps.sections):
        if number == sections.innermost + 1:
            before = set(seen)
        elif number == sections.innermost + 2:  # later blocks of a reduction read their operands again
            seen -= {k for k in seen - before if kernel.steps.registers[k].kind == "operand"}
        for step in steps:
            made = _pass(kernel.steps.registers, sections, number, step, seen)
            if made.times:
                _add_pass(work, made, step, sections, share, kernel.steps.registers[step.out].dtype.itemsize)
    if sum(p.read + p.written for p in work.passes) < CACHED_NBYTES:
        work.passes = [replace(p, read=0.0, written=0.0) for p in work.passes]
    return work


def _pass(
    registers: Sequence[Register], sections: _Sections, number: int, step: PrimitiveStep, seen: set[int]
) -> ArrayPass:
    """Return one step as a pass; external operands and results count at their first use."""
    arguments = [registers[a] for a in step.arguments]
    out = registers[step.out]
    arrays = [r for r in (*arguments, out) if r.kind in ("slot", "operand", "out")]
    widest = max(arrays, key=lambda r: sections.points(r.labels, number), default=out)
    points = sections.points(widest.labels, number)
    moved = {"operand": 0.0, "out": 0.0}
    for index in {*step.arguments, step.out} - seen:
        kind = registers[index].kind
        if kind in moved:
            seen.add(index)
            moved[kind] += sections.points(registers[index].labels, number) * registers[index].dtype.itemsize
    if isinstance(step.operation, RowLoad | PiecewiseLoad):
        moved["operand"] += points * out.dtype.itemsize
    times = sections.times(number)
    inner = next((sections.space.blocks[p] for p in reversed(sections.space.order) if p in widest.labels), 1)
    even = all(r.kind == "slot" and r.labels == widest.labels for r in arrays)
    loops = times if even else points / max(1, inner)
    name, unit = _name(step, arguments, out, sections.space.order)
    return ArrayPass(f"{name}.{unit}", times, points, loops, moved["operand"], moved["out"])


def _add_pass(
    work: KernelWork, made: ArrayPass, step: PrimitiveStep, sections: _Sections, share: float, item: int
) -> None:
    """Add a pass; rows at data-dependent places cost per row and per element.

    ``item``: bytes of an element of the step's result.
    """
    run = step.operation
    if isinstance(run, RowLoad | GatherRows):
        factor = share if isinstance(run, GatherRows) else 1.0
        rows = made.points / max(1, _row_points(run, sections.space.blocks))
        table = _table_nbytes(run, item)
        work.passes.append(ArrayPass("rows", made.times, rows * factor, 0, made.read * factor, made.written, table))
        work.passes.append(ArrayPass("elements", 0, made.points * factor))
    elif isinstance(run, Scatter):
        factor = min(1.0, share * (1 if run.codes else SERIALIZED_SCATTERS)) if run.masked else 1.0
        columns = math.prod(sections.space.blocks[p] for p in run.columns)
        rows = made.points / max(1, columns)
        work.passes.append(replace(made, points=made.points * factor))
        work.passes.append(ArrayPass("scattered", 0, rows * (1.0 if run.codes else factor)))  # one place per row
        if run.masked and not run.codes:  # the rows of the tile are extracted first
            work.passes.append(ArrayPass("elements", 0, made.points * share))
    else:
        if isinstance(run, PiecewiseLoad):
            work.turn("piece", made.times)
        work.passes.append(made)


def _table_nbytes(operation: RowLoad | GatherRows, item: int) -> float:
    """Return the bytes of the part of a table that belongs to a tile."""
    fetch = operation.fetch if isinstance(operation, GatherRows) else operation
    sides = (fetch.extents[p] if isinstance(p, int) else n for p, n in zip(fetch.access, fetch.shape, strict=True))
    return float(item * math.prod(sides))


def _row_points(operation: RowLoad | GatherRows, blocks: Sequence[int]) -> int:
    fetch = operation.fetch if isinstance(operation, GatherRows) else operation
    return math.prod(blocks[p] for p in fetch.access[fetch.n_indexed :] if isinstance(p, int))


def _name(step: PrimitiveStep, arguments: Sequence[Register], out: Register, order: Sequence[int]) -> tuple[str, str]:
    """Return the name of a step in a table of rates, and its element type."""
    first = next((r for r in arguments if r.kind in ("slot", "operand")), out)
    run = step.operation
    if step.name == "convert" or run is copy:
        same = first.dtype == out.dtype
        return ("copy", out.dtype.name) if same else (f"convert.{first.dtype.name}", out.dtype.name)
    if step.name and not isinstance(run, RowLoad | PiecewiseLoad):
        return step.name, first.dtype.name
    if isinstance(run, partial):
        ufunc = np.add if run.func is summed else getattr(run.func, "__self__", None)
        if isinstance(ufunc, np.ufunc):
            axes = run.args[0] if run.func is summed else run.keywords["axis"]
            inner = max(axes) == max((order.index(p) for p in first.labels), default=0)
            return f"reduce.{ufunc.__name__}.{'inner' if inner else 'outer'}", first.dtype.name
        return getattr(run.func, "__name__", "other"), first.dtype.name
    if isinstance(run, np.ufunc):
        return run.__name__, first.dtype.name
    if isinstance(run, Scatter):
        return f"scatter.{run.op}", first.dtype.name
    if isinstance(run, PiecewiseLoad):
        return "copy", out.dtype.name
    return getattr(run, "__name__", type(run).__name__), out.dtype.name


def contraction_work(kernel: ContractionSpec) -> KernelWork:
    """Return the work of a contraction by BLAS: products of blocks, and copies of panels."""
    plan = kernel.contiguous_plan
    extents, blocks = kernel.long, plan.blocks
    counts = {p: -(-extents[p] // blocks[p]) for p in plan.loops}
    turns = math.prod(counts.values())
    m, n, k = (math.prod(blocks[p] for p in group) for group in plan.groups)
    dtype = kernel.dtype.numpy.name
    # Blocks at the edges are smaller, so count the total in full blocks.
    whole = math.prod(extents.values()) / max(1, m * n * k)
    work = KernelWork(products=[ProductWork(dtype, m, n, k, min(turns, whole))], turns={"call": 1})
    work.turn("turn", turns if plan.loops or any(plan.packed) else 0)
    for index, labels in enumerate(kernel.labels):
        points = math.prod(extents[p] for p in labels if p in extents)
        nbytes = points * kernel.itemsizes[index]
        moved = {"read": nbytes} if index < 2 else {"written": nbytes}
        if plan.packed[index]:
            copies = _packings(kernel, index, counts)
            source = f"convert.{_stored(kernel, index)}" if kernel.converts[index] else "copy"
            runs = points * copies / max(1, _run(kernel, index))
            work.passes.append(ArrayPass(f"{source}.{dtype}", turns, points * copies, runs, **moved))
        elif nbytes > CACHED_NBYTES:
            work.passes.append(ArrayPass("traffic", 0, 0, 0, **moved))
    return work


def multiplied_work(kernel: ContractionSpec, code: PackedSpec) -> KernelWork:
    """Return the work of a contraction in machine code; packing is part of the product, as in BLAS."""
    (m, n, k), long, name = kernel.sides, kernel.long, code.dtype.numpy.name
    batch = math.prod(long[p] for p in kernel.batch)
    work = KernelWork(turns={"call": 1})
    if batch > 1 and m * n * k < SMALL_PRODUCT:  # one call for the whole batch
        size = kernel.dtype.itemsize
        work.passes.append(ArrayPass(f"multiply.{name}", 0, batch * multiplied_ns((m, n, k), size) / (BYTE_NS * size)))
    else:
        work.products.append(ProductWork(name, m, n, k, batch))
    for index, labels in enumerate(kernel.labels):
        nbytes = float(math.prod(long[p] for p in labels if p in long) * kernel.itemsizes[index])
        if nbytes > CACHED_NBYTES:
            read, written = (0.0, nbytes) if index == 2 else (nbytes, 0.0)
            work.passes.append(ArrayPass("traffic", 0, 0, 0, read, written))
    if not kernel.whole:  # the accumulator is read and written back
        points = batch * m * n
        nbytes = float(points * kernel.itemsizes[2])
        work.passes.append(ArrayPass(f"add.{name}", 1, points, 0, nbytes, nbytes))
    return work


def _packings(kernel: ContractionSpec, index: int, counts: dict[int, int]) -> int:
    """Return how often a panel is packed: again whenever an inner loop of its labels has moved it."""
    loops = list(counts)
    own = [i for i, p in enumerate(loops) if p in kernel.labels[index]]
    if index == 2 or not own:
        return 1
    return math.prod(counts[p] for p in loops[: max(own)] if p not in kernel.labels[index])


def _run(kernel: ContractionSpec, index: int) -> int:
    """Return the elements that are contiguous in a packed copy: those of the tile's fastest label."""
    labels = [p for p in kernel.labels[index] if p in kernel.long]
    return kernel.long[labels[-1]] if labels else 1


def _stored(kernel: ContractionSpec, index: int) -> str:
    sizes: dict[int, str] = {2: "float16", 4: "float32", 8: "float64", 16: "complex128"}
    return sizes.get(kernel.itemsizes[index], "float32")


def shapes_of(extents: Sequence[int], blocks: Sequence[int]) -> Iterable[tuple[tuple[int, ...], int]]:
    """Return the shapes of the blocks that a box is split into, with the number of each."""
    sizes = [_block_sizes(n, b) for n, b in zip(extents, blocks, strict=True)]
    for chosen in itertools.product(*sizes):
        yield tuple([n for n, _ in chosen]), math.prod(c for _, c in chosen)


def _block_sizes(extent: int, block: int) -> list[tuple[int, int]]:
    block = max(1, block)
    whole, rest = divmod(extent, block)
    return [(n, c) for n, c in ((block, whole), (rest, 1 if rest else 0)) if c] or [(0, 1)]


def kernel_flops(space: Space, extents: tuple[int, ...], mode: Mode) -> int:
    """Return the operations of a tile.

    A contraction has 2 for each point, any other einsum its operators and its fold. Combining or finalizing a state has
    one for each element.
    """
    if isinstance(space, Region):
        return _region_flops(space, extents, mode)
    finalized = math.prod(extents[: space.n_out])
    if mode in ("finalize", "combine"):
        return finalized
    if 0 in extents:
        return 0
    if blas_spec(space, extents, mode) is not None:
        return 2 * math.prod(extents)
    scatters = any(key.label < space.n_out for key in space.keys)
    finalizes = space.aggregation is not None and not space.aggregation.finalize_is_identity
    return _operators(space, extents) + (finalized if scatters and finalizes and mode == "full" else 0)


def _region_flops(region: Region, extents: Sequence[int], mode: Mode) -> int:
    if mode == "combine":
        return sum(math.prod(shape) for shape, _ in region.components(extents))
    folded, steps = region.required(region.carried), range(len(region.steps))
    total = 0
    for k in steps if mode == "full" else folded if mode == "accumulate" else {*steps} - folded:
        step = region.steps[k]
        own = tuple([extents[p] for p in step.labels])
        multiplied = contraction(step.einsum) is not None and step.einsum.join.dtype.is_inexact
        total += 2 * math.prod(own) if multiplied else _operators(step.einsum, own)
    return total


def _operators(einsum: Einsum, extents: Sequence[int]) -> int:
    """Return one operation for each operator of the join, and one for the fold, at every selected point."""
    operators = sum(isinstance(e, ScalarCall) for e in walk(einsum.join)) + (einsum.aggregation is not None)
    keyed = {key.label for key in einsum.keys}
    return max(1, operators) * math.prod([n for p, n in enumerate(extents) if p not in keyed])


def work_seconds(work: KernelWork, machine: Machine) -> float:
    """Return the seconds of work: for each pass the longer of points and bytes, plus Python overhead.

    A written byte is fetched first, so a copy moves three times its bytes.
    """
    bandwidth = 3 * machine.memory_bandwidth
    step, loop = machine.turn_seconds("step"), machine.turn_seconds("loop")
    total = sum(machine.turn_seconds(name) * count for name, count in work.turns.items())
    waiting = 0.0
    for p in work.passes:
        moved = (p.read + 2 * p.written) / bandwidth
        if p.points:
            each = machine.row_seconds(p.table) if p.table else machine.point_seconds(p.name)
            total += p.times * step + p.loops * loop + max(moved, p.points * each)
        else:
            waiting += moved
    products = sum(p.times * machine.product_seconds(p.dtype, p.m, p.n, p.k) for p in work.products)
    return total + max(products, waiting)
