"""Kernels of einsums with keys: gathers, and scatters into a state at positions given by data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.core.units import whole_lines
from einturnip.ir.dtypes import BOOL, C64, F32, F64, I64, DType
from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.blocked_space import BlockedSpace, choose_order, cut
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.primitives import Array, copy, reduction
from einturnip.kernels.numpy.blocked import BlockedKernel, BlockedSteps
from einturnip.kernels.numpy.elementwise import compile_finalize
from einturnip.kernels.numpy.empty import NOTHING, FillKernel, compile_empty
from einturnip.kernels.numpy.gather_row import compile_pick
from einturnip.kernels.numpy.join import JoinBuilder, broadcast, free_extents, key_labels, loop_accesses
from einturnip.kernels.numpy.reduce import compile_reduce
from einturnip.kernels.numpy.scatter import BOOLEAN, ROWS, VALUED, Scatter, scatter_codes, scratch_names
from einturnip.kernels.numpy.scatter_sums import Begin, ScatterSums, Settle, table_types
from einturnip.kernels.numpy.sorted_sums import CHUNK, VECTORS, vector_type
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel, PythonCall


@dataclass(frozen=True)
class FinalizedKernel(PreparableKernel):
    """Folds into a state in the workspace, then finalizes it."""

    fold: BlockedKernel
    finalize: BlockedKernel
    state: tuple[tuple[int, ...], tuple[DType, ...]]

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of the state, and of the larger of the two kernels' workspaces."""
        return sum(self._sizes()) + max(self.fold.workspace_nbytes, self.finalize.workspace_nbytes)

    def _sizes(self) -> list[int]:
        shape, dtypes = self.state
        return [whole_lines(math.prod(shape) * d.itemsize) for d in dtypes]

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        shape, dtypes = self.state
        state, offset = list[Array](), 0
        for dtype, nbytes in zip(dtypes, self._sizes(), strict=True):
            state.append(np.ndarray(shape, dtype.numpy, arguments.workspace, offset))
            offset += nbytes
        made = arguments._replace(first=True, workspace=arguments.workspace[offset:])
        fold = self.fold.prepare(made._replace(outs=tuple(state)))
        finalize = self.finalize.prepare(made._replace(operands=tuple(state)))
        return PythonCall(lambda: fold.run() | finalize.run())


@dataclass(frozen=True)
class CheckedKernel(PreparableKernel):
    """Checks the keys of a tile in which no point can be selected."""

    keys: BlockedKernel
    fill: FillKernel

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of workspace that the check needs."""
        return self.keys.workspace_nbytes

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        check, fill = self.keys.prepare(arguments._replace(outs=())), self.fill.prepare(arguments)

        def run() -> int:
            check.run()
            return fill.run()

        return PythonCall(run)


def compile_keyed(
    einsum: Einsum, extents: tuple[int, ...], mode: Literal["full", "accumulate"]
) -> BlockedKernel | FillKernel | FinalizedKernel | CheckedKernel:
    """Compile an einsum with keys."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    if 0 in extents:
        fill = NOTHING if 0 in extents[: einsum.n_out] else compile_empty(einsum, extents, mode)
        return (
            fill
            if any(extents[p] == 0 for p in _row_labels(einsum))
            else CheckedKernel(_compile_checks(einsum, extents), fill)
        )
    if any(k.label < einsum.n_out for k in einsum.keys):
        whole = mode == "full"
        fold = _compile_scatter(einsum, extents, whole)
        if not whole or aggregation.finalize_is_identity:
            return fold
        return FinalizedKernel(fold, compile_finalize(einsum, extents), (extents[: einsum.n_out], aggregation.state))
    if aggregation.combine == "pick":
        return compile_pick(einsum, extents)
    if aggregation.indexed or aggregation.row.finalize_reads_count:
        raise InternalError(f"{aggregation.op} over a label whose index is data")
    return compile_reduce(einsum, extents, mode == "full")


def _compile_checks(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile a kernel that only checks the keys."""
    rows = _row_labels(einsum)
    seen = tuple(n if p in rows else 1 for p, n in enumerate(extents))

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        join = JoinBuilder(assembler, einsum, extents)
        assembler.emit(join.graph, [join.key(k.label) for k in einsum.keys])

    order = tuple(range(len(seen)))

    def blocks(extents: tuple[int, ...], points: int) -> BlockedSpace:
        return cut(order, seen, einsum.n_out, points)

    tile_points = math.prod(seen)
    return BlockedSteps(blocks, assemble, einsum.accesses, (), True, tile_points=lambda _: tile_points).kernel(extents)


def _compile_scatter(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> BlockedKernel:
    aggregation = einsum.aggregation
    assert aggregation is not None
    values = zip(aggregation.identity, aggregation.state, strict=True)
    tile_points = math.prod(free_extents(einsum, extents))
    return BlockedSteps(
        partial(_scatter_space, einsum),
        partial(_assemble_scatter, einsum),
        einsum.accesses,
        (),
        whole,
        tuple([number(v, d) for v, d in values]),
        tile_points=lambda _: tile_points,
    ).kernel(extents)


def _row_labels(einsum: Einsum) -> frozenset[int]:
    """Return the labels of a block's rows: those that the keys' values vary over."""
    return frozenset(p for k in einsum.keys for p in einsum.labels_of(k.value))


def _scatter_space(einsum: Einsum, extents: tuple[int, ...], points: int) -> BlockedSpace:
    keys, free, rows = key_labels(einsum), free_extents(einsum, extents), _row_labels(einsum)
    order, crossing = choose_order(free, einsum.n_out, loop_accesses(einsum), program_order=False)
    ranked = sorted(order, key=lambda p: (p not in keys, p not in rows))
    return cut(ranked, free, einsum.n_out, points, crossing - keys - rows)


def _assemble_scatter(einsum: Einsum, assembler: Assembler, extents: tuple[int, ...]) -> None:
    aggregation, space, assembler.sized = einsum.aggregation, assembler.space, True
    assert aggregation is not None
    rows, dtypes = _row_labels(einsum), aggregation.state
    join, indexed = JoinBuilder(assembler, einsum, extents), aggregation.indexed
    graph, keys, innermost = join.graph, key_labels(einsum), len(space.loops)
    value = graph.convert(join.value(einsum.join), dtypes[0])
    hit = join.hit()
    row_labels = (*sorted(keys & set(range(einsum.n_out))), *(p for p in range(einsum.n_out) if p in rows))
    column_labels = tuple(p for p in range(einsum.n_out) if p not in rows and p not in keys)
    nodes = [value, *(join.position(p) for p in (*row_labels, *column_labels)), *(() if hit is None else (hit,))]
    nodes += [_flat_index(join)] if indexed else []
    made = assembler.emit(graph, [*nodes, *(join.key(k.label) for k in einsum.keys)])[: len(nodes)]
    labels = frozenset(range(len(einsum.labels))) - keys
    made[0], labels, loose = _folded(assembler, einsum, made[0], labels, rows)
    if indexed:
        made[-1] = broadcast(assembler, made[-1], labels)
    states = [assembler.external("raw_out", i, d.numpy, ()) for i, d in enumerate(dtypes)]
    combine = aggregation.combine
    sums = combine == "add" and dtypes[0].is_inexact
    parts = 2 if sums and dtypes[0].kind == "c" else 1
    added = dtypes[0] if parts == 1 else F32 if dtypes[0] == C64 else F64
    codes = scatter_codes(combine, (added, *dtypes[1:]))
    if codes or sums:
        made[0] = _matrix(assembler, made[0], rows, parts > 1 and bool(column_labels))
    names = scratch_names(combine, sums, hit is not None, indexed, bool(codes))
    over_both = _longer(space, labels, rows) if codes else labels
    scratch = [_scratch(assembler, name, added, labels, rows, over_both) for name in names]
    sizes = [assembler.scalar("size", p) for p in loose] if combine == "add" and len(dtypes) == 2 else []
    arguments = [*made, *states[1:], *sizes, *scratch]
    fixed = (combine, row_labels, column_labels, len(states), hit is not None, indexed, names, codes, len(sizes))
    if not sums:
        assembler.step(innermost, Scatter(*fixed), arguments, states[0])
    else:
        groups = math.prod(extents[p] for p in row_labels)
        columns = parts * math.prod(space.blocks[p] for p in column_labels)
        pairs = [assembler.table(I64.numpy, columns)] if parts > 1 else []
        table = _table(assembler, added, groups, columns, rows) if codes else []
        run = ScatterSums(*fixed, bool(table), parts)
        of_columns = made[1 + len(row_labels) :][: len(column_labels)]
        of_table = [*table, *of_columns, *(scratch[names.index(name)] for name in ("columns", "column")), *pairs]
        if table:
            assembler.step(space.n_out_loops, Begin(run), of_table, states[0])
        assembler.step(innermost, run, [*arguments, *pairs, *table], states[0])
        if table:
            assembler.step(assembler.fresh + 2, Settle(run), of_table, states[0])


def _table(
    assembler: Assembler,
    dtype: DType,
    groups: int,
    columns: int,
    rows: frozenset[int],
) -> list[int]:
    """Return the arrays of a table of partial sums."""
    space = assembler.space
    outer = space.loops[: space.n_out_loops]
    n_rows = math.prod(space.blocks[p] if p in outer else space.extents[p] for p in rows)
    return [assembler.table(*sized) for sized in table_types(dtype, groups, n_rows, columns)]


def _flat_index(join: JoinBuilder) -> int:
    """Return the node of the flat index over the aggregated labels, in the program's order."""
    graph, einsum = join.graph, join.einsum
    node = graph.number(0, I64)
    for p in einsum.aggregated:
        node = graph.apply("multiply", node, graph.number(einsum.bounds[p], I64))
        node = graph.apply("add", node, join.label(p))
    return node


def _folded(
    assembler: Assembler, einsum: Einsum, value: int, labels: frozenset[int], rows: frozenset[int]
) -> tuple[int, frozenset[int], list[int]]:
    """Fold values over aggregated labels on which no key depends, if one ufunc can do it.

    Returns the values, their labels, and the labels that were folded.
    """
    aggregation = einsum.aggregation
    assert aggregation is not None
    value = broadcast(assembler, value, labels)
    loose = frozenset(einsum.aggregated) & labels - rows
    if not loose or aggregation.combine not in FOLDS:
        return value, labels, []
    less = labels - loose
    out = assembler.slot(aggregation.state[0].numpy, less)
    fold = reduction(FOLDS[aggregation.combine], assembler.space.axes(loose))
    assembler.step(len(assembler.space.loops), fold, (value,), out)
    return out, less, sorted(loose)


def _matrix(assembler: Assembler, value: int, rows: frozenset[int], dense: bool) -> int:
    """Copy an operand whose rows or columns are several axes, which may not be one axis in memory.

    ``dense``: a row's values must be contiguous.
    """
    register, extents = assembler.registers[value], assembler.space.extents
    long = {p for p in register.labels if extents[p] > 1}
    if register.kind == "slot" or (not dense and max(len(long & rows), len(long - rows)) <= 1):
        return value
    copied = assembler.slot(register.dtype, register.labels)
    assembler.step(len(assembler.space.loops), copy, (value,), copied)
    return copied


def _longer(space: BlockedSpace, labels: frozenset[int], rows: frozenset[int]) -> frozenset[int]:
    """Return the labels of a block's rows or of its columns, whichever are more."""
    columns = labels - rows
    n_rows, n_columns = (math.prod(space.blocks[p] for p in side) for side in (rows, columns))
    return rows if n_rows >= n_columns else columns


def _scratch(
    assembler: Assembler,
    name: str,
    dtype: DType,
    labels: frozenset[int],
    rows: frozenset[int],
    over_both: frozenset[int],
) -> int:
    """Return a scratch array of a Scatter; ``over_both``: the labels of arrays over rows and columns."""
    if name in VECTORS:
        size = math.prod(assembler.space.blocks[p] for p in labels | rows)
        return assembler.table(vector_type(name, dtype.numpy), min(CHUNK, max(1, size)))
    over = rows if name in ROWS else labels - rows if name in ("columns", "column") else over_both
    return assembler.slot((BOOL if name in BOOLEAN else dtype if name in VALUED else I64).numpy, over)
