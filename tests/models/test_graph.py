"""Graph attention compared with the same in NumPy, vertex by vertex, on a drawn graph and on a published one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import einturnip as et

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "models" / "graph_attention.ein"


def _drawn() -> NDArray[np.int64]:
    """Edges of 30 vertices, from each to itself among them."""
    drawn, n = np.random.default_rng(2), 30
    return np.array([(s, t) for t in range(n) for s in range(n) if s == t or drawn.random() < 0.15])


def _published() -> NDArray[np.int64]:
    """The 77 characters of Les Miserables, both ways, and from each to itself."""
    pairs = np.loadtxt(PROGRAM.with_suffix(".csv"), np.int64, delimiter=",")
    same = np.arange(pairs.max() + 1)
    return np.concatenate([pairs, pairs[:, ::-1], np.stack([same, same], 1)])


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "32KiB"}])
@pytest.mark.parametrize("edges", [_drawn(), _published()], ids=["drawn", "published"])
def test_each_vertex_attends_to_where_its_edges_come_from(edges: NDArray[np.int64], settings: dict[str, str]) -> None:
    drawn, n, d = np.random.default_rng(2), int(edges.max()) + 1, 6
    x, w = drawn.standard_normal((n, d)), drawn.standard_normal((8, d, 8))
    a, b = drawn.standard_normal((2, 8, 8))
    data = {name: array.astype(np.float32) for name, array in {"X": x, "W": w, "a": a, "b": b}.items()}
    found = et.compile(PROGRAM)(**data, source=edges[:, 0], target=edges[:, 1], **settings)["Y"]
    for head in range(8):
        z = x @ w[head]
        for vertex in range(n):
            near = edges[edges[:, 1] == vertex, 0]
            s = z[near] @ a[head] + z[vertex] @ b[head]
            p = np.exp(np.where(s > 0, s, 0.2 * s))
            np.testing.assert_allclose(found[head, vertex], p / p.sum() @ z[near], rtol=1e-4, atol=1e-4)
