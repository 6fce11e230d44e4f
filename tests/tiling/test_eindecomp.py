"""EinDecomp against the paper's figures and against trying everything."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.eingraph.types import EinGraph, EinsumNode, Hints
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.node_tilings import tile_counts
from einturnip.tiling.partitionings import candidates
from einturnip.tiling.types import Decomposition
from tests.tiling.graphs import MATMUL, Terms, cost, counts_of, found, graph_of, least


@pytest.mark.parametrize(("parts", "best"), [(8, 5), (16, 7), (64, 11)])
def test_the_paper_s_figures_for_a_square_product(parts: int, best: int) -> None:
    size = 64
    graph = graph_of({"i": size, "j": size, "k": size}, MATMUL)
    assert found(graph, parts) == best * size * size
    ranked = sorted((cost(graph, {2: row}) // size**2, row) for row in counts_of((size,) * 3, parts))
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
            patch.setattr("einturnip.tiling.elimination.LARGEST_TABLE", 40)
            ratios.append(found(graph, parts) / exact)
    assert min(ratios) >= 1 and sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)


def test_what_the_program_fixes_stays_fixed() -> None:
    graph = graph_of({"i": 100, "j": 60, "k": 32}, MATMUL)

    def hinted(parts: int, *tiles: tuple[int, int]) -> Decomposition:
        product = graph.nodes[2]
        assert isinstance(product, EinsumNode)
        fixed = replace(product, hints=Hints(tiles=tiles))
        return eindecomp(replace(graph, nodes=(*graph.nodes[:2], fixed)), parts)

    one = hinted(12, (1, 8))  # k in tiles of 8: 4 parts; 3 are left
    assert one.partitionings[2].tiles[1] == 8 and math.prod(one.partitionings[2].counts) == 12 and not one.notes
    uneven = hinted(8, (0, 40))  # i in 40, 40, 20: 3 parts; 2 are left, 6 in all
    assert uneven.partitionings[2].tiles[0] == 40 and math.prod(uneven.partitionings[2].counts) == 6
    assert uneven.notes == ("line 1: X2 has 6 kernel calls, not 8: as @tile requires",)
    many = hinted(2, (0, 10))
    assert many.partitionings[2].counts == (10, 1, 1)


@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=4),
    st.integers(1, 130),
)
def test_every_number_of_parts_is_met_or_the_most_below(bounds: list[int], parts: int) -> None:
    tiles = candidates(tuple(bounds), parts)
    counts = tile_counts(bounds, tiles)
    got = set(counts.prod(1).tolist())
    assert len(got) == 1 and len({tuple(row) for row in counts.tolist()}) == len(counts)
    reachable = {1}
    for n in bounds:
        reachable = {r * -(-n // t) for r in reachable for t in range(1, n + 1)}
    assert got == {max(r for r in reachable if r <= parts)}
