"""Tensors without a file: random numbers by position, and the tally of an output nobody keeps."""

import numpy as np
import pytest

from einturnip.core.errors import InternalError, StoreError
from einturnip.ir.dtypes import BF16, BOOL, C64, C128, DTYPES, F16, F32, F64, I32
from einturnip.storage.generated import AbsentSource, RandomSource, SummarySink
from einturnip.storage.types import slices, whole

REGIONS = [((0, 5), (0, 300)), ((2, 3), (7, 250)), ((1, 5), (299, 300)), ((3, 3), (0, 300))]


def drawn(source, region):
    out = np.empty(tuple(b - a for a, b in region), source.dtype.numpy)
    assert source.read(region, out) == 0
    return out


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_random_numbers_follow_from_seed_name_and_position(dtype):
    source = RandomSource("X", (5, 300), dtype, seed=3)
    every = drawn(source, whole(source.shape))
    for region in REGIONS:
        assert (drawn(source, region) == every[slices(region)]).all()
    if dtype != BOOL:
        assert (drawn(RandomSource("X", (5, 300), dtype, seed=4), whole(source.shape)) != every).any()
        assert (drawn(RandomSource("Y", (5, 300), dtype, seed=3), whole(source.shape)) != every).any()


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, C64, C128], ids=str)
def test_random_floats_fill_their_range(dtype):
    values = drawn(RandomSource("X", (50_000,), dtype, seed=0), ((0, 50_000),))
    parts = [values.real, values.imag] if dtype.kind == "c" else [values.astype(np.float64)]
    for part in parts:
        assert part.min() >= -1 and part.max() < 1 and part.min() < -0.98 and part.max() > 0.98
        assert abs(part.mean()) < 0.02


def test_a_scalar_can_be_drawn():
    assert drawn(RandomSource("a", (), F64, seed=0), ()).shape == ()


def test_integers_are_digits():
    values = drawn(RandomSource("X", (9_000,), I32, seed=0), ((0, 9_000),))
    assert set(values.tolist()) == set(range(10))


def test_an_absent_tensor_has_a_shape_and_no_numbers():
    source = AbsentSource("X", (3, 4), F32)
    assert source.extent(((1, 2), (0, 4))) == (16, 16, ())
    with pytest.raises(StoreError, match="input X"):
        source.read(((0, 1), (0, 4)), np.empty((1, 4), np.float32))


def tally(array, regions):
    from einturnip.ir.dtypes import from_numpy

    sink = SummarySink("Y", array.shape, from_numpy(array.dtype))
    for region in regions:
        sink.write(region, array[slices(region)])
    return sink


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_tally_does_not_depend_on_tiles(dtype):
    array = drawn(RandomSource("X", (40, 300), dtype, seed=1), ((0, 40), (0, 300)))
    once = tally(array, [whole(array.shape)])
    parts = [((a, a + 20), (b, b + 100)) for b in (200, 0, 100) for a in (20, 0)]
    again = tally(array, parts)
    assert (once.checksum, once.low, once.high) == (again.checksum, again.low, again.high)
    swapped = array.copy()
    swapped[0, 0], swapped[7, 9] = array[7, 9], array[0, 0]
    if array[0, 0] != array[7, 9]:
        assert tally(swapped, parts).checksum != once.checksum


def test_a_tally_counts_nan_apart():
    sink = tally(np.array([1.0, np.nan, -2.0, np.inf]), [((0, 4),)])
    assert (sink.low, sink.high, sink.nan) == (-2.0, np.inf, 1)
    only = tally(np.array([np.nan]), [((0, 1),)])
    assert (only.low, only.high, only.nan) == (None, None, 1)


def test_a_tally_of_a_scalar():
    assert tally(np.array(5), [()]).low == 5


def test_a_tally_cannot_be_read_back():
    with pytest.raises(InternalError, match="output Y"):
        tally(np.zeros((2, 3)), [whole((2, 3))]).read(((0, 1), (0, 1)), np.empty((1, 1)))
