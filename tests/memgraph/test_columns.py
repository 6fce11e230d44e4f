"""Bytes that ops share are found by little memory, however many rows an op has."""

import tracemalloc
from array import array

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.program_limits import MARGIN_NBYTES
from einturnip.memgraph import columns
from einturnip.memgraph.arena import min_capacity
from einturnip.memgraph.columns import _Touched
from einturnip.taskgraph.build import build as build_tasks
from tests.memgraph.cases import MACHINE, decomposed
from tests.taskgraph.graphs import Maker

ROW = st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 3), st.integers(0, 2))
OPS = st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=4)


def touched(ops):
    ends = np.cumsum([0, *map(len, ops)])
    return _Touched(array("q", ends.tolist()), array("q", [n for op in ops for row in op for n in row]))


def share(a, b):
    """Return whether two rows share bytes; boxes of files are shared or not as a whole."""
    (tier, start, nbytes, value), (tier2, start2, nbytes2, value2) = a, b
    if tier >= columns.FILES:
        start, nbytes, start2, nbytes2 = value, 1, value2, 1
    return tier == tier2 and start < start2 + nbytes2 and start2 < start + nbytes


@given(OPS, OPS, st.sampled_from([1, 3, 7, 1000]))
@settings(deadline=None)
def test_pairs_of_ops_share_bytes_as_their_rows_do(ops, others, at_once):
    u, x = (a.ravel().astype(np.int32) for a in np.meshgrid(range(len(ops)), range(len(others)), indexing="ij"))
    expected = [any(share(a, b) for a in ops[i] for b in others[j]) for i, j in zip(u, x, strict=True)]
    before, columns.PAIRS_AT_ONCE = columns.PAIRS_AT_ONCE, at_once
    try:
        assert touched(ops).overlaps(u, touched(others), x).tolist() == expected
    finally:
        columns.PAIRS_AT_ONCE = before


def taken(call, *arguments):
    """Return the bytes that a call takes beyond its result."""
    tracemalloc.start()
    result = call(*arguments)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return peak - left


def test_rows_are_compared_in_less_than_the_margin_of_planning():
    """Readings of the resident memory come before and after it."""
    few = touched([[(0, 8 * i, 4, i)] for i in range(2000)])
    u, x = np.arange(2000, dtype=np.int32).repeat(20), np.arange(2000, dtype=np.int32).repeat(20)[::-1].copy()
    assert taken(few.overlaps, u, few, x) < MARGIN_NBYTES
    many, others = (touched([[(0, 16 * i + at, 4, i) for i in range(2000)]]) for at in (0, 8))
    op = np.zeros(1, np.int32)
    assert taken(many.overlaps, op, others, op) < MARGIN_NBYTES


def test_working_sets_are_added_up_in_less_than_the_margin_of_planning():
    make = Maker()
    scalars = [make.input() for _ in range(12)]
    graph = make.graph(make.einsum((4000,), 1, [(s, ()) for s in scalars]))
    tasks = build_tasks(decomposed(graph, [[1]] * 12 + [[1]], 4 << 20), MACHINE)
    assert taken(min_capacity, tasks) < MARGIN_NBYTES
