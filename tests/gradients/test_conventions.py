"""Every scalar function and aggregation at ordinary points, kinks and poles: what PyTorch gives."""

from __future__ import annotations

import re

import numpy as np
import pytest

from einturnip.ir.aggregations import AGGREGATIONS, MONOIDS
from einturnip.ir.functions import ELEMENTWISE
from tests.gradients.harness import assert_derived, run, with_gradients
from tests.gradients.pytorch import BINARY, COMPLEX, COMPLEX_POINTS, PAIRS, POINTS, REAL

WITHOUT_STORED = [name for name in ELEMENTWISE if name not in {*REAL, *COMPLEX, "real", "imag"}]


@pytest.mark.parametrize("name", REAL)
def test_a_function(name: str) -> None:
    text = f"input x : f64[n]\nL = sum[i] {name}(x[i])\ng[i] = grad(L, x[i])\noutput g\n"
    np.testing.assert_allclose(run(text, {"x": np.array(POINTS)})["g"], REAL[name], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", COMPLEX)
def test_a_function_of_complex_numbers(name: str) -> None:
    z = np.array(COMPLEX_POINTS)
    loss = f"sum[i] {name}(z[i])" if name == "abs" else f"sum[i] (real({name}(z[i])) + 0.7 * imag({name}(z[i])))"
    found = run(f"input z : c128[n]\nL = {loss}\ng[i] = grad(L, z[i])\noutput g\n", {"z": z})["g"]
    expected = np.array([complex(*pair) for pair in COMPLEX[name]])
    # At a pole of a complex function not even the sign of what overflows is agreed on.
    ordinary = np.isfinite(expected)
    np.testing.assert_allclose(found[ordinary], expected[ordinary], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("text", BINARY)
def test_an_operator(text: str) -> None:
    term = re.sub(r"\b[ab]\b", lambda found: {"a": "p[i]", "b": "q[i]"}[found[0]], text)
    body = f"L = sum[i] ({term})"
    inputs = {"p": np.array([a for a, _ in PAIRS]), "q": np.array([b for _, b in PAIRS])}
    found = run(with_gradients(body, "L", inputs), inputs)
    np.testing.assert_allclose(np.stack([found["gp"], found["gq"]], 1), BINARY[text], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", WITHOUT_STORED)
def test_a_function_by_differences(name: str) -> None:
    """Functions that ``pytorch.py`` lacks, against central differences of NumPy's where these are finite."""
    x, step = np.array([-3.0, -0.7, -0.1, 0.0, 0.1, 0.3, 0.6, 0.9, 1.5, 4.0, 40.0]), 1e-6
    with np.errstate(all="ignore"):
        high, low = (ELEMENTWISE[name].numpy(x + side) for side in (step, -step))
        expected = (high - low) / (2 * step)
    found = run(f"input x : f64[n]\nL = sum[i] {name}(x[i])\ng[i] = grad(L, x[i])\noutput g\n", {"x": x})["g"]
    ordinary = np.isfinite(expected)
    assert ordinary.sum() >= 3
    np.testing.assert_allclose(found[ordinary], expected[ordinary], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("prod[i] x[i]", [2, 0, 3], [0, 6, 0]),
        ("prod[i] x[i]", [2, 0, 0], [0, 0, 0]),
        ("max[i] x[i]", [2, 5, 5], [0, 0.5, 0.5]),
        ("min[i] x[i]", [2, 2, 2], [1 / 3, 1 / 3, 1 / 3]),
        ("max(x[0], x[1], x[2])", [4, 4, 4], [1 / 3, 1 / 3, 1 / 3]),
        ("max(x[0], max(x[1], x[2]))", [4, 1, 4], [0.5, 0, 0.5]),
        ("mean[i] x[i]", [1, 2, 4], [1 / 3, 1 / 3, 1 / 3]),
        ("sum[i] x[i] * x[i]", [1, 2, 3], [2, 4, 6]),
        ("logsumexp[i] x[i]", [-np.inf, 1, 1], [0, 0.5, 0.5]),
        ("logsumexp[i] x[i]", [-np.inf, -np.inf, -np.inf], [np.nan] * 3),
        ("sum[i] where(x[i] > 0, sqrt(x[i]), 0)", [0, 4, 1], [np.nan, 0.25, 0.5]),
        ("sum[i] where(x[i] > 1, x[i]^2, 3 * x[i])", [0, 4, 1], [3, 8, 3]),
        ("f64(argmax[i] x[i]) + x[0]", [1, 2, 3], [1, 0, 0]),
        ("where(any[i] (x[i] > 2), x[1], 0)", [1, 2, 3], [0, 1, 0]),
        ("f64(argmin[i] x[i]) * x[2]", [2, 1, 3], [0, 0, 1]),
        ("where(all[i] (x[i] > 0) and not (x[0] >= 2 or x[1] == 0), x[1], 0)", [1, 2, 3], [0, 1, 0]),
        ("x[0] // 2 + x[1] // x[2]", [1, 2, 3], [0, 0, 0]),
    ],
)
def test_ties_zeros_and_choices(text: str, x: list[float], expected: list[float]) -> None:
    found = run(f"input x : f64[n]\nL = {text}\ng[i] = grad(L, x[i])\noutput g\n", {"x": np.array(x, float)})
    np.testing.assert_allclose(found["g"], expected, rtol=1e-12)


@pytest.mark.parametrize("op", [op for op in AGGREGATIONS if MONOIDS[op].derivative is not None])
def test_an_aggregation(op: str) -> None:
    inputs = {"X": np.random.default_rng(1).normal(size=(3, 4))}
    body = f"y[i] = {op}[j] (X[i,j]^2 + X[0,j])\nL = sum[i] y[i]^2"
    assert_derived(with_gradients(body, "L", inputs), inputs)


def test_products_of_wide_numbers_are_added_before_they_are_rounded() -> None:
    text = "input x : f16[n]\ninput w : f16[m]\nL = f32(sum[i,j] x[i] * w[j])\ng[i] = grad(L, x[i])\noutput g\n"
    w = np.full(4096, 0.25, np.float16)
    assert run(text, {"x": np.ones(2, np.float16), "w": w})["g"].tolist() == [1024, 1024]
