"""NaN, overflow and division by zero: the first element and the input behind it, on every path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import einturnip as et

from ..devices.conftest import put

X = np.linspace(1, 2, 4000)
K = (np.arange(4000) % 7).astype(np.int32)
HEAD = "input x : f64[n]\n"


def changed(at: int, value: float) -> np.ndarray[Any, Any]:
    x = X.copy()
    x[at] = value
    return x


CASES: dict[str, tuple[str, dict[str, Any], list[tuple[str, ...]]]] = {
    "map": (
        HEAD + "y[i] = log(x[i])\noutput y",
        {"x": changed(3777, -1)},
        [("nan", "y[3777] = nan", "x[3777] = -1.0")],
    ),
    "division": (
        "input A : f64[n, m]\ny[j, i] = 1 / A[i, j]\noutput y",
        {"A": np.where(np.arange(4000).reshape(50, 80) == 3999, 0.0, 1.0)},
        [("divide", "y[79, 49] = inf", "A[49, 79] = 0.0")],
    ),
    "infinite input": (
        HEAD + "z[i] = 2 * x[i]\ns = sum[i] z[i]\ny[i] = z[i] / s\noutput y",
        {"x": changed(77, np.inf)},
        [("nan", "y[77] = nan", "x[77] = inf")],
    ),
    "sum": (HEAD + "y = sum[i] sqrt(x[i])\noutput y", {"x": changed(3777, -1)}, [("nan", "y = nan")]),
    "scatter": (
        HEAD + "input k : i32[n]\ny[k[i]: 7] = sum[i] sqrt(x[i])\noutput y",
        {"x": changed(3777, -1), "k": K},
        [("nan", "y[4] = nan")],
    ),
    "intermediate": (
        HEAD + "z[i] = log(x[i])\ns = sum[i] z[i]\nv[i] = z[i] * s\ny = max[i] v[i] + s\noutput y",
        {"x": changed(3777, -1)},
        [("nan", "z[3777] = nan", "x[3777] = -1.0")],
    ),
    "pieces": (
        HEAD + "z[j | i] = x[j] | log(x[i])\ny = sum[k] z[k] * z[k]\noutput z, y",
        {"x": changed(3777, -1)},
        [("nan", "", "x[3777] = -1.0")],
    ),
    "kept out of the result": (
        HEAD + "y[i] = where(x[i] > 0, log(x[i]), 0)\noutput y",
        {"x": changed(9, -1)},
        [("nan", "")],
    ),
    "none": (HEAD + "y[i] = log(x[i])\noutput y", {"x": X}, []),
    "NaN that an input holds": (HEAD + "y[i] = x[i] - 1\noutput y", {"x": changed(9, np.nan)}, []),
}
PATHS = ["small arena", "large arena", "sim", "cuda"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES)
def test_the_element_and_the_input_behind_it_are_named(case: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, arrays, expected = CASES[case]
    way: dict[str, Any] = {"arena": "24KiB" if path == "small arena" else "8MiB"}
    if path in ("sim", "cuda"):
        put(monkeypatch, path, [1e-6, 5e-6, 2e-6])
        way["device"] = path
    program = et.compile(text)
    for _ in range(3):  # the first call, and prepared ones
        found = program(**arrays, **way).report.warnings
        assert [(warning.kind, warning.element, *warning.causes) for warning in found] == expected


@pytest.mark.parametrize("size", [4000, 400])
def test_steps_name_them_too(size: int) -> None:
    text = HEAD + "state s : f64 = 0\ns <- s + 1\ny[i] = log(x[i]) + s\noutput y"
    with et.compile(text).session() as session:
        for step in range(4):
            x = np.ones(size)
            x[step + 7] = -1
            (warning,) = session.step(x=x).report.warnings
            assert warning.element == f"y[{step + 7}] = nan"
