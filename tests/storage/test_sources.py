"""Every stored form reads, for every region, as NumPy does."""

from __future__ import annotations

import io
import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import DTYPES, from_numpy
from einturnip.storage import Source, open_source
from einturnip.storage.io import file_source as file_source_module
from einturnip.storage.types import Region, contiguous_nbytes, region_shape, slices, whole
from tests.drawn import examples

PLAIN = [d.numpy for name, d in DTYPES.items() if name != "bf16"]
quick = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def shapes_and_regions(draw: st.DrawFn) -> tuple[tuple[int, ...], Region]:
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    bounds = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return shape, tuple((a, b) for a, b in bounds)


def numbered(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) % 113).reshape(shape).astype(dtype)


def check(source: Source, region: Region, expected: np.ndarray[Any, Any]) -> None:
    out = np.full(region_shape(region), 77).astype(source.dtype.numpy)
    nbytes = source.read(region, out)
    wanted = expected[slices(region)]
    assert source.shape == expected.shape
    assert nbytes == wanted.size * wanted.itemsize
    np.testing.assert_array_equal(out.astype(wanted.dtype), wanted)


def bytes_of_extent(source: Source, region: Region) -> list[int]:
    offset, nbytes, repeats = source.extent(region)
    starts = np.array([offset])
    for count, stride in repeats:
        starts = (starts[:, None] + np.arange(count) * stride).reshape(-1)
    return sorted(int(s) + k for s in starts for k in range(nbytes))


@quick
@given(case=shapes_and_regions(), dtype=st.sampled_from(PLAIN), order=st.sampled_from("CF"), swap=st.booleans(),
       version=st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))  # fmt: skip
def test_npy_of_any_order_byte_order_and_version(
    tmp_path: Path, case: Any, dtype: Any, order: Any, swap: bool, version: Any
) -> None:
    shape, region = case
    array = numbered(shape, dtype.newbyteorder() if swap else dtype).copy(order=order)
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    source = open_source(str(tmp_path / "x.npy"), "X")
    try:
        assert source.dtype == from_numpy(dtype)
        check(source, region, array)
        steps = (*(slice(None, None, 2) for _ in shape), ...)
        strided = np.zeros(tuple(2 * n for n in region_shape(region)), dtype)[steps]
        source.read(region, strided)
        np.testing.assert_array_equal(strided, array[slices(region)])
    finally:
        source.close()


@quick
@given(case=shapes_and_regions(), order=st.sampled_from("CF"))
def test_the_extent_names_exactly_the_bytes_of_the_region(tmp_path: Path, case: Any, order: Any) -> None:
    shape, region = case
    array = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.uint16).reshape(shape).copy(order=order)
    np.save(tmp_path / "x.npy", array)
    source = open_source(tmp_path / "x.npy", "X")
    raw = (tmp_path / "x.npy").read_bytes()
    found = bytes(raw[at] for at in bytes_of_extent(source, region))
    assert sorted(np.frombuffer(found, np.uint16)) == sorted(array[slices(region)].reshape(-1))
    assert contiguous_nbytes(source, region) == source.extent(region)[1]
    source.close()


@quick
@given(case=shapes_and_regions(), dtype=st.sampled_from(PLAIN), flips=st.lists(st.booleans(), min_size=4, max_size=4),
       axes=st.randoms(use_true_random=False))  # fmt: skip
def test_arrays_of_any_strides(case: Any, dtype: Any, flips: Any, axes: Any) -> None:
    shape, region = case
    order = list(range(len(shape)))
    axes.shuffle(order)
    base = numbered(tuple(shape[k] for k in order), dtype.newbyteorder())
    array = base.transpose(np.argsort(order).tolist())[
        tuple(slice(None, None, -1 if f else 1) for f in flips[: len(shape)])
    ]
    source = open_source(array, "X")
    check(source, region, array)
    assert len(bytes_of_extent(source, region)) == array[slices(region)].size * array.itemsize


def test_archives_stored_and_compressed(tmp_path: Path) -> None:
    arrays = {
        "a": numbered((7, 9), np.dtype("f4")),
        "b": np.asfortranarray(numbered((5, 6, 4), np.dtype(">i8"))),
        "c": np.array(3.5),
    }
    np.savez(tmp_path / "s.npz", **arrays)
    np.savez_compressed(tmp_path / "z.npz", **arrays)
    for file in ("s.npz", "z.npz"):
        for key, array in arrays.items():
            source = open_source(f"{tmp_path / file}::{key}", "X")
            check(source, whole(array.shape), array)
            if array.ndim == 3:
                check(source, ((1, 4), (2, 6), (0, 3)), array)
            source.release(whole(array.shape))
            source.close()
            source.close()


def test_two_arrays_of_one_archive_share_its_tier(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", a=np.arange(4), b=np.arange(5))
    a, b = (open_source(f"{tmp_path / 's.npz'}::{key}", "X") for key in "ab")
    assert a.tier == b.tier == str(tmp_path / "s.npz")
    assert not set(bytes_of_extent(a, ((0, 4),))) & set(bytes_of_extent(b, ((0, 5),)))


def test_the_key_may_be_left_out_for_a_sole_array_or_the_inputs_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", only=np.arange(3))
    np.savez(tmp_path / "two.npz", X=np.arange(3), Y=np.arange(4))
    assert open_source(tmp_path / "one.npz", "X").shape == (3,)
    assert open_source(tmp_path / "two.npz", "Y").shape == (4,)


@pytest.mark.parametrize("name", [n for n in DTYPES if n not in ("c64", "c128")])
def test_safetensors_of_every_type(tmp_path: Path, name: str) -> None:
    array = numbered((6, 7), DTYPES[name].numpy)
    save_file({"odd": np.ones(3, np.uint8), "layer.0::w": array}, tmp_path / "w.safetensors")
    source = open_source(f"{tmp_path / 'w.safetensors'}::layer.0::w", "W")
    assert source.dtype.name == name
    check(source, ((1, 5), (2, 7)), array)


def test_safetensors_of_complex_numbers(tmp_path: Path) -> None:
    array = numbered((3, 4), np.dtype("c8")) * 1j
    head = json.dumps({"z": {"dtype": "C64", "shape": [3, 4], "data_offsets": [0, 96]}}).encode()
    (tmp_path / "z.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + array.tobytes())
    check(open_source(tmp_path / "z.safetensors", "Z"), ((1, 3), (0, 2)), array)


def test_things_that_share_their_memory() -> None:
    array = numbered((4, 5), np.dtype("f4"))

    class Interface:
        __array_interface__ = array.__array_interface__

    class Capsule:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return array.__dlpack_device__()

    for thing in (Interface(), Capsule(), array):
        source = open_source(thing, "X")
        check(source, ((1, 3), (2, 5)), array)
        assert np.shares_memory(source.array, array)  # type: ignore[attr-defined]
    assert open_source(2.5, "x").shape == ()
    assert open_source([[1, 2], [3, 4]], "x").dtype.name == "i64"
    check(open_source(array.astype(ml_dtypes.bfloat16), "x"), ((0, 4), (1, 2)), array.astype(ml_dtypes.bfloat16))


def test_many_threads_read_one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source_module, "STAGING_NBYTES", 1 << 10)
    array = np.asfortranarray(numbered((120, 130), np.dtype(">f4")))
    np.save(tmp_path / "x.npy", array)
    source = open_source(tmp_path / "x.npy", "X")
    regions = [((i, i + 20), (j, j + 13)) for i in range(0, 120, 20) for j in range(0, 130, 13)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda region: check(source, region, array), regions * 3))


def test_reads_transfer_no_more_than_the_region(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((512, 4096), np.float32))
    source = open_source(tmp_path / "x.npy", "X")
    out = np.empty((512, 256), np.float32)

    def transferred() -> int:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["rchar"])

    before = transferred()
    source.read(((0, 512), (100, 356)), out)
    assert transferred() - before <= 1.05 * out.nbytes


def test_a_region_outside_is_our_bug() -> None:
    source = open_source(np.zeros((3, 4)), "X")
    with pytest.raises(InternalError):
        source.read(((0, 4), (0, 4)), np.zeros((4, 4)))


def test_a_name_with_colons_that_exists_is_a_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    (tmp_path / "a::b.npy").write_bytes(buffer.getvalue())
    assert open_source(str(tmp_path / "a::b.npy"), "X").shape == (3,)
