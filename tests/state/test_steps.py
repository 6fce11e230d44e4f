"""``einturnip run --steps``: slices fed, checkpoints written and gone on from, whenever the run is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from einturnip.cli.main import run as command

TRAIN = """input X : f64[b, d]
state W : f64[d] = 0
state M : f64[d] = 0.5
c = sum[b, d] X[b, d] * W[d]
M[d] <- M[d] * 0.75 + sum[b] X[b, d]
W[d] <- W[d] - 0.125 * M[d]
output c, W
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.ein").write_text(TRAIN)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).integers(-4, 5, (7, 3, 5)).astype(np.float64))
    return tmp_path


def by_hand(x, steps):
    w, m = np.zeros(5), np.full(5, 0.5)
    for k in range(steps):
        w, m = w - 0.125 * m, m * 0.75 + x[k % len(x)].sum(0)
    return w


@pytest.fixture
def run(capsys):
    def call(*arguments, code=0):
        ended = command(["run", "train.ein", *arguments])
        captured = capsys.readouterr()
        assert ended == code, captured.err
        return captured.out + captured.err

    return call


FEED = ("--feed", "X=x.npy")


def test_slices_are_fed_in_turn(folder, run) -> None:
    told = run(*FEED, "--steps", "10", "-o", "W=w.npy", "-o", "M=m.npy")
    np.testing.assert_allclose(np.load("w.npy"), by_hand(np.load("x.npy"), 10), rtol=1e-12)
    assert "step 10/10  c " in told and "steps/s" in told and "W        f64[5]  written to w.npy" in told
    assert np.load("m.npy").shape == (5,)


def test_a_run_goes_on_where_a_checkpoint_ends(folder, run) -> None:
    run(*FEED, "--steps", "20", "-o", "W=unbroken.npy")
    run(*FEED, "--steps", "9", "--checkpoint", "ck", "--every", "4", "-q")
    assert sorted(os.listdir("ck")) == ["step-000000008", "step-000000009"]
    assert json.loads((folder / "ck/step-000000009/checkpoint.json").read_text())["steps"] == 9
    told = run(*FEED, "--steps", "20", "--checkpoint", "ck", "-o", "W=resumed.npy")
    assert "going on after step 9 of ck" in told
    assert (folder / "resumed.npy").read_bytes() == (folder / "unbroken.npy").read_bytes()
    run(*FEED, "--steps", "20", "--checkpoint", "ck", "-o", "W=again.npy")  # nothing is left to do
    assert (folder / "again.npy").read_bytes() == (folder / "unbroken.npy").read_bytes()


def test_what_is_wrong_is_told(folder, run) -> None:
    np.save("flat.npy", np.zeros(3))
    for arguments, words in {
        ("--feed", "Y=x.npy"): "no input 'Y'",
        ("--feed", "W=x.npy"): "no input 'W'",
        ("--feed", "X=x.npy", "-i", "X=x.npy", "--steps", "2"): "both by -i and by --feed",
        ("--feed", "X=flat.npy"): "f64 with 3 axes",
        ("--steps", "2", "--feed", "X=x.npy", "--analyze"): "--analyze",
    }.items():
        assert words in run(*arguments, code=2)


def killed_and_resumed(folder, feed: str, steps: int, kills: int, budgets: list[list[str]]) -> None:
    """Kill a run ``kills`` times at moments drawn, then let it end: the bits are those of an unbroken one.

    Each run goes on in the next of the budgets; the unbroken one has the first.
    """
    command = [sys.executable, "-m", "einturnip", "run", "train.ein", "--feed", feed, "--steps", str(steps), "-q"]
    command += ["--every", "5", "-o"]
    subprocess.run([*command, "W=unbroken.npy", "--checkpoint", "whole", *budgets[0]], check=True)
    draw, before, interrupted = random.Random(kills), -1, 0
    for kill in range(kills):
        process = subprocess.Popen([*command, "W=resumed.npy", "--checkpoint", "ck", *budgets[kill % len(budgets)]])
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and _latest(folder / "ck") <= before:
            time.sleep(0.005)  # until this run has come further than the one before
        time.sleep(draw.random() * 0.1)
        interrupted += process.poll() is None
        process.send_signal(signal.SIGTERM if kill % 4 == 3 else signal.SIGKILL)
        process.wait()
        before = _latest(folder / "ck")
    assert interrupted > kills // 2 and before > 0
    done = subprocess.run([*command, "W=resumed.npy", "--checkpoint", "ck", *budgets[-1]], check=False)
    assert done.returncode == 0
    assert (folder / "resumed.npy").read_bytes() == (folder / "unbroken.npy").read_bytes()


def _latest(checkpoints) -> int:
    names = os.listdir(checkpoints) if checkpoints.exists() else []
    return max((int(name[5:]) for name in names if name.startswith("step-")), default=-1)


def test_a_killed_run_ends_with_the_same_bits(folder) -> None:
    killed_and_resumed(folder, "X=x.npy", 400, 2, [["--arena", "64KiB"]])


ADAM = """import std.optim
input X : f32[b, d]
dim h = d
state W : f32[d, h] = 0.5
state M : f32[d, h] = 0
state V : f32[d, h] = 0
state k : i64 = 0
loss = mean[b, h] (tanh(sum[d] X[b, d] * W[d, h]) - X[b, h])^2
g[d, h] = grad(loss, W[d, h])
W[d, h], M[d, h], V[d, h] <- adamw(W[d, h], g[d, h], M[d, h], V[d, h], k, 0.01)
k <- k + 1
output loss, W
"""
# Each run in another memory and by another number of workers: their bits are the same, and so are those of the whole.
REPRODUCIBLE = [
    ["--reproducible", "--arena", arena, "--workers", workers]
    for arena, workers in (("64MiB", "2"), ("3MiB", "1"), ("8MiB", "4"), ("4MiB", "2"))
]


def trained_and_killed(folder, steps: int, kills: int) -> None:
    (folder / "train.ein").write_text(ADAM)
    np.save(folder / "x.npy", np.random.default_rng(1).standard_normal((5, 60, 400), np.float32))
    killed_and_resumed(folder, "X=x.npy", steps, kills, REPRODUCIBLE)


def test_a_killed_training_run_in_other_memories_ends_with_the_same_bits(folder) -> None:
    trained_and_killed(folder, 60, 2)


@pytest.mark.slow
def test_twenty_kills_end_with_the_same_bits(folder) -> None:
    killed_and_resumed(folder, "X=x.npy", 2100, 20, [["--arena", "64KiB"]])


@pytest.mark.slow
def test_twenty_kills_of_a_training_run_end_with_the_same_bits(folder) -> None:
    trained_and_killed(folder, 250, 20)
