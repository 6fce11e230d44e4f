"""The one way in which these tests run a program: through the product, on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import einturnip as et

Array = np.ndarray[Any, np.dtype[Any]]


def run_program(
    text: str, inputs: Mapping[str, Any] | None = None, dims: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Every output of the program by name."""
    return dict(et.compile(text, dims=dims)(data=inputs, workers=1))


@dataclass(frozen=True)
class Sentence:
    """A sentence of the language page, a program that shows it, and what must come out."""

    says: str
    text: str
    expected: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    exact: bool = True

    def __str__(self) -> str:
        return self.says
