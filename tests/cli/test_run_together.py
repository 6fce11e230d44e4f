"""``einturnip run a.ein b.ein``: whose names are whose, one budget, what each did, and whose an error is."""

import json
import os
import signal

import numpy as np
import pytest

from einturnip.cli.main import run
from tests.robustness.halting import halted

GEMM = "input A : f32[n, k]\ninput X : f32[k, m]\nC[i,j] = A[i,p] * X[p,j]\noutput C\n"
NORM = "# rows\n\ninput X : f64[r, c]\nS[i] = sum[j] X[i,j]\nY[i,j] = X[i,j] / S[i]\noutput Y\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gemm.ein").write_text(GEMM)
    (tmp_path / "norm.ein").write_text(NORM)
    rng = np.random.default_rng(0)
    np.save("a.npy", rng.integers(-4, 5, (120, 90)).astype(np.float32))
    np.save("x.npy", rng.integers(-4, 5, (90, 100)).astype(np.float32))
    np.save("z.npy", rng.integers(1, 5, (200, 110)).astype(np.float64))
    return tmp_path


FILES = ("-i", "A=a.npy", "-i", "gemm.X=x.npy", "-i", "norm.X=z.npy")


@pytest.mark.parametrize("arena", [pytest.param("40KiB", marks=pytest.mark.slow), "100KiB", "1MiB"])
def test_both_are_right_in_one_budget(folder, capsys, arena):
    out = ("-o", "C=c.npy", "-o", "norm.Y=y.npy", "--report", "r.json")
    assert run(["run", "gemm.ein", "norm.ein", *FILES, *out, "--arena", arena]) == 0
    a, x, z = (np.load(f) for f in ("a.npy", "x.npy", "z.npy"))
    np.testing.assert_array_equal(np.load("c.npy"), a @ x)
    np.testing.assert_array_equal(np.load("y.npy"), z / z.sum(1, keepdims=True))
    told = json.loads((folder / "r.json").read_text())
    gemm, norm = told["programs"]
    assert (gemm["name"], gemm["program"], norm["name"]) == ("gemm", "gemm.ein", "norm")
    assert gemm["ops"] + norm["ops"] == sum(told["ops"].values())
    assert gemm["nbytes_in"] + norm["nbytes_in"] == told["link_bytes"]["disk->cpu:0"]
    assert gemm["nbytes_out"] >= 120 * 100 * 4 and norm["nbytes_out"] >= z.nbytes
    shown = capsys.readouterr().out
    assert "gemm.C" in shown and "norm     done after" in shown


def test_random_inputs_and_discarded_outputs_count_no_bytes(folder, capsys):
    given = ("--dim", "n=20", "--dim", "k=20", "--dim", "m=20", "-i", "norm.X=z.npy")
    assert run(["run", "gemm.ein", "norm.ein", *given, "--random", "-o", "norm.Y=y.npy", "--report", "r.json"]) == 0
    shown = capsys.readouterr().out
    assert "1 kernel call in" in shown and ", nothing moved" in shown
    gemm, norm = json.loads((folder / "r.json").read_text())["programs"]
    assert (gemm["nbytes_in"], gemm["nbytes_out"]) == (0, 0)
    assert (norm["nbytes_in"], norm["nbytes_out"]) == (200 * 110 * 8, 200 * 110 * 8)
    assert run(["run", "gemm.ein", *given[:-2], "--random", "--analyze"]) == 0
    assert "bytes disk" not in capsys.readouterr().out


def test_a_program_twice_is_numbered(folder, capsys):
    files = ("-i", "norm.X=z.npy", "-i", "norm2.X=z.npy", "-o", "norm2.Y=y2.npy", "-o", "norm.Y=y1.npy")
    assert run(["run", "norm.ein", "norm.ein", *files, "--arena", "100KiB"]) == 0
    assert (folder / "y1.npy").read_bytes() == (folder / "y2.npy").read_bytes()


def test_a_size_without_a_program_is_for_all_that_have_it(folder, capsys):
    sizes = [f"--dim={d}" for d in ("n=8", "k=9", "m=7", "r=5", "norm.c=6")]
    assert run(["run", "gemm.ein", "norm.ein", "--random", *sizes, "--arena", "100KiB"]) == 0
    shown = capsys.readouterr().out
    assert "f32[8, 7]" in shown and "f64[5, 6]" in shown


def test_a_reproducible_run_has_the_same_bits_alone_and_together(folder):
    options = ("--reproducible", "--arena", "3MiB", "-q")
    assert run(["run", "gemm.ein", "norm.ein", *FILES, *options, "-o", "C=c1.npy", "-o", "Y=y1.npy"]) == 0
    assert run(["run", "norm.ein", "-i", "X=z.npy", *options, "-o", "Y=y2.npy"]) == 0
    assert (folder / "y1.npy").read_bytes() == (folder / "y2.npy").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-i", "X=x.npy"), 2, "gemm and norm have an input X. help: write gemm.X"),
        (("-i", "B=x.npy"), 2, "there is no input B; there are gemm.A, gemm.X, norm.X"),
        (("-i", "gram.A=x.npy"), 2, "there is no input gram.A"),
        ((*FILES[:4], "--dim=r=3", "--dim=c=4"), 2, "norm.ein: input X (line 3) has no file"),
        ((*FILES, "--record", "r.json"), 2, "--record needs a single program"),
        ((*FILES, "--arena", "1KiB"), 3, "the minimum"),
        ((*FILES, "-o", "gemm.C=z.npy"), 2, "which gemm writes (output C)"),
    ],
)
def test_what_is_wrong_is_said_of_its_program(folder, capsys, arguments, code, message):
    assert run(["run", "gemm.ein", "norm.ein", *arguments]) == code
    assert message in capsys.readouterr().err


def test_an_error_and_a_warning_name_their_program(folder, capsys):
    (folder / "pick.ein").write_text("input E : f64[v, d]\ninput k : i64[n]\nH[i,d] = E[k[i], d]\noutput H\n")
    np.save("k.npy", np.array([1, 2, 999]))
    np.save("zero.npy", np.zeros((200, 110)))
    files = ("-i", "E=z.npy", "-i", "pick.k=k.npy", "-i", "norm.X=zero.npy")
    assert run(["run", "norm.ein", "pick.ein", *files, "--arena", "300KiB"]) == 1
    assert "999" in (message := capsys.readouterr().err) and "pick.ein line 3" in message
    np.save("k.npy", np.array([1, 2, 3]))
    assert run(["run", "pick.ein", "norm.ein", *files, "--arena", "300KiB"]) == 0
    told = capsys.readouterr().err
    assert "norm.ein: warning: line 5" in told and "made nan" in told


def test_one_program_that_fails_leaves_no_output_of_any(folder):
    (folder / "pick.ein").write_text("input E : f64[v, d]\ninput k : i64[n]\nH[i,d] = E[k[i], d]\noutput H\n")
    np.save("k.npy", np.array([1, 2, 999]))
    (folder / "y.npy").write_bytes(b"as it was")
    before = set(os.listdir())
    files = ("-i", "E=z.npy", "-i", "pick.k=k.npy", "-i", "norm.X=z.npy", "-o", "Y=y.npy", "-o", "H=h.npy")
    assert run(["run", "norm.ein", "pick.ein", *files, "--arena", "300KiB"]) == 1
    assert set(os.listdir()) == before and (folder / "y.npy").read_bytes() == b"as it was"


def test_ctrl_c_ends_both_in_order_and_leaves_nothing(folder):
    before = set(os.listdir())
    arguments = ["run", "gemm.ein", "norm.ein", *FILES, "--arena", "100KiB", "-o", "C=c.npy", "-o", "Y=y.npy"]
    with halted(*arguments, cwd=folder) as process:
        process.signal(signal.SIGINT)
        code, said, _ = process.ended()
    assert code == 130 and "interrupted" in said
    assert set(os.listdir()) == before
