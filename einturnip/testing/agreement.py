"""Holding a result to what the oracle, or anybody else, expects."""

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
    """An expected tensor. ``slack`` has its shape: 0 for "exactly this", infinity where any number will do."""

    values: Array
    slack: Array

    @property
    def exact(self) -> bool:
        """True where every bit is prescribed."""
        return not self.slack.any()


def assert_agrees(actual: Array, expected: Answer | Array, exact: bool = True) -> None:
    """Raise AssertionError unless ``actual`` has the dtype, shape and values of ``expected``; NaN equals NaN.

    An Answer brings its own bounds. Against a plain array: bit for bit where ``exact`` (0.0 and -0.0 are one),
    else within BOUND of its dtype (f16 2^-8, bf16 2^-5, f32 2^-18, f64 2^-44) times the largest finite magnitude in it.
    """
    actual = np.asarray(actual)
    answer = expected if isinstance(expected, Answer) else _answer(np.asarray(expected), exact)
    wanted = answer.values
    assert actual.dtype == wanted.dtype, f"dtype {actual.dtype}, expected {wanted.dtype}"
    assert actual.shape == wanted.shape, f"shape {actual.shape}, expected {wanted.shape}"
    for point in np.ndindex(wanted.shape):
        found, value, slack = actual[point], wanted[point], float(answer.slack[point])
        if not _close(found, value, slack):
            off = f" within {slack:.3g}" if slack else ""
            raise AssertionError(
                f"at {list(point)}: found {found!r}, expected {value!r}{off}\nfound\n{actual}\nexpected\n{wanted}"
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
