"""Folds over joins of two sides: which values are packed, so that register tiles find them side by side.

As products have rows, columns and terms, so has any einsum whose join takes a value of a row and a value of a column:
distances, (max, +). What hangs on one side alone is computed as it is packed, once for a whole block of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Access, Einsum, labels_read
from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.fold import rounds_off
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.window import terms
from einturnip.kernels.llvm import processor

CHUNK = 128  # terms that are packed together
COLUMN_VECTORS = 16  # that are packed together, for the second cache
_MOST_ROUNDED = 64  # chunks whose sums are added one after the other; longer sums are done in blocks of partial sums
_LEAST_ROWS, _LEAST_COLUMNS, _LEAST_TERMS = 48, 32, 8
_LINE = 64
# A tile of more than these few operations would be long code, and does not wait for its operands.
_LIGHT = frozenset({"add", "subtract", "multiply", "square", "negative", "absolute", "maximum", "minimum"})
_MOST_JOINED, _MOST_PACKED = 6, 2
_PRODUCTS = frozenset({"multiply", "square"})


@dataclass(frozen=True)
class PackPlan:
    """``row``, ``term``: labels; columns are the vectors'. ``left``, ``right``: nodes that hang on rows, on columns.

    ``negated``: those of the right whose opposite is packed. A difference of the two is a sum then, and an
    instruction that adds spreads its other operand over the lanes as it loads it: loads of their own to spread it take
    turns with additions (Zen 4: 90 GFLOP/s instead of 164 for squared distances).
    ``along``: of each operand the label that its vectors are loaded along, -1 where they are gathered.
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
        """Rows of the tiles at the end."""
        return self.height // 3

    def joined(self, graph: PrimitiveGraph, root: int) -> list[str]:
        """The operations of a point: what is not packed."""
        found, waiting, seen = list[str](), [root], {root}
        while waiting:
            node = waiting.pop()
            if node not in self.left and node not in self.right:
                found.append(graph[node].op)
                waiting += [a for a in graph[node].arguments if a not in seen]
                seen.update(graph[node].arguments)
        return found

    def line_nbytes(self, dtype: DType) -> int:
        """Of a row; odd in lines of the cache, so that rows do not stand in each other's way."""
        return CHUNK * dtype.itemsize + _LINE

    def places(self, graph: PrimitiveGraph, width: int) -> dict[int, int]:
        """Where each node's packed values begin, in bytes; -1: where they end."""
        found, at = {}, 0
        for node in self.right:
            found[node] = at
            at += COLUMN_VECTORS * CHUNK * width * graph[node].dtype.itemsize
        for node in self.left:
            found[node] = at
            at += self.height * self.line_nbytes(graph[node].dtype)
        return {**found, -1: at}


def packed(einsum: Einsum, graph: PrimitiveGraph, root: int) -> PackPlan | None:
    """How an einsum's operands are packed, where there are enough rows, columns and terms that share them."""
    column, bounds = einsum.n_out - 1, einsum.bounds
    folded = range(einsum.n_out, len(bounds))
    rounded = einsum.aggregation is not None and rounds_off(einsum.aggregation)
    if rounded and math.prod(bounds[p] for p in folded) > _MOST_ROUNDED * CHUNK:
        return None
    if column < 1 or not folded or einsum.keys or bounds[column] < _LEAST_COLUMNS:
        return None
    term = max(folded, key=lambda p: bounds[p])
    rows = [p for p in range(column) if bounds[p] >= _LEAST_ROWS]
    if bounds[term] < _LEAST_TERMS or not rows:
        return None
    row = max(rows, key=lambda p: bounds[p])
    sides = _sides(graph, root, row, column)
    if sides is None:
        return None
    left, right = sides
    height = 24 if "avx512f" in processor.features() else 6  # accumulators; four registers of 32, or of 16, are left
    along = tuple(_along(access, row, column, term) for access in einsum.accesses)
    made = PackPlan(row, term, left, right, _negated(graph, root, left, right), along, height)
    # Sums and extrema alone keep one unit at work however they are loaded: packing would come on top.
    apart = any(not is_smooth(access, column) for access in einsum.accesses)
    return made if apart or not _PRODUCTS.isdisjoint(made.joined(graph, root)) else None


def _sides(graph: PrimitiveGraph, root: int, row: int, column: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The largest parts of a join that hang on rows or columns alone; None where there is more than little between."""
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
    few = joined <= _MOST_JOINED and 0 < len(left) <= _MOST_PACKED and 0 < len(right) <= _MOST_PACKED
    return (tuple(left), tuple(right)) if plain and few else None


def _negated(graph: PrimitiveGraph, root: int, left: tuple[int, ...], right: tuple[int, ...]) -> frozenset[int]:
    """Nodes of the right that are only ever taken from one of the left."""
    return frozenset(
        node
        for node in right
        if graph[node].dtype.is_float and all(of_left in left for of_left in _takers(graph, root, node))
    )


def _takers(graph: PrimitiveGraph, root: int, node: int) -> Iterator[int]:
    """What a node is taken from, for each node that reads it; -1 where it is not taken from anything."""
    if node == root:
        yield -1
    for n in (graph[k] for k in reachable_nodes(graph, [root])):
        if node in n.arguments:
            yield n.arguments[0] if n.op == "subtract" and n.arguments[0] != node else -1


def _along(access: Access, row: int, column: int, term: int) -> int:
    label = term if row in labels_read(access) else column
    return label if label in labels_read(access) and is_smooth(access, label) else -1


def is_smooth(access: Access, label: int) -> bool:
    """Whether a step along a label moves by nothing, or by one element."""
    steps = [(axis, c) for axis, p in enumerate(access) for q, c in terms(p) if q == label]
    return not steps or steps == [(len(access) - 1, 1)]
