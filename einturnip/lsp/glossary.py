"""One line of documentation for every reserved word of the language."""

from __future__ import annotations

from einturnip.ir.aggregations import AGGREGATIONS, MONOIDS
from einturnip.ir.dtypes import DTYPES
from einturnip.ir.functions import ELEMENTWISE

# fmt: off
_KEYWORDS = {
    "dim": "A size: `dim n`, `dim n = 4096`. Without a value the inputs or `--dim n=4096` bind it.",
    "input": "A tensor from outside: `input X : f32[n, d]`, with a default file, or a number for a scalar.",
    "output": "A result: `output Y`, `output Y = \"y.npy\"`. Only tensors that outputs need are computed.",
    "import": "Bring in the functions of a file, `import \"layers.ein\"`, or of the standard library, `import std.nn`.",
    "fn": "A function: `fn name(X[s, d], eps = 1e-5) = ...`, or `{ ... return Y[s, d] }`. Calls are inlined.",
    "for": "A loop: `for l in 0 .. L { ... }`, with l from 0 to L - 1.",
    "while": "A loop whose condition is tested before each iteration: `while r > 1e-6, at most 1000 { ... }`.",
    "in": "Between a loop's variable and its range: `for l in 0 .. L { ... }`.",
    "state": "A tensor that lives from step to step: `state W : f32[d, e] = \"w.npy\"`.",
    "return": "The result of a function: `return Y[s, e]`.",
    "and": "Both conditions hold.",
    "or": "One condition holds, or both.",
    "not": "The condition does not hold.",
}
_FUNCTIONS = {
    **{name: function.doc for name, function in ELEMENTWISE.items()},
    "where": "`where(c, a, b)`: a where the condition holds, else b.",
    "grad": "`grad(loss, W[d, e])`: the derivative of a real scalar by each element of W, in its version here.",
}
_CONSTANTS = {
    "pi": "3.14159...",
    "inf": "Infinity.",
    "nan": "Not a number.",
    "true": "The condition that always holds.",
    "false": "The condition that never holds.",
}
HINTS = {
    "tile": "`@tile(i = 256, j = 4 parts)`: how the statement below is tiled. Never changes results.",
    "place": "`@place(cuda:0)`: the device of the statement below. Never changes results.",
    "keep": "`@keep`: the tensor below stays in compute memory. Never changes results.",
    "recompute": "`@recompute`: the tensor below may be dropped and computed again. Never changes results.",
}
# fmt: on
_KINDS = {"b": "true or false", "i": "signed integers", "u": "unsigned integers", "f": "floating point"}


def _dtype(name: str) -> str:
    dtype = DTYPES[name]
    kind = _KINDS.get(dtype.kind, "complex numbers")
    extra = " with the range of f32" if name == "bf16" else ""
    return f"Element type: {kind}, {8 * dtype.itemsize} bits{extra}. As a function, `{name}(x)`, it converts."


GLOSSARY = {
    **_KEYWORDS,
    **{name: MONOIDS[name].doc for name in AGGREGATIONS},
    **_FUNCTIONS,
    **_CONSTANTS,
    **{name: _dtype(name) for name in DTYPES},
}
"""Every reserved word with its documentation, in Markdown."""
