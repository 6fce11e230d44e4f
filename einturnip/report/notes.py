"""Why a plan treats a tensor as it does: what is fused, kept, spilled, read again, computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from einturnip.core.units import format_size
from einturnip.eingraph.types import NO_HINTS, EinsumNode, InputNode, Node
from einturnip.ir.region import Region
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planned_program import PlannedProgram
from einturnip.report.statements import PlanStatement, hosts, stored, work_of
from einturnip.report.tensor_work import TensorWork
from einturnip.tiling.types import Partitioning

# Of a tensor that is held whole for all but this share of its bytes, we say that it is kept.
WHOLE = 0.9
# Parts of a statement that take less of its time than this are not told.
PART = 0.02


def size(node: Node) -> int:
    """Bytes of a node's tensor."""
    return math.prod(node.shape) * node.dtype.itemsize


def type_text(node: Node) -> str:
    """``f32[20000, 64]``."""
    return f"{node.dtype}[{', '.join(map(str, node.shape))}]" if node.shape else str(node.dtype)


def tiles_text(cut: Partitioning) -> str:
    """``256 tiles of 1264 x 1264``."""
    count = math.prod(cut.counts)
    if count == 1:
        return "one tile"
    return f"{count:,} tiles of {' x '.join(str(min(t, b)) for t, b in zip(cut.tiles, cut.bounds, strict=True))}"


def unnumbered(name: str) -> str:
    """A name without the numbers that tell alike ones apart, if it is ours: ``F.sum`` for ``F.sum8``."""
    return re.sub(r"(?<=[^\d.])\d+(?=\.|$)|\.\d+(?=\.)", "", name) if "." in name else name


def facts(planned: PlannedProgram, statement: PlanStatement, work: TensorWork) -> str:
    """What a statement makes: type, bytes, tiles, kernel calls."""
    graph, made = planned.graph, stored(planned.graph, statement)
    node, cut = graph.nodes[made[-1]], planned.decomposition.output(made[-1])
    parts = [type_text(node), format_size(size(node)), tiles_text(cut)]
    if len(made) > 1:
        parts.append(f"made {len(made):,} times")
    if work.calls > math.prod(cut.counts) * len(made) or len(made) > 1:
        parts.append(f"{work.calls:,} kernel call{'s' if work.calls != 1 else ''}")
    return ", ".join(parts)


def notes(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """Sentences on a statement with kernels of its own."""
    yield from _passes(planned, statement)
    yield from _parts(planned, statement, work)
    yield from _hints(planned, statement)
    yield from _memory(planned, statement, work)


def elsewhere(planned: PlannedProgram, statement: PlanStatement) -> str:
    """Where a statement without kernels is computed, and why."""
    graph = planned.graph
    users = hosts(graph, statement.line)
    if statement.tensors:
        return f"in one pass with line {statement.within}: {', '.join(statement.tensors)} never stored"
    if len(users) > 1:
        return f"computed again in each of lines {_listed(users)}: that takes less than to store it"
    return f"computed in the kernels of line {statement.within}; never stored"


def _listed(lines: Sequence[int]) -> str:
    return f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}" if len(lines) > 1 else str(lines[0])


def _passes(planned: PlannedProgram, statement: PlanStatement) -> Iterator[str]:
    """Regions: what streams past without being stored."""
    told = set()
    for i in statement.nodes:
        node = planned.graph.nodes[i]
        if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Region):
            continue
        region = node.einsum
        along = ", ".join(region.labels[p] for p in (sorted(region.whole) if region.of_rows else region.aggregated))
        spares = range(len(region.steps) - 1) if region.of_rows else region.tiled
        tiled = {unnumbered(node.steps[k][0]): region.steps[k].einsum for k in spares}
        spared = {name: math.prod(e.shape) * e.dtype.itemsize for name, e in tiled.items()}
        if not spared or (along, tuple(spared)) in told:
            continue
        told.add((along, tuple(spared)))
        tensors = ", ".join(f"{name} ({format_size(nbytes)})" for name, nbytes in spared.items())
        yield f"fused: one pass over {along}, so that {tensors} never leave{'s' * (len(spared) == 1)} the kernel"


def _parts(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """Which of several tensors on a line take its time."""
    taken: dict[str, float] = {}
    for i in statement.nodes:
        name = unnumbered(planned.graph.nodes[i].name)
        taken[name] = taken.get(name, 0.0) + sum(work[i].seconds.values())
    whole = sum(taken.values())
    if len(taken) > 1 and whole > 0:
        parts = sorted(((s / whole, name) for name, s in taken.items()), reverse=True)[:4]
        yield "its time: " + ", ".join(f"{name} {share:.0%}" for share, name in parts if share >= PART)


def _hints(planned: PlannedProgram, statement: PlanStatement) -> Iterator[str]:
    """What the program asks for."""
    for i in statement.nodes:
        node = planned.graph.nodes[i]
        if isinstance(node, EinsumNode) and node.hints != NO_HINTS:
            h, labels = node.hints, node.einsum.labels
            asked = [f"tile {', '.join(f'{labels[p]} = {extent}' for p, extent in h.tiles)}"] if h.tiles else []
            asked += [word for word, wanted in (("keep", h.keep), ("recompute", h.recompute)) if wanted]
            asked += [f"on {h.device}"] if h.device else []
            yield f"asked for: {'; '.join(asked)}"
            return


def _memory(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """What becomes of the tensor's bytes between its making and its last use."""
    graph = planned.graph
    made, all_of_it = stored(graph, statement), work_of(statement, work)
    outputs = [name for name, number in graph.outputs if number in made]
    nbytes = max(size(graph.nodes[i]) for i in made)
    again = all_of_it.nbytes.get(OpKind.RELOAD, 0)
    if all_of_it.ops.get(OpKind.OFFLOAD):
        yield _spilled(planned, all_of_it, nbytes)
    elif not outputs and max(math.prod(planned.decomposition.output(i).counts) for i in made) > 1:
        held = max(work[i].held_nbytes for i in made)
        if held >= WHOLE * nbytes:
            yield "kept: it fits in memory until its last use"
        else:
            yield f"passes by: at most {format_size(held)} of it in memory, for each tile is used soon after it is made"
    repeated = _repeated(planned, made)
    if repeated:
        yield f"computed again: {format_size(repeated)} of it, which takes less than to spill and fetch it"
    for name in outputs:
        target = planned.targets.get(name)
        where = f"output {name}: stored to {target}" if target and target != name else f"output {name}"
        reread = again and not all_of_it.ops.get(OpKind.OFFLOAD)
        yield where + (f", {format_size(again)} of it read again from there" if reread else "")


def _repeated(planned: PlannedProgram, made: Collection[int]) -> int:
    """Bytes of these nodes' values that are made again."""
    tasks = planned.taskgraph
    again = slice(tasks.n_values - tasks.repeats, tasks.n_values)
    mine = np.isin(tasks.value_node[again], list(made))
    return int(tasks.value_nbytes[again][mine].sum())


def _spilled(planned: PlannedProgram, work: TensorWork, nbytes: int) -> str:
    out, back = work.nbytes.get(OpKind.OFFLOAD, 0), work.nbytes.get(OpKind.RELOAD, 0)
    arena = planned.memgraph.capacity
    fits = f"at most {format_size(work.held_nbytes)} of it find room in the {format_size(arena)} for tiles"
    if nbytes <= arena:
        fits = f"it would fit alone, but not beside what is used with it; {fits}"
    return f"spilled: {format_size(out)} to disk and {format_size(back)} back, for {fits}"


def input_text(planned: PlannedProgram, i: int, work: TensorWork) -> str:
    """What becomes of an input: tiles, and how often it is read."""
    node = planned.graph.nodes[i]
    assert isinstance(node, InputNode)
    nbytes, read = size(node), work.moved(Lane.IN)
    parts = [format_size(nbytes), tiles_text(planned.decomposition.output(i))]
    times = read / nbytes if nbytes else 1.0
    if times > 1.005:
        room = f"at most {format_size(work.held_nbytes)} of it stay in memory"
        parts.append(f"read {times:.3g} times over ({format_size(read)}): {room}")
    elif times < 0.995:
        parts.append(f"only {format_size(read)} of it read")
    else:
        parts.append("read once")
    return ", ".join(parts)
