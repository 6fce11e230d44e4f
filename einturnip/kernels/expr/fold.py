"""Aggregations of a block: folding it into a state, combining two states, finalizing a state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import BOOL, F32, I64, U16, U32, U64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.ir.scalar import Scalar
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.blocked_space import BlockedSpace
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.lower import lower
from einturnip.kernels.expr.primitives import BLOCK_LENGTH, Array, copy, first_along, flat_arg, reduction, summed

ADDITIONS_PER_STATE = 64  # blocks that are added to one state in sequence; more are added to partial states
# The ufunc that folds values into a state of one component, by how two states combine.
FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "or": np.logical_or,
    "and": np.logical_and,
}


def value_type(aggregation: Aggregation) -> DType:
    """Return the type in which values are folded: never f16 or bf16, which NumPy folds slowly."""
    return aggregation.state[0].accumulator


def fold_block(assembler: Assembler, section: int, einsum: Einsum, value: int, state: Sequence[int]) -> None:
    """Emit steps that fold a block of join values into state registers, which they overwrite."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    axes = assembler.space.axes(einsum.aggregated)
    match aggregation.combine:
        case "first_max" | "first_min":
            _fold_index(assembler, section, einsum, value, state)
        case "log_add":
            _fold_logsumexp(assembler, section, einsum, value, state)
        case "add" if axes and value_type(aggregation).is_inexact:
            add_up(assembler, section, einsum.aggregated, value, state[0])
        case op:
            assembler.step(section, reduction(FOLDS[op], axes), (value,), state[0])


def carries_rounded_sums(region: Region) -> bool:
    """Return whether a region carries a fold in which each value added rounds."""
    folds = [region.steps[k].einsum.aggregation for k in region.carried]
    return any(aggregation is not None and aggregation.rounds for aggregation in folds)


def add_up(assembler: Assembler, section: int, labels: Iterable[int], value: int, out: int) -> None:
    """Emit a step that sums a block over labels, with a rounding error logarithmic in their extents."""
    labels, register = tuple(labels), assembler.registers[out]
    halves = [assembler.slot(register.dtype, register.labels) for _ in range(halvings(assembler.space, labels))]
    assembler.step(section, partial(summed, assembler.space.axes(labels)), (value, *halves), out)


def partial_levels(blocks: int, group: int = ADDITIONS_PER_STATE, additions: int = ADDITIONS_PER_STATE) -> int:
    """Return the levels of partial states that a number of blocks needs, below the state of the result.

    ``group``: the number of blocks that are folded into one state of the lowest level. ``additions``: the number of
    states of one level that are added to one state of the next.
    """
    levels, states = 0, blocks
    while states > (additions if levels else group):
        states, levels = -(-states // (additions if levels else group)), levels + 1
    return levels


def halvings(space: BlockedSpace, labels: Iterable[int]) -> int:
    """Return how often the sum of a block over labels is halved."""
    return max(0, -(-math.prod(space.blocks[p] for p in labels) // BLOCK_LENGTH) - 1).bit_length()


def has_short_ranks(einsum: Einsum, space: BlockedSpace) -> bool:
    """Return whether 16 bits number the points of a block along its one aggregated label."""
    return len(einsum.aggregated) == 1 and space.blocks[einsum.n_out] < 1 << 16


def _fold_logsumexp(assembler: Assembler, section: int, einsum: Einsum, value: int, state: Sequence[int]) -> None:
    """Fold into (max, sum of exp(x - max)); an infinite max is replaced to avoid inf - inf."""
    axes, out = assembler.space.axes(einsum.aggregated), range(einsum.n_out)
    aggregation = einsum.aggregation
    assert aggregation is not None
    dtype = aggregation.state[0]
    top, total = state
    assembler.step(section, reduction(np.maximum, axes), (value,), top)
    graph = PrimitiveGraph()
    limit = float(np.finfo(dtype.numpy).max)
    shift = _clip(graph, graph.input(top, dtype, out), limit, dtype)
    labels = range(len(einsum.labels))
    terms = graph.apply("exp", graph.apply("subtract", graph.input(value, dtype, labels), shift))
    (made,) = assembler.emit(graph, [terms], section)
    add_up(assembler, section, einsum.aggregated, made, total)


def _clip(graph: PrimitiveGraph, x: int, limit: float, dtype: DType) -> int:
    low = graph.apply("maximum", x, graph.number(-limit, dtype))
    return graph.apply("minimum", low, graph.number(limit, dtype))


def _fold_index(assembler: Assembler, section: int, einsum: Einsum, value: int, state: Sequence[int]) -> None:
    """Fold into the best value and its flat index over the whole range."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    space, out = assembler.space, range(einsum.n_out)
    greatest = aggregation.combine == "first_max"
    axes = space.axes(einsum.aggregated)
    extremum = reduction(np.maximum if greatest else np.minimum, axes)
    assembler.step(section, extremum, (value,), state[0])
    local = assembler.slot(I64.numpy, out, pinned=True)
    labels = range(len(einsum.labels))
    if len(axes) == 1 and axes[0] < len(space.order) - 1:
        rank = (U16 if has_short_ranks(einsum, space) else U32).numpy
        scratch = [assembler.slot(d, over) for over in (labels, out) for d in (BOOL.numpy, rank)]
        assembler.step(section, partial(first_along, axes[0]), (value, state[0], *scratch), local)
    else:
        scratch = [assembler.slot(assembler.registers[value].dtype, labels)]
        find = partial(flat_arg, np.argmax if greatest else np.argmin, len(axes))
        assembler.step(section, find, (value, *scratch), local)
    sizes = [assembler.scalar("size", p) for p in einsum.aggregated]
    arguments = [local, *sizes, *(assembler.scalar("start", p) for p in einsum.aggregated)]
    digits = [assembler.slot(I64.numpy, out) for _ in range(2)]
    bounds = einsum.bounds[einsum.n_out :]
    assembler.step(section, partial(flat_index, bounds), (*arguments, *digits), state[1])


def flat_index(bounds: tuple[int, ...], local: Array, *rest: Any, out: Array) -> None:
    """Convert a flat index in a block to the flat index over ``bounds``; overwrites ``local``.

    ``rest``: the block's sizes, its first points, and two scratch arrays.
    """
    n = len(bounds)
    if n == 1:
        np.add(local, rest[1], out=out)
        return
    quotient, digit = rest[2 * n :]
    out[...] = 0
    stride = 1
    for axis in reversed(range(n)):
        size, start = rest[axis], rest[n + axis]
        np.floor_divide(local, size, out=quotient)
        np.multiply(quotient, size, out=digit)
        np.subtract(local, digit, out=digit)
        np.add(digit, start, out=digit)
        np.multiply(digit, stride, out=digit)
        np.add(out, digit, out=out)
        np.copyto(local, quotient)
        stride *= bounds[axis]


def combine(assembler: Assembler, section: int, einsum: Einsum, state: Sequence[int], part: Sequence[int]) -> None:
    """Emit steps that fold one state into another."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    if aggregation.combine in FOLDS:
        for register, added in zip(state, part, strict=True):
            assembler.step(section, FOLDS[aggregation.combine], (register, added), register)
        return
    out, graph = range(einsum.n_out), PrimitiveGraph()
    mine = [graph.input(r, d, out) for r, d in zip(state, aggregation.state, strict=True)]
    other = [graph.input(r, d, out) for r, d in zip(part, aggregation.state, strict=True)]
    if aggregation.combine == "log_add":
        roots = _combine_logsumexp(graph, mine, other, aggregation.state[0])
    elif aggregation.combine == "pick":  # at most one state has a value; the others are 0
        zero = graph.number(0, aggregation.state[0])
        roots = [graph.select(graph.apply("not_equal", other[0], zero, dtype=BOOL), other[0], mine[0])]
    else:
        take = _prefer(graph, aggregation, mine, other)
        roots = [graph.select(take, b, a) for a, b in zip(mine, other, strict=True)]
    for made, register in zip(assembler.emit(graph, roots, section), state, strict=True):
        assembler.step(section, copy, (made,), register)


def _combine_logsumexp(graph: PrimitiveGraph, a: list[int], b: list[int], dtype: DType) -> list[int]:
    limit = float(np.finfo(dtype.numpy).max) / 4  # differences of clipped numbers cannot overflow
    top = graph.apply("maximum", a[0], b[0])
    clipped = _clip(graph, top, limit, dtype)
    scaled = []
    for maximum, total in (a, b):
        gap = graph.apply("subtract", _clip(graph, maximum, limit, dtype), clipped)
        scaled.append(graph.apply("multiply", total, graph.apply("exp", gap)))
    return [top, graph.apply("add", *scaled)]


def _prefer(graph: PrimitiveGraph, aggregation: Aggregation, a: list[int], b: list[int]) -> int:
    """Return where ``b`` beats ``a``: a better value, NaN being best; if equal the smaller index, -1 last."""
    dtype = aggregation.state[0]
    if dtype != dtype.accumulator:
        a, b = [graph.convert(a[0], F32), a[1]], [graph.convert(b[0], F32), b[1]]

    def test(op: str, x: int, y: int) -> int:
        return graph.apply(op, x, y, dtype=BOOL)

    nan = [test("not_equal", x[0], x[0]) for x in (a, b)]
    better = test("greater" if aggregation.combine == "first_max" else "less", b[0], a[0])
    better = test("logical_and", better, graph.apply("logical_not", nan[0]))
    better = test("logical_or", better, test("greater", nan[1], nan[0]))
    equal = test("logical_or", test("equal", a[0], b[0]), test("logical_and", *nan))
    order = [graph.convert(x[1], U64) for x in (a, b)]
    earlier = test("logical_and", equal, test("less", order[1], order[0]))
    absent = test("less", a[1], graph.number(0, I64))
    return test("logical_or", test("logical_or", better, earlier), absent)


def finalized(graph: PrimitiveGraph, einsum: Einsum, state: Sequence[int]) -> int:
    """Return the node of the result of a state's nodes."""
    aggregation = einsum.aggregation
    if aggregation is None:
        return state[0]
    result = lower(graph, aggregation.result_of_state(einsum.bounds[einsum.n_out :]), _StateLeaves(state))
    return graph.convert(result, aggregation.result)


class _StateLeaves:
    """The components of a state as operands."""

    def __init__(self, state: Sequence[int]) -> None:
        self.state = state

    def operand(self, slot: int) -> int:
        return self.state[slot]

    def label(self, position: int) -> int:
        raise InternalError("the result of a state depends on a label")

    def guarded(self, expr: Scalar) -> int | None:
        return None
