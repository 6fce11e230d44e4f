"""``EINTURNIP_DUMP``: each intermediate representation of a plan in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et

TEXT = "input A : f32[n,k], B : f32[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
DATA = {"A": np.ones((40, 30), np.float32), "B": np.ones((30, 20), np.float32)}


def test_each_stage_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path / "ir"))
    assert (et.compile(TEXT).plan(data=DATA, arena="64KiB").run()["C"] == 30).all()
    found = {path.name.partition("-")[2]: path.read_text() for path in (tmp_path / "ir").iterdir()}
    assert sorted(found) == [
        "0-compiled.txt", "1-einsum.txt", "2-decomposition.txt", "3-taskgraph.txt", "4-memgraph.txt",
    ]  # fmt: skip
    assert "sum[k] A[i,k]*B[k,j]" in found["0-compiled.txt"]
    assert "load" in found["3-taskgraph.txt"] and "kernel" in found["4-memgraph.txt"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path / "file"))
    with pytest.raises(et.StoreError, match="EINTURNIP_DUMP=.*file: cannot be written"):
        et.compile(TEXT).plan(data=DATA, arena="64KiB")
