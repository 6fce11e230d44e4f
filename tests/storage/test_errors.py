"""Errors of reading and writing state the cause, the place and the remedy."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einturnip.core.errors import BindError, EinturnipError, StoreError
from einturnip.ir.dtypes import BF16, C128, F32, F64
from einturnip.storage import OutputRequest, open_sink, open_sinks, open_source


def refused(spec: Any, kind: type[EinturnipError], *words: str, name: str = "X") -> None:
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(kind) as caught:
        open_source(spec, name)
    for word in (*words, *([spec.partition("::")[0]] if isinstance(spec, str) else [])):
        assert word in str(caught.value)
    caught = None  # type: ignore[assignment]
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_truncated_file() -> None:
    np.save("x.npy", np.zeros((10, 10)))
    os.truncate("x.npy", 500)
    refused("x.npy", StoreError, "truncated", "needs 928 bytes", "has 500")
    os.truncate("x.npy", 60)
    refused("x.npy", StoreError, "header", "needs 128 bytes", "has 60")
    os.truncate("x.npy", 9)
    refused("x.npy", StoreError, "header")
    os.truncate("x.npy", 0)
    refused("x.npy", StoreError, "is empty")


def test_pickles_and_types_without_a_name() -> None:
    np.save("o.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    refused("o.npy", StoreError, "pickled", "np.save")
    np.save("v.npy", np.zeros(3, ml_dtypes.bfloat16))
    refused("v.npy", StoreError, "bf16", ".safetensors")
    np.save("r.npy", np.zeros(3, [("a", "f4"), ("b", "i4")]))
    refused("r.npy", StoreError, "fields (a, b)")
    np.save("s.npy", np.array(["text"]))
    refused("s.npy", StoreError, "<U4", "astype")
    refused(np.array(["text"]), BindError, "<U4")
    refused(np.array([object()]), BindError, "object")
    refused([[1, 2], [3]], BindError, "rectangular")
    refused({"a": 1}, BindError, "dict")


def test_files_that_are_not_there() -> None:
    np.save("weights.npy", np.zeros(3))
    refused("weigths.npy", BindError, "no such file", "did you mean weights.npy?")
    refused("zz.npy", BindError, "no such file", "holds weights.npy")
    refused("nowhere/zz.npy", BindError, "directory 'nowhere'")


def test_what_is_no_npy() -> None:
    Path("t.npy").write_text("1,2,3,4,5,6,7,8")
    refused("t.npy", StoreError, "is no .npy")
    np.savez("a.npz", a=np.zeros(3))
    os.rename("a.npz", "z.npy")
    refused("z.npy", StoreError, "zip")
    Path("h.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'shape': (3,   \n" + bytes(99))
    refused("h.npy", StoreError, "damaged")
    Path("h9.npy").write_bytes(b"\x93NUMPY\x09\x00\x10\x00" + bytes(99))
    refused("h9.npy", StoreError, "version 9")
    os.mkdir("d.npy")
    refused("d.npy", StoreError, "directory")
    os.mkfifo("p.npy")
    refused("p.npy", StoreError, "pipe")
    refused("x.csv", BindError, ".csv", ".safetensors")
    refused("t.npy::key", BindError, "no keys")


def test_keys() -> None:
    np.savez("a.npz", first=np.zeros(3), second=np.zeros(4))
    refused("a.npz::frist", BindError, "did you mean first", "second")
    refused("a.npz", BindError, "a.npz::first", "'X'")
    Path("b.npz").write_bytes(b"no zip at all")
    refused("b.npz", StoreError, ".npz")


def test_damaged_archives() -> None:
    np.savez_compressed("c.npz", a=np.arange(5000) % 77)
    raw = bytearray(Path("c.npz").read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    Path("c.npz").write_bytes(raw)
    with pytest.raises(StoreError, match="damaged"):
        open_source("c.npz", "X").read(((0, 5000),), np.zeros(5000, np.int64))
    with zipfile.ZipFile("t.npz", "w") as archive:
        archive.writestr("a.npy", Path("c.npz").read_bytes()[:20])
    refused("t.npz", StoreError, "t.npz::a", "is no .npy")


def test_damaged_safetensors() -> None:
    def write(header: Any, data: bytes = b"", length: int | None = None) -> None:
        text = json.dumps(header).encode()
        Path("w.safetensors").write_bytes(struct.pack("<Q", length if length is not None else len(text)) + text + data)

    write({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, bytes(15))
    refused("w.safetensors", StoreError, "truncated", "a needs")
    write({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}}, bytes(16))
    refused("w.safetensors", StoreError, "takes 16 bytes")
    write({"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, bytes(4))
    refused("w.safetensors", StoreError, "F8_E4M3", "F32")
    write({"a": {"dtype": "F32", "shape": [-4]}}, bytes(4))
    refused("w.safetensors", StoreError, "damaged")
    write([], bytes(4))
    refused("w.safetensors", StoreError, "damaged")
    write({}, bytes(4), 1 << 50)
    refused("w.safetensors", StoreError, "is no .safetensors")
    write({}, b"", 999)
    refused("w.safetensors", StoreError, "truncated", "needs 1007")
    Path("w.safetensors").write_bytes(b"abc")
    refused("w.safetensors", StoreError, "3 bytes")


def test_a_file_that_shrinks_while_it_is_read() -> None:
    np.save("x.npy", np.zeros((64, 64), np.float32))
    source = open_source("x.npy", "X")
    os.truncate("x.npy", 8000)
    for region in (((0, 64), (0, 64)), ((0, 64), (3, 9))):
        out = np.zeros(tuple(b - a for a, b in region), np.float32)
        with pytest.raises(StoreError, match=r"x\.npy: the file became shorter"):
            source.read(region, out)


def test_outputs_that_cannot_be() -> None:
    for spec, dtype, kind, words in (
        ("y.npy", BF16, BindError, ".safetensors"),
        ("y.npz", BF16, BindError, "y.npz::Y"),
        ("y.safetensors", C128, BindError, ".npy"),
        ("y.txt", F32, BindError, ".txt"),
        ("y.npy::k", F32, BindError, "no keys"),
        ("y.npz::", F32, BindError, "no key"),
        ("none/y.npy", F32, BindError, "no directory"),
        (np.zeros(4, np.float64), F32, BindError, "f32[3]"),
        (np.zeros(3, np.float64), F32, BindError, "float64[3]"),
        (np.broadcast_to(np.float32(0), 3), F32, BindError, "read-only"),
        ([0.0] * 3, F32, BindError, "list"),
    ):
        with pytest.raises(kind) as caught:
            open_sink(spec, "Y", (3,), dtype)
        assert words in str(caught.value)
    os.mkdir("d.npy")
    with pytest.raises(BindError, match="directory"):
        open_sink("d.npy", "Y", (3,), F32)
    assert os.listdir() == ["d.npy"]


def test_two_outputs_in_one_place() -> None:
    for first, second in (("y.npy", "y.npy"), ("y.npy", "./y.npy"), ("y.npz::k", "y.npz::k"), ("y.npz::B", "y.npz")):
        with pytest.raises(BindError, match="A and B are both"):
            open_sinks([OutputRequest(first, "A", (3,), F64), OutputRequest(second, "B", (3,), F64)])
    sink = open_sink("y.npz::a", "A", (3,), F64)
    with pytest.raises(BindError, match="open all arrays of one file together"):
        open_sink("y.npz::b", "B", (3,), F64)
    sink.abort()
    assert os.listdir() == []


def test_an_ending_without_a_format() -> None:
    refused("3", BindError, "has no ending", ".npy", ".gguf")
    refused("x.xyz", BindError, "'.xyz' names no format", ".gguf")
    with pytest.raises(BindError, match="ends with one of .npy") as caught:
        open_sink("y.xyz", "Y", (2,), F32)
    assert ".gguf" not in str(caught.value) and ".safetensors" in str(caught.value)
