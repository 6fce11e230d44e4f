"""Outputs written into arrays that the run still reads: as if every input had been copied first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et


def _matrix(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (n, n)).astype(np.float32)


@pytest.mark.parametrize("arena", ["1MiB", "64MiB"])
def test_a_result_may_replace_what_it_is_made_of(arena: str, tmp_path: Path) -> None:
    a, b = _matrix(0, 700), _matrix(1, 700)
    for into in range(2):
        operands = [a.copy(), b.copy()]
        et.einsum("ij,jk->ik", *operands, out=operands[into], arena=arena, spill=str(tmp_path))
        assert np.array_equal(operands[into], a @ b)
    x = a.copy()
    et.einsum("ij->ji", x, out=x, arena=arena)
    assert np.array_equal(x, a.T)


def test_a_small_result_may_replace_what_a_later_statement_reads() -> None:
    program = et.compile("input A : f64[i, j]\nB[i, j] = A[i, j] + 1\nC[i] = A[i, j] * B[i, j]\noutput B\noutput C\n")
    a = _matrix(2, 5).astype(np.float64)
    for _ in range(3):
        x = a.copy()
        c = program(A=x, out={"B": x})["C"]
        assert np.array_equal(x, a + 1) and np.array_equal(c, (a * (a + 1)).sum(1))
