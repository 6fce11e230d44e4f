"""Packing of two-sided folds: which values are packed so that register tiles read them contiguously.

Like products, any einsum whose join combines a value of a row and a value of a column has rows, columns and terms:
distances, (max, +). Values that depend on one side alone are computed as they are packed, once for a whole block of the
other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Access, Einsum, labels_read
from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.window import terms
from einturnip.kernels.llvm import processor

CHUNK = 128  # terms that are packed at once
COLUMN_VECTORS = 16  # vectors of columns that are packed at once, for the second-level cache
_MAX_ROUNDED = 64  # maximum chunks that are added in sequence; longer sums need blocks of partial sums
_MIN_ROWS, _MIN_COLUMNS, _MIN_TERMS = 48, 32, 8
_LINE = 64
# Packing pays for these operations: a tile of others would be long code, and is not limited by its loads.
_LIGHT = frozenset({"add", "subtract", "multiply", "square", "negative", "absolute", "maximum", "minimum"})
_MAX_JOINED, _MAX_PACKED = 6, 2
_PRODUCTS = frozenset({"multiply", "square"})


@dataclass(frozen=True)
class PackPlan:
    """How the two sides of a fold are packed.

    ``row``, ``term``: labels; columns are the vector label. ``left``, ``right``: nodes that depend on rows, on columns.
    ``negated``: nodes of the right that are packed with opposite sign. A difference is a sum then, and an add
    instruction broadcasts its memory operand by itself; separate broadcasts compete with additions (Zen 4: 90 GFLOP/s
    instead of 164 for squared distances). ``along``: by operand, the label along which it is loaded in vectors, -1
    where it is gathered.
    """

    row: int
    term: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    negated: frozenset[int]
    along: tuple[int, ...]
    height: int

    @property
    def lower(self) -> int:
        """Rows of the register tiles at the end."""
        return self.height // 3

    def joined(self, graph: PrimitiveGraph, root: int) -> list[str]:
        """Return the operations of a point that are not computed while packing."""
        found, waiting, seen = list[str](), [root], {root}
        while waiting:
            node = waiting.pop()
            if node not in self.left and node not in self.right:
                found.append(graph[node].op)
                waiting += [a for a in graph[node].arguments if a not in seen]
                seen.update(graph[node].arguments)
        return found

    def line_nbytes(self, dtype: DType) -> int:
        """Return the bytes of a packed row: an odd number of cache lines, to avoid conflict misses."""
        return CHUNK * dtype.itemsize + _LINE

    def places(self, graph: PrimitiveGraph, width: int) -> dict[int, int]:
        """Return the byte offset of each node's packed values; -1: their total size."""
        found, at = {}, 0
        for node in self.right:
            found[node] = at
            at += COLUMN_VECTORS * CHUNK * width * graph[node].dtype.itemsize
        for node in self.left:
            found[node] = at
            at += self.height * self.line_nbytes(graph[node].dtype)
        return {**found, -1: at}


def packed(einsum: Einsum, graph: PrimitiveGraph, root: int) -> PackPlan | None:
    """Return how an einsum's operands are packed; None if too few points share them."""
    column, bounds = einsum.n_out - 1, einsum.bounds
    folded = range(einsum.n_out, len(bounds))
    rounded = einsum.aggregation is not None and einsum.aggregation.rounds
    if rounded and math.prod(bounds[p] for p in folded) > _MAX_ROUNDED * CHUNK:
        return None
    if column < 1 or not folded or einsum.keys or bounds[column] < _MIN_COLUMNS:
        return None
    term = max(folded, key=lambda p: bounds[p])
    rows = [p for p in range(column) if bounds[p] >= _MIN_ROWS]
    if bounds[term] < _MIN_TERMS or not rows:
        return None
    row = max(rows, key=lambda p: bounds[p])
    sides = _sides(graph, root, row, column)
    if sides is None:
        return None
    left, right = sides
    height = 24 if "avx512f" in processor.features() else 6  # accumulators, of 32 or 16 registers
    along = tuple(_along(access, row, column, term) for access in einsum.accesses)
    made = PackPlan(row, term, left, right, _negated(graph, root, left, right), along, height)
    # Sums and extrema alone are limited by one unit, not by loads: packing would only add work.
    apart = any(not is_smooth(access, column) for access in einsum.accesses)
    return made if apart or not _PRODUCTS.isdisjoint(made.joined(graph, root)) else None


def _sides(graph: PrimitiveGraph, root: int, row: int, column: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the largest parts of a join that depend on rows or on columns alone; None if much remains."""
    left, right, joined = list[int](), list[int](), 0
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        n = graph[node]
        if row in n.labels and column in n.labels:
            joined += 1
            if n.op not in _LIGHT:
                return None
            waiting += [a for a in n.arguments if a not in seen]
            seen.update(n.arguments)
        elif row in n.labels or column in n.labels:
            (left if row in n.labels else right).append(node)
    plain = all(graph[node].dtype.name in ("f32", "f64", "i32", "i64") for node in (*left, *right))
    few = joined <= _MAX_JOINED and 0 < len(left) <= _MAX_PACKED and 0 < len(right) <= _MAX_PACKED
    return (tuple(left), tuple(right)) if plain and few else None


def _negated(graph: PrimitiveGraph, root: int, left: tuple[int, ...], right: tuple[int, ...]) -> frozenset[int]:
    """Return the nodes of the right that are only subtracted from nodes of the left."""
    return frozenset(
        node
        for node in right
        if graph[node].dtype.is_float and all(of_left in left for of_left in _takers(graph, root, node))
    )


def _takers(graph: PrimitiveGraph, root: int, node: int) -> Iterator[int]:
    """Yield the minuend for each node that subtracts ``node``, and -1 for each that reads it otherwise."""
    if node == root:
        yield -1
    for n in (graph[k] for k in reachable_nodes(graph, [root])):
        if node in n.arguments:
            yield n.arguments[0] if n.op == "subtract" and n.arguments[0] != node else -1


def _along(access: Access, row: int, column: int, term: int) -> int:
    label = term if row in labels_read(access) else column
    return label if label in labels_read(access) and is_smooth(access, label) else -1


def is_smooth(access: Access, label: int) -> bool:
    """Return whether a tensor is constant or contiguous along a label."""
    steps = [(axis, c) for axis, p in enumerate(access) for q, c in terms(p) if q == label]
    return not steps or steps == [(len(access) - 1, 1)]
