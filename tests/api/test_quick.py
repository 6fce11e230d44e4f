"""Calls that are known again by their arrays' shapes give what those made at length give."""

from __future__ import annotations

import numpy as np
import pytest

import einturnip as et
from einturnip.api import quick

TEXT = "input x : f32[n], y : f32[n]\nz[i] = x[i] / y[i]\ns = sum[i] x[i]\noutput z\noutput s\n"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    quick._known.clear()


def test_new_values_new_shapes_and_new_types_of_memory() -> None:
    program = et.compile(TEXT)
    for n in (4, 4, 6, 4):
        for step in (1, 2, 1):
            x, y = np.arange(n * step, dtype=np.float32)[::step] + n, np.full(n, 2, np.float32)
            found = program(x=x, y=y)
            np.testing.assert_array_equal(found["z"], x / 2)
            assert found["s"] == x.sum() and list(found) == ["z", "s"]
    assert len(quick._known) >= 2


def test_results_of_calls_are_arrays_of_their_own() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    first, second = program(x=x, y=x), program(x=2 * x, y=x)
    assert first["z"][0] == 1 and second["z"][0] == 2


SHARED = {
    "one value twice": ("P[i,j] = exp(X[i,j])\nQ[i,j] = exp(X[i,j])\noutput P, Q\n", np.exp, np.exp),
    "an input and a copy": ("P[j,i] = X[i,j]\nQ[i,j] = X[i,j]\noutput P, Q, X\n", np.transpose, np.array),
    "folded twice": (
        "P[i,j] = X[i,j] - max[j] X[i,j]\nQ[i,j] = X[i,j] - max[j] X[i,j]\noutput P, Q\n",
        *2 * (lambda x: x - x.max(1, keepdims=True),),
    ),
}


@pytest.mark.parametrize("arena", [None, "1MiB", "8MiB"])
@pytest.mark.parametrize("name", SHARED)
def test_results_that_are_one_value_are_those_of_each_call(name: str, arena: str | None) -> None:
    text, p, q = SHARED[name]
    program = et.compile("input X : f64[n, m]\n" + text)
    for n in (3, 100, 300):
        for seed in range(4):
            x = np.random.default_rng(seed).random((n, n + 1))
            found = program(X=x, arena=arena)
            np.testing.assert_allclose(found["P"], p(x), rtol=1e-12)
            np.testing.assert_allclose(found["Q"], q(x), rtol=1e-12)
            if "X" in found:
                np.testing.assert_array_equal(found["X"], x)


def test_what_happened_is_told_of_each_call() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    counts = [len(program(x=x, y=y).report.warnings) for y in (x, 0 * x, x)]
    assert counts[0] == counts[2] == 0 and counts[1] > 0


def test_wrong_calls_are_refused_after_right_ones() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    program(x=x, y=x)
    with pytest.raises(et.BindError):
        program(x=x)
    with pytest.raises(et.BindError):
        program(x=x, y=x, z=x)
    with pytest.raises(et.BindError):
        program(x=x, y=x.astype(object))
