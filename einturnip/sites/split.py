"""Splits a memory graph for several devices into a plan for each site, as ``types`` defines it."""

from __future__ import annotations

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.memgraph.columns import after_columns
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.sites.types import Ints, Role, SitePlan

END_ROLES = (Role.LOCAL, Role.SEND, Role.NOTICE)
"""Roles by end: 0 is an op itself, or the RECEIVE of a move between sites; 1 its SEND, 2 its NOTICE."""


def split(graph: MemGraph) -> tuple[SitePlan, ...]:
    """Return the plan of each site.

    A move from site a to site b becomes a SEND on a, and a NOTICE and a RECEIVE on b:

    - The SEND has the dependencies of the move on ops of a; the RECEIVE has those on ops of b.
    - The RECEIVE also waits for the NOTICE, so that it takes no place in the receive window (see ``types``) before the
      value can be fetched.
    - Ops of a that wait for the move wait for the SEND, and ops of b for the RECEIVE.

    A SEND ends only after its RECEIVE, which ``SiteRun.fetched`` acknowledges. So every order in which the sites run
    ops respects the dependencies of the graph, and the bytes of the value on a are reused only after b has a copy.

    Raises:
        InternalError: an op waits for an op of another site, and neither is a move between the two.
    """
    n, site, source = len(graph), graph.op_devices().astype(np.int64), graph.source_devices().astype(np.int64)
    between = source != site
    waiting, waited = _dependencies(graph, site, source)
    # Nodes are 3 * op + end, where ``end`` is an index of END_ROLES.
    moves = np.flatnonzero(between)
    nodes = np.sort(np.concatenate([3 * np.arange(n), 3 * moves + 1, 3 * moves + 2]))
    waiting, waited = np.concatenate([waiting, 3 * moves]), np.concatenate([waited, 3 * moves + 2])
    op, end = np.divmod(nodes, 3)
    at = np.where(end == 1, source[op], site[op])
    role = np.array(END_ROLES, np.uint8)[end]
    role[(end == 0) & between[op]] = Role.RECEIVE
    peer = np.where(between[op], np.where(end == 1, site[op], source[op]), -1)
    local = np.empty(3 * n, np.int64)  # position of each node among those of its site
    by_site = _positions(at, graph.devices)
    for mine in by_site:
        local[nodes[mine]] = np.arange(len(mine))
    edge_site = np.where(waiting % 3 == 1, source[waiting // 3], site[waiting // 3])
    plans = []
    for k, (mine, edges) in enumerate(zip(by_site, _positions(edge_site, graph.devices), strict=True)):
        of, is_local = op[mine].astype(np.int32), role[mine] == Role.LOCAL
        plans.append(
            SitePlan(
                graph,
                k,
                role[mine],
                of,
                peer[mine].astype(np.int32),
                np.where(is_local, graph.kind[of], OpKind.MOVE).astype(np.uint8),
                np.where(is_local, graph.unit[of], -1).astype(np.int32),
                graph.seconds[of],
                *after_columns(local[waiting[edges]], local[waited[edges]], len(mine)),
            )
        )
    return tuple(plans)


def _positions(site: Ints, sites: int) -> list[Ints]:
    """Return the positions at which each site occurs, in ascending order."""
    order = np.argsort(site, kind="stable")
    return np.split(order, np.searchsorted(site[order], np.arange(1, sites)))


def _dependencies(graph: MemGraph, site: Ints, source: Ints) -> tuple[Ints, Ints]:
    """Return the dependencies between nodes of one site: those that wait, and those that they wait for."""
    ops = np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr))
    after = graph.after.astype(np.int64)
    kept, between = np.zeros(len(ops), bool), source != site
    waiting, waited = [], []
    # An op of a pair may have two ends. The dependency holds between each two ends that are on one site.
    for mine, my_end in ((site, 0), (source, 1)):
        for theirs, their_end in ((site, 0), (source, 1)):
            found = mine[ops] == theirs[after]
            found &= between[ops] if my_end else True
            found &= between[after] if their_end else True
            kept |= found
            waiting.append(3 * ops[found] + my_end)
            waited.append(3 * after[found] + their_end)
    if not kept.all():
        x = int(np.argmin(kept))
        raise InternalError(f"op {ops[x]} waits for op {after[x]} of another site, and neither moves a value to it")
    return np.concatenate(waiting), np.concatenate(waited)
