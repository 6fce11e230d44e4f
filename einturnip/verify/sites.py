"""Judges plans of sites: their transfers, then the joint plan with one move for each transfer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from einturnip.verify.columns import ParsedOps, refuse
from einturnip.verify.types import (
    ENDS,
    KINDS,
    MOVE,
    NOTICE,
    RECEIVE,
    SEND,
    AccessRows,
    Faults,
    Ints,
    JudgedPlan,
    Rule,
    SiteColumns,
    unique_dependencies,
)
from einturnip.verify.words import extent, op_name, span


def with_sites(plan: JudgedPlan, columns: ParsedOps, several: bool) -> JudgedPlan:
    """Return the plan with the sites of its ops, if it is one of several sites.

    Raises:
        NotAPlan: an op has no site, or the end of a transfer has no number.
    """
    site, transfer = (np.array(column, np.int64) for column in (columns.site, columns.transfer))
    is_end = np.isin(plan.kind, ENDS)
    if not several:
        if is_end.any():
            at = int(np.argmax(is_end))
            refuse(f"ops[{at}].kind", f"one of {', '.join(KINDS[:SEND])}", KINDS[plan.kind[at]])
        return plan
    for name, column, needed in (("site", site, np.ones(len(plan), bool)), ("transfer", transfer, is_end)):
        wrong = needed & (column < 0)
        if wrong.any():
            refuse(f"ops[{int(np.argmax(wrong))}].{name}", f"the number of a {name}", None)
    return replace(plan, sites=SiteColumns(site, np.where(is_end, transfer, -1)))


def check_wires(plan: JudgedPlan, sites: SiteColumns, faults: Faults) -> bool:
    """Check that ops keep to their site, and that each transfer is whole; return whether both hold."""
    _check_dependencies(plan, sites, faults)
    _check_tiers(plan, sites, faults)
    ends = np.flatnonzero(sites.transfer >= 0)
    order = ends[np.argsort(sites.transfer[ends], kind="stable")]
    for group in np.split(order, np.flatnonzero(np.diff(sites.transfer[order])) + 1) if len(order) else ():
        _check_transfer(plan, sites, group, faults)
    return not faults.counts


def _check_dependencies(plan: JudgedPlan, sites: SiteColumns, faults: Faults) -> None:
    waiting: Ints = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr))
    for e in np.flatnonzero(sites.site[waiting] != sites.site[plan.after]).tolist():
        if faults.count(Rule.LOCAL):
            x, u = int(waiting[e]), int(plan.after[e])
            text = f"{op_name(plan, x)} of site {sites.site[x]} waits for {op_name(plan, u)} of site {sites.site[u]}"
            faults.add(Rule.LOCAL, (u, x), None, text)
    early = (plan.kind[plan.after] == NOTICE) & (sites.transfer[waiting] != sites.transfer[plan.after])
    for e in np.flatnonzero(early).tolist():
        if faults.count(Rule.WIRE):
            x, u = int(waiting[e]), int(plan.after[e])
            text = f"{op_name(plan, x)} waits for {op_name(plan, u)}, but a value is not there before its receive"
            faults.add(Rule.WIRE, (u, x), None, text)


def _check_tiers(plan: JudgedPlan, sites: SiteColumns, faults: Faults) -> None:
    owner = np.array([tier.site for tier in plan.tiers] or [-1], np.int64)
    for rows in (plan.read, plan.write):
        ops = rows.op
        foreign = (owner[rows.tier] >= 0) & (owner[rows.tier] != sites.site[ops])
        for row in np.flatnonzero(foreign).tolist():
            if faults.count(Rule.LOCAL):
                x = int(ops[row])
                text = f"{op_name(plan, x)} of site {sites.site[x]} uses {extent(plan, rows, row)} of another site"
                faults.add(Rule.LOCAL, (x,), span(plan, rows, row), text)


def _check_transfer(plan: JudgedPlan, sites: SiteColumns, ends: Ints, faults: Faults) -> None:
    """Check one transfer. ``ends``: its ops."""
    number = int(sites.transfer[ends[0]])
    by_kind = {kind: ends[plan.kind[ends] == kind].tolist() for kind in ENDS}
    for kind, found in by_kind.items():
        if len(found) != 1:
            _add(faults, ends, f"transfer {number} has {len(found)} ops of kind {KINDS[kind]} instead of one")
            return
    (send,), (notice,), (receive,) = by_kind[SEND], by_kind[NOTICE], by_kind[RECEIVE]
    if sites.site[send] == sites.site[receive]:
        _add(faults, ends, f"{op_name(plan, send)} and {op_name(plan, receive)} are of one site")
    if notice not in plan.after[plan.after_ptr[receive] : plan.after_ptr[receive + 1]]:
        text = f"{op_name(plan, receive)} does not wait for {op_name(plan, notice)}: it can block the receive window"
        _add(faults, ends, text)
    sent, received = _carried(plan, plan.read, send), _carried(plan, plan.write, receive)
    if sent != received or not sent:
        text = f"{op_name(plan, send)} sends {_listed(sent)}, but {op_name(plan, receive)} receives {_listed(received)}"
        _add(faults, ends, text)


def _add(faults: Faults, ends: Ints, text: str) -> None:
    if faults.count(Rule.WIRE):
        faults.add(Rule.WIRE, tuple(ends.tolist()), None, text)


def _carried(plan: JudgedPlan, rows: AccessRows, op: int) -> list[tuple[int, int]]:
    """Return the value and the bytes of each access of one side of an op."""
    mine = slice(int(rows.ptr[op]), int(rows.ptr[op + 1]))
    return list(zip(plan.values[rows.value[mine]].tolist(), plan.size(rows)[mine].tolist(), strict=True))


def _listed(carried: list[tuple[int, int]]) -> str:
    return " and ".join(f"value {value} ({nbytes} bytes)" for value, nbytes in carried) or "nothing"


def joined(plan: JudgedPlan, sites: SiteColumns) -> JudgedPlan:
    """Return the joint plan with one move for each transfer.

    A move has the place and the id of its receive. An op that waits for one end of a transfer waits for the move: a
    send ends only after its receive.
    """
    kept = np.flatnonzero(~np.isin(plan.kind, (SEND, NOTICE)))
    place = np.full(len(plan), -1, np.int64)
    place[kept] = np.arange(len(kept))
    receives = np.flatnonzero(plan.kind == RECEIVE)
    receive_of = dict(zip(sites.transfer[receives].tolist(), receives.tolist(), strict=True))
    ends = np.flatnonzero(sites.transfer >= 0)
    place[ends] = place[[receive_of[t] for t in sites.transfer[ends].tolist()]] if len(ends) else place[ends]
    waiting: Ints = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr))
    lasting = plan.kind[plan.after] != NOTICE
    after_ptr, after = unique_dependencies(place[waiting[lasting]], place[plan.after[lasting]], len(kept))
    sends = np.flatnonzero(plan.kind == SEND)
    reader = np.arange(len(plan))
    reader[[receive_of[t] for t in sites.transfer[sends].tolist()]] = sends  # a move reads what its send does
    return replace(
        plan,
        ids=plan.ids[kept],
        kind=np.where(plan.kind == RECEIVE, MOVE, plan.kind)[kept].astype(np.uint8),
        task=plan.task[kept],
        unit=plan.unit[kept],
        read=plan.read.take(reader[kept]),
        write=plan.write.take(kept),
        after_ptr=after_ptr,
        after=after.astype(np.int32),
        repeated=plan.repeated + len(plan.after) - len(after),
        sites=None,
    )
