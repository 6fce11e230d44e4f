"""Shows a plan as relations of tiles: keys, join, aggregation and repartition of each node.

A tensor is a relation from keys, the tile's number along each axis, to tiles. Counts are those of the task graph, so
that they include what a mask leaves out, what is recomputed, and what moves between sites. ``relation_json`` describes
each node; text and drawings format its dicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import format_size
from einturnip.eingraph.printer import show_scalar, unique_labels
from einturnip.eingraph.types import ConcatNode, EinsumNode
from einturnip.report.relation_sql import aggregate_name, conditions, statements, tables
from einturnip.taskgraph.types import TaskGraph, TaskKind

Ints = NDArray[np.int64]


def relation_json(tasks: TaskGraph) -> Iterator[dict[str, Any]]:
    """Yield each node of a plan as a relation, in the form of the JSON output.

    ``tiles``: distinct tiles made or loaded. ``rows``: distinct rows of the join; ``calls``: kernels, more where rows
    are recomputed; ``read``: what they read; ``filtered``: rows that a mask removes. ``states``: partial results;
    ``combined``: those added to others. ``repartition``: boxes that readers need in other tiles than the relation's;
    ``exchange``: tiles sent to other sites.
    """
    d, counts = tasks.decomposition, _TaskCounts(tasks)
    sql: list[list[dict[str, Any]]] = [[] for _ in d.graph.nodes]
    for s in statements(d):
        sql[s.node].append({"table": s.table, "reads": list(s.reads), "text": s.text})
    for i, (node, table) in enumerate(zip(d.graph.nodes, tables(d), strict=True)):
        axes = list(zip(table.columns, table.tiling.counts, node.shape, strict=True))
        yield {
            "id": i,
            "name": node.name,
            "table": table.name,
            "kind": "join" if isinstance(node, EinsumNode) else "union" if isinstance(node, ConcatNode) else "input",
            "line": node.line,
            "dtype": node.dtype.name,
            "keys": [{"label": label, "tiles": n, "size": size} for label, n, size in axes],
            "tile": [min(t, n) for t, n in zip(table.tiling.tiles, node.shape, strict=True)],
            **counts.of_node(i),
            "sql": sql[i],
        }


class _TaskCounts:
    """Counts the tasks of a graph by node and kind."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.t, self.d = tasks, tasks.decomposition
        outputs = np.array([node for _, node in self.d.graph.outputs], np.int64)
        node = tasks.node.astype(np.int64)
        stores = tasks.kind == TaskKind.STORE
        node[stores] = outputs[node[stores]]
        self.order = np.argsort(node, kind="stable")
        self.ends = np.searchsorted(node[self.order], np.arange(len(self.d.graph.nodes) + 1))
        copied = tasks.original != np.arange(tasks.n_values) if len(tasks.original) else np.zeros(tasks.n_values, bool)
        self.to_other_site = copied[tasks.value]
        read_nbytes = np.concatenate([[0], np.cumsum(tasks.value_nbytes[tasks.read])])
        self.read_nbytes = read_nbytes[tasks.read_ptr[1:]] - read_nbytes[tasks.read_ptr[:-1]]

    def of_node(self, i: int) -> dict[str, Any]:
        own = self.order[self.ends[i] : self.ends[i + 1]]
        of = {kind: own[self.t.kind[own] == kind] for kind in TaskKind}
        loads, moves = of[TaskKind.LOAD], of[TaskKind.MOVE]
        sent = self.to_other_site[moves]
        found = {"tiles": self._values(loads, distinct=True), "loads": self._values(loads)}
        if isinstance(self.d.graph.nodes[i], EinsumNode):
            found |= self._join(i, of[TaskKind.KERNEL], of[TaskKind.ACCUMULATE], of[TaskKind.COMBINE])
        return found | {
            "repartition": self._values(moves[~sent], distinct=True),
            "exchange": self._values(moves[sent]),
            "stores": self._stored(i, of[TaskKind.STORE]),
        }

    def _join(self, i: int, whole: Ints, partial: Ints, combines: Ints) -> dict[str, Any]:
        """Describe the join and the aggregation of kernels that make tiles (``whole``) or states."""
        node, part = self.d.graph.nodes[i], self.d.partitionings[i]
        assert isinstance(node, EinsumNode)
        kernels, labels = np.concatenate([whole, partial]), unique_labels(node.einsum)
        tiles, rows, filtered = self._rows(i, node, kernels)
        mask = conditions(node.einsum)
        join = {
            "labels": {label: n for label, n in zip(labels, part.counts, strict=True) if n != 1},
            "rows": rows,
            "calls": len(kernels),
            "read": _count(np.diff(self.t.read_ptr)[kernels].sum(), self.read_nbytes[kernels].sum()),
            "filter": mask and " and ".join(show_scalar(c, [], tuple(labels)) for c in mask.conditions),
            "filtered": filtered,
        }
        states = np.unique(self.t.value[partial])
        aggregation = {
            "function": aggregate_name(node.einsum),
            "groups": tiles["count"],
            "states": _count(len(states), self.t.value_nbytes[states].sum()),
            "combined": _count(len(combines), self.read_nbytes[combines].sum()),
        }
        return {"tiles": tiles, "join": join, "aggregation": aggregation if len(states) else None}

    def _rows(self, i: int, node: EinsumNode, kernels: Ints) -> tuple[dict[str, int], int, int]:
        """Return the tiles of the result, the distinct rows of a join, and the rows that a mask removes."""
        part, n_out = self.d.partitionings[i], node.einsum.n_out
        counts = [max(1, n) for n in part.counts]
        begins = self.t.key_ptr[kernels]
        keys = self.t.key[begins[:, None] + np.arange(len(counts))].astype(np.int64)
        strides = np.array([math.prod(counts[p + 1 :]) for p in range(len(counts))], np.int64)
        rows = np.unique(keys @ strides)
        steps = math.prod(counts[n_out:])
        tiles = np.unique(rows // steps)
        nbytes = np.full(len(tiles), node.dtype.itemsize, np.int64)
        for p in range(n_out):
            number = tiles // (int(strides[p]) // steps) % counts[p]
            nbytes *= np.minimum(part.tiles[p], part.bounds[p] - number * part.tiles[p])
        return _count(len(tiles), nbytes.sum()), len(rows), len(tiles) * steps - len(rows)

    def _values(self, tasks: Ints, distinct: bool = False) -> dict[str, int]:
        """Count what tasks make; ``distinct``: copies and second computations of a box once."""
        t, values = self.t, self.t.value[tasks]
        if distinct and len(values):
            boxes = t.box[t.box_ptr[values][:, None] + np.arange(t.box_ptr[values[0] + 1] - t.box_ptr[values[0]])]
            values = values[np.unique(boxes, axis=0, return_index=True)[1]] if boxes.shape[1] else values[:1]
        return _count(len(values), t.value_nbytes[values].sum())

    def _stored(self, i: int, tasks: Ints) -> dict[str, int]:
        """Count stored tiles; a state that is a tile has padding that is not stored."""
        node, values = self.d.graph.nodes[i], self.t.value[tasks]
        ends = self.t.box[self.t.box_ptr[values][:, None] + np.arange(2 * len(node.shape))].astype(np.int64)
        return _count(len(values), (ends[:, 1::2] - ends[:, ::2]).prod(axis=1).sum() * node.dtype.itemsize)


def _count(count: Any, nbytes: Any) -> dict[str, int]:
    return {"count": int(count), "nbytes": int(nbytes)}


def relation_lines(tasks: TaskGraph) -> Iterator[str]:
    """Yield each relation in lines: key -> tile, its SQL, its counts and bytes."""
    for r in relation_json(tasks):
        key = ", ".join(f"{k['label']} < {k['tiles']}" for k in r["keys"])
        tiles = f"{r['dtype']}[{', '.join(map(str, r['tile']))}]: {_tiles(r['tiles'])}"
        yield f"{r['table']}: ({key}) -> {'tiles of its pieces' if r['kind'] == 'union' else tiles}"
        for statement in r["sql"]:
            yield from (f"    {line}" for line in f"{statement['text']};".splitlines())
        yield from (f"  {name:<12} {text}" for name, text in _operations(r))


def _operations(r: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each operation that the plan does for a relation, and what is counted of it."""
    if r["loads"]["count"]:
        yield "scan", _tiles(r["loads"])
    if join := r.get("join"):
        counts = ", ".join(f"{label} {n:,}" for label, n in join["labels"].items())
        again = f", {join['calls'] - join['rows']:,} of them computed again" if join["calls"] > join["rows"] else ""
        rows = _counted(join["rows"], "row")
        yield "join", f"{rows}{f' ({counts})' if counts else ''}{again}, reads {_tiles(join['read'])}"
        if join["filtered"]:
            total = join["rows"] + join["filtered"]
            yield "filter", f"{join['filter']}: {join['filtered']:,} of {total:,} rows left out"
        if found := r["aggregation"]:
            combined, nbytes = found["combined"].values()
            more = f"; {combined:,} combined, {format_size(nbytes)}" if combined else ""
            states = _counted(found["states"]["count"], "state") + more
            yield "aggregation", f"{found['function']}: {rows} to {_counted(found['groups'], 'group')} in {states}"
    if count := r["repartition"]["count"]:
        yield "repartition", f"{_counted(count, 'box', 'boxes')}, {format_size(r['repartition']['nbytes'])}"
    if r["exchange"]["count"]:
        yield "exchange", f"{_tiles(r['exchange'])} to other sites"
    if r["stores"]["count"]:
        yield "store", _tiles(r["stores"])


def _tiles(counted: dict[str, int]) -> str:
    return f"{_counted(counted['count'], 'tile')}, {format_size(counted['nbytes'])}"


def _counted(n: int, noun: str, plural: str = "") -> str:
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the relational plan, for drawings.

    ``line``: of the program. ``inputs``: numbers of the operators that it reads.
    """

    line: int
    word: str
    text: str
    inputs: tuple[int, ...]


def operators(tasks: TaskGraph) -> list[Operator]:
    """Return scans, repartitions, joins, aggregations, unions and stores, operands first."""
    found: list[Operator] = []
    made: dict[str, int] = {}  # the operator that makes a table
    for r in relation_json(tasks):
        words = {"union": ""} if r["kind"] == "union" else {"scan": "nothing is read"} if r["kind"] == "input" else {}
        words |= dict(_operations(r))
        inputs: tuple[int, ...] = ()
        title = f"{r['table']}({', '.join(key['label'] for key in r['keys'])})"
        for statement in r["sql"]:
            inputs = tuple(dict.fromkeys(made[table] for table in statement["reads"]))
            if statement["table"] != r["table"]:
                made[statement["table"]] = len(found)
                found.append(Operator(r["line"], "repartition", f"repartition {statement['table']}", inputs))
        for word in ("scan", "union", "join", "aggregation", "store"):
            if word in words:
                found.append(Operator(r["line"], word, f"{word} {title}\n{words[word]}", inputs))
                inputs = (len(found) - 1,)
                if word != "store":
                    made[r["table"]] = inputs[0]
    return found
