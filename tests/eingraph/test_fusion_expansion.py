"""Squared distances as contractions: off unless asked for, right within the bound that they state, never below 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from einturnip.compiler import Options, make_plan
from einturnip.eingraph.build.program import build
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.check import check
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.rewrite.expand_squares import expand_squares
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Region
from einturnip.lang import compile_text
from einturnip.runtime.host.compilation import has_room
from tests.reference.eingraph import evaluate

TABLES = "input X: f32[i,k]\ninput Y: f32[j,k]\n"
SHAPES = {"X": (9, 5), "Y": (7, 5)}
EXPANDED = {
    "a distance": "O[i,j] = sum[k] (X[i,k] - Y[j,k])^2\noutput O",
    "written as a product": "O[i,j] = sum[k] (X[i,k] - Y[j,k]) * (X[i,k] - Y[j,k])\noutput O",
    "inside a fold": "O[j] = logsumexp[i] -sum[k] (X[i,k] - Y[j,k])^2\noutput O",
    "nearest": "O[i] = argmin[j] sum[k] (X[i,k] - Y[j,k])^2\noutput O",
}
KEPT = {
    "of one row each": "O[i] = sum[k] (X[i,k] - Y[0,k])^2\noutput O",
    "of rows that go together": "O[i,j] = sum[k] (X[i,k] - X[i,0])^2 + Y[j,0]\noutput O",
    "a fourth power": "O[i,j] = sum[k] (X[i,k] - Y[j,k])^4\noutput O",
    "the largest": "O[i,j] = max[k] (X[i,k] - Y[j,k])^2\noutput O",
}


def expanded(text: str) -> tuple[EinGraph, EinGraph]:
    before = rewrite(build(compile_text(TABLES + text, "p.ein"), SHAPES))
    after = expand_squares(before, EinsumInterner())
    check(after)
    return before, after


@pytest.mark.parametrize("name", EXPANDED)
def test_small_integers_are_exact(name: str) -> None:
    before, after = expanded(EXPANDED[name])
    einsums = [n.einsum for n in after.nodes if isinstance(n, EinsumNode) and isinstance(n.einsum, Einsum)]
    assert any(contraction(e) is not None and e.n_out == 2 for e in einsums)
    rng = np.random.default_rng(0)
    inputs = {n: rng.integers(-3, 4, s).astype(np.float32) for n, s in SHAPES.items()}
    np.testing.assert_allclose(evaluate(after, inputs)["O"], evaluate(before, inputs)["O"], rtol=1e-6)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_matrix_product_stays(name: str) -> None:
    before, after = expanded(KEPT[name])
    assert after is before


def test_the_bound_holds_where_points_nearly_meet() -> None:
    before, after = expanded(EXPANDED["a distance"])
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(SHAPES["X"]) * 100).astype(np.float32)
    y = (x[:7] + rng.standard_normal(SHAPES["Y"]) * 1e-3).astype(np.float32)
    found = evaluate(after, {"X": x, "Y": y})["O"].astype("d")
    exact = ((x.astype("d")[:, None] - y) ** 2).sum(-1)
    sizes = (x.astype("d") ** 2).sum(-1)[:, None] + (y.astype("d") ** 2).sum(-1)
    assert (found >= 0).all()
    assert (np.abs(found - exact) <= (5 + 4) * 2.0**-24 * sizes).all()
    assert not np.allclose(found.diagonal(), exact.diagonal(), rtol=0.5)  # which is why it has to be asked for
    np.testing.assert_allclose(evaluate(before, {"X": x, "Y": y})["O"], exact, rtol=1e-5)


def test_it_is_asked_for_pays_and_fuses_with_what_folds_it() -> None:
    text = compile_text(TABLES + EXPANDED["inside a fold"], "p.ein")
    for terms, exact in itertools.product((16, 1024), (True, False)):
        graph = build(text, {"X": (4000, terms), "Y": (3000, terms)})
        options = Options(arena=16 << 20, exact=exact, fuse=False)
        found = make_plan(graph, {}, {"O": "o.npy"}, options).graph
        few = terms < 256 and has_room(None, 0)  # whose differences are machine code that is faster
        assert any(node.name.endswith(".product") for node in found.nodes) == (not exact and not few)
    graph = build(text, {"X": (4000, 16), "Y": (3000, 16)})
    (*_, last) = fuse(expand_squares(rewrite(graph), EinsumInterner()), EinsumInterner(), 4 << 20).nodes
    assert isinstance(last, EinsumNode) and isinstance(last.einsum, Region)
    assert [contraction(step.einsum) is not None for step in last.einsum.steps] == [True, False, False]
