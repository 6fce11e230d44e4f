"""Small graphs for the lower IRs: reuse, chains, states of several components, repartitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from einturnip.cost.machine import Machine
from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.lang import compile_text
from einturnip.tiling.equivalence import equivalence_classes
from einturnip.tiling.io_blocking import choose_block
from einturnip.tiling.label_classes import label_bounds, label_classes
from einturnip.tiling.types import Decomposition, Partitioning

MACHINE = Machine(workers=2)
Arrays = dict[str, np.ndarray[Any, Any]]

PRODUCT = """
input A : f32[i, j]
input B : f32[j, k]
C[i,k] = sum[j] A[i,j] * B[j,k]
output C
"""
CHAIN = """
input A : f32[i, j]
input B : f32[j, k]
C[i,k] = sum[j] A[i,j] * B[j,k]
D[i,l] = sum[k] C[i,k] * C[l,k]
m[l] = max[i] D[i,l] - i
a[i] = argmin[l] D[i,l] * (l - 3)
output D, m, a, C
"""
SOFTMAX = """
input X : f64[i, j]
P[i,j] = exp(X[i,j] - max[j] X[i,j])
Y[i,j] = P[i,j] / sum[j] P[i,j]
L[i] = logsumexp[j] X[i,j] * 2
M[j] = mean[i] X[i,j]
output Y, L, M
"""
PROGRAMS = {"product": PRODUCT, "chain": CHAIN, "softmax": SOFTMAX}


def arrays(name: str, seed: int = 0) -> Arrays:
    """Small integers, so that a sum has the same bits in any order."""
    rng = np.random.default_rng(seed)
    if name == "softmax":
        return {"X": rng.integers(-3, 4, (7, 11)).astype(np.float64)}
    return {"A": rng.integers(-3, 4, (9, 6)).astype(np.float32), "B": rng.integers(-3, 4, (6, 8)).astype(np.float32)}


def graph_of(name: str) -> EinGraph:
    """The rewritten graph of one of PROGRAMS."""
    shapes = {n: a.shape for n, a in arrays(name).items()}
    return rewrite(build(compile_text(PROGRAMS[name], f"{name}.ein"), shapes, {}, {}), None)


def decomposed(graph: EinGraph, tiles: list[list[int]], capacity: int) -> Decomposition:
    """Tile node i by ``tiles[i]`` (its first entries); operands may be tiled differently."""
    parts = []
    for i, node in enumerate(graph.nodes):
        bounds = label_bounds(node)
        parts.append(Partitioning(bounds, tuple(max(1, min(b, t)) for b, t in zip(bounds, tiles[i], strict=False))))
    together = equivalence_classes(graph, label_classes(graph))
    blocks = tuple(
        choose_block(together.groups[number], part, capacity)[0] if number >= 0 else None
        for number, part in zip(together.of, parts, strict=True)
    )
    return Decomposition(graph, tuple(parts), blocks)
