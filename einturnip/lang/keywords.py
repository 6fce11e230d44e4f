"""The reserved words of the language: keywords, dtypes, constants, functions, aggregations."""

from __future__ import annotations

import math

from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.dtypes import DTYPES
from einturnip.ir.functions import ELEMENTWISE

STATEMENTS = ("dim", "input", "output", "import", "fn", "for", "while", "state", "return")
KEYWORDS = frozenset({*STATEMENTS, "in", "and", "or", "not"})
CONSTANTS: dict[str, bool | float] = {
    "pi": math.pi,
    "inf": math.inf,
    "nan": math.nan,
    "true": True,
    "false": False,
}
FUNCTIONS = frozenset(ELEMENTWISE) | {"where", "min", "max", "grad"}
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
