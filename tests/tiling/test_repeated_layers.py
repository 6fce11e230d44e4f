"""EinDecomp on graphs with repeated parts: layers, equal nodes, and tensors that many of them read."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, TensorPiece
from einturnip.ir.dtypes import F32
from einturnip.tiling.eindecomp import _adapt, eindecomp
from einturnip.tiling.movement import moved
from einturnip.tiling.repeated_layers import fold_layers
from einturnip.tiling.repeats import ReadEdges, runs
from einturnip.tiling.symmetric_nodes import merge_symmetric
from einturnip.tuning.search import MAX_GAP
from tests.tiling.graphs import Terms, found, graph_of, least


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
        found = fold_layers(*arguments)
        folded.append(found)
        return found

    monkeypatch.setattr("einturnip.tiling.eindecomp.fold_layers", noted)
    for seed in range(40):
        draw = random.Random(seed)
        graph, parts = layered(draw, draw.randint(4, 9)), draw.choice([2, 3, 4, 6])
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.tiling.eindecomp.runs", lambda *_: [])
            assert quick == found(graph, parts), f"seed {seed}"
    assert sum(f is not None for f in folded) > 20


@pytest.mark.parametrize("layers", [2, 3])
def test_two_layers_are_solved_as_one(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []

    def noted(*arguments: Any) -> Any:
        folded.append(fold_layers(*arguments))
        return folded[-1]

    monkeypatch.setattr("einturnip.tiling.eindecomp.fold_layers", noted)
    monkeypatch.setattr("einturnip.tiling.repeats.LONG_SEGMENT", 2)
    for seed in range(40):
        draw = random.Random(seed)
        graph, parts = layered(draw, layers), draw.choice([2, 3, 4, 6])
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.tiling.eindecomp.runs", lambda *_: [])
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
        result = merge_symmetric(*arguments)
        variables.append(len(arguments[0]) - len(result[1]))
        return result

    monkeypatch.setattr("einturnip.tiling.eindecomp.merge_symmetric", noted)
    for seed in range(20):
        draw = random.Random(seed)
        graph, parts = twinned(draw), draw.choice([2, 3, 4, 6])
        best = least(graph, parts)
        assert best is None or found(graph, parts) == best, f"seed {seed}"
        quick = found(graph, parts)
        with monkeypatch.context() as patch:
            patch.setattr(
                "einturnip.tiling.eindecomp.merge_symmetric", lambda k, _, edges: (np.arange(len(k)), k, edges)
            )
            assert quick == found(graph, parts), f"seed {seed}"
    assert set(variables) == {1, 2}


def gathered(draw: random.Random, layers: int) -> EinGraph:
    """Layers as above, and one tensor that keeps what each of them hands on, as keys and values are kept."""
    graph = layered(draw, layers)
    step = (len(graph.nodes) - 3) // layers
    last = range(len(graph.nodes) - 1 - (layers - 1) * step, len(graph.nodes), step)
    shape = graph.nodes[last[0]].shape
    axes = tuple(range(1, len(shape) + 1))
    pieces = tuple(TensorPiece(node, axes, (k, *[0] * len(shape))) for k, node in enumerate(last))
    kept = ConcatNode("kept", (layers, *shape), F32, pieces, 1)
    return replace(graph, nodes=(*graph.nodes, kept), outputs=(("kept", len(graph.nodes)),))


@pytest.mark.parametrize(("graph_with", "fewest"), [(layered, 1), (gathered, 11)])
def test_what_many_read_or_are_kept_in_is_cut_off_where_that_costs_next_to_nothing(
    graph_with: Callable[[random.Random, int], EinGraph], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted = []

    def noted(*arguments: Any) -> Any:
        adapted.append(_adapt(*arguments))
        return adapted[-1]

    monkeypatch.setattr("einturnip.tiling.eindecomp._adapt", noted)
    for seed in range(30):
        draw = random.Random(seed)
        graph, parts = graph_with(draw, draw.randint(10, 14)), draw.choice([2, 3, 4, 6])
        quick = moved(eindecomp(graph, parts)).total
        with monkeypatch.context() as patch:
            patch.setattr("einturnip.tiling.eindecomp.MAX_READERS", len(graph.nodes) * 3)
            exact = moved(eindecomp(graph, parts)).total
        assert exact <= quick <= MAX_GAP * exact, f"seed {seed}"
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
    kept = ConcatNode(
        "kept", (layers, 12, 12), F32, tuple(TensorPiece(u, (1, 2), (k, 0, 0)) for k, u in enumerate(parts)), 1
    )
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

    monkeypatch.setattr("einturnip.tiling.eindecomp.runs", noted)
    decomposition = eindecomp(sharing(layers, apart), 4)
    assert repeated[0] == (2, layers)
    other = eindecomp(sharing(layers, not apart), 4)
    assert moved(decomposition).total == moved(other).total


def test_layers_that_differ_in_what_they_read_are_not_taken_for_one_another() -> None:
    kinds = [0, 0, *[1, 2] * 6]
    for lacking in range(2, 14):  # every layer reads both of the first nodes, but for one operand of one node
        slots = [[-1], [-1]] + [[max(0, v - 1), v % 2] for v in range(2, 14)]
        assert [(run.start, run.period, run.times) for run in runs(kinds, ReadEdges.of(slots))] == [(2, 2, 6)]
        slots[lacking] = [slots[lacking][0], -1]
        found = runs(kinds, ReadEdges.of(slots))
        assert all(lacking not in range(run.start, run.stop) for run in found)
