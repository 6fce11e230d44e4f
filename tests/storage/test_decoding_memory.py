"""Memory for opening and reading hostile files, measured by the system in a separate process."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import CapacityError
from einturnip.storage.open import keys
from tests.robustness.programs import ENVIRONMENT
from tests.storage.test_decoding import the_chunk

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

# By how much the most that is resident rises while each tensor is opened and read, and the error.
READ = """
import sys
import numpy as np
import h5py, numcodecs.blosc, numcodecs.lz4, numcodecs.zstd
from einturnip.core.errors import EinturnipError
from einturnip.storage import open_source
from einturnip.storage.types import region_shape, whole
def status(field):
    return int(open("/proc/self/status").read().partition(field)[2].split()[0])
def read(spec):
    try:
        source = open_source(spec, "X")
    except EinturnipError as error:
        return str(error)
    try:
        region = whole(source.shape)
        source.read(region, np.empty(region_shape(region), source.dtype.numpy))
    except EinturnipError as error:
        return str(error)
    finally:
        source.close()
    return "read"
for spec in sys.argv[1:]:
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS:")
    said = read(spec)
    print(f"{status('VmHWM:') - before}\\t{said}".replace("\\n", " "))
"""
MIB = 1 << 20
SHAPE = (250, 250)
LARGE = 64 * MIB
ZEROS = bytes(MIB)


def repeated(start: Callable[[], Any], count: int = LARGE // MIB) -> bytes:
    packer = start()
    return b"".join([*(packer.compress(ZEROS) for _ in range(count)), packer.flush()])


def grown(specs: list[str]) -> list[tuple[int, str]]:
    """For each tensor the bytes by which the peak rose, and what came of it."""
    line = [sys.executable, "-c", READ, *specs]
    done = subprocess.run(line, env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    rows = [row.split("\t", 1) for row in done.stdout.splitlines()]
    return [(int(kib) << 10, said) for kib, said in rows]


def zarr_array(path: Path, compressor: object, packed: bytes) -> None:
    zarr.create_array(str(path), data=np.ones(SHAPE, "f4"), chunks=SHAPE, compressors=compressor, zarr_format=2)
    the_chunk(path).write_bytes(packed)


def test_a_chunk_takes_no_more_than_its_shape_says(tmp_path: Path) -> None:
    """Each chunk states 250,000 bytes and decodes to 64 MiB."""
    gzip = repeated(lambda: zlib.compressobj(6, wbits=31))
    deflate = repeated(zlib.compressobj)
    nothing = np.zeros(LARGE, np.uint8)
    zarr_array(tmp_path / "gzip.zarr", numcodecs.GZip(), gzip)
    zarr_array(tmp_path / "zlib.zarr", numcodecs.Zlib(), deflate)
    zarr_array(tmp_path / "bz2.zarr", numcodecs.BZ2(), repeated(bz2.BZ2Compressor))
    zarr_array(tmp_path / "lzma.zarr", numcodecs.LZMA(), repeated(lambda: lzma.LZMACompressor(preset=0)))
    zarr_array(tmp_path / "zstd.zarr", numcodecs.Zstd(), numcodecs.Zstd().encode(nothing))
    zarr_array(tmp_path / "lz4.zarr", numcodecs.LZ4(), numcodecs.LZ4().encode(nothing))
    zarr_array(tmp_path / "blosc.zarr", numcodecs.Blosc(), numcodecs.Blosc().encode(nothing))
    zarr_array(tmp_path / "long.zarr", numcodecs.Zstd(), b"")
    os.truncate(the_chunk(tmp_path / "long.zarr"), LARGE)
    for name, given in {"deflate": {}, "shuffle": {"shuffle": True}}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            dataset = file.create_dataset("x", SHAPE, "f4", chunks=SHAPE, compression="gzip", **given)
            dataset.id.write_direct_chunk((0, 0), deflate)
    with h5py.File(tmp_path / "lzf.h5", "w") as file:
        dataset = file.create_dataset("x", SHAPE, "f4", chunks=SHAPE, compression="lzf")
        dataset.id.write_direct_chunk((0, 0), b"\x00\x00" + b"\xe0\xff\x00" * 80_000)
    archive = zipfile.ZipFile(tmp_path / "deflate.npz", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array(member, np.ones(SHAPE, "f4"))
        for _ in range(LARGE // MIB):
            member.write(ZEROS)
    specs = sorted(str(path) for path in tmp_path.iterdir())
    assert len(specs) == 12
    for spec, (taken, said) in zip(specs, grown(specs), strict=True):
        assert taken < 8 * MIB, (spec, taken, said)
        assert "cannot be read" in said or "damaged" in said, (spec, said)


def test_headers_stay_within_their_limits(tmp_path: Path) -> None:
    """Those that are larger are refused before they are parsed; the largest that are read take some megabytes."""

    def named(count: int) -> dict[str, object]:
        return {f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(count)}

    def safetensors(name: str, header: dict[str, object], data: int = 4) -> None:
        text = json.dumps(header).encode()
        with open(tmp_path / name, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + data)

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def gguf(name: str, pairs: list[bytes], tensors: list[bytes]) -> None:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs + tensors)
        (tmp_path / name).write_bytes(head + bytes(-len(head) % 32) + bytes(64))

    x = text("x") + struct.pack("<IQIQ", 1, 4, 0, 0)
    safetensors("many.safetensors", named(110_000), 4 * 110_000)
    safetensors("some.safetensors", named(20_000), 4 * 20_000)
    safetensors("listed.safetensors", {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "y": [{}] * 10**6}})
    safetensors("said.safetensors", {"__metadata__": {"k": ["x"] * 10**6}, **named(1)})
    gguf("pairs.gguf", [text(f"k{i}") + struct.pack("<IB", 0, 1) for i in range(10_001)], [x])
    gguf("text.gguf", [text("k") + struct.pack("<I", 8) + text("v" * 64 * MIB)], [x])
    gguf("names.gguf", [], [text(f"{i:0100000}") + x[9:] for i in range(100)])
    vocabulary = b"".join(text(f"word{i}") for i in range(100_000))
    gguf("words.gguf", [text("k") + struct.pack("<IIQ", 9, 8, 100_000) + vocabulary], [x])
    raw = ("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 40_000 + ")}").encode()
    (tmp_path / "axes.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(raw)) + raw + bytes(64))
    with zipfile.ZipFile(tmp_path / "members.npz", "w") as archive:
        for i in range(30_000):
            archive.writestr(zipfile.ZipInfo(f"member_{i:025}.npy"), b"")
    zarr.create_array(str(tmp_path / "said.zarr"), data=np.ones(SHAPE, "f4"))
    meta = json.loads((tmp_path / "said.zarr/zarr.json").read_text())
    (tmp_path / "said.zarr/zarr.json").write_text(json.dumps(meta | {"attributes": {"a": [{}] * 10**6}}))
    expected = {
        "axes.npy": "einturnip reads at most 65,536",
        "listed.safetensors": "longer than 65,536 characters",
        "many.safetensors::t7": "more than 100,000 tensors",
        "members.npz": "its list of members takes",
        "names.gguf": "the names and values in its header take",
        "pairs.gguf": "10,001 keys",
        "said.safetensors": "more than 50,000 values in one place",
        "said.zarr": "values; einturnip reads at most 100,000",
        "some.safetensors::t7": "read",
        "text.gguf": "a text of 67,108,864 bytes",
        "words.gguf": "read",
    }
    for (name, wanted), (taken, said) in zip(
        expected.items(), grown([str(tmp_path / name) for name in expected]), strict=True
    ):
        assert wanted in said, (name, said)
        assert taken < 40 * MIB, (name, taken)


def test_chunks_that_are_streamed_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    """Others are refused before the first byte is read; the message names the chunk, and the memory that will do."""
    x = np.ones((4000, 2000), np.float32)
    zarr.create_array(str(tmp_path / "gzip.zarr"), data=x, chunks=x.shape, compressors=zarr.codecs.GzipCodec())
    zarr.create_array(str(tmp_path / "zstd.zarr"), data=x, chunks=x.shape, compressors=zarr.codecs.ZstdCodec())
    program = et.compile("input X : f32[n, m]\ns = sum[i, j] X[i, j]\noutput s")
    assert program(X=str(tmp_path / "gzip.zarr"), memory="32MiB")["s"] == x.size
    with pytest.raises(CapacityError, match=r"decoding one of the chunks of 30.5 MiB of \S+zstd.zarr takes") as refused:
        program(X=str(tmp_path / "zstd.zarr"), memory="32MiB")
    assert program(X=str(tmp_path / "zstd.zarr"), memory=refused.value.needed)["s"] == x.size


def attributes(target: Any) -> None:
    for i in range(200):
        target.attrs[f"a{i}"] = np.zeros(64_000, np.uint8)


def test_hdf5_attributes_take_no_memory(tmp_path: Path) -> None:
    """The library reads headers whole, and the attributes in them.

    12.8 MB of the dataset, of its group, of the root group and of the dataset's type.
    """

    def dataset(name: str, libver: str | None = None) -> Any:
        file = h5py.File(tmp_path / name, "w", libver=libver)
        file["T"] = np.dtype("f4")
        return file.create_dataset("g/x", data=np.ones(SHAPE), dtype=file["T"])

    for name, of in {
        "dataset.h5": lambda x: x,
        "group.h5": lambda x: x.parent,
        "root.h5": lambda x: x.file,
        "type.h5": lambda x: x.file["T"],
    }.items():
        x = dataset(name)
        attributes(of(x))
        x.file.close()
    x = dataset("dense.h5", "latest")
    attributes(x)
    x.file.close()
    x = dataset("continued.h5", "latest")
    x.attrs["small"] = np.zeros(100)
    x.file.close()
    paths = sorted(tmp_path.iterdir())
    specs = [f"{path}{key}" for path in paths for key in ("::g/x", "")]
    for spec, (taken, said) in zip(specs, grown(specs), strict=True):
        assert taken < 8 * MIB, (spec, taken, said)
        if Path(spec.partition("::")[0]).name in ("dense.h5", "continued.h5"):
            assert said == "read", (spec, said)
        else:
            assert "take more than 4 MiB" in said, (spec, said)


def test_names_of_hdf5_datasets_are_listed_in_order(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for key in ("b", "a/z", "a/b/c", "a-b", "c"):
            file[key] = np.ones(3)
        file["again"] = file["b"]
        file["a/loop"] = file["a"]
        file["soft"] = h5py.SoftLink("/b")
    assert keys(str(tmp_path / "x.h5")) == ("a/b/c", "a/z", "a-b", "again", "c")


# By how much the most that is resident rises while several threads read a source alternately, beyond what it states.
ALTERNATE = """
import sys, threading
import numpy as np
import numcodecs.zstd, numcodecs.blosc, h5py
from einturnip.storage import open_source
def status(field):
    return int(open("/proc/self/status").read().partition(field)[2].split()[0])
source = open_source(sys.argv[1], "X")
rows, columns = source.shape
out = [np.ones((10, columns), source.dtype.numpy) for _ in range(3)]
turn, now = threading.Condition(), 0
def work(k):
    global now
    for row in range(0, rows, 30):
        with turn:
            turn.wait_for(lambda: now % 3 == k)
            source.read(((row + 10 * k, row + 10 * k + 10), (0, columns)), out[k])
            now += 1
            turn.notify_all()
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS:")
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(1024 * (status("VmHWM:") - before) - source.reading_nbytes)
"""


@pytest.mark.parametrize("form", ["zstd", "blosc", "shuffle", "delta"])
def test_threads_together_take_what_a_source_states(tmp_path: Path, form: str) -> None:
    """Freed memory is not kept for each thread, as malloc does with buffers of less than 32 MiB."""
    data = np.random.default_rng(1).integers(0, 1 << 30, (90, 1 << 17), "i4").view("f4")
    chunks = (45, 1 << 16)
    path = tmp_path / ("x.h5" if form == "shuffle" else "x.zarr")
    if form == "shuffle":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=data, chunks=chunks, compression="gzip", compression_opts=1, shuffle=True)
    elif form == "delta":
        filters = [numcodecs.Delta("i4")]
        zarr.create_array(str(path), data=data.view("i4"), chunks=chunks, filters=filters, zarr_format=2)
    else:
        codec = zarr.codecs.ZstdCodec() if form == "zstd" else zarr.codecs.BloscCodec(cname="lz4")
        zarr.create_array(str(path), data=data, chunks=chunks, compressors=codec)
    done = subprocess.run([sys.executable, "-c", ALTERNATE, path], env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MIB, done.stdout
