"""Large plans: a matrix product in tiles of four by four, planned for a memory that holds some hundred of them.

``python -m tests.verify.large 44 plan.json`` writes that of 44 x 44 x 44 tiles: 10^5 ops. (20: 10^4; 85: 10^6.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from einturnip.eingraph.build.program import build as build_graph
from einturnip.lang import compile_text
from einturnip.memgraph.build import build
from einturnip.report.emit import emit_json
from einturnip.taskgraph.build import build as build_tasks
from tests.memgraph.cases import MACHINE, PRODUCT, decomposed
from tests.verify.plans import files_of

TILE = 4


def pieces(n: int, tiles_held: int = 400) -> Iterator[str]:
    """The text of the plan of ``n`` x ``n`` x ``n`` tiles."""
    shapes = {"A": (n * TILE, n * TILE), "B": (n * TILE, n * TILE)}
    graph = build_graph(compile_text(PRODUCT, "product.ein"), shapes, {}, {})
    capacity = tiles_held * TILE * TILE * 4
    placed = build(build_tasks(decomposed(graph, [[TILE] * 3] * 3, capacity), MACHINE), capacity, MACHINE)
    planned: Any = SimpleNamespace(
        memgraph=placed, budget=SimpleNamespace(memory=None, arena=capacity), prediction=SimpleNamespace(to_json=dict)
    )
    yield from emit_json(planned, "memgraph", "product.ein", files_of(placed))


if __name__ == "__main__":
    with open(sys.argv[2], "w") as file:
        file.writelines(pieces(*map(int, [sys.argv[1], *sys.argv[3:]])))
