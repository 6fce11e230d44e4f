"""``einturnip verify`` as a user meets it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.cli.main import run
from einturnip.verify.types import NotAPlan
from tests.verify.faults import good
from tests.verify.plans import Json, verdict_of

Command = Callable[..., tuple[int, str, str]]

PRODUCT = """\
input A : f32[n, m]
input B : f32[m, n]
C[i,j] = sum[k] A[i,k] * B[k,j]
T[i,j] = C[i,j] / sum[j] C[i,j]
output C, T
"""


@pytest.fixture
def command(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    Path("product.ein").write_text(PRODUCT)
    Path("plan.json").write_text(json.dumps(good()))

    def call(*arguments: Any) -> tuple[int, str, str]:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def planned(command: Command, *more: str) -> str:
    sizes = ("--dim", "n=60", "--dim", "m=50", "--arena", "24KiB")
    code, out, err = command("plan", "product.ein", *sizes, *more, "--emit", "memgraph", "--format", "json")
    assert code == 0, err
    return out


@pytest.mark.parametrize(
    "outputs", [(), ("-o", "C=c.npy", "-o", "T=both.npz::T"), ("-o", "C=o.npz::C", "-o", "T=o.npz::T")]
)
def test_what_plan_prints_is_valid(command: Command, outputs: tuple[str, ...]) -> None:
    Path("p.json").write_text(planned(command, *outputs))
    code, out, err = command("verify", "p.json")
    assert code == 0 and err == "", out + err
    assert out.startswith("p.json: valid\nprogram       product.ein\nops           ")
    assert "(0 implied by others)\ncpu:0         " in out
    assert "of 24.0 KiB\n" in out


def test_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(planned(command).encode())))
    code, out, _ = command("verify", "-")
    assert code == 0 and out.startswith("standard input: valid\n")


def test_a_fault_is_told_with_its_rule(command: Command) -> None:
    plan = good()
    plan["ops"][4]["after"] = [2]
    plan["tiers"][0]["capacity"] = 63
    Path("bad.json").write_text(json.dumps(plan))
    code, out, err = command("verify", "bad.json")
    assert code == 1 and err == ""
    lines = out.splitlines()
    assert lines[0] == "bad.json: invalid, 3 faults"
    assert lines[9].startswith("1. race: op 3 (kernel, task 3) writes value 3 at cpu:0[16:24] and op 4 ")
    assert lines[10].startswith("2. capacity: op 14 (kernel, task 14) writes cpu:0[56:64], which ends 1 byte past")
    assert lines[-2] == "2 x capacity: every extent is within its tier"
    assert lines[-1] == "1 x race: of two ops that share bytes, one of them writing, one waits for the other"
    code, out, _ = command("verify", "bad.json", "--limit", "1")
    assert code == 1 and "and 2 more" in out


def test_the_verdict_for_programs(command: Command) -> None:
    plan = good()
    plan["ops"][4]["after"] = [2]
    Path("bad.json").write_text(json.dumps(plan))
    code, out, _ = command("verify", "bad.json", "--format", "json")
    found = json.loads(out)
    assert code == 1 and found["valid"] is False and found["counts"] == {"race": 1}
    assert found["faults"][0]["ops"] == [
        {"id": 3, "kind": "kernel", "task": 3},
        {"id": 4, "kind": "offload", "task": 4},
    ]
    assert found["faults"][0]["bytes"] == ["cpu:0", 16, 24]
    code, out, _ = command("verify", "plan.json", "--format", "json")
    assert code == 0 and json.loads(out)["tiers"][0] == {
        "id": "cpu:0",
        "kind": "compute",
        "capacity": 64,
        "nbytes": 64,
    }


def test_names_that_are_no_text(command: Command) -> None:
    Path("odd.json").write_text(json.dumps(good()).replace('"Y"', '"y\\udcff.npy"'))
    code, out, _ = command("verify", "odd.json")
    assert code == 0 and "\ny?.npy " in out


def test_a_cycle_leaves_no_order(command: Command) -> None:
    plan = good()
    plan["ops"][6]["after"] = [5, 9]
    Path("bad.json").write_text(json.dumps(plan))
    code, out, _ = command("verify", "bad.json")
    assert code == 1
    assert "1. cycle: op 7 (reload) waits for op 6; op 9 (kernel) waits for op 7; op 6 (kernel) waits for op 9" in out
    assert "the order is not judged: a cycle leaves none" in out
    assert "implied" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.json",), "error: there is no plan nowhere.json"),
        (("product.ein",), "error: product.ein is not a plan: expected a JSON object. help: einturnip plan"),
        ((".",), "error: . is a folder, not a plan"),
        (("plan.json", "--stored", "Z=8B"), "error: the plan has no output 'Z'"),
        (("plan.json", "--stored", "Y=8G"), "error: the size '8G' may mean two things"),
        (("plan.json", "--stored", "Y"), "'Y' is not of the form OUTPUT=SIZE"),
    ],
)
def test_what_is_no_plan(command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command("verify", *arguments)
    assert code == 2 and out == "" and message in err


def test_what_must_be_stored(command: Command) -> None:
    assert command("verify", "plan.json", "--stored", "Y=24")[0] == 0
    code, out, _ = command("verify", "plan.json", "--stored", "Y=1KiB")
    assert code == 1 and "not stored: 24 bytes are stored in Y; they should be 1024" in out


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["cpu:0", "drop"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "kind", "reads"]), inner),
    max_leaves=5,
)


@given(st.randoms(use_true_random=False), junk)
def test_any_change_of_the_text_ends_in_a_verdict_or_a_path(rng: random.Random, found: Any) -> None:
    plan: Json = good()
    at: Any = plan
    while True:
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        key = rng.choice(list(keys))
        if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.3:
            at[key] = found
            break
        at = at[key]
    try:
        verdict_of(plan)
    except NotAPlan as error:
        assert str(error)
