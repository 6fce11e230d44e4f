"""Data, sequence and tensor parallel cuts, found from the graph, beside EinDecomp's."""

from __future__ import annotations

import pytest

from einturnip.compiler import bind
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.lang import compile_text
from einturnip.tiling.baselines import HandTiling, baselines
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved

LAYER = """import std.nn
dim b
dim h
input X : f32[b,s,d]
input Wq : f32[d,h,e], Wk : f32[d,h,e], Wv : f32[d,h,e], Wo : f32[h,e,d], W1 : f32[d,f], W2 : f32[f,d]
Q[b,h,s,e] = X[b,s,d] * Wq[d,h,e]
K[b,h,t,e] = X[b,t,d] * Wk[d,h,e]
V[b,h,t,e] = X[b,t,d] * Wv[d,h,e]
A[b,h,s,e] = attention(Q[b,h,s,e], K[b,h,t,e], V[b,h,t,e])
Y[b,s,d] = X[b,s,d] + sum[h,e] A[b,h,s,e] * Wo[h,e,d]
H[b,s,f] = relu(sum[d] Y[b,s,d] * W1[d,f])
Z[b,s,d] = Y[b,s,d] + sum[f] H[b,s,f] * W2[f,d]
output Z
"""


def graph_of(text: str, **dims: int) -> EinGraph:
    return rewrite(bind(compile_text(text, "p.ein"), {}, dims), None)


def by_name(graph: EinGraph, parts: int) -> dict[str, HandTiling]:
    return {b.name: b for b in baselines(graph, parts)}


def cut_labels(baseline: HandTiling) -> dict[str, set[str]]:
    """For each node that sums, the labels that are cut."""
    d = baseline.decomposition
    return {
        n.name: {label for label, c in zip(n.einsum.labels, p.counts, strict=True) if c > 1}
        for n, p in zip(d.graph.nodes, d.partitionings, strict=True)
        if isinstance(n, EinsumNode) and isinstance(n.einsum, Einsum) and n.einsum.aggregated
    }


@pytest.fixture(scope="module")
def layer() -> EinGraph:
    return graph_of(LAYER, b=8, s=64, d=128, h=8, e=16, f=512)


def test_a_transformer_s_labels_find_their_roles(layer: EinGraph) -> None:
    found = by_name(layer, 4)
    assert set(found) == {"data parallel", "sequence parallel", "tensor parallel"}
    assert {n for labels in cut_labels(found["data parallel"]).values() for n in labels} <= {"b", "...0"}
    assert set(found["tensor parallel"].labels) == {"d", "h", "e", "f"}
    tensor = cut_labels(found["tensor parallel"])
    # Columns, then rows: heads and the wide layer stay on their device, and what they are multiplied with is summed up.
    assert tensor["Q"] == tensor["K"] == tensor["V"] == {"h"}
    (up,) = (labels for name, labels in tensor.items() if name.startswith("H"))
    (down,) = (labels for name, labels in tensor.items() if name.startswith("Z"))
    assert up == down == {"f"}


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_none_moves_less_than_eindecomp(layer: EinGraph, parts: int) -> None:
    best = eindecomp(layer, parts)
    assert best.kernel_calls == parts * sum(isinstance(n, EinsumNode) for n in layer.nodes)
    for baseline in baselines(layer, parts):
        assert baseline.decomposition.kernel_calls == best.kernel_calls
        assert moved(baseline.decomposition).total >= moved(best).total


def test_without_samples_there_is_no_data_parallel_cut() -> None:
    one = graph_of(LAYER, b=1, s=64, d=128, h=8, e=16, f=512)
    found = by_name(one, 4)
    assert set(found) == {"sequence parallel", "tensor parallel"}
    product = graph_of("input A : f32[n,m], B : f32[m,p]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n", n=64, m=64, p=64)
    assert set(by_name(product, 4)) == {"data parallel", "tensor parallel"}
    assert by_name(graph_of("input A : f32[n]\nB[i] = 2 * A[i]\noutput B\n", n=8), 2) == {}
