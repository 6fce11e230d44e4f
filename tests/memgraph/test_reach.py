"""Transitive reduction: reachability compared with following every path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.memgraph import reach
from einturnip.memgraph.reach import first_unordered, reduced


@st.composite
def dags(draw: st.DrawFn) -> list[list[int]]:
    """Draw dependencies of many ops, so that bits are reused."""
    n = draw(st.integers(1, 400))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    back = draw(st.sampled_from([2, 10, 400]))
    return [
        sorted({int(p) for p in rng.integers(max(0, x - back), x, rng.integers(0, 4))} if x else ()) for x in range(n)
    ]


def csr(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, rows)]), np.array([v for row in rows for v in row], np.int32)


def ancestors(rows: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for row in rows:
        found.append(set(row).union(*(found[p] for p in row)))
    return found


@given(dags())
def test_a_reduction_keeps_the_order_and_no_edge_too_many(rows: list[list[int]]) -> None:
    ptr, after = reduced(*csr(rows))
    kept = [after[a:b].tolist() for a, b in zip(ptr, ptr[1:], strict=False)]
    before = ancestors(rows)
    assert ancestors(kept) == before
    for row in kept:
        assert not any(p in before[q] for p in row for q in row)


@given(dags(), st.sampled_from([1, 5, 50]))
def test_of_a_large_graph_near_edges_alone_are_dropped(rows: list[list[int]], farthest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach, "MAX_EXACTLY_REDUCED", 0)
        patch.setattr(reach, "MAX_IMPLIED_DISTANCE", farthest)
        ptr, after = reduced(*csr(rows))
    before = ancestors(rows)
    for x, row in enumerate(rows):
        implied = {p for p in row for q in row if p in before[q]}
        assert after[ptr[x] : ptr[x + 1]].tolist() == [p for p in row if p not in implied or x - p > farthest]


@given(dags(), st.integers(0, 1 << 32))
def test_the_first_pair_without_an_order_is_found(rows: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = ancestors(rows)
    asked = [[int(u) for u in rng.permutation(sorted(s))[:3]] for s in before]
    ptr, after = csr(rows)
    assert first_unordered(ptr, after, *map(np.asarray, csr(asked))) is None
    wrong = [(x, u) for x in range(len(rows)) for u in range(x) if u not in before[x]]
    if wrong:
        x, u = wrong[int(rng.integers(len(wrong)))]
        asked[x].append(u)
        assert first_unordered(ptr, after, *map(np.asarray, csr(asked))) == (x, u)
