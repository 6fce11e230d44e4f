"""``plan`` and ``check`` of a program with states: the whole step, not the outputs alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from einturnip.cli.main import run

STEP = """\
input X : f32[b, n]
state W : f32[n] = 0
state V : f32[n]
Y[i] = sum[n] X[i,n] * W[n] * V[n]
loss = sum[i] Y[i] * Y[i]
W[n] <- W[n] - 0.1 * grad(loss, W[n])
output loss
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.ein").write_text(STEP)
    return "step.ein"


SIZES = ("--dim", "b=40", "--dim", "n=3000", "--arena", "256KiB")


def test_the_update_is_planned(program, capsys):
    assert run(["plan", program, *SIZES, "--no-budgets"]) == 0
    told = capsys.readouterr().out
    assert "W[n] <- " in told and "output W" in told and "output V" not in told


def test_what_is_stored_is_the_loss_and_the_new_state(program, capsys):
    assert run(["plan", program, *SIZES, "--emit", "memgraph", "--format", "json"]) == 0
    ops = json.loads(capsys.readouterr().out)["ops"]
    stored = {}
    for op in ops:
        for tier, _, nbytes, _ in op["writes"] if op["kind"] == "store" else ():
            stored[tier] = stored.get(tier, 0) + nbytes
    assert sorted(stored.values()) == [4, 3000 * 4]


def test_several_devices_are_told_of_the_update(program, capsys):
    arguments = ["plan", program, "--dim", "b=40", "--dim", "n=3000", "--emit", "decomposition", "--parts", "4"]
    assert run([*arguments, "--format", "json"]) == 0
    with_states = capsys.readouterr().out
    Path(program).write_text(STEP.replace("W[n] <-", "W2[n] ="))
    assert run([*arguments, "--format", "json"]) == 0
    assert len(with_states) > len(capsys.readouterr().out)


def test_check_shows_states(program, capsys):
    assert run(["check", program]) == 0
    out = capsys.readouterr().out
    assert "line 1  input   X[b, n]  f32[b, n]\n" in out and "line 2  state   W[n]     f32[n]\n" in out
