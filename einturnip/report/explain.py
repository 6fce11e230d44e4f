"""A plan in words: what it computes, how it is cut, what it should take."""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np

from einturnip.core.region import Region
from einturnip.core.settings import format_size
from einturnip.eingraph.types import NO_HINTS, ConcatNode, EinsumNode, InputNode
from einturnip.memgraph.types import OpKind
from einturnip.pipeline import Planned
from einturnip.report.summary import links_text, seconds_text

Cells = tuple[str, str, str, str, str]


def explain(planned: Planned) -> str:
    """The plan as a table of its tensors, then its budget and what it should take."""
    rows: list[Cells] = [("tensor", "type and shape", "cut into", "tile", "line")]
    # The steps of a loop make tensors alike: one row says it for all.
    alike: dict[Cells, list[str]] = {}
    for row in (_row(planned, i) for i in range(len(planned.graph.nodes))):
        numbered = "." in row[0]  # a name of ours: f.max, f.max2, f.max3
        alike.setdefault((row[0].rstrip("0123456789") if numbered else row[0], *row[1:]), []).append(row[0])
    rows += [(f"{n[0]} ({len(n):,} times)" if len(n) > 1 else n[0], *row[1:]) for row, n in alike.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*table, "", *_totals(planned), *_hints(planned)])


def _row(planned: Planned, i: int) -> Cells:
    node, cut = planned.graph.nodes[i], planned.decomposition.partitionings[i]
    shape = f"[{', '.join(map(str, node.shape))}]" if node.shape else ""
    outputs = [name for name, number in planned.graph.outputs if number == i]
    match node:
        case InputNode():
            name, word = f"input {node.name}", "tile"
        case EinsumNode(einsum=einsum):
            name = f"{'output ' if outputs else ''}{node.name}"
            word = "kernel"
            if isinstance(einsum, Region):
                word = f"kernel of {len(einsum.steps)} steps in one"
            elif einsum.aggregation:
                word = f"{einsum.aggregation.op} kernel"
        case ConcatNode(pieces=pieces):
            name, word = f"{'output ' if outputs else ''}{node.name}", f"tile of {len(pieces):,} pieces"
        case _:
            assert_never(node)
    tiles = " x ".join(str(min(t, b)) for t, b in zip(cut.tiles, cut.bounds, strict=True))
    count = math.prod(cut.counts)
    many = word if count == 1 else word.replace("kernel", "kernels").replace("tile", "tiles")
    return name, f"{node.dtype}{shape}", f"{count:,} {many}", tiles, str(node.line)


def _totals(planned: Planned) -> list[str]:
    memory, arena, predicted = planned.budget.memory, planned.budget.arena, planned.prediction
    counts = np.bincount(planned.memgraph.kind, minlength=len(OpKind)).tolist()
    ops = ", ".join(f"{counts[kind]:,} {kind.name.lower()}" for kind in OpKind if counts[kind])
    budget = f"{format_size(arena)} for tiles, {format_size(planned.memgraph.peak_nbytes)} of them used"
    rate = predicted.flops / predicted.seconds / 1e9 if predicted.seconds > 0 else 0.0
    return [
        f"memory   {budget}" if memory is None else f"memory   {format_size(memory)} in all; {budget}",
        f"spill    {format_size(planned.memgraph.spill_nbytes)} on disk",
        f"moves    {links_text(predicted.link_bytes, predicted.link_bytes_lower_bound)}",
        f"steps    {ops}",
        f"time     about {seconds_text(predicted.seconds)} on {planned.machine.workers} workers ({rate:.1f} GFLOP/s)",
    ]


def _hints(planned: Planned) -> list[str]:
    """What the program asks of its plan, and what of that the plan does not do."""
    lines = []
    for node in planned.graph.nodes:
        if isinstance(node, EinsumNode) and node.hints != NO_HINTS:
            h, labels = node.hints, node.einsum.labels
            asked = [f"tile {', '.join(f'{labels[p]} = {extent}' for p, extent in h.tiles)}"] if h.tiles else []
            asked += [word for word, wanted in (("keep", h.keep), ("recompute", h.recompute)) if wanted]
            asked += [f"on {h.device}"] if h.device else []
            lines.append(f"hint     line {node.line}: {node.name}: {'; '.join(asked)}")
    return lines + [f"warning  {note}" for note in planned.decomposition.notes]
