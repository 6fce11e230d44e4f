"""Plans of any number of ops: a matrix product in tiles of four by four, planned for a memory of some hundred tiles.

``python -m tests.verify.large 100000 plan.json`` writes one; ``einturnip verify plan.json`` is to be timed.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from einturnip.eingraph.build import build as build_graph
from einturnip.lang import compile_text
from einturnip.memgraph.build import build
from einturnip.report.emit import emit_json
from einturnip.taskgraph.build import build as build_tasks
from tests.memgraph.cases import MACHINE, PRODUCT, decomposed
from tests.verify.plans import files_of

TILE = 4


def pieces(n_ops: int, tiles_held: int = 400) -> Iterator[str]:
    """The text of a plan of at least ``n_ops`` ops, piece by piece."""
    # A kernel for each of n^3 products of tiles, and most of them with a load.
    n = int(np.ceil((n_ops / 1.2) ** (1 / 3)))
    shapes = {"A": (n * TILE, n * TILE), "B": (n * TILE, n * TILE)}
    graph = build_graph(compile_text(PRODUCT, "product.ein"), shapes, {}, {})
    capacity = tiles_held * TILE * TILE * 4
    tasks = build_tasks(decomposed(graph, [[TILE] * 3] * 3, capacity), MACHINE)
    placed = build(tasks, capacity, MACHINE)
    planned: Any = SimpleNamespace(
        memgraph=placed, budget=SimpleNamespace(memory=None), prediction=SimpleNamespace(to_json=dict)
    )
    yield from emit_json(planned, "memgraph", "product.ein", files_of(placed))


def text(n_ops: int, tiles_held: int = 400) -> io.BytesIO:
    """The plan as a stream."""
    return io.BytesIO("".join(pieces(n_ops, tiles_held)).encode())


if __name__ == "__main__":
    begun = time.perf_counter()
    with open(sys.argv[2], "w") as file:
        for piece in pieces(int(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 400):
            file.write(piece)
    print(f"planned and written in {time.perf_counter() - begun:.0f} s")
