"""Small graphs of einsums, and what cutting them costs by the paper's formulas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Space
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved
from einturnip.tiling.node_tilings import tile_counts
from einturnip.tiling.partitionings import candidates

Terms = list[tuple[str, tuple[int, ...], list[str]]]


def graph_of(sizes: dict[str, int], nodes: Terms) -> EinGraph:
    """Nodes as (output labels, operands, operands' labels); no operands: an input. The last node is the output."""
    made: list[InputNode | EinsumNode] = []
    for number, (out, operands, accesses) in enumerate(nodes):
        if not operands:
            made.append(InputNode(f"X{number}", tuple(sizes[label] for label in out), F32, 1))
            continue
        summed = sorted({label for access in accesses for label in access} - set(out))
        order = [*out, *summed]
        slots: list[Scalar] = [OperandRef(slot, F32) for slot in range(len(operands))]
        join = slots[0] if len(slots) == 1 else ScalarCall("mul", (slots[0], slots[1]), F32)
        einsum = Einsum(
            tuple(order),
            tuple(sizes[label] for label in order),
            len(out),
            tuple(tuple(order.index(label) for label in access) for access in accesses),
            (F32,) * len(operands),
            join,
            aggregation("sum", F32) if summed else None,
        )
        made.append(EinsumNode(f"X{number}", einsum, operands, 1))
    return EinGraph(tuple(made), (("y", len(made) - 1),), "test")


def cost(graph: EinGraph, counts: dict[int, tuple[int, ...]]) -> int:
    """The paper's cost of a graph in elements, from its formulas; every bound is a multiple of every count."""
    total = 0
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, EinsumNode):
            continue
        e, d = node.einsum, counts[i]
        calls, groups = math.prod(d), math.prod(d[e.n_out :])

        def elements(positions: Iterable[Any], e: Space = e, d: tuple[int, ...] = d) -> int:
            return math.prod(e.bounds[p] // d[p] for p in positions)

        total += calls * sum(elements(a) for a in e.accesses)
        total += calls // groups * (groups - 1) * elements(tuple(range(e.n_out)))
        for operand, access in zip(node.operands, e.accesses, strict=True):
            source = graph.nodes[operand]
            if isinstance(source, EinsumNode):
                before, after = counts[operand][: source.einsum.n_out], tuple(d[p] for p in access)  # type: ignore[index]
                if before != after:
                    tiles = [
                        math.prod(b // c for b, c in zip(source.shape, cut, strict=True)) for cut in (before, after)
                    ]
                    total += sum(tiles) * math.prod(map(max, before, after))
    return total


def counts_of(bounds: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    """Every way to cut labels, as counts."""
    return [tuple(row) for row in tile_counts(bounds, candidates(bounds, parts)).tolist()]


def found(graph: EinGraph, parts: int) -> int:
    """The cost of what EinDecomp chooses."""
    decomposition = eindecomp(graph, parts)
    total = cost(graph, {i: p.counts for i, p in enumerate(decomposition.partitionings)})
    assert moved(decomposition).total == 4 * total
    return total


def least(graph: EinGraph, parts: int) -> int | None:
    """The least cost of all choices; None where there are too many to try."""
    einsums = {i: counts_of(n.einsum.bounds, parts) for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)}
    if math.prod(map(len, einsums.values())) > 4_000:
        return None
    return min(cost(graph, dict(zip(einsums, choice, strict=True))) for choice in product(*einsums.values()))


MATMUL: Terms = [("ij", (), []), ("jk", (), []), ("ik", (0, 1), ["ij", "jk"])]
