"""``run --at mpi --steps``: states in the memory of ranks, checkpoints that any number of ranks resumes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from einturnip.cli.main import run as command
from tests.cluster.mpi_runs import MPIEXEC, run

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not (find_spec("mpi4py") and MPIEXEC.exists()), reason="needs mpi4py and mpich, of the extra dev"
    ),
]
# Each step reads x along the axis that it is not written along, so states move between ranks.
TEXT = """input A : f64[n,n], b : f64[n]
state x : f64[n,n] = 1
total = sum[i,j] x[i,j] * b[j]
y[i,j] = A[i,k] * x[k,j]
x[i,j] <- y[i,j] / 8 + b[i]
output total
"""
N = 192


def by_hand(a: np.ndarray, b: np.ndarray, steps: int) -> np.ndarray:  # type: ignore[type-arg]
    x = np.ones((N, N))
    for k in range(steps):
        x = a @ x / 8 + b[k % len(b)][:, None]
    return x


def test_ranks_keep_states_and_any_number_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-1, 2, (N, N)).astype(float), rng.integers(-4, 5, (3, N)).astype(float)
    np.save(tmp_path / "A.npy", a)
    np.save(tmp_path / "b.npy", b)
    (tmp_path / "p.ein").write_text(TEXT)
    given = ("p.ein", "-i", "A=A.npy", "--feed", "b=b.npy", "--checkpoint", "ck")
    first = run(tmp_path, 3, *given, "--steps", "3", "--every", "2", "--arena", "256KiB")
    assert (first.returncode, first.stderr) == (0, "")
    assert "step 3/3  total " in first.stdout
    assert sorted(os.listdir(tmp_path / "ck")) == ["step-000000002", "step-000000003"]
    second = run(tmp_path, 2, *given, "--steps", "5", "--arena", "256KiB", "-o", "x=x.npy")
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.startswith("resuming after step 3 of ck\n") and "written to x.npy" in second.stdout
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), by_hand(a, b, 5), rtol=1e-12)
    monkeypatch.chdir(tmp_path)
    assert command(["run", *given, "--steps", "6", "-o", "x=x.npy"]) == 0  # in one process
    np.testing.assert_allclose(np.load("x.npy"), by_hand(a, b, 6), rtol=1e-12)
