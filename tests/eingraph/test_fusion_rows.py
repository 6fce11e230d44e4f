"""Chains over rows become one region however they are written, with the same results; other nodes stay apart."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.check import check
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.ir.region import Region
from einturnip.lang import compile_text
from tests.eingraph.fused import drawn_inputs, regions
from tests.reference.eingraph import evaluate

X = "import std.nn\ninput X: f32[i, j]\n"
SIZES = {"X": (6, 11), "Y": (6, 11), "T": (3, 6, 11), "g": (11,), "b": (11,), "r": (6,)}
CHAINS = {
    "softmax": (f"{X}Z[i,j] = softmax(X[i,j])\noutput Z", 3),
    "layernorm": (f"{X}input g: f32[j], b: f32[j]\nZ[i,j] = layernorm(X[i,j], g[j], b[j])\noutput Z", 3),
    "rmsnorm, three axes": (
        "import std.nn\ninput T: f32[b, i, j], g: f32[j]\nZ[b,i,j] = rmsnorm(T[b,i,j], g[j])\noutput Z",
        2,
    ),
    "masked": (f"{X}S[i,j] = where(j <= i, X[i,j], -inf)\nZ[i,j] = softmax(S[i,j])\noutput Z", 4),
    "over columns": (f"{X}Z[i,j] = X[i,j] / (1 + max[i] abs(X[i,j]))\noutput Z", 2),
    "gradient of softmax": (f"{X}input Y: f32[i,j]\nZ[i,j] = X[i,j] * (Y[i,j] - sum[j] X[i,j]*Y[i,j])\noutput Z", 2),
    "over two axes": ("input T: f32[b, i, j]\nZ[b,i,j] = T[b,i,j] - mean[i,j] T[b,i,j]\noutput Z", 2),
    "where the largest is": (f"{X}Z[i,j] = where(j == argmax[j] X[i,j], X[i,j], 0)\noutput Z", 2),
}


def graphs(text: str) -> tuple[EinGraph, EinGraph]:
    program = compile_text(text, "p.ein")
    before = rewrite(build(program, {x.name: SIZES[x.name] for x in program.inputs}))
    after = fuse(before, EinsumInterner(), None, 0, rows=True)
    check(after)
    return before, after


@pytest.mark.parametrize("name", CHAINS)
def test_one_region(name: str) -> None:
    text, steps = CHAINS[name]
    before, after = graphs(text)
    (node,) = regions(after)
    assert isinstance(node.einsum, Region) and node.einsum.of_rows and len(node.einsum.steps) == steps
    assert node.einsum.whole and not node.einsum.aggregated and "by rows of" in show(after)
    assert to_json(after)
    inputs = drawn_inputs(before, 3)
    expected, found = evaluate(before, inputs), evaluate(after, inputs)
    np.testing.assert_array_equal(found["Z"], expected["Z"])


APART = {
    "a fold alone": f"{X}Z[i] = sum[j] exp(X[i,j])\noutput Z",
    "a fold that is an output": f"{X}m[i] = max[j] X[i,j]\nZ[i,j] = X[i,j] - m[i]\noutput Z, m",
    "maps alone": f"{X}Z[i,j] = exp(X[i,j])\noutput Z",
    "a matrix product": f"{X}input Y: f32[i, j]\nZ[i,k] = (sum[j] X[i,j] * Y[k,j]) + 1\noutput Z",
}


@pytest.mark.parametrize("name", APART)
def test_none(name: str) -> None:
    before, after = graphs(APART[name])
    assert after is before


def test_folds_along_both_axes_are_not_one_region() -> None:
    """One of them is, where that spares anything; the other stays by itself."""
    text = f"{X}Z[i,j] = (X[i,j] - max[j] X[i,j]) / (1 + max[i] abs(X[i,j]))\noutput Z"
    before, after = graphs(text)
    (node,) = regions(after)
    assert isinstance(node.einsum, Region) and len(node.einsum.whole) == 1
    inputs = drawn_inputs(before, 1)
    np.testing.assert_array_equal(evaluate(after, inputs)["Z"], evaluate(before, inputs)["Z"])


def test_rows_too_long_for_the_cache_stay_apart() -> None:
    before = rewrite(build(compile_text(CHAINS["softmax"][0], "p.ein"), {"X": (4, 1 << 17)}))
    assert not regions(fuse(before, EinsumInterner(), None, 0, rows=True))


def test_only_where_it_is_asked_for() -> None:
    before, _ = graphs(CHAINS["softmax"][0])
    assert not any(
        isinstance(n.einsum, Region) and n.einsum.of_rows for n in regions(fuse(before, EinsumInterner(), None, 0))
    )
