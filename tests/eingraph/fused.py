"""Programs with regions and without: what they compute, whole and in tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from einturnip.eingraph.build.program import build
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.check import check
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.printer import show
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.operators import Array
from einturnip.ir.region import Region
from einturnip.lang import compile_text
from tests.reference.eingraph import evaluate
from tests.reference.region import combine_spaces, evaluate_space, finalize_space, identity_space

Shapes = Mapping[str, tuple[int, ...]]


def graphs(text: str, shapes: Shapes, min_nbytes: int = 0) -> tuple[EinGraph, EinGraph]:
    """A program rewritten, too small to be fused, and fused all the same."""
    before = rewrite(build(compile_text(text, "p.ein"), shapes))
    after = fuse(before, EinsumInterner(), None, min_nbytes)
    check(after)
    return before, after


def regions(graph: EinGraph) -> list[EinsumNode]:
    return [n for n in graph.nodes if isinstance(n, EinsumNode) and isinstance(n.einsum, Region)]


def drawn_inputs(graph: EinGraph, seed: int) -> dict[str, Array]:
    """Small integers; of them exact sums are made, and exponentials that differ."""
    rng = np.random.default_rng(seed)
    nodes = [n for n in graph.nodes if isinstance(n, InputNode)]
    return {n.name: rng.integers(0 if n.dtype.kind != "f" else -3, 4, n.shape).astype(n.dtype.numpy) for n in nodes}


def in_tiles(region: Region, operands: Sequence[Array], cuts: Mapping[int, Sequence[int]], seed: int) -> Array:
    """The region's result of states of boxes, cut along streamed labels and combined in any order."""
    boxes: list[list[tuple[int, int]]] = [[]]
    for p, n in enumerate(region.bounds):
        ends = sorted({0, n, *(c for c in cuts.get(p, ()) if c < n)})
        boxes = [[*box, edge] for box in boxes for edge in pairwise(ends)]
    states = [identity_space(region, region.shape)]
    for box in boxes:
        parts = [x[tuple(slice(*e) for e in region.operand_box(s, box))] for s, x in enumerate(operands)]
        states.append(evaluate_space(region, parts, [a for a, _ in box], [b - a for a, b in box], "state"))
    rng = np.random.default_rng(seed)
    while len(states) > 1:
        i, j = rng.choice(len(states), 2, replace=False)
        both = combine_spaces(region, states[i], states[j])
        states = [state for k, state in enumerate(states) if k not in (i, j)] + [both]
    return finalize_space(region, states[0])


def agree(
    before: EinGraph, after: EinGraph, inputs: Mapping[str, Array], cuts: Sequence[int], seed: int, close: float = 1e-5
) -> None:
    """The graph with regions computes the same: whole, and each region in tiles."""
    expected, found = evaluate(before, inputs), evaluate(after, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=close, atol=close, err_msg=name)
        assert found[name].dtype == value.dtype
    values: dict[int, Array] = {}
    for i, node in enumerate(after.nodes):
        if isinstance(node, InputNode):
            values[i] = inputs[node.name]
            continue
        assert isinstance(node, EinsumNode)
        operands = [values[o] for o in node.operands]
        (values[i],) = evaluate_space(node.einsum, operands)
        if isinstance(node.einsum, Region):
            tiles = {p: cuts for p in set(node.einsum.aggregated) - node.einsum.whole}
            tiled = in_tiles(node.einsum, operands, tiles, seed)
            np.testing.assert_allclose(tiled, values[i], rtol=close, atol=close, err_msg=show(after))


SCORES = "input Q: f32[s, d]\ninput K: f32[t, d]\nS[s,t] = sum[d] Q[s,d] * K[t,d]\n"
VALUES = "input V: f32[t, e]\n"
SIZES = {"Q": (5, 3), "K": (7, 3), "V": (7, 2), "M": (5, 7), "B": (5, 7), "X": (6, 8), "Y": (5, 8), "y": (5,)}


def shapes_of(text: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in SIZES.items() if f"input {name}:" in text}
