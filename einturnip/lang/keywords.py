"""The reserved words of the language: keywords, dtypes, constants, functions, aggregations."""

from __future__ import annotations

import math

from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.dtypes import DTYPES

STATEMENTS = ("dim", "input", "output", "import", "fn", "for", "state", "return")
KEYWORDS = frozenset({*STATEMENTS, "in", "and", "or", "not"})
CONSTANTS: dict[str, bool | float] = {
    "pi": math.pi,
    "inf": math.inf,
    "nan": math.nan,
    "true": True,
    "false": False,
}
# fmt: off
ELEMENTWISE = frozenset({
    "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "sign", "floor", "ceil", "round", "sin", "cos", "tan",
    "tanh", "sigmoid", "relu", "silu", "gelu", "erf", "softplus", "conj", "real", "imag",
})
# fmt: on
FUNCTIONS = ELEMENTWISE | {"where", "min", "max", "grad"}
BUILT_IN = FUNCTIONS | set(AGGREGATIONS) | set(DTYPES) | set(CONSTANTS)
RESERVED = BUILT_IN | KEYWORDS


def describe(word: str) -> str:
    """Describe a reserved word, for messages."""
    if word in KEYWORDS:
        return "a keyword"
    if word in DTYPES:
        return "a dtype"
    if word in CONSTANTS:
        return "a constant"
    return "an aggregation" if word in AGGREGATIONS else "a function"
