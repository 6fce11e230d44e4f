"""``einturnip plan --parts``: the paper's decomposition, as tools read it."""

from __future__ import annotations

import json

import pytest

from einturnip.cli.main import run

PRODUCT = "input A : f32[n, m]\ninput B : f32[m, p]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n"


@pytest.fixture
def plan(tmp_path, capsys):
    def call(*options):
        (tmp_path / "p.ein").write_text(PRODUCT)
        dims = [word for name in "nmp" for word in ("--dim", f"{name}=256")]
        code = run(["plan", str(tmp_path / "p.ein"), *dims, *options])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def test_counts_and_costs_of_a_product(plan):
    code, text = plan("--parts", "8", "--emit", "decomposition", "--format", "json")
    found = json.loads(text)
    product = found["nodes"][2]
    assert code == 0 and found["schema"] == "einturnip.decomposition/1" and found["parts"] == 8
    assert product["counts"] == [2, 2, 2]
    assert found["cost_bytes"] == sum(product["cost_bytes"].values()) == 5 * 256 * 256 * 4


def test_in_words(plan):
    code, text = plan("--parts", "8")
    assert code == 0 and "i: 2 x 128, k: 2 x 128, j: 2 x 128" in text and "in all 1310720 bytes" in text


def test_other_floors_have_no_parts(plan):
    code, text = plan("--parts", "8", "--emit", "memgraph")
    assert code == 2 and "--emit decomposition" in text


def test_baselines_stand_beside(plan):
    code, text = plan("--parts", "8", "--emit", "decomposition", "--format", "json")
    found = json.loads(text)
    assert code == 0 and {b["name"]: b["labels"] for b in found["baselines"]} == {
        "data parallel": ["i"],
        "tensor parallel": ["j", "k"],
    }
    assert all(sum(b["cost_bytes"].values()) >= found["cost_bytes"] for b in found["baselines"])
    assert "data parallel (i)" in plan("--parts", "8")[1]


def test_tasks_of_several_devices(plan):
    code, text = plan("--parts", "8", "--emit", "taskgraph", "--format", "json")
    found = json.loads(text)
    moves = [task for task in found["tasks"] if task["kind"] == "move"]
    assert code == 0 and found["schema"] == "einturnip.taskgraph/1"
    assert {task["device"] for task in found["tasks"]} == {f"cpu:{k}" for k in range(8)}
    loaded = sum(task["nbytes"] for task in found["tasks"] if task["kind"] == "load")
    assert found["moved_bytes"] == sum(task["nbytes"] for task in moves)
    assert loaded + found["moved_bytes"] == found["cost_bytes"]
    states = sum(task["nbytes"] for task in moves if task["node"] == 2)
    assert states == 256 * 256 * 4 and all(task["from"] != task["device"] for task in moves)
    assert sum(found["predicted"]["link_bytes"].values()) == found["moved_bytes"]
    operations = [device["flops"] for device in found["devices"]]
    assert sum(operations) == 8 * 2 * 128**3 + 4 * 128**2 and max(operations) - min(operations) == 128**2
    assert f"in all {found['moved_bytes']} bytes moved" in plan("--parts", "8", "--emit", "taskgraph")[1]
