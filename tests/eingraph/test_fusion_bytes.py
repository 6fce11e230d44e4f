"""Bytes moved by fused aggregations over joined spaces: each input and output once, no intermediates."""

from __future__ import annotations

import numpy as np
import pytest

import einturnip as et
from einturnip.compiler import Options, make_plan
from einturnip.eingraph.build.program import build
from einturnip.lang import compile_text

TABLES = "import std.stats\ninput X: f32[i,k]\ninput Y: f32[j,k]\n"
DISTANCES = "sum[k] (X[i,k] - Y[j,k])^2"
FOLDS = {
    "logsumexp": f"O[j] = logsumexp[i] -{DISTANCES}",
    "argmin": f"O[i] = argmin[j] {DISTANCES}",
    "argmax of a product": "O[i] = argmax[j] sum[k] X[i,k] * Y[j,k]",
    "variance": "Z[i,j] = sum[k] X[i,k] * Y[j,k]\nO[i] = variance(Z[i,j])",
    "variance in two statements": (
        f"Z[i,j] = {DISTANCES}\nm[i] = mean[j] Z[i,j]\nO[i] = sqrt(mean[j] (Z[i,j] - m[i])^2)"
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_joined_space_of_10_gigabytes_is_never_stored(name: str) -> None:
    rows, width = 50_000, 16
    text = f"{TABLES}{FOLDS[name]}\noutput O"
    graph = build(compile_text(text, "p.ein"), {"X": (rows, width), "Y": (rows, width)})
    plan = make_plan(graph, {}, {"O": "o.npy"}, Options(arena=256 << 20, check=False))
    (out,) = (plan.graph.nodes[node] for _, node in plan.graph.outputs)
    moved = plan.prediction.link_bytes
    if (
        plan.taskgraph.repeats
    ):  # its tiles are made twice, which is faster than one slow pass; sums of tiles are spilled
        assert name == "variance in two statements" and sum(moved.values()) < rows * rows * 4 / 100
    else:
        assert moved == {"disk->cpu:0": 2 * rows * width * 4, "cpu:0->disk": rows * out.dtype.itemsize}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("arena", ["48KiB", "1MiB"])
def test_the_answer_is_that_of_numpy(name: str, arena: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, (n, 6)).astype(np.float32) for n in (230, 190))
    found = et.compile(f"{TABLES}{FOLDS[name]}\noutput O")(X=x, Y=y, arena=arena)["O"]
    gaps, products = ((x[:, None] - y).astype("d") ** 2).sum(-1), x.astype("d") @ y.T
    expected = {
        "logsumexp": np.log(np.exp(-gaps).sum(0)),
        "argmin": gaps.argmin(1),
        "argmax of a product": products.argmax(1),
        "variance": products.var(1),
        "variance in two statements": gaps.std(1),
    }[name]
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_a_variance_is_read_once_and_keeps_its_digits() -> None:
    """Rows about a mean far from 0; their squares alone would keep no digit in f32."""
    x = (np.random.default_rng(0).standard_normal((64, 6000)) + 4000).astype(np.float32)
    result = et.compile("import std.stats\ninput X: f32[i,k]\nO[i] = variance(X[i,k])\noutput O")(X=x, arena="64KiB")
    assert result.report.link_bytes["disk->cpu:0"] == x.nbytes
    np.testing.assert_allclose(result["O"], x.astype("d").var(1), rtol=1e-4)
