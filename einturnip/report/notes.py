"""Explains the treatment of a tensor in a plan: fused, kept, spilled, read again, recomputed."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from einturnip.core.units import counted, format_size
from einturnip.eingraph.types import NO_HINTS, EinsumNode, InputNode, Node
from einturnip.ir.region import Region
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.statements import PlanStatement, hosts, stored_nodes, work_of
from einturnip.report.tensor_work import TensorWork
from einturnip.tiling.types import Partitioning

# A tensor is described as kept if at least this share of its bytes stays in memory.
MIN_KEPT_SHARE = 0.9
# Parts of a statement with less than this share of its time are not mentioned.
MIN_TIME_SHARE = 0.02


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
    """A generated name without its distinguishing number: ``F.sum`` for ``F.sum8``."""
    return re.sub(r"(?<=[^\d.])\d+(?=\.|$)|\.\d+(?=\.)", "", name) if "." in name else name


def facts(planned: PlannedProgram, statement: PlanStatement, work: TensorWork) -> str:
    """The result of a statement: type, bytes, tiles, kernel calls."""
    graph, nodes = planned.graph, stored_nodes(planned.graph, statement)
    node, cut = graph.nodes[nodes[-1]], planned.decomposition.output(nodes[-1])
    parts = [type_text(node), format_size(size(node)), tiles_text(cut)]
    if len(nodes) > 1:
        parts.append(f"computed {len(nodes):,} times")
    if work.calls > math.prod(cut.counts) * len(nodes) or len(nodes) > 1:
        parts.append(counted(work.calls, "kernel call"))
    return ", ".join(parts)


def notes(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """Yield sentences about a statement with its own kernels."""
    yield from _passes(planned, statement)
    yield from _parts(planned, statement, work)
    yield from _hints(planned, statement)
    yield from _memory(planned, statement, work)


def merged_text(planned: PlannedProgram, statement: PlanStatement) -> str:
    """State where a statement without kernels is computed, and why."""
    graph = planned.graph
    users = hosts(graph, statement.line)
    if statement.tensors:
        return f"in one pass with line {statement.within}: {', '.join(statement.tensors)} never stored"
    if len(users) > 1:
        return f"computed again in each of lines {_listed(users)}: that is faster than storing it"
    return f"computed in the kernels of line {statement.within}; never stored"


def _listed(lines: Sequence[int]) -> str:
    return f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}" if len(lines) > 1 else str(lines[0])


def _passes(planned: PlannedProgram, statement: PlanStatement) -> Iterator[str]:
    """Yield notes on regions: values that are streamed without being stored."""
    seen = set()
    for i in statement.nodes:
        node = planned.graph.nodes[i]
        if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Region):
            continue
        region = node.einsum
        along = ", ".join(region.labels[p] for p in (sorted(region.whole) if region.of_rows else region.aggregated))
        unstored_steps = range(len(region.steps) - 1) if region.of_rows else region.tiled
        steps = {unnumbered(node.steps[k][0]): region.steps[k].einsum for k in unstored_steps}
        unstored = {name: math.prod(e.shape) * e.dtype.itemsize for name, e in steps.items()}
        if not unstored or (along, tuple(unstored)) in seen:
            continue
        seen.add((along, tuple(unstored)))
        tensors = ", ".join(f"{name} ({format_size(nbytes)})" for name, nbytes in unstored.items())
        yield f"fused: one pass over {along}, so that {tensors} never leave{'s' * (len(unstored) == 1)} the kernel"


def _parts(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """Yield the tensors that take the time of a line with several."""
    seconds: dict[str, float] = {}
    for i in statement.nodes:
        name = unnumbered(planned.graph.nodes[i].name)
        seconds[name] = seconds.get(name, 0.0) + sum(work[i].seconds.values())
    all_seconds = sum(seconds.values())
    if len(seconds) > 1 and all_seconds > 0:
        parts = sorted(((s / all_seconds, name) for name, s in seconds.items()), reverse=True)[:4]
        yield "its time: " + ", ".join(f"{name} {share:.0%}" for share, name in parts if share >= MIN_TIME_SHARE)


def _hints(planned: PlannedProgram, statement: PlanStatement) -> Iterator[str]:
    """Yield the program's hints."""
    for i in statement.nodes:
        node = planned.graph.nodes[i]
        if isinstance(node, EinsumNode) and node.hints != NO_HINTS:
            h, labels = node.hints, node.einsum.labels
            hints = [f"tile {', '.join(f'{labels[p]} = {extent}' for p, extent in h.tiles)}"] if h.tiles else []
            hints += [word for word, wanted in (("keep", h.keep), ("recompute", h.recompute)) if wanted]
            hints += [f"on {h.device}"] if h.device else []
            yield f"requested: {'; '.join(hints)}"
            return


def _memory(planned: PlannedProgram, statement: PlanStatement, work: Sequence[TensorWork]) -> Iterator[str]:
    """Yield notes on the tensor's bytes between its production and its last use."""
    graph = planned.graph
    nodes, statement_work = stored_nodes(graph, statement), work_of(statement, work)
    outputs = [name for name, number in graph.outputs if number in nodes]
    nbytes = max(size(graph.nodes[i]) for i in nodes)
    reloaded = statement_work.nbytes.get(OpKind.RELOAD, 0)
    if statement_work.ops.get(OpKind.OFFLOAD):
        yield _spilled(planned, statement_work, nbytes)
    elif not outputs and max(math.prod(planned.decomposition.output(i).counts) for i in nodes) > 1:
        peak_nbytes = max(work[i].peak_nbytes for i in nodes)
        if peak_nbytes >= MIN_KEPT_SHARE * nbytes:
            yield "kept: it fits in memory until its last use"
        else:
            at_once = f"at most {format_size(peak_nbytes)} of it in memory"
            yield f"streamed: {at_once}, since each tile is used soon after it is computed"
    recomputed = _recomputed_nbytes(planned, nodes)
    if recomputed:
        yield f"computed again: {format_size(recomputed)} of it, which is faster than spilling and reloading it"
    for name in outputs:
        target = planned.targets.get(name)
        target_text = f"output {name}: stored to {target}" if target and target != name else f"output {name}"
        reread = reloaded and not statement_work.ops.get(OpKind.OFFLOAD)
        yield target_text + (f", {format_size(reloaded)} of it read again from there" if reread else "")


def _recomputed_nbytes(planned: PlannedProgram, nodes: Collection[int]) -> int:
    """Bytes of these nodes' values that are recomputed."""
    tasks = planned.taskgraph
    reloaded = slice(tasks.n_values - tasks.repeats, tasks.n_values)
    of_nodes = np.isin(tasks.value_node[reloaded], list(nodes))
    return int(tasks.value_nbytes[reloaded][of_nodes].sum())


def _spilled(planned: PlannedProgram, work: TensorWork, nbytes: int) -> str:
    out, reloaded = work.nbytes.get(OpKind.OFFLOAD, 0), work.nbytes.get(OpKind.RELOAD, 0)
    arena = planned.memgraph.capacity
    fits = f"at most {format_size(work.peak_nbytes)} of it fits in the {format_size(arena)} for tiles"
    if nbytes <= arena:
        fits = f"it would fit alone, but not together with the tensors that are used with it; {fits}"
    graph = planned.memgraph
    place = "host memory" if graph.host_nbytes and not graph.spill_nbytes else "disk"
    if graph.host_nbytes and graph.spill_nbytes:
        place = "host memory and disk"
    return f"spilled: {format_size(out)} to {place} and {format_size(reloaded)} back, since {fits}"


def input_text(planned: PlannedProgram, i: int, work: TensorWork) -> str:
    """Describe an input: its tiles, and how often it is read."""
    node = planned.graph.nodes[i]
    assert isinstance(node, InputNode)
    nbytes, read = size(node), work.moved(Lane.IN)
    parts = [format_size(nbytes), tiles_text(planned.decomposition.output(i))]
    times = read / nbytes if nbytes else 1.0
    if times > 1.005:
        in_memory = f"at most {format_size(work.peak_nbytes)} of it stays in memory"
        parts.append(f"read {times:.3g} times over ({format_size(read)}): {in_memory}")
    elif times < 0.995:
        parts.append(f"only {format_size(read)} of it read")
    else:
        parts.append("read once")
    return ", ".join(parts)
