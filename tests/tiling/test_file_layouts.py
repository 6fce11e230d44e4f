"""The layout of stored tensors in their files, as planning sees it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.cost.machine import Machine
from einturnip.storage.chunks.chunked_source import parts
from einturnip.tiling.file_layout import FileLayout, layout_of

MACHINE = Machine()


def test_runs_end_where_a_chunk_does() -> None:
    rows, chunks = FileLayout((0, 1)), FileLayout((0, 1), (8, 10))
    assert rows.run_nbytes((40, 50), (4, 50), 4) == 800
    assert rows.run_nbytes((40, 50), (4, 49), 4) == 196
    assert chunks.run_nbytes((40, 50), (4, 50), 4) == 160
    assert chunks.run_nbytes((40, 50), (8, 9), 4) == 36
    assert FileLayout((1, 0)).run_nbytes((40, 50), (40, 2), 4) == 320


def test_pages_are_counted_that_tiles_end_in() -> None:
    """Eight bytes for each, of a GiB at most; none where tiles are read in one run, or in long ones, or decoded."""
    rows, columns, chunks = FileLayout((0, 1)), FileLayout((1, 0)), FileLayout((0, 1), (500, 1000))
    shape, pages = (5000, 10_000), -(-5000 * 10_000 * 4 // 4096) + 1
    assert rows.counts_nbytes(shape, (5000, 1000), 4) == columns.counts_nbytes(shape, (1000, 10_000), 4) == 8 * pages
    assert rows.counts_nbytes(shape, (1000, 10_000), 4) == columns.counts_nbytes(shape, (5000, 1000), 4) == 0
    assert rows.counts_nbytes(shape, (5000, 5000), 4) == 8 * 2 * 10_000
    assert rows.counts_nbytes((50_000, 100_000), (5000, 1000), 4) == 2 << 20
    assert rows.counts_nbytes((5000, 1 << 20), (5000, 1 << 17), 4) == 0
    assert chunks.counts_nbytes(shape, (1000, 2000), 4) == 0 < chunks.counts_nbytes(shape, (500, 999), 4)
    assert FileLayout((0, 1), (500, 1000), decoded=True).counts_nbytes(shape, (500, 999), 4) == 0


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=2))
def test_tiles_are_read_in_as_many_parts_as_both_grids_make(axes: list[tuple[int, int, int]]) -> None:
    shape, extents, chunks = zip(*axes, strict=True)
    tiles = product(*(range(0, n, e) for n, e, _ in axes))
    boxes = [tuple((a, min(n, a + e)) for a, (n, e, _) in zip(at, axes, strict=True)) for at in tiles]
    more = sum(len(list(parts(box, chunks))) - 1 for box in boxes)
    assert FileLayout((0, 1), chunks).extra_reads(shape, extents) == more
    assert FileLayout((0, 1)).extra_reads(shape, extents) == 0


def test_a_chunk_is_decoded_whole() -> None:
    packed = FileLayout((0, 1), (8, 10), decoded=True)
    assert packed.decoded_nbytes((40, 50), (4, 15), 4) == 8 * 20 * 4
    assert packed.decoded_nbytes((40, 50), (8, 10), 4) == 320
    assert packed.decoded_nbytes((40, 45), (8, 45), 4) == 8 * 45 * 4
    assert FileLayout((0, 1), (8, 10)).decoded_nbytes((40, 50), (4, 15), 4) == 0


def test_reading_costs_what_is_decoded_and_every_run() -> None:
    shape = (4096, 4096)
    packed, plain = FileLayout((0, 1), (1024, 1024), decoded=True), FileLayout((0, 1), (1024, 1024))
    whole = packed.load_seconds(shape, (1024, 1024), 4, MACHINE)
    assert packed.load_seconds(shape, (64, 1024), 4, MACHINE) == whole
    assert packed.load_seconds(shape, (1024, 4096), 4, MACHINE) > 3.9 * (whole - MACHINE.op_latency)
    assert plain.load_seconds(shape, (64, 1024), 4, MACHINE) < whole / 8
    columns, rows = FileLayout((1, 0)), layout_of({}, 0, 2)
    assert columns.load_seconds(shape, (4096, 64), 4, MACHINE) < rows.load_seconds(shape, (4096, 64), 4, MACHINE) / 2
    assert columns.load_seconds(shape, (64, 4096), 4, MACHINE) == rows.load_seconds(shape, (4096, 64), 4, MACHINE)


@pytest.mark.parametrize("compressors", ["auto", None])
def test_tiles_are_whole_chunks_while_they_fit(tmp_path: Path, compressors: str | None) -> None:
    zarr = pytest.importorskip("zarr")
    data = np.ones((600, 700), np.float32)
    zarr.create_array(str(tmp_path / "x.zarr"), data=data, chunks=(100, 50), compressors=compressors)
    program = et.compile("input X : f32[i,j]\nS = sum[i, j] X[i,j]^2\noutput S\n")
    plan = program.plan(X=tmp_path / "x.zarr", arena="400KiB")
    decomposition = plan._job.planned.decomposition
    (cut, *_) = decomposition.partitionings
    assert cut.tiles[0] % 100 == 0 and cut.tiles[1] % 50 == 0
    assert plan.run()["S"] == data.size


def test_the_bits_of_a_reproducible_run_do_not_hang_on_chunks(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    data = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    zarr.create_array(str(tmp_path / "x.zarr"), data=data, chunks=(70, 30))
    np.save(tmp_path / "x.npy", data)
    program = et.compile("input X : f32[i,j]\nS = sum[i, j] X[i,j]\noutput S\n")
    sums = [program(X=tmp_path / f"x.{form}", arena="512KiB", reproducible=True) for form in ("npy", "zarr")]
    assert np.asarray(sums[0]["S"]).tobytes() == np.asarray(sums[1]["S"]).tobytes()
