"""The matrix chain, square and skewed, on whole numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "models" / "matrix_chain.ein"
SHAPES = [{x: 64 for x in "ijklm"}, {"i": 8, "j": 200, "k": 40, "l": 3, "m": 300}]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "24KiB"}])
def test_the_chain(sizes: dict[str, int], settings: dict[str, str]) -> None:
    drawn = np.random.default_rng(3)
    axes = {"A": "ij", "B": "jk", "C": "il", "D": "lm", "E": "mk"}
    data = {x: drawn.integers(-2, 3, [sizes[a] for a in of]).astype(np.float32) for x, of in axes.items()}
    expected = data["A"] @ data["B"] + data["C"] @ (data["D"] @ data["E"])
    assert (et.compile(PROGRAM)(**data, **settings)["R"] == expected).all()
