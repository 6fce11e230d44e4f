"""Drawn programs of masks, weights and folds become one region, and compute what was written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.eingraph.printer import show
from tests.drawn import examples
from tests.eingraph.fused import (
    SCORES,
    VALUES,
    agree,
    drawn_inputs,
    graphs,
    regions,
    shapes_of,
)

MASKS = {
    "": "S[s,t]",
    "causal": "where(t <= s, S[s,t], -inf)",
    "data": "where(M[s,t], S[s,t], -inf)",
    "both": "where(t <= s + 2 and M[s,t], S[s,t] + B[s,t], -inf)",
    "added": "S[s,t] + where(M[s,t], 0, -inf)",
    "negated": "where(not M[s,t], -inf, S[s,t] / 2)",
}
WEIGHTS = (
    "exp(A[s,t] - max[t] A[s,t])",
    "exp((A[s,t] - max[t] A[s,t]) / 3) * B[s,t]",
    "where(t <= s + 1, exp(A[s,t] - max[t] A[s,t]), 0)",
    "exp(0.5 * A[s,t] - 0.5 * max[t] A[s,t] + 1)",
    "exp(A[s,t])",
    "relu(A[s,t])",
)
FOLDS = (
    "sum[t] W[s,t]",
    "sum[t] W[s,t] * V[t,e]",
    "mean[t] W[s,t] * V[t,e]",
    "sum[t] W[s,t]^2 * V[t,e]",
    "max[t] A[s,t]",
    "logsumexp[t] A[s,t]",
    "argmax[t] A[s,t]",
    "any[t] (A[s,t] > 1)",
)


@given(
    mask=st.sampled_from(sorted(MASKS)),
    weight=st.sampled_from(WEIGHTS),
    folds=st.lists(st.sampled_from(FOLDS), min_size=1, max_size=3, unique=True),
    cuts=st.lists(st.integers(1, 6), max_size=3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["f32", "f64", "f16"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_drawn_programs(mask: str, weight: str, folds: list[str], cuts: list[int], seed: int, dtype: str) -> None:
    """One region or none, the same values: rows without a key that counts, too."""
    made = "\n".join(
        f"F{i}[s{',e' if 'e]' in fold else ''}] = {fold}" for i, fold in enumerate(dict.fromkeys([*folds, FOLDS[1]]))
    )
    total = " + ".join(
        f"F{i}[s{',e' if 'e]' in fold else ''}]" if "any" not in fold else f"where(F{i}[s], 2, 3)"
        for i, fold in enumerate(dict.fromkeys([*folds, FOLDS[1]]))
    )
    text = (
        f"{SCORES}{VALUES}input M: bool[s,t]\ninput B: f32[s,t]\nA[s,t] = {MASKS[mask]}\nW[s,t] = {weight}\n"
        f"{made}\nO[s,e] = {total}\noutput O"
    ).replace("f32", dtype)
    before, after = graphs(text, shapes_of(text))
    assert len(regions(after)) == 1, show(after)
    inputs = drawn_inputs(before, seed)
    agree(before, after, inputs, cuts, seed, {"f16": 2e-2, "f32": 1e-5, "f64": 1e-12}[dtype])
