"""Bytes that plans move: halos once, only the needed slices, loop rows per step, pieces without a copy."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.eingraph.types import EinGraph, Hints, TensorPiece
from einturnip.ir.einsum import Index
from einturnip.memgraph.build import build as place
from einturnip.memgraph.check import check as check_memgraph
from einturnip.memgraph.types import OpKind
from einturnip.planner.budget import PlanningMemory
from einturnip.planner.io_lower_bound import io_lower_bound
from einturnip.planner.request import GraphRequest
from einturnip.planner.variants import LoweredPlan, plan
from einturnip.taskgraph.build import build
from einturnip.taskgraph.check import check
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling.build import decompose
from einturnip.tiling.label_classes import label_classes
from tests.memgraph.cases import MACHINE
from tests.reference.memgraph import evaluate as evaluate_memgraph
from tests.taskgraph.graphs import Maker, arrays, reference

IN, OUT = "disk->cpu:0", "cpu:0->disk"


def planned(graph: EinGraph, arena: int) -> LoweredPlan:
    """The plan, proven on every floor; its values are compared where the graph is small."""
    lowered = plan(GraphRequest(graph, PlanningMemory(None, arena), MACHINE))
    check(lowered.memgraph.taskgraph)
    check_memgraph(lowered.memgraph)
    if len(lowered.memgraph) < 1000:
        inputs = arrays(graph)
        result = evaluate_memgraph(lowered.memgraph, inputs)
        for name, expected in reference(graph, inputs).items():
            np.testing.assert_array_equal(result[name], expected)
    return lowered


def count(lowered: LoweredPlan, kind: OpKind) -> int:
    return int((lowered.memgraph.kind == kind).sum())


def convolution(n: int, k: int) -> EinGraph:
    make = Maker()
    x, w = make.input(n, n), make.input(k, k)
    size = n - k + 1
    window = (Index(((0, 1), (2, 1))), Index(((1, 1), (3, 1))))
    return make.graph(make.einsum((size, size, k, k), 2, [(x, window), (w, (2, 3))], "sum"))


@pytest.mark.parametrize("arena", [64 << 10, 256 << 10, 8 << 20])
def test_a_convolution_reads_its_input_about_once(arena: int) -> None:
    graph = convolution(128, 5)
    moved = planned(graph, arena).memgraph.nbytes_by_link()
    bound = io_lower_bound(graph, arena)
    assert bound[IN] == (128 * 128 + 25) * 8
    assert bound[IN] <= moved[IN] <= 1.25 * bound[IN]
    assert bound[OUT] <= moved[OUT] <= 1.25 * bound[OUT]


def stencil(n: int, steps: int) -> EinGraph:
    """Each step multiplies each point by those above and below."""
    make = Maker()
    x = make.input(n, n)
    for _ in range(steps):
        around = [(x, (Index(((0, 1),), by, clamped=True), 1)) for by in (-1, 1)]
        x = make.einsum((n, n), 2, [(x, (0, 1)), *around])
    return make.graph(x)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("arena", [64 << 10, 256 << 10])
def test_what_a_stencil_reads_in_several_places_is_read_once(arena: int, steps: int) -> None:
    graph = stencil(256, steps)
    moved = planned(graph, arena).memgraph.nbytes_by_link()
    assert io_lower_bound(graph, arena)[IN] <= moved[IN] <= 1.1 * 256 * 256 * 8


def recurrence(steps: int, width: int) -> tuple[EinGraph, int]:
    """``H[t, d] = sum[e] W[l, d, e] * H[t-1, e]``, where each step has its W and all of H is wanted."""
    make = Maker()
    start, w = make.input(width), make.input(steps, width, width)
    h = make.einsum((width,), 1, [(start, (0,))])
    rows = []
    for t in range(steps):
        h = make.einsum((width, width), 1, [(w, (Index((), t), 0, 1)), (h, (1,))], "sum")
        rows.append(TensorPiece(h, (1,), (t, 0)))
    return make.graph(make.concat((steps, width), rows)), h


@pytest.mark.parametrize("arena", [6 << 10, 1 << 20])
def test_the_steps_of_a_loop_move_what_is_new_in_each(arena: int) -> None:
    graph, _ = recurrence(200, 16)
    lowered = planned(graph, arena)
    assert lowered.memgraph.nbytes_by_link() == {IN: (16 + 200 * 256) * 8, OUT: 200 * 16 * 8}
    assert lowered.memgraph.nbytes_by_link() == io_lower_bound(graph, arena)
    assert not (lowered.memgraph.taskgraph.kind == TaskKind.MOVE).any()


def test_a_replaced_row_costs_one_tile() -> None:
    """``X[t, :] = 2 x``, X read whole each time: other tiles are the old ones."""
    make = Maker()
    n, width = 64, 8
    source = make.input(n, width)
    x = make.einsum((n, width), 2, [(source, (0, 1))], hints=Hints(tiles=((0, 4),)))
    sums = []
    for t in range(0, n, 4):
        row = make.einsum((width,), 1, [(x, (Index((), t), 0)), (x, (Index((), t), 0))][:1])
        whole = TensorPiece(x, (0, 1), (0, 0))
        x = make.concat((n, width), [whole, TensorPiece(row, (1,), (t, 0))])
        sums.append(make.einsum((width, n), 1, [(x, (1, 0))], "sum"))
    lowered = planned(make.graph(*sums), 1 << 20)
    tasks = lowered.memgraph.taskgraph
    moves = np.flatnonzero(tasks.kind == TaskKind.MOVE)
    assert len(np.unique(tasks.value[moves])) == len(sums)
    assert (tasks.value_nbytes[tasks.value[moves]] == 4 * width * 8).all()


def test_pieces_of_an_output_are_stored_where_they_stand() -> None:
    make = Maker()
    a, b = make.input(40, 8), make.input(24, 8)
    left = make.einsum((40, 8), 2, [(a, (0, 1))])
    right = make.einsum((24, 8), 2, [(b, (0, 1))])
    pieces = [TensorPiece(left, (0, 1), (0, 0)), TensorPiece(b, (0, 1), (40, 0)), TensorPiece(right, (0, 1), (64, 0))]
    lowered = planned(make.graph(make.concat((88, 8), pieces)), 2 << 10)
    assert not count(lowered, OpKind.MOVE)
    assert lowered.memgraph.nbytes_by_link() == {IN: (40 + 24 + 24) * 64, OUT: 88 * 64}


def test_a_box_of_many_tiles_needs_one_of_them_at_a_time() -> None:
    """The copy of a large part holds the part and one tile, so it fits where the kernel fits."""
    make = Maker()
    x = make.input(64, 64)
    y = make.einsum((64, 64), 2, [(x, (0, 1))], hints=Hints(tiles=((0, 2), (1, 2))))
    # An index by a modulus leaves the labels to themselves: they are not cut with the axes.
    around = (Index(((0, 1),), 0, 1, 64), Index(((1, 1),), 0, 1, 64))
    graph = make.graph(make.einsum((64, 64), 1, [(y, around)], "sum"))
    lowered = planned(graph, 40 << 10)
    tasks = lowered.memgraph.taskgraph
    moves = np.flatnonzero(tasks.kind == TaskKind.MOVE)
    assert len(moves) > len(np.unique(tasks.value[moves]))


def test_a_large_tensor_read_row_by_row_is_made_row_by_row() -> None:
    make = Maker()
    n, width = 8, 128
    w = make.input(n, width, width)
    twice = make.einsum((n, width, width), 3, [(w, (0, 1, 2)), (w, (0, 2, 1))])
    outs = [make.einsum((width, width), 1, [(twice, (Index((), t), 0, 1))], "sum") for t in (2, 5)]
    lowered = planned(make.graph(*outs), 2 << 20)
    assert lowered.decomposition.partitionings[twice].tiles[0] == 1
    assert lowered.memgraph.nbytes_by_link()[IN] == 2 * width * width * 8


def test_hints_fix_tiles_until_they_do_not_fit() -> None:
    make = Maker()
    x = make.input(256, 256)
    y = make.einsum((256, 256), 2, [(x, (0, 1))], hints=Hints(tiles=((0, 32), (1, 256))))
    z = make.einsum((256, 256), 2, [(y, (0, 1))], hints=Hints(tiles=((0, 16),)))
    graph = make.graph(z)
    lowered = planned(graph, 4 << 20)
    assert lowered.decomposition.partitionings[z].tiles == (32, 256)
    assert lowered.decomposition.notes == (
        "line 3: @tile(a = 16) is ignored, because line 2 already fixes the tile of these axes",
    )
    small = planned(graph, 32 << 10)
    assert any("which fits the memory" in note for note in small.decomposition.notes)


@pytest.mark.parametrize("keep", [False, True])
def test_a_kept_tensor_stays_where_others_can_go(keep: bool) -> None:
    """Of six that idle through a chain of steps, the one wanted last goes first, unless it is kept."""
    make = Maker()
    shape = (64, 16)
    idle = [make.einsum(shape, 2, [(make.input(*shape), (0, 1))], hints=Hints(keep=keep and n == 5)) for n in range(6)]
    last = make.einsum(shape, 2, [(make.input(*shape), (0, 1))])
    for node in [*idle[::-1], *idle[:5], *idle[:5], idle[5]]:
        last = make.einsum(shape, 2, [(last, (0, 1)), (node, (0, 1))])
    graph = make.graph(last)
    classes = label_classes(graph)
    capacity = 64 << 10
    tasks = build(decompose(graph, classes, classes.coarsest, capacity), MACHINE)
    placed = place(tasks, capacity, MACHINE)
    check_memgraph(placed)
    brought = placed.read[placed.read_ptr[:-1][placed.kind == OpKind.RELOAD], 3]
    reloads = np.bincount(tasks.value_node[brought], minlength=len(graph.nodes))[idle]
    assert reloads.sum() > 0
    assert (reloads[5] == 0) == keep


def test_heads_split_and_merged_are_cut_alike() -> None:
    """``(h e)`` is cut where h is, so that no tile is put together from others."""
    make = Maker()
    s, h, e = 32, 4, 8
    x = make.einsum((s, h * e), 2, [(make.input(s, h * e), (0, 1))])
    split = Index(((0, e), (3, 1)))
    scores = make.einsum((h, s, s, e), 3, [(x, (1, split)), (x, (2, split))], "sum")
    heads = make.einsum((h, s, e, s), 3, [(scores, (0, 1, 3)), (x, (3, Index(((0, e), (2, 1)))))], "sum")
    merged = (Index(((1, 1),), 0, e), 0, Index(((1, 1),), 0, 1, e))
    graph = make.graph(make.einsum((s, h * e), 2, [(heads, merged)]))
    lowered = planned(graph, 24 << 10)
    assert max(part.counts[0] for part in lowered.decomposition.partitionings) > 1
    assert not count(lowered, OpKind.MOVE)


def test_tiles_outside_of_what_others_read_are_not_made() -> None:
    make = Maker()
    x = make.input(200, 200)
    product = make.einsum((200, 200, 200), 2, [(x, (0, 2)), (x, (2, 1))], "sum")
    graph = make.graph(make.einsum((200,), 1, [(product, (Index((), 3), 0))]))
    tasks = planned(graph, 64 << 10).memgraph.taskgraph
    made = [tasks.get_value(v).box[0] for v in np.flatnonzero(tasks.value_node == product).tolist()]
    assert made and all(low <= 3 < high for low, high in made)
