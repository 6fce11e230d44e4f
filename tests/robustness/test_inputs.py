"""Faults of files and options are reported in the user's own words, with the right exit code, before any work."""

import os
from pathlib import Path

import numpy as np
import pytest

from einturnip.cli.main import run
from tests.robustness.programs import GEMM, SCALAR


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("gemm.ein").write_text(GEMM)
    Path("scalar.ein").write_text(SCALAR)
    Path("trace.ein").write_text(
        "input X : f64[n, m]\nY[j,i] = X[i,j] + 1\nr[i] = sum[j] X[i,j]\nh = max[i,j] X[i,j]\noutput Y, r, h\n"
    )
    np.save("a.npy", np.ones((4, 5), np.float32))
    np.save("b.npy", np.ones((5, 3), np.float32))
    np.save("b6.npy", np.ones((6, 3), np.float32))
    np.save("double.npy", np.ones((4, 5)))
    np.save("flat.npy", np.ones(5, np.float32))
    np.save("pickled.npy", np.array([[1, "x"]], object), allow_pickle=True)
    whole = Path("a.npy").read_bytes()
    Path("short.npy").write_bytes(whole[:-8])
    Path("header.npy").write_bytes(whole[:20])
    Path("empty.npy").touch()
    Path("words.npy").write_text("no array at all, only words")
    return tmp_path


A, B = ("-i", "A=a.npy"), ("-i", "B=b.npy")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-i", "A=short.npy", *B), 2, ("short.npy", "truncated", "208", "200")),
        (("-i", "A=header.npy", *B), 2, ("header.npy", "header")),
        (("-i", "A=empty.npy", *B), 2, ("empty.npy",)),
        (("-i", "A=words.npy", *B), 2, ("words.npy", "no .npy array")),
        (("-i", "A=pickled.npy", *B), 2, ("pickled.npy", "pickled", "refused")),
        (("-i", "A=missing.npy", *B), 2, ("missing.npy", "no such file")),
        (("-i", "A=double.npy", *B), 2, ("'A'", "f32", "f64 in double.npy", "gemm.ein:2:7")),
        (("-i", "A=flat.npy", *B), 2, ("'A'", "flat.npy", "[n, k]", "[5]")),
        ((*A, "-i", "B=b6.npy"), 2, ("'k'", "5 by axis 1 of A, a.npy", "6 by axis 0 of B, b6.npy")),
        ((*A, *B, "--dim", "k=7"), 2, ("7 by the value given for k", "5 by axis 1 of A, a.npy", "axis 0 of B, b.npy")),
        ((*A, *B, "-i", "a=b.npy"), 2, ("no input 'a'", "'A'")),
        ((*A, *B, "-o", "D=d.npy"), 2, ("no output 'D'", "C")),
        ((*A, *B, "--dim", "z=3"), 2, ("no dim 'z'",)),
        ((*A, *B, "--memory", "lots"), 2, ("--memory", "'lots'")),
        ((*A, *B, "--memory", "0"), 2, ("--memory", "'0'")),
        ((*A, *B, "--memory", "-5MiB"), 2, ("--memory", "'-5MiB'")),
        ((*A, *B, "--memory", "2G"), 2, ("--memory", "2GiB")),
        ((*A, *B, "--memory", "1GiB", "--arena", "1MiB"), 2, ("--arena", "--memory")),
        ((*A, *B, "--policy", "fastest"), 2, ("'fastest'", "critical-path")),
        ((*A, *B, "-o", "C=nowhere/c.npy"), 2, ("nowhere/c.npy", "no directory")),
        ((*A, *B, "--report", "nowhere/r.json", "-o", "C=c.npy"), 2, ("nowhere/r.json", "no directory")),
        ((*A, *B, "--spill", "nowhere", "--arena", "1MiB"), 0, ()),
        ((*A,), 2, ("'m'", "B")),
    ],
)
def test_what_is_wrong(folder, capsys, arguments, code, words):
    before = sorted(os.listdir())
    assert run(["run", "gemm.ein", *arguments]) == code
    err = capsys.readouterr().err
    assert [w for w in words if w not in err] == [], err
    assert "Traceback" not in err and "internal" not in err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_empty_axes(folder, capsys, shape):
    np.save("x.npy", np.ones(shape))
    files = ["-o", "Y=y.npy", "-o", "r=r.npy", "-o", "h=h.npy"]
    assert run(["run", "trace.ein", "-i", "X=x.npy", *files]) == 0, capsys.readouterr().err
    assert np.load("y.npy").shape == shape[::-1]
    assert np.load("r.npy").tolist() == [0.0] * shape[0]
    assert np.load("h.npy") == -np.inf


def test_scalars(folder, capsys):
    np.save("a.npy", np.float64(20))
    assert run(["run", "scalar.ein", "-i", "a=a.npy", "-o", "b=b.npy"]) == 0, capsys.readouterr().err
    assert np.load("b.npy") == 41 and np.load("b.npy").shape == ()
    assert run(["run", "scalar.ein"]) == 0
    assert "value 7" in capsys.readouterr().out


@pytest.mark.parametrize("arena", ["4KiB", "1MiB"])
def test_an_output_may_replace_its_inputs_file(folder, capsys, arena):
    X = np.arange(120.0 * 80).reshape(120, 80)
    np.save("x.npy", X)
    assert run(["run", "trace.ein", "-i", "X=x.npy", "-o", "Y=x.npy", "--arena", arena]) == 0, capsys.readouterr().err
    assert (np.load("x.npy") == X.T + 1).all()
