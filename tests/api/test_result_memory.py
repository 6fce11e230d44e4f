"""Memory of results is reused once nobody holds the result, and never before; a stated budget covers it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import einturnip as et
from einturnip.api import result_memory

F32 = np.dtype(np.float32)
LARGE = (result_memory.MIN_NBYTES // 4,)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    gc.collect()
    result_memory.release()
    yield
    result_memory.release()


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_a_place_is_used_again() -> None:
    first = result_memory.empty(LARGE, F32)
    place = address(first)
    assert place % (2 << 20) == 0 and first.flags.c_contiguous and first.flags.writeable
    first[:] = 1
    del first
    again = result_memory.empty((2, LARGE[0] // 2), F32)
    assert address(again) == place and again.shape == (2, LARGE[0] // 2)


def test_not_while_any_view_is_held() -> None:
    first = result_memory.empty(LARGE, F32)
    first[:] = 7
    view = first[5:9]
    del first
    other = result_memory.empty(LARGE, F32)
    other[:] = 1
    assert not np.may_share_memory(view, other) and (view == 7).all()


def test_other_sizes_and_small_ones_are_new() -> None:
    first = result_memory.empty(LARGE, F32)
    first_place = address(first)
    del first
    larger = result_memory.empty((3 * LARGE[0],), F32)
    assert address(larger) != first_place
    assert result_memory.empty((10,), F32).flags.owndata


def test_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "MAX_KEPT_NBYTES", 3 * result_memory.MIN_NBYTES)
    held = [result_memory.empty(LARGE, F32) for _ in range(5)]
    held.clear()
    assert 0 < sum(map(len, result_memory._free)) <= result_memory.MAX_KEPT_NBYTES
    result_memory.release()
    assert not result_memory._free


def test_results_of_a_program() -> None:
    program = et.compile("input x : f32[i]\ny[i] = x[i] + 1\noutput y\n")
    x = np.arange(LARGE[0], dtype=np.float32)
    first = program(x=x)["y"]
    kept = first[:4]
    del first
    second = program(x=x)["y"]
    np.testing.assert_array_equal(kept, [1, 2, 3, 4])
    place = address(second)
    del second
    third = program(x=x)["y"]
    assert address(third) == place
    np.testing.assert_array_equal(third, x + 1)
    del third
    assert result_memory._free
    program(x=x, memory="256MiB")
    assert len(result_memory._free) <= 1  # its own result
