"""The part of a plan that a process of its own runs: the ops, tasks and values of one site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import take_rows
from einturnip.memgraph.types import COMPUTE, DISK, MemGraph
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.sites.types import Ints, Role, SitePlan
from einturnip.taskgraph.subgraph import subgraph


@dataclass(frozen=True)
class SitePart:
    """A site's plan with a graph of its own.

    ``plan``: its graph has only the ops of the site, and addresses from 0. A transfer is a move in the graphs of both
    sites. ``number``: for each op of this graph, its number in the whole plan, which messages use. ``ranks``: of the
    plan's ops.
    """

    plan: SitePlan
    number: Ints
    ranks: NDArray[np.float64]

    @property
    def graph(self) -> MemGraph:
        """The site's ops."""
        return self.plan.graph

    def moved_nbytes(self, role: Role) -> dict[int, int]:
        """Return the bytes that transfers of a role move, by the site at the other end."""
        mine = self.plan.role == role
        peers, nbytes = self.plan.peer[mine], self.plan.nbytes[mine]
        return {int(peer): int(nbytes[peers == peer].sum()) for peer in np.unique(peers)}

    def spilled_nbytes(self) -> int:
        """Return the bytes that ops write to the spill file."""
        return int(self.graph.write[self.graph.write[:, 0] == DISK, 2].sum())

    def largest_nbytes(self, role: Role) -> int:
        """Return the bytes of the largest value that a transfer of a role moves."""
        return int(self.plan.nbytes[self.plan.role == role].max(initial=0))


def part_of(plan: SitePlan, ranks: Ranks) -> SitePart:
    """Return a site's part. ``ranks``: of the ops of the whole graph."""
    whole = plan.graph
    number = np.unique(plan.op).astype(np.int64)
    graph = _restricted(whole, number, plan.site)
    at = np.searchsorted(number, plan.op).astype(np.int32)
    of_ops = np.asarray(ranks, np.float64)[plan.op]
    unit = np.where(plan.role == Role.LOCAL, graph.unit[at], -1).astype(np.int32)
    return SitePart(replace(plan, graph=graph, op=at, unit=unit), number, of_ops)


def _restricted(graph: MemGraph, ops: Ints, site: int) -> MemGraph:
    """Return the graph of some ops, without dependencies: the site's plan has them."""
    read_ptr, read_rows = take_rows(graph.read_ptr, ops)
    write_ptr, write_rows = take_rows(graph.write_ptr, ops)
    read, write = graph.read[read_rows].copy(), graph.write[write_rows].copy()
    unit = graph.unit[ops]
    task_of = graph.task[ops]
    tasks = np.unique(task_of[task_of >= 0]).astype(np.int64)
    whole = graph.taskgraph
    _, operands = take_rows(whole.read_ptr, tasks)
    used: list[NDArray[Any]] = [
        read[:, 3],
        write[:, 3],
        unit,
        whole.value[tasks],
        whole.read[operands],
        whole.seen[operands],
    ]
    values = np.unique(np.concatenate([column.astype(np.int64) for column in used]))
    versions = values[values >= whole.n_values]
    origins = graph.origin[versions - whole.n_values]
    of_tasks = values[(values >= 0) & (values < whole.n_values)]
    unversioned = np.unique(np.concatenate([of_tasks, origins]).astype(np.int64))
    known = np.concatenate([unversioned, versions])

    def renumbered(column: NDArray[Any]) -> NDArray[Any]:
        found = np.where(column < 0, column, np.searchsorted(known, column))
        return found.astype(column.dtype)

    for table in (read, write):
        table[:, 3] = renumbered(table[:, 3])
        _move_to_site(table, graph, site)
    spilled = np.concatenate([table[table[:, 0] == DISK] for table in (read, write)])
    begin = int(spilled[:, 1].min(initial=graph.spill_nbytes))
    for table in (read, write):
        table[table[:, 0] == DISK, 1] -= begin
    nowhere = np.empty(0, np.uint16), np.empty(0, np.int32)
    one_device = replace(whole, repeats=0, devices=1, device=nowhere[0], original=nowhere[1])
    local = np.concatenate([table[table[:, 0] == COMPUTE] for table in (read, write)])
    return MemGraph(
        subgraph(one_device, tasks, unversioned),
        graph.arenas_nbytes[site],
        int((spilled[:, 1] + spilled[:, 2]).max(initial=begin)) - begin,
        int((local[:, 1] + local[:, 2]).max(initial=0)),
        graph.kind[ops],
        np.where(task_of < 0, -1, np.searchsorted(tasks, task_of)).astype(np.int32),
        renumbered(unit),
        graph.seconds[ops],
        read_ptr,
        read,
        write_ptr,
        write,
        np.zeros(len(ops) + 1, np.int64),
        np.empty(0, np.int32),
        renumbered(origins),
    )


def _move_to_site(table: Ints, graph: MemGraph, site: int) -> None:
    """Let a site's addresses begin at 0. Those of other sites become 0, since nothing here accesses them."""
    near = table[:, 0] == COMPUTE
    of = table[near, 1] // max(1, graph.device_nbytes)
    table[near, 1] = np.where(of == site, table[near, 1] - site * graph.device_nbytes, 0)
