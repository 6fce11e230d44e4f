"""Steps with long loops and ``while``, in sessions and by ``run --steps``, with states in memory and in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from tests.robustness.programs import finished

# Newton's method for the square root of each element of a sum; the last guess is the first one of the next step.
ROOTS = """
input d : f64[n]
state total : f64[n] = 1
state guess : f64[n] = 1
state rounds : i64 = 0
T[i] = total[i] + d[i]
x[i] = guess[i]
k = 0
error = 1.0
while error > 1e-12, at most 100 {
  x[i] = (x[i] + T[i] / x[i]) / 2
  error = max[i] abs(x[i]^2 - T[i]) / T[i]
  k = k + 1
}
total[i] <- T[i]
guess[i] <- x[i]
rounds <- rounds + k
s = sum[i] (x[i] - guess[i])
output s, x
"""
# Every step moves the state along one axis by a loop that is long enough to be a stage; it reads the state again after.
MOVED = """
dim T
state u : f64[n, n] = 1
input w : f64[n]
v[i,j] = u[i,j]
for t in 0 .. T {
  v[i,j] = 0.5 * v[i,j] + 0.25 * v[j,i] + w[i]
}
u[i,j] <- v[i,j] + u[j,i]
z = sum[i,j] u[i,j]
output z
"""


def rooted(d: np.ndarray, steps: int) -> tuple[np.ndarray, list[float], int]:
    total, guess, rounds, sums = np.ones_like(d), np.ones_like(d), 0, []
    for _ in range(steps):
        T, x, error = total + d, guess, 1.0
        while error > 1e-12:
            x = (x + T / x) / 2
            error, rounds = (np.abs(x**2 - T) / T).max(), rounds + 1
        sums.append((x - guess).sum())
        total, guess = T, x
    return guess, sums, rounds


@pytest.mark.parametrize("arena", [None, "2KiB"])
def test_a_while_in_every_step(arena: str | None) -> None:
    d = np.random.default_rng(0).random(100)
    guess, sums, rounds = rooted(d, 4)
    with et.compile(ROOTS).session(d=d, arena=arena) as session:
        assert (session.state("guess") == 1).all()
        results = [session.step() for _ in range(4)]
        np.testing.assert_allclose([float(result["s"]) for result in results], sums, rtol=1e-9)
        np.testing.assert_allclose(session.state("guess"), guess, rtol=1e-10)
        assert session.state("rounds") == rounds == sum(r.report.loops[0].iterations for r in results)
        session.set_state("guess", guess + 1)
        np.testing.assert_allclose(session.step()["x"], rooted(d, 5)[0], rtol=1e-10)


@pytest.mark.parametrize("arena", ["20KiB", "64KiB", "8MiB"])
def test_states_are_read_before_and_after_a_loop(arena: str) -> None:
    w = np.random.default_rng(0).random(30)
    u = np.ones((30, 30))
    with et.compile(MOVED).session(w=w, dims={"T": 400}, arena=arena) as session:
        for _ in range(3):
            before, v = u, u
            for _ in range(400):
                v = 0.5 * v + 0.25 * v.T + w[:, None]
            u = v + u.T
            np.testing.assert_allclose(session.step()["z"], before.sum(), rtol=1e-9)
            np.testing.assert_allclose(session.state("u"), u, rtol=1e-9)


def test_the_command_runs_steps_and_resumes(tmp_path: Path) -> None:
    d = np.random.default_rng(0).random((6, 50))
    np.save(tmp_path / "d.npy", d)
    (tmp_path / "p.ein").write_text(ROOTS)
    arguments = ("run", "p.ein", "--feed", "d=d.npy", "--checkpoint", "c", "-o", "guess=g.npy", "-o", "total=t.npy")
    for steps in ("2", "6"):
        code, _, err = finished(*arguments, "--steps", steps, cwd=tmp_path)
        assert code == 0, err
    np.testing.assert_allclose(np.load(tmp_path / "t.npy"), 1 + d.sum(0), rtol=1e-12)
    np.testing.assert_allclose(np.load(tmp_path / "g.npy"), np.sqrt(1 + d.sum(0)), rtol=1e-10)
