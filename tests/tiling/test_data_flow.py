"""Calls of a decomposition: their work under a mask, and the bytes of inputs that several nodes read."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.compiler import bind
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang import compile_text
from einturnip.tiling.data_flow import data_flow
from einturnip.tiling.device_assignment import DeviceAssignment, assign_calls
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.pieces import read_ranges
from einturnip.tiling.types import Decomposition, Partitioning

GRAPH_NETWORK = (
    "input A : f32[n, n], X : f32[n, d], W : f32[d, f]\n"
    "H[v, f] = sum[u] A[v, u] * X[u, f]\nR[v, f] = max(H[v, f], 0)\nZ[v, f] = sum[u] A[v, u] * R[u, f]\noutput Z\n"
)
MASKED = "input A : f32[s, t]\ny[s] = sum[t] where(t <= s, A[s, t], 0)\noutput y\n"


def graph_of(text: str, **sizes: int) -> EinGraph:
    return rewrite(bind(compile_text(text, "p.ein"), {}, sizes), None)


def first_reads(found: DeviceAssignment, name: str) -> list[int]:
    """Elements of an input that each device reads, by brute force."""
    nodes = found.flow.decomposition.graph.nodes
    number = next(i for i, node in enumerate(nodes) if isinstance(node, InputNode) and node.name == name)
    read = np.zeros((found.devices, *nodes[number].shape), bool)
    for i, calls in found.flow.calls.items():
        for device, reads in zip(found.of[i].tolist(), calls.reads, strict=True):
            for operand, box in reads:
                if operand == number:
                    read[(device, *(slice(lo, hi) for lo, hi in box))] = True
    return [int(part.sum()) for part in read]


@pytest.mark.parametrize(("devices", "times"), [(4, 1.75), (8, 1.5), (16, 1)])
def test_calls_that_read_the_same_part_of_an_input_share_a_device(devices: int, times: float) -> None:
    graph = graph_of(GRAPH_NETWORK, n=256, d=8, f=8)
    found = assign_calls(eindecomp(graph, devices), devices)
    reads = first_reads(found, "A")
    assert max(reads) == min(reads)
    assert sum(reads) == times * 256 * 256


def test_slices_of_an_input_share_nothing() -> None:
    text = (
        "input W : f32[L, d, d], X : f32[n, d]\nfor l in 0 .. L {\n  X[s, e] = tanh(sum[d] X[s, d] * W[l, d, e])\n}\n"
    )
    text += "output X\n"
    flow = data_flow(eindecomp(graph_of(text, L=3, d=8, n=16), 4))
    assert not flow.shared and not any(flow.shared_by_node.values())


@pytest.mark.parametrize("counts", [(1, 4), (4, 1), (2, 2)])
def test_the_work_of_a_call_is_what_its_mask_leaves(counts: tuple[int, int]) -> None:
    graph = graph_of(MASKED, s=1024, t=1024)
    node = len(graph.nodes) - 1
    parts = [Partitioning(n.shape, n.shape) for n in graph.nodes]
    tiles = (1024 // counts[0], 1024 // counts[1])
    parts[node] = Partitioning((1024, 1024), tiles)
    calls = data_flow(Decomposition(graph, tuple(parts), (None,) * len(parts))).calls[node]
    shares = []
    for key in calls.keys:
        s, t = (np.arange(16) * (tile // 16) + k * tile for k, tile in zip(key, tiles, strict=True))
        shares.append(float((t[None, :] <= s[:, None] + tiles[0] // 16 - 1).mean()))
    assert calls.flops / calls.flops[0] == pytest.approx(np.array(shares) / shares[0])
    assert len(calls.keys) == (3 if counts == (2, 2) else 4)  # the part above the diagonal has no call


def test_a_slice_at_the_end_limits_what_is_computed_before_it() -> None:
    """Of four calls of each statement, which divide i, the last one alone is needed."""
    text = "input X : f64[n, m]\nY[i,c] = exp(X[i,c])\nZ[i,c] = sum[a] Y[i,a] * Y[i,c]\ns[c] = Z[n-1,c]\noutput s\n"
    graph = bind(compile_text(text, "p.ein"), {}, {"n": 64, "m": 8})
    ranges = dict(zip([node.name for node in graph.nodes], read_ranges(graph), strict=True))
    assert ranges["Z"] == ranges["Y"] == ranges["X"] == ((63, 64), (0, 8))
    tiles = {"Y": (16, 8), "Z": (16, 8, 8)}
    parts = [
        Partitioning(found.bounds, tiles.get(node.name, found.tiles))
        for node, found in zip(graph.nodes, eindecomp(graph, 4).partitionings, strict=True)
    ]
    flow = data_flow(Decomposition(graph, tuple(parts), eindecomp(graph, 4).blocks))
    for i, node in enumerate(graph.nodes):
        if node.name in tiles:
            assert [bool(reads) for reads in flow.calls[i].reads] == [False, False, False, True]
            assert (flow.calls[i].flops > 0).tolist() == [False, False, False, True]
