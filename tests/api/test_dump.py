"""``EINTURNIP_DUMP``: each intermediate representation of a plan in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import InternalError
from tests.robustness.programs import SPILLING

TEXT = "input A : f32[n,k], B : f32[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
STAGES = [
    "0-compile-einsum.txt", "1-search-einsum.txt", "2-search-decomposition.txt", "3-search-taskgraph.txt",
    "4-search-memgraph.txt",
]  # fmt: skip
DATA = {"A": np.ones((40, 30), np.float32), "B": np.ones((30, 20), np.float32)}


def test_each_stage_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path / "ir"))
    assert (et.compile(TEXT).plan(data=DATA, arena="64KiB").run()["C"] == 30).all()
    found = {path.name.partition("-")[2]: path.read_text() for path in (tmp_path / "ir").iterdir()}
    assert sorted(found) == STAGES
    assert "sum[k] A[i,k]*B[k,j]" in found["0-compile-einsum.txt"]
    assert "load" in found["3-search-taskgraph.txt"] and "kernel" in found["4-search-memgraph.txt"]


def test_a_pass_that_changes_the_memory_graph_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path))
    plan = et.compile(SPILLING).plan(dims={"n": 200}, arena="300KiB", device="sim", workers=1)
    assert plan._job.planned.memgraph.host_nbytes > 0
    assert sorted(path.name.partition("-")[2] for path in tmp_path.iterdir()) == [*STAGES, "5-device-memgraph.txt"]


def test_a_plan_that_is_not_proven_is_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(graph: object, memgraph: object) -> None:
        raise InternalError("op 7 races with op 5")

    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path))
    monkeypatch.setenv("EINTURNIP_PLANS", "off")
    monkeypatch.setattr("einturnip.planner.planner.prove", check)
    with pytest.raises(InternalError, match="op 7 races"):
        et.compile(TEXT).plan(data=DATA, arena="64KiB")
    assert sorted(path.name.partition("-")[2] for path in tmp_path.iterdir()) == STAGES


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EINTURNIP_DUMP", str(tmp_path / "file"))
    with pytest.raises(et.StoreError, match="EINTURNIP_DUMP=.*file: cannot be written"):
        et.compile(TEXT).plan(data=DATA, arena="64KiB")
