"""EinDecomp against the paper's figures and against trying everything."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import F32
from einturnip.core.einsum import Einsum
from einturnip.core.scalar import Call, Operand, Scalar
from einturnip.decomp.eindecomp import candidates, eindecomp
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode

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
        slots: list[Scalar] = [Operand(slot, F32) for slot in range(len(operands))]
        join = slots[0] if len(slots) == 1 else Call("mul", (slots[0], slots[1]), F32)
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

        def elements(positions: tuple[int, ...], e: Einsum = e, d: tuple[int, ...] = d) -> int:
            return math.prod(e.bounds[p] // d[p] for p in positions)

        total += calls * sum(elements(a) for a in e.accesses)  # type: ignore[arg-type]
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


def found(graph: EinGraph, parts: int) -> int:
    """The cost of what EinDecomp chooses."""
    decomposition = eindecomp(graph, parts)
    return cost(graph, {i: p.counts for i, p in enumerate(decomposition.partitionings)})


def least(graph: EinGraph, parts: int) -> int | None:
    """The least cost of all choices; None where there are too many to try."""
    einsums = {i: candidates(n.einsum.bounds, parts) for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)}
    if math.prod(map(len, einsums.values())) > 4_000:
        return None
    rows = [[tuple(map(int, row)) for row in table] for table in einsums.values()]
    return min(cost(graph, dict(zip(einsums, choice, strict=True))) for choice in product(*rows))


MATMUL: Terms = [("ij", (), []), ("jk", (), []), ("ik", (0, 1), ["ij", "jk"])]


@pytest.mark.parametrize(("parts", "best"), [(8, 5), (16, 7), (64, 11)])
def test_the_paper_s_figures_for_a_square_product(parts: int, best: int) -> None:
    size = 64
    graph = graph_of({"i": size, "j": size, "k": size}, MATMUL)
    assert found(graph, parts) == best * size * size
    ranked = sorted(
        (cost(graph, {2: tuple(map(int, row))}) // size**2, tuple(map(int, row)))
        for row in candidates((size,) * 3, parts)
    )
    if parts == 8:
        assert ranked[0] == (5, (2, 2, 2)) and ranked[1][0] == 6
        assert cost(graph, {2: (8, 1, 1)}) == 9 * size * size
    elif parts == 16:
        assert [value for value, _ in ranked[:4]] == [7, 7, 7, 8]
    else:
        assert ranked[0][1] == (4, 4, 4)


def drawn(draw: random.Random, shared: bool) -> EinGraph:
    """A random tree of contractions over five labels, or, ``shared``, a DAG in which tensors are used twice."""
    labels = "abcde"
    sizes = dict.fromkeys(labels, 12)
    nodes: Terms = []
    loose: list[int] = []

    def take() -> int:
        inner = [i for i, n in enumerate(nodes) if n[1]]
        if shared and inner and draw.random() < 0.5:
            return draw.choice(inner)
        if loose and draw.random() < 0.8:
            return loose.pop(draw.randrange(len(loose)))
        nodes.append(("".join(draw.sample(labels, draw.randint(1, 2))), (), []))
        return len(nodes) - 1

    for _ in range(draw.randint(2, 7)):
        left, right = take(), take()
        together = sorted(set(nodes[left][0] + nodes[right][0]))
        out = "".join(draw.sample(together, min(len(together), draw.randint(1, 2))))
        accesses = [nodes[left][0], nodes[right][0]]
        operands = (left, right) if left != right else (left,)
        nodes.append((out, operands, accesses[: len(operands)]))
        loose.append(len(nodes) - 1)
    while len(loose) > 1:
        left, right = loose.pop(0), loose.pop(0)
        out = "".join(sorted(set(nodes[left][0] + nodes[right][0]))[:2])
        nodes.append((out, (left, right), [nodes[left][0], nodes[right][0]]))
        loose.append(len(nodes) - 1)
    return graph_of(sizes, nodes)


@pytest.mark.parametrize("shared", [False, True])
def test_as_good_as_trying_everything(shared: bool) -> None:
    tried = 0
    for seed in range(200):
        draw = random.Random(seed)
        graph, parts = drawn(draw, shared), draw.choice([2, 3, 4, 6])
        best = least(graph, parts)
        if best is not None:
            tried += 1
            assert found(graph, parts) == best, f"seed {seed}"
    assert tried > 40


def test_counts_need_not_divide_the_bound_and_short_labels_take_what_they_can() -> None:
    graph = graph_of({"i": 10, "j": 7, "k": 1}, MATMUL)
    assert math.prod(eindecomp(graph, 5).partitionings[2].counts) == 5
    small = graph_of({"i": 2, "j": 1, "k": 1}, MATMUL)
    assert eindecomp(small, 64).partitionings[2].counts == (2, 1, 1)


def test_where_tables_may_not_grow_a_guess_comes_close(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    for seed in range(60):
        draw = random.Random(seed)
        graph, parts = drawn(draw, True), draw.choice([2, 3, 4])
        exact = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.decomp.elimination.LARGEST_TABLE", 40)
            ratios.append(found(graph, parts) / exact)
    assert min(ratios) >= 1 and sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)
