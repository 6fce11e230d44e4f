"""Recomputed values are the same, whichever are chosen and in any allowed order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.recompute import recompute_spilled
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.check import check as check_tasks
from einturnip.taskgraph.types import TaskGraph
from tests.drawn import examples
from tests.memgraph.cases import MACHINE, arrays, decomposed, graph_of
from tests.memgraph.test_build import assert_same, drawn_order, least_capacity, names, tile_sizes
from tests.reference.eingraph import evaluate as evaluate_graph
from tests.reference.memgraph import evaluate

# Where spilling takes for ever, all that can be is made again.
SLOW = replace(MACHINE, spill_write=1.0, spill_read=1.0)
LAYERS = """
input X : f32[b, d], W : f32[L, d, d]
H[b,d] = X[b,d]
for l in 0 .. L {
  Z[b,j: d] = sum[i: d] H[b,i] * W[l,i,j]
  H[b,d] = Z[b,d] / (1 + exp(-Z[b,d]))
}
loss = sum[b,d] H[b,d]^2
g[l,i: d,j: d] = grad(loss, W[l,i,j])
output g
"""


def spilled(graph: MemGraph) -> int:
    return int((graph.kind == OpKind.OFFLOAD).sum())


@settings(max_examples=examples(30))
@given(names, tile_sizes, st.data())
def test_any_program_with_values_made_again(name: str, tiles: list[list[int]], data: st.DataObject) -> None:
    graph = graph_of(name)
    tasks: TaskGraph | None = build_tasks(decomposed(graph, tiles, 2000), SLOW)
    assert tasks is not None
    capacity = least_capacity(tasks) + data.draw(st.integers(0, 20)) * 64
    for _ in range(2):
        placed = build(tasks, capacity, SLOW)
        tasks = recompute_spilled(placed, SLOW, 0.0)
        if tasks is None:
            return
        check_tasks(tasks)
        capacity = max(capacity, least_capacity(tasks))
        again = build(tasks, capacity, SLOW)
        check(again)
        assert_same(evaluate(again, arrays(name), drawn_order(again, data)), evaluate_graph(graph, arrays(name)))


def test_values_that_are_spilled_between_two_of_their_pieces_stay_spilled() -> None:
    """In this chain, concatenated tensors leave memory and return before their last piece is copied into them."""
    tiles = [
        [1, 6, 2], [3, 4, 1], [1, 3, 6], [2, 3, 1], [5, 3, 6], [3, 2, 1],
        [2, 6, 1], [6, 1, 3], [5, 2, 2], [4, 4, 3], [6, 3, 3], [1, 1, 4],
    ]  # fmt: skip
    tasks: TaskGraph | None = build_tasks(decomposed(graph_of("chain"), tiles, 2000), SLOW)
    assert tasks is not None
    capacity = least_capacity(tasks)
    for _ in range(2):
        tasks = recompute_spilled(build(tasks, capacity, SLOW), SLOW, 0.0)
        assert tasks is not None
        check_tasks(tasks)
        capacity = max(capacity, least_capacity(tasks))


def test_activations_are_computed_again_and_results_stay_the_same() -> None:
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal(shape, np.float32) / 8 for shape in ((2048, 256), (3, 256, 256)))
    program = et.compile(LAYERS)
    assert "computed again: " in program.plan(X=X, W=W, arena="2MiB").explain()
    whole = program(X=X, W=W)["g"]
    np.testing.assert_allclose(program(X=X, W=W, arena="2MiB")["g"], whole, rtol=1e-4, atol=1e-4 * np.abs(whole).max())
