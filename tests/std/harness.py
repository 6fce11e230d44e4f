"""One call of a function of the standard library, and the one way in which these tests run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import einturnip as et

Array = np.ndarray[Any, np.dtype[Any]]

SHORT = {"float16": "f16", "float32": "f32", "float64": "f64", "int64": "i64", "bool": "bool"}


@dataclass(frozen=True, eq=False)
class Call:
    """``equation`` calls ``module.function`` on arrays in f64 or of other kinds; what its targets must hold."""

    module: str
    function: str
    equation: str
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    looser: float = 1

    def __str__(self) -> str:
        return f"{self.function}: {self.equation}"

    def text(self, dtype: str) -> str:
        """The whole program, every axis of every input with a size of its own."""
        lines = [f"import std.{self.module}"]
        for name, value in self.cast(self.inputs, dtype).items():
            axes = ", ".join(f"{name}_{axis}" for axis in range(value.ndim))
            lines.append(f"input {name} : {SHORT[str(value.dtype)]}" + (f"[{axes}]" if axes else ""))
        return "\n".join([*lines, self.equation, f"output {', '.join(self.expected)}", ""])

    def cast(self, arrays: Mapping[str, Any], dtype: str) -> dict[str, Array]:
        """Every array of floats in that dtype."""
        return {
            name: np.asarray(value, dtype if np.asarray(value).dtype == np.float64 else None)
            for name, value in arrays.items()
        }

    def program(self, dtype: str) -> et.Program:
        """Compiled."""
        return et.compile(self.text(dtype))
