"""Reads the JSON of ``einturnip plan --emit memgraph``, or ``--emit sites``, into a ``JudgedPlan``.

The text is streamed, so that memory grows only with the columns.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from einturnip.verify.columns import ParsedOps, RowColumns, refuse
from einturnip.verify.sites import with_sites
from einturnip.verify.stream import JsonText
from einturnip.verify.types import (
    TIER_KINDS,
    AccessRows,
    Bools,
    Ints,
    JudgedPlan,
    NotAPlan,
    Tier,
    take_rows,
    unique_dependencies,
)

SCHEMA, SITES_SCHEMA = "einturnip.memgraph/1", "einturnip.sites/1"
# Small enough to stay in the cache.
OPS_AT_ONCE = 128


def read(stream: BinaryIO, name: str) -> JudgedPlan:
    """Read a plan.

    Raises:
        NotAPlan: not JSON, or not in the format; names the path of the field.
    """
    text = JsonText(stream, name)
    columns = ParsedOps()
    found: dict[str, Any] = {}
    if text.peek() != "{":
        raise NotAPlan(f"{name} is not a plan: expected a JSON object. help: einturnip plan ... --format json")
    for key in text.items():
        if key == "ops":
            if text.peek() != "[":
                refuse("ops", "a list", text.value())
            if key in found:
                raise NotAPlan("ops: given twice")
            for batch in text.batches(OPS_AT_ONCE):
                columns.extend(batch)
            found[key] = None
        elif key in ("schema", "program", "budget", "predicted", "tiers"):
            found[key] = text.value()
            if key == "schema":
                _check_schema(found[key])
        elif text.peek() == "[":
            for _ in text.batches(OPS_AT_ONCE):
                pass  # an unknown list, which may be long
        else:
            text.value()
    text.end()
    for key in ("schema", "program", "budget", "predicted", "tiers", "ops"):
        if key not in found:
            raise NotAPlan(f"the field '{key}' is missing")
    if type(found["program"]) is not str:
        refuse("program", "the name of a program", found["program"])
    for key in ("budget", "predicted"):
        if type(found[key]) is not dict:
            refuse(key, "an object", found[key])
    plan = _plan(columns, found["program"], _tiers(found["tiers"]))
    return with_sites(plan, columns, found["schema"] == SITES_SCHEMA)


def _check_schema(found: Any) -> None:
    if found not in (SCHEMA, SITES_SCHEMA):
        more = ". help: einturnip plan ... --emit memgraph --format json" if str(found).startswith("einturnip.") else ""
        raise NotAPlan(f"schema: expected '{SCHEMA}' or '{SITES_SCHEMA}', found {found!r}{more}")


def _tiers(found: Any) -> tuple[Tier, ...]:
    if type(found) is not list:
        refuse("tiers", "a list", found)
    tiers: dict[str, Tier] = {}
    for i, tier in enumerate(found):
        path = f"tiers[{i}]"
        if type(tier) is not dict:
            refuse(path, "an object", tier)
        for key in ("id", "kind", "capacity"):
            if key not in tier:
                raise NotAPlan(f"{path}: the field '{key}' is missing")
        if type(tier["id"]) is not str:
            refuse(f"{path}.id", "a name", tier["id"])
        if tier["id"] in tiers:
            raise NotAPlan(f"{path}.id: there is a tier '{tier['id']}' already")
        if type(tier["kind"]) is not str or tier["kind"] not in TIER_KINDS:
            refuse(f"{path}.kind", f"one of {', '.join(TIER_KINDS)}", tier["kind"])
        capacity = tier["capacity"]
        if capacity is not None and (type(capacity) is not int or not 0 <= capacity < 1 << 63):
            refuse(f"{path}.capacity", "a number of bytes or null", capacity)
        site = tier.get("site", -1)
        if type(site) is not int or not -1 <= site < 1 << 31:
            refuse(f"{path}.site", "the number of a site", site)
        tiers[tier["id"]] = Tier(tier["id"], tier["kind"], capacity, site)
    return tuple(tiers.values())


def _plan(columns: ParsedOps, program: str, tiers: tuple[Tier, ...]) -> JudgedPlan:
    ids = _column(columns.ids, np.int64)
    values, (reads, writes) = _values(columns.sides)
    repeats = columns.repeats_table()
    sides = [
        _rows(side, value, tiers, columns.tiers) for side, value in zip(columns.sides, (reads, writes), strict=True)
    ]
    after_ptr = np.concatenate([[0], np.cumsum(_column(columns.after_counts, np.int64))]).astype(np.int64)
    positions = _positions(ids, _column(columns.after, np.int64), after_ptr)
    after_ptr, after, n_duplicates = _deduplicated(after_ptr, positions)
    in_unit = _column(columns.in_unit, np.uint8).astype(bool)
    units, number = np.unique(_column(columns.unit, np.int64)[in_unit], return_inverse=True)
    unit = np.full(len(ids), -1, np.int32)
    unit[in_unit] = number
    return JudgedPlan(
        program=program,
        tiers=tiers,
        repeats=repeats,
        ids=ids,
        kind=_column(columns.kind, np.uint8),
        task=_column(columns.task, np.int64),
        unit=unit,
        read=sides[0],
        write=sides[1],
        after_ptr=after_ptr,
        after=after.astype(np.int32),
        repeated=n_duplicates,
        values=values,
        units=units,
    )


def _column(found: Any, dtype: Any) -> Any:
    return np.frombuffer(found, dtype) if len(found) else np.empty(0, dtype)


def _values(sides: tuple[RowColumns, RowColumns]) -> tuple[Ints, list[Ints]]:
    """Return the distinct value numbers of the plan, and the values of each side as indices into them."""
    named = [_column(side.value, np.int64) for side in sides]
    values, number = np.unique(np.concatenate(named), return_inverse=True)
    return values, np.split(number, [len(named[0])])


def _rows(side: RowColumns, value: Ints, tiers: tuple[Tier, ...], named: dict[str, int]) -> AccessRows:
    """Return the accesses that are not empty."""
    counts = _column(side.counts, np.int64)
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    tier, repeat = _column(side.tier, np.int32), _column(side.repeat, np.int32)
    declared = {t.name: i for i, t in enumerate(tiers)}
    number = np.array([declared.get(name, -1) for name in named] or [0], np.int32)
    of_tier = number[tier]
    names = list(named)
    if (of_tier < 0).any():
        at = int(np.argmax(of_tier < 0))
        raise NotAPlan(f"{_path(side.side, ptr, at)}[0]: there is no tier '{names[tier[at]]}'")
    is_file = np.array([t.kind in ("input", "output") for t in tiers] or [False], bool)
    misplaced = (repeat > 0) & ~is_file[of_tier] if len(of_tier) else np.zeros(0, bool)
    if misplaced.any():
        at = int(np.argmax(misplaced))
        name = names[tier[at]]
        raise NotAPlan(f"{_path(side.side, ptr, at)}[4]: only in files do extents repeat, and '{name}' is none")
    nbytes = _column(side.nbytes, np.int64)
    nonempty: Bools = nbytes > 0
    op = np.repeat(np.arange(len(counts)), counts)[nonempty]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(op, minlength=len(counts)))]).astype(np.int64)
    start = _column(side.start, np.int64)
    return AccessRows(
        ptr, of_tier[nonempty], start[nonempty], nbytes[nonempty], value[nonempty].astype(np.int32), repeat[nonempty]
    )


def _path(side: str, ptr: Ints, row: int) -> str:
    op = int(np.searchsorted(ptr, row, side="right")) - 1
    return f"ops[{op}].{side}[{row - int(ptr[op])}]"


def _positions(ids: Ints, after: Ints, ptr: Ints) -> Ints:
    """Return the positions of the ops with the given ids."""
    n = len(ids)
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    duplicates = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(duplicates):
        first, second = order[duplicates[0]], order[duplicates[0] + 1]
        raise NotAPlan(f"ops[{second}].id: {ids[second]} is the id of ops[{first}], too")
    if not len(after):
        return np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(ordered, after), n - 1)
    unknown = ordered[at] != after
    if unknown.any():
        where = int(np.argmax(unknown))
        raise NotAPlan(f"{_path('after', ptr, where)}: there is no op {after[where]}")
    return order[at]


def _deduplicated(ptr: Ints, after: Ints) -> tuple[Ints, Ints, int]:
    """Return each op's dependencies sorted and without duplicates; and the number of duplicates."""
    n = len(ptr) - 1
    new, single = unique_dependencies(np.repeat(np.arange(n), np.diff(ptr)), after, n)
    return new, single, len(after) - len(single)


def in_order(plan: JudgedPlan, order: Ints) -> JudgedPlan:
    """Return the plan with its ops in the given order."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    after_ptr, rows = take_rows(plan.after_ptr, order)
    after_ptr, after, _ = _deduplicated(after_ptr, position[plan.after[rows]])
    return JudgedPlan(
        program=plan.program,
        tiers=plan.tiers,
        repeats=plan.repeats,
        ids=plan.ids[order],
        kind=plan.kind[order],
        task=plan.task[order],
        unit=plan.unit[order],
        read=plan.read.take(order),
        write=plan.write.take(order),
        after_ptr=after_ptr,
        after=after.astype(np.int32),
        repeated=plan.repeated,
        values=plan.values,
        units=plan.units,
    )
