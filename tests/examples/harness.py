"""The references of examples, and how results are compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import einturnip as et

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = {"float16": 3e-3, "float32": 2e-5, "float64": 1e-10, "complex128": 1e-10}
"""Relative to the largest value of a result, by its dtype; whole numbers and conditions are exact."""


@dataclass(frozen=True)
class Example:
    """Inputs and sizes of a run, and what must come out, in the dtypes in which it must."""

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    dims: Mapping[str, int] = field(default_factory=dict)
    looser: float = 1  # how many times the tolerance, where a method amplifies rounding


def runs(program: et.Program, inputs: Mapping[str, Any], least: bool = True) -> dict[str, dict[str, Array]]:
    """The outputs with ample memory, and in the least arena that a plan can do with."""
    results = {"ample": dict(program.plan(workers=1, data=inputs).run())}
    if least:
        results["least"] = dict(least_plan(program, inputs).run())
    return results


def least_plan(program: et.Program, inputs: Mapping[str, Any]) -> et.Plan:
    """In the least arena that does."""
    try:
        return program.plan(arena=1, workers=1, data=inputs)
    except et.CapacityError as error:
        return program.plan(arena=error.needed, workers=1, data=inputs)


def assert_close(found: Array, expected: Any, looser: float = 1) -> None:
    """Same shape and dtype, and as near as the dtype allows."""
    reference = np.asarray(expected)
    assert found.shape == reference.shape
    assert found.dtype == reference.dtype
    tolerance = TOLERANCE.get(str(reference.dtype))
    if tolerance is None:
        np.testing.assert_array_equal(found, reference)
        return
    finite = np.abs(reference[np.isfinite(reference)])
    scale = finite.max() if finite.size else 1.0
    np.testing.assert_allclose(found, reference, rtol=tolerance * looser, atol=tolerance * looser * scale)
