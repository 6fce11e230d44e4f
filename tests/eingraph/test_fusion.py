"""Which programs become regions and which do not, and that regions, in any tiles, compute what was written."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.core.errors import InternalError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.check_region import check_region
from einturnip.eingraph.printer import show, to_json
from einturnip.ir.region import Region
from einturnip.lang import compile_text
from tests.eingraph.fused import (
    SCORES,
    SIZES,
    VALUES,
    agree,
    drawn_inputs,
    graphs,
    regions,
    shapes_of,
)
from tests.reference.eingraph import evaluate

ATTENTION = """
input Q : f32[b, h, s, d]
input K : f32[b, h, t, d]
input V : f32[b, h, t, d]
scale = 1 / sqrt(d)
S[b,h,s,t] = sum[d] Q[b,h,s,d] * K[b,h,t,d] * scale
A[b,h,s,t] = where(t <= s, S[b,h,s,t], -inf)
P[b,h,s,t] = exp(A[b,h,s,t] - max[t] A[b,h,s,t])
O[b,h,s,d] = sum[t] P[b,h,s,t] * V[b,h,t,d] / sum[t] P[b,h,s,t]
output O
"""
QKV = {name: (2, 2, 7, 4) for name in "QKV"}


def library(call: str, more: str = "") -> str:
    return f"import std.nn\ninput Q: f32[s,d]\ninput K: f32[t,d]\n{VALUES}{more}O[s,e] = {call}\noutput O"


# name: program, steps of its one region, sizes where they differ
FUSED: dict[str, tuple[str, int]] = {
    "attention": (library("attention(Q[s,d], K[t,d], V[t,e])"), 6),
    "causal": (library("causal_attention(Q[s,d], K[t,d], V[t,e])"), 6),
    "window": (library("window_attention(Q[s,d], K[t,d], V[t,e], 3)"), 6),
    "masked": (library("masked_attention(Q[s,d], K[t,d], V[t,e], M[s,t])", "input M: bool[s,t]\n"), 6),
    "softmax, then a product": (
        f"import std.nn\n{SCORES}{VALUES}P[s,t] = softmax(S[s,t])\nO[s,e] = sum[t] P[s,t] * V[t,e]\noutput O",
        6,
    ),
    "base 2": (
        f"{SCORES}{VALUES}P[s,t] = 2^(S[s,t] - max[t] S[s,t])\n"
        "O[s,e] = (sum[t] P[s,t] * V[t,e]) / sum[t] P[s,t]\noutput O",
        6,
    ),
    "least, in a divisor": (
        f"{SCORES}{VALUES}P[s,t] = 1 / exp((S[s,t] - min[t] S[s,t]) / 2)\n"
        "O[s,e] = (sum[t] P[s,t] * V[t,e]) / sum[t] P[s,t]\noutput O",
        6,
    ),
    "logsumexp by hand": (
        f"{SCORES}m[s] = max[t] S[s,t]\nO[s] = m[s] + log(sum[t] exp(S[s,t] - m[s]))\noutput O",
        4,
    ),
    "logsumexp of distances": (
        "input X: f32[i,k]\ninput Y: f32[j,k]\nO[j] = logsumexp[i] -sum[k] (X[i,k] - Y[j,k])^2\noutput O",
        2,
    ),
    "nearest": ("input X: f32[i,k]\ninput Y: f32[j,k]\nO[j] = argmin[i] sum[k] (X[i,k] - Y[j,k])^2\noutput O", 2),
    "mean and square": (f"{SCORES}O[t] = (mean[s] S[s,t]^2) - (mean[s] S[s,t])^2\noutput O", 4),
    "deviations from the mean": (
        "input X: f32[i,k]\nm[i] = mean[k] X[i,k]\nO[i] = mean[k] (X[i,k] - m[i])^2\noutput O",
        2,
    ),
    "library variance, of products": (f"import std.stats\n{SCORES}O[s] = variance(S[s,t])\noutput O", 4),
    "minus twice the squares, written out": (
        f"{SCORES}m[s] = mean[t] S[s,t]\nO[s] = m[s] + sum[t] -(S[s,t] - m[s]) * 2 * (m[s] - S[s,t])\noutput O",
        4,
    ),
    "over two labels": (
        f"{SCORES}m = mean[s,t] S[s,t]\nO = sqrt(mean[s,t] (S[s,t] - m)^2)\noutput O",
        4,
    ),
    "a row read twice": (
        "input X: f32[i,k]\nm[i] = max[k] X[i,k]\nO[i] = log(sum[k] exp(X[i,k] - m[i])) + m[i]\noutput O",
        3,
    ),
    "two layers": (
        "input Q: f32[s,d]\ninput W: f32[d,f]\ninput U: f32[f,e]\n"
        "H[s,f] = gelu(sum[d] Q[s,d] * W[d,f])\nO[s,e] = sum[f] H[s,f] * U[f,e]\noutput O",
        3,
    ),
    "beside other terms": (
        f"{SCORES}{VALUES}input R: f32[s,e]\nP[s,t] = exp(S[s,t] - max[t] S[s,t])\n"
        "O[s,e] = R[s,e] + (sum[t] P[s,t] * V[t,e]) / sum[t] P[s,t]\noutput O",
        6,
    ),
    "cross entropy": (
        "import std.nn\ninput Q: f32[s,d]\ninput W: f32[d,f]\ninput y: i64[s]\nZ[s,f] = Q[s,d] * W[d,f]\n"
        "O = mean[s] cross_entropy(Z[s,f], y[s])\noutput O",
        4,
    ),
}
SIZES |= {"W": (3, 6), "U": (6, 2), "R": (5, 2)}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("seed", [0, 1])
def test_one_region_forms(name: str, seed: int) -> None:
    text, n_steps = FUSED[name]
    before, after = graphs(text, shapes_of(text))
    (region,) = regions(after)
    assert len(region.steps) == n_steps, show(after)
    inputs = drawn_inputs(before, seed)
    if "M" in inputs:
        inputs["M"][1] = False
    agree(before, after, inputs, [1, 2, 5], seed)


def test_attention_is_one_node() -> None:
    before, after = graphs(ATTENTION, QKV)
    (node,) = regions(after)
    assert len(after.nodes) == 4
    region = node.einsum
    assert isinstance(region, Region)
    assert [name for name, _ in node.steps] == ["S", "P.max", "P", "O.sum", "O.sum2", "O"]
    assert (region.tiled, region.carried) == ((0, 2), (1, 3, 4))
    assert [(r.step, r.of, r.coefficient) for r in region.rescales] == [(3, 1, -1.0), (4, 1, -1.0)]
    # The scores lack the output's d: its tiles would compute them again.
    assert region.untiled == (3,)
    agree(before, after, drawn_inputs(before, 3), [1, 3, 4], 0)


def test_grouped_heads_are_fused() -> None:
    text = "import std.nn\ninput Q: f32[h,s,d]\ninput K: f32[g,t,d]\ninput V: f32[g,t,e]\n"
    own = text + "O[h,s,e] = grouped_attention(Q[h,s,d], K[g,t,d], V[g,t,e])\noutput O"
    shapes = {"Q": (4, 5, 3), "K": (2, 5, 3), "V": (2, 5, 2)}
    before, after = graphs(own, shapes)
    assert [len(node.steps) for node in regions(after)] == [6]
    agree(before, after, drawn_inputs(before, 0), [2], 0)
    by_division = text + (
        "dim r = h / g\nS[h,s,t] = sum[d] Q[h,s,d] * K[h // r,t,d]\nP[h,s,t] = softmax(S[h,s,t])\n"
        "O[h,s,e] = sum[t] P[h,s,t] * V[h // r,t,e]\noutput O"
    )
    before, after = graphs(by_division, shapes)
    assert [len(node.operands) for node in regions(after)] == [3]
    agree(before, after, drawn_inputs(before, 0), [2], 0)


ALONE = {
    "weights that are an output": f"{SCORES}P[s,t] = exp(S[s,t] - max[t] S[s,t])\nO[s] = sum[t] P[s,t]\noutput O, P",
    "scores read both ways round": (
        "input K: f32[t, d]\nS[s,t] = sum[d] K[s,d] * K[t,d]\nO = sum[s,t] exp(S[s,t]) * S[t,s]\noutput O"
    ),
    "sums of rows and of columns": f"{SCORES}a[s] = sum[t] S[s,t]\nb[t] = max[s] S[s,t]\noutput a, b",
    "a bound of something else": (
        f"{SCORES}input B: f32[s,t]\nm[s] = max[t] B[s,t]\nO[s] = sum[t] exp(S[s,t] - m[s])\noutput O"
    ),
    "fourth powers about the mean": (
        "input X: f32[i,k]\nm[i] = mean[k] X[i,k]\nO[i] = mean[k] (X[i,k] - m[i])^4\noutput O"
    ),
    "squares about the mean of something else": (
        "input X: f32[i,k]\nm[i] = mean[k] X[i,k]^2\nO[i] = mean[k] (X[i,k] - m[i])^2\noutput O"
    ),
    "a kept tensor": f"{SCORES}@keep\nP[s,t] = exp(S[s,t])\nO[s] = sum[t] P[s,t] * S[s,t]\noutput O",
}


@pytest.mark.parametrize("name", ALONE)
def test_no_region_forms(name: str) -> None:
    text = ALONE[name]
    before, after = graphs(text, shapes_of(text))
    found = [show(after)] if regions(after) else []
    steps = [[step for step, _ in node.steps] for node in regions(after)]
    # The maximum of something else is no member; the sum of the exponentials still is one, without it.
    if name == "a bound of something else":
        assert [(len(s), "m" in s) for s in steps] == [(2, False)]
    else:
        assert not found
    agree(before, after, drawn_inputs(before, 0), [2], 0)


def terms(weight: str) -> str:
    return f"{SCORES}m[s] = max[t] S[s,t]\nW[s,t] = {weight}\nO[s] = (sum[t] W[s,t]) / max[t] W[s,t]\noutput O"


@pytest.mark.parametrize(
    "weight",
    [
        "m[s] * exp(S[s,t] - m[s])",
        "exp(m[s] - S[s,t])",
        "exp(S[s,t] - 2 * m[s])",
        "exp(2 * S[s,t] - m[s])",
        "exp(S[s,t] - min(m[s], 0))",
        "abs(S[s,t] - m[s])",
    ],
)
def test_a_moving_maximum_is_not_seen(weight: str) -> None:
    """Where no law makes up for it, or terms might overflow on the way, the maximum is computed first."""
    text = terms(weight)
    before, after = graphs(text, shapes_of(text))
    members = {name for node in regions(after) for name, _ in node.steps}
    assert not {"m", "W"} <= members
    agree(before, after, drawn_inputs(before, 0), [2], 0)


def test_a_maximum_of_what_is_masked_bounds_only_that() -> None:
    masked = f"{SCORES}m[s] = max[t] where(t <= s, S[s,t], -inf)\n"
    for weight, fused in (
        ("exp(S[s,t] - m[s])", False),
        ("where(t <= s, exp(S[s,t] - m[s]), 0)", True),
        ("where(t <= s and t > 1, exp(S[s,t] - m[s]), 0)", True),
        ("where(t > s, exp(S[s,t] - m[s]), 0)", False),
    ):
        text = f"{masked}O[s] = log(sum[t] {weight}) + m[s]\noutput O"
        before, after = graphs(text, shapes_of(text))
        assert [len(node.steps) for node in regions(after)] == [4] * fused, show(after)
        agree(before, after, drawn_inputs(before, 0), [1, 3], 0)


def test_what_is_small_or_would_be_computed_again_is_left_alone() -> None:
    assert not regions(graphs(ATTENTION, QKV, min_nbytes=64 << 10)[1])
    shapes = {"Q": (1, 2, 96, 8), "K": (1, 2, 96, 8), "V": (1, 2, 96, 8)}
    assert len(regions(graphs(ATTENTION, shapes, min_nbytes=64 << 10)[1])) == 1
    text = FUSED["two layers"][0]
    wide = {"Q": (64, 8), "W": (8, 64), "U": (64, 1024)}
    assert not regions(graphs(text, wide)[1])


def test_fused_nodes_print_their_steps() -> None:
    _, after = graphs(ATTENTION, QKV)
    (printed,) = [node for node in to_json(after) if node["kind"] == "region"]
    assert [step["name"] for step in printed["body"]] == ["S", "P.max", "P", "O.sum", "O.sum2", "O"]
    assert printed["labels"] == ["b", "h", "s", "d", "t", "d_2"]
    assert printed["streamed"] == ["t"]
    weights = printed["body"][2]
    assert weights["inputs"] == [
        {"step": 0, "labels": ["b", "h", "s", "t"]},
        {"step": 1, "labels": ["b", "h", "s"]},
    ]
    assert weights["line"] == 8
    assert "along t: S[b,h,s,t] = sum[d_2] " in show(after)


def test_exponentials_are_computed_once() -> None:
    """Whoever writes ``softmax`` and then a product names the weights nowhere."""
    text, _ = FUSED["softmax, then a product"]
    before, _ = graphs(text, shapes_of(text))
    assert show(before).count("exp(") == 1
    # Over the columns of what the weights are stored for; the map is computed before the fold that now reads it.
    text = (
        "input B: f32[s,t]\ninput K: f32[t,d]\nO[t] = sum[s] exp(B[s,t])\n"
        "R[d,s] = sum[t] exp(B[s,t]) * K[t,d]\noutput O, R"
    )
    before, _ = graphs(text, shapes_of(text))
    assert show(before).count("exp(") == 1
    inputs = drawn_inputs(before, 0)
    plain, found = evaluate(build(compile_text(text, "p.ein"), shapes_of(text)), inputs), evaluate(before, inputs)
    np.testing.assert_allclose(found["O"], plain["O"], rtol=1e-6)
    np.testing.assert_allclose(found["R"], plain["R"], rtol=1e-6)


def test_layers_share_one_region() -> None:
    layers = "\n".join(
        f"S{k}[s,t] = sum[d] X{k}[s,d] * X{k}[t,d]\nP{k}[s,t] = exp(S{k}[s,t] - max[t] S{k}[s,t])\n"
        f"X{k + 1}[s,d] = (sum[t] P{k}[s,t] * X{k}[t,d]) / sum[t] P{k}[s,t]"
        for k in range(3)
    )
    _, after = graphs(f"input X0: f32[s,d]\n{layers}\noutput X3", {"X0": (6, 4)})
    found = regions(after)
    assert len(found) == 3
    assert len({id(node.einsum) for node in found}) == 1


def test_broken_regions_are_found() -> None:
    _, after = graphs(ATTENTION, QKV)
    (node,) = regions(after)
    region = node.einsum
    assert isinstance(region, Region)
    for broken in (
        dict(steps=region.steps[:-1]),
        dict(n_streamed=0),
        dict(steps=(*region.steps[:5], region.steps[3])),
        dict(bounds=(*region.bounds[:-1], 9)),
    ):
        fields = {name: getattr(region, name) for name in Region.__dataclass_fields__}
        with pytest.raises(InternalError):
            check_region("node", Region(**(fields | broken)))
