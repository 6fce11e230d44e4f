"""Chunks of outputs: of each, one site alone writes elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.memgraph.types import MemGraph
from einturnip.sites import output_chunks
from einturnip.sites.output_chunks import one_writer_chunks, periods, stored_boxes
from einturnip.storage.formats import zarr_output
from einturnip.tuning.memory import MIN_CHUNK_SHARE
from tests.drawn import examples
from tests.tiling.test_sites import planned

PROGRAMS = {
    "product": "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n",
    "chain": "input A : f64[n, k], B : f64[k, m]\nD[i, j] = A[i, k] * B[k, j]\n"
    "C[j, i] = exp(D[i, j]) + sum[h] D[i, h]\noutput C, D\n",
    "long sum": "input A : f64[k, n, m]\nC[i, j] = sum[h] A[h, i, j] * A[h, i, j]\noutput C\n",
    "rows": "input A : f64[n, m]\nC[i, j] = exp(A[i, j])\noutput C\n",
    "scalar": "input A : f64[n, m]\nC = sum[i, j] A[i, j]\noutput C\n",
}


def writers(graph: MemGraph, output: int, chunks: tuple[int, ...]) -> dict[tuple[int, ...], set[int]]:
    """The sites that write elements of each chunk."""
    found: dict[tuple[int, ...], set[int]] = {}
    boxes, sites = stored_boxes(graph, output)
    for box, site in zip(boxes.tolist(), sites.tolist(), strict=True):
        for chunk in product(*(range(lo // c, -(-hi // c)) for (lo, hi), c in zip(box, chunks, strict=True))):
            found.setdefault(chunk, set()).add(site)
    return found


def choice(shape: tuple[int, ...], chunk_nbytes: int) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return the choice of the Zarr format, with chunks of at most ``chunk_nbytes``."""

    def choose(found: Sequence[int]) -> tuple[int, ...]:
        with mock.patch.object(zarr_output, "CHUNK_NBYTES", chunk_nbytes):
            return zarr_output.chunk_shape(shape, 8, found)

    return choose


DRAWN = st.tuples(
    st.sampled_from([*PROGRAMS]),
    st.integers(2, 5),
    st.tuples(*[st.integers(17, 120)] * 3),
    st.sampled_from([12 << 10, 40 << 10, 1 << 20]),
    st.sampled_from([1 << 9, 1 << 12, 1 << 24]),
)
Drawn = tuple[str, int, tuple[int, int, int], int, int]


@settings(max_examples=examples(8), deadline=None)
@given(DRAWN)
def test_one_site_writes_each_chunk(drawn: Drawn) -> None:
    require_one_writer(*drawn)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(DRAWN)
def test_one_site_writes_each_chunk_of_many_plans(drawn: Drawn) -> None:
    require_one_writer(*drawn)


def require_one_writer(name: str, sites: int, sizes: tuple[int, int, int], arena: int, chunk_nbytes: int) -> None:
    dims = {label: n for label, n in zip("nmk", sizes, strict=True) if label in PROGRAMS[name].partition("\n")[0]}
    graph = planned(PROGRAMS[name], dims, sites, arena).memgraph
    program = graph.taskgraph.decomposition.graph
    for output, (_, number) in enumerate(program.outputs):
        shape = program.nodes[number].shape
        choose = choice(shape, chunk_nbytes)
        chunks = one_writer_chunks(graph, output, choose)
        apart = choose(periods(*stored_boxes(graph, output)))
        assert math.prod(apart) * 8 <= chunk_nbytes
        found = writers(graph, output, apart)
        assert all(len(who) == 1 for who in found.values())
        assert len(found) == math.prod(-(-n // c) for n, c in zip(shape, apart, strict=True))
        boxes, _ = stored_boxes(graph, output)
        tile = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1).max()
        large = math.prod(apart) >= min(tile, math.prod(choose(()))) * MIN_CHUNK_SHARE
        assert chunks == (apart if large else None)


def test_pieces_at_odd_places_have_no_chunks_of_one_writer() -> None:
    rows = np.array([[0, 101], [101, 600], [600, 1101]])
    boxes = np.stack([rows, np.broadcast_to([0, 64], (3, 2))], axis=1)
    for site, expected in (([0, 1, 0], None), ([0, 1, 1], (101, 64))):
        with mock.patch.object(output_chunks, "stored_boxes", lambda graph, output: (boxes, np.array(site))):  # noqa: B023
            assert one_writer_chunks(mock.MagicMock(), 0, choice((1101, 64), 1 << 17)) == expected
            assert one_writer_chunks(mock.MagicMock(), 0, lambda found: ()) == ()


def test_cuts_of_one_axis_that_no_other_site_needs_do_not_count() -> None:
    boxes = np.array([[[0, 12], [0, 7]], [[0, 12], [7, 15]], [[12, 20], [0, 15]]])
    assert periods(boxes, np.array([0, 0, 1])) == (12, 0)
    assert periods(boxes, np.array([0, 1, 1])) == (12, 7)
    assert periods(boxes, np.array([2, 2, 2])) == (0, 0)
    with mock.patch.object(output_chunks, "MAX_CELLS_OF_BOX", 1):
        assert periods(boxes, np.array([0, 0, 1])) == (12, 7)  # without a list of cells, all cuts count


def best(shape: tuple[int, ...], found: tuple[int, ...], most: int) -> int:
    """The fewest chunks of at most ``most`` points whose extents divide periods, by trial."""
    every = product(*(range(1, n + 1) for n in shape))
    return min(
        math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
        for chunk in every
        if math.prod(chunk) <= most and all(p % c == 0 for p, c in zip(found, chunk, strict=True))
    )


@given(st.data())
def test_chunks_are_the_fewest_that_divide_the_periods(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(*[st.integers(1, 30)] * data.draw(st.integers(1, 3))))
    found = tuple(data.draw(st.integers(1, n)) for n in shape)
    most = data.draw(st.integers(1, 400))
    chunks = choice(shape, 8 * most)(found)
    assert math.prod(chunks) <= most and all(p % c == 0 for p, c in zip(found, chunks, strict=True))
    assert math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)) == best(shape, found, most)


@pytest.mark.parametrize(
    ("shape", "found", "expected"),
    [
        ((4000, 4000), (), (1000, 2000)),
        ((3001, 2777), (1507, 0), (1507, 1389)),  # 1507 = 11 * 137
        ((3001, 40000), (1511, 0), (1511, 1250)),  # a prime
        ((40022, 40022), (20011, 20011), (1, 20011)),
        ((4096, 4096, 3), (), (512, 1024, 3)),
        ((6, 0), (), (6, 1)),
        ((), (), ()),
    ],
)
def test_chunks_of_large_tensors(shape: tuple[int, ...], found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert zarr_output.chunk_shape(shape, 8, found) == expected
