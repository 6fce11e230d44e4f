"""EinDecomp against the paper's figures and against trying everything."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import F32
from einturnip.core.einsum import Einsum
from einturnip.core.region import Space
from einturnip.core.scalar import Call, Operand, Scalar
from einturnip.decomp.candidates import candidates
from einturnip.decomp.chain import fold
from einturnip.decomp.eindecomp import NEARLY, _adapted, eindecomp
from einturnip.decomp.movement import moved
from einturnip.decomp.repeats import Edges, runs
from einturnip.decomp.twins import merged
from einturnip.decomp.types import Decomposition
from einturnip.decomp.ways import counted
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, Hints, InputNode, Piece

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
    return [tuple(row) for row in counted(bounds, candidates(bounds, parts)).tolist()]


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
            patch.setattr("einturnip.decomp.elimination.LARGEST_TABLE", 40)
            ratios.append(found(graph, parts) / exact)
    assert min(ratios) >= 1 and sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)


def layered(draw: random.Random, layers: int) -> EinGraph:
    """A drawn layer again and again: each reads what the one before hands on, some a tensor that all of them read."""
    labels = "abcd"
    sizes = dict.fromkeys(labels, 12)
    nodes: Terms = [("ab", (), []), ("bc", (), []), ("ac", (0, 1), ["ab", "bc"])]
    shared = len(nodes) - 1
    handed = [shared] * draw.randint(1, 2)
    plan: list[tuple[int, int, str, bool]] = []
    for k in range(draw.randint(2, 4)):
        plan.append(
            (
                draw.randint(-len(handed), k - 1),
                draw.randint(-len(handed), k - 1),
                draw.choice(labels),
                draw.random() < 0.3,
            )
        )
    for _ in range(layers):
        made: list[int] = []
        for left, right, label, outer in plan:
            pair = [made[x] if x >= 0 else handed[x] for x in (left, right)]
            pair = [pair[0], shared] if outer else pair
            nodes.append(("a" + label, (), []))
            pair = [pair[0], len(nodes) - 1] if pair[0] == pair[1] else pair
            together = sorted(set(nodes[pair[0]][0] + nodes[pair[1]][0]))
            nodes.append(("".join(together[:2]), tuple(pair), [nodes[x][0] for x in pair]))
            made.append(len(nodes) - 1)
        handed = made[-len(handed) :]
    return graph_of(sizes, nodes)


def test_layers_that_repeat_cost_what_they_cost_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []

    def noted(*arguments: Any) -> Any:
        found = fold(*arguments)
        folded.append(found)
        return found

    monkeypatch.setattr("einturnip.decomp.eindecomp.fold", noted)
    for seed in range(40):
        draw = random.Random(seed)
        graph, parts = layered(draw, draw.randint(4, 9)), draw.choice([2, 3, 4, 6])
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.decomp.eindecomp.runs", lambda *_: [])
            assert quick == found(graph, parts), f"seed {seed}"
    assert sum(f is not None for f in folded) > 20


@pytest.mark.parametrize("layers", [2, 3])
def test_two_layers_are_solved_as_one(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []

    def noted(*arguments: Any) -> Any:
        folded.append(fold(*arguments))
        return folded[-1]

    monkeypatch.setattr("einturnip.decomp.eindecomp.fold", noted)
    monkeypatch.setattr("einturnip.decomp.repeats.LONG", 2)
    for seed in range(40):
        draw = random.Random(seed)
        graph, parts = layered(draw, layers), draw.choice([2, 3, 4, 6])
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.decomp.eindecomp.runs", lambda *_: [])
            assert quick == found(graph, parts), f"seed {seed}"
    assert any(f is not None and f.times == layers for f in folded)


def twinned(draw: random.Random) -> EinGraph:
    """Two or three products of one tensor with weights of their own, or tables made of it, all read by one einsum."""
    copies, summed = draw.randint(2, 3), draw.random() < 0.5
    nodes: Terms = [("ab", (), []), ("bc", (), []), ("ac", (0, 1), ["ab", "bc"])]
    made = []
    for _ in range(copies):
        if summed:
            nodes.append(("cd", (), []))
            nodes.append(("ad", (2, len(nodes) - 1), ["ac", "cd"]))
        else:
            nodes.append(("ac", (2,), ["ac"]))
        made.append(len(nodes) - 1)
    own = nodes[-1][0]
    nodes.append((own, tuple(made), [own] * copies))
    nodes.append((own[1], (len(nodes) - 1,), [own]))
    return graph_of(dict.fromkeys("abcd", 12), nodes)


def test_nodes_that_are_alike_in_all_they_touch_are_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    variables: list[int] = []

    def noted(*arguments: Any) -> Any:
        result = merged(*arguments)
        variables.append(len(arguments[0]) - len(result[1]))
        return result

    monkeypatch.setattr("einturnip.decomp.eindecomp.merged", noted)
    for seed in range(20):
        draw = random.Random(seed)
        graph, parts = twinned(draw), draw.choice([2, 3, 4, 6])
        best = least(graph, parts)
        assert best is None or found(graph, parts) == best, f"seed {seed}"
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.decomp.eindecomp.merged", lambda k, _, edges: (np.arange(len(k)), k, edges))
            assert quick == found(graph, parts), f"seed {seed}"
    assert set(variables) == {1, 2}


def gathered(draw: random.Random, layers: int) -> EinGraph:
    """Layers as above, and one tensor that keeps what each of them hands on, as keys and values are kept."""
    graph = layered(draw, layers)
    step = (len(graph.nodes) - 3) // layers
    last = range(len(graph.nodes) - 1 - (layers - 1) * step, len(graph.nodes), step)
    shape = graph.nodes[last[0]].shape
    axes = tuple(range(1, len(shape) + 1))
    pieces = tuple(Piece(node, axes, (k, *[0] * len(shape))) for k, node in enumerate(last))
    kept = ConcatNode("kept", (layers, *shape), F32, pieces, 1)
    return replace(graph, nodes=(*graph.nodes, kept), outputs=(("kept", len(graph.nodes)),))


@pytest.mark.parametrize(("graph_with", "fewest"), [(layered, 1), (gathered, 11)])
def test_what_many_read_or_are_kept_in_is_cut_off_where_that_costs_next_to_nothing(
    graph_with: Callable[[random.Random, int], EinGraph], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted = []

    def noted(*arguments: Any) -> Any:
        adapted.append(_adapted(*arguments))
        return adapted[-1]

    monkeypatch.setattr("einturnip.decomp.eindecomp._adapted", noted)
    for seed in range(30):
        draw = random.Random(seed)
        graph, parts = graph_with(draw, draw.randint(10, 14)), draw.choice([2, 3, 4, 6])
        quick = moved(eindecomp(graph, parts)).total
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.decomp.eindecomp.MOST_READERS", len(graph.nodes) * 3)
            exact = moved(eindecomp(graph, parts)).total
        assert exact <= quick <= NEARLY * exact, f"seed {seed}"
    assert fewest <= sum(rows is not None for rows in adapted) and (graph_with is gathered or None in adapted)


def sharing(layers: int, apart: bool) -> EinGraph:
    """Layers that all read one tensor and of which another keeps a part; ``apart``: outside of all layers' nodes."""
    nodes: Terms = [("ab", (), []), ("ab", (0,), ["ab"])]
    if apart:
        nodes.append(("a", (0,), ["ab"]))
    handed, shared = 1, 2 if apart else 4
    parts = []
    for k in range(layers):
        nodes.append(("bc", (), []))
        nodes.append(("ac", (handed, len(nodes) - 1), ["ab", "bc"]))
        parts.append(len(nodes) - 1)
        if k == 0 and not apart:
            nodes.append(("a", (0,), ["ab"]))
        if k < layers - 1 or apart:
            nodes.append(("ac", (parts[-1], shared), ["ac", "a"]))
            handed = len(nodes) - 1
    graph = graph_of(dict.fromkeys("abc", 12), nodes)
    kept = ConcatNode("kept", (layers, 12, 12), F32, tuple(Piece(u, (1, 2), (k, 0, 0)) for k, u in enumerate(parts)), 1)
    graph = replace(graph, nodes=(*graph.nodes, kept))
    if not apart:
        last = graph_of(dict.fromkeys("abc", 12), [("ac", (), []), ("a", (), []), ("ac", (0, 1), ["ac", "a"])]).nodes[2]
        assert isinstance(last, EinsumNode)
        graph = replace(graph, nodes=(*graph.nodes, replace(last, operands=(parts[-1], shared))))
    return graph


@pytest.mark.parametrize("layers", [3, 4, 12])
@pytest.mark.parametrize("apart", [True, False])
def test_layers_are_solved_once_wherever_the_program_has_what_they_share(
    apart: bool, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated: list[tuple[int, int]] = []

    def noted(*arguments: Any) -> Any:
        found = runs(*arguments)
        repeated.extend((run.period, run.times) for run in found)
        return found

    monkeypatch.setattr("einturnip.decomp.eindecomp.runs", noted)
    decomposition = eindecomp(sharing(layers, apart), 4)
    assert repeated[0] == (2, layers)
    other = eindecomp(sharing(layers, not apart), 4)
    assert moved(decomposition).total == moved(other).total


def test_layers_that_differ_in_what_they_read_are_not_taken_for_one_another() -> None:
    kinds = [0, 0, *[1, 2] * 6]
    for lacking in range(2, 14):  # every layer reads both of the first nodes, but for one operand of one node
        slots = [[-1], [-1]] + [[max(0, v - 1), v % 2] for v in range(2, 14)]
        assert [(run.start, run.period, run.times) for run in runs(kinds, Edges.of(slots))] == [(2, 2, 6)]
        slots[lacking] = [slots[lacking][0], -1]
        found = runs(kinds, Edges.of(slots))
        assert all(lacking not in range(run.start, run.stop) for run in found)


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
    assert uneven.notes == ("line 1: X2 has 6 kernel calls, not 8: as @tile asks",)
    many = hinted(2, (0, 10))
    assert many.partitionings[2].counts == (10, 1, 1)


@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=4),
    st.integers(1, 130),
)
def test_every_number_of_parts_is_met_or_the_most_below(bounds: list[int], parts: int) -> None:
    tiles = candidates(tuple(bounds), parts)
    counts = counted(bounds, tiles)
    got = set(counts.prod(1).tolist())
    assert len(got) == 1 and len({tuple(row) for row in counts.tolist()}) == len(counts)
    reachable = {1}
    for n in bounds:
        reachable = {r * -(-n // t) for r in reachable for t in range(1, n + 1)}
    assert got == {max(r for r in reachable if r <= parts)}
