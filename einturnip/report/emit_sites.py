"""The plan of each site as JSON and as text, for ``einturnip plan --emit sites``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from einturnip.core.csr import take_rows
from einturnip.memgraph.types import DISK, HOST, MemGraph
from einturnip.report.emit_ops import Files, op_json, op_line, places_text, tiers_of
from einturnip.sites.split import split
from einturnip.sites.types import Ints, Role, SitePlan

_OWN = {"host": HOST, "disk": DISK}
"""Tiers of which each site has a part of its own."""


class _OwnBytes:
    """The bytes of a tier that the ops of one site use, without the bytes of other sites between them.

    ``nbytes``: how many they are. A plan for several devices places what all of them spill in one tier.
    """

    def __init__(self, plan: SitePlan, tier: int) -> None:
        graph, ops = plan.graph, plan.op[plan.role == Role.LOCAL]
        columns = ((graph.read_ptr, graph.read), (graph.write_ptr, graph.write))
        rows = np.concatenate([rows[take_rows(ptr, ops)[1]] for ptr, rows in columns])
        begin, nbytes = rows[rows[:, 0] == tier][:, 1:3].T
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate((begin + nbytes)[order])
        first = np.flatnonzero(np.append(True, begin[1:] > end[:-1])[: len(begin)])
        self._begin: Ints = begin[first]
        lengths = end[np.append(first[1:], len(end)) - 1] - self._begin if len(first) else self._begin
        self._moved: Ints = np.cumsum(lengths) - lengths
        self.nbytes = int(lengths.sum())

    def __call__(self, offset: int) -> int:
        """Return the offset among the bytes of the site."""
        at = int(np.searchsorted(self._begin, offset, side="right")) - 1
        return int(self._moved[at] + offset - self._begin[at])


def site_tiers(graph: MemGraph, files: Files) -> list[dict[str, Any]]:
    """The tiers of all sites: each has a memory, a spill file and a part of host memory of its own."""
    tiers: list[dict[str, Any]] = []
    for tier in tiers_of(graph, files):
        if tier["kind"] == "compute":
            tiers.append(tier | {"site": int(tier["id"].removeprefix("cpu:"))})
        elif tier["kind"] == "host":
            own = [_OwnBytes(plan, HOST).nbytes for plan in split(graph)]
            tiers += [tier | {"id": f"host:{k}", "capacity": nbytes, "site": k} for k, nbytes in enumerate(own)]
        elif tier["kind"] == "store":
            tiers += [tier | {"id": f"{tier['id']}:{k}", "site": k} for k in range(graph.devices)]
        else:
            tiers.append(tier)
    return tiers


def site_ops(graph: MemGraph, files: Files) -> Iterator[dict[str, Any]]:
    """Yield the ops of one site after the other; ids are consecutive."""
    first, carried = 0, {Role.SEND: "reads", Role.RECEIVE: "writes"}
    for plan in split(graph):
        own = {name: _OwnBytes(plan, tier) for name, tier in _OWN.items()}

        def placed(place: list[Any], own: Mapping[str, _OwnBytes] = own, site: int = plan.site) -> list[Any]:
            tier, offset, *rest = place
            return [f"{tier}:{site}", own[tier](offset), *rest] if tier in own else place

        for i, (role, at, peer) in enumerate(
            zip(plan.role.tolist(), plan.op.tolist(), plan.peer.tolist(), strict=True)
        ):
            op = op_json(graph, files, graph[at])
            after = plan.after[plan.after_ptr[i] : plan.after_ptr[i + 1]]
            op |= {"id": first + i, "site": plan.site, "after": (after + first).tolist()}
            for side in ("reads", "writes"):
                kept = role == Role.LOCAL or side == carried.get(role)
                op[side] = [placed(place) for place in op[side]] if kept else []
            if role != Role.LOCAL:
                op |= {"kind": Role(role).name.lower(), "lane": "net", "unit": None, "transfer": at, "peer": peer}
            yield op
        first += len(plan)


def site_lines(graph: MemGraph, files: Files) -> Iterator[str]:
    """Yield a heading for each site, and a line for each of its ops."""
    site = None
    for op in site_ops(graph, files):
        if op["site"] != site:
            site = op["site"]
            yield f"site {site}:"
        yield _transfer_line(op) if "transfer" in op else op_line(op)


def _transfer_line(op: Mapping[str, Any]) -> str:
    peer, number = f"site {op['peer']}", f"(transfer {op['transfer']})"
    match op["kind"]:
        case "send":
            text = f"send value {op['reads'][0][3]} at {places_text(op['reads'])} to {peer}"
        case "receive":
            text = f"receive value {op['writes'][0][3]} at {places_text(op['writes'])} from {peer}"
        case _:
            text = f"notice from {peer}"
    after = f" after {' '.join(map(str, op['after']))}" if op["after"] else ""
    return f"{op['id']}: {text} {number}{after}"
