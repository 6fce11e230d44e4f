"""Tasks that are left when regions of outputs are stored already: the stores that are missing, and what these need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einturnip.core.errors import InternalError
from einturnip.ir.einsum import Box
from einturnip.taskgraph.build import build
from einturnip.taskgraph.check import check
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.taskgraph.unfinished import _covered, unfinished
from tests.memgraph.cases import MACHINE, decomposed, graph_of


@pytest.fixture(scope="module")
def tasks() -> TaskGraph:
    return build(decomposed(graph_of("chain"), [[2, 2, 2]] * 12, 1 << 20), MACHINE)


def stores(tasks: TaskGraph) -> list[int]:
    return np.flatnonzero(tasks.kind == TaskKind.STORE).tolist()


def test_a_subset_of_stored_tiles_leaves_a_proven_graph_of_what_the_others_need(tasks: TaskGraph) -> None:
    every, rng = stores(tasks), np.random.default_rng(2)
    outputs = tasks.node[every].tolist()
    boxes = [tasks.get_value(int(tasks.value[i])).box for i in every]
    for share in [0.0, *rng.random(30), 1.0]:
        is_done = rng.random(len(every)) < share
        finished: dict[int, list[Box]] = {}
        for output, box, done in zip(outputs, boxes, is_done, strict=True):
            if done:
                finished.setdefault(output, []).append(box)
        left = unfinished(tasks, finished)
        check(left)
        stored = [left.get_value(int(left.value[i])).box for i in stores(left)]
        assert stored == ([box for box, done in zip(boxes, is_done, strict=True) if not done] or boxes[-1:])
        # Every value is made, and made for somebody.
        assert set(left.value[left.kind != TaskKind.STORE].tolist()) == set(left.read.tolist())
        assert (len(left) < len(tasks)) == bool(is_done.any())


def test_a_store_that_is_missing_is_no_proof(tasks: TaskGraph) -> None:
    box = tasks.get_value(int(tasks.value[stores(tasks)[0]])).box
    left = unfinished(tasks, {0: [box]})
    with pytest.raises(InternalError, match="not stored once each"):
        check(replace(left, finished=left.finished - 1))
    with pytest.raises(InternalError, match="not stored once each"):
        check(replace(left, finished=np.empty(0, np.int64)))


@pytest.mark.parametrize("cells", [0, 1 << 20])
def test_boxes_are_covered_as_points_are(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einturnip.taskgraph.unfinished.MAX_CELLS_OF_BOX", cells)
    rng = np.random.default_rng(4)
    for _ in range(60):
        others = np.sort(rng.integers(0, 9, (rng.integers(0, 9), 2, 2)), axis=2)
        boxes = np.sort(rng.integers(0, 9, (12, 2, 2)), axis=2)
        boxes = boxes[(boxes[:, :, 0] < boxes[:, :, 1]).all(axis=1)]
        inside = np.zeros((9, 9), bool)
        for (a, b), (c, d) in others.tolist():
            inside[a:b, c:d] = True
        exact = [bool(inside[a:b, c:d].all()) for (a, b), (c, d) in boxes.tolist()]
        found = _covered(boxes, others).tolist()
        # Without the cells, a box is covered if one of the others contains it.
        assert found == exact if cells else all(e for e, f in zip(exact, found, strict=True) if f)
