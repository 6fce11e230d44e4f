"""Equal layers are found, and their segments compute what the graph computes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from einturnip.compiler import bind
from einturnip.eingraph.check import check
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.lang import compile_text
from einturnip.tiling.graph_segments import segments
from tests.reference.eingraph import evaluate

LOOP = """input X0 : f64[s, d], M : f64[d], W : f64[L, d, f], V : f64[L, f, d]
X[s,d] = exp(X0[s,d])
G[d] = M[d] + 1
for l in 0 .. L {
  H[s,f] = relu(sum[d] X[s,d] * W[l,d,f])
  X[s,d] = X[s,d] + G[d] * sum[f] H[s,f] * V[l,f,d]
}
Y[d] = sum[s] X[s,d] * G[d]
output Y
"""
WRITTEN = (
    "".join(f"input W{n} : f64[d, f], V{n} : f64[f, d]\n" for n in range(5))
    + "input X0 : f64[s, d], M : f64[d]\nX[s,d] = exp(X0[s,d])\nG[d] = M[d] + 1\n"
    + "".join(
        f"H{n}[s,f] = relu(sum[d] X[s,d] * W{n}[d,f])\nX[s,d] = X[s,d] + G[d] * sum[f] H{n}[s,f] * V{n}[f,d]\n"
        for n in range(5)
    )
    + "Y[d] = sum[s] X[s,d] * G[d]\noutput Y\n"
)
DIMS = dict(s=6, d=4, f=8)


def graph_of(text: str, **dims: int) -> EinGraph:
    return bind(compile_text(text, "p.ein"), {}, DIMS | dims)


def equal_weights(graph: EinGraph) -> dict[str, NDArray[np.float64]]:
    """Return inputs of a graph; the weights of all layers are equal."""
    rng, found, known = np.random.default_rng(3), {}, dict[str, NDArray[np.float64]]()
    for node in graph.nodes:
        assert isinstance(node, EinsumNode | InputNode)
        if isinstance(node, InputNode):
            key = node.name.rstrip("01234")
            shape = node.shape[-2:] if key in "WV" else node.shape
            found[node.name] = np.broadcast_to(known.setdefault(key, rng.standard_normal(shape) / 4), node.shape)
    return found


@pytest.mark.parametrize("graph", [graph_of(LOOP, L=5), graph_of(WRITTEN)], ids=["loop", "written"])
def test_segments_compute_what_the_graph_computes(graph: EinGraph) -> None:
    inputs = equal_weights(graph)
    parts = segments(graph)
    assert len(parts) == 3 and parts[1].times >= 4
    assert len(parts[1].graph.nodes) < len(graph.nodes) / 2
    held: dict[str, NDArray[np.float64]] = {}
    for part in parts:
        check(part.graph)
        names = {node.name for node in part.graph.nodes if isinstance(node, InputNode)}
        assert part.values <= names and not part.values & set(inputs)
        for _ in range(part.times):
            found = evaluate(part.graph, {name: (held if name in part.values else inputs)[name] for name in names})
            held |= found
    np.testing.assert_allclose(held["Y"], evaluate(graph, inputs)["Y"], rtol=1e-12)


def test_a_layer_read_in_part_is_not_one_of_the_equal_ones() -> None:
    """The last layer is read in part, and all of it reads all of the layer before."""
    text = LOOP.replace("Y[d] = sum[s] X[s,d] * G[d]", "Y[d] = X[s-1,d] * G[d]")
    mixed = text.replace("relu(sum[d] X[s,d]", "relu(sum[d,t] X[t,d]")
    graph = graph_of(mixed, L=5)
    parts, held = segments(graph), dict(equal_weights(graph))
    assert len(parts) == 3 and "H" in {node.name for node in parts[2].graph.nodes}
    for part in parts:
        for _ in range(part.times):
            names = {node.name for node in part.graph.nodes if isinstance(node, InputNode)}
            held |= evaluate(part.graph, {name: held[name] for name in names})
    np.testing.assert_allclose(held["Y"], evaluate(graph, equal_weights(graph))["Y"], rtol=1e-12)
    assert len(segments(graph_of(text, L=5))) == 1  # here one position is enough in all layers


def test_layers_with_numbers_of_their_own_are_not_equal() -> None:
    assert len(segments(graph_of(LOOP.replace("relu(sum[d]", "(l + 1) * relu(sum[d]"), L=5))) == 1


@pytest.mark.parametrize(("old", "new"), [("output Y", "output Y, X"), ("V[l,f,d]", "V[0,f,d]")])
def test_an_output_of_the_last_layer_and_a_shared_weight_leave_layers_equal(old: str, new: str) -> None:
    assert len(segments(graph_of(LOOP.replace(old, new), L=6))) == 3


def test_layers_that_read_inputs_in_different_places_are_not_equal() -> None:
    """One of the layers reads a weight twice, the others read two."""
    parts = segments(graph_of(WRITTEN.replace("V2[f,d]", "W2[f,d]").replace(", V2 : f64[f, d]", ""), d=8))
    assert [part.times for part in parts] == [1]
