"""Small changes to a plan: most break it, some do not. Each changes the plan it is given and says whether it did."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from tests.verify.plans import Json

Change = Callable[[list[Json], Json, random.Random], bool]
CHANGES: dict[str, Change] = {}


def change(function: Change) -> Change:
    CHANGES[function.__name__] = function
    return function


def mutated(plan: Json, name: str, rng: random.Random) -> tuple[Json, list[int]] | None:
    """A changed copy, and the positions of the ops that differ; None where there is no place for the change."""
    new = copy.deepcopy(plan)
    if not CHANGES[name](new["ops"], new, rng):
        return None
    old = {op["id"]: op for op in plan["ops"]}
    touched = [i for i, op in enumerate(new["ops"]) if op != old.get(op["id"])]
    return new, touched


def _accesses(ops: list[Json], side: str | None = None) -> list[tuple[Json, Any]]:
    sides = [side] if side else ["reads", "writes"]
    return [(op, row) for op in ops for name in sides for row in op[name]]


def _pick(rng: random.Random, found: list[Any]) -> Any:
    return rng.choice(found) if found else None


def _edges(ops: list[Json]) -> list[tuple[Json, int]]:
    return [(op, i) for op in ops for i in range(len(op["after"]))]


@change
def drop_a_dependency(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (edge := _pick(rng, _edges(ops))) is None:
        return False
    del edge[0]["after"][edge[1]]
    return True


@change
def drop_all_dependencies_of_an_op(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (op := _pick(rng, [op for op in ops if op["after"]])) is None:
        return False
    op["after"] = []
    return True


@change
def redirect_a_dependency(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (edge := _pick(rng, _edges(ops))) is None:
        return False
    edge[0]["after"][edge[1]] = rng.choice(ops)["id"]
    return True


@change
def depend_on_what_a_dependency_waits_for(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    by_id = {op["id"]: op for op in ops}
    edges = [(op, i) for op, i in _edges(ops) if by_id[op["after"][i]]["after"]]
    if (edge := _pick(rng, edges)) is None:
        return False
    op, i = edge
    op["after"][i] = rng.choice(by_id[op["after"][i]]["after"])
    return True


@change
def add_a_dependency(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    rng.choice(ops)["after"].append(rng.choice(ops)["id"])
    return True


@change
def swap_the_dependencies_of_two_ops(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    a, b = rng.choice(ops), rng.choice(ops)
    a["after"], b["after"] = b["after"], a["after"]
    return a["after"] != b["after"]


@change
def turn_a_dependency_round(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (edge := _pick(rng, _edges(ops))) is None:
        return False
    other = next(op for op in ops if op["id"] == edge[0]["after"][edge[1]])
    del edge[0]["after"][edge[1]]
    other["after"].append(edge[0]["id"])
    return True


def _shift(ops: list[Json], rng: random.Random, side: str) -> bool:
    if (found := _pick(rng, _accesses(ops, side))) is None:
        return False
    step = rng.choice([1, 4, 8, 64, found[1][2]])
    found[1][1] += step * rng.choice([-1, 1])
    return step != 0


@change
def shift_a_read(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _shift(ops, rng, "reads")


@change
def shift_a_write(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _shift(ops, rng, "writes")


def _resize(ops: list[Json], rng: random.Random, side: str) -> bool:
    if (found := _pick(rng, _accesses(ops, side))) is None:
        return False
    before = found[1][2]
    found[1][2] = max(1, before + rng.choice([-64, -8, -4, -1, 1, 4, 8, 64]))
    return bool(found[1][2] != before)


@change
def resize_a_read(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _resize(ops, rng, "reads")


@change
def resize_a_write(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _resize(ops, rng, "writes")


def _rename(ops: list[Json], rng: random.Random, side: str) -> bool:
    found, other = _pick(rng, _accesses(ops, side)), _pick(rng, _accesses(ops))
    if found is None or found[1][3] == other[1][3]:
        return False
    found[1][3] = other[1][3]
    return True


@change
def read_another_value(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _rename(ops, rng, "reads")


@change
def write_another_value(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    return _rename(ops, rng, "writes")


@change
def read_elsewhere(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """The place of another access, its name kept."""
    found, other = _pick(rng, _accesses(ops, "reads")), _pick(rng, _accesses(ops))
    if found is None or found[1][:2] == other[1][:2]:
        return False
    found[1][0], found[1][1] = other[1][0], other[1][1]
    found[1][4:] = other[1][4:]
    return True


@change
def write_elsewhere(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    found, other = _pick(rng, _accesses(ops, "writes")), _pick(rng, _accesses(ops))
    if found is None or found[1][:2] == other[1][:2]:
        return False
    found[1][0], found[1][1] = other[1][0], other[1][1]
    found[1][4:] = other[1][4:]
    return True


@change
def read_a_value_where_it_stands_at_another_time(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """A reader moved out of its residency: to an extent that holds the value before or after."""
    found = _pick(rng, _accesses(ops, "reads"))
    others = [row for _, row in _accesses(ops) if found and row[3] == found[1][3] and row[:2] != found[1][:2]]
    if not others:
        return False
    found[1][:] = copy.copy(rng.choice(others))
    return True


@change
def swap_two_reads(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    a, b = _pick(rng, _accesses(ops, "reads")), _pick(rng, _accesses(ops, "reads"))
    if a is None or a[1] == b[1]:
        return False
    a[1][:], b[1][:] = list(b[1]), list(a[1])
    return True


@change
def swap_two_writes(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    a, b = _pick(rng, _accesses(ops, "writes")), _pick(rng, _accesses(ops, "writes"))
    if a is None or a[1] == b[1]:
        return False
    a[1][:], b[1][:] = list(b[1]), list(a[1])
    return True


@change
def move_a_residency(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """One extent that a value has, moved everywhere it is named."""
    found = _pick(rng, _accesses(ops))
    if found is None:
        return False
    place = found[1][:4]
    step = rng.choice([-64, -8, 8, 64])
    for _, row in _accesses(ops):
        if row[:4] == place:
            row[1] += step
    return True


@change
def swap_two_residencies(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    rows = [row for _, row in _accesses(ops) if row[0] == "cpu:0"]
    a, b = (list(_pick(rng, rows) or ()), list(_pick(rng, rows) or ()))
    if not a or a[1] == b[1] or a[3] == b[3]:
        return False
    for row in rows:
        if row[:4] == a[:4]:
            row[1] = b[1]
        elif row[:4] == b[:4]:
            row[1] = a[1]
    return True


@change
def drop_a_read(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (op := _pick(rng, [op for op in ops if op["reads"]])) is None:
        return False
    del op["reads"][rng.randrange(len(op["reads"]))]
    return True


@change
def drop_a_write(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (op := _pick(rng, [op for op in ops if op["writes"]])) is None:
        return False
    del op["writes"][rng.randrange(len(op["writes"]))]
    return True


@change
def add_a_read(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    rng.choice(ops)["reads"].append(list(rng.choice(_accesses(ops))[1]))
    return True


@change
def add_a_write(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """A workspace over bytes that somebody uses."""
    row = [*rng.choice([r for _, r in _accesses(ops) if r[0] == "cpu:0"])[:3], 10**6]
    rng.choice(ops)["writes"].append(row)
    return True


def _without(ops: list[Json], op: Json, splice: bool) -> None:
    ops.remove(op)
    for other in ops:
        if op["id"] in other["after"]:
            other["after"] = sorted({*other["after"], *(op["after"] if splice else ())} - {op["id"]})


@change
def drop_an_op(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """The ops that waited for it wait for its dependencies."""
    _without(ops, rng.choice(ops), True)
    return True


@change
def drop_an_op_and_its_dependencies(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    _without(ops, rng.choice(ops), False)
    return True


@change
def repeat_an_op(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    op = copy.deepcopy(rng.choice(ops))
    if rng.random() < 0.5:
        op["after"].append(op["id"])
    op["id"] = max(other["id"] for other in ops) + 1
    ops.append(op)
    return True


@change
def change_a_kind(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    op, kind = rng.choice(ops), rng.choice(["load", "kernel", "move", "offload", "reload", "drop", "store"])
    changed = op["kind"] != kind
    op["kind"] = kind
    return bool(changed)


@change
def take_an_op_out_of_its_unit(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    if (op := _pick(rng, [op for op in ops if op["unit"] is not None])) is None:
        return False
    op["unit"] = None
    return True


@change
def split_a_unit(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """Some of its ops, with or without a value of their own."""
    if (unit := _pick(rng, sorted({op["unit"] for op in ops if op["unit"] is not None}))) is None:
        return False
    mine = [op for op in ops if op["unit"] == unit]
    value = rng.choice([None, 10**6 + 1])
    for op in mine[rng.randrange(len(mine)) :]:
        op["unit"] = 10**6
        for row in (*op["reads"], *op["writes"]):
            if value is not None and row in op["reads"] and row in op["writes"]:
                row[3] = value
    return len(mine) > 1


@change
def put_an_op_into_another_unit(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    units = sorted({op["unit"] for op in ops if op["unit"] is not None})
    if not units:
        return False
    op, unit = rng.choice(ops), rng.choice(units)
    changed = op["unit"] != unit
    op["unit"] = unit
    return bool(changed)


@change
def merge_two_units(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    units = sorted({op["unit"] for op in ops if op["unit"] is not None})
    if len(units) < 2:
        return False
    a, b = rng.sample(units, 2)
    for op in ops:
        if op["unit"] == b:
            op["unit"] = a
    return True


@change
def change_how_runs_repeat(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    rows = [row for _, row in _accesses(ops) if len(row) == 5]
    if (row := _pick(rng, rows)) is None:
        return False
    axis = rng.choice(row[4])
    at = rng.randrange(2)
    axis[at] = max(1, axis[at] + rng.choice([-8, -4, -1, 1, 4, 8]))
    return True


@change
def take_memory_away(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    used = max(row[1] + row[2] for _, row in _accesses(ops) if row[0] == "cpu:0")
    plan["tiers"][0]["capacity"] = used - rng.choice([0, 1, 64])
    return True


@change
def list_the_ops_in_another_order(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    rng.shuffle(ops)
    return True


@change
def give_other_numbers(ops: list[Json], plan: Json, rng: random.Random) -> bool:
    """Ids, values and units are only names."""
    number = {op["id"]: 7 * i - 100 for i, op in enumerate(ops)}
    for op in ops:
        op["id"], op["after"] = number[op["id"]], [number[a] for a in op["after"]]
        op["unit"] = None if op["unit"] is None else -3 - op["unit"]
    for _, row in _accesses(ops):
        row[3] = 5 * row[3] - 77
    return True
