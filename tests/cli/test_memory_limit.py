"""A run that ends above its limit is an error that scripts and reports see; its outputs are kept."""

import json
from pathlib import Path

import numpy as np
import pytest

from einturnip.cli import planning
from einturnip.cli.main import run

TEXT = "input A : f64[n, n]\nC[i,j] = A[i,k] * A[k,j]\noutput C\n"
STEPS = "input A : f64[n, n]\nstate s : f64 = 0\ns <- s + sum[i,j] A[i,j]\noutput s\n"
LIMIT = 8 << 30
EXCESS = 3 << 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((20, 20)))
    Path("p.ein").write_text(TEXT)
    Path("q.ein").write_text(TEXT.replace("A", "B").replace("C", "D"))
    Path("s.ein").write_text(STEPS)
    return tmp_path


def peaks(monkeypatch, *values: int) -> None:
    """The peaks of the process: as the command begins, and later."""
    left = list(values)
    monkeypatch.setattr(planning, "peak_resident_nbytes", lambda: left.pop(0) if len(left) > 1 else left[0])


ONE = ["run", "p.ein", "-i", "A=a.npy", "-o", "C=c.npy"]
SEVERAL = ["run", "p.ein", "q.ein", "-i", "A=a.npy", "-i", "B=a.npy", "-o", "C=c.npy"]
STEPPED = ["run", "s.ein", "--steps", "2", "-i", "A=a.npy", "-o", "s=c.npy"]


@pytest.mark.parametrize("words", [ONE, SEVERAL, STEPPED], ids=["one", "several", "steps"])
@pytest.mark.parametrize("quiet", [False])
def test_above_the_limit(words, quiet, folder, monkeypatch, capsys) -> None:
    peaks(monkeypatch, LIMIT, LIMIT + EXCESS)
    more = [] if words is STEPPED else ["--report", "r.json"]
    assert run([*words, "--memory", str(LIMIT), *more, *(["--quiet"] if quiet else [])]) == 1
    out, err = capsys.readouterr()
    assert "error: the run took " in err and "of memory, 3.00 MiB more than the 8.00 GiB allowed" in err
    assert "were kept" in err
    found = np.load("c.npy")
    assert (found == (800 if words is STEPPED else 20)).all()
    if more:
        assert json.loads(Path("r.json").read_text())["memory_exceeded_nbytes"] == EXCESS
        assert quiet or ", 3.00 MiB too much" in out


@pytest.mark.parametrize("peak", [(1, LIMIT), (LIMIT + EXCESS, LIMIT + EXCESS)])
def test_within_it_or_above_it_before_the_command(peak, folder, monkeypatch, capsys) -> None:
    peaks(monkeypatch, *peak)
    assert run([*ONE, "--memory", str(LIMIT), "--report", "r.json"]) == 0
    assert "more than" not in capsys.readouterr().err
    assert json.loads(Path("r.json").read_text())["memory_exceeded_nbytes"] == 0
