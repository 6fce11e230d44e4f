"""Large plans in drawn orders give the same bits as in serial order."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import pytest

from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.lang import compile_text
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.types import MemGraph
from einturnip.runtime.scheduler.state_machine import successors
from einturnip.taskgraph.build import build as build_tasks
from tests.memgraph.cases import MACHINE, decomposed
from tests.reference.memgraph import evaluate

TEXT = """input A : f32[i, k]
input B : f32[k, j]
C[i,j] = sum[k] A[i,k] * B[k,j]
D[i,j] = sum[k] C[i,k] * B[k,j]
r[i] = max[j] D[i,j]
output C, D, r
"""


def order(graph: MemGraph, seed: int) -> list[int]:
    """Draws any ready op, or prefers those that became ready first, or last."""
    rng, left, out, heap = np.random.default_rng(seed), np.diff(graph.after_ptr).tolist(), [], list[tuple[float, int]]()
    ptr, waiting = successors(graph)
    ready = [i for i, n in enumerate(left) if not n]
    for n in range(len(graph)):
        for i in ready:
            heappush(heap, ((0, n, -n)[seed % 3] + 50 * rng.random(), i))
        op = heappop(heap)[1]
        out.append(op)
        ready = []
        for s in waiting[ptr[op] : ptr[op + 1]]:
            left[s] -= 1
            if not left[s]:
                ready.append(s)
    return out


@pytest.mark.parametrize(
    ("side", "tile", "capacity", "draws"),
    [(24, 4, 2000, 3), pytest.param(96, 4, 24_000, 3, marks=pytest.mark.slow)],
)
def test_any_order_of_a_large_plan_gives_the_same_bits(side: int, tile: int, capacity: int, draws: int) -> None:
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-2, 3, (side, side)).astype(np.float32) for name in "AB"}
    graph = build_graph(compile_text(TEXT, "large.ein"), {n: a.shape for n, a in inputs.items()}, {}, {})
    graph = rewrite(graph, None)
    tasks = build_tasks(decomposed(graph, [[tile] * 3] * len(graph.nodes), capacity), MACHINE)
    plan = build(tasks, capacity, MACHINE)
    check(plan)
    assert plan.spill_nbytes
    C = inputs["A"] @ inputs["B"]
    D = C @ inputs["B"]
    for seed in range(draws):
        found = evaluate(plan, inputs, order(plan, seed))
        for name, expected in {"C": C, "D": D, "r": D.max(1)}.items():
            np.testing.assert_array_equal(found[name], expected)
