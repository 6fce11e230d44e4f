"""Dask arrays as inputs of programs in one process: read by chunk, within the memory of the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError, DTypeError, StoreError
from einturnip.storage.chunks.chunk_grid import ChunkGrid
from einturnip.storage.dask_arrays import DaskSource
from einturnip.storage.open import open_source

da = pytest.importorskip("dask.array")


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).integers(-4, 5, shape).astype(float)


@pytest.mark.parametrize("chunks", [((3, 5, 1), (4, 2)), (9, 6), ((0, 9), (6,)), (2, 5)])
def test_any_region_of_any_chunks(chunks: Any) -> None:
    x = drawn(9, 6)
    source = open_source(da.from_array(x, chunks=chunks), "x")
    assert isinstance(source, DaskSource)
    blocks = {index: source.array.blocks[index].compute() for index in source.grid.indices()}
    source._load = blocks.__getitem__  # computing each of them again takes seconds
    for a in range(10):
        for b in range(a, 10):
            for lo, hi in ((0, 6), (1, 5), (3, 4), (2, 2)):
                out = np.empty((b - a, hi - lo))
                source.read(((a, b), (lo, hi)), out)
                np.testing.assert_array_equal(out, x[a:b, lo:hi])
    source.close()


def test_grids_of_regions() -> None:
    assert ChunkGrid.of_regions((6,), [((0, 2),), ((2, 6),)]).extents == ((2, 4),)
    assert ChunkGrid.of_regions((4, 3), [((0, 4), (0, 1)), ((0, 2), (1, 3)), ((2, 4), (1, 3))]).extents == (
        (2, 2),
        (1, 2),
    )
    empty = ChunkGrid.of_regions((0, 3), [])
    assert (empty.extents, list(empty.indices())) == (((0,), (3,)), [(0, 0)])
    assert ChunkGrid.of_regions((), [()]).extents == ()


def test_programs_and_einsum_read_chunk_by_chunk() -> None:
    a, b = drawn(70, 50), drawn(50, 40)
    computed: list[int] = []

    def counted(block: Any) -> Any:
        computed.append(block.size)
        return block

    x = da.from_array(a, chunks=(40, 30)).map_blocks(counted, dtype=float, meta=np.empty((0, 0)))
    y = da.from_array(b, chunks=(25, 40))
    np.testing.assert_array_equal(et.einsum("ij,jk->ik", x, y), a @ b)
    assert sorted(computed) == sorted([1200, 900, 800, 600])
    text = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\ns = sum[i,j] C[i,j]\noutput C, s\n"
    result = et.compile(text)(A=x, B=b, arena="16KiB")
    np.testing.assert_array_equal(result["C"], a @ b)
    assert result["s"] == (a @ b).sum()
    assert et.einsum("->", da.ones((), chunks=())) == 1
    assert et.einsum("i->", da.ones(0, chunks=2)) == 0


def test_arrays_larger_than_the_memory() -> None:
    x = da.ones((4000, 4000), chunks=(500, 500))  # 122 MiB
    result = et.compile("input X : f64[n,m]\ns[j] = sum[i] X[i,j]\noutput s")(X=x, memory="60MiB")
    np.testing.assert_array_equal(result["s"], np.full(4000, 4000.0))


def test_arrays_that_cannot_be_read() -> None:
    x = da.from_array(drawn(9, 6), chunks=(3, 3))
    with pytest.raises(BindError, match="x: the sizes of its chunks are unknown.*compute_chunk_sizes"):
        open_source(x[x[:, 0] > 0], "x")
    with pytest.raises(BindError, match=r"x: its chunks are numpy.*MaskedArray, not NumPy arrays.*map_blocks"):
        open_source(da.ma.masked_equal(x, 0), "x")
    with pytest.raises(DTypeError, match="x: the array given has dtype <U3"):
        open_source(da.from_array(np.array(["abc"])), "x")

    def fails(block: Any) -> Any:
        raise ValueError("no such day")

    bad = x.map_blocks(fails, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(StoreError, match=r"operand 1|operand1: Dask cannot compute its chunk \[0, 0\]: ValueError: no"):
        et.einsum("ij,ij->", x, bad)
    wrong = x.map_blocks(lambda block: block[:1], dtype=float, chunks=x.chunks, meta=np.empty((0, 0)))
    with pytest.raises(StoreError, match=r"chunk \[0, 0\] is float64\[1, 3\], and should be f64\[3, 3\]"):
        et.einsum("ij->", wrong)


def test_one_chunk_is_kept() -> None:
    source = open_source(da.from_array(drawn(9, 6), chunks=(3, 6)), "x")
    assert isinstance(source, DaskSource) and source.reading_nbytes == 3 * 3 * 6 * 8 + (1 << 20)
    calls: list[Any] = []
    source.compute = lambda block: (calls.append(block.shape), block.compute())[1]
    for row in range(9):
        source.read(((row, row + 1), (0, 6)), np.empty((1, 6)))
    assert len(calls) == 3
    source.close()
