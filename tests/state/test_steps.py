"""``einturnip run --steps``: slices fed, checkpoints written and gone on from, whenever the run is killed."""

import json
import os
import random
import signal
import subprocess
import sys

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
    assert "resuming after step 9 of ck" in told
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


# Counts steps and, from the first one on, operations on files in the folder of checkpoints. After a given number
# it sends itself a signal; if that number is 0, it writes at the end how many there were.
COUNTED = """
import os, sys
from einturnip.api.session import Session

number, end, folder, done, step = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], 0, Session.step
del sys.argv[1:4]

def count(event, arguments):
    global done, end
    if event == "step":
        done += 1
    elif done and (event == "open" or event.startswith("os.")):
        done += any(isinstance(path, str) and folder in path.split(os.sep) for path in arguments)
    else:
        return
    if done == end:
        end = -1
        os.kill(os.getpid(), number)

def counted(*arguments, **options):
    sys.audit("step")
    return step(*arguments, **options)

sys.addaudithook(count)
Session.step = counted
from einturnip.cli.main import run
code = run(sys.argv[1:])
if end == 0:
    with open("count", "w") as file:
        file.write(str(done))
sys.exit(code)
"""
EVERY = 5


def killed_and_resumed(folder, feed: str, steps: int, kills: int, budgets: list[list[str]]) -> None:
    """Kill a run ``kills`` times, at steps and uses of files drawn, then let it end: the bits are those of a whole one.

    Each run goes on in the next of the budgets; the unbroken one has the first.
    """

    def run(number: int, end: int, checkpoints: str, *arguments: str) -> int:
        line = [sys.executable, "-c", COUNTED, str(number), str(end), checkpoints, "run", "train.ein", "--feed", feed]
        line += ["--steps", str(steps), "--every", str(EVERY), "-q", "--checkpoint", checkpoints, *arguments]
        return subprocess.run(line, check=False).returncode

    assert run(0, 0, "whole", "-o", "W=unbroken.npy", *budgets[0]) == 0
    cycle = int((folder / "count").read_text()) * EVERY // steps  # from one checkpoint to the next
    draw, before = random.Random(kills), 0
    for kill in range(kills):
        number = signal.SIGTERM if kill % 4 == 3 else signal.SIGKILL
        end = draw.randint(cycle + 1, 2 * cycle)
        code = run(number, end, "ck", "-o", "W=resumed.npy", *budgets[kill % len(budgets)])
        assert code == (128 + number if number == signal.SIGTERM else -number)
        assert _latest(folder / "ck") > before
        before = _latest(folder / "ck")
    assert run(0, 0, "ck", "-o", "W=resumed.npy", *budgets[-1]) == 0
    assert (folder / "resumed.npy").read_bytes() == (folder / "unbroken.npy").read_bytes()


def _latest(checkpoints) -> int:
    names = os.listdir(checkpoints) if checkpoints.exists() else []
    return max((int(name[5:]) for name in names if name.startswith("step-")), default=-1)


def test_a_killed_run_ends_with_the_same_bits(folder) -> None:
    killed_and_resumed(folder, "X=x.npy", 40, 2, [["--arena", "64KiB"]])


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
    trained_and_killed(folder, 30, 2)


@pytest.mark.slow
def test_twenty_kills_end_with_the_same_bits(folder) -> None:
    killed_and_resumed(folder, "X=x.npy", 250, 20, [["--arena", "64KiB"]])


@pytest.mark.slow
def test_twenty_kills_of_a_training_run_end_with_the_same_bits(folder) -> None:
    trained_and_killed(folder, 250, 20)
