"""Chunks of any codec decode to what the library decodes; those that hold more or less than they should are refused."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import StoreError
from einturnip.storage import open_source
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.chunks.compression import DecodeError, compressor
from einturnip.storage.chunks.decoder import ChunkDecoder, StoredChunk
from einturnip.storage.chunks.filters import fletcher32
from einturnip.storage.formats.hdf5_chunks import lzf_nbytes
from einturnip.storage.types import Region, Source, region_shape, slices, whole
from tests.drawn import examples

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

X = np.random.default_rng(0).integers(0, 9, (37, 50)).astype(np.float32)

COMPRESSORS = {
    "gzip": numcodecs.GZip(),
    "zlib": numcodecs.Zlib(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "lzma_raw": numcodecs.LZMA(format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1}]),
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc(),
    "blosc_lz4": numcodecs.Blosc("lz4", shuffle=numcodecs.Blosc.BITSHUFFLE),
    "lz4": numcodecs.LZ4(),
}
FILTERS = {
    "shuffle": [numcodecs.Shuffle(4)],
    "delta": [numcodecs.Delta("<f4", "<f8")],
    "scaled": [numcodecs.FixedScaleOffset(offset=0, scale=2, dtype="<f4", astype="u1")],
    "checksums": [numcodecs.CRC32(), numcodecs.Adler32(), numcodecs.Fletcher32()],
}


def read(source: Source, region: Region | None = None) -> np.ndarray:
    region = whole(source.shape) if region is None else region
    out = np.zeros(region_shape(region), source.dtype.numpy)
    source.read(region, out)
    return out


def the_chunk(path: Path) -> Path:
    (file,) = [f for f in path.rglob("*") if f.is_file() and f.suffix != ".json" and not f.name.startswith(".")]
    return file


def version_2(path: Path, **given: Any) -> None:
    zarr.create_array(str(path), data=X, zarr_format=2, **{"chunks": (10, 7), **given})


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors_of_version_2(tmp_path: Path, name: str, order: str) -> None:
    version_2(tmp_path / "x.zarr", compressors=COMPRESSORS[name], order=order)
    source = open_source(str(tmp_path / "x.zarr"), "X")
    np.testing.assert_array_equal(read(source), X)
    np.testing.assert_array_equal(read(source, ((3, 31), (6, 8))), X[3:31, 6:8])


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("compressed", ["gzip", "zstd", None])
def test_filters_of_version_2(tmp_path: Path, name: str, compressed: str | None) -> None:
    used = None if compressed is None else COMPRESSORS[compressed]
    version_2(tmp_path / "x.zarr", compressors=used, filters=FILTERS[name])
    np.testing.assert_array_equal(read(open_source(str(tmp_path / "x.zarr"), "X")), X)


C = zarr.codecs


@pytest.mark.parametrize(
    "given",
    [
        {"compressors": C.GzipCodec()},
        {"compressors": [C.BloscCodec(), C.Crc32cCodec()]},
        {"compressors": [C.GzipCodec(), C.Crc32cCodec()], "filters": C.TransposeCodec(order=(1, 0))},
        {"compressors": C.ZstdCodec(), "serializer": C.BytesCodec(endian="big")},
        {"compressors": None, "serializer": C.BytesCodec(endian="big"), "filters": C.TransposeCodec(order=(1, 0))},
        {"compressors": C.ZstdCodec(checksum=True), "shards": (20, 14)},
        {"compressors": C.GzipCodec(), "shards": {"shape": (20, 14), "index_location": "start"}},
    ],
)
def test_codecs_of_version_3(tmp_path: Path, given: dict[str, Any]) -> None:
    zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(10, 7), **given)
    source = open_source(str(tmp_path / "x.zarr"), "X")
    np.testing.assert_array_equal(read(source), X)
    np.testing.assert_array_equal(read(source, ((3, 31), (6, 8))), X[3:31, 6:8])
    assert isinstance(source, ChunkedSource)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 2, 3)])
def test_ranks_and_empty_arrays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape) + 1
    for version in (2, 3):
        path = tmp_path / f"{version}.zarr"
        zarr.create_array(str(path), data=x, chunks=tuple(max(1, n // 2) for n in shape), zarr_format=version)
        np.testing.assert_array_equal(read(open_source(str(path), "X")), x)


HDF5 = {
    "deflate": {"compression": "gzip"},
    "shuffled": {"compression": "gzip", "shuffle": True},
    "checked": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "only_checked": {"fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "szip": {"compression": "szip"},
    "scaleoffset": {"scaleoffset": 0, "dtype": "i4"},
    "big": {"compression": "gzip", "dtype": ">f4"},
    "complex": {"compression": "gzip", "shuffle": True, "dtype": "c8", "fillvalue": 1j},
    "booleans": {"compression": "gzip", "dtype": "?"},
}


@pytest.mark.parametrize("name", HDF5)
def test_filters_of_hdf5(tmp_path: Path, name: str) -> None:
    if name == "szip" and not h5py.h5z.get_filter_info(h5py.h5z.FILTER_SZIP) & h5py.h5z.FILTER_CONFIG_ENCODE_ENABLED:
        pytest.skip("this HDF5 library does not write szip")
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
        dataset = file.create_dataset("x", X.shape, chunks=(10, 8), **{"dtype": "f4", "fillvalue": 1, **HDF5[name]})
        dataset[:30] = (X[:30] > 4 if name == "booleans" else X[:30]).astype(dataset.dtype)
        expected = dataset[()]
    source = open_source(str(tmp_path / "x.h5"), "X")
    np.testing.assert_array_equal(read(source), expected)
    np.testing.assert_array_equal(read(source, ((3, 31), (6, 11))), expected[3:31, 6:11])


@pytest.mark.parametrize("size", [0, 1, 2, 7, 360, 361, 131072, 300001])
@pytest.mark.parametrize("fill", [None, 0, 255])
def test_fletcher32_is_that_of_numcodecs(size: int, fill: int | None) -> None:
    data = (
        np.random.default_rng(size).integers(0, 256, size, np.uint8) if fill is None else np.full(size, fill, np.uint8)
    )
    expected = bytes(numcodecs.Fletcher32().encode(data))[-4:] if size else bytes(4)
    assert fletcher32(memoryview(data.tobytes()))[0] == int.from_bytes(expected, "little")


def test_tiles_in_order_decode_a_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einturnip.storage.chunks.decoder.PIECE_NBYTES", 400)
    version_2(tmp_path / "x.zarr", compressors=numcodecs.GZip(), chunks=(37, 50))
    started = list[object]()
    start = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda wbits: started.append(wbits) or start(wbits))
    source, open_files = open_source(str(tmp_path / "x.zarr"), "X"), len(os.listdir("/proc/self/fd"))
    for first in (0, 5, 15, 10, 20, 30, 25, 35):
        region = ((first, min(37, first + 5)), (0, 50))
        np.testing.assert_array_equal(read(source, region), X[slices(region)])
    assert len(started) == 2, "one stream serves tiles in order, a second one those that come late"
    source.close()
    assert len(os.listdir("/proc/self/fd")) == open_files


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_region_of_a_streamed_chunk(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    sides = [st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda side: tuple(sorted(side))) for n in shape]
    regions = data.draw(st.lists(st.tuples(*sides), min_size=1, max_size=6))
    x = np.arange(np.prod(shape), dtype=">i4").reshape(shape)
    packed = zlib.compress(x.transpose(order).tobytes())
    codec = compressor("zlib", {})
    assert codec is not None
    fd = os.memfd_create("chunk")
    os.write(fd, packed)
    with pytest.MonkeyPatch.context() as small:
        for module in ("decoder", "compression"):
            small.setattr(f"einturnip.storage.chunks.{module}.PIECE_NBYTES", data.draw(st.integers(4, 64)))
        decoder = ChunkDecoder([codec], shape, x.dtype, order)
        for region in regions:
            out = np.zeros(region_shape(region), np.int32)
            decoder.read(StoredChunk(fd, 0, len(packed), "chunk"), region, out)
            np.testing.assert_array_equal(out, x[slices(region)])
        decoder.close()
    os.close(fd)


SIZE = 4 * 10 * 50
ENCODED = {
    "gzip": numcodecs.GZip().encode,
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "lzma": lzma.compress,
    "zstd": numcodecs.Zstd().encode,
    "blosc": numcodecs.Blosc().encode,
    "lz4": numcodecs.LZ4().encode,
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("nbytes", [0, SIZE - 1, SIZE + 1, 100 * SIZE])
def test_a_chunk_of_another_size_is_refused(tmp_path: Path, name: str, nbytes: int) -> None:
    version_2(tmp_path / "x.zarr", compressors=COMPRESSORS[name], chunks=(40, 50))
    the_chunk(tmp_path / "x.zarr").write_bytes(ENCODED[name](np.zeros(4 * 40 * 50 // SIZE * nbytes, np.uint8)))
    with pytest.raises(StoreError, match="a chunk cannot be read.*(decodes to|instead of|not a|is no|ends in)"):
        read(open_source(str(tmp_path / "x.zarr"), "X"))


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("filters", [None, [numcodecs.Shuffle(4)]])
def test_a_damaged_chunk_is_refused(tmp_path: Path, name: str, filters: Any) -> None:
    version_2(tmp_path / "x.zarr", compressors=COMPRESSORS[name], filters=filters, chunks=(40, 50))
    chunk = the_chunk(tmp_path / "x.zarr")
    content = chunk.read_bytes()
    for damaged in (b"", content[:3], content[: len(content) // 2], b"\xff" * len(content)):
        chunk.write_bytes(damaged)
        with pytest.raises(StoreError, match="a chunk cannot be read"):
            read(open_source(str(tmp_path / "x.zarr"), "X"))


def test_a_zstd_frame_without_its_size(tmp_path: Path) -> None:
    """Compressors that do not know how much comes leave the size out."""
    version_2(tmp_path / "x.zarr", compressors=numcodecs.Zstd(), chunks=(40, 50))
    padded = np.zeros((40, 50), np.float32)
    padded[:37] = X
    raw = padded.tobytes()
    # One raw block (type 0) that is the last: RFC 8878, 3.1.1.2.
    frame = b"\x28\xb5\x2f\xfd" + b"\x00\x50" + (len(raw) << 3 | 1).to_bytes(3, "little")
    the_chunk(tmp_path / "x.zarr").write_bytes(frame + raw)
    np.testing.assert_array_equal(read(open_source(str(tmp_path / "x.zarr"), "X")), X)
    block = (len(raw) << 3 | 0).to_bytes(3, "little") + raw
    the_chunk(tmp_path / "x.zarr").write_bytes(frame[:6] + 5 * block + frame[6:] + raw)
    with pytest.raises(StoreError, match="a chunk cannot be read"):
        read(open_source(str(tmp_path / "x.zarr"), "X"))


@pytest.mark.parametrize("name", ["deflate", "shuffled", "checked", "lzf"])
def test_a_chunk_of_hdf5_of_another_size_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.h5"
    for nbytes in (4 * 37 * 50 - 4, 4 * 37 * 50 + 4):
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset("x", X.shape, "f4", chunks=X.shape, **HDF5[name])
            raw = b"\0" * nbytes
            if name == "lzf":
                packed = b"".join(b"\x1f" + raw[:32] for _ in range(nbytes // 32)) + bytes([nbytes % 32 - 1]) * (
                    nbytes % 32 + 1
                )
                assert lzf_nbytes(memoryview(packed), nbytes) == nbytes
            else:
                packed = zlib.compress(raw)
            if "fletcher32" in HDF5[name]:
                packed += fletcher32(memoryview(packed))[0].to_bytes(4, "little")
            dataset.id.write_direct_chunk((0, 0), packed)
        source = open_source(str(path), "X")
        with pytest.raises(StoreError, match="a chunk cannot be read.*instead of|more than"):
            read(source)
        source.close()


def test_lzf_sizes() -> None:
    assert lzf_nbytes(memoryview(b"\x02abc\x20\x00\xe0\x05\x00"), 100) == 3 + 3 + 14
    assert lzf_nbytes(memoryview(b"\x00a" + b"\xe0\xff\x00" * 1000), 500) <= 500 + 264


def test_shards_that_do_not_hold_their_chunks(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(str(path), data=X, chunks=(10, 50), shards=(40, 50))
    shard = the_chunk(path)
    content = shard.read_bytes()
    index = bytearray(content[-(16 * 4 + 4) : -4])
    index[0:8] = (10**9).to_bytes(8, "little")
    crc = numcodecs.CRC32C().encode(np.frombuffer(index, np.uint8))
    for damaged, said in [
        (content[:20], "its index alone takes 68"),
        (content[:-1] + b"x", "crc32c checksum is wrong"),
        (content[: -len(index) - 4] + bytes(crc), "after the end of the file"),
    ]:
        shard.write_bytes(damaged)
        with pytest.raises(StoreError, match=said):
            read(open_source(str(path), "X"))


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for."""
    for name, changed in {"plain": {"compressors": None}, "packed": {}}.items():
        path = tmp_path / f"{name}.zarr"
        version_2(path, chunks=(40, 50), **changed)
        chunk = the_chunk(path)
        chunk.unlink()
        os.mkfifo(chunk)
        with pytest.raises(StoreError, match="not a regular file"):
            read(open_source(str(path), "X"))
        (path / ".zarray").unlink()
        os.mkfifo(path / ".zarray")
        with pytest.raises(StoreError, match="not a regular file"):
            open_source(str(path), "X")
    for ending in ("npy", "npz", "h5", "gguf", "safetensors", "safetensors.index.json"):
        os.mkfifo(tmp_path / f"x.{ending}")
        with pytest.raises(StoreError, match="not a regular file"):
            open_source(f"{tmp_path}/x.{ending}", "X")


def test_codecs_that_are_not_supported_are_named(tmp_path: Path) -> None:
    version_2(tmp_path / "x.zarr", compressors=numcodecs.Zlib())
    file = tmp_path / "x.zarr" / ".zarray"
    meta = json.loads(file.read_text())
    for change, said in [
        ({"compressor": {"id": "mine"}}, "codec 'mine' is not supported; supported are gzip"),
        ({"filters": [{"id": "bz2"}]}, "two compressors"),
        ({"filters": [{"id": "shuffle", "elementsize": 0}]}, "metadata cannot be read"),
        ({"chunks": [0, 7]}, "metadata cannot be read"),
        ({"dtype": "|O"}, "no type for"),
    ]:
        file.write_text(json.dumps(meta | change))
        with pytest.raises(StoreError, match=said):
            open_source(f"{tmp_path}/x.zarr", "X")


def test_a_decoder_refuses_what_it_did_not_account_for() -> None:
    with pytest.raises(DecodeError, match=r"takes 1,000,000 bytes, more than the 65,"):
        codec = compressor("zstd", {})
        assert codec is not None
        decoder = ChunkDecoder([codec], (4,), np.dtype("f4"), (0,))
        decoder.read(StoredChunk(-1, 0, 10**6, "x"), ((0, 4),), np.zeros(4, np.float32))
