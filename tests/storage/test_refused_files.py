"""Impossible files, and files that take their data from elsewhere, are refused by name."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import StoreError
from einturnip.storage import open_source
from einturnip.storage.formats.safetensors import SafetensorsEntry, _misplaced

COPY = "input X : f32[n, m]\nY[i,j] = X[i,j]\noutput Y\n"


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.ein").write_text(COPY)
    return tmp_path


def npy(shape: tuple[int, ...]) -> None:
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() + b"\n"
    Path("x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)


def safetensors(entries: Any, data: bytes) -> None:
    text = json.dumps(entries).encode()
    Path("w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


IMPOSSIBLE = [(10**26, 0), (0, 10**26), (2**63, 0), (2**61, 0), (2**40, 2**40, 0)]


@pytest.mark.parametrize("shape", IMPOSSIBLE)
def test_a_shape_beyond_64_bits_is_refused(shape, capsys) -> None:
    npy(shape)
    safetensors({"X": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}, b"")
    for file in ("x.npy", "w.safetensors"):
        assert run(["run", "p.ein", "-i", f"X={file}"]) == 2
        err = capsys.readouterr().err
        assert file in err and str(shape[0]) in err and "internal" not in err
    sizes = [f"--dim={name}={n}" for name, n in zip("nm", shape, strict=False)]
    if len(shape) == 2:
        assert run(["run", "p.ein", "--random", *sizes]) == 2
        err = capsys.readouterr().err
        assert "'X' is too large" in err and "E215" in err


def test_a_long_empty_tensor_is_one_tile() -> None:
    npy((2**61 - 1, 0))
    assert et.compile(COPY)(X="x.npy", out={"Y": "y.npy"})["Y"].shape == (2**61 - 1, 0)


RIGHT = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
WRONG_FIELDS = [("dtype", wrong) for wrong in (["F32"], 1, None, {"F32": 1}, "F" * 100, True)] + [
    (field, wrong)
    for field in ("shape", "data_offsets")
    for wrong in ("2", 2, None, {"0": 2}, [2.0, 2.0], [True, True], [-1, 2], ["0", "8"], [[0], [8]], [None, None])
]


@pytest.mark.parametrize(("field", "wrong"), WRONG_FIELDS)
def test_a_safetensors_entry_of_another_type_is_refused(field, wrong) -> None:
    safetensors({"X": RIGHT | {field: wrong}}, bytes(8))
    with pytest.raises(StoreError, match=r"w\.safetensors::X: .* cannot be read"):
        open_source("w.safetensors::X", "X")


def entry(first: int, last: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [last - first], "data_offsets": [first, last]}


@pytest.mark.parametrize(
    ("entries", "nbytes", "words"),
    [
        ({"a": entry(0, 8), "b": entry(4, 12)}, 12, ["'a' and 'b' overlap", "4 to 8"]),
        ({"a": entry(0, 8), "b": entry(0, 8)}, 8, ["'a' and 'b' overlap"]),
        ({"a": entry(0, 8), "b": entry(10, 12)}, 12, ["bytes 8 to 10", "'b'"]),
        ({"a": entry(2, 8)}, 8, ["bytes 0 to 2", "'a'"]),
        ({"a": entry(0, 8)}, 12, ["last 4 bytes"]),
    ],
)
def test_tensors_that_overlap_or_leave_gaps_are_refused(entries, nbytes, words) -> None:
    safetensors(entries, bytes(nbytes))
    with pytest.raises(StoreError) as caught:
        open_source("w.safetensors::a", "X")
    assert [word for word in ["w.safetensors", *words] if word not in str(caught.value)] == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted), max_size=5), st.integers(0, 8))
def test_the_places_of_tensors_are_right_if_each_byte_belongs_to_one(places, nbytes) -> None:
    """An empty tensor, which has no byte, must not be inside another one."""
    entries: dict[str, SafetensorsEntry | str] = {
        str(i): SafetensorsEntry("U8", (b - a,), a, b) for i, (a, b) in enumerate(places)
    }
    owners = [sum(a <= byte < b for a, b in places) for byte in range(nbytes)]
    within = any(a == b and any(c < a < d for c, d in places) for a, b in places)
    beyond = any(b > nbytes for _, b in places)
    if not beyond:
        assert (_misplaced(entries, nbytes) is None) == (all(n == 1 for n in owners) and not within)


@pytest.fixture
def external(inside: Path) -> dict[str, str]:
    """Datasets whose elements are in other files, by key, and what names them."""
    h5py = pytest.importorskip("h5py")
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    X.tofile("raw.bin")
    with h5py.File("other.h5", "w") as other:
        other["X"] = X
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("stored", (3, 4), "f4", external=[("raw.bin", 0, h5py.h5f.UNLIMITED)])
        layout = h5py.VirtualLayout((3, 4), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "X", (3, 4))
        file.create_virtual_dataset("virtual", layout)
        file["linked"] = h5py.ExternalLink("other.h5", "X")
        file["group"] = h5py.ExternalLink("other.h5", "/")
        file["soft"] = h5py.SoftLink("/group")
        file["round"] = h5py.SoftLink("/round")
        file["mirror"] = h5py.ExternalLink("x.h5", "/mirror")
    return {
        "stored": "raw.bin", "virtual": "other.h5", "linked": "other.h5", "group/X": "other.h5", "soft/X": "other.h5"
    }  # fmt: skip


def test_data_in_other_files_are_read_only_where_allowed(external, capsys) -> None:
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    for key, other in external.items():
        spec = f"x.h5::{key}"
        assert run(["run", "p.ein", "-i", f"X={spec}", "-o", "Y=y.npy", "-q"]) == 2
        err = capsys.readouterr().err
        assert [w for w in (spec, other, "--allow-external", "allow_external=True") if w not in err] == []
        assert not Path("y.npy").exists()
        with pytest.raises(StoreError, match="allow_external"):
            et.open(spec)
        with pytest.raises(StoreError, match="allow_external"):
            et.compile(COPY)(X=spec)
        assert run(["run", "p.ein", "-i", f"X={spec}", "-o", "Y=y.npy", "-q", "--allow-external"]) == 0
        assert (np.load("y.npy") == X).all()
        Path("y.npy").unlink()
        handle = et.open(spec, allow_external=True)
        assert (np.asarray(handle) == X).all()
        assert (et.compile(COPY)(X=handle, allow_external=True)["Y"] == X).all()
        with et.compile(COPY).session(X=spec, allow_external=True) as session:
            assert (session.step()["Y"] == X).all()
        with pytest.raises(StoreError, match="allow_external"):
            et.compile(COPY)(X=spec)  # what one call allows holds for that call


def test_links_in_a_circle_are_refused(external) -> None:
    with pytest.raises(StoreError, match="more than 32 links"):
        et.open("x.h5::round/X")
    with pytest.raises(StoreError, match="more than 32 links"):
        et.open("x.h5::mirror", allow_external=True)


def test_a_virtual_dataset_of_its_own_file_needs_permission_too(inside) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File("x.h5", "w") as file:
        file["X"] = np.ones((2, 2), np.float32)
        layout = h5py.VirtualLayout((2, 2), "f4")
        layout[:] = h5py.VirtualSource(".", "X", (2, 2))
        file.create_virtual_dataset("virtual", layout)
    with pytest.raises(StoreError, match="a virtual dataset"):
        et.open("x.h5::virtual")
    assert (np.asarray(et.open("x.h5::virtual", allow_external=True)) == 1).all()


def test_a_pipe_in_the_place_of_an_external_file_is_refused(external) -> None:

    Path("raw.bin").unlink()
    os.mkfifo("raw.bin")
    with pytest.raises(StoreError, match=r"x\.h5::stored: has data in raw\.bin, which is not a regular file"):
        et.open("x.h5::stored", allow_external=True)
