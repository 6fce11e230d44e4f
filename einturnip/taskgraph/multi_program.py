"""Joins the task graphs of several programs: one program computes while another waits for bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import gather_rows
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.types import Decomposition

Ints = NDArray[np.int64]


def join(graphs: Sequence[TaskGraph], names: Sequence[str], alternating: bool) -> TaskGraph:
    """Return one graph of all tasks; inputs, outputs and tensors are named ``program.X``.

    ``alternating``: the next task is that of the program that has done the smallest share of its work. Otherwise the
    programs run one after the other.
    """
    decompositions = [g.decomposition for g in graphs]
    first_node = _starts([len(d.graph.nodes) for d in decompositions])
    first_output = _starts([len(d.graph.outputs) for d in decompositions])
    first_value = _starts([g.n_values for g in graphs])
    node = [
        np.where(g.kind == TaskKind.STORE, g.node + o, g.node + n)
        for g, n, o in zip(graphs, first_node, first_output, strict=True)
    ]
    done = np.concatenate([_done(g) if alternating else np.full(len(g), float(p)) for p, g in enumerate(graphs)])
    order = np.argsort(done, kind="stable")

    def column(name: str, first: Sequence[int] | None = None) -> NDArray[Any]:
        return _frozen(np.concatenate(_moved(graphs, name, first))[order])

    key_ptr, keys = _rows([g.key_ptr for g in graphs], order)
    read_ptr, reads = _rows([g.read_ptr for g in graphs], order)
    box_ptr, _ = _rows([g.box_ptr for g in graphs], np.arange(sum(g.n_values for g in graphs)))
    return TaskGraph(
        _decompositions(decompositions, names),
        column("kind"),
        _frozen(np.concatenate(node).astype(np.int32)[order]),
        column("value", first_value),
        column("workspace"),
        column("seconds"),
        column("flops"),
        key_ptr,
        _frozen(np.concatenate([g.key for g in graphs])[keys]),
        read_ptr,
        _frozen(np.concatenate(_moved(graphs, "read", first_value))[reads]),
        _frozen(np.concatenate(_moved(graphs, "seen", first_value))[reads]),
        _frozen(np.concatenate([g.value_kind for g in graphs])),
        _frozen(np.concatenate(_moved(graphs, "value_node", first_node))),
        _frozen(np.concatenate([g.value_nbytes for g in graphs])),
        box_ptr,
        _frozen(np.concatenate([g.box for g in graphs])),
        all(g.ordered for g in graphs),
        counts_nbytes=sum(g.counts_nbytes for g in graphs),
    )


def first_lines(graphs: Sequence[EinGraph]) -> list[int]:
    """Return the offset of each program's lines in the joint source."""
    return _starts([len(g.source) for g in graphs])


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts)][:-1]


def _done(graph: TaskGraph) -> NDArray[np.float64]:
    """Return the share of the work that is done after each task."""
    total = np.cumsum(graph.seconds)
    found: NDArray[np.float64] = total / total[-1] if len(total) and total[-1] > 0 else np.zeros(len(graph))
    return found


def _moved(graphs: Sequence[TaskGraph], name: str, first: Sequence[int] | None) -> list[NDArray[Any]]:
    """Return a column of each graph with its numbers shifted by ``first``."""
    columns = [getattr(g, name) for g in graphs]
    if first is None:
        return columns
    return [(c + n).astype(c.dtype) for c, n in zip(columns, first, strict=True)]


def _rows(ptrs: Sequence[Ints], order: NDArray[np.intp]) -> tuple[Ints, Ints]:
    """Return the row pointers of joined CSR columns in a new order, and the indices of their entries."""
    lengths = np.concatenate([np.diff(ptr) for ptr in ptrs])
    starts = np.cumsum(lengths) - lengths
    ptr, entries = gather_rows(starts[order], lengths[order])
    return _frozen(ptr), entries


def _frozen(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column


def _decompositions(parts: Sequence[Decomposition], names: Sequence[str]) -> Decomposition:
    return Decomposition(
        join_graphs([d.graph for d in parts], names),
        tuple(chain.from_iterable(d.partitionings for d in parts)),
        tuple(chain.from_iterable(d.blocks for d in parts)),
        tuple(f"{name}: {note}" for d, name in zip(parts, names, strict=True) for note in d.notes),
    )


def join_graphs(graphs: Sequence[EinGraph], names: Sequence[str]) -> EinGraph:
    """Join programs that share nothing."""
    first, lines = _starts([len(g.nodes) for g in graphs]), first_lines(graphs)
    placed = list(zip(graphs, names, first, lines, strict=True))
    return EinGraph(
        nodes=tuple(_node(n, name, at, line) for g, name, at, line in placed for n in g.nodes),
        outputs=tuple((f"{name}.{output}", i + at) for g, name, at, _ in placed for output, i in g.outputs),
        program=" and ".join(g.program for g in graphs),
        source=tuple(chain.from_iterable(g.source for g in graphs)),
        merged=tuple((a + line, b + line) for g, _, _, line in placed for a, b in g.merged),
        parts=tuple((line, g.program) for g, _, _, line in placed),
    )


def _node(node: Node, name: str, first: int, line: int) -> Node:
    match node:
        case InputNode():
            return replace(node, name=f"{name}.{node.name}", line=node.line + line)
        case EinsumNode():
            operands, steps = tuple(o + first for o in node.operands), tuple((s, n + line) for s, n in node.steps)
            return replace(node, name=f"{name}.{node.name}", operands=operands, line=node.line + line, steps=steps)
        case ConcatNode():
            pieces = tuple(replace(p, operand=p.operand + first) for p in node.pieces)
            return replace(node, name=f"{name}.{node.name}", pieces=pieces, line=node.line + line)
