"""Graph attention beside the same in NumPy, vertex by vertex."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "models" / "graph_attention.ein"


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "32KiB"}])
def test_each_vertex_attends_to_where_its_edges_come_from(settings: dict[str, str]) -> None:
    drawn, n, d = np.random.default_rng(2), 30, 6
    edges = np.array([(s, t) for t in range(n) for s in range(n) if s == t or drawn.random() < 0.15])
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
