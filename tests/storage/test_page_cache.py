"""Page-cache eviction: whole runs of written pages leave, never half a page."""

from __future__ import annotations

import itertools
import math
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from einturnip.storage.io import page_eviction, pages
from einturnip.storage.io.page_eviction import IntervalSet, PageCounts, PageEviction, counts_nbytes
from einturnip.storage.io.pages import STRETCH_NBYTES, DirtyPages, _by_stretch
from einturnip.storage.layout import c_layout, extent_nbytes, starts
from einturnip.storage.open import open_source


@given(
    st.integers(0, 3 * STRETCH_NBYTES),
    st.integers(1, 2 * STRETCH_NBYTES),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, STRETCH_NBYTES)), max_size=2),
)
def test_every_byte_of_an_extent_counts_in_its_stretch(offset: int, nbytes: int, repeats: list) -> None:
    found = Counter[int]()
    for stretch, counted in _by_stretch((offset, nbytes, tuple(repeats))):
        found[stretch] += counted
    assert sum(found.values()) == nbytes * math.prod(count for count, _ in repeats)
    starts = [offset]
    for count, stride in repeats:
        starts = [s + i * stride for s in starts for i in range(count)]
    for stretch, counted in found.items():
        begin, end = stretch * STRETCH_NBYTES, (stretch + 1) * STRETCH_NBYTES
        assert counted == sum(max(0, min(s + nbytes, end) - max(s, begin)) for s in starts)


@given(
    st.integers(0, 999), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 99)), max_size=4), st.integers(1, 400)
)
def test_starts_come_in_parts(offset: int, repeats: list, most: int) -> None:
    parts = list(starts((offset, 8, tuple(repeats)), most))
    expected = [offset]
    for count, stride in repeats:
        expected = [s + i * stride for s in expected for i in range(count)]
    assert [s for part in parts for s in part.tolist()] == expected and max(map(len, parts)) <= most


def test_counting_many_runs_takes_little_memory() -> None:
    """A tile of a tensor of four axes: twelve thousand groups of seven runs."""
    counts, extent = PageCounts(0, 12_544 * 50_176), (0, 224, ((12_544, 50_176), (7, 448)))
    tracemalloc.start()
    try:
        for begins in starts(extent):
            counts.add(begins, extent[1])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    counts.take()
    assert int((counts._partial & page_eviction._BYTES).sum()) == extent_nbytes(extent)


@given(st.permutations(range(20)), st.integers(0, 9000), st.sampled_from([700, 4096, 5000]), st.data())
def test_pages_are_whole_when_each_of_their_bytes_was_released(
    order: list[int], start: int, width: int, data: st.DataObject
) -> None:
    layout = c_layout((12, 5 * width), 1, start)
    ours = np.zeros(-(-(start + layout.nbytes) // 4096) * 4096, bool)
    ours[start : start + layout.nbytes] = True
    kept, taken = ours.copy(), set[int]()
    counts, in_rows = PageCounts(start, start + layout.nbytes), kept[start : start + layout.nbytes].reshape(12, -1)
    for tile in order:
        i, j = 3 * (tile // 5), width * (tile % 5)
        extent = layout.extent(((i, i + 3), (j, j + width)))
        for begins in starts(extent):
            counts.add(begins, extent[1])
        in_rows[i : i + 3, j : j + width] = False
        if data.draw(st.booleans()):
            ranges = list(counts.take())
            assert all(stop < after for (_, stop), (after, _) in itertools.pairwise(ranges))
            pages = {page for a, b in ranges for page in range(a // 4096, b // 4096)}
            per_page, ours_of = kept.reshape(-1, 4096), ours.reshape(-1, 4096)
            assert pages == set(np.flatnonzero(ours_of.any(1) & ~per_page.any(1))) - taken
            taken |= pages
            assert counts.partial_nbytes == 4096 * int(np.count_nonzero(per_page.any(1) & (per_page != ours_of).any(1)))


@pytest.mark.parametrize("columns", [False, True])
def test_what_is_counted_of_a_large_file_is_in_proportion_to_what_waits(
    monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    """A tensor of 100 GB in tiles that end within pages, whether all of a row's are read first or all of a column's."""
    monkeypatch.setattr(page_eviction, "waiting_nbytes", lambda: 256 << 20)
    layout = c_layout((1_250_000, 20_000), 4, 128)
    left = PageEviction(lambda start, stop: None, layout, (0, 1))
    tiles = [(i, j) for i in range(8) for j in range(8)] if columns else [(i, j) for i in range(2) for j in range(20)]
    tracemalloc.start()
    try:
        for i, j in sorted(tiles, key=lambda tile: tile[1]) if columns else tiles:
            left.release(((10_000 * i, 10_000 * (i + 1)), (1000 * j, 1000 * (j + 1))))
            assert left.scattered_nbytes <= 256 << 20
            assert tracemalloc.get_traced_memory()[0] < 1 << 20
        held, peak = tracemalloc.get_traced_memory()
        assert peak < 8 << 20
        assert columns or held < 1 << 18 and not left._slabs
        assert 8 * len(left._counts._partial) <= counts_nbytes(layout.nbytes, 4000)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("shape", "tile"),
    [((112, 112, 112, 112), (112, 112, 112, 28)), ((1 << 20, 1 << 14), (1 << 20, 1))],
    ids=["a quarter of each page", "a column"],
)
def test_counting_takes_hardly_more_than_the_counts(shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
    """While it counts, too: large tiles all over a file, whose neighbours hold the rest of their pages."""
    layout = c_layout(shape, 4, 128)
    left = PageEviction(lambda start, stop: None, layout, tuple(range(len(shape))))
    most = counts_nbytes(layout.nbytes, 4 * tile[-1])
    tracemalloc.start()
    try:
        for begin in (0, tile[-1]):
            left.release((*((0, n) for n in shape[:-1]), (begin, begin + tile[-1])))
            assert 8 * len(left._counts._partial) <= 8 * len(left._counts._room) <= most <= 2 << 20
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_slab_that_is_done_with_is_no_longer_counted() -> None:
    """Two tiles side by side in each of three slabs, whose ends share pages; only the last of them are released."""
    layout, dropped = c_layout((300, 1500), 1, 0), list[tuple[int, int]]()
    left = PageEviction(lambda start, stop: dropped.append((start, stop)), layout, (0, 1))
    left._counts = PageCounts(0, layout.nbytes, 0)  # more is counted than there was place for
    for slab in range(0, 300, 100):
        left.release(((slab, slab + 100), (0, 750)))
    assert left._counts.partial_nbytes < left.pending_nbytes and not dropped
    left.drop_pending()
    assert left.scattered_nbytes == left._counts.partial_nbytes == -(-layout.nbytes // 4096) * 4096
    left.release(((100, 200), (750, 1500)))
    assert dropped and dropped[-1] == (-(-150_000 // 4096) * 4096, 300_000 // 4096 * 4096)
    left.drop_pending()
    assert left.scattered_nbytes == sum(-(-e // 4096) - b // 4096 for b, e in ((0, 147_456), (303_104, 450_000))) * 4096
    assert len(left._slabs) == 2


def test_counts_end_where_all_of_their_slab_was_dropped() -> None:
    """The last tile of a slab may be released while another thread still counts the one before."""
    layout = c_layout((1 << 15, 1 << 12), 1, 0)
    left = PageEviction(lambda start, stop: None, layout, (0, 1))
    add = left._counts.add

    def adds(begins: np.ndarray, run: int) -> None:
        left._counts.add = add  # type: ignore[method-assign]
        add(begins, run)
        left._lock.release()
        try:
            left.release(((0, 1 << 15), (2048, 4096)))
        finally:
            left._lock.acquire()

    left._counts.add = adds  # type: ignore[method-assign]
    left.release(((0, 1 << 15), (0, 2048)))
    left.drop_pending()
    assert left.complete and left.pending_nbytes == left.scattered_nbytes == 0


def test_a_stretch_leaves_when_its_last_tile_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []
    monkeypatch.setattr(pages, "write_back", lambda fd, a, b, wait: calls.append(("wait" if wait else "send", a, b)))
    monkeypatch.setattr(pages, "drop", lambda fd, a, b: calls.append(("drop", a, b)))
    n = 8192
    layout = c_layout((n, n), 4, 0)
    monkeypatch.setattr(pages, "_is_memory", lambda device: False)
    written = DirtyPages(os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT))
    for i in range(0, n, 1024):  # 32 MiB of rows, four stretches
        for j in range(0, n, 1024):
            before = len(calls)
            written.wrote(layout.extent(((i, i + 1024), (j, j + 1024))))
            assert j == n - 1024 or len(calls) == before
        sent = [a // STRETCH_NBYTES for what, a, _ in calls if what == "send"]
        assert sent == list(range((i + 1024) * n * 4 // STRETCH_NBYTES))
    dropped = [a for what, a, _ in calls if what == "drop"]
    assert dropped == [a for what, a, _ in calls if what == "wait"]
    assert len(dropped) * STRETCH_NBYTES == n * n * 4 - 2 * pages.PENDING_NBYTES


def test_of_files_in_memory_nothing_is_counted_that_could_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    np.save(tmp_path / "x.npy", np.ones((64, 4096), np.float32))
    monkeypatch.setattr(pages, "drop", lambda fd, a, b: calls.append("drop"))
    monkeypatch.setattr(pages, "write_back", lambda fd, a, b, wait: calls.append("send"))
    for memory in (True, False):
        monkeypatch.setattr(pages, "_is_memory", lambda device, memory=memory: memory)
        calls.clear()
        source = open_source(tmp_path / "x.npy", "X")
        for at in range(0, 4096, 512):
            source.release(((0, 64), (at, at + 512)))
        source.close()
        written = DirtyPages(os.open(tmp_path / "y", os.O_RDWR | os.O_CREAT))
        written.wrote((0, STRETCH_NBYTES, ()))
        assert set(calls) == (set() if memory else {"drop", "send"})


def test_columns_written_one_by_one_do_not_fill_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(pages, "SCATTERED_NBYTES", 4 << 20)
    monkeypatch.setattr(pages, "_is_memory", lambda device: False)
    monkeypatch.setattr(pages, "write_back", lambda fd, a, b, wait: sent.append(a))
    written, layout = DirtyPages(os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)), c_layout((4096, 4096), 4, 0)
    for j in range(0, 512, 64):
        written.wrote(layout.extent(((0, 4096), (j, j + 64))))
    assert np.array_equal(np.unique(sent), np.arange(8) * STRETCH_NBYTES)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=30))
def test_spans_are_the_numbers_added(added: list[tuple[int, int]]) -> None:
    spans, numbers = IntervalSet(), set[int]()
    for start, length in added:
        found = spans.add(start, start + length)
        numbers |= set(range(start, start + length))
        inside = set(range(*found))
        assert inside <= numbers and inside >= set(range(start, start + length))
        assert not length or not {found[0] - 1, found[1]} & numbers


@given(st.permutations(range(12)), st.sampled_from([128, 4096]), st.sampled_from([3, 70]))
def test_only_what_was_released_leaves(order: list[int], offset: int, rows: int) -> None:
    layout = c_layout((12 * rows, 1000), 4, offset)
    ours = np.zeros(-(-(offset + layout.nbytes) // 4096) * 4096, bool)  # of each byte, whether it is still wanted
    ours[offset : offset + layout.nbytes] = True
    pages_of, dropped = ours.reshape(-1, 4096), set[int]()
    released = PageEviction(lambda a, b: dropped.update(range(a // 4096, -(-b // 4096))), layout, (0, 1))
    for tile in order:
        released.release(((rows * tile, rows * tile + rows), (0, 1000)))
        ours[offset + 4000 * rows * tile : offset + 4000 * rows * (tile + 1)] = False
        assert not pages_of[sorted(dropped)].any()
    assert dropped == set(range(offset // 4096, len(pages_of)))


@given(st.permutations(range(24)), st.sampled_from([0, 128]), st.sampled_from([500, 504, 1024]), st.data())
def test_pages_that_tiles_share_leave_with_the_last_of_them(
    order: list[int], offset: int, width: int, data: st.DataObject
) -> None:
    """Columns of runs that end within pages: no page goes before all that is in it was released, in any order."""
    rows, columns = 40, 6 * width
    layout, gone = c_layout((4 * rows, columns), 4, offset), set[int]()
    ours = np.zeros(-(-(offset + layout.nbytes) // 4096) * 4096, bool)
    ours[offset : offset + layout.nbytes] = True
    in_rows = ours[offset : offset + layout.nbytes].reshape(4 * rows, 4 * columns)
    pages_of = ours.reshape(-1, 4096)
    page_counts = PageEviction(lambda a, b: gone.update(range(a // 4096, -(-b // 4096))), layout, (0, 1))
    for tile in order:
        i, j = rows * (tile // 6), width * (tile % 6)
        page_counts.release(((i, i + rows), (j, j + width)))
        in_rows[i : i + rows, 4 * j : 4 * (j + width)] = False
        if data.draw(st.booleans()):
            page_counts.drop_pending()
            held = {p for p in range(len(pages_of)) if not pages_of[p].any()} - gone
            shared = {(offset + 4 * columns * i) // 4096 for i in range(0, 4 * rows + 1, rows)}
            assert held <= shared  # all that is released has left, but for pages that slabs of rows share
        assert not pages_of[sorted(gone)].any()
    page_counts.drop_pending()
    assert gone == set(range(len(pages_of)))


def test_too_much_that_waits_for_its_neighbours_leaves_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_eviction, "PENDING_NBYTES", 1 << 19)
    monkeypatch.setattr(page_eviction, "waiting_nbytes", lambda: 3 << 20)
    layout, gone = c_layout((1024, 4096), 4, 0), list[tuple[int, int]]()
    kept = PageEviction(lambda a, b: gone.append((a, b)), layout, (0, 1))
    for j in range(0, 512, 128):  # 4 KiB of cache for each half KiB
        kept.release(((0, 512), (j, j + 128)))
    assert not gone and kept.scattered_nbytes == 512 * 4096
    kept.release(((512, 1024), (0, 128)))
    assert kept.scattered_nbytes == 0 and sorted(gone) == [(0, layout.nbytes // 2), (layout.nbytes // 2, layout.nbytes)]
