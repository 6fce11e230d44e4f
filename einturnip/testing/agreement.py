"""Compares a result with the oracle's answer or with an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.testing.arithmetic import BOUND
from einturnip.testing.promotion import kind, name_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Answer:
    """An expected tensor. ``slack`` has its shape: 0 requires this value, infinity permits any number."""

    values: Array
    slack: Array

    @property
    def exact(self) -> bool:
        """True if every bit is prescribed."""
        return not self.slack.any()


def assert_agrees(actual: Array, expected: Answer | Array, exact: bool = True) -> None:
    """Raise AssertionError unless dtype, shape and values agree with ``expected``; NaN equals NaN.

    An ``Answer`` has its own bounds. A plain array is compared bit for bit if ``exact`` (0.0 equals -0.0), otherwise
    within BOUND of its dtype (f16 2^-8, bf16 2^-5, f32 2^-18, f64 2^-44) times its largest finite magnitude.
    """
    actual = np.asarray(actual)
    answer = expected if isinstance(expected, Answer) else _answer(np.asarray(expected), exact)
    values = answer.values
    assert actual.dtype == values.dtype, f"dtype {actual.dtype}, expected {values.dtype}"
    assert actual.shape == values.shape, f"shape {actual.shape}, expected {values.shape}"
    for point in np.ndindex(values.shape):
        found, value, slack = actual[point], values[point], float(answer.slack[point])
        if not _close(found, value, slack):
            off = f" within {slack:.3g}" if slack else ""
            raise AssertionError(
                f"at {list(point)}: found {found!r}, expected {value!r}{off}\nfound\n{actual}\nexpected\n{values}"
            )


def _answer(values: Array, exact: bool) -> Answer:
    slack = np.zeros(values.shape)
    if not exact and values.size and kind(name_of(values.dtype)) in "fc":
        magnitudes = np.abs(values).astype(np.float64)
        size = max((m for m in magnitudes.flat if math.isfinite(m)), default=0.0)
        slack[...] = BOUND[name_of(values.dtype)] * size
    return Answer(values, slack)


def _close(found: Any, value: Any, slack: float) -> bool:
    if math.isinf(slack) or found == value or (found != found and value != value):
        return True
    if slack == 0:
        return False
    return bool(abs(complex(found) - complex(value)) <= slack)
