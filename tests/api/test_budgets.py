"""Below its least budget a program is refused; with it, and with any larger one, it runs to the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import einturnip as et

rng = np.random.default_rng(0)
Arrays = dict[str, np.ndarray[Any, Any]]


def ints(*shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(-4, 5, shape).astype(np.float32)


SOFTMAX = "input X : f32[n, m]\nP[i,j] = exp(X[i,j] - max[j] X[i,j])\nY[i,j] = P[i,j] / sum[j] P[i,j]\noutput Y\n"
CASES: dict[str, tuple[str, Arrays]] = {
    "product": (
        "input A : f32[n, k]\ninput B : f32[k, m]\nC[i,j] = A[i,l] * B[l,j]\noutput C\n",
        {"A": ints(14, 10), "B": ints(10, 17)},
    ),
    "chain": (
        "input A : f32[n, k]\ninput B : f32[k, n]\nC[i,j] = A[i,l] * B[l,j]\nD[i,j] = C[i,p] * C[j,p]\noutput D, C\n",
        {"A": ints(9, 7), "B": ints(7, 9)},
    ),
    "softmax": (SOFTMAX, {"X": ints(20, 27)}),
    "distances": (
        "input X : f32[n, d]\ninput Y : f32[m, d]\na[i] = argmin[j] sum[k] (X[i,k] - Y[j,k])^2\noutput a\n",
        {"X": ints(17, 9), "Y": ints(23, 9)},
    ),
    "scalar": ("input a : f64\nb = a * 2 + 1\noutput b\n", {"a": np.array(3.0)}),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_feasibility_is_monotone(case: str) -> None:
    text, inputs = CASES[case]
    program = et.compile(text)
    with pytest.raises(et.CapacityError) as refused:
        program(**inputs, arena=1)
    least = refused.value.needed
    # Far below what the tensors need, but a run of very many tiny tasks is no test of the budget.
    first = max(least, 2048)
    expected = program(**inputs, arena="64MiB")
    for factor in (1.0, 1.01, 1.3, 1.7, 4.0, 29.0, 500.0):
        result = program(**inputs, arena=int(first * factor))
        assert result.report.arena_peak_nbytes <= int(first * factor)
        for name in expected:
            np.testing.assert_allclose(result[name], expected[name], rtol=1e-5)
    if least < first:
        with pytest.raises(et.CapacityError):
            program(**inputs, arena=least // 2)
        program.plan(**inputs, arena=least)
